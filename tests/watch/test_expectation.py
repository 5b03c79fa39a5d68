"""Expected accuracy and risk: scipy's softmax, simulations, sums by hand."""

import json

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import log_softmax, softmax
from scipy.stats import binomtest, norm

import trustdoctor as td
from trustdoctor import envelope
from trustdoctor.errors import FileError, InputError, LabelsMissingError
from trustdoctor.watch import ConfidenceSums, TrafficSums


def rows(n=2000, seed=0, *, factor=3.0, classes=4, spread=2.0):
    """Labels drawn by the softmax; the logits are then taken times `factor`."""
    rng = np.random.default_rng(seed)
    logits = spread * rng.normal(size=(n, classes))
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(1)
    return td.Predictions.from_logits(factor * logits, labels)


def unlabelled(p):
    return td.Predictions.from_logits(p.logits)


def confidences(p, temperature):
    return softmax(p.logits.astype(float) / temperature, axis=1).max(1)


def test_the_estimate_is_the_mean_confidence_at_the_matching_temperature():
    reference, new = rows(seed=1), rows(seed=2)
    accuracy = 1 - reference.errors.mean()
    at = np.exp(
        brentq(lambda w: confidences(reference, np.exp(w)).mean() - accuracy, -5, 5)
    )
    expected = td.expected(unlabelled(new), reference=reference)
    assert expected.reference.temperature == pytest.approx(at, rel=1e-8)
    matched = confidences(new, at)
    assert expected.accuracy.value == pytest.approx(matched.mean(), rel=1e-9)
    assert expected.sums.rows.variance == pytest.approx((matched * (1 - matched)).sum())
    repeated = td.expected(reference, reference=reference)
    assert repeated.accuracy.value == pytest.approx(accuracy, abs=1e-9)


def test_the_band_by_hand():
    """The delta method: how far the reference moves the temperature, and that c."""
    reference, new = rows(800, seed=1), rows(300, seed=2)
    fitted = td.Reference.fit(reference)
    step = 1e-5

    def slope(p):
        ends = (confidences(p, fitted.temperature * np.exp(h)) for h in (-step, step))
        low, high = (confidence.sum() for confidence in ends)
        return (high - low) / (2 * step)

    gaps = ~reference.errors - confidences(reference, fitted.temperature)
    uncertainty = np.sqrt((gaps**2).sum()) / -slope(reference)
    assert fitted.uncertainty == pytest.approx(uncertainty, rel=0.01)
    confidence = confidences(new, fitted.temperature)
    variance = (confidence * (1 - confidence)).sum() + (slope(new) * uncertainty) ** 2
    reach = norm.ppf(0.95) * np.sqrt(variance) / len(new)
    expected = td.expected(new, reference=fitted, confidence=0.9).accuracy
    assert expected.high - expected.value == pytest.approx(reach, rel=0.01)
    assert expected.value - expected.low == pytest.approx(reach, rel=0.01)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("n", "new"), [(200, 200), (200, 2000), (2000, 500)])
def test_the_band_covers_while_calibration_is_unchanged(n, new):
    """The new rows are harder: only their confidences say so."""
    gate = td.Gate(-2.0, td.SCORES["beta"].with_temperature(3.0))
    hits, risks = [], []
    for seed in range(300):
        reference = rows(n, seed)
        p = rows(new, 1000 + seed, spread=1.5)
        expected = td.expected(p, reference=reference, gate=gate)
        hits.append(expected.accuracy_check.fits)
        risks.append(expected.risk_check.fits)
        assert expected.accuracy.value < reference_accuracy(reference) - 0.03
    assert 0.92 <= np.mean(hits) <= 0.98
    assert 0.90 <= np.mean(risks) <= 0.985


def reference_accuracy(p):
    return 1 - p.errors.mean()


def test_confident_errors_are_not_seen_but_the_labels_see_them():
    reference, p = rows(seed=1), rows(seed=2)
    wrong = td.Predictions.from_logits(p.logits, np.roll(p.labels, 1))
    assert td.expected(unlabelled(wrong), reference=reference).accuracy.value > 0.6
    expected = td.expected(wrong, reference=reference)
    check = expected.accuracy_check
    assert not check.fits
    assert check.error == pytest.approx(
        expected.accuracy.value - 1 + wrong.errors.mean()
    )
    assert "they do not agree" in repr(expected)


def test_the_check_of_rows_of_which_some_have_labels():
    reference, p = rows(seed=1), rows(900, seed=2)
    labels = p.labels.astype(float)
    labels[300:] = np.nan
    partly_labelled = td.Predictions.from_logits(p.logits, labels)
    gate = td.calibrate(reference, score="beta", coverage=0.7)
    expected = td.expected(partly_labelled, reference=reference, gate=gate)
    accepted = gate.screen(p).accepted
    first = p[:300]
    assert expected.sums.rows.rows == 900
    check = expected.accuracy_check
    correct = int((~first.errors).sum())
    assert (check.actual.count, check.actual.n) == (correct, 300)
    by_scipy = binomtest(correct, 300).proportion_ci(0.95, "exact")
    assert (check.actual.low, check.actual.high) == pytest.approx(tuple(by_scipy))
    alone = td.expected(first, reference=reference)
    assert check.expected == alone.accuracy
    of_accepted = td.expected(p[accepted], reference=reference)
    assert expected.risk.value == pytest.approx(1 - of_accepted.accuracy.value)
    assert expected.risk.low == pytest.approx(1 - of_accepted.accuracy.high)
    wrong = int(first.errors[accepted[:300]].sum())
    assert (expected.risk_check.actual.count, expected.risk_check.actual.n) == (
        wrong,
        int(accepted[:300].sum()),
    )


@given(st.lists(st.integers(0, 400), max_size=6))
def test_any_split_adds_up_to_the_same(cuts):
    p = rows(400, seed=3)
    labels = np.where(np.arange(400) % 3, p.labels, np.nan)
    p = td.Predictions.from_logits(p.logits.astype(np.float32), labels)
    fitted, accepted = td.Reference.fit(p), p.logits.max(1) > 6
    total = TrafficSums()
    for batch in np.split(np.arange(400), sorted(cuts)):
        if len(batch):
            total = total + fitted.count(p[batch], accepted[batch])
    at_once = fitted.count(p, accepted)
    ours, theirs = (msgspec.to_builtins(sums) for sums in (total, at_once))
    for name, sums in ours.items():
        assert sums == pytest.approx(theirs[name], rel=1e-12), name


def test_labels_that_come_late():
    p, accepted = rows(300, seed=3), np.arange(300) % 2 == 0
    fitted = td.Reference.fit(p)
    late = fitted.count(unlabelled(p), accepted) + fitted.count(p, accepted).labels()
    assert late == fitted.count(p, accepted)


def test_numbers_survive_a_file():
    p = rows(300, seed=3)
    fitted = td.Reference.fit(p)
    for accepted in (None, p.logits.max(1) > 6):
        sums = fitted.count(p, accepted)
        content = json.loads(json.dumps(msgspec.to_builtins([fitted, sums])))
        assert td.Reference.from_dict(content[0]) == fitted == reread(content[0])
        assert envelope.convert(content[1], TrafficSums) == sums


def reread(content):
    return td.Reference.from_dict(td.Reference.from_dict(content).to_dict())


REFERENCE = {
    "temperature": [0.0, -1.0, float("nan"), float("inf"), "1", None, True],
    "uncertainty": [-0.1, float("inf"), "0"],
    "n": [-1, 1.5, "5", 2**60, True],
    "correct": [0, 10, -1, 5.0, None],
    "n_classes": [1, 0, 2.0, "3"],
}
CASES = [(name, value) for name, values in REFERENCE.items() for value in values]


@pytest.mark.parametrize(("name", "value"), CASES, ids=str)
def test_a_damaged_reference_is_refused(name, value):
    good = td.Reference(1.5, 0.1, 10, 8, 4).to_dict()
    with pytest.raises(FileError, match=name):
        td.Reference.from_dict(good | {name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rows", -1), ("rows", 1.0), ("rows", "9"), ("expected", 10.1),
        ("expected", -1), ("variance", 2.6), ("variance", None), ("slope", 0.5),
        ("correct", 11),
    ],
)  # fmt: skip
def test_damaged_sums_are_refused(name, value):
    sums = {"rows": 10, "expected": 8.0, "variance": 1.2, "slope": -0.5, "correct": 7}
    good = {"rows": sums, "accepted": None, "labelled": sums, "labelled_accepted": None}
    assert envelope.convert(good, TrafficSums).labelled.correct == 7
    with pytest.raises(FileError, match=rf"labelled.*{name}|labelled.*expected {name}"):
        envelope.convert(good | {"labelled": sums | {name: value}}, TrafficSums)


def test_subsets_larger_than_the_set_and_other_fields_are_refused():
    smaller, larger = (
        msgspec.to_builtins(ConfidenceSums(n, n / 2, n / 4)) for n in (1, 2)
    )
    good = {
        "rows": smaller,
        "accepted": smaller,
        "labelled": smaller,
        "labelled_accepted": smaller,
    }
    envelope.convert(good, TrafficSums)
    # Late labels, of rows counted elsewhere:
    envelope.convert(good | {"labelled": larger}, TrafficSums)
    for name in ("accepted", "labelled_accepted"):
        with pytest.raises(FileError, match=f"more {name} rows"):
            envelope.convert(good | {name: larger}, TrafficSums)
    for odd in (good | {"more": 1}, None, [], good | {"rows": None}):
        with pytest.raises(FileError, match=r"unknown field|expected object"):
            envelope.convert(odd, TrafficSums)
    with pytest.raises(FileError, match="missing field uncertainty"):
        td.Reference.from_dict({"temperature": 1.0})


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_narrow_logits_excluded_classes_and_probabilities(dtype):
    p = rows(2000, seed=4)
    logits = p.logits.astype(dtype)
    logits[np.arange(2000), (p.predicted + 1) % 4] = -np.inf
    narrow = td.Predictions.from_logits(logits, p.labels)
    expected = td.expected(narrow[1000:], reference=narrow[:1000])
    wide = td.Predictions.from_logits(logits.astype(float), p.labels)
    exact = td.expected(wide[1000:], reference=wide[:1000])
    assert expected.accuracy.value == pytest.approx(exact.accuracy.value, abs=1e-5)
    probs = np.exp(log_softmax(logits.astype(float), axis=1))
    by_probs = td.Predictions.from_probs(probs, p.labels)
    same = td.expected(by_probs[1000:], reference=by_probs[:1000])
    assert same.accuracy.value == pytest.approx(exact.accuracy.value, abs=1e-9)


def test_only_labelled_reference_rows_count():
    p = rows(600, seed=5)
    labels = np.where(np.arange(600) < 200, p.labels, np.nan)
    partly_labelled = td.Predictions.from_logits(p.logits, labels)
    assert td.Reference.fit(partly_labelled) == td.Reference.fit(p[:200])


def test_references_that_say_nothing_are_refused():
    p = rows(50)
    for labels in (p.predicted, (p.predicted + 1) % 4):
        with pytest.raises(InputError, match="correct and wrong predictions, got"):
            td.Reference.fit(td.Predictions.from_logits(p.logits, labels))
    below = np.where(np.arange(50) < 5, p.predicted, (p.predicted + 1) % 4)
    with pytest.raises(InputError, match=r"no temperature .* order of the classes"):
        td.Reference.fit(td.Predictions.from_logits(p.logits, below))
    with pytest.raises(LabelsMissingError, match="needs the true labels"):
        td.Reference.fit(unlabelled(p))
    with pytest.raises(InputError, match="no temperature"):
        td.Reference.fit(td.Predictions.from_probs([[0.5, 0.5]] * 4, [0, 1, 0, 1]))


def test_mistakes_are_refused():
    fitted, p = td.Reference.fit(rows()), rows(20)
    answers = td.Predictions.from_confidence([0.9, 0.4], [True, False])
    best = td.Predictions.from_topk([[0.7, 0.2]], [[4, 1]])
    for odd in (answers, best):
        with pytest.raises(InputError, match=r"of all classes.*got Answers"):
            td.expected(odd, reference=fitted)
        with pytest.raises(InputError, match=r"of all classes.*got Answers"):
            td.expected(p, reference=odd)
    with pytest.raises(InputError, match="expected Predictions, got ndarray"):
        td.expected(p.logits, reference=fitted)
    with pytest.raises(InputError, match=r"expected 4 classes.*got 3"):
        td.expected(rows(20, classes=3), reference=fitted)
    with pytest.raises(InputError, match="expected a confidence between 0 and 1"):
        td.expected(p, reference=fitted, confidence=95)
    with pytest.raises(InputError, match="expected gate as a Gate, got float"):
        td.expected(p, reference=fitted, gate=0.5)
    for accepted in ([True], np.ones(20)):
        with pytest.raises(InputError, match="accepted as 20 booleans"):
            fitted.count(p, accepted)


def test_the_wording():
    reference, p = rows(seed=1), rows(1, seed=2)
    reject_all = td.Gate(-np.inf, score="beta", state="reject-all")
    expected = td.expected(unlabelled(p), reference=reference, gate=reject_all)
    assert (expected.risk.value, expected.risk_check) == (None, None)
    lines = repr(expected).splitlines()
    assert "no guarantee" in lines[0]
    assert lines[1].endswith("of 1 row")
    assert lines[2] == "risk unknown of 0 accepted rows"
    full = td.expected(rows(), reference=reference, gate=td.Gate(9.0, score="beta"))
    assert len(repr(full).splitlines()) == 5
    assert max(map(len, repr(full).splitlines())) <= 88
    assert td.expected(p, reference=reference).risk is None
    assert td.Expectation(full.reference, TrafficSums()).accuracy.value is None
