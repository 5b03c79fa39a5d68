import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import nn

import trustdoctor as td
from trustdoctor.adapters.torch import EPSILONS, TEMPERATURES, Doctor, Setting, sweep
from trustdoctor.errors import FileError, InputError, LabelsMissingError
from trustdoctor.scores import find_logit_score

GRID = {"temperatures": (1.0, 1.5), "epsilons": (0.0, 0.02, 0.05)}


def test_the_papers_grid_is_the_default():
    assert (len(TEMPERATURES), len(EPSILONS)) == (11, 24)
    assert TEMPERATURES[-1] == 1000
    assert EPSILONS[4] == 0.00035
    assert np.allclose(np.diff(EPSILONS[6:]), 0.0002)


@pytest.mark.parametrize("order", [1, 2])
def test_every_cell_is_what_doctor_finds(order, small, images):
    swept = sweep(small, images, order=order, scale=[1, 2, 3], batch_size=7, **GRID)
    assert swept.scores.shape == (20, 3 * 2 * 3)
    for setting in swept.settings:
        examination = Doctor(
            small,
            score=setting.score,
            temperature=setting.temperature,
            epsilon=setting.epsilon,
            scale=[1, 2, 3],
            order=order,
        )(images)
        assert swept.column(setting) == pytest.approx(examination.scores, abs=1e-5)
        if examination.perturbed is not None:
            at = swept.settings.index(setting)
            assert np.array_equal(
                swept.predicted[:, at], examination.perturbed.predicted
            )
            paper = find_logit_score(setting.score).function(
                examination.perturbed.logits, temperature=setting.temperature
            )
            assert swept.paper_scores[:, at] == pytest.approx(paper, abs=1e-5)
    assert (swept.predicted is None) == (order == 1)


def test_fitted_scores_are_swept(small, images):
    examination = Doctor(small)([(images, torch.arange(20) % 4)])
    score = td.Mahalanobis.fit(examination.predictions)
    swept = sweep(small, images, scores=[score], temperatures=[1.0], epsilons=[0, 0.05])
    examination = Doctor(small, score=score, epsilon=0.05)(images)
    assert swept.scores[:, 1] == pytest.approx(examination.scores, rel=1e-4)
    assert (swept.scores[:, 1] <= swept.scores[:, 0] + 1e-6).mean() > 0.9


def test_both_protocols_are_evaluated(small, images):
    labels = torch.arange(20) % 4
    swept = sweep(small, [(images, labels)], **GRID)
    setting = Setting("alpha", 1.0, 0.05)
    protocols = swept.evaluate(setting)
    assert protocols.deployed.n_errors == swept.predictions.errors.sum()
    moved = Doctor(small, epsilon=0.05)([(images, labels)])
    assert protocols.paper.n_errors == moved.perturbed.errors.sum()
    assert protocols.deployed.metrics["auroc"].value == pytest.approx(
        td.auroc(moved.scores, moved.predictions.errors)
    )
    with pytest.raises(LabelsMissingError):
        sweep(small, images, **GRID).evaluate(setting)


FORMULAS = [n for n, score in td.SCORES.items() if isinstance(score, td.LogitScore)]


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("score", FORMULAS)
@pytest.mark.sampled(3)
def test_doctor_and_sweep_agree_under_both_protocols(score, order):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4))
    data = [(torch.randn(300, 6), torch.arange(300) % 4)]
    at = {"temperatures": [1.0], "epsilons": [0.0, 0.3], "order": order}
    swept = sweep(model, data, scores=[score], **at)
    for epsilon in (0.0, 0.3):
        examination = Doctor(model, score=score, epsilon=epsilon, order=order)(data)
        protocols, grid = (
            examination.evaluate(),
            swept.evaluate(Setting(score, 1.0, epsilon)),
        )
        close(protocols.deployed, grid.deployed)
        if epsilon and order == 2:
            close(protocols.paper, grid.paper)
            flipped = (
                examination.perturbed.predicted != examination.predictions.predicted
            )
            assert flipped.sum() > 10 or find_logit_score(score).perturbation_sign < 0
            # By the definition: the formula at the perturbed logits, and their errors.
            formula = find_logit_score(score).function
            doubts = formula(examination.perturbed.logits, temperature=1.0)
            auroc = roc_auc_score(examination.perturbed.errors, doubts)
            assert protocols.paper.metrics["auroc"].value == pytest.approx(auroc)
        else:
            assert protocols.paper is None


def close(protocol, other):
    assert protocol.n_errors == other.n_errors
    assert protocol.accuracy == other.accuracy
    for name in ("auroc", "frr_at_trr", "aurc"):
        values = [np.array(p.metrics[name].value) for p in (protocol, other)]
        assert values[0] == pytest.approx(values[1], abs=1e-3), name


def test_doubts_about_the_clean_class_do_not_judge_another(cifar):
    """ResNet-20 at magnitude 0.002: the paper's protocol gains nothing by beta."""
    model, x, stored, scale = cifar
    doctor = Doctor(model, score="beta", epsilon=0.002, scale=scale)
    examination = doctor([(x, torch.tensor(stored["labels"]))])
    protocols = examination.evaluate()
    clean_class = td.auroc(examination.scores, examination.perturbed.errors)
    assert 100 * clean_class == pytest.approx(91.8, abs=0.1)
    assert 100 * protocols.paper.metrics["auroc"].value == pytest.approx(84.8, abs=0.1)
    assert 100 * protocols.deployed.metrics["auroc"].value == pytest.approx(
        88.1, abs=0.1
    )
    assert protocols.paper.n_errors == 115


class Killed(Exception):  # noqa: N818
    pass


def test_a_killed_sweep_resumes_where_it_stopped(small, images, tmp_path):
    swept = sweep(small, images, batch_size=5, **GRID)
    calls = 0

    def forward(model, x):
        nonlocal calls
        calls += 1
        if calls > limit:
            raise Killed
        return model(x)

    a_batch = 1 + 3 * 2 * 2
    limit = 2 * a_batch + 3
    options = {
        "batch_size": 5,
        "checkpoint": tmp_path / "run",
        "forward": forward,
    } | GRID
    with pytest.raises(Killed):
        sweep(small, images, **options)
    assert len(list((tmp_path / "run").iterdir())) == 2
    calls, limit = 0, 10**9
    repeated = sweep(small, images, **options)
    assert calls == 2 * a_batch
    assert np.array_equal(repeated.scores, swept.scores)
    assert np.array_equal(repeated.predicted, swept.predicted)
    assert np.array_equal(repeated.predictions.logits, swept.predictions.logits)


FORWARD = """
def forward(model, x):
    named = [part * {factor} for part in [x] if len(x) in {{1, 5, 10, 20}}]
    return model((lambda rows: rows)(named[0] / {factor}))
"""


def test_a_forward_with_nested_functions_continues_after_a_restart(
    small, images, tmp_path
):
    """Another process has it at another address."""
    for factor, file in ((2, "a.py"), (2, "b.py"), (4, "c.py")):
        scope = {}
        exec(compile(FORWARD.format(factor=factor), file, "exec"), scope)
        options = {"checkpoint": tmp_path, "forward": scope["forward"], **GRID}
        if factor == 4:
            with pytest.raises(FileError, match="other data"):
                sweep(small, images, **options)
        else:
            sweep(small, images, **options)


def test_checkpoints_of_something_else_are_refused(small, images, tmp_path):
    options = {"checkpoint": tmp_path, **GRID}
    sweep(small, images, **options)
    with pytest.raises(FileError, match="other data"):
        sweep(small, images + 1, **options)
    with pytest.raises(FileError, match="other data"):
        sweep(small, images, scale=2, **options)
    with pytest.raises(FileError, match="other data"):
        sweep(small, images, forward=lambda m, x: 5 * m(x), **options)
    fitted = [
        td.Mahalanobis.fit(
            td.Predictions.from_logits(
                np.random.default_rng(k).normal(size=(20, 4)), np.arange(20) % 4
            )
        )
        for k in (0, 1)
    ]
    settings = {
        "temperatures": [1.0],
        "epsilons": [0, 0.1],
        "checkpoint": tmp_path / "own",
    }
    first = sweep(small, images, scores=fitted[:1], **settings)
    repeated = sweep(
        small, images, scores=fitted[:1], **settings
    )  # has cached values now
    assert np.array_equal(repeated.scores, first.scores)
    with pytest.raises(FileError, match="other data"):
        sweep(small, images, scores=fitted[1:], **settings)
    fine = {**settings, "checkpoint": tmp_path / "fine"}
    sweep(small, images, scale=torch.tensor([1.00001] * 3), **fine)
    with pytest.raises(FileError, match="other data"):
        sweep(small, images, scale=torch.tensor([1.00004] * 3), **fine)
    with torch.no_grad():
        small.head.bias += 1
    with pytest.raises(FileError, match="other data"):
        sweep(small, images, **options)
    for content in (b"half", b"", b"PK\x03\x04"):
        (tmp_path / "batch-000000.npz").write_bytes(content)
        with pytest.raises(FileError, match="cannot read"):
            sweep(small, images, **options)
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="cannot make"):
        sweep(small, images, checkpoint=tmp_path / "file", **GRID)


def test_double_precision_is_kept():
    class Close(torch.nn.Module):
        def forward(self, x):
            return torch.stack([x[:, 0], x[:, 0] + 1e-12], 1)

    x = torch.ones(3, 1, dtype=torch.float64)
    swept = sweep(Close(), x, scores=["alpha"], temperatures=[1.0], epsilons=[0.0])
    assert swept.predictions.predicted.tolist() == [1, 1, 1]


def test_without_a_magnitude_no_gradient_is_asked_for():
    model = torch.nn.Embedding(5, 3)
    ids = torch.arange(5)
    swept = sweep(model, ids, scores=["alpha"], temperatures=[1.0], epsilons=[0.0])
    assert swept.scores.shape == (5, 1)


def test_mistakes_are_refused(small, images):
    with pytest.raises(InputError, match="Module"):
        sweep(3, images)
    with pytest.raises(InputError, match="order"):
        sweep(small, images, order=3)
    with pytest.raises(InputError, match="batch_size"):
        sweep(small, images, batch_size=0)
    with pytest.raises(InputError, match="at least one score"):
        sweep(small, images, scores=[])
    with pytest.raises(InputError, match="epsilon"):
        sweep(small, images, epsilons=[-1])
    with pytest.raises(InputError, match="temperature"):
        sweep(small, images, temperatures=[0])
    with pytest.raises(InputError, match="at least one batch"):
        sweep(small, [])


def test_the_table_has_every_setting_and_marks_one(small, images):
    labels = torch.arange(20) % 4
    swept = sweep(small, [(images, labels)], **GRID)
    table = swept.table().to_frame()
    assert table.shape[0] == len(swept.settings)
    marked = table.filter(table["chosen"] == "*")
    assert marked.shape[0] == 1
    assert marked["auroc"][0] == table["auroc"].max()
    first = swept.evaluate(swept.settings[0])
    assert table["auroc"][0] == first.deployed.metrics["auroc"].value
    assert table["paper_auroc"][0] == first.paper.metrics["auroc"].value
    setting = swept.settings[3]
    assert swept.table(setting).to_frame()["chosen"].to_list()[3] == "*"
    # Rows that choose have no part in the table.
    split = swept.table(choose_on=slice(0, 10))
    errors = swept.predictions.errors[10:]
    expected = td.auroc(swept.scores[10:, 0], errors)
    assert split.rows[0]["auroc"].value == expected
    with pytest.raises(InputError, match=r"one of 18 settings .*got Setting"):
        swept.evaluate(Setting("alpha", 9.0, 0.05))
