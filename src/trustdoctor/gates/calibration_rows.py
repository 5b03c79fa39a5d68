"""The rows of a calibration: one of each cluster, some set aside, labelled ones.

If rows are not independent, one is drawn from each cluster: a random row of each of k
exchangeable clusters makes k exchangeable rows, so every rule holds for them, with k in
place of n (subsampling once: Dunn et al. 2023).

References
----------
Dunn, Wasserman and Ramdas, Distribution-Free Prediction Sets for Two-Layer Hierarchical
Models, JASA 2023.
Smirnov, Table for Estimating the Goodness of Fit of Empirical Distributions, Annals of
Mathematical Statistics 1948.
Noether, Note on the Kolmogorov Statistic in the Discrete Case, Metrika 1963.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trustdoctor.arrays import Array, as_groups
from trustdoctor.errors import InputError
from trustdoctor.evaluation import repeated_rows, repeats
from trustdoctor.gates.groups import groups_of
from trustdoctor.gates.sample import Rows, Sample, cdf
from trustdoctor.gates.shortlist_calibration import SHORTLIST_SEED, SHORTLIST_SHARE
from trustdoctor.predictions import Intake, Predictions

NAME_THE_CLUSTERS = (
    "Careful: rows that belong together are not independent, and the promise then does "
    "not hold. Say which belong together: clusters=, or --clusters NAME."
)

SAME_DOUBTS_LEVEL = 1e-3
"""Below this p-value a note says that rows with and without a label differ."""

# In simulations where only errors lost their labels, the test below noticed 58% of the
# gates that were calibrated on 3,000 rows and 5% of those on 300; most broke their
# promise. So the cause is named whether or not a difference shows.
MISSING_CAUSE = (
    "Whether a label is missing may depend on whether the prediction is right, which "
    "these rows cannot show: the promise then breaks without a sign. Draw the rows to "
    "label at random, for example by trustdoctor split FILE --part 500 -o to_label.csv "
    "rest.csv."
)


@dataclass(frozen=True, eq=False)
class CalibrationRows:
    """Rows to calibrate on, and the group of each if groups get thresholds."""

    predictions: Predictions
    groups: NDArray[Any] | None = None

    @classmethod
    def of(cls, predictions: Any, groups: Any) -> "CalibrationRows":
        """Check predictions and their groups: an array, "predicted" or "given"."""
        if not isinstance(predictions, Predictions):
            message = (
                f"expected Predictions, got {type(predictions).__name__}. Build them "
                "with Predictions.from_logits or from_probs, so that the gate scores "
                "by itself; for scores of your own use calibrate_scores(scores, "
                "errors, ...)."
            )
            raise InputError(message)
        if isinstance(groups, str):
            groups = groups_of(predictions, groups)
        if groups is not None:
            groups = as_groups(groups, rows=len(predictions))
        return cls(predictions, groups)

    def __getitem__(self, rows: Array) -> "CalibrationRows":
        """Return some of the rows, by a mask or by their numbers."""
        groups = None if self.groups is None else self.groups[rows]
        return CalibrationRows(self.predictions[rows], groups)

    def one_per_cluster(
        self, clusters: Any, seed: int
    ) -> tuple["CalibrationRows", tuple[str, ...]]:
        """Return one row of each cluster, labelled if any is, and a note on the draw.

        Without clusters all rows count as independent, and all are returned.
        """
        if clusters is None:
            return self, ()
        n, has_labels = len(self.predictions), self.predictions.labels is not None
        preferred = self.predictions.has_label if has_labels else None
        drawn = draw_from_clusters(clusters, rows=n, seed=seed, preferred=preferred)
        return self[drawn], (cluster_note(len(drawn), n, seed),)

    def set_list_rows_aside(self) -> tuple["CalibrationRows", "CalibrationRows"]:
        """Return the rows for the gate, and a random third of the labelled ones."""
        self.predictions.labelled("a shortlist")  # refuses rows without any label
        is_labelled = self.predictions.has_label
        labelled = np.flatnonzero(is_labelled)
        order = labelled[
            np.random.default_rng(SHORTLIST_SEED).permutation(len(labelled))
        ]
        for_lists, for_gate = np.split(order, [int(SHORTLIST_SHARE * len(order))])
        if not len(for_lists):
            message = (
                f"expected more rows than {len(labelled)} for a gate and its lists."
            )
            raise InputError(message)
        for_gate = np.append(for_gate, np.flatnonzero(~is_labelled))
        return self[for_gate], self[for_lists]

    def leave_out_unlabelled(
        self, doubts: Array
    ) -> tuple["CalibrationRows", Array, tuple[str, ...]]:
        """Return the labelled rows, their doubts, and notes on the unlabelled ones.

        If no row has a label, or every row has, all rows are returned.
        """
        is_labelled = self.predictions.has_label
        if is_labelled.all() or not is_labelled.any():
            return self, doubts, ()
        # Rows that are rejected in any case have no doubt to compare.
        always_rejected = self.predictions.always_rejected
        is_compared = ~is_labelled
        if always_rejected is not None:
            is_compared &= ~always_rejected
        notes = missing_label_notes(
            Rows(doubts[is_labelled]), Rows(doubts[is_compared])
        )
        return self[is_labelled], doubts[is_labelled], notes

    def notes(self) -> tuple[str, ...]:
        """Return notes on rows that come twice, and on who made the decisions."""
        decisions = Intake.of(self.predictions).decision_lines()
        return (*repeat_notes(self.predictions), *decisions)


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


def cluster_note(clusters: int, rows: int, seed: int) -> str:
    """Say what was drawn, and for which rows the promise is then."""
    return (
        f"One row was drawn from each of {clusters:,} clusters, of {rows:,} rows (seed "
        f"{seed}). The promise is for a random row of a random cluster."
    )


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


def same_doubts_p_value(labelled: Sample, unlabelled: Sample) -> float:
    """Return the p-value of a two-sample Kolmogorov-Smirnov test on the doubts.

    With D the largest distance of the two distribution functions, it is
    P(K >= sqrt(m n / (m + n)) D), K having Kolmogorov's distribution (Smirnov 1948).

    Examples
    --------
    >>> labelled, unlabelled = Rows(np.arange(150.0)), Rows(np.arange(150.0, 200.0))
    >>> same_doubts_p_value(labelled, unlabelled) < 1e-9
    True
    """
    from scipy.special import kolmogorov  # takes a moment to import

    # The asymptotic distribution is that of continuous scores; ties can only lower D,
    # so they make the test conservative (Noether 1963).
    thresholds = np.union1d(
        *(np.asarray(sample.counts.scores, float) for sample in (labelled, unlabelled))
    )
    distance = np.abs(cdf(labelled, thresholds) - cdf(unlabelled, thresholds)).max()
    m, n = len(labelled), len(unlabelled)
    effective_size = m * n / (m + n)
    return float(kolmogorov(math.sqrt(effective_size) * distance))


def missing_label_notes(labelled: Sample, unlabelled: Sample) -> tuple[str, ...]:
    """Say that labels are missing, and whether the doubts of those rows differ."""
    if not (len(labelled) and len(unlabelled)):
        return ()
    rows = "row has" if len(unlabelled) == 1 else "rows have"
    scope = (
        f"The promise is for rows like the labelled ones: {len(unlabelled):,} of "
        f"{len(labelled) + len(unlabelled):,} {rows} no label and had no part in it."
    )
    p = same_doubts_p_value(labelled, unlabelled)
    if p >= SAME_DOUBTS_LEVEL:
        return (scope, MISSING_CAUSE)
    return (
        scope,
        MISSING_CAUSE,
        f"Careful: rows without a label have other doubts (p = {p:.1g}), so labels "
        "were not drawn at random. Rows like those are not covered by the promise.",
    )
