"""DOCTOR's two scores (Granese et al., NeurIPS 2021), on a stable log scale."""

from typing import Any

from trustdoctor.kernels import Rows, score_rows


def alpha(logits: Any, *, temperature: float = 1.0) -> Any:
    r"""Doubt of DOCTOR's D_alpha: the log odds of the Gini impurity.

    .. math:: \log \frac{1 - g}{g}, \quad g = \sum_j p_j^2,
              \quad p = \mathrm{softmax}(z / T)

    The paper's threshold gamma on the ratio is exp(threshold) here.

    Parameters
    ----------
    logits : array (n, C)
        numpy, torch (differentiable) or any array-API array.
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
    return score_rows(logits, _alpha, temperature=temperature, native="alpha")


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
        logits, _beta, temperature=temperature, native="beta", predicted=predicted
    )


def _alpha(r: Rows) -> Any:
    return r.u2 + r.xp.log(r.s * (2 + r.a - r.exp_b2_minus_b) / (1 + r.q))


def _beta(r: Rows) -> Any:
    return r.u2 + r.xp.log(r.s)
