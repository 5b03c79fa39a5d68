"""Rows without a label: left out of a promise, and compared with the others."""

import math
from typing import Any

import numpy as np

from trustdoctor.arrays import as_groups
from trustdoctor.gates.sample import Rows, Sample
from trustdoctor.scores import Score

DIFFERENT = 1e-3
"""Doubts that differ at this level are said to."""


UNSEEN_CAUSE = (
    "Whether a label is missing may depend on whether the prediction is right, and "
    "that cannot be seen in these rows: the promise then breaks without a sign. Draw "
    "the rows to label at random, for example by trustdoctor split FILE --part 500 -o "
    "to_label.csv rest.csv."
)
"""With 3,000 rows 58% of such gates differ in doubt, with 300 rows 5%; most break."""


def compare_doubts(labelled: Sample, without: Sample) -> float:
    """Return the p-value that rows with and without a label have like doubts.

    Kolmogorov and Smirnov's test; ties make it careful.

    Examples
    --------
    >>> compare_doubts(Rows(np.arange(150.0)), Rows(np.arange(150.0, 200.0))) < 1e-9
    True
    """
    from scipy.special import kolmogorov  # takes a moment to import

    parts = [(part.counts, len(part)) for part in (labelled, without)]
    ends = [np.asarray(c.highest, np.float64) for c, _ in parts]
    shares = [
        np.append(0, np.cumsum(c.correct + c.errors) / n)[
            np.searchsorted(own, np.concatenate(ends), side="right")
        ]
        for (c, n), own in zip(parts, ends, strict=True)
    ]
    sizes = [n for _, n in parts]
    size = math.sqrt(math.prod(sizes) / sum(sizes))
    return float(kolmogorov(size * float(np.abs(shares[0] - shares[1]).max())))


def missing_notes(labelled: Sample, without: Sample) -> tuple[str, ...]:
    """Say that rows had no label, and whether their doubts differ from the others'."""
    if not (len(labelled) and len(without)):
        return ()
    rows = "row has" if len(without) == 1 else "rows have"
    first = (
        f"The promise is for rows like the labelled ones: {len(without):,} of "
        f"{len(labelled) + len(without):,} {rows} no label and had no part in it."
    )
    p = compare_doubts(labelled, without)
    if p >= DIFFERENT:
        return (first, UNSEEN_CAUSE)
    return (
        first,
        UNSEEN_CAUSE,
        f"Careful: rows without a label have other doubts (p = {p:.1g}), so labels "
        "were not drawn at random. Rows like those are not covered by the promise.",
    )


def leave_out_unlabelled(
    predictions: Any, score: Score, groups: Any
) -> tuple[Any, Any, tuple[str, ...]]:
    """Return the rows that have a label, their groups, and what to say of the others.

    Where no row or every row has one, all rows are returned.
    """
    known = getattr(predictions, "known", None)
    if known is None or known.all() or not known.any():
        return predictions, groups, ()
    doubts = np.asarray(score(predictions))
    # Rows that are rejected in any case are not drawn from the others' doubts.
    barred = getattr(predictions, "barred", None)
    without = ~known if barred is None else ~known & ~barred
    notes = missing_notes(Rows(doubts[known]), Rows(doubts[without]))
    if groups is not None:
        groups = as_groups(groups, rows=len(known))[known]
    return predictions[known], groups, notes
