"""Scores of the softmax and of the logits: DOCTOR's two and their competitors.

DOCTOR (Granese et al., NeurIPS 2021) is computed on the log scale, where small doubts
do not underflow. Parameters and results are those of `alpha`; `predicted`, where a
score takes it, is that of `beta`.
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
from trustdoctor.scores import formulas
from trustdoctor.scores.contract import LogitScore
from trustdoctor.scores.registry import register
from trustdoctor.scores.signatures import row_formula


@row_formula
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
    return score_rows(
        take_logits(logits), formulas.alpha, temperature=temperature, native="alpha"
    )


@row_formula
def beta(logits: Any, *, temperature: float = 1.0, predicted: Any = None) -> Any:
    r"""Doubt of DOCTOR's D_beta: the log odds of a wrong prediction.

    .. math:: \log \frac{1 - p_m}{p_m}, \quad m = \arg\max_j z_j,
              \quad p = \mathrm{softmax}(z / T)

    It ranks rows exactly as the maximum softmax probability does.

    Parameters
    ----------
    logits, temperature
        As in `alpha`.
    predicted : integer array (n,), optional
        The class m that the doubt is about if it is not that of the largest logit: at
        a perturbed input the doubt is still about the clean prediction.

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
        take_logits(logits),
        formulas.beta,
        temperature=temperature,
        native="beta",
        predicted=predicted,
    )


def take_logits(rows: Any, *, needs_logits: bool = False) -> Any:
    """Return the logits of predictions, or an array that may be logits."""
    if isinstance(rows, Predictions):
        if rows.decisions is not None:
            message = (
                "called as a function, a score doubts the most probable class, and "
                f"these decisions are the system's own ({rows.decided_by}). Use "
                "SCORES['beta'](predictions), or predictions.without_decisions()."
            )
            raise InputError(message)
        if needs_logits and rows.from_probabilities:
            message = (
                "this score needs true logits, and these predictions came as "
                "probabilities. Pass logits, or choose alpha, beta or msp."
            )
            raise InputError(message)
        return rows.logits
    if _is_readable(rows):
        refuse_probabilities(to_numpy(rows))
    return rows


def _is_readable(rows: Any) -> bool:
    """Tell whether an array's numbers can be read here, at no cost."""
    # Reading a tensor on a device waits for the device; an array that a compiler traces
    # (JAX, torch.compile, torch.func) has no numbers yet.
    if not is_torch_array(rows):
        return not hasattr(rows, "__array_namespace__") or isinstance(rows, np.ndarray)
    if rows.device.type != "cpu":
        return False
    import torch

    wrapped = torch._C._functorch.is_functorch_wrapped_tensor(rows)
    return not (wrapped or torch.compiler.is_compiling())


@row_formula
def msp(logits: Any, *, temperature: float = 1.0, predicted: Any = None) -> Any:
    r"""Maximum softmax probability (softmax response): :math:`\log(1 - p_m)`.

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
        take_logits(logits),
        formulas.msp,
        temperature=temperature,
        native="msp",
        predicted=predicted,
    )


@row_formula
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
        take_logits(logits), formulas.entropy, temperature=temperature, native="entropy"
    )


@row_formula
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
        take_logits(logits),
        formulas.margin,
        temperature=temperature,
        native="margin",
        predicted=predicted,
    )


@row_formula
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
        take_logits(logits, needs_logits=True),
        formulas.max_logit,
        temperature=temperature,
        native="max_logit",
    )


@row_formula
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
        take_logits(logits, needs_logits=True),
        formulas.energy,
        temperature=temperature,
        native="energy",
    )


@row_formula
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
        How many of the largest probabilities to sum over; by default all.

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
        message = (
            f"expected top of at least 1, got {top!r}. None sums over all classes."
        )
        raise InputError(message)

    def formula(r: Reductions) -> Any:
        return formulas.gen(r, exponent, top)

    return score_rows(take_logits(logits), formula, temperature=temperature)


_PROBS, _LOGITS = frozenset({"probs"}), frozenset({"logits"})
_ALL_LAWS = frozenset({"permutation", "shift", "direction"})
_LAWS_OF_LENGTH = _ALL_LAWS - {"shift"}


def _register(  # noqa: PLR0913 - the attributes of a score
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
    score = LogitScore(name, function, needs, laws, scale, reference)
    register(
        replace(
            score,
            about_class=about_class,
            ranks_as=ranks_as,
            kernel=name if name in KINDS else "",
        )
    )


_register(alpha, _PROBS, _ALL_LAWS, "odds", "Granese et al. 2021")
_register(
    beta,
    _PROBS,
    _ALL_LAWS,
    "odds",
    "Granese et al. 2021",
    about_class=True,
    ranks_as="msp",
)
_register(msp, _PROBS, _ALL_LAWS, "log", "Hendrycks & Gimpel 2017", about_class=True)
_register(entropy, _PROBS, _ALL_LAWS, "log", "Shannon 1948")
_register(margin, _PROBS, _ALL_LAWS, "none", "Scheffer et al. 2001", about_class=True)
_register(gen, _PROBS, _ALL_LAWS, "log", "Liu et al. 2023")
_register(max_logit, _LOGITS, _LAWS_OF_LENGTH, "none", "Hendrycks et al. 2022")
_register(energy, _LOGITS, _LAWS_OF_LENGTH, "none", "Liu et al. 2020")

# ODIN is msp at a perturbed input; without a perturbation the two are the same.
register(
    LogitScore(
        "odin",
        msp,
        frozenset({"gradients"}),
        _ALL_LAWS,
        "log",
        "Liang et al. 2018",
        perturbation_sign=-1,
        about_class=True,
    )
)
