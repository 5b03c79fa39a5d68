"""Rows that are not independent: one is drawn from each cluster, or a note warns.

One random row of each of k exchangeable clusters makes k exchangeable rows, so every
rule holds for them, with k in place of n.

References
----------
Dunn, Wasserman and Ramdas, Distribution-Free Prediction Sets for Two-Layer Hierarchical
Models, JASA 2023: their method of subsampling once.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from trustdoctor.arrays import as_groups
from trustdoctor.errors import InputError
from trustdoctor.evaluation import repeated_rows, repeats
from trustdoctor.predictions import Predictions

NAME_THE_CLUSTERS = (
    "Careful: rows that belong together are not independent, and the promise then does "
    "not hold. Say which belong together: clusters=, or --clusters NAME."
)


def draw_from_clusters(
    clusters: Any, *, rows: int, seed: int = 0, preferred: Any = None
) -> NDArray[np.int64]:
    """Return one row of each cluster, drawn at random, in the order of the rows.

    Parameters
    ----------
    clusters : array (n,)
        Each row's cluster: integers or strings.
    rows : int
        The number of rows.
    seed : int
        Of the draw.
    preferred : bool array (n,), optional
        Rows that are drawn before the other rows of their cluster.

    Examples
    --------
    >>> draw_from_clusters(["a", "a", "b"], rows=3)
    array([0, 2])
    """
    try:
        cluster_of_row = as_groups(clusters, rows=rows)
    except InputError as error:
        raise InputError(str(error).replace("groups", "clusters")) from None
    if type(seed) is not int or seed < 0:
        message = f"expected a seed of 0 or more, got {seed!r}."
        raise InputError(message)
    # The first row of each cluster in a random order is a random row of the cluster; a
    # stable sort moves preferred rows to the front and leaves their order random.
    order = np.random.default_rng(seed).permutation(rows)
    if preferred is not None:
        order = order[np.argsort(~preferred[order], kind="stable")]
    drawn = order[np.unique(cluster_of_row[order], return_index=True)[1]]
    return np.sort(drawn)


def draw_note(clusters: int, rows: int, seed: int) -> str:
    """Say what was drawn, and for which rows the promise is then."""
    return (
        f"One row was drawn from each of {clusters:,} clusters, of {rows:,} rows (seed "
        f"{seed}). The promise is for a random row of a random cluster."
    )


def one_per_cluster(
    predictions: Any, clusters: Any, groups: Any, seed: int = 0
) -> tuple[Predictions, Any, tuple[str, ...]]:
    """Draw one row of each cluster, a labelled one where the cluster has any.

    Returns the rows, their groups where `groups` is an array, and notes on the draw.

    Examples
    --------
    >>> p = Predictions.from_logits([[2.0, 0], [1, 0], [3, 0]], [0, 0, 1])
    >>> len(one_per_cluster(p, [7, 7, 8], None)[0])
    2
    """
    if not isinstance(predictions, Predictions):
        message = (
            f"clusters go with Predictions, got {type(predictions).__name__}. Score "
            "the rows, and give clusters to calibrate_scores."
        )
        raise InputError(message)
    n_rows = len(predictions)
    labelled = None if predictions.labels is None else predictions.has_label
    drawn = draw_from_clusters(clusters, rows=n_rows, seed=seed, preferred=labelled)
    if groups is not None and not isinstance(groups, str):
        groups = as_groups(groups, rows=n_rows)[drawn]
    return predictions[drawn], groups, (draw_note(len(drawn), n_rows, seed),)


def repeat_notes(predictions: Any) -> tuple[str, ...]:
    """Warn of rows that occur twice, by ids, features or logits; empty without any.

    Examples
    --------
    >>> distinct = Predictions.from_logits([[2.0, 0.0], [1.0, 0.0]], ids=["a", "b"])
    >>> repeat_notes(distinct)
    ()
    """
    warnings = repeats(ids=predictions.ids, features=predictions.features)
    warnings = (*warnings, *repeated_rows(predictions))
    return (*warnings, NAME_THE_CLUSTERS) if warnings else ()
