"""The paper's published evaluation of D_alpha, typed from its description.

The ratio (1 - g) / g, naively in float64 from the stored softmax; int((max - min) *
10,000) thresholds evenly spaced between its ends; for each of them a decision on every
row and a count of the four outcomes, in Python loops; the area by trapezoids without an
added end point, and FRR at 95% TRR by linear interpolation. It is kept to be timed and
compared with; the library itself is exact.
"""

import numpy as np


def thresholds_published(ratios):
    """Return the thresholds that Table 1 of the paper was made with."""
    low, high = min(ratios), max(ratios)
    return np.linspace(low, high, int((high - low) * 10_000))


def ratios_published(probs):
    """Return (1 - g) / g of each row."""
    ratios = []
    for row in probs.astype(np.float64):
        g = sum(p * p for p in row)
        ratios.append((1 - g) / g)
    return ratios


def count_published(ratios, errors, thresholds):
    """Return FRR and TRR at each threshold."""
    frr, trr = [], []
    for gamma in thresholds:
        rejected = [ratio > gamma for ratio in ratios]
        fr = tr = fa = ta = 0
        for reject, wrong in zip(rejected, errors, strict=True):
            if reject and not wrong:
                fr += 1
            elif reject and wrong:
                tr += 1
            elif not reject and wrong:
                fa += 1
            else:
                ta += 1
        frr.append(fr / (fr + ta))
        trr.append(tr / (tr + fa))
    return frr, trr


def area_published(frr, trr):
    """AUROC and FRR at 95% TRR."""
    order = np.argsort(frr, kind="stable")
    frr, trr = np.array(frr)[order], np.array(trr)[order]
    return float(np.trapezoid(trr, frr)), float(np.interp(0.95, trr, frr))
