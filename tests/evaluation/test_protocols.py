import json

import numpy as np
import pytest

import trustdoctor as td
from trustdoctor.errors import InputError


def test_the_authors_files_under_both_protocols(shared, root):
    folder = shared / "reference"
    clean, moved = (
        td.read(folder / f"cifar10-densenet-{name}.npz", probs="values", labels="label")
        for name in ("tbb", "pbb-alpha-T1-eps0.00035")
    )
    doubts = td.alpha(moved.logits)
    protocols = td.evaluate_perturbed(doubts, clean.errors, moved.errors, doubts)
    for protocol, accuracy, auroc, frr in (
        (protocols.paper, 93.29, 95.17, 13.94),
        (protocols.deployed, 95.19, 93.94, 16.92),
    ):
        assert 100 * protocol.accuracy.value == pytest.approx(accuracy, abs=1e-9)
        assert 100 * protocol.metrics["auroc"].value == pytest.approx(auroc, abs=0.01)
        assert 100 * protocol.metrics["frr_at_trr"].value == pytest.approx(
            frr, abs=0.01
        )
    page = (root / "docs" / "guides" / "gradients.md").read_text()
    for line in repr(protocols).splitlines():
        assert f"| {' | '.join(line.split())} |" in page
    json.dumps(protocols.to_dict(), allow_nan=False)


def test_the_papers_protocol_may_be_unknown(rng):
    scores, errors = rng.normal(size=300), rng.random(300) < 0.5
    protocols = td.evaluate_perturbed(scores, errors)
    assert protocols.paper is None
    assert "paper" not in repr(protocols)
    assert protocols.deployed.metrics["auroc"].value == td.auroc(scores, errors)
    assert protocols.deployed.n_errors == errors.sum()


def test_lengths_must_agree():
    two_rows, one_row = [0.1, 0.2], np.array([True])
    with pytest.raises(InputError, match="2"):
        td.evaluate_perturbed(two_rows, [True, False], one_row, two_rows)
    with pytest.raises(InputError, match="2"):
        td.evaluate_perturbed(two_rows, [True, False], one_row, [0.1])
    with pytest.raises(InputError, match="1"):
        td.evaluate_perturbed(two_rows, [True, False], [True, False], [0.1])


def test_doubts_about_the_clean_class_never_meet_errors_of_another():
    """Without the doubts about the perturbed prediction there is no paper protocol."""
    with pytest.raises(InputError, match=r"no perturbed_scores.*beta, msp, margin"):
        td.evaluate_perturbed([0.1, 0.2], [True, False], [True, True])
    with pytest.raises(InputError, match="no perturbed_errors"):
        td.evaluate_perturbed([0.1, 0.2], [True, False], perturbed_scores=[0.1, 0.2])
