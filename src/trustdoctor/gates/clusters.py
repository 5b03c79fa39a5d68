"""Rows that belong together: one is drawn from each cluster, or a note says so."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from trustdoctor.arrays import as_groups
from trustdoctor.errors import InputError
from trustdoctor.evaluation import repeated_rows, repeats
from trustdoctor.predictions import Predictions

BELONG = (
    "Careful: rows that belong together are not independent, and the promise then does "
    "not hold. Say which do: clusters=, or --clusters NAME."
)


def draw_rows(
    clusters: Any, *, rows: int, seed: int = 0, first: Any = None
) -> NDArray[np.int64]:
    """Return one row of each cluster, drawn at random, in the order of the rows.

    Parameters
    ----------
    clusters : array (n,)
        Each row's cluster: integers or strings.
    rows : int
        How many there are.
    seed : int
        Of the draw.
    first : bool array (n,), optional
        Rows that are drawn before others of their cluster.

    Examples
    --------
    >>> draw_rows(["a", "a", "b"], rows=3)
    array([0, 2])
    """
    try:
        given = as_groups(clusters, rows=rows)
    except InputError as error:
        raise InputError(str(error).replace("groups", "clusters")) from None
    if type(seed) is not int or seed < 0:
        message = f"expected a seed of 0 or more, got {seed!r}."
        raise InputError(message)
    order = np.random.default_rng(seed).permutation(rows)
    if first is not None:
        order = order[np.argsort(~first[order], kind="stable")]
    drawn = order[np.unique(given[order], return_index=True)[1]]
    return np.sort(drawn)


def drawn_note(clusters: int, rows: int, seed: int) -> str:
    """Say what was drawn, and what the promise is then for."""
    return (
        f"One row was drawn from each of {clusters:,} clusters, of {rows:,} rows (seed "
        f"{seed}). The promise is for a random row of a random cluster."
    )


def one_per_cluster(
    predictions: Any, clusters: Any, groups: Any, seed: int = 0
) -> tuple[Predictions, Any, tuple[str, ...]]:
    """Return one row of each cluster, with a label where it has such a row.

    Beside them their groups, where those are an array, and what to say of the draw.

    Examples
    --------
    >>> p = Predictions.from_logits([[2.0, 0], [1, 0], [3, 0]], [0, 0, 1])
    >>> len(one_per_cluster(p, [7, 7, 8], None)[0])
    2
    """
    if not isinstance(predictions, Predictions):
        message = (
            "clusters go with Predictions, got top-k answers. Score the rows, and give "
            "clusters to calibrate_scores."
        )
        raise InputError(message)
    n = len(predictions)
    known = None if predictions.labels is None else predictions.known
    drawn = draw_rows(clusters, rows=n, seed=seed, first=known)
    if groups is not None and not isinstance(groups, str):
        groups = as_groups(groups, rows=n)[drawn]
    return predictions[drawn], groups, (drawn_note(len(drawn), n, seed),)


def repeat_notes(predictions: Any) -> tuple[str, ...]:
    """Say which rows come twice, by ids, features or numbers, and what to do then.

    Examples
    --------
    >>> once = Predictions.from_logits([[2.0, 0.0], [1.0, 0.0]], ids=["a", "b"])
    >>> repeat_notes(once)
    ()
    """
    ids, features = (getattr(predictions, k, None) for k in ("ids", "features"))
    found = repeats(ids=ids, features=features)
    if isinstance(predictions, Predictions):
        found = (*found, *repeated_rows(predictions))
    return (*found, BELONG) if found else ()
