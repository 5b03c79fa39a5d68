"""Scores of centred logits divided by their p-norm: only the direction counts.

For many well-trained networks the length of the logits adds nothing about errors to
what their direction says, and the softmax trusts it too much (Cattelan & Silva, UAI
2024). For other networks it says much: `tune` finds out which kind a model is.

Parameters and results are those of `alpha`, except for parameters described here. The
temperature does not matter, since it changes the length only. Logits of -inf are left
out. Rows of two classes are scored as they are: they have no direction.
"""

from numbers import Real
from typing import Any

from trustdoctor.errors import InputError
from trustdoctor.kernels import Formula, check_temperature, score_rows
from trustdoctor.scores import formulas
from trustdoctor.scores.contract import LogitScore
from trustdoctor.scores.registry import register
from trustdoctor.scores.signatures import row_formula
from trustdoctor.scores.softmax import take_logits


@row_formula
def pnorm(logits: Any, *, temperature: float = 1.0, p: float = 2.0) -> Any:
    r"""Minus the largest logit of the row, centred and scaled to p-norm 1.

    .. math:: -\max_j (z_j - \bar z) / \|z - \bar z\|_p

    For two classes this is `msp`.

    Parameters
    ----------
    logits, temperature
        As in `alpha`.
    p : float
        The order of the norm, from 1 to 100.

    References
    ----------
    Cattelan & Silva, How to Fix a Broken Confidence Estimator, UAI 2024.

    Examples
    --------
    >>> import numpy as np
    >>> pnorm(np.array([[2.0, -1.0, -1.0]])).round(3)
    array([-0.816])
    """
    return _score(logits, formulas.pnorm, "pnorm", p=p, temperature=temperature)


@row_formula
def normalised_alpha(
    logits: Any, *, temperature: float = 1.0, p: float = 3.0, t: float = 0.2
) -> Any:
    r"""Doubt of DOCTOR's D_alpha on centred logits of p-norm 1.

    .. math:: \alpha\left(\frac{z - \bar z}{t \, \|z - \bar z\|_p}\right)

    Parameters
    ----------
    logits, temperature
        As in `alpha`.
    p : float
        The order of the norm, from 1 to 100.
    t : float
        The temperature of the normalised logits, from 0.001 to 1000. A small one ranks
        as the margin does, a large one as `pnorm`.

    References
    ----------
    Granese et al., DOCTOR, NeurIPS 2021, eq. 8; the norm is that of Cattelan & Silva,
    How to Fix a Broken Confidence Estimator, UAI 2024.

    Examples
    --------
    >>> import numpy as np
    >>> z = np.array([[3.0, 1.0, 0.0]])
    >>> np.allclose(normalised_alpha(z), normalised_alpha(10 * z))
    True
    """
    check_temperature(temperature)
    _check_parameters(t=t)
    return _score(logits, formulas.alpha, "alpha", p=p, temperature=float(t))


@row_formula
def normalised_margin(
    logits: Any, *, temperature: float = 1.0, p: float = 2.0, predicted: Any = None
) -> Any:
    r"""Minus the margin of centred logits of p-norm 1.

    .. math:: (z_{(2)} - z_{(1)}) / \|z - \bar z\|_p

    Parameters
    ----------
    logits, temperature
        As in `alpha`.
    p : float
        The order of the norm, from 1 to 100.
    predicted
        As in `beta`.

    References
    ----------
    Scheffer et al., Active Hidden Markov Models for Information Extraction, 2001; the
    norm is that of Cattelan & Silva, UAI 2024.

    Examples
    --------
    >>> import numpy as np
    >>> normalised_margin(np.array([[2.0, -1.0, -1.0]])).round(3)
    array([-1.225])
    """
    check_temperature(temperature)
    return _score(
        logits, formulas.margin, "margin", p=p, temperature=1.0, predicted=predicted
    )


def _score(  # noqa: PLR0913 - options, by keyword only
    logits: Any,
    formula: Formula,
    kernel: str,
    *,
    p: float,
    temperature: float,
    predicted: Any = None,
) -> Any:
    _check_parameters(p=p)
    return score_rows(
        take_logits(logits),
        formula,
        temperature=temperature,
        native=kernel,
        predicted=predicted,
        p=float(p),
    )


def _check_parameters(*, p: float = 2.0, t: float = 0.2) -> None:
    """Refuse orders of a norm and temperatures out of range."""
    if not (isinstance(p, Real) and 1 <= p <= 100):
        message = f"expected p from 1 to 100, got {p!r}. 2 is usual."
        raise InputError(message)
    if not (isinstance(t, Real) and 1e-3 <= t <= 1e3):
        message = f"expected t from 0.001 to 1000, got {t!r}. 0.05 to 0.4 are usual."
        raise InputError(message)


_LAWS = frozenset({"permutation", "shift"})
# Not "direction": a higher top logit makes the row longer, too, so that dividing by the
# length moves the other logits closer to each other.

for _function, _scale, _reference in (
    (pnorm, "none", "Cattelan & Silva 2024"),
    (normalised_alpha, "odds", "Granese et al. 2021, Cattelan & Silva 2024"),
    (normalised_margin, "none", "Scheffer et al. 2001, Cattelan & Silva 2024"),
):
    register(
        LogitScore(
            _function.__name__,
            _function,
            frozenset({"probs"}),
            _LAWS,
            _scale,
            _reference,
            about_class=_function is normalised_margin,
            parameter_check=_check_parameters,
        )
    )
