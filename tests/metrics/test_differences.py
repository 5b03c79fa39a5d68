"""Differences between two scores on the same rows, against all pairs of rows."""

import numpy as np
import pytest
from hypothesis import given
from metrics.rank_samples import components, draw, samples
from scipy import stats

import trustdoctor as td
from trustdoctor.errors import InputError
from trustdoctor.metrics import (
    TIED_NOTE,
    Ranking,
    area_difference,
    auroc_difference,
    counts,
    differences,
    frr_difference,
    paired_frr,
    risk_difference,
)
from trustdoctor.metrics.bootstrap import moments_of_influences


def pair(rng, n=400, step=0.0, **options):
    """Two scores that agree as scores of one model do, and the errors."""
    scores, errors = draw(rng, n, **options)
    other = scores + 0.5 * rng.normal(size=n)
    if step:
        scores, other = np.round(scores / step), np.round(other / step)
    return scores, other, errors


@given(data=samples())
def test_placements_are_those_of_all_pairs(data):
    placements = Ranking(*data).placements
    for ours, true in zip(placements, components(*data), strict=True):
        assert ours == pytest.approx(true)


@given(data=samples())
def test_counts_are_those_of_the_scores(data):
    counted, true = Ranking(*data).counts, counts(*data)
    for name in ("correct", "errors", "scores"):
        assert np.array_equal(getattr(counted, name), getattr(true, name))


def test_an_order_is_the_same_with_its_ties(rng):
    scores, errors = draw(rng, step=0.5)
    ranking = Ranking(scores, errors)
    assert ranking.same_order(Ranking(np.exp(scores), errors))
    assert not ranking.same_order(Ranking(-scores, errors))
    parted = scores + 1e-9 * np.arange(len(scores))
    assert not ranking.same_order(Ranking(parted, errors))
    moved = np.arange(5.0)[[1, 0, 2, 3, 4]]
    kinds = np.arange(5) > 2
    assert not Ranking(np.arange(5.0), kinds).same_order(Ranking(moved, kinds))


@pytest.mark.parametrize("step", [0.0, 0.5])
def test_of_many_rows_the_interval_is_delongs(step, rng):
    first, second, errors = pair(rng, 6000, step)
    apart = [
        a - b
        for a, b in zip(
            components(first, errors), components(second, errors), strict=True
        )
    ]
    half = stats.norm.ppf(0.975) * np.sqrt(sum(d.var(ddof=1) / len(d) for d in apart))
    mid = apart[0].mean()
    difference = auroc_difference(Ranking(first, errors), Ranking(second, errors))
    assert difference.value == pytest.approx(
        td.auroc(first, errors) - td.auroc(second, errors)
    )
    assert (difference.low, difference.high) == pytest.approx(
        (mid - half, mid + half), abs=0.06 * half
    )
    assert td.delong_difference(first, second, errors) == (
        difference.low,
        difference.high,
    )


def test_blocks_of_rows_add_up(rng, monkeypatch):
    """The largest differences are taken of each block; nothing else may change."""
    first, second, errors = pair(rng, 3000)
    rankings = Ranking(first, errors), Ranking(second, errors)
    at_once = auroc_difference(*rankings)
    monkeypatch.setattr(differences, "_BLOCK_ROWS", 100)
    in_blocks = auroc_difference(*rankings)
    for name in ("value", "low", "high"):
        assert getattr(in_blocks, name) == pytest.approx(
            getattr(at_once, name), abs=1e-9
        )


@pytest.mark.parametrize(("n", "weight"), [(60, 1.0), (1000, 0.1)])
@pytest.mark.parametrize("sign", [1, -1])
def test_the_law_counts_a_row_more_that_lowers_the_mean(n, weight, sign, rng):
    """Of few rows a half, else beyond the ten largest; of many less than a row."""
    first, second = rng.beta(1, 6, n), rng.beta(1, 9, n)
    apart = sign * (first - second)
    top = np.sort(np.abs(apart))[::-1][:11]
    far = top[0] + 3 * (top[:10] - top[10]).mean()
    for has_few_rows, unseen in ((True, -0.5), (False, -min(1.0, far))):
        weights = np.append(np.ones(n), weight)
        values = np.append(apart, unseen)
        mean = np.average(values, weights=weights)
        true = moments_of_influences(mean, (values, weights))
        law = differences._RowDifferences(
            first, second, has_few_rows=has_few_rows
        ).moments(sign)
        for name in ("value", "variance", "third"):
            assert getattr(law, name) == pytest.approx(getattr(true, name), rel=1e-9)


def of(name, scores, errors):
    if name == "auroc":
        return Ranking(scores, errors)
    return paired_frr(Ranking(scores, errors), trr=0.9)


def differ(name, first, second, errors):
    a, b = (of(name, scores, errors) for scores in (first, second))
    return auroc_difference(a, b) if name == "auroc" else frr_difference(a, b, errors)


metrics = pytest.mark.parametrize("name", ["auroc", "frr_at_trr"])


@metrics
@given(data=samples())
def test_the_other_way_round_ends_change_place_and_sign(name, data):
    first, errors = data
    second = np.random.default_rng(len(first)).permutation(first)
    forward, backward = (
        differ(name, first, second, errors),
        differ(name, second, first, errors),
    )
    assert forward.value == pytest.approx(-backward.value)
    assert (forward.low, forward.high) == pytest.approx((-backward.high, -backward.low))
    assert -1 <= forward.low <= forward.value <= forward.high <= 1


@metrics
def test_two_scales_of_one_score_do_not_differ(name, rng):
    scores, errors = draw(rng, step=0.25)
    difference = differ(name, scores, np.exp(scores), errors)
    assert (difference.value, difference.low, difference.high) == (0, 0, 0)


@metrics
@pytest.mark.parametrize("n_errors", [5, 40])
def test_two_perfect_scores_may_differ(name, n_errors):
    """They order the errors differently, so chance may separate them."""
    errors = np.arange(300) >= 300 - n_errors
    second = np.where(errors, 1000.0 - np.arange(300), np.arange(300))
    difference = differ(name, np.arange(300.0), second, errors)
    assert difference.value == 0
    assert difference.low < 0 < difference.high
    assert difference.high - difference.low > 1 / n_errors / 10


@pytest.mark.parametrize("n_errors", [2, 3, 10, 30])
@pytest.mark.sampled(2)
def test_few_errors_seldom_make_a_difference_where_there_is_none(n_errors):
    errors = np.arange(300 + n_errors) < n_errors
    claims = {"auroc": 0, "frr_at_trr": 0}
    for seed in range(200):
        rng = np.random.default_rng(seed)
        base = rng.normal(size=len(errors)) + 2 * errors
        first, second = (base + rng.normal(size=len(errors)) for _ in range(2))
        for name in claims:
            difference = differ(name, first, second, errors)
            claims[name] += not difference.low <= 0 <= difference.high
    assert max(claims.values()) / 200 <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 200)


def test_pairing_makes_frr_differences_narrower(rng):
    """Similar scores have narrower intervals than unrelated ones."""
    scores, errors = draw(rng, 3000)
    near = scores + 0.05 * rng.normal(size=3000)
    far, _ = draw(np.random.default_rng(9), 3000)
    far = np.where(errors, rng.permutation(far) + 1.5, far)
    widths = [
        (difference := differ("frr_at_trr", scores, other, errors)).high
        - difference.low
        for other in (near, far)
    ]
    assert widths[0] < 0.7 * widths[1]


def tied_pair(correct, errors):
    """Two scores of two values: rows of (0, 0), (0, 1), (1, 0) and (1, 1)."""
    kinds = [np.repeat(np.arange(4), kind) for kind in (correct, errors)]
    rows = np.concatenate(kinds)
    wrong = np.arange(len(rows)) >= len(kinds[0])
    return (rows // 2).astype(float), (rows % 2).astype(float), wrong


def test_errors_that_all_agree_may_differ_next():
    """No error of 40 has another value by the other score; one in 40 may have."""
    difference = differ("auroc", *tied_pair([600, 20, 20, 360], [0, 0, 0, 40]))
    assert difference.value == 0
    assert difference.low < -0.25 / 40
    assert difference.high > 0.25 / 40


def test_two_thresholds_may_jump_apart():
    """1 of 40 errors has the lower value, by either score: 5% may have it."""
    first, second, errors = tied_pair([600, 20, 20, 360], [0, 1, 1, 38])
    frr_points = [paired_frr(Ranking(s, errors), trr=0.95) for s in (first, second)]
    difference = frr_difference(*frr_points, errors)
    assert difference.value == 0
    assert difference.low < -0.6
    assert difference.high > 0.6
    assert difference.note == TIED_NOTE


def test_correlation_of_marks(rng):
    first = rng.random(500) < 0.3
    second = np.where(rng.random(500) < 0.7, first, rng.random(500) < 0.3)
    kind = rng.random(500) < 0.8
    true = np.corrcoef(first[kind], second[kind])[0, 1]
    assert differences._correlation(first, second, kind) == pytest.approx(true)
    assert differences._correlation(first, ~first, kind) == 0
    assert differences._correlation(first, np.ones(500, bool), kind) == 0


def test_misjudged_rows_by_hand():
    """Of 400 errors 5% are accepted, of 1000 correct rows 3% are rejected."""
    scores, errors = np.arange(1400.0), np.arange(1400) >= 1000
    misjudged = Ranking(scores, errors).misjudged(trr=0.95, frr=0.03)
    assert np.flatnonzero(misjudged).tolist() == [*range(970, 1000), *range(1000, 1020)]
    misjudged = Ranking(scores, errors).misjudged(
        trr=0.999, frr=0.001
    )  # at least twenty
    assert np.flatnonzero(misjudged).tolist() == [*range(980, 1000), *range(1000, 1020)]
    misjudged_of_few = Ranking(scores[980:1010], errors[980:1010]).misjudged(
        trr=0.95, frr=0.1
    )
    assert misjudged_of_few[20:].sum() == 5  # of ten, a half


def test_incomparable_scores_are_refused():
    for first, second, errors in (
        ([1.0, 2.0], [1.0, 2.0], [True, True]),
        ([1.0, 2.0], [1.0, 2.0], [False, False]),
        ([1.0, 2.0], [1.0], [True, False]),
    ):
        with pytest.raises(InputError, match="same rows"):
            td.delong_difference(first, second, errors)
    with pytest.raises(InputError, match="confidence between 0 and 1"):
        td.delong_difference([1.0, 2.0], [2.0, 1.0], [True, False], confidence=95)


@pytest.mark.parametrize("metric", ["aurc", "eaurc", "augrc", "aupr", "risk"])
@pytest.mark.parametrize("step", [None, 0.5], ids=["distinct", "tied"])
def test_paired_intervals_of_areas_and_risks_cover(metric, step):
    """The true difference is that of a population of a million rows."""

    def rankings(n, seed):
        rng = np.random.default_rng(seed)
        errors, shared = rng.random(n) < 0.1, 0.8 * rng.normal(size=n)
        doubts = [shared + 0.6 * rng.normal(size=n) + k * errors for k in (1.6, 1.3)]
        if step is not None:
            doubts = [np.round(d / step) * step for d in doubts]
        return [Ranking(d, errors) for d in doubts]

    def difference(first, second):
        if metric == "risk":
            return risk_difference(first, second, coverage=0.9)
        return area_difference(metric, first, second)

    true = difference(*rankings(1_000_000, 0)).value
    estimates = [difference(*rankings(800, seed)) for seed in range(1, 151)]
    covered = sum(e.low <= true <= e.high for e in estimates)
    assert covered >= 150 * 0.93 - 3 * np.sqrt(150 * 0.93 * 0.07)
    widths = np.median([e.high - e.low for e in estimates])
    spread = np.subtract(*np.quantile([e.value for e in estimates], [0.975, 0.025]))
    assert widths < 2 * spread


def test_two_scales_of_one_score_have_equal_areas(rng):
    errors = rng.random(300) < 0.2
    doubts = rng.normal(size=300) + errors
    first, second = Ranking(doubts, errors), Ranking(np.exp(doubts), errors)
    for gap in (
        area_difference("aurc", first, second),
        risk_difference(first, second, coverage=0.8),
    ):
        assert (gap.value, gap.low, gap.high) == (0, 0, 0)
