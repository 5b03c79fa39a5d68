"""The registry of scores by name; each module of scores adds its own."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from trustdoctor.arrays import Array
from trustdoctor.errors import FileError, InputError
from trustdoctor.kernels import _native, check_temperature, score_kinds
from trustdoctor.predictions import Answers, Predictions
from trustdoctor.scores import storage
from trustdoctor.scores.contract import (
    DECISION_SCORES,
    LAWS,
    NEEDS,
    Arrays,
    FittedScore,
    GivenScore,
    LogitScore,
    Score,
    default_parameters,
)

RegistryEntry = LogitScore | GivenScore | type[FittedScore]
AnyEntry = TypeVar("AnyEntry", bound=RegistryEntry)

SCORES: dict[str, RegistryEntry] = {}
"""Every score by its name: a `LogitScore`, or the class of a `FittedScore`.

"confidence" and "doubt" are a `GivenScore` each.
"""

BASELINE = "msp"
"""Softmax response (Hendrycks & Gimpel 2017): other scores are compared with it."""


def register(entry: AnyEntry) -> AnyEntry:
    """Add a score to the registry; a class of `FittedScore` by decoration.

    Its name then works in `evaluate`, `calibrate`, gates and on the command line.

    Examples
    --------
    >>> from trustdoctor.scores.softmax import margin
    >>> double = LogitScore("double", lambda z, **o: 2 * margin(z, **o),
    ...     frozenset({"probs"}), frozenset({"shift"}))
    >>> register(double).name in SCORES
    True
    >>> del SCORES["double"]
    """
    is_fitted = isinstance(entry, type) and issubclass(entry, FittedScore)
    if not (is_fitted or isinstance(entry, (LogitScore, GivenScore))):
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
    for attribute, values, allowed in (
        ("needs", entry.needs, NEEDS),
        ("laws", entry.laws, LAWS),
    ):
        unknown = sorted(set(values) - set(allowed))
        if unknown:
            message = (
                f"expected {attribute} out of {', '.join(allowed)}, got {unknown[0]!r}."
            )
            raise InputError(message)
    SCORES[entry.name] = entry
    return entry


def find_score(score: str | Score, *, temperature: float = 1.0) -> Score:
    """Return a score that can be called, from its name or from the score itself.

    Examples
    --------
    >>> find_score("alpha", temperature=2.0) == find_score("alpha:temperature=2")
    True
    """
    if isinstance(score, str):
        entry = _find_entry(score)
        if isinstance(entry, LogitScore):
            return _at_temperature(entry, temperature)
        if isinstance(entry, GivenScore):
            return _without_temperature(entry, temperature)
        call = entry.fit_call or f"{entry.__name__}.fit(predictions)"
        message = (
            f"the score {score} must be fitted first. Call {call} and pass what it "
            "returns; on the command line pass the file that trustdoctor compare -o "
            "FILE writes."
        )
        raise InputError(message)
    if not isinstance(score, Score):
        message = (
            f"expected a score's name or a score, got {type(score).__name__}. "
            "Doubts of your own go to evaluate_scores or calibrate_scores."
        )
        raise InputError(message)
    if isinstance(score, LogitScore):
        return _at_temperature(score, temperature)
    return _without_temperature(score, temperature)


def _at_temperature(score: LogitScore, temperature: float) -> LogitScore:
    check_temperature(temperature)  # here, since 1 + 0j equals 1
    # 1 is the default of every temperature=, so it leaves a score's own temperature.
    if score.temperature != 1 and temperature not in (1, score.temperature):
        message = (
            f"the score is at temperature {score.temperature:g}, and "
            f"temperature={temperature:g} was given. Give one of them."
        )
        raise InputError(message)
    return score if temperature == 1 else score.with_temperature(temperature)


def _without_temperature(score: Score, temperature: float) -> Score:
    if temperature != 1:
        message = f"the score {score.name} has no logits and takes no temperature."
        if isinstance(score, FittedScore):
            message = f"the score {score.name} is fitted and takes no temperature."
        raise InputError(message)
    return score


def find_logit_score(name: str) -> LogitScore:
    """Return a score that is a formula of the logits, including those with gradients.

    Examples
    --------
    >>> find_logit_score("pnorm:p=4").parameters
    {'p': 4.0}
    """
    entry = SCORES.get(name.partition(":")[0])
    if isinstance(entry, LogitScore):
        return _with_named_parameters(entry, name)
    names = ", ".join(n for n, e in SCORES.items() if isinstance(e, LogitScore))
    message = f"expected a score out of {names}, got {name!r}."
    raise InputError(message)


def _find_entry(name: str) -> RegistryEntry:
    entry = SCORES.get(name.partition(":")[0])
    if entry is None:
        message = (
            f"expected a score out of {', '.join(SCORES)}, got {name!r}. Register one "
            "of your own first."
        )
        raise InputError(message)
    if isinstance(entry, LogitScore):
        return _with_named_parameters(entry, name)
    if ":" in name:
        message = f"the score {entry.name} has no parameters, got {name!r}."
        raise InputError(message)
    return entry


def _with_named_parameters(entry: LogitScore, name: str) -> LogitScore:
    """Return a score with the parameters and the temperature in its name.

    As in "pnorm:p=4" or "alpha:temperature=2".
    """
    if ":" not in name:
        return entry
    defaults = default_parameters(entry.function)
    parameters: dict[str, float] = {}
    for pair in name.partition(":")[2].split(","):
        key, _, value = (text.strip() for text in pair.partition("="))
        if key not in (*defaults, "temperature") or key in parameters:
            pairs = ",".join(f"{n}={v:g}" for n, v in defaults.items())
            pairs = pairs or "temperature=1"
            message = f"expected {entry.name}:{pairs}, got {name!r}."
            raise InputError(message)
        try:
            parameters[key] = float(value)
        except ValueError:
            message = f"expected a number as {key} of {entry.name}, got {value!r}."
            raise InputError(message) from None
    temperature = parameters.pop("temperature", entry.temperature)
    check_temperature(temperature)
    score = entry.with_parameters(**parameters) if parameters else entry
    return score.with_temperature(temperature)


def logit_scores(*, logits: bool = True, decided: bool = False) -> list[str]:
    """Return the names of the scores that need logits or the softmax only.

    Without `logits`, those that need the softmax only; with `decided`, those that
    doubt the class that a system decided on, the default first.
    """
    available = {"probs", "logits"} if logits else {"probs"}
    return [
        name
        for name, entry in SCORES.items()
        if isinstance(entry, LogitScore)
        and entry.needs <= available
        and (entry.about_class or not decided)
    ]


def available_scores(predictions: Predictions) -> list[str]:
    """Return the names of the scores that these predictions suffice for.

    Examples
    --------
    >>> available_scores(Predictions.from_confidence([0.9]))
    ['confidence']
    """
    if isinstance(predictions, Answers):
        return list(predictions.scores)
    decided = predictions.decisions is not None
    return logit_scores(logits=not predictions.from_probabilities, decided=decided)


def default_score(predictions: Predictions) -> str:
    """Return the name of the score that is used if the user names none.

    This is alpha; the confidence or doubt of answers; or beta if the decisions are the
    system's own, since alpha doubts the most probable class, not the one decided on.
    """
    if isinstance(predictions, Answers):
        return predictions.scores[0]
    return "alpha" if predictions.decisions is None else DECISION_SCORES[0]


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
    name, arrays, plain = storage.load(path)
    with storage.naming_path(path):
        return build_score(name, arrays, plain)


def build_score(name: str, arrays: Arrays, plain: dict[str, Any]) -> FittedScore:
    """Build a fitted score of the registry from its state."""
    entry = SCORES.get(name)
    if not isinstance(entry, type):
        message = (
            f"the score {name!r} is not registered. Import the module that registers "
            "it."
        )
        raise FileError(message)
    return entry.from_state(arrays, plain)


def score_all(
    predictions: Predictions,
    scores: Iterable[str | Score],
    *,
    temperature: float = 1.0,
) -> dict[str, Array]:
    """Return the doubts by several scores, by name.

    Scores with C kernels share one pass over the rows.

    Examples
    --------
    >>> p = Predictions.from_logits([[2.0, 0.0]])
    >>> {name: s.round(3).tolist() for name, s in score_all(p, ["beta", "msp"]).items()}
    {'beta': [-2.0], 'msp': [-2.127]}
    """
    by_name = {
        score.name: score for score in _callable_scores(scores, temperature=temperature)
    }
    doubts = score_together(predictions, list(by_name.values()))
    return dict(zip(by_name, doubts, strict=True))


def score_together(predictions: Predictions, scores: Sequence[Score]) -> list[Array]:
    """Return the doubts by each score; C kernels of one temperature share a pass.

    Examples
    --------
    >>> p = Predictions.from_logits([[2.0, 0.0]])
    >>> score_together(p, [SCORES["beta"], SCORES["margin"]])
    [array([-2.]), array([-2.])]
    """
    for score in scores:
        score.check(predictions)
    by_temperature: dict[float, dict[str, int]] = {}
    plain = predictions.decisions is None and not isinstance(predictions, Answers)
    if _native.available and plain:
        for score in scores:
            if isinstance(score, LogitScore) and score.kernel:
                kernels = by_temperature.setdefault(score.temperature, {})
                kernels.setdefault(score.kernel, len(kernels))
    # The sums over a row are most of the work and the same for every formula; each
    # score is the number to the last bit that it is alone.
    passes = {
        temperature: score_kinds(
            predictions.logits, list(kernels), temperature=temperature
        )
        for temperature, kernels in by_temperature.items()
        if len(kernels) > 1
    }

    def doubts(score: Score) -> Array:
        kernels = by_temperature.get(score.temperature, {})
        kernel = score.kernel if isinstance(score, LogitScore) else ""
        if kernel in kernels and score.temperature in passes:
            return passes[score.temperature][kernels[kernel]]
        return score(predictions)

    return [doubts(score) for score in scores]


def is_registered(score: Score) -> bool:
    """Say whether the registry has this score under its name.

    Examples
    --------
    >>> is_registered(SCORES["pnorm"].with_parameters(p=4))
    True
    """
    entry = SCORES.get(score.registered_name)
    if isinstance(entry, LogitScore) and isinstance(score, LogitScore):
        return bool(find_logit_score(score.name).function == score.function)
    return entry is type(score) or entry == score


def setting_name(score: Score) -> str:
    """Return the name of a score with its temperature, by which it is found again.

    Examples
    --------
    >>> setting_name(SCORES["alpha"].with_temperature(0.5)), setting_name(SCORES["msp"])
    ('alpha:temperature=0.5', 'msp')
    """
    if score.temperature == 1:
        return score.name
    separator = "," if ":" in score.name else ":"
    value = repr(score.temperature).removesuffix(".0")
    return f"{score.name}{separator}temperature={value}"


def same_ranking(first: Score, second: Score) -> bool:
    """Say whether two scores put any rows in the same order.

    Examples
    --------
    >>> same_ranking(SCORES["beta"], SCORES["msp"])
    True
    """
    return (first.ranks_as or first.name, first.temperature) == (
        second.ranks_as or second.name,
        second.temperature,
    )


def _callable_scores(
    scores: Iterable[str | Score], *, temperature: float
) -> Iterator[Score]:
    """Yield scores that can be called; fitted ones take no temperature."""
    for score in scores:
        if isinstance(score, (str, LogitScore)):
            yield find_score(score, temperature=temperature)
        else:
            yield find_score(score)
