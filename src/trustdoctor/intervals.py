"""How sure a measured number is.

AUROC: DeLong with midranks. FRR at a TRR: a bootstrap within the errors and within
the correct rows, or order statistics where errors are few. Areas and risks: a
bootstrap over rows. Rates at a fixed threshold: Clopper-Pearson.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trustdoctor.curves import Array, Counts, auroc, count_runs
from trustdoctor.errors import InputError, UndefinedMetricError
from trustdoctor.predictions import as_errors, as_scores

FEW_ERRORS = 100
"""Below this many errors (or correct rows) large-sample intervals are not used."""

VERY_FEW_ERRORS = 30
"""Below this many DeLong's variance is not used."""

REPLICATES = 1000
JOINT_ROWS = 50_000  # up to here the bootstrap draws rows, jointly for all scores
NORMAL_ROWS = 5_000  # above, means are drawn from their normal law
GROUPS = 256  # neighbouring rows are counted together, about so many groups

Interval = tuple[float, float]


def clopper_pearson(successes: float, n: int, *, confidence: float = 0.95) -> Interval:
    """Exact interval of a rate of `successes` in `n` independent rows.

    References
    ----------
    Clopper & Pearson, Biometrika 1934.

    Examples
    --------
    >>> low, high = clopper_pearson(0, 10)
    >>> round(low, 4), round(high, 4)
    (0.0, 0.3085)
    """
    from scipy.special import betaincinv

    tail = (1 - _check_confidence(confidence)) / 2
    if not 0 <= successes <= n:
        message = f"expected successes from 0 to n, got {successes!r} of {n!r}."
        raise InputError(message)
    low = betaincinv(successes, n - successes + 1, tail) if successes > 0 else 0.0
    high = betaincinv(successes + 1, n - successes, 1 - tail) if successes < n else 1.0
    return float(low), float(high)


def delong(scores: Any, errors: Any, *, confidence: float = 0.95) -> Interval:
    """Interval of the AUROC by DeLong's variance.

    Below 100 errors or correct rows it is taken on the logit scale. Below 30 the
    variance cannot be trusted; the AUROC is then taken as the mean of as many shares
    between 0 and 1 as there are rows of the rarer kind, and Clopper-Pearson bounds it
    from the cautious side.

    References
    ----------
    DeLong et al., Biometrics 1988; Sun & Xu, IEEE Signal Processing Letters 2014.

    Examples
    --------
    >>> low, high = delong([0.1, 0.4, 0.6, 0.9], [False, True, False, True])
    >>> 0 < low < 0.75 < high < 1
    True
    """
    return delong_counts(count_runs(scores, errors), confidence=confidence)


def delong_counts(c: Counts, *, confidence: float = 0.95) -> Interval:
    """`delong` on counted rows."""
    _check_confidence(confidence)
    n_errors, n_correct = int(c.n_errors), int(c.n_correct)
    area = float(auroc(c))
    fewest = min(n_errors, n_correct)
    if fewest == 0:
        message = (
            "an interval of the AUROC needs rows of both kinds. Give it more rows."
        )
        raise UndefinedMetricError(message)
    if fewest < VERY_FEW_ERRORS or area in (0.0, 1.0):
        return clopper_pearson(area * fewest, fewest, confidence=confidence)
    below = (np.cumsum(c.correct) - 0.5 * c.correct) / n_correct
    above = 1 - (np.cumsum(c.errors) - 0.5 * c.errors) / n_errors
    variance = _weighted_variance(below, c.errors) / n_errors
    variance += _weighted_variance(above, c.correct) / n_correct
    half = normal_quantile(confidence) * math.sqrt(variance)
    if fewest >= FEW_ERRORS:
        return max(0.0, area - half), min(1.0, area + half)
    logit, half = math.log(area / (1 - area)), half / (area * (1 - area))
    return _expit(logit - half), _expit(logit + half)


def delong_difference(
    first: Any, second: Any, errors: Any, *, confidence: float = 0.95
) -> Interval:
    """Interval of AUROC(first) - AUROC(second) on the same rows, paired DeLong.

    With Student's quantile at as many degrees of freedom as there are rows of the
    rarer kind, less one.

    Examples
    --------
    >>> errors = [False, False, True, True]
    >>> delong_difference([1.0, 2.0, 3.0, 4.0], [2.0, 4.0, 6.0, 8.0], errors)
    (0.0, 0.0)
    """
    a, b = as_scores(first), as_scores(second)
    wrong = as_errors(errors, rows=len(a))
    if len(a) != len(b) or wrong.all() or not wrong.any():
        message = (
            f"expected two scores of the same rows, some right and some wrong, got "
            f"{len(a)} and {len(b)} scores and {int(wrong.sum())} errors."
        )
        raise InputError(message)
    return placements_difference(
        placements(a, wrong), placements(b, wrong), confidence=confidence
    )


Placements = tuple[Array, Array]


def placements(scores: Array, wrong: Array) -> Placements:
    """For each error the share of correct rows below it, ties one half; and back."""
    errors, correct = scores[wrong], scores[~wrong]
    return _share_below(errors, np.sort(correct)), _share_below(
        correct, np.sort(errors)
    )


def placements_difference(
    first: Placements, second: Placements, *, confidence: float = 0.95
) -> Interval:
    """`delong_difference` from the placements of both scores."""
    of_errors, of_correct = first[0] - second[0], second[1] - first[1]
    difference = float(of_errors.mean())
    spread = math.sqrt(_variance_of_mean(of_errors) + _variance_of_mean(of_correct))
    fewest = min(len(of_errors), len(of_correct))
    half = _t_quantile(_check_confidence(confidence), fewest - 1) * spread
    return difference - half, difference + half


def frr_at_trr_few(c: Counts, *, trr: float, confidence: float = 0.95) -> Interval:
    """Interval of FRR at a TRR from order statistics, for few errors.

    The threshold lies between two order statistics of the errors' scores with
    half of the risk of being wrong, and Clopper-Pearson at both ends takes the
    other half; together they hold with the confidence asked for.
    """
    from scipy.stats import binom

    tail = (1 - _check_confidence(confidence)) / 4
    n_errors, n_correct = int(c.n_errors), int(c.n_correct)
    # With t the true (1 - trr)-quantile of the errors' scores: ranks between which
    # it lies, counted from the least doubtful error.
    low = int(binom.ppf(tail, n_errors, 1 - trr))
    high = int(binom.ppf(1 - tail, n_errors, 1 - trr)) + 1
    errors_through = np.cumsum(c.errors)
    correct_through = np.cumsum(c.correct)
    rejected_most, rejected_least = n_correct, 0
    if low >= 1:
        group = int(np.searchsorted(errors_through, low))
        before = int(correct_through[group] - c.correct[group])
        rejected_most = n_correct - before
    if high <= n_errors:
        group = int(np.searchsorted(errors_through, high))
        rejected_least = n_correct - int(correct_through[group])
    level = 1 - 2 * tail
    return (
        clopper_pearson(rejected_least, n_correct, confidence=level)[0],
        clopper_pearson(rejected_most, n_correct, confidence=level)[1],
    )


@dataclass(frozen=True, eq=False)
class Samples:
    """Bootstrap samples of one score's counts.

    Attributes
    ----------
    sample : Counts (1, groups)
        The rows themselves.
    rows : Counts (replicates, groups)
        Rows drawn from all rows.
    strata : Counts (replicates, groups)
        Errors drawn from the errors, correct rows from the correct ones.
    joint : bool
        True where all scores saw the same draws, so that differences are paired.
    """

    sample: Counts
    rows: Counts
    strata: Counts
    joint: bool


def bootstrap(
    scores: Sequence[Any],
    errors: Any,
    *,
    replicates: int = REPLICATES,
    seed: int = 0,
) -> list[Samples]:
    """Draw bootstrap samples, one `Samples` for each of several scores.

    Neighbouring rows are counted together in about 256 groups, each with a like share
    of the errors and of the correct rows taken together, which moves a metric by far
    less than its interval is wide. Up to 50,000 rows the same draws
    serve every score; above, each score's groups are drawn from the multinomial
    law that the rows would follow.
    """
    rng = np.random.Generator(np.random.SFC64(seed))
    arrays = [as_scores(s) for s in scores]
    wrong = as_errors(errors, rows=len(arrays[0]))
    codes = [_group(s, wrong) * 2 + wrong for s in arrays]
    if len(wrong) <= JOINT_ROWS:
        drawn = _draw_rows(codes, wrong, replicates, rng)
    else:
        drawn = [_draw_cells(_cells_of(code), replicates, rng) for code in codes]
    joint = len(wrong) <= JOINT_ROWS
    return [
        Samples(_counts(np.bincount(code, minlength=2)[None]), rows, strata, joint)
        for code, (rows, strata) in zip(codes, drawn, strict=True)
    ]


def bootstrap_counts(
    c: Counts, *, replicates: int = REPLICATES, seed: int = 0
) -> Samples:
    """Draw bootstrap samples of rows that are counted already.

    Neighbouring groups are counted together as in `bootstrap`.
    """
    rng = np.random.Generator(np.random.SFC64(seed))
    kinds = [k for k in (c.correct, c.errors) if k.any()]
    shares = [np.cumsum(k) * (GROUPS // 2) // k.sum() for k in kinds]
    apart = np.any([np.diff(share, prepend=0) > 0 for share in shares], axis=0)
    group = np.cumsum(apart)
    cells = np.zeros(2 * (int(group[-1]) + 1), np.int64)
    np.add.at(cells, 2 * group, c.correct)
    np.add.at(cells, 2 * group + 1, c.errors)
    rows, strata = _draw_cells(cells, replicates, rng)
    return Samples(_counts(cells[None]), rows, strata, joint=False)


def bootstrap_means(
    values: Array, *, replicates: int = REPLICATES, seed: int = 0
) -> Array:
    """Draw rows of `values` (n, k); return each draw's means less the rows' own.

    Above 5,000 rows the means, being sums of many, are drawn from their normal law.

    Returns
    -------
    array (replicates, k)
    """
    rng = np.random.default_rng(seed)
    n, k = values.shape
    centred = values - values.mean(0)
    if n > NORMAL_ROWS:
        covariance = centred.T @ centred / n**2
        return rng.multivariate_normal(np.zeros(k), covariance, replicates)
    out = np.empty((replicates, k))
    for start in range(0, replicates, 50):
        weights = [np.bincount(rng.integers(0, n, n), minlength=n) for _ in range(50)]
        out[start : start + 50] = np.stack(weights)[: replicates - start] @ centred / n
    return out


def quantiles(deviations: Array, confidence: float) -> Interval:
    """Return the lower and upper quantile that leave `confidence` between them."""
    tail = (1 - _check_confidence(confidence)) / 2
    low, high = np.quantile(deviations, [tail, 1 - tail])
    return float(low), float(high)


def _group(scores: Array, wrong: Array) -> Array:
    """Give each row the number of its group; equal scores stay together.

    Neighbouring scores of one kind of rows alone share a group, which loses nothing.
    Where that leaves too many groups, the edges are quantiles of the errors and of the
    correct rows.
    """
    if len(scores) <= JOINT_ROWS:
        group = _alternations(scores, wrong)
        if group.max() < 2 * GROUPS:
            return group
    share = np.arange(1, GROUPS // 2) / (GROUPS // 2)
    kinds = [scores[kind] for kind in (wrong, ~wrong) if kind.any()]
    edges = [np.quantile(kind, share, method="lower") for kind in kinds]
    values = np.unique(np.concatenate(edges))
    return np.asarray(np.searchsorted(values, scores, "left"))


def _alternations(scores: Array, wrong: Array) -> Array:
    values, place = np.unique(scores, return_inverse=True)
    errors = np.bincount(place, wrong, len(values)) > 0
    correct = np.bincount(place, ~wrong, len(values)) > 0
    kind = errors + 2 * correct
    starts = (np.diff(kind, prepend=kind[:1]) != 0) | (kind == 3)
    return np.asarray(np.cumsum(starts)[place])


def _draw_rows(
    codes: list[Array], wrong: Array, replicates: int, rng: np.random.Generator
) -> list[tuple[Counts, Counts]]:
    n = len(wrong)
    sizes = [int(code.max()) + 1 for code in codes]
    rows = [np.empty((replicates, size + size % 2), np.int64) for size in sizes]
    strata = [np.empty_like(table) for table in rows]
    # With the correct rows first, one uniform draw serves both kinds of sample.
    order = np.argsort(wrong, kind="stable")
    codes = [code[order] for code in codes]
    n_correct = n - int(wrong.sum())
    first = np.where(np.arange(n) < n_correct, 0, n_correct)
    width = np.where(np.arange(n) < n_correct, n_correct, n - n_correct)
    for b in range(replicates):
        uniform = rng.random(n)
        drawn = (uniform * n).astype(np.int64)
        fixed = (uniform * width).astype(np.int64) + first
        for code, row, stratum in zip(codes, rows, strata, strict=True):
            row[b] = np.bincount(code.take(drawn), minlength=row.shape[1])
            stratum[b] = np.bincount(code.take(fixed), minlength=row.shape[1])
    return [(_counts(r), _counts(s)) for r, s in zip(rows, strata, strict=True)]


def _cells_of(code: Array) -> Array:
    cells = np.bincount(code, minlength=2)
    return np.append(cells, np.zeros(len(cells) % 2, np.int64))


def _draw_cells(
    cells: Array, replicates: int, rng: np.random.Generator
) -> tuple[Counts, Counts]:
    rows = rng.multinomial(cells.sum(), cells / cells.sum(), replicates)
    strata = np.empty_like(rows)
    for kind in (0, 1):
        part = cells[kind::2]
        total = part.sum()
        strata[:, kind::2] = rng.multinomial(total, part / max(total, 1), replicates)
    return _counts(rows), _counts(strata)


def _counts(cells: Array) -> Counts:
    if cells.shape[-1] % 2:
        cells = np.concatenate([cells, np.zeros((*cells.shape[:-1], 1), int)], -1)
    return Counts(cells[..., 0::2], cells[..., 1::2])


def _share_below(own: Array, others: Array) -> Array:
    below = np.searchsorted(others, own, "left") + np.searchsorted(others, own, "right")
    return np.asarray(below / (2 * len(others)))


def _variance_of_mean(values: Array) -> float:
    return float(values.var(ddof=1)) / len(values) if len(values) > 1 else math.inf


def _weighted_variance(values: Array, weights: Array) -> float:
    n = weights.sum()
    mean = (weights * values).sum() / n
    return float((weights * (values - mean) ** 2).sum() / (n - 1))


def normal_quantile(confidence: float) -> float:
    """Return how many standard deviations leave `confidence` between them."""
    from scipy.special import ndtri

    return float(ndtri(0.5 + confidence / 2))


def _t_quantile(confidence: float, freedom: int) -> float:
    """Return Student's quantile: the spread is estimated, which few rows show."""
    from scipy.special import stdtrit

    return float(stdtrit(max(freedom, 1), 0.5 + confidence / 2))


def _expit(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def _check_confidence(confidence: float) -> float:
    if not 0 < confidence < 1:
        message = f"expected a confidence between 0 and 1, got {confidence!r}."
        raise InputError(message)
    return confidence
