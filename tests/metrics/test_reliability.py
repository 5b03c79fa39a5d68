"""Calibration and its intervals, the ECE by a plain loop, matching temperatures."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.optimize import brentq
from scipy.special import softmax

import trustdoctor as td
from trustdoctor.errors import InputError
from trustdoctor.metrics import (
    ECE_BINS,
    FEW_NOTE,
    BinGaps,
    CalibrationSummary,
    ece_interval,
)
from trustdoctor.metrics.reliability import (
    _folded_normal,
    calibration_terms,
    matching_temperature,
    moments_from_sums,
    top_probability,
)


def predictions(n=2000, seed=0, factor=1.0, classes=4):
    """Labels drawn by the softmax; its logits are then taken times `factor`."""
    rng = np.random.default_rng(seed)
    z = 2 * rng.normal(size=(n, classes))
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    labels = (p.cumsum(1) > rng.random((n, 1))).argmax(1)
    return td.Predictions.from_logits(factor * z, labels)


def gaps(p):
    rows = calibration_terms(p)
    return BinGaps.of(rows.bins, rows.gap, n_bins=ECE_BINS)


def estimates_of(p):
    return CalibrationSummary.of(calibration_terms(p), p.errors, n_bins=ECE_BINS)


@pytest.mark.parametrize("n", [100, 2000, 50_000])
def test_a_calibrated_model_may_have_no_ece(n):
    reached = [ece_interval(gaps(predictions(n, seed)))[0] == 0 for seed in range(20)]
    assert sum(reached) >= 17
    bin_gaps = gaps(predictions(n))
    assert bin_gaps.ece > 0


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_a_badly_calibrated_one_has_some(factor):
    true = gaps(predictions(400_000, factor=factor)).ece
    bin_gaps = [gaps(predictions(2000, seed, factor)) for seed in range(1, 21)]
    ends = [ece_interval(g) for g in bin_gaps]
    assert min(low for low, _ in ends) > 0
    assert sum(low <= true <= high for low, high in ends) >= 17
    assert all(
        low < g.ece < high for (low, high), g in zip(ends, bin_gaps, strict=True)
    )
    wider = ece_interval(bin_gaps[0], confidence=0.999)
    assert wider[0] < ends[0][0] < ends[0][1] < wider[1]


def test_gaps_by_hand():
    """Three rows of confidence 0.8 in one bin, one right row of 0.5 in another."""
    bin_gaps = BinGaps.of(
        np.array([1, 1, 1, 0]), np.array([0.2, 0.2, -0.8, 0.5]), n_bins=3
    )
    assert bin_gaps.rows.tolist() == [1, 3, 0]
    assert bin_gaps.ece == pytest.approx((0.5 + 0.4) / 4)
    # 0.5 (1 - 0.5) once; the three gaps vary by more than 0.8 (1 - 0.8) three times
    squares = 2 * 0.2**2 + 0.8**2 - 0.4**2 / 3
    assert squares > 3 * 0.8 * 0.2
    assert bin_gaps.variances == pytest.approx([0.25 / 16, squares / 16, 0])


def test_chance_is_the_least_spread_of_few_rows_of_a_kind():
    """Ninety right rows of confidence 0.9, and five or fifteen wrong ones."""
    for wrong, chance_counts in ((5, True), (15, False)):
        gap = np.array([0.1] * 90 + [-0.9] * wrong)
        n = 90 + wrong
        bin_gaps = BinGaps.of(np.zeros(n, int), gap, n_bins=1)
        spread, chance = n * gap.var(), n * 0.9 * 0.1
        assert (spread < chance) == chance_counts
        assert bin_gaps.variances * n**2 == pytest.approx([max(spread, chance)])
    gap = np.array([0.4] * 90 + [-0.6] * 30)  # many of both: chance has no say
    bin_gaps = BinGaps.of(np.zeros(120, int), gap, n_bins=1)
    assert 120 * gap.var() < 120 * 0.6 * 0.4
    assert bin_gaps.variances * 120**2 == pytest.approx([120 * gap.var()])


def test_folded_normal_moments_are_scipys():
    means, deviations = np.array([0.0, 0.1, 0.4, 3.0]), np.array([0.2, 0.2, 0.1, 0.1])
    laws = [
        stats.foldnorm(m / d, scale=d) for m, d in zip(means, deviations, strict=True)
    ]
    expected = sum(law.mean() for law in laws), sum(law.var() for law in laws)
    assert _folded_normal(means, deviations**2) == pytest.approx(expected)
    assert _folded_normal(np.array([0.3]), np.array([0.0])) == pytest.approx((0.3, 0))


def test_perfect_gaps_have_an_interval():
    bin_gaps = BinGaps.of(
        np.zeros(50, int), np.array([0.1] * 45 + [-0.9] * 5), n_bins=1
    )
    assert bin_gaps.ece == pytest.approx(0, abs=1e-12)
    low, high = ece_interval(bin_gaps)
    assert (low, high > 0.01) == (0, True)


def loop(p, bins):
    """The ECE row by row, over bins of equal width."""
    probs = np.exp(p.logits) / np.exp(p.logits).sum(1, keepdims=True)
    total = 0.0
    for b in range(bins):
        gap = 0.0
        for row, label in zip(probs, p.labels, strict=True):
            top = row.max()
            if min(int(top * bins), bins - 1) == b:
                gap += (row.argmax() == label) - top
        total += abs(gap)
    return total / len(p)


@pytest.mark.parametrize("bins", [1, 2, 15, 100])
def test_ece_of_bins_of_equal_width_by_a_loop(bins):
    p = predictions(300)
    assert td.ece(p, bins=bins) == pytest.approx(loop(p, bins))


@pytest.mark.parametrize("bins", [1, 2, 5, 15])
def test_ece_of_bins_of_equal_mass_by_a_loop(bins):
    p = predictions(300)
    probs = np.exp(p.logits) / np.exp(p.logits).sum(1, keepdims=True)
    order = np.argsort(probs.max(1))
    size = 300 // bins
    gap = ~p.errors - probs.max(1)
    bins_of_gaps = [gap[order[i : i + size]] for i in range(0, 300, size)]
    assert len(bins_of_gaps) == bins
    ece = td.ece(p, bins=bins, equal_mass=True)
    assert ece == pytest.approx(
        sum(abs(bin_gaps.sum()) for bin_gaps in bins_of_gaps) / 300
    )


@pytest.mark.parametrize("top", [0.26, 0.3, 0.4, 0.9])
def test_rows_of_the_same_confidence_stay_together(top):
    """Five right and five wrong ones: there is but one bin."""
    row = [top, *[(1 - top) / 3] * 3]
    p = td.Predictions.from_probs([row] * 10, [0] * 5 + [1] * 5)
    for bins in (1, 2, 7):
        ece = td.ece(p, bins=bins, equal_mass=True)
        assert ece == pytest.approx(abs(0.5 - top))


def test_a_temperature_divides_the_logits():
    p = predictions(300)
    for options in ({"bins": 7}, {"bins": 7, "equal_mass": True}):
        cool = td.Predictions.from_logits(p.logits / 2.5, p.labels)
        ece = td.ece(p, temperature=2.5, **options)
        assert ece == pytest.approx(td.ece(cool, **options))


@pytest.mark.parametrize("bins", [0, -1, 2.5, 15.0, True, "15", None])
def test_a_bad_number_of_bins_is_refused(bins):
    with pytest.raises(InputError, match="a number of bins of 1 or more, got"):
        td.ece(predictions(10), bins=bins)


def test_moments_from_sums_are_those_of_means_with_an_unseen_row(rng):
    values = rng.exponential(size=500)
    laws = moments_from_sums(500, values.sum(), (values**2).sum(), 9.0)
    for law, unseen in zip(laws, (0.0, 9.0), strict=True):
        rows = np.append(values, unseen)
        assert law.value == pytest.approx(rows.mean())
        assert law.variance == pytest.approx(rows.var() / 502)


def test_means_have_nearly_the_normal_interval_of_many_rows():
    p = predictions(100_000, factor=1.5)
    rows, estimates = calibration_terms(p), estimates_of(p).estimates()
    confidence = ~p.errors - rows.gap
    for name, values in (
        ("confidence", confidence), ("brier", rows.brier), ("nll", rows.nll)
    ):  # fmt: skip
        half = stats.norm.ppf(0.975) * values.std() / math.sqrt(len(values))
        ends = values.mean() - half, values.mean() + half
        assert estimates[name].value == pytest.approx(values.mean())
        assert (estimates[name].low, estimates[name].high) == pytest.approx(
            ends, abs=0.1 * half
        )
        assert estimates[name].note == ""


def rows_of(right, wrong, top):
    return td.Predictions.from_probs(
        [[top, 1 - top]] * (right + wrong), [0] * right + [1] * wrong
    )


@pytest.mark.parametrize(
    "p",
    [rows_of(50, 0, 0.9), rows_of(45, 5, 0.9), rows_of(0, 3, 0.9), rows_of(1, 0, 0.6)],
    ids=["right", "mixed", "wrong", "single"],
)
def test_rows_that_are_alike_leave_something_open(p):
    for name, estimate in td.evaluate(p, scores=["msp"]).calibration.items():
        assert estimate.low <= estimate.value + 1e-12, name
        assert estimate.value - 1e-12 <= estimate.high, name
        assert estimate.high - estimate.low > 1e-6, name


def test_ends_stay_within_what_there_can_be():
    tops = np.array([0.9999, 0.99, 0.98])
    p = td.Predictions.from_probs(np.column_stack([tops, 1 - tops]), [1, 1, 1])
    most = {"confidence": 1, "ece": 1, "brier": 2, "nll": math.inf}
    for name, estimate in td.evaluate(p, scores=["msp"]).calibration.items():
        assert 0 <= estimate.low < estimate.high <= most[name]
    answers = td.Predictions.from_confidence(tops, [False] * 3)
    assert td.evaluate(answers).calibration["brier"].high <= 1


def test_few_errors_carry_a_note():
    for wrong, note in ((19, FEW_NOTE), (20, "")):
        estimates = estimates_of(rows_of(100, wrong, 0.9)).estimates()
        assert (
            estimates["ece"].note
            == estimates["brier"].note
            == estimates["nll"].note
            == note
        )
    assert (
        estimates_of(rows_of(19, 100, 0.9))
        .estimates()["nll"]
        .note.startswith("few correct")
    )


def test_labels_of_no_probability_are_counted():
    p = td.Predictions.from_probs(
        [[1.0, 0.0]] * 2 + [[0.7, 0.3]] * 30, [1, 1] + [0] * 30
    )
    terms = estimates_of(p)
    assert terms.n_infinite == 2
    nll = terms.estimates()["nll"]
    assert (nll.value, nll.low, nll.high) == (None, None, None)
    assert "2 labels had probability 0" in nll.note


def by_scipy(logits, accuracy):
    def gap(log_temperature):
        return (
            softmax(logits / np.exp(log_temperature), axis=1).max(1).mean() - accuracy
        )

    return np.exp(brentq(gap, -8, 8, xtol=1e-13))


@pytest.mark.parametrize("classes", [2, 10, 100])
@pytest.mark.parametrize("accuracy", [0.55, 0.8, 0.97, 0.999])
def test_the_matching_temperature_is_the_root_that_scipy_finds(classes, accuracy, rng):
    logits = 4 * rng.normal(size=(500, classes))
    temperature = matching_temperature(logits, accuracy)
    assert temperature == pytest.approx(by_scipy(logits, accuracy), rel=1e-8)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_matching_of_narrow_numbers_and_excluded_classes(dtype, rng):
    logits = (4 * rng.normal(size=(500, 5))).astype(dtype)
    logits[::3, 4] = -np.inf
    temperature = matching_temperature(logits, 0.8)
    assert temperature == pytest.approx(by_scipy(logits.astype(float), 0.8), rel=1e-4)


@given(st.floats(-2, 2), st.floats(0.5, 0.95))
def test_a_colder_model_has_a_higher_temperature(scale, accuracy):
    logits = 3 * np.random.default_rng(0).normal(size=(50, 4))
    once = matching_temperature(logits, accuracy)
    scaled = matching_temperature(np.exp(scale) * logits, accuracy)
    assert scaled == pytest.approx(np.exp(scale) * once, rel=1e-9)


def test_top_probabilities_of_arrays_and_predictions(rng):
    logits = 3 * rng.normal(size=(50, 4))
    top = top_probability(td.Predictions.from_logits(logits), temperature=2.0)
    np.testing.assert_allclose(top, softmax(logits / 2, axis=1).max(1), rtol=1e-12)
    np.testing.assert_array_equal(top, top_probability(logits, temperature=2.0))


@pytest.mark.parametrize("accuracy", [0.0, 0.2, 0.25, 1.0, 1.2, np.nan])
def test_an_accuracy_that_no_temperature_gives_is_refused(accuracy, rng):
    logits = 3 * rng.normal(size=(50, 4))
    with pytest.raises(InputError, match=r"no temperature .* between 0.25 and 1\. "):
        matching_temperature(logits, accuracy)


def test_certain_and_tied_rows_depend_on_no_temperature():
    for row in ([0.0, -np.inf], [0.0, 0.0]):
        with pytest.raises(InputError, match="no temperature"):
            matching_temperature(np.array([row] * 20), 0.75)
