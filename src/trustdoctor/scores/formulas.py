"""The formulas of scores over the reductions of rows: one text for all array libraries.

Each is its score's formula, rewritten so that nothing overflows or underflows; u2, s,
a, q and f are those of `kernels.Reductions`. All are tested against mpmath.
"""

from typing import Any

from trustdoctor.kernels import Reductions


def alpha(r: Reductions) -> Any:
    """Return the log odds of the Gini impurity."""
    # (1 - g) / g = a (2 + a - exp(B2 - B)) / (1 + q) with g = (1 + q) / (1 + a)^2.
    return r.u2 + r.xp.log(r.s * (2 + r.a - r.exp_b2_minus_b) / (1 + r.q))


def beta(r: Reductions) -> Any:
    """Return the log odds of a wrong prediction."""
    return r.u2 + r.xp.log(r.s)


def msp(r: Reductions) -> Any:
    """Return the logarithm of the probability of all other classes."""
    xp = r.xp
    # For a class that is not the top one, a may be beyond the largest number: the
    # doubt is then log(1) = 0. Both are replaced first, since where() would multiply
    # the gradient's inf by 0.
    infinite = r.a == xp.inf
    u2, a = (xp.where(infinite, 0.0, value) for value in (r.u2, r.a))
    return xp.where(infinite, 0.0, u2 + xp.log(r.s / (1 + a)))


def pnorm(r: Reductions) -> Any:
    """Return minus the top logit of normalised rows; of two classes msp."""
    xp = r.xp
    doubt = xp.where(r.classes == 2, msp(r), -r.lead)
    return xp.where(r.certain, -xp.inf, doubt)


def entropy(r: Reductions) -> Any:
    """Return the logarithm of the entropy."""
    # H = a (log1p(a) / a + k / (1 + a)), k the mean of -log e_j - u2 under e / s
    xp = r.xp
    large = xp.where(r.a > 1e-5, r.a, 1.0)
    series = 1 - r.a / 2 + r.a * r.a / 3
    ratio = xp.where(r.a > 1e-5, xp.log1p(large) / large, series)
    k = xp.where(r.u2 == -xp.inf, 0.0, -r.u2) - r.f / r.s
    # Two logarithms instead of that of a product: k may be near the largest number.
    return r.u2 + (xp.log(r.s) + xp.log(ratio + k / (1 + r.a)))


def margin(r: Reductions) -> Any:
    """Return how far the second logit is above the top one: 0 or less."""
    # Not u2: its offset is a constant for the gradient, and here the gradient of the
    # second logit counts.
    xp = r.xp
    second = xp.max(xp.where(r.other_classes, r.logits, -xp.inf), axis=-1)
    return (second - r.top) / r.temperature


def max_logit(r: Reductions) -> Any:
    """Return minus the largest logit."""
    return -r.top / r.temperature


def energy(r: Reductions) -> Any:
    """Return the free energy."""
    return -(r.top + r.temperature * r.xp.log1p(r.a))


def gen(r: Reductions, exponent: float, top: int | None) -> Any:
    """Return the logarithm of the generalised entropy."""
    xp = r.xp
    log_z = xp.log1p(r.a)[..., None]
    log_p_others = r.log_e + xp.where(r.certain, 0.0, r.u2)[..., None] - log_z
    log_p = xp.where(r.other_classes, log_p_others, -log_z)
    log_not_p_top = (r.u2 + xp.log(r.s))[..., None] - log_z  # log(1 - p_m)
    safe = xp.where(r.other_classes, log_p_others, -1.0)  # log1p(-1) of p_m = 1 is -inf
    log_not_p = xp.where(r.other_classes, xp.log1p(-xp.exp(safe)), log_not_p_top)
    terms = exponent * (log_p + log_not_p)
    if top is not None and top < terms.shape[-1]:
        order = xp.argsort(log_p, axis=-1, descending=True)[..., :top]
        terms = xp.take_along_axis(terms, order, axis=-1)
    return _logsumexp(xp, terms)


def _logsumexp(xp: Any, terms: Any) -> Any:
    """Return log(sum(exp(terms))); -inf if all terms are -inf."""
    highest = xp.max(terms, axis=-1, keepdims=True)
    safe = xp.where(highest == -xp.inf, 0.0, highest)
    total = xp.sum(xp.exp(terms - safe), axis=-1)
    empty = total == 0
    finite = safe[..., 0] + xp.log(xp.where(empty, 1.0, total))
    return xp.where(empty, -xp.inf, finite)
