"""The paper's published evaluation, typed from its description.

The ratio (1 - g) / g from the softmax in float64, `thresholds` values evenly spaced
from the smallest to the largest, and for each of them a walk over all rows that counts
what is rejected; then the area by trapezoids, without an added end point. It is kept
to be timed and compared with; the library itself is exact.
"""

import numpy as np


def evaluate_published(probs, errors, *, thresholds=10_000):
    """AUROC and FRR at 95% TRR, as the published code finds them."""
    ratios = []
    for row in probs.astype(np.float64):
        g = sum(p * p for p in row)
        ratios.append((1 - g) / g)
    n_errors = int(errors.sum())
    n_correct = len(errors) - n_errors
    frr, trr = [], []
    for gamma in np.linspace(min(ratios), max(ratios), thresholds):
        false_rejected = true_rejected = 0
        for ratio, wrong in zip(ratios, errors, strict=True):
            if ratio > gamma:
                if wrong:
                    true_rejected += 1
                else:
                    false_rejected += 1
        frr.append(false_rejected / n_correct)
        trr.append(true_rejected / n_errors)
    order = np.argsort(frr, kind="stable")
    frr, trr = np.array(frr)[order], np.array(trr)[order]
    return float(np.trapezoid(trr, frr)), float(np.interp(0.95, trr, frr))
