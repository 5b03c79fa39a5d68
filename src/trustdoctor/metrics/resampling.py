"""Bootstrap samples of counted rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trustdoctor.arrays import Array, as_errors, as_scores
from trustdoctor.metrics.counts import Counts

REPLICATES = 1000


JOINT_ROWS = 50_000  # up to here the bootstrap draws rows, jointly for all scores


NORMAL_ROWS = 5_000  # above, means are drawn from their normal law


GROUPS = 256  # neighbouring rows are counted together, about so many groups


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
