"""Scores of logits whose length was taken out: what counts is their direction.

Of many well-trained networks the length of the logits says little about errors that
their direction does not, and the softmax trusts it too much (Cattelan & Silva, UAI
2024). Centred and divided by their p-norm, logits have no length. Of other networks it
says much: `tune` finds out which kind a model is. Parameters and results are those of
`alpha`, but for those that are named; temperature does not matter, since it changes the
length alone. Logits of -inf are left out. Two classes are left as they are: the length
is all they have.
"""

from dataclasses import replace
from numbers import Real
from typing import Any

from trustdoctor.errors import InputError
from trustdoctor.kernels import Formula, check_temperature, score_rows
from trustdoctor.scores import formulas
from trustdoctor.scores.contract import LogitScore
from trustdoctor.scores.registry import register
from trustdoctor.scores.softmax import take_logits


def pnorm(logits: Any, *, temperature: float = 1.0, p: float = 2.0) -> Any:
    r"""Minus the largest logit, the logits centred and scaled to length 1.

    .. math:: -\max_j (z_j - \bar z) / \|z - \bar z\|_p

    Of two classes it is `msp`.

    Parameters
    ----------
    logits, temperature
        As in `alpha`.
    p : float
        Of the norm, from 1 to 100.

    References
    ----------
    Cattelan & Silva, How to Fix a Broken Confidence Estimator, UAI 2024.

    Examples
    --------
    >>> import numpy as np
    >>> pnorm(np.array([[2.0, -1.0, -1.0]])).round(3)
    array([-0.816])
    """
    return _score(logits, formulas.pnorm, "pnorm", p, temperature)


def normalised_alpha(
    logits: Any, *, temperature: float = 1.0, p: float = 3.0, t: float = 0.2
) -> Any:
    r"""Doubt of DOCTOR's D_alpha on logits whose length was taken out.

    .. math:: \alpha\left(\frac{z - \bar z}{t \, \|z - \bar z\|_p}\right)

    Parameters
    ----------
    logits, temperature
        As in `alpha`.
    p : float
        Of the norm, from 1 to 100.
    t : float
        The temperature of what is left, from 0.001 to 1000. Small ones make it a
        margin, large ones a p-norm.

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
    return _score(logits, formulas.alpha, "alpha", p, _checked(t))


def normalised_margin(
    logits: Any, *, temperature: float = 1.0, p: float = 2.0, predicted: Any = None
) -> Any:
    r"""Minus the margin of logits whose length was taken out.

    .. math:: (z_{(2)} - z_{(1)}) / \|z - \bar z\|_p

    Parameters
    ----------
    logits, temperature
        As in `alpha`.
    p : float
        Of the norm, from 1 to 100.
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
    return _score(logits, formulas.margin, "margin", p, 1.0, predicted)


def _score(  # noqa: PLR0913 - what a score is made of
    logits: Any,
    formula: Formula,
    native: str,
    p: float,
    temperature: float,
    predicted: Any = None,
) -> Any:
    if not (isinstance(p, Real) and 1 <= p <= 100):
        message = f"expected p from 1 to 100, got {p!r}. 2 is usual."
        raise InputError(message)
    return score_rows(
        take_logits(logits),
        formula,
        temperature=temperature,
        native=native,
        predicted=predicted,
        p=float(p),
    )


def _checked(t: float) -> float:
    if not (isinstance(t, Real) and 1e-3 <= t <= 1e3):
        message = f"expected t from 0.001 to 1000, got {t!r}. 0.05 to 0.4 are usual."
        raise InputError(message)
    return float(t)


_LAWS = frozenset({"permutation", "shift"})  # the length rises with the top logit
_OURS = "Granese et al. 2021, Cattelan & Silva 2024"

for _function, _scale, _reference in (
    (pnorm, "none", "Cattelan & Silva 2024"),
    (normalised_alpha, "odds", _OURS),
    (normalised_margin, "none", "Scheffer et al. 2001, Cattelan & Silva 2024"),
):
    _entry = LogitScore(
        _function.__name__, _function, frozenset({"probs"}), _LAWS, _scale, _reference
    )
    register(replace(_entry, about_class=_function is normalised_margin))
