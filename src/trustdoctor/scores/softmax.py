"""Scores of the logits alone: DOCTOR's two, and those to compare with.

DOCTOR (Granese et al., NeurIPS 2021) is on a stable log scale. Parameters and results
of all scores are those of `alpha`; `predicted`, where a score takes it, is that of
`beta`.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from array_api_compat import is_torch_array

from trustdoctor.arrays import to_numpy
from trustdoctor.errors import InputError
from trustdoctor.kernels import KINDS, Reductions, score_rows
from trustdoctor.predictions import Predictions, refuse_probabilities
from trustdoctor.scores.contract import LogitScore
from trustdoctor.scores.registry import register


def alpha(logits: Any, *, temperature: float = 1.0) -> Any:
    r"""Doubt of DOCTOR's D_alpha: the log odds of the Gini impurity.

    .. math:: \log \frac{1 - g}{g}, \quad g = \sum_j p_j^2,
              \quad p = \mathrm{softmax}(z / T)

    The paper's threshold gamma on the ratio is exp(threshold) here.

    Parameters
    ----------
    logits : array (n, C), or Predictions
        numpy, torch (differentiable) or any array-API array. 10 or more rows that are
        all probabilities are refused: pass `Predictions.from_probs`.
    temperature : float
        T above.

    Returns
    -------
    array (n,)
        Higher means trust less; -inf for a fully certain row.

    References
    ----------
    Granese et al., DOCTOR: A Simple Method for Detecting Misclassification
    Errors, NeurIPS 2021, eq. 8.

    Examples
    --------
    >>> import numpy as np
    >>> alpha(np.array([[0.0, 0.0], [0.0, 100.0]])).round(3)
    array([  0.   , -99.307])
    """
    return score_rows(_logits(logits), _alpha, temperature=temperature, native="alpha")


def beta(logits: Any, *, temperature: float = 1.0, predicted: Any = None) -> Any:
    r"""Doubt of DOCTOR's D_beta: the log odds of a wrong prediction.

    .. math:: \log \frac{1 - p_m}{p_m}, \quad m = \arg\max_j z_j,
              \quad p = \mathrm{softmax}(z / T)

    It ranks rows exactly as the maximum softmax probability does. Parameters and
    result are those of `alpha`, and

    predicted : integer array (n,), optional
        The class m that the doubt is about, where it is not the largest logit's: at a
        perturbed input the doubt is still about the clean prediction.

    References
    ----------
    Granese et al., DOCTOR, NeurIPS 2021, eq. 8.

    Examples
    --------
    >>> import numpy as np
    >>> beta(np.array([[0.0, 0.0], [0.0, 100.0]]))
    array([   0., -100.])
    """
    return score_rows(
        _logits(logits),
        _beta,
        temperature=temperature,
        native="beta",
        predicted=predicted,
    )


def _logits(rows: Any, *, true: bool = False) -> Any:
    """Return the logits of predictions, or an array that may be logits."""
    if isinstance(rows, Predictions):
        if true and rows.from_probabilities:
            message = (
                "this score needs true logits, and these predictions came as "
                "probabilities. Pass logits, or choose alpha, beta or msp."
            )
            raise InputError(message)
        return rows.logits
    if _can_look(rows):
        refuse_probabilities(to_numpy(rows))
    return rows


def _can_look(rows: Any) -> bool:
    """Tell whether an array's numbers can be looked at without harm.

    On a device that would make it wait; traced by a compiler there are none yet.
    """
    if not is_torch_array(rows):  # frames and lists become numpy; JAX traces
        return not hasattr(rows, "__array_namespace__") or isinstance(rows, np.ndarray)
    if rows.device.type != "cpu":
        return False
    import torch

    wrapped = torch._C._functorch.is_functorch_wrapped_tensor(rows)
    return not (wrapped or torch.compiler.is_compiling())


def _alpha(r: Reductions) -> Any:
    return r.u2 + r.xp.log(r.s * (2 + r.a - r.exp_b2_minus_b) / (1 + r.q))


def _beta(r: Reductions) -> Any:
    return r.u2 + r.xp.log(r.s)


def msp(logits: Any, *, temperature: float = 1.0, predicted: Any = None) -> Any:
    r"""Maximum softmax probability (softmax response), as :math:`\log(1 - p_m)`.

    References
    ----------
    Hendrycks & Gimpel, A Baseline for Detecting Misclassified and
    Out-of-Distribution Examples, ICLR 2017; Geifman & El-Yaniv, NeurIPS 2017.

    Examples
    --------
    >>> import numpy as np
    >>> np.exp(msp(np.array([[0.0, 0.0, 0.0]]))).round(3)
    array([0.667])
    """
    return score_rows(
        _logits(logits),
        _msp,
        temperature=temperature,
        native="msp",
        predicted=predicted,
    )


def entropy(logits: Any, *, temperature: float = 1.0) -> Any:
    r"""Logarithm of the softmax entropy, :math:`\log(-\sum_j p_j \log p_j)`.

    References
    ----------
    Shannon, A Mathematical Theory of Communication, 1948.

    Examples
    --------
    >>> import numpy as np
    >>> np.exp(entropy(np.array([[0.0, 0.0]]))).round(3)
    array([0.693])
    """
    return score_rows(
        _logits(logits), _entropy, temperature=temperature, native="entropy"
    )


def margin(logits: Any, *, temperature: float = 1.0, predicted: Any = None) -> Any:
    r"""Minus the logit margin, :math:`(z_{(2)} - z_{(1)}) / T`.

    References
    ----------
    Scheffer et al., Active Hidden Markov Models for Information Extraction, 2001.

    Examples
    --------
    >>> import numpy as np
    >>> margin(np.array([[3.0, 1.0, 0.0]]))
    array([-2.])
    """
    return score_rows(
        _logits(logits),
        _margin,
        temperature=temperature,
        native="margin",
        predicted=predicted,
    )


def max_logit(logits: Any, *, temperature: float = 1.0) -> Any:
    r"""Minus the largest logit, :math:`-z_m / T`. Needs true logits.

    References
    ----------
    Hendrycks et al., Scaling Out-of-Distribution Detection for Real-World
    Settings, ICML 2022.

    Examples
    --------
    >>> import numpy as np
    >>> max_logit(np.array([[3.0, 1.0, 0.0]]))
    array([-3.])
    """
    return score_rows(
        _logits(logits, true=True),
        _max_logit,
        temperature=temperature,
        native="max_logit",
    )


def energy(logits: Any, *, temperature: float = 1.0) -> Any:
    r"""Free energy, :math:`-T \log \sum_j \exp(z_j / T)`. Needs true logits.

    References
    ----------
    Liu et al., Energy-based Out-of-distribution Detection, NeurIPS 2020.

    Examples
    --------
    >>> import numpy as np
    >>> energy(np.array([[0.0, 0.0]])).round(3)
    array([-0.693])
    """
    return score_rows(
        _logits(logits, true=True), _energy, temperature=temperature, native="energy"
    )


def gen(
    logits: Any,
    *,
    temperature: float = 1.0,
    exponent: float = 0.1,
    top: int | None = None,
) -> Any:
    r"""Logarithm of the generalised entropy.

    .. math:: \log \sum_j p_j^\gamma (1 - p_j)^\gamma

    Parameters
    ----------
    logits, temperature
        As in `alpha`.
    exponent : float
        gamma above, in (0, 1].
    top : int, optional
        Sum over that many of the largest probabilities; by default over all.

    References
    ----------
    Liu et al., GEN: Pushing the Limits of Softmax-Based Out-of-Distribution
    Detection, CVPR 2023.

    Examples
    --------
    >>> import numpy as np
    >>> np.exp(gen(np.array([[0.0, 0.0]]), exponent=1.0)).round(3)
    array([0.5])
    """
    if not 0 < exponent <= 1:
        message = f"expected an exponent in (0, 1], got {exponent!r}. 0.1 is usual."
        raise InputError(message)
    if top is not None and top < 1:
        message = f"expected top of at least 1, got {top!r}. None sums all classes."
        raise InputError(message)

    def formula(r: Reductions) -> Any:
        return _gen(r, exponent, top)

    return score_rows(_logits(logits), formula, temperature=temperature)


def pnorm(logits: Any, *, temperature: float = 1.0, p: float = 2.0) -> Any:
    r"""Minus the largest logit, the logits centred and scaled to length 1.

    .. math:: -\max_j (z_j - \bar z) / \|z - \bar z\|_p

    Logits of -inf are left out. Of two classes it is constant, so there it is `msp`.
    Temperature does not matter to it.

    Parameters
    ----------
    logits, temperature
        As in `alpha`.
    p : float
        Of the norm, 1 or more.

    References
    ----------
    Cattelan & Silva, How to Fix a Broken Confidence Estimator, UAI 2024.

    Examples
    --------
    >>> import numpy as np
    >>> pnorm(np.array([[2.0, -1.0, -1.0]])).round(3)
    array([-0.816])
    """
    if not (isinstance(p, (int, float)) and p >= 1):
        message = f"expected p of 1 or more, got {p!r}. 2 is usual."
        raise InputError(message)

    def formula(r: Reductions) -> Any:
        return _pnorm(r, float(p))

    return score_rows(_logits(logits), formula, temperature=temperature)


def _pnorm(r: Reductions, p: float) -> Any:
    xp = r.xp
    there = r.logits > -xp.inf
    zero = xp.zeros_like(r.logits)
    count = xp.sum(xp.where(there, zero + 1, zero), axis=-1)
    below = _below(r, there)
    mean = xp.sum(below, axis=-1) / count
    centred = xp.abs(xp.where(there, below - mean[..., None], zero))
    scale, flat = _scale(xp, centred)
    total = xp.sum((centred / scale[..., None]) ** p, axis=-1)
    total = xp.where(flat, xp.ones_like(total), total)  # no root of 0: no gradient
    doubt = mean / (scale * total ** (1 / p))
    return xp.where(r.certain, -xp.inf, xp.where(count == 2, _msp(r), doubt))


def _below(r: Reductions, there: Any) -> Any:
    """Return how far logits are below the top, the farthest at -1; 0 where masked."""
    xp, top = r.xp, r.top[..., None]
    kept = xp.where(there, r.logits, top)
    # The difference of large numbers may be beyond the largest, or have a reciprocal
    # that is flushed to 0; subnormal numbers have no sixteenths.
    wide = xp.max(xp.abs(kept), axis=-1, keepdims=True) > 1
    below = xp.where(wide, kept / 16 - top / 16, kept - top)
    scale, _ = _scale(xp, xp.abs(below))
    return below / scale[..., None]


def _scale(xp: Any, sizes: Any) -> tuple[Any, Any]:
    """Return the largest of each row, 1 for 0, and where it is 0."""
    largest = xp.max(sizes, axis=-1)
    flat = largest == 0
    return xp.where(flat, xp.ones_like(largest), largest), flat


def _msp(r: Reductions) -> Any:
    # About a class that is not the top one, a may be beyond the largest number.
    xp = r.xp
    surely = r.a == xp.inf
    u2, a = (xp.where(surely, 0.0, part) for part in (r.u2, r.a))
    return xp.where(surely, 0.0, u2 + xp.log(r.s / (1 + a)))


def _entropy(r: Reductions) -> Any:
    # H = a (log1p(a) / a + k / (1 + a)), k the mean of -log e_j - u2 under e / s
    xp = r.xp
    large = xp.where(r.a > 1e-5, r.a, 1.0)
    series = 1 - r.a / 2 + r.a * r.a / 3
    ratio = xp.where(r.a > 1e-5, xp.log1p(large) / large, series)
    k = xp.where(r.u2 == -xp.inf, 0.0, -r.u2) - r.f / r.s
    # Two logarithms: k may be near the largest number.
    return r.u2 + (xp.log(r.s) + xp.log(ratio + k / (1 + r.a)))


def _margin(r: Reductions) -> Any:
    # u2's offset carries no gradient; the second logit's belongs here.
    xp = r.xp
    second = xp.max(xp.where(r.others, r.logits, -xp.inf), axis=-1)
    return (second - r.top) / r.temperature


def _max_logit(r: Reductions) -> Any:
    return -r.top / r.temperature


def _energy(r: Reductions) -> Any:
    return -(r.top + r.temperature * r.xp.log1p(r.a))


def _gen(r: Reductions, exponent: float, top: int | None) -> Any:
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


_PROBS, _LOGITS = frozenset({"probs"}), frozenset({"logits"})
_ALL = frozenset({"permutation", "shift", "direction"})
_UNSHIFTED = _ALL - {"shift"}
_UNDIRECTED = _ALL - {"direction"}  # the length of the logits rises with the top one


def _add(  # noqa: PLR0913 - what a score is
    function: Callable[..., Any],
    needs: frozenset[str],
    laws: frozenset[str],
    scale: str,
    reference: str,
    *,
    about_class: bool = False,
    ranks_as: str = "",
) -> None:
    """Register a score under the name of its function."""
    name = function.__name__
    native = name if name in KINDS else ""
    score = LogitScore(name, function, needs, laws, scale, reference)
    score = replace(score, about_class=about_class, ranks_as=ranks_as)
    register(replace(score, native=native))


_add(alpha, _PROBS, _ALL, "odds", "Granese et al. 2021")
_add(
    beta, _PROBS, _ALL, "odds", "Granese et al. 2021", about_class=True, ranks_as="msp"
)
_add(msp, _PROBS, _ALL, "log", "Hendrycks & Gimpel 2017", about_class=True)
_add(entropy, _PROBS, _ALL, "log", "Shannon 1948")
_add(margin, _PROBS, _ALL, "none", "Scheffer et al. 2001", about_class=True)
_add(gen, _PROBS, _ALL, "log", "Liu et al. 2023")
_add(max_logit, _LOGITS, _UNSHIFTED, "none", "Hendrycks et al. 2022")
_add(energy, _LOGITS, _UNSHIFTED, "none", "Liu et al. 2020")
_add(pnorm, _PROBS, _UNDIRECTED, "none", "Cattelan & Silva 2024")

_ODIN = LogitScore(
    "odin", msp, frozenset({"gradients"}), _ALL, "log", "Liang et al. 2018"
)
register(replace(_ODIN, step=-1, about_class=True))  # unperturbed it is msp
