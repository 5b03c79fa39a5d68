"""A score chosen for a model, on labelled rows whose labels were checked."""

import warnings
from collections.abc import Mapping

from trustdoctor.errors import OddLabelsWarning
from trustdoctor.evaluation.label_checks import check_labels
from trustdoctor.predictions import Predictions, require_predictions
from trustdoctor.scores import Tuned


def tune(
    predictions: Predictions,
    *,
    for_: Mapping[str, float] | None = None,
    average: int = 5,
) -> Tuned:
    """Choose the score that suits a model, on labelled rows.

    The family is alpha and beta at temperatures, the other scores of the softmax and of
    the logits, MaxLogit-pNorm, and alpha and margin of normalised logits: one pass of
    the model, all of them. The few best are averaged by rank. Where none gains more
    over softmax response than half a standard error (a whole one with `for_`), it stays
    that.

    Rows that chose must not calibrate a gate, nor judge the score: keep others for it,
    or use `calibrate(..., score="auto")`, which does.

    Parameters
    ----------
    predictions : Predictions
        With labels, and 10 errors at least; rows that the model was not trained on.
        1,000 to 2,000 rows are a good number. Odd labels, which fit nothing, are
        warned of.
    for_ : dict, optional
        What will be promised, as ``dict(trr=0.95)``: scores are then compared near that
        point of the curve instead of by AUROC. One of risk, trr, joint, cost, frr and
        coverage.
    average : int
        How many of the best are averaged.

    Returns
    -------
    Tuned
        A score for `calibrate`, `evaluate`, gates and files; its `verdict` says what
        was chosen.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> z = rng.normal(size=(600, 2)) * 3
    >>> p = Predictions.from_logits(z, np.where(rng.random(600) < 0.9, z.argmax(1), 0))
    >>> tune(p).members  # of two classes the scores of the softmax rank alike
    ('msp',)
    """
    require_predictions(predictions)
    tuned = Tuned.fit(predictions, for_=for_, average=average)
    odd = check_labels(predictions).odd
    if odd:
        warnings.warn(" ".join(odd), OddLabelsWarning, stacklevel=2)
    return tuned
