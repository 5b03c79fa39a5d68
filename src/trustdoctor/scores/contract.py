"""The types of scores: a doubt about each row, what it needs, which laws it obeys.

    Score -- LogitScore    a formula of the logits
          -- FittedScore   a class that is fitted on rows first
          -- GivenScore    a confidence or doubt that came with the answers

To add one, write a `LogitScore` or a `FittedScore` and `register` it.
"""

import hashlib
import inspect
import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, ClassVar, Self, cast, get_origin, get_type_hints

import msgspec
import numpy as np
from numpy.typing import NDArray

from trustdoctor.arrays import Array, as_real
from trustdoctor.envelope import Document, convert, shown
from trustdoctor.errors import FileError, InputError
from trustdoctor.kernels import _native, check_temperature, score_kinds
from trustdoctor.predictions import (
    Answers,
    Predictions,
    assume_logits,
    require_predictions,
)
from trustdoctor.scores import storage

NEEDS = ("probs", "logits", "confidence", "doubt", "features", "gradients")
"""What a score may need of predictions, or of the model behind them."""

LAWS = ("permutation", "shift", "direction")
"""Laws that a score may obey, tested over the registry.

permutation: the order of the classes does not matter. shift: a constant added to a row
does not matter. direction: raising the top logit never raises the doubt.
"""

ROUNDING = 2.0**-19
"""How far rounding moves scores of the same logits, relative to max(1, size).

Scores that are nearer to one another than twice this are tied wherever a threshold is
set.
"""
# 16 units in the last place of single precision. The largest difference between double
# precision, single precision, torch and ONNX Runtime was 12, with up to 1,000 classes
# (benchmarks/rounding.py).

DECISION_SCORES = ("beta", "msp", "margin")
"""Scores that doubt the class that a system decided on; the first is the default."""

Needs = frozenset[str]

Arrays = dict[str, NDArray[Any]]

State = tuple[Arrays, dict[str, Any]]
"""A fitted score's arrays and its plain values, by the names of its fields."""


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
        Which of these leave the doubt as it is, or lower it: "permutation" of the
        classes, a "shift" of all logits of a row, a step of the top logit in its
        "direction", away from the others.
    scale : str
        What exp(score) is: "odds" (the paper's ratio), "log" (another positive
        quantity), or "none".
    reference : str
        The paper that it comes from.
    temperature : float
        What divides the logits; 1 where the score takes no temperature.
    perturbation_sign : int
        Direction of its input perturbation: +1 towards more doubt (DOCTOR), -1 towards
        less (ODIN).
    about_class : bool
        Whether the doubt is about one class, so that its function takes `predicted=`.
    ranks_as : str
        Another score that puts rows in the same order; empty if there is none.
    rounding : float
        How far another kernel or runtime may move a doubt by rounding, relative to
        max(1, its size); 0 where all give the same number.

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
    temperature: float = 1.0
    perturbation_sign: int = 1
    about_class: bool = False
    ranks_as: str = ""
    rounding: float = ROUNDING

    @property
    def registered_name(self) -> str:
        """Its name in `SCORES`, without parameters: "pnorm" of "pnorm:p=4"."""
        return self.name.partition(":")[0]

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
            f"{', '.join(DECISION_SCORES)}."
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
    signals = needs & {"confidence", "doubt"}
    if not isinstance(predictions, Answers):
        if signals:
            message = (
                f"the score {name} needs a {name} for each row, and these predictions "
                f"have logits or probabilities. Choose alpha, or build predictions "
                f"with Predictions.from_{name}; on the command line --{name} NAME."
            )
            raise InputError(message)
    elif name not in predictions.scores and needs & {*signals, "probs", "logits"}:
        message = (
            f"the score {name} needs {' and '.join(sorted(needs))}, and these answers "
            f"come with their {predictions.row_kind} only. Choose "
            f"{', '.join(predictions.scores)}."
        )
        raise InputError(message)


@dataclass(frozen=True)
class GivenScore(Score):
    r"""The confidence or doubt that a system gives with its answer, unchanged.

    .. math:: s = -\mathrm{confidence} \quad\text{or}\quad s = \mathrm{doubt}

    The name says which of the two it is.

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
    kernel : str
        The C kernel that gives the same numbers; empty if there is none.
    parameter_check : callable, optional
        Takes the formula's parameters as keywords and refuses values that make no
        sense. Without it, the formula itself is called on one row.

    A formula may have parameters besides the temperature, which `with_parameters` sets.
    They become part of the name, as in "pnorm:p=4", by which the registry finds the
    score again; default values are left out of it.

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
    perturbation_sign: int = 1
    about_class: bool = False
    rounding: float = ROUNDING
    kernel: str = ""
    ranks_as: str = ""
    temperature: float = 1.0
    parameter_check: Callable[..., Any] | None = None

    def __post_init__(self) -> None:
        """Check the temperature; a number of numpy becomes a plain one, as in files."""
        check_temperature(self.temperature)
        object.__setattr__(self, "temperature", float(self.temperature))

    def with_temperature(self, temperature: float) -> "LogitScore":
        """Return the score at another temperature."""
        if temperature == self.temperature:
            return self
        return replace(self, temperature=temperature)

    @property
    def parameters(self) -> dict[str, float]:
        """The parameters that differ from their defaults; without the temperature."""
        return dict(getattr(self.function, "keywords", {}))

    def with_parameters(self, **parameters: float) -> "LogitScore":
        """Return the score with other parameters.

        Examples
        --------
        >>> from trustdoctor import SCORES
        >>> SCORES["pnorm"].with_parameters(p=4).name
        'pnorm:p=4'
        """
        if isinstance(self.function, partial) and self.registered_name == self.name:
            message = (
                f"the parameters of {self.name} are set already. Register it as a "
                "plain function to set others."
            )
            raise InputError(message)
        formula = getattr(self.function, "func", self.function)
        defaults = default_parameters(formula)
        for name, value in parameters.items():
            if name not in defaults:
                expected = ", ".join(defaults) or "no parameters"
                message = (
                    f"expected {expected} of {self.registered_name}, got {name!r}."
                )
                raise InputError(message)
            parameters[name] = as_real(value, f"{name} of {self.registered_name}")
        merged = {**defaults, **self.parameters, **parameters}
        changed = {n: v for n, v in merged.items() if v != defaults[n]}
        bound = _BoundFormula(formula, **changed) if changed else formula
        if self.parameter_check is not None:
            self.parameter_check(**changed)
        else:
            with assume_logits():
                bound(np.array([[2.0, 1.0, 0.0]]))  # its own checks refuse bad values
        # repr, so that the name gives the same float again; "4" of 4.0.
        pairs = ",".join(
            f"{n}={repr(v).removesuffix('.0')}" for n, v in changed.items()
        )
        name = f"{self.registered_name}:{pairs}" if pairs else self.registered_name
        return replace(self, name=name, function=bound)

    def fit(self, predictions: Predictions) -> "LogitScore":
        """Return the score itself: there is nothing to fit."""
        self.check(predictions)
        return self

    def __call__(self, predictions: Predictions) -> Any:
        """Return the doubt of each row, (n,)."""
        self.check(predictions)
        if isinstance(predictions, Answers):
            return self._doubt_answers(predictions)
        if predictions.decisions is not None:
            return self._doubt_decisions(predictions)
        if self.kernel and _native.available:
            kinds = [self.kernel]
            return score_kinds(predictions.logits, kinds, temperature=self.temperature)[
                0
            ]
        with assume_logits():
            return self.function(predictions.logits, temperature=self.temperature)

    def _doubt_answers(self, answers: Answers) -> Array:
        """Return the doubt about top-k answers, which have no logits to divide."""
        if self.temperature != 1:
            message = (
                f"expected temperature 1, as top-k answers have no other, got "
                f"{self.temperature:g}. Calibrate at 1."
            )
            raise InputError(message)
        return answers.doubt(self.name)

    def _doubt_decisions(self, predictions: Predictions) -> Array:
        """Return the doubt about each decision; inf where the system abstained."""
        abstained = predictions.abstained
        # Rows without a decision need some class for the formula to run.
        with assume_logits():
            doubts = self.function(
                predictions.logits,
                temperature=self.temperature,
                predicted=np.where(abstained, 0, predictions.predicted),
            )
        return np.where(abstained, np.inf, doubts).astype(doubts.dtype, copy=False)


class _BoundFormula(partial[Any]):
    """A formula with its parameters set; equal if formula and parameters are equal."""

    # functools.partial compares by identity: a gate loaded from a file would then
    # differ from the gate that was saved.
    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _BoundFormula):
            return NotImplemented
        return self.func == other.func and self.keywords == other.keywords

    def __hash__(self) -> int:
        return hash((self.func, tuple(sorted(self.keywords.items()))))


def default_parameters(function: Callable[..., Any]) -> dict[str, float]:
    """Return the defaults of a formula's numeric parameters except the temperature."""
    return {
        parameter.name: parameter.default
        for parameter in inspect.signature(function).parameters.values()
        if isinstance(parameter.default, (int, float))
        and parameter.name != "temperature"
    }


class FittedScore(Score):
    """A score that is fitted on rows first, and can be saved.

    A subclass is a frozen dataclass (``eq=False``: scores are equal if their digests
    are). Its fields are its whole state, so that files and gates can hold it: arrays of
    numbers, and plain values of the types of JSON. What a file holds is checked against
    the annotations, ranges included (``Annotated[int, msgspec.Meta(ge=1)]``);
    `__post_init__` refuses what no annotation can say.

    Attributes
    ----------
    fit_call : str
        The call that fits one; empty where it is `fit`.
    fit_options : tuple of dict
        Options of `fit` that `compare` tries.
    learns_from_errors : bool
        Whether it learns from the model's errors and is fitted on rows that the model
        was not trained on; otherwise it is fitted on training rows.

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

    fit_call: ClassVar[str] = ""
    fit_options: ClassVar[tuple[dict[str, Any], ...]] = ({},)
    learns_from_errors: ClassVar[bool] = False

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

    def to_state(self) -> State:
        """Return the fields of the score: arrays, and plain values for JSON."""
        arrays, plain = {}, {}
        for field in fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if isinstance(value, np.ndarray):
                if value.dtype.kind not in "fiub" or value.dtype.itemsize > 8:
                    message = f"expected numbers in {field.name}, got {value.dtype}."
                    raise InputError(message)
                # One byte order, so that the digest is the same on every machine.
                dtype = value.dtype.newbyteorder("<")
                arrays[field.name] = value.astype(dtype, copy=False)
            else:
                plain[field.name] = (
                    value.item() if isinstance(value, np.generic) else value
                )
        # By the declared types, so that a ridge of 0 has the digest of a ridge of 0.0,
        # which it is when it has been read from a file.
        return arrays, msgspec.to_builtins(convert(plain, _plain_fields(type(self))))

    @classmethod
    def from_state(cls, arrays: Arrays, plain: dict[str, Any]) -> Self:
        """Build the score from what `to_state` returned; refuse anything else."""
        odd = _array_fields(cls) ^ {*arrays}
        if odd:
            message = (
                f"missing or unknown arrays: {', '.join(sorted(map(shown, odd)))}."
            )
            raise FileError(message)
        values = convert(plain, _plain_fields(cls))
        return cls(
            **arrays, **{n: getattr(values, n) for n in values.__struct_fields__}
        )

    @property
    def nbytes(self) -> int:
        """Bytes of its arrays."""
        return sum(array.nbytes for array in self.to_state()[0].values())

    def __eq__(self, other: object) -> bool:
        """Tell whether two scores are of one class and have the same state."""
        if self is other or type(self) is not type(other):
            return self is other
        return self.digest == other.digest

    def __hash__(self) -> int:
        """Return the same for scores that are equal."""
        return hash(self.name)

    @property
    def digest(self) -> str:
        """A digest of the score's name and state."""
        arrays, plain = self.to_state()
        digest = hashlib.blake2b(self.name.encode(), digest_size=16)
        digest.update(json.dumps(plain, sort_keys=True).encode())
        for name, array in sorted(arrays.items()):
            digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    def save(self, path: str | Path) -> None:
        """Write to a safetensors file, whole or not at all; `load_score` reads it."""
        storage.save(path, self.name, *self.to_state())

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what `save` wrote."""
        name, arrays, plain = storage.load(path)
        if name != cls.name:
            message = f"{path} holds a {name} score, not a {cls.name} score."
            raise FileError(message)
        with storage.naming_path(path):
            return cls.from_state(arrays, plain)


@cache
def _array_fields(cls: type[FittedScore]) -> frozenset[str]:
    """Return the names of the fields that are annotated as arrays."""
    hints = get_type_hints(cls, include_extras=True)
    return frozenset(
        field.name
        for field in fields(cls)  # type: ignore[arg-type]
        if np.ndarray in (hints[field.name], get_origin(hints[field.name]))
    )


@cache
def _plain_fields(cls: type[FittedScore]) -> type[Document]:
    """Return the type of the other fields, as a document has them."""
    hints, arrays = get_type_hints(cls, include_extras=True), _array_fields(cls)
    declared = [
        (field.name, hints[field.name])
        if field.default is MISSING
        else (field.name, hints[field.name], field.default)
        for field in fields(cls)  # type: ignore[arg-type]
        if field.name not in arrays
    ]
    struct = msgspec.defstruct(f"{cls.__name__}Fields", declared, bases=(Document,))
    return cast("type[Document]", struct)
