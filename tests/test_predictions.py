import numpy as np
import pytest
import torch

from trustdoctor import Predictions
from trustdoctor.errors import InputError, LabelsMissingError

PROBS = [[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("kind", ["numpy", "torch", "list"])
def test_logits_of_every_kind(dtype, kind):
    z = np.array([[2.0, 0.5, -1], [0.25, 3, -np.inf]], dtype)
    given = {"numpy": z, "torch": torch.tensor(z), "list": z.tolist()}[kind]
    p = Predictions.from_logits(given, [0, 0])
    assert p.logits.dtype == (np.float64 if kind == "list" else dtype)
    assert np.array_equal(p.logits, z)
    assert p.predicted.tolist() == [0, 1]
    assert p.errors.tolist() == [False, True]
    assert (len(p), p.n_classes) == (2, 3)
    assert not p.from_probabilities


def test_tensors_that_require_grad_or_are_bfloat16_are_taken():
    z = torch.randn(4, 3, requires_grad=True)
    assert np.array_equal(Predictions.from_logits(z).logits, z.detach().numpy())
    assert Predictions.from_logits(z.bfloat16()).logits.dtype == np.float32
    assert z.grad is None


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_probabilities_become_their_logarithms(dtype):
    p = Predictions.from_probs(np.array([[1, 0], [0.25, 0.75]], dtype), [0, 1])
    assert p.from_probabilities
    assert p.logits[0].tolist() == [0, -np.inf]
    assert p.logits[1] == pytest.approx(np.log([0.25, 0.75]), rel=1e-6)
    assert p.logits.dtype == np.promote_types(dtype, np.float32)


def test_a_rounded_row_is_within_the_tolerance():
    Predictions.from_probs([[0.333, 0.333, 0.333]])
    with pytest.raises(InputError, match=r"sums to 0\.98 at row 0"):
        Predictions.from_probs([[0.33, 0.33, 0.32]])


@pytest.mark.parametrize("labels", [[0, 1], np.array([0, 1], np.uint8), [0.0, 1.0]])
def test_labels_of_every_kind(labels):
    p = Predictions.from_probs(PROBS, labels)
    assert p.labels.dtype == np.int64
    assert p.errors.tolist() == [False, True]
    assert Predictions.from_probs(PROBS, torch.tensor([0, 1])).errors.sum() == 1


def test_missing_labels_are_said():
    p = Predictions.from_probs(PROBS)
    with pytest.raises(LabelsMissingError, match="errors needs the true labels"):
        _ = p.errors


def test_the_repr_says_what_is_held():
    assert repr(Predictions.from_probs(PROBS, [0, 1])) == (
        "Predictions(2 rows, 3 classes, probabilities, accuracy 50.00%)"
    )
    assert "no labels" in repr(Predictions.from_logits([[1.0, 2.0]]))


@pytest.mark.parametrize(
    ("logits", "match"),
    [
        ([[1.0, np.nan]], "NaN at row 0"),
        ([[1.0, 2.0], [np.inf, 0]], r"\+inf at row 1"),
        ([[-np.inf, -np.inf]], "every logit is -inf at row 0"),
        ([1.0, 2.0], r"shape \(n, C\)"),
        ([[1.0], [2.0]], "at least 2 classes"),
        (np.zeros((0, 3)), "at least one row"),
        ([[1.0, 2.0], [1.0]], "ragged"),
        ([["a", "b"]], "numbers"),
        (np.array(PROBS * 5), "from_probs"),
        (np.ma.masked_greater([[1.0, 2.0]], 1.5), "masked"),
    ],
)
def test_bad_logits_are_refused(logits, match):
    with pytest.raises(InputError, match=match):
        Predictions.from_logits(logits)


@pytest.mark.parametrize(
    ("probs", "match"),
    [
        ([[0.5, 0.5], [np.nan, 1]], "NaN at row 1"),
        ([[-0.1, 1.1], [0.5, 0.5]], r"probability -0\.1 at row 0"),
        ([[0.5, 0.1]], r"sums to 0\.6"),
        ([[3.0, -2.0, 0.5]], "look like logits"),
        ([[3.0, 2.0]], "look like logits"),
        ([[np.inf, 0.0]], "row"),
        ([[50.0, 30, 20], [10, 10, 80]], "percentages"),
        ([[1 + 1e-4, -1e-4]], r"probability -0\.0001"),
    ],
)
def test_bad_probabilities_are_refused(probs, match):
    with pytest.raises(InputError, match=match):
        Predictions.from_probs(probs)


@pytest.mark.parametrize(
    ("labels", "match"),
    [
        ([0, 3], "from 0 to 2 for 3 classes, got 3 at row 1"),
        ([-1, 0], "got -1 at row 0"),
        ([0], "2 integers"),
        ([0.5, 1], "whole number at row 0"),
        ([0, np.nan], "missing at row 1"),
        (["cat", "dog"], "integers"),
        ([[0, 1]], "shape"),
    ],
)
def test_bad_labels_are_refused(labels, match):
    with pytest.raises(InputError, match=match):
        Predictions.from_probs(PROBS, labels)
