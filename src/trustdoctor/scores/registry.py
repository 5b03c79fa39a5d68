"""The one registry of scores, plain and fitted; each file of scores fills it."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from trustdoctor.arrays import Array
from trustdoctor.errors import FileError, InputError
from trustdoctor.kernels import _native, score_kinds
from trustdoctor.predictions import Answers, Predictions
from trustdoctor.scores import storage
from trustdoctor.scores.contract import (
    LAWS,
    NEEDS,
    OF_DECISIONS,
    FittedScore,
    GivenScore,
    LogitScore,
    Score,
    parameters_of,
)

Entry = LogitScore | GivenScore | type[FittedScore]
AnyEntry = TypeVar("AnyEntry", bound=Entry)

SCORES: dict[str, Entry] = {}
"""Every score by its name: a `LogitScore`, or the class of a `FittedScore`.

"confidence" and "doubt" are a `GivenScore` each: what a system says of its answers.
"""


BASELINE = "msp"
"""Softmax response: what other scores are compared with."""


def register(entry: AnyEntry) -> AnyEntry:
    """Add a score to the registry; as a decorator, the class of a fitted one.

    From then on its name works wherever scores have names: in `evaluate`, `calibrate`,
    gates and on the command line.

    Examples
    --------
    >>> from trustdoctor.scores.softmax import margin
    >>> double = LogitScore("double", lambda z, **o: 2 * margin(z, **o),
    ...     frozenset({"probs"}), frozenset({"shift"}))
    >>> register(double).name in SCORES
    True
    >>> del SCORES["double"]
    """
    fitted = isinstance(entry, type) and issubclass(entry, FittedScore)
    if not (fitted or isinstance(entry, (LogitScore, GivenScore))):
        message = f"expected a LogitScore or a class of FittedScore, got {entry!r}."
        raise InputError(message)
    missing = [n for n in ("name", "needs", "laws") if not hasattr(entry, n)]
    if missing:
        message = f"expected a score that says its {missing[0]}, got {entry!r}."
        raise InputError(message)
    if ":" in entry.name:
        message = f"expected a name without a colon, got {entry.name!r}."
        raise InputError(message)
    if entry.name in SCORES:
        message = f"the name {entry.name!r} is taken by a score. Choose another."
        raise InputError(message)
    for what, given, known in (
        ("needs", entry.needs, NEEDS),
        ("laws", entry.laws, LAWS),
    ):
        unknown = sorted(set(given) - set(known))
        if unknown:
            message = f"expected {what} out of {', '.join(known)}, got {unknown[0]!r}."
            raise InputError(message)
    SCORES[entry.name] = entry
    return entry


def find_score(score: str | Score, *, temperature: float = 1.0) -> Score:
    """Return a score that is ready to call: by its name, or as it is.

    Examples
    --------
    >>> find_score("alpha", temperature=2.0).temperature
    2.0
    """
    if isinstance(score, str):
        entry = _entry_of(score)
        if isinstance(entry, LogitScore):
            return _tempered(entry, temperature)
        if isinstance(entry, GivenScore):
            return _untempered(entry, temperature)
        message = (
            f"the score {score} is fitted on labelled rows first. Fit it, "
            f"{entry.made_by or f'{entry.__name__}.fit(predictions)'}, and pass what "
            "that returns; on the command line pass its file, which trustdoctor "
            "compare -o FILE writes."
        )
        raise InputError(message)
    if not isinstance(score, Score):
        message = f"expected a score's name or a score, got {type(score).__name__}."
        raise InputError(message)
    if isinstance(score, LogitScore):
        return _tempered(score, temperature)
    return _untempered(score, temperature)


def _tempered(score: LogitScore, temperature: float) -> LogitScore:
    if score.temperature != 1 and temperature not in (1, score.temperature):
        message = (
            f"the score is at temperature {score.temperature:g}, and "
            f"{temperature:g} was asked for. Give one of them."
        )
        raise InputError(message)
    return score if temperature == 1 else score.at(temperature)


def _untempered(score: Score, temperature: float) -> Score:
    if temperature != 1:
        message = f"the score {score.name} has no logits and takes no temperature."
        if isinstance(score, FittedScore):
            message = f"the score {score.name} is fitted and takes no temperature."
        raise InputError(message)
    return score


def find_formula(name: str) -> LogitScore:
    """Return a score that is a formula of the logits, those with gradients included.

    Examples
    --------
    >>> find_formula("pnorm:p=4").options
    {'p': 4.0}
    """
    entry = SCORES.get(name.partition(":")[0])
    if isinstance(entry, LogitScore):
        return _with_parameters(entry, name)
    known = ", ".join(n for n, e in SCORES.items() if isinstance(e, LogitScore))
    message = f"expected a score out of {known}, got {name!r}."
    raise InputError(message)


def _entry_of(name: str) -> Entry:
    entry = SCORES.get(name.partition(":")[0])
    if entry is None:
        known = ", ".join(SCORES)
        message = f"expected a score out of {known}, got {name!r}."
        raise InputError(message)
    if isinstance(entry, LogitScore):
        return _with_parameters(entry, name)
    if ":" in name:
        message = f"the score {entry.name} has no parameters, got {name!r}."
        raise InputError(message)
    return entry


def _with_parameters(entry: LogitScore, name: str) -> LogitScore:
    """Return a score with the parameters in its name, as in "pnorm:p=4"."""
    if ":" not in name:
        return entry
    known, options = parameters_of(entry.function), dict[str, float]()
    for one in name.partition(":")[2].split(","):
        key, _, value = (part.strip() for part in one.partition("="))
        if key == "temperature":
            message = (
                f"a temperature is not part of a score's name, got {name!r}. Give it "
                f"by itself: temperature={value}, or --temperature {value}."
            )
            raise InputError(message)
        if key not in known or key in options:
            pairs = ",".join(f"{n}={v:g}" for n, v in known.items())
            named = f"{entry.name}:{pairs}" if pairs else f"{entry.name} alone"
            message = f"expected {named}, got {name!r}."
            raise InputError(message)
        try:
            options[key] = float(value)
        except ValueError:
            message = f"expected a number as {key} of {entry.name}, got {value!r}."
            raise InputError(message) from None
    return entry.using(**options)


def plain_scores(*, logits: bool = True, decided: bool = False) -> list[str]:
    """Return the names of scores that need no more than logits, or the softmax.

    With `decided` those that follow a system's own decisions, the usual one first.
    """
    met = {"probs", "logits"} if logits else {"probs"}
    return [
        name
        for name, entry in SCORES.items()
        if isinstance(entry, LogitScore)
        and entry.needs <= met
        and (entry.about_class or not decided)
    ]


def allowed_scores(predictions: Predictions) -> list[str]:
    """Return the names of the scores that need nothing but these predictions.

    Examples
    --------
    >>> allowed_scores(Predictions.from_confidence([0.9]))
    ['confidence']
    """
    if isinstance(predictions, Answers):
        return [predictions.given]
    decided = predictions.decisions is not None
    return plain_scores(logits=not predictions.from_probabilities, decided=decided)


def usual_score(predictions: Any) -> str:
    """Return the score that is used where none is named.

    alpha; what was given with answers; or beta, where the decisions are the system's
    own, as alpha would doubt the most probable class and not the one decided on.
    """
    if isinstance(predictions, Answers):
        return predictions.given
    decided = getattr(predictions, "decisions", None) is not None
    return OF_DECISIONS[0] if decided else "alpha"


def load_score(path: str | Path) -> FittedScore:
    """Read a fitted score of any kind from the file that `save` wrote.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from trustdoctor import RelU
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     RelU(1 - np.eye(3)).save(f"{folder}/rel_u.safetensors")
    ...     load_score(f"{folder}/rel_u.safetensors").name
    'rel_u'
    """
    kind, arrays, plain = storage.load(path)
    with storage.complaining(path):
        return build_score(kind, arrays, plain)


def build_score(
    kind: str, arrays: dict[str, Any], plain: dict[str, Any]
) -> FittedScore:
    """Build a fitted score of the registry from its parts."""
    entry = SCORES.get(kind)
    if not isinstance(entry, type):
        message = (
            f"the score {kind!r} is not registered. Import the module that registers "
            "it."
        )
        raise FileError(message)
    return entry.from_parts(arrays, plain)


def score_all(
    predictions: Predictions,
    scores: Iterable[str | Score],
    *,
    temperature: float = 1.0,
) -> dict[str, Array]:
    """Score predictions by several scores; those with C kernels share one pass.

    Examples
    --------
    >>> p = Predictions.from_logits([[2.0, 0.0]])
    >>> {name: s.round(3).tolist() for name, s in score_all(p, ["beta", "msp"]).items()}
    {'beta': [-2.0], 'msp': [-2.127]}
    """
    found = {s.name: s for s in _ready(scores, temperature)}
    for score in found.values():
        score.check(predictions)
    native = [
        score
        for score in found.values()
        if isinstance(score, LogitScore)
        and score.native
        and score.temperature == temperature
        and predictions.decisions is None
    ]
    together: dict[str, Array] = {}
    if _native.available and len(native) > 1:
        kinds = [score.native for score in native]
        rows = score_kinds(predictions.logits, kinds, temperature=temperature)
        together = {score.name: own for score, own in zip(native, rows, strict=True)}
    return {
        name: together[name] if name in together else score(predictions)
        for name, score in found.items()
    }


def is_registered(score: Score) -> bool:
    """Say whether the registry has this very score under its name.

    Examples
    --------
    >>> is_registered(SCORES["pnorm"].using(p=4))
    True
    """
    entry = SCORES.get(getattr(score, "entry", score.name))
    if isinstance(entry, LogitScore) and isinstance(score, LogitScore):
        return bool(find_formula(score.name).function == score.function)
    return entry is type(score) or entry == score


def same_ranking(first: Score, second: Score) -> bool:
    """Say whether two scores put any rows in the same order.

    Examples
    --------
    >>> same_ranking(SCORES["beta"], SCORES["msp"])
    True
    """
    names = [getattr(s, "ranks_as", "") or s.name for s in (first, second)]
    temperatures = [getattr(s, "temperature", 1.0) for s in (first, second)]
    return names[0] == names[1] and temperatures[0] == temperatures[1]


def _ready(scores: Iterable[str | Score], temperature: float) -> Sequence[Score]:
    """Return scores ready to call; fitted ones have no other temperature."""
    return [
        find_score(s, temperature=temperature)
        if isinstance(s, (str, LogitScore))
        else find_score(s)
        for s in scores
    ]
