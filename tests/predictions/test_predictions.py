import json

import numpy as np
import pandas as pd
import pytest
import torch

import trustdoctor as td
from trustdoctor import Predictions
from trustdoctor.errors import InputError, LabelsMissingError

PROBS = [[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("kind", ["numpy", "torch", "list"])
def test_logits_of_every_kind(dtype, kind):
    z = np.array([[2.0, 0.5, -1], [0.25, 3, -np.inf]], dtype)
    logits = {"numpy": z, "torch": torch.tensor(z), "list": z.tolist()}[kind]
    p = Predictions.from_logits(logits, [0, 0])
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


def test_missing_labels_are_reported():
    p = Predictions.from_probs(PROBS)
    with pytest.raises(LabelsMissingError, match="errors needs the true labels"):
        _ = p.errors


def test_the_repr_summarises_the_rows():
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
def test_additional_data_are_kept(make):
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
def test_attributes_of_another_length_are_refused(make, beside, match):
    with pytest.raises(InputError, match=match):
        make(PROBS, **beside)


def distinct_rows(n=6):
    """Rows that differ in every attribute."""
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
    ("rows", "expected"),
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
def test_rows_are_selected_with_all_their_attributes(rows, expected):
    p = distinct_rows()
    assert p.errors.any()
    assert not p.errors.all()
    picked = p[rows]
    assert len(picked) == len(expected)
    assert np.array_equal(picked.logits, p.logits[expected])
    assert picked.labels.tolist() == [i % 3 for i in expected]
    assert picked.ids.tolist() == [f"x{i}" for i in expected]
    assert picked.groups.tolist() == [10 * i for i in expected]
    assert picked.features.tolist() == [[i, -i] for i in expected]
    assert picked.class_names == p.class_names
    assert picked.predicted.tolist() == [int(p.logits[i].argmax()) for i in expected]
    assert picked.errors.tolist() == [bool(p.errors[i]) for i in expected]
    assert len(p) == 6
    assert f"Predictions({len(expected)} row" in repr(picked)


def test_selected_rows_have_no_more_attributes_than_all():
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
def test_invalid_row_indices_are_refused(rows, match):
    with pytest.raises(InputError, match=match):
        distinct_rows()[rows]


class Owner:
    """An object that hands out its own array, as some libraries' arrays do."""

    def __init__(self, array):
        self.array = array

    def __len__(self):
        return len(self.array)

    def __array__(self, dtype=None, copy=None):
        return self.array


def hidden(array):
    """A view that cannot be written, of an array that can."""
    view = array[:]
    view.flags.writeable = False
    return view


SHARING = {
    "the array": lambda array: array,
    "a view": lambda array: array[:],
    "a view that cannot be written": hidden,
    "a tensor": torch.from_numpy,
    "an owner": Owner,
    "a frame": lambda array: pd.DataFrame(array, copy=False),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("share", SHARING.values(), ids=SHARING)
@pytest.mark.parametrize("make", [Predictions.from_logits, Predictions.from_probs])
def test_predictions_stay_when_the_array_changes(make, share, dtype, rng):
    array = rng.dirichlet([1, 1, 1], 40).astype(dtype)
    if make == Predictions.from_logits:
        array *= 3
    labels, groups = np.arange(40) % 3, np.arange(40) % 4
    features, ids = rng.normal(size=(40, 2)), np.arange(40)
    options = {"groups": groups, "ids": ids, "features": features}
    p = make(share(array), labels, **options)
    names = ("logits", "labels", "groups", "ids", "features")
    before = {name: getattr(p, name).copy() for name in names}
    scores, errors = td.alpha(p), p.errors.copy()
    for array_ in (array, labels, groups, features, ids):
        array_[...] = array_[::-1].copy()
    for name in names:
        assert np.array_equal(getattr(p, name), before[name]), name
    assert np.array_equal(td.alpha(p), scores)
    assert np.array_equal(p.errors, errors)


def test_logits_cannot_be_written(rng):
    z = rng.normal(size=(20, 3))
    read_only = z.copy()
    read_only.flags.writeable = False
    for p in (Predictions.from_logits(z), Predictions.from_logits(read_only)):
        for predictions in (p, p[:5]):
            with pytest.raises(ValueError, match="read-only"):
                predictions.logits[0, 0] = 7
    z[0, 0] = 7  # the caller's is as it was
    assert np.shares_memory(Predictions.from_logits(read_only).logits, read_only)


@pytest.mark.parametrize("kind", ["f2", "f4", "f8"])
def test_numbers_of_the_other_byte_order_are_the_same(kind, rng):
    z = rng.normal(size=(60, 3)).astype(kind)
    probs = rng.dirichlet([1, 1, 1], 60).astype(kind)
    labels, groups = rng.integers(0, 3, 60), np.arange(60) % 5
    native, other = (
        (
            Predictions.from_logits(
                turn(z), turn(labels), groups=turn(groups), features=turn(z)
            ),
            Predictions.from_probs(turn(probs), turn(labels)),
        )
        for turn in (lambda a: a, lambda a: a.astype(a.dtype.newbyteorder(">")))
    )
    for first, second in zip(native, other, strict=True):
        assert second.logits.dtype.isnative
        assert np.array_equal(first.logits, second.logits)
        assert np.array_equal(first.labels, second.labels)
        assert np.array_equal(td.alpha(first), td.alpha(second))
    assert np.array_equal(native[0].groups, other[0].groups)
    assert np.array_equal(native[0].features, other[0].features)
    swapped = z.astype(z.dtype.newbyteorder(">"))
    for name in ("alpha", "beta", "msp", "entropy", "energy"):
        assert np.array_equal(getattr(td, name)(swapped), getattr(td, name)(z))
    doubt, wrong = td.alpha(z).astype(kind), native[0].errors
    turned = doubt.astype(doubt.dtype.newbyteorder(">"))
    for metric in (td.auroc, td.aurc, td.aupr, td.augrc):
        assert metric(turned, wrong) == metric(doubt, wrong)
    gate = td.Gate(float(np.median(doubt)), score="alpha")
    assert np.array_equal(gate.accept(turned), gate.accept(doubt))


@pytest.mark.parametrize("size", [1e300, 1e307, 1e308, 1.7e308])
@pytest.mark.sampled(2)
def test_the_largest_logits_are_measured_without_a_warning(size, rng):
    """Warnings are errors here; confidences are 1, and labels have probability 0."""
    z = np.clip(rng.normal(size=(300, 4)), -3, 3) / 3 * size
    labels = np.where(rng.random(300) < 0.8, z.argmax(1), z.argmin(1))
    p = Predictions.from_logits(z, labels)
    wrong = int((z.argmax(1) != labels).sum())
    evaluation = td.evaluate(p)
    tally = td.Tally()
    tally.update(p)
    counted = tally.evaluate()
    for result in (evaluation, counted):
        assert result.calibration["confidence"].value == 1
        assert result.calibration["ece"].value == pytest.approx(wrong / 300)
        assert result.calibration["brier"].value == pytest.approx(2 * wrong / 300)
        assert result.calibration["nll"].value is None
        assert f"infinite: {wrong} labels" in result.calibration["nll"].note
        json.loads(result.to_json(), parse_constant=pytest.fail)
    for name, metrics in evaluation.scores.items():
        for metric, value in metrics.items():
            ours = counted.scores[name][metric]
            assert ours.value == pytest.approx(value.value, abs=ours.within + 1e-9)
    assert "<html" in evaluation.to_html()
    assert td.calibrate(p, frr=0.1).screen(p).accepted.mean() > 0.5


@pytest.mark.parametrize("cost", [1e300, 1e308])
def test_an_infinite_cost_forbids_any_error(cost, rng):
    z = rng.normal(size=(400, 3))
    labels = np.where(rng.random(400) < 0.9, z.argmax(1), 0)
    p = Predictions.from_logits(z, labels)
    order = np.argsort(td.alpha(p))
    certain = int(np.argmax(p.errors[order]))
    assert certain
    gate = td.calibrate(p, cost=cost)
    screened = gate.screen(p)
    assert screened.accepted.sum() == certain
    assert not p.errors[screened.accepted].any()
    assert "nan" not in gate.to_json().lower()
    assert td.calibrate(p, cost=1e6).threshold == gate.threshold
