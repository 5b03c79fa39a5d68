import numpy as np
import pytest

import trustdoctor as td
from trustdoctor.combine import mix
from trustdoctor.errors import InputError


def test_two_noisy_halves_of_the_truth_are_better_together(rng):
    errors = rng.random(6000) < 0.3
    first, second = (errors + rng.normal(size=6000) for _ in range(2))
    found = td.combine(first, second, errors)
    assert 0.3 < found.weight < 0.7
    assert found.gains["alpha"].low > 0
    assert "beats both" in found.verdict()
    mixed = found.function(first, second)
    assert np.allclose(mixed, mix(first, second, found.weight))


def test_nothing_gained_is_said(rng):
    errors = rng.random(4000) < 0.3
    first = errors + rng.normal(size=4000)
    found = td.combine(first, rng.normal(size=4000), errors)
    assert "not clearly better" in found.verdict()
    assert found.weight < 0.3


def test_on_real_predictions_the_gain_is_reported_as_it_is(shared):
    with np.load(shared / "predictions" / "resnet-20-cifar10-test.npz") as file:
        p = td.Predictions.from_logits(file["logits"], file["labels"])
    found = td.combine(td.alpha(p.logits), td.beta(p.logits), p.errors)
    assert found.n_chosen == found.n_judged == 5000
    assert abs(found.gains["alpha"].value) < 0.002
    assert "not clearly better" in found.verdict()


def test_the_rows_that_judge_did_not_choose():
    """With labels that mean nothing, choosing must not look like a gain."""
    gains = []
    for seed in range(40):
        noise = np.random.default_rng(seed)
        errors = noise.random(400) < 0.5
        found = td.combine(
            noise.normal(size=400), noise.normal(size=400), errors, seed=seed
        )
        gains.append(found.auroc["combined"].value - 0.5)
    assert abs(np.mean(gains)) < 3 * np.std(gains) / np.sqrt(40)


def test_ends_leave_the_other_score_out():
    certain = np.array([-np.inf, 1.0])
    assert mix(certain, np.array([2.0, 3.0]), 1.0).tolist() == [2.0, 3.0]
    assert mix(np.array([2.0, 3.0]), certain, 0.0).tolist() == [2.0, 3.0]


def test_lengths_must_agree():
    with pytest.raises(InputError, match="same rows"):
        td.combine([1.0, 2.0], [1.0], [True, False])
