"""The formulas of scores, over the reductions of rows: one for every array library."""

from typing import Any

from trustdoctor.kernels import Reductions


def alpha(r: Reductions) -> Any:
    """Return the log odds of the Gini impurity."""
    return r.u2 + r.xp.log(r.s * (2 + r.a - r.exp_b2_minus_b) / (1 + r.q))


def beta(r: Reductions) -> Any:
    """Return the log odds of a wrong prediction."""
    return r.u2 + r.xp.log(r.s)


def msp(r: Reductions) -> Any:
    """Return the logarithm of what the softmax leaves to the other classes."""
    # About a class that is not the top one, a may be beyond the largest number.
    xp = r.xp
    surely = r.a == xp.inf
    u2, a = (xp.where(surely, 0.0, part) for part in (r.u2, r.a))
    return xp.where(surely, 0.0, u2 + xp.log(r.s / (1 + a)))


def pnorm(r: Reductions) -> Any:
    """Return minus the lead of the top, for rows whose lengths were taken out."""
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
    # Two logarithms: k may be near the largest number.
    return r.u2 + (xp.log(r.s) + xp.log(ratio + k / (1 + r.a)))


def margin(r: Reductions) -> Any:
    """Return how far the second logit is above the top one: 0 or less."""
    # u2's offset carries no gradient; the second logit's belongs here.
    xp = r.xp
    second = xp.max(xp.where(r.others, r.logits, -xp.inf), axis=-1)
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
    others = r.log_e + xp.where(r.certain, 0.0, r.u2)[..., None] - log_z
    log_p = xp.where(r.others, others, -log_z)
    wrong = (r.u2 + xp.log(r.s))[..., None] - log_z  # log(1 - p_m)
    small = xp.where(r.others, others, -1.0)  # keeps log1p away from p_m = 1
    log_not_p = xp.where(r.others, xp.log1p(-xp.exp(small)), wrong)
    terms = exponent * (log_p + log_not_p)
    if top is not None and top < terms.shape[-1]:
        order = xp.argsort(log_p, axis=-1, descending=True)[..., :top]
        terms = xp.take_along_axis(terms, order, axis=-1)
    return _logsumexp(xp, terms)


def _logsumexp(xp: Any, terms: Any) -> Any:
    highest = xp.max(terms, axis=-1, keepdims=True)
    safe = xp.where(highest == -xp.inf, 0.0, highest)
    total = xp.sum(xp.exp(terms - safe), axis=-1)
    empty = total == 0
    finite = safe[..., 0] + xp.log(xp.where(empty, 1.0, total))
    return xp.where(empty, -xp.inf, finite)
