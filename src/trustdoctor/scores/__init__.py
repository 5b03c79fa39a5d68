"""The scores, and the one registry of them.

Every score is a doubt: higher means trust less.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from trustdoctor import _native
from trustdoctor._native import KINDS
from trustdoctor.errors import InputError
from trustdoctor.kernels import score_kinds
from trustdoctor.predictions import Predictions
from trustdoctor.scores.baselines import (
    energy,
    entropy,
    gen,
    margin,
    max_logit,
    msp,
    pnorm,
)
from trustdoctor.scores.doctor import alpha, beta

__all__ = [
    "MODEL_SCORES",
    "SCORES",
    "Score",
    "alpha",
    "beta",
    "energy",
    "entropy",
    "gen",
    "margin",
    "max_logit",
    "msp",
    "pnorm",
    "score_all",
]


@dataclass(frozen=True)
class Score:
    """One entry of the registry.

    Attributes
    ----------
    name : str
        The name in `SCORES`, in gates and on the command line.
    function : callable
        Logits (n, C) and ``temperature=`` to doubts (n,).
    reference : str
        Where it comes from.
    needs : str
        "probs": the softmax is enough; "logits": the true logits are needed;
        "gradients": the model is.
    scale : str
        What exp(score) is: "odds" (the paper's ratio), "log" (another positive
        quantity), or "none".
    laws : frozenset of str
        Which of the common laws hold: "permutation" (of classes), "shift" (a
        constant added to a row), "direction" (raising the top logit never raises
        the doubt).
    step : int
        Which way its input perturbation goes: +1 towards more doubt (DOCTOR), -1
        towards less (ODIN).
    about_class : bool
        Whether the doubt is about one class, so that `function` takes ``predicted=``.
    """

    name: str
    function: Callable[..., Any]
    reference: str
    needs: str
    scale: str
    laws: frozenset[str]
    step: int = 1
    about_class: bool = False

    def __call__(self, predictions: Predictions, *, temperature: float = 1.0) -> Any:
        """Score predictions, refusing those that lack what the score needs."""
        self.check(predictions)
        return self.function(predictions.logits, temperature=temperature)

    def check(self, predictions: Predictions) -> None:
        """Refuse predictions that lack what the score needs."""
        if self.needs == "logits" and predictions.from_probabilities:
            message = (
                f"the score {self.name} needs true logits, and these predictions came "
                "as probabilities. Pass logits, or choose alpha, beta or msp."
            )
            raise InputError(message)


_ALL = frozenset({"permutation", "shift", "direction"})
_UNSHIFTED = _ALL - {"shift"}

SCORES: dict[str, Score] = {
    entry.name: entry
    for entry in (
        Score("alpha", alpha, "Granese et al. 2021", "probs", "odds", _ALL),
        Score(
            "beta",
            beta,
            "Granese et al. 2021",
            "probs",
            "odds",
            _ALL,
            about_class=True,
        ),
        Score(
            "msp",
            msp,
            "Hendrycks & Gimpel 2017",
            "probs",
            "log",
            _ALL,
            about_class=True,
        ),
        Score("entropy", entropy, "Shannon 1948", "probs", "log", _ALL),
        Score(
            "margin",
            margin,
            "Scheffer et al. 2001",
            "probs",
            "none",
            _ALL,
            about_class=True,
        ),
        Score("gen", gen, "Liu et al. 2023", "probs", "log", _ALL),
        Score(
            "max_logit",
            max_logit,
            "Hendrycks et al. 2022",
            "logits",
            "none",
            _UNSHIFTED,
        ),
        Score("energy", energy, "Liu et al. 2020", "logits", "none", _UNSHIFTED),
        Score(
            "pnorm",
            pnorm,
            "Cattelan & Silva 2024",
            "probs",
            "none",
            frozenset({"permutation", "shift"}),
        ),
    )
}

MODEL_SCORES: dict[str, Score] = SCORES | {
    "odin": Score(
        "odin",
        msp,
        "Liang et al. 2018",
        "gradients",
        "log",
        _ALL,
        step=-1,
        about_class=True,
    )
}
"""The scores that a model's gradients can perturb. Without perturbation ODIN is msp."""


def score_all(
    predictions: Predictions, names: Sequence[str], *, temperature: float = 1.0
) -> dict[str, Any]:
    """Score predictions by several scores; those with C kernels share one pass.

    Examples
    --------
    >>> p = Predictions.from_logits([[2.0, 0.0]])
    >>> {name: s.round(3).tolist() for name, s in score_all(p, ["beta", "msp"]).items()}
    {'beta': [-2.0], 'msp': [-2.127]}
    """
    for name in names:
        find_score(name).check(predictions)
    kinds = [n for n in dict.fromkeys(names) if _native.available and n in KINDS]
    found: dict[str, Any] = {}
    if len(kinds) > 1:
        together = score_kinds(predictions.logits, kinds, temperature=temperature)
        found = dict(zip(kinds, together, strict=True))
    return {
        name: found[name]
        if name in found
        else SCORES[name](predictions, temperature=temperature)
        for name in names
    }


def find_score(name: str) -> Score:
    """Return the registry's entry, or name those that there are."""
    try:
        return SCORES[name]
    except KeyError:
        message = f"expected a score out of {', '.join(SCORES)}, got {name!r}."
        raise InputError(message) from None
