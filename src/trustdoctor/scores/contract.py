"""What a score is: a doubt about each row, with what it needs and which laws it obeys.

To add one, write a `LogitScore` (a formula of the logits) or a `FittedScore` (a class
that is fitted first), and `register` it.
"""

import hashlib
import inspect
import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from trustdoctor.arrays import Array, as_real
from trustdoctor.errors import FileError, InputError
from trustdoctor.predictions import (
    Answers,
    Predictions,
    require_predictions,
    taken_for_logits,
)
from trustdoctor.scores import storage

NEEDS = ("probs", "logits", "confidence", "doubt", "features", "gradients")
"""What a score may need of predictions, or of the model behind them."""

LAWS = ("permutation", "shift", "direction")
"""Laws that a score may obey, tested over the registry.

permutation: the order of the classes does not matter. shift: nor does a constant added
to a row. direction: raising the top logit never raises the doubt.
"""

ROUNDING = 2.0**-19
"""How far rounding moves scores of the same logits, for their size (1 near 0).

16 units in the last place of single precision. Between double precision, single
precision, torch and ONNX Runtime up to 12 were seen, with up to 1,000 classes
(`benchmarks/rounding.py`). Scores that are nearer to one another than twice this are
tied wherever a threshold is set.
"""

OF_DECISIONS = ("beta", "msp", "margin")
"""Scores that follow the decisions of a system; the first is the usual one."""

Needs = frozenset[str]


class Score(ABC):
    """A doubt about each row: higher means trust less.

    Attributes
    ----------
    name : str
        Its name in `SCORES`, in gates and on the command line.
    needs : frozenset of str
        Out of "probs" (the softmax is enough), "logits" (the true ones), "confidence"
        or "doubt" (one number per row), "features" and "gradients" (of the model).
    laws : frozenset of str
        Which of the common laws hold: "permutation", "shift", "direction".
    scale : str
        What exp(score) is: "odds" (the paper's ratio), "log" (another positive
        quantity), or "none".
    reference : str
        Where it comes from.
    step : int
        Which way its input perturbation goes: +1 towards more doubt (DOCTOR), -1
        towards less (ODIN).
    about_class : bool
        Whether the doubt is about one class, so that its function takes `predicted=`.
    rounding : float
        How far another kernel or runtime may move a doubt by rounding, for its size
        (absolute below 1); 0 where all have the very same number.

    Examples
    --------
    >>> from trustdoctor import SCORES
    >>> SCORES["beta"](Predictions.from_logits([[2.0, 0.0]]))
    array([-2.])
    """

    name: str
    needs: Needs
    laws: frozenset[str]
    scale: str = "none"
    reference: str = ""
    step: int = 1
    about_class: bool = False
    rounding: float = ROUNDING

    @abstractmethod
    def __call__(self, predictions: Predictions) -> Array:
        """Return the doubt of each row, (n,)."""

    def check(self, predictions: Predictions) -> None:
        """Refuse predictions that lack what the score needs."""
        check_needs(self.name, self.needs, predictions, about_class=self.about_class)


def check_needs(
    name: str, needs: Needs, predictions: Predictions, *, about_class: bool = False
) -> None:
    """Refuse predictions that lack what the score of that name needs."""
    require_predictions(predictions)
    _check_kind(name, needs, predictions)
    if predictions.decisions is not None and not about_class:
        message = (
            f"the score {name} is not about the class that the system decided on "
            f"({predictions.decided_by}): it doubts the most probable one. Choose "
            f"{', '.join(OF_DECISIONS)}."
        )
        raise InputError(message)
    if "logits" in needs and predictions.from_probabilities:
        message = (
            f"the score {name} needs true logits, and these predictions came as "
            "probabilities. Pass logits, or choose alpha, beta or msp."
        )
        raise InputError(message)
    if "features" in needs and predictions.features is None:
        message = (
            f"the score {name} needs features, and these predictions have none. Pass "
            "features=, or --features NAME on the command line."
        )
        raise InputError(message)
    if "gradients" in needs:
        message = (
            f"the score {name} needs the model's gradients: use Doctor(model, "
            f"score={name!r}) of trustdoctor.adapters.torch."
        )
        raise InputError(message)


def _check_kind(name: str, needs: Needs, predictions: Predictions) -> None:
    """Refuse a score of classes for answers with a confidence, and the reverse."""
    wanted = needs & {"confidence", "doubt"}
    if not isinstance(predictions, Answers):
        if wanted:
            message = (
                f"the score {name} needs a {name} for each row, and these predictions "
                f"have logits or probabilities. Choose alpha, or build them with "
                f"Predictions.from_{name}; on the command line --{name} NAME."
            )
            raise InputError(message)
    elif predictions.given not in wanted and needs & {*wanted, "probs", "logits"}:
        message = (
            f"the score {name} needs {' and '.join(sorted(needs))}, and these "
            f"predictions have a {predictions.given} alone. Choose the score "
            f"{predictions.given}."
        )
        raise InputError(message)


@dataclass(frozen=True)
class GivenScore(Score):
    """The number that a system gives with its answer, as it is.

    Its name says which: "confidence", of which the doubt is the negative, or "doubt".

    Examples
    --------
    >>> GivenScore("confidence")(Predictions.from_confidence([0.9, 0.4]))
    array([-0.9, -0.4])
    """

    name: str
    laws: frozenset[str] = frozenset()
    reference: str = ""
    rounding = 0.0

    @property
    def needs(self) -> Needs:  # type: ignore[override]
        """The number of that name."""
        return frozenset({self.name})

    def fit(self, predictions: Predictions) -> "GivenScore":
        """Return the score itself: there is nothing to fit."""
        self.check(predictions)
        return self

    def __call__(self, predictions: Predictions) -> Array:
        """Return the doubt of each row, (n,)."""
        self.check(predictions)
        assert isinstance(predictions, Answers)
        return predictions.doubts


@dataclass(frozen=True)
class LogitScore(Score):
    """A score that is a formula of the logits.

    Attributes
    ----------
    function : callable
        Logits (n, C) and ``temperature=`` to doubts (n,).
    native : str
        The C kernel that gives the same numbers; empty where there is none.
    ranks_as : str
        Another score that puts rows in the same order; empty where there is none.
    temperature : float
        Divides the logits; `at` sets another.

    A formula may have parameters of its own, which `using` sets. They become part of
    the name, as in "pnorm:p=4", by which the registry finds it again; the usual ones
    are left out of it.

    Examples
    --------
    >>> def least(logits, *, temperature=1.0):
    ...     return logits.min(-1) / temperature
    >>> score = LogitScore("least", least, frozenset({"logits"}), frozenset())
    >>> score(Predictions.from_logits([[3.0, 1.0]]))
    array([1.])
    """

    name: str
    function: Callable[..., Any]
    needs: Needs
    laws: frozenset[str]
    scale: str = "none"
    reference: str = ""
    step: int = 1
    about_class: bool = False
    rounding: float = ROUNDING
    native: str = ""
    ranks_as: str = ""
    temperature: float = 1.0

    def at(self, temperature: float) -> "LogitScore":
        """Return the score at another temperature."""
        same = temperature == self.temperature
        return self if same else replace(self, temperature=temperature)

    @property
    def entry(self) -> str:
        """Its name in the registry, without parameters."""
        return self.name.partition(":")[0]

    @property
    def options(self) -> dict[str, float]:
        """The parameters that were set."""
        return dict(getattr(self.function, "keywords", {}))

    def using(self, **options: float) -> "LogitScore":
        """Return the score with other parameters.

        Examples
        --------
        >>> from trustdoctor import SCORES
        >>> SCORES["pnorm"].using(p=4).name
        'pnorm:p=4'
        """
        if isinstance(self.function, partial) and self.entry == self.name:
            message = (
                f"the parameters of {self.name} are set already. Register it as a "
                "plain function to set others."
            )
            raise InputError(message)
        base = getattr(self.function, "func", self.function)
        known = parameters_of(base)
        for name, value in options.items():
            if name not in known:
                has = ", ".join(known) or "no parameters"
                message = f"expected {has} of {self.entry}, got {name!r}."
                raise InputError(message)
            options[name] = as_real(value, f"{name} of {self.entry}")
        every = {**self.options, **options}
        every = {n: v for n, v in every.items() if n not in known or v != known[n]}
        own = {n: every[n] for n in known if n in every}
        shown = ",".join(f"{n}={repr(v).removesuffix('.0')}" for n, v in own.items())
        ready = _Bound(base, **every) if every else base
        with taken_for_logits():
            ready(np.array([[2.0, 1.0, 0.0]]))  # refuses values that make no sense
        name = f"{self.entry}:{shown}" if own else self.entry
        return replace(self, name=name, function=ready)

    def fit(self, predictions: Predictions) -> "LogitScore":
        """Return the score itself: there is nothing to fit."""
        self.check(predictions)
        return self

    def __call__(self, predictions: Predictions) -> Any:
        """Return the doubt of each row, (n,)."""
        self.check(predictions)
        with taken_for_logits():
            if predictions.decisions is not None:
                return self._about_decisions(predictions)
            return self.function(predictions.logits, temperature=self.temperature)

    def _about_decisions(self, predictions: Predictions) -> Array:
        """Return the doubt of what the system decided; inf where it did not."""
        silent = predictions.abstained
        doubts = self.function(
            predictions.logits,
            temperature=self.temperature,
            predicted=np.where(silent, 0, predictions.predicted),
        )
        return np.where(silent, np.inf, doubts).astype(doubts.dtype, copy=False)


class _Bound(partial[Any]):
    """A formula with its parameters set; the same where both are the same."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Bound):
            return NotImplemented
        return self.func == other.func and self.keywords == other.keywords

    def __hash__(self) -> int:
        return hash((self.func, tuple(sorted(self.keywords.items()))))


def parameters_of(function: Callable[..., Any]) -> dict[str, float]:
    """Return the numbers that a formula takes besides a temperature, with defaults."""
    every = inspect.signature(function).parameters.values()
    numbers = [one for one in every if isinstance(one.default, (int, float))]
    return {one.name: one.default for one in numbers if one.name != "temperature"}


class FittedScore(Score):
    """A score that is fitted on rows first, and can be saved.

    A subclass is a frozen dataclass. Its fields, arrays and plain values, are all that
    there is to it, so files and gates can hold it. `__post_init__` refuses what is not
    such a score: files may be changed by anybody.

    Attributes
    ----------
    made_by : str
        The call that makes one, where it is not `fit`.
    settings : tuple of dict
        Options of `fit` that `compare` tries.
    from_errors : bool
        Whether it learns from the model's errors, so that it is fitted on rows that
        the model was not trained on; else it is fitted on training rows.

    Examples
    --------
    >>> @dataclass(frozen=True, eq=False)
    ... class Distance(FittedScore):
    ...     mean: Array
    ...     name, needs, laws = "distance", frozenset({"features"}), frozenset()
    ...
    ...     @classmethod
    ...     def fit(cls, predictions):
    ...         return cls(predictions.features.mean(0))
    ...
    ...     def __call__(self, predictions):
    ...         return np.linalg.norm(predictions.features - self.mean, axis=1)
    >>> p = Predictions.from_logits([[1.0, 0], [0, 1]], features=[[0.0], [2.0]])
    >>> Distance.fit(p)(p)
    array([1., 1.])
    """

    made_by: ClassVar[str] = ""
    settings: ClassVar[tuple[dict[str, Any], ...]] = ({},)
    from_errors: ClassVar[bool] = False

    @classmethod
    @abstractmethod
    def fit(cls, predictions: Predictions) -> Self:
        """Fit on rows, and return the score; options are keywords."""

    @classmethod
    def check_fit(cls, predictions: Predictions, *, labels: bool = False) -> None:
        """Refuse rows to fit on that lack what the score needs."""
        check_needs(cls.name, cls.needs, predictions, about_class=cls.about_class)
        if labels:
            predictions.require_labels(f"fitting {cls.name}")

    def parts(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Return what the score is made of: arrays, and plain values for JSON."""
        arrays, plain = {}, {}
        for one in fields(self):  # type: ignore[arg-type]
            value = getattr(self, one.name)
            if isinstance(value, np.ndarray):
                if value.dtype.kind not in "fiub" or value.dtype.itemsize > 8:
                    message = f"expected numbers in {one.name}, got {value.dtype}."
                    raise InputError(message)
                kind = value.dtype.newbyteorder("<")  # the same on every machine
                arrays[one.name] = value.astype(kind, copy=False)
            else:
                plain[one.name] = list(value) if isinstance(value, tuple) else value
        return arrays, plain

    @classmethod
    def from_parts(cls, arrays: dict[str, NDArray[Any]], plain: dict[str, Any]) -> Self:
        """Build the score from its parts, refusing others."""
        every = fields(cls)  # type: ignore[arg-type]
        names, given = {one.name for one in every}, {*arrays, *plain}
        spared = {one.name for one in every if one.default is not MISSING}
        odd = (names - spared - given) | (given - names)
        if odd:
            message = f"a {cls.name} score lacks or adds: {', '.join(sorted(odd))}."
            raise InputError(message)
        return cls(**arrays, **plain)

    @property
    def digest(self) -> str:
        """A short digest of all that the score is made of."""
        arrays, plain = self.parts()
        digest = hashlib.blake2b(self.name.encode(), digest_size=16)
        digest.update(json.dumps(plain, sort_keys=True).encode())
        for name, array in sorted(arrays.items()):
            digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    def save(self, path: str | Path) -> None:
        """Write to a safetensors file, whole or not at all; `load_score` reads it."""
        storage.save(path, self.name, *self.parts())

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what `save` wrote."""
        kind, arrays, plain = storage.load(path)
        if kind != cls.name:
            message = f"{path} holds a {kind} score, not a {cls.name} score."
            raise FileError(message)
        with storage.complaining(path):
            return cls.from_parts(arrays, plain)
