"""Metrics against scikit-learn, against definitions typed out row by row, and laws."""

import math
from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest
import sklearn.metrics as sk
from hypothesis import given
from hypothesis import strategies as st
from metrics.rank_samples import samples

import trustdoctor as td
from trustdoctor.errors import InputError, LabelsMissingError, UndefinedMetricError
from trustdoctor.metrics.rank import RANK_METRICS, Points
from trustdoctor.metrics.sketch import Sketch

METRICS = {name: getattr(td, name) for name in RANK_METRICS} | {
    "aupr_correct": lambda s, e: td.aupr(s, e, positive="correct")
}
metrics = pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)


@pytest.mark.sampled(3)
@metrics
@given(data=samples(), seed=st.integers(0, 99))
def test_reordering_rows_changes_nothing(metric, data, seed):
    scores, errors = data
    order = np.random.default_rng(seed).permutation(len(scores))
    assert metric(scores[order], errors[order]) == metric(scores, errors)


@pytest.mark.sampled(3)
@metrics
@given(data=samples())
def test_increasing_transforms_change_nothing(metric, data):
    scores, errors = data
    ranks = np.unique(scores, return_inverse=True)[1]
    for changed in (ranks * 7.0 - 3, ranks.astype(float) ** 3, np.arctan(ranks)):
        assert metric(changed, errors) == metric(scores, errors)


@given(data=samples())
def test_scikit_learn_agrees(data):
    scores, errors = data
    assert td.auroc(scores, errors) == pytest.approx(sk.roc_auc_score(errors, scores))
    assert td.aupr(scores, errors) == pytest.approx(
        sk.average_precision_score(errors, scores)
    )
    assert td.aupr(scores, errors, positive="correct") == pytest.approx(
        sk.average_precision_score(~errors, -scores)
    )
    frr, trr, thresholds = td.roc(scores, errors)
    fpr, tpr, _ = sk.roc_curve(errors, scores, drop_intermediate=False)
    assert np.allclose(frr, fpr)
    assert np.allclose(trr, tpr)
    assert np.array_equal(thresholds[:-1], np.unique(scores)[::-1])
    assert np.isnan(thresholds[-1])


@given(data=samples(), trr=st.sampled_from([0.0, 0.29, 0.5, 0.9, 0.95, 1.0]))
def test_frr_at_trr_is_the_lowest_that_a_threshold_reaches(data, trr):
    scores, errors = data
    reached = [
        td.confusion(scores, errors, threshold=value)
        for value in [-math.inf, *set(scores)]
    ]
    n_errors, share = int(errors.sum()), Fraction(str(trr))
    true = min(at.frr for at in reached if at.rejected_errors >= share * n_errors)
    assert td.frr_at_trr(scores, errors, trr=trr) == pytest.approx(true)
    assert td.measure(
        scores, errors, metrics=["frr_at_trr"], points=Points(trr=trr)
    ) == {"frr_at_trr": pytest.approx(true)}
    sketch = Sketch()
    sketch.update(scores, errors)
    assert sketch.bounds("frr_at_trr", points=Points(trr=trr))[0] == pytest.approx(true)


@given(data=samples(), frr=st.sampled_from([0.0, 0.05, 0.5, 0.71, 1.0]))
def test_trr_at_frr_is_the_highest_that_a_threshold_reaches(data, frr):
    scores, errors = data
    reached = [
        td.confusion(scores, errors, threshold=value)
        for value in [-math.inf, *set(scores)]
    ]
    n_correct, share = int((~errors).sum()), Fraction(str(frr))
    true = max(at.trr for at in reached if at.rejected_correct <= share * n_correct)
    assert td.trr_at_frr(scores, errors, frr=frr) == pytest.approx(true)


def test_three_neighbours_name_a_point_that_a_user_can_set():
    """Doubts of four values: 65% lost is on the line to the next threshold, 100%."""
    scores = np.repeat([0.0, 1 / 3, 2 / 3, 1.0], [60, 20, 15, 25])
    errors = np.concatenate(
        [np.arange(60) < 4, np.arange(20) < 6, np.arange(15) < 8, np.arange(25) < 20]
    )
    assert td.frr_at_trr(scores, errors) == 1
    assert td.frr_at_trr(scores, errors, interpolate=True) == pytest.approx(
        (26 + 56 * (0.95 * 38 - 34) / 4) / 82
    )
    gate = td.calibrate_scores(scores, errors, trr=0.95)
    assert gate.accept(scores).sum() == 0


def test_without_ties_both_are_the_same(rng):
    scores, errors = rng.normal(size=500), rng.random(500) < 0.3
    for point in (0.05, 0.5, 0.95):
        for metric, name in ((td.frr_at_trr, "trr"), (td.trr_at_frr, "frr")):
            reached = metric(scores, errors, **{name: point})
            assert metric(
                scores, errors, interpolate=True, **{name: point}
            ) == pytest.approx(reached, abs=1 / 100)


@given(data=samples(), trr=st.sampled_from([0.0, 0.29, 0.5, 0.9, 0.95, 1.0]))
def test_frr_at_trr_may_be_interpolated_on_the_roc(data, trr):
    scores, errors = data
    assert td.frr_at_trr(scores, errors, trr=trr, interpolate=True) == pytest.approx(
        lowest_frr(scores, errors, Fraction(str(trr))), abs=1e-12
    )


@given(data=samples(), frr=st.sampled_from([0.0, 0.05, 0.5, 0.71, 1.0]))
def test_trr_at_frr_may_be_interpolated_on_the_roc(data, frr):
    scores, errors = data
    mirrored = lowest_frr(-scores, ~errors, 1 - Fraction(str(frr)))
    assert td.trr_at_frr(scores, errors, frr=frr, interpolate=True) == pytest.approx(
        1 - mirrored, abs=1e-12
    )


def lowest_frr(scores, errors, trr):
    """Walk along the ROC in exact arithmetic."""
    n_errors, n_correct = int(errors.sum()), int((~errors).sum())
    x = y = Fraction(0)
    for value in [*sorted(set(scores), reverse=True)]:
        group = scores == value
        nx = x + Fraction(int((group & ~errors).sum()), n_correct)
        ny = y + Fraction(int((group & errors).sum()), n_errors)
        if y >= trr:
            return float(x)
        if ny >= trr:
            return float(x + (nx - x) * (trr - y) / (ny - y))
        x, y = nx, ny
    return float(x)


@given(data=samples(most=6), coverage=st.sampled_from([0.1, 0.3, 0.5, 0.9, 1.0]))
def test_areas_and_risks_are_means_over_all_orders_of_ties(data, coverage):
    scores, errors = data
    n = len(scores)
    k = int(np.ceil(Fraction(str(coverage)) * n))
    risks_by_order = []
    for order in permutations(range(n)):
        ordered = scores[list(order)]
        if (np.diff(ordered) >= 0).all():
            wrong = np.cumsum(errors[list(order)])
            risks = wrong / np.arange(1, n + 1)
            general = (wrong + np.append(0, wrong[:-1])) / 2 / n
            risks_by_order.append((risks.mean(), general.mean(), risks[k - 1]))
    aurc, augrc, risk = np.mean(risks_by_order, 0)
    assert td.aurc(scores, errors) == pytest.approx(aurc)
    assert td.augrc(scores, errors) == pytest.approx(augrc)
    assert td.risk_at_coverage(scores, errors, coverage=coverage) == pytest.approx(risk)
    best = np.cumsum(np.sort(errors)) / np.arange(1, n + 1)
    assert td.eaurc(scores, errors) == pytest.approx(aurc - best.mean())


@given(data=samples())
def test_augrc_is_its_closed_form(data):
    scores, errors = data
    wrong = errors.mean()
    closed = (1 - td.auroc(scores, errors)) * wrong * (1 - wrong) + wrong**2 / 2
    assert td.augrc(scores, errors) == pytest.approx(closed)


@given(data=samples(), risk=st.sampled_from([0.0, 0.1, 0.3, 0.5, 1.0]))
def test_coverage_at_risk_is_the_best_threshold(data, risk):
    scores, errors = data
    coverage, risks, thresholds = td.risk_coverage(scores, errors)
    allowed = [0.0, *coverage[risks <= risk + 1e-12]]
    assert td.coverage_at_risk(scores, errors, risk=risk) == max(allowed)
    at = td.confusion(scores, errors, threshold=thresholds[len(thresholds) // 2])
    assert at.coverage == pytest.approx(coverage[len(thresholds) // 2])
    assert at.risk == pytest.approx(risks[len(thresholds) // 2])


@given(data=samples(), threshold=st.floats(-60, 60))
def test_confusion_counts_every_row_once(data, threshold):
    scores, errors = data
    at = td.confusion(scores, errors, threshold=threshold)
    rejected = scores > threshold
    tn, fp, fn, tp = sk.confusion_matrix(errors, rejected, labels=[False, True]).ravel()
    assert (
        at.accepted_correct,
        at.rejected_correct,
        at.accepted_errors,
        at.rejected_errors,
    ) == (tn, fp, fn, tp)
    assert at.n == len(scores)
    assert (at.n_correct, at.n_errors) == (tn + fp, fn + tp)
    assert at == td.Confusion.of(~rejected, errors)
    assert at + at == td.Confusion(*(2 * count for count in (fp, tp, fn, tn)))
    assert at.frr == pytest.approx(fp / (fp + tn))
    assert at.trr == pytest.approx(tp / (tp + fn))


@given(data=samples())
def test_measure_gives_what_the_functions_give(data):
    scores, errors = data
    assert td.measure(scores, errors) == {
        m: METRICS[m](scores, errors) for m in RANK_METRICS
    }


def test_rates_without_rows_are_nan():
    empty = td.confusion([0.0], [True], threshold=-1)
    assert np.isnan(empty.frr)
    assert np.isnan(empty.risk)


@pytest.mark.parametrize("errors", [[True, True], [False, False]])
def test_undefined_metrics_are_refused(errors):
    for metric in (td.auroc, td.frr_at_trr, td.trr_at_frr, td.roc):
        with pytest.raises(UndefinedMetricError, match="both kinds"):
            metric([0.1, 0.2], errors)
    assert "auroc" not in td.measure([0.1, 0.2], errors)
    assert td.aurc([0.1, 0.2], errors) == float(errors[0])
    positive = "correct" if errors[0] else "errors"
    with pytest.raises(UndefinedMetricError):
        td.aupr([0.1, 0.2], errors, positive=positive)


@pytest.mark.parametrize(
    ("scores", "errors", "match"),
    [
        ([0.1, np.nan], [True, False], "NaN at row 1"),
        ([0.1], [True, False], "1 booleans"),
        ([0.1, 0.2], [0.0, 1.0], "booleans"),
        ([0.1, 0.2], [0, 2], "other than 0 and 1"),
        ([[0.1, 0.2]], [True, False], "shape"),
        (["a", "b"], [True, False], "scores"),
    ],
)
def test_bad_arrays_are_refused(scores, errors, match):
    with pytest.raises(InputError, match=match):
        td.auroc(scores, errors)


@pytest.mark.parametrize(
    "call",
    [
        lambda s, e: td.frr_at_trr(s, e, trr=95),
        lambda s, e: td.trr_at_frr(s, e, frr=-0.1),
        lambda s, e: td.risk_at_coverage(s, e, coverage=0),
        lambda s, e: td.coverage_at_risk(s, e, risk=2),
        lambda s, e: td.aupr(s, e, positive="wrong"),
        lambda s, e: td.measure(s, e, metrics=["accuracy"]),
        lambda s, e: td.measure(s, e, points=td.Points(trr=95)),
        lambda s, e: td.confusion(s, e, threshold=np.nan),
        lambda *_: td.aurc([], []),
        lambda *_: td.risk_coverage([], []),
    ],
)
def test_bad_options_are_refused(call):
    with pytest.raises(InputError, match="expected"):
        call([0.1, 0.2], [True, False])


@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_calibration_metrics_meet_their_definitions(temperature, rng):
    z, labels = rng.normal(size=(3000, 5)) * 3, rng.integers(0, 5, 3000)
    p = td.Predictions.from_logits(z, labels)
    probs = np.exp(z / temperature)
    probs /= probs.sum(1, keepdims=True)
    assert td.nll(p, temperature=temperature) == pytest.approx(
        sk.log_loss(labels, probs)
    )
    onehot = np.eye(5)[labels]
    assert td.brier(p, temperature=temperature) == pytest.approx(
        ((probs - onehot) ** 2).sum(1).mean()
    )
    confidence, correct = probs.max(1), probs.argmax(1) == labels
    ece = 0.0
    for low in np.arange(15) / 15:
        inside = (confidence >= low) & (confidence < low + 1 / 15)
        if inside.any():
            gap = correct[inside].mean() - confidence[inside].mean()
            ece += inside.mean() * abs(gap)
    assert td.ece(p, temperature=temperature) == pytest.approx(ece)


def test_nll_is_infinite_where_a_label_had_probability_zero():
    p = td.Predictions.from_probs([[1.0, 0.0], [0.5, 0.5]], [1, 0])
    assert td.nll(p) == np.inf
    assert td.brier(p) == pytest.approx((2 + 0.5) / 2)


def test_calibration_needs_labels():
    p = td.Predictions.from_probs([[0.5, 0.5]])
    for metric in (td.ece, td.brier, td.nll):
        with pytest.raises(LabelsMissingError):
            metric(p)


def test_large_samples_take_the_same_path_exactly(rng):
    """Above the radix sort's size, against scikit-learn."""
    n = 1_300_000  # sliced, too
    errors = rng.random(n) < 0.1
    scores = np.round(rng.normal(size=n) + errors, 3).astype(np.float32)
    assert td.auroc(scores, errors) == pytest.approx(
        sk.roc_auc_score(errors, scores), abs=1e-12
    )
    assert td.aupr(scores, errors) == pytest.approx(
        sk.average_precision_score(errors, scores), abs=1e-12
    )
