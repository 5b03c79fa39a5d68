"""The metric of a training loop, alone and in several processes."""

import subprocess
import sys

import pytest
import torch

import trustdoctor as td
from trustdoctor.adapters.torch import RejectionMetrics
from trustdoctor.errors import InputError


def rows(n=3000, seed=0):
    rng = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 5, (n,), generator=rng)
    logits = torch.randn(n, 5, generator=rng)
    logits[torch.arange(n), labels] += 2
    return logits, labels


def exact(logits, labels):
    scores = td.alpha(logits.numpy())
    return td.measure(scores, (logits.argmax(1) != labels).numpy())


def test_batches_add_up():
    logits, labels = rows()
    metric = RejectionMetrics("alpha")
    for batch_rows in torch.arange(3000).split(700):
        metric.update(logits[batch_rows].requires_grad_(), labels[batch_rows])
    expected = exact(logits, labels)
    for name, value in metric.compute().items():
        assert float(value) == pytest.approx(expected[name], abs=1e-6)
    state = metric.state_dict()
    metric.reset()
    assert all(torch.isnan(value) for value in metric.compute().values())
    metric.load_state_dict(state)
    other = RejectionMetrics("alpha")
    batch = other(*rows(500, seed=1))
    expected = exact(*rows(500, seed=1))
    assert float(batch["auroc"]) == pytest.approx(expected["auroc"], abs=1e-6)
    other.merge_state(metric)
    assert len(other.sketch) == 3500
    other.update(logits[:0], labels[:0])
    assert len(other.sketch) == 3500


def test_mistakes_are_named():
    with pytest.raises(InputError, match="expected metrics"):
        RejectionMetrics(metrics=("accuracy",))
    with pytest.raises(InputError, match="expected a score"):
        RejectionMetrics("nonsense")
    metric = RejectionMetrics()
    with pytest.raises(InputError, match="got shapes"):
        metric.update(torch.zeros(3, 2), torch.zeros(2))
    with pytest.raises(InputError, match="NaN"):
        metric.update(torch.full((3, 2), torch.nan), torch.zeros(3, dtype=torch.long))
    for labels in (torch.tensor([0, -100]), torch.tensor([0, 2]), torch.zeros(2)):
        with pytest.raises(InputError, match="expected labels from 0 to 1"):
            metric.update(torch.eye(2), labels)
    other = RejectionMetrics("msp")
    for step in (
        lambda: metric.merge_state(other),
        lambda: metric.load_state_dict(other.state_dict()),
        lambda: metric.load_state_dict({}),
    ):
        with pytest.raises(InputError, match="expected"):
            step()


PROCESS = """
import sys
import torch
from trustdoctor.adapters.torch import RejectionMetrics

rank, folder = int(sys.argv[1]), sys.argv[2]
torch.distributed.init_process_group(
    "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2
)
logits, labels = torch.load(f"{folder}/rows.pt")
metric = RejectionMetrics("alpha")
metric.update(logits[rank::2], labels[rank::2])
print(*(float(value) for value in metric.compute().values()))
torch.distributed.destroy_process_group()
"""


@pytest.mark.more
def test_every_process_gets_the_metrics_of_all_rows(tmp_path):
    torch.save(rows(), tmp_path / "rows.pt")
    jobs = [
        subprocess.Popen(
            [sys.executable, "-c", PROCESS, str(rank), str(tmp_path)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    all_metrics = exact(*rows())
    expected = [all_metrics[name] for name in ("auroc", "frr_at_trr", "aurc")]
    for job in jobs:
        printed = [float(value) for value in job.communicate()[0].split()]
        assert printed == pytest.approx(expected, abs=1e-6)
