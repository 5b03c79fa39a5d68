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
        ([0], "2 entries"),
        ([0.5, 1], "whole number at row 0"),
        (["cat", "dog"], "class_names"),
        ([[0, 1]], "shape"),
    ],
)
def test_bad_labels_are_refused(labels, match):
    with pytest.raises(InputError, match=match):
        Predictions.from_probs(PROBS, labels)


BESIDE = {
    "class_names": ["ant", "bee", "cow"],
    "ids": ["x1", "x2"],
    "groups": [7, 9],
    "features": [[1, 2], [3, 4]],
}


@pytest.mark.parametrize("make", [Predictions.from_logits, Predictions.from_probs])
def test_what_is_known_beside_the_numbers_is_kept(make):
    p = make(PROBS, [0, 1], **BESIDE)
    assert p.class_names == ("ant", "bee", "cow")
    assert p.ids.tolist() == ["x1", "x2"]
    assert p.groups.tolist() == [7, 9]
    assert p.features.dtype == np.float64
    assert p.features.tolist() == [[1, 2], [3, 4]]
    assert p.from_probabilities == (make == Predictions.from_probs)
    bare = make(PROBS)
    assert all(getattr(bare, name) is None for name in BESIDE)


def test_what_is_known_comes_in_many_kinds():
    p = Predictions.from_probs(
        PROBS,
        class_names=range(3),
        ids=torch.tensor([5, 6]),
        groups=np.array(["north", "south"], object),
        features=torch.ones(2, 4, requires_grad=True),
    )
    assert p.class_names == ("0", "1", "2")
    assert p.ids.tolist() == [5, 6]
    assert p.groups.tolist() == ["north", "south"]
    assert p.groups.dtype.kind == "U"
    assert p.features.shape == (2, 4)


@pytest.mark.parametrize("make", [Predictions.from_logits, Predictions.from_probs])
@pytest.mark.parametrize(
    ("beside", "match"),
    [
        ({"class_names": ["a", "b"]}, "3 different class names.*got 2"),
        ({"class_names": ["a", "b", "a"]}, r"got 3 \(2 different\)"),
        ({"class_names": [1, "1", 2]}, r"got 3 \(2 different\)"),
        ({"ids": ["x"]}, r"2 ids, one per row, got .* of shape \(1,\)"),
        ({"ids": [["x", "y"]]}, r"2 ids.*\(1, 2\)"),
        ({"groups": [1]}, r"groups as 2 integers or strings, one per row.*\(1,\)"),
        ({"groups": [0.5, 1.0]}, "groups as 2 integers or strings.*float64"),
        ({"groups": [True, False]}, "groups as 2 integers or strings.*bool"),
        ({"groups": np.array([1, "a"], object)}, "groups as 2 integers or strings"),
        ({"groups": [[1, 2]]}, "groups as 2 integers or strings"),
        ({"features": [1.0, 2.0]}, r"finite features \(2, d\).*\(2,\)"),
        ({"features": [[1.0]]}, r"finite features \(2, d\).*\(1, 1\)"),
        ({"features": [["a"], ["b"]]}, r"finite features \(2, d\)"),
        ({"features": [[1.0], [np.nan]]}, "NaN or infinity at row 1"),
        ({"features": [[-np.inf], [1.0]]}, "NaN or infinity at row 0"),
        ({"features": [[1.0, 2.0], [1.0]]}, "ragged"),
    ],
)
def test_what_does_not_fit_the_rows_is_refused(make, beside, match):
    with pytest.raises(InputError, match=match):
        make(PROBS, **beside)


def many(n=6):
    """Rows that can be told apart by all that is known of them."""
    z = np.random.default_rng(0).normal(size=(n, 3))
    at = np.arange(n)
    return Predictions.from_logits(
        z,
        at % 3,
        class_names=["ant", "bee", "cow"],
        ids=[f"x{i}" for i in at],
        groups=10 * at,
        features=np.stack([at, -at], 1),
    )


MASK = np.array([True, False, False, True, True, False])


@pytest.mark.parametrize(
    ("rows", "wanted"),
    [
        (MASK, [0, 3, 4]),
        (MASK.tolist(), [0, 3, 4]),
        (torch.tensor(MASK), [0, 3, 4]),
        (np.zeros(6, bool), []),
        (slice(1, 4), [1, 2, 3]),
        (slice(None, None, -2), [5, 3, 1]),
        (slice(-2, None), [4, 5]),
        ([4, 0, 0], [4, 0, 0]),
        (np.array([5, -6], np.int32), [5, 0]),
        (np.array([2], np.uint8), [2]),
        (torch.tensor([3, 1]), [3, 1]),
        (range(2), [0, 1]),
    ],
    ids=str,
)
def test_rows_are_picked_with_all_that_is_known_of_them(rows, wanted):
    p = many()
    assert p.errors.any()
    assert not p.errors.all()
    found = p[rows]
    assert len(found) == len(wanted)
    assert np.array_equal(found.logits, p.logits[wanted])
    assert found.labels.tolist() == [i % 3 for i in wanted]
    assert found.ids.tolist() == [f"x{i}" for i in wanted]
    assert found.groups.tolist() == [10 * i for i in wanted]
    assert found.features.tolist() == [[i, -i] for i in wanted]
    assert found.class_names == p.class_names
    assert found.predicted.tolist() == [int(p.logits[i].argmax()) for i in wanted]
    assert found.errors.tolist() == [bool(p.errors[i]) for i in wanted]
    assert len(p) == 6
    assert f"Predictions({len(wanted)} row" in repr(found)


def test_a_part_knows_no_more_than_the_whole():
    p = Predictions.from_probs(PROBS)[1:]
    assert p.from_probabilities
    assert (p.labels, p.class_names, p.ids, p.groups, p.features) == (None,) * 5
    assert np.array_equal(p.logits, np.log([[0.1, 0.1, 0.8]]))


@pytest.mark.parametrize(
    ("rows", "match"),
    [
        (3, r"a mask of 6 booleans or row numbers.*write p\[3:4\]"),
        (np.int64(3), r"write p\[3:4\]"),
        ("ids", "a slice, a mask"),
        (None, "a slice, a mask"),
        (MASK[:5], r"a mask of 6 booleans.*bool of shape \(5,\)"),
        (np.append(MASK, MASK), r"bool of shape \(12,\)"),
        (MASK[:, None], r"bool of shape \(6, 1\)"),
        ([0.0, 1.0], "float64"),
        ([[0, 1]], r"shape \(1, 2\)"),
        ([0, 6], "row numbers from 0 to 5"),
        ([-7], "row numbers from 0 to 5"),
        ((slice(2), 0), r"object of shape \(2,\)"),
    ],
    ids=str,
)
def test_what_picks_no_rows_is_refused(rows, match):
    with pytest.raises(InputError, match=match):
        many()[rows]
