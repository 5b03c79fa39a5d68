"""Intervals of what the softmax says of itself, and the ECE by a plain loop."""

import math

import numpy as np
import pytest
from scipy import stats

import trustdoctor as td
from trustdoctor.errors import InputError
from trustdoctor.metrics import ECE_BINS, FEW_NOTE, Gaps, Said, ece_interval
from trustdoctor.metrics.calibrated import _folded, laws_of_sums
from trustdoctor.metrics.reliability import calibration_rows


def predictions(n=2000, seed=0, factor=1.0, classes=4):
    """Labels drawn by the softmax; its logits are then taken times `factor`."""
    rng = np.random.default_rng(seed)
    z = 2 * rng.normal(size=(n, classes))
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    labels = (p.cumsum(1) > rng.random((n, 1))).argmax(1)
    return td.Predictions.from_logits(factor * z, labels)


def gaps(p):
    rows = calibration_rows(p)
    return Gaps.of(rows.bins, rows.gap, number=ECE_BINS)


def said(p):
    return Said.of(calibration_rows(p), p.errors, number=ECE_BINS)


@pytest.mark.parametrize("n", [100, 2000, 50_000])
def test_a_calibrated_model_may_have_no_ece(n):
    reached = [ece_interval(gaps(predictions(n, seed)))[0] == 0 for seed in range(20)]
    assert sum(reached) >= 17
    found = gaps(predictions(n))
    assert found.ece > 0


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_a_badly_calibrated_one_has_some(factor):
    true = gaps(predictions(400_000, factor=factor)).ece
    found = [gaps(predictions(2000, seed, factor)) for seed in range(1, 21)]
    ends = [ece_interval(g) for g in found]
    assert min(low for low, _ in ends) > 0
    assert sum(low <= true <= high for low, high in ends) >= 17
    assert all(low < g.ece < high for (low, high), g in zip(ends, found, strict=True))
    wider = ece_interval(found[0], confidence=0.999)
    assert wider[0] < ends[0][0] < ends[0][1] < wider[1]


def test_gaps_by_hand():
    """Three rows of confidence 0.8 in one bin, one right row of 0.5 in another."""
    found = Gaps.of(np.array([1, 1, 1, 0]), np.array([0.2, 0.2, -0.8, 0.5]), number=3)
    assert found.rows.tolist() == [1, 3, 0]
    assert found.ece == pytest.approx((0.5 + 0.4) / 4)
    # 0.5 (1 - 0.5) once; the three gaps vary by more than 0.8 (1 - 0.8) three times
    seen = 2 * 0.2**2 + 0.8**2 - 0.4**2 / 3
    assert seen > 3 * 0.8 * 0.2
    assert found.variances == pytest.approx([0.25 / 16, seen / 16, 0])


def test_chance_is_the_least_spread_of_few_rows_of_a_kind():
    """Ninety right rows of confidence 0.9, and five or fifteen wrong ones."""
    for wrong, few in ((5, True), (15, False)):
        gap = np.array([0.1] * 90 + [-0.9] * wrong)
        n = 90 + wrong
        found = Gaps.of(np.zeros(n, int), gap, number=1)
        seen, chance = n * gap.var(), n * 0.9 * 0.1
        assert (seen < chance) == few
        assert found.variances * n**2 == pytest.approx([max(seen, chance)])
    gap = np.array([0.4] * 90 + [-0.6] * 30)  # many of both: chance has no say
    found = Gaps.of(np.zeros(120, int), gap, number=1)
    assert 120 * gap.var() < 120 * 0.6 * 0.4
    assert found.variances * 120**2 == pytest.approx([120 * gap.var()])


def test_folded_normal_moments_are_scipys():
    means, deviations = np.array([0.0, 0.1, 0.4, 3.0]), np.array([0.2, 0.2, 0.1, 0.1])
    laws = [
        stats.foldnorm(m / d, scale=d) for m, d in zip(means, deviations, strict=True)
    ]
    expected = sum(law.mean() for law in laws), sum(law.var() for law in laws)
    assert _folded(means, deviations**2) == pytest.approx(expected)
    assert _folded(np.array([0.3]), np.array([0.0])) == pytest.approx((0.3, 0))


def test_perfect_gaps_have_an_interval():
    found = Gaps.of(np.zeros(50, int), np.array([0.1] * 45 + [-0.9] * 5), number=1)
    assert found.ece == pytest.approx(0, abs=1e-12)
    low, high = ece_interval(found)
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
    parts = [gap[order[i : i + size]] for i in range(0, 300, size)]
    assert len(parts) == bins
    found = td.ece(p, bins=bins, equal_mass=True)
    assert found == pytest.approx(sum(abs(part.sum()) for part in parts) / 300)


@pytest.mark.parametrize("top", [0.26, 0.3, 0.4, 0.9])
def test_rows_of_the_same_confidence_stay_together(top):
    """Five right and five wrong ones: there is but one bin."""
    row = [top, *[(1 - top) / 3] * 3]
    p = td.Predictions.from_probs([row] * 10, [0] * 5 + [1] * 5)
    for bins in (1, 2, 7):
        found = td.ece(p, bins=bins, equal_mass=True)
        assert found == pytest.approx(abs(0.5 - top))


def test_a_temperature_divides_the_logits():
    p = predictions(300)
    for options in ({"bins": 7}, {"bins": 7, "equal_mass": True}):
        cool = td.Predictions.from_logits(p.logits / 2.5, p.labels)
        found = td.ece(p, temperature=2.5, **options)
        assert found == pytest.approx(td.ece(cool, **options))


@pytest.mark.parametrize("bins", [0, -1, 2.5, 15.0, True, "15", None])
def test_a_bad_number_of_bins_is_refused(bins):
    with pytest.raises(InputError, match="a number of bins of 1 or more, got"):
        td.ece(predictions(10), bins=bins)


def test_the_laws_of_sums_are_those_of_means_with_one_row_more(rng):
    values = rng.exponential(size=500)
    laws = laws_of_sums(500, values.sum(), (values**2).sum(), 9.0)
    for law, further in zip(laws, (0.0, 9.0), strict=True):
        rows = np.append(values, further)
        assert law.value == pytest.approx(rows.mean())
        assert law.variance == pytest.approx(rows.var() / 502)


def test_means_have_nearly_the_normal_interval_of_many_rows():
    p = predictions(100_000, factor=1.5)
    rows, found = calibration_rows(p), said(p).estimates()
    confidence = ~p.errors - rows.gap
    for name, values in (
        ("confidence", confidence), ("brier", rows.brier), ("nll", rows.nll)
    ):  # fmt: skip
        half = stats.norm.ppf(0.975) * values.std() / math.sqrt(len(values))
        ends = values.mean() - half, values.mean() + half
        assert found[name].value == pytest.approx(values.mean())
        assert (found[name].low, found[name].high) == pytest.approx(
            ends, abs=0.1 * half
        )
        assert found[name].note == ""


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
    for name, found in td.evaluate(p, scores=["msp"]).calibration.items():
        assert found.low <= found.value + 1e-12, name
        assert found.value - 1e-12 <= found.high, name
        assert found.high - found.low > 1e-6, name


def test_ends_stay_within_what_there_can_be():
    tops = np.array([0.9999, 0.99, 0.98])
    p = td.Predictions.from_probs(np.column_stack([tops, 1 - tops]), [1, 1, 1])
    most = {"confidence": 1, "ece": 1, "brier": 2, "nll": math.inf}
    for name, found in td.evaluate(p, scores=["msp"]).calibration.items():
        assert 0 <= found.low < found.high <= most[name]
    answers = td.Predictions.from_confidence(tops, [False] * 3)
    assert td.evaluate(answers).calibration["brier"].high <= 1


def test_few_errors_carry_a_note():
    for wrong, note in ((19, FEW_NOTE), (20, "")):
        found = said(rows_of(100, wrong, 0.9)).estimates()
        assert found["ece"].note == found["brier"].note == found["nll"].note == note
    assert said(rows_of(19, 100, 0.9)).estimates()["nll"].note.startswith("few correct")


def test_labels_of_no_probability_are_counted():
    p = td.Predictions.from_probs(
        [[1.0, 0.0]] * 2 + [[0.7, 0.3]] * 30, [1, 1] + [0] * 30
    )
    found = said(p)
    assert found.infinite == 2
    nll = found.estimates()["nll"]
    assert (nll.value, nll.low, nll.high) == (None, None, None)
    assert "2 labels had probability 0" in nll.note
