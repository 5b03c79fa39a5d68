"""A short list of classes for a rejected row, which a person then chooses from.

A class is on the list where its strangeness is at most a threshold. The prediction
itself always is: its strangeness is -inf. Of the other classes it is -log p by default
("lac": the least ambiguous sets, in the order of 1 - p), or the mass of the classes
more probable than it, less 1 ("aps"), with a penalty for each rank beyond the first few
("raps"). Each is a function of the row and the class alone, so the threshold is an
order statistic, and nothing is interpolated or drawn at random.

References
----------
Sadinle, Lei and Wasserman, Least Ambiguous Set-Valued Classifiers, JASA 2019.
Romano, Sesia and Candès, Classification with Valid and Adaptive Coverage, NeurIPS 2020.
Angelopoulos et al., Uncertainty Sets for Image Classifiers, ICLR 2021.
"""

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trustdoctor.arrays import Array, as_groups, shown_number
from trustdoctor.errors import InputError
from trustdoctor.gates.deciding import Group
from trustdoctor.predictions import Predictions, refuse_decisions

METHODS = ("lac", "aps", "raps")
PENALTY, FREE = 0.05, 2
"""Of raps: what each rank costs, beyond the first so many."""

FULL_REVIEW = "full review"
"""What stands for a list that would hold every class, or more than it may."""

_CELLS = 1 << 22  # numbers that are worked on at once


@dataclass(frozen=True)
class ListRule:
    """The threshold of lists, in all rows or in one group.

    Attributes
    ----------
    threshold : float
        The largest strangeness on a list; inf where lists hold every class.
    rows : int
        The rejected rows that set it.
    """

    threshold: float
    rows: int

    def __post_init__(self) -> None:
        """Refuse what no rule can be."""
        real = type(self.threshold) is float and not math.isnan(self.threshold)
        if not real or type(self.rows) is not int or self.rows < 0:
            message = (
                f"expected a threshold and a number of rows, got {self.threshold!r} "
                f"and {self.rows!r}."
            )
            raise InputError(message)


@dataclass(frozen=True)
class Shortlist:
    """Which classes a rejected row may be, made by `shortlist`.

    Attributes
    ----------
    level : float
        At least so often does a list hold the true class, among the rejected rows.
    rule : ListRule
        For all rows, where there are no groups.
    n_classes : int
    method : str
        "lac", "aps" or "raps".
    penalty, free : float, int
        Of raps.
    max_size : int or None
        Longer lists become a full review, which holds every class.
    same_rows : bool
        Whether the rows that set the gate's threshold set the list's, too.
    groups : dict of group to ListRule
        Where the gate has groups; rows of others get a full review.

    Examples
    --------
    >>> short = Shortlist(0.9, ListRule(-math.log(0.2), 50), 3)
    >>> short.listed(np.log([[0.5, 0.3, 0.2], [0.9, 0.08, 0.02]]))
    array([[ True,  True,  True],
           [ True, False, False]])
    """

    level: float
    rule: ListRule
    n_classes: int
    method: str = "lac"
    penalty: float = 0.0
    free: int = 0
    max_size: int | None = None
    same_rows: bool = False
    groups: dict[Group, ListRule] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse what no shortlist can be."""
        wrong = next(self._wrong(), None)
        if wrong is not None:
            name, expected = wrong
            shown = name.replace("_", " ")
            got = shown_number(getattr(self, name))
            message = f"expected {shown} of a shortlist {expected}, got {got}."
            raise InputError(message)
        for name, kind in (("level", float), ("n_classes", int), ("free", int)):
            object.__setattr__(self, name, kind(getattr(self, name)))
        if self.max_size is not None:
            object.__setattr__(self, "max_size", int(self.max_size))
        object.__setattr__(self, "penalty", float(self.penalty))

    def _wrong(self) -> Iterator[tuple[str, str]]:
        """Say which fields cannot be, and what they should be."""
        size, penalty = self.max_size, self.penalty
        number = _is_number(penalty) and 0 <= penalty <= sys.float_info.max
        tests = (
            ("level", is_level(self.level), LEVELS),
            ("method", self.method in METHODS, f"out of {', '.join(METHODS)}"),
            ("n_classes", _is_count(self.n_classes, 2), "of 2 or more"),
            ("penalty", number, "of 0 or more"),
            ("free", _is_count(self.free, 0), "of 0 or more"),
            ("max_size", size is None or _is_count(size, 1), "of 1 or more"),
        )
        yield from ((name, expected) for name, good, expected in tests if not good)

    def __hash__(self) -> int:
        """Return the same for shortlists that are equal."""
        return hash((self.level, self.rule, self.n_classes, self.method, self.max_size))

    @property
    def probability(self) -> float | None:
        """For lac without groups: the least probability of a class on a list."""
        plain = self.method == "lac" and not self.groups
        return math.exp(-self.rule.threshold) if plain else None

    def promise(self) -> str:
        """Say what is promised, in one sentence."""
        where = "among the rejected rows"
        where += " of each group" if self.groups else ""
        return (
            f"a rejected row's list holds the true class with probability at least "
            f"{self.level:g} {where}, on average over calibrations"
        )

    def listed(
        self, logits: Any, predicted: Any = None, groups: Any = None
    ) -> NDArray[np.bool_]:
        """Return which classes are on the lists of some rows, as a mask (n, C).

        Parameters
        ----------
        logits : array (n, C)
        predicted : array (n,), optional
            The predictions; by default the largest logits'.
        groups : array (n,), optional
        """
        z = np.asarray(logits)
        if z.ndim != 2 or z.shape[1] != self.n_classes:
            message = (
                f"expected rows of {self.n_classes:,} classes, as in the shortlist's "
                f"calibration, got shape {z.shape}."
            )
            raise InputError(message)
        at = self._thresholds(groups, len(z))
        out = np.zeros(z.shape, bool)
        for part in blocks(z.shape):
            own = None if predicted is None else np.asarray(predicted)[part]
            found = self.strangeness(z[part], own) <= at[part, None]
            if self.max_size is not None:
                found[found.sum(1) > self.max_size] = True
            out[part] = found
        return out

    def _thresholds(self, groups: Any, rows: int) -> Array:
        if not self.groups:
            return np.full(rows, self.rule.threshold)
        if groups is None:
            message = (
                "this shortlist has thresholds for groups, and no groups were given. "
                "Pass groups=, one per row."
            )
            raise InputError(message)
        given, at = as_groups(groups, rows=rows), np.full(rows, np.inf)
        for name, rule in self.groups.items():
            at[given == name] = rule.threshold
        return at

    def mask(
        self, predictions: Predictions, accepted: Array, groups: Any = None
    ) -> NDArray[np.bool_]:
        """Return the lists of rejected rows, (n, C); accepted rows have none."""
        require_classes(predictions)
        rejected = np.flatnonzero(~np.asarray(accepted))
        out = np.zeros((len(predictions), predictions.n_classes), bool)
        if len(rejected):
            own = None if groups is None else np.asarray(groups)[rejected]
            out[rejected] = self.listed(predictions.logits[rejected], groups=own)
        return out

    def strangeness(self, logits: Any, predicted: Any = None) -> Array:
        """Return how strange each class would be as the truth, (n, C)."""
        z = np.ascontiguousarray(logits, np.float64)
        top = z.argmax(1) if predicted is None else np.asarray(predicted)
        out = _surprise(z) if self.method == "lac" else self._ranked(z)
        np.put_along_axis(out, top[:, None], -np.inf, 1)
        return out

    def _ranked(self, z: Array) -> Array:
        """Return minus the mass from a class on downwards, ranks beyond some cost.

        The mass before a class, less 1: from below it is exact where it matters.
        """
        order = np.argsort(-z, axis=1, kind="stable")
        p = np.exp(-_surprise(np.take_along_axis(z, order, 1)))
        rest = np.cumsum(p[:, ::-1], 1)[:, ::-1]
        size = z.shape[1]
        beyond = np.maximum(np.arange(1, size + 1) - min(self.free, size), 0)
        with np.errstate(over="ignore"):  # an endless penalty leaves the rank out
            ranked = (self.penalty if self.method == "raps" else 0.0) * beyond - rest
        out = np.empty_like(ranked)
        np.put_along_axis(out, order, ranked, 1)
        return out


LEVELS = "from 0.5 to below 1 (0.95 means 95%)"


def is_level(value: Any) -> bool:
    """Tell whether lists can be asked to hold the truth so often."""
    return _is_number(value) and 0.5 <= value < 1


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _is_count(value: Any, least: int) -> bool:
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    return whole and value >= least


def _surprise(z: Array) -> Array:
    """Return -log p of every class, (n, C); inf where p is 0."""
    with np.errstate(over="ignore"):  # a class that is farther away than a number
        shifted = z - z.max(1, keepdims=True)
    return np.asarray(np.log(np.exp(shifted).sum(1, keepdims=True)) - shifted)


def blocks(shape: tuple[int, ...]) -> Iterator[slice]:
    """Return parts of so many rows that little memory is needed at once."""
    step = max(1, _CELLS // max(1, shape[1]))
    yield from (slice(at, at + step) for at in range(0, shape[0], step))


def require_classes(predictions: Any) -> None:
    """Refuse rows that do not give a probability to every class."""
    if isinstance(predictions, Predictions) and predictions.n_classes >= 2:
        refuse_decisions(predictions, "a shortlist")
        return
    kind = type(predictions).__name__
    message = (
        f"a shortlist needs the logits or probabilities of every class, got {kind}. "
        "Give those, or a gate without a shortlist."
    )
    raise InputError(message)


def describe_lists(mask: NDArray[np.bool_], predictions: Predictions) -> NDArray[Any]:
    """Return lists as text, the most probable class first; "" where there is none.

    A bar stands between classes; in a name it has a backslash before it.

    Examples
    --------
    >>> p = Predictions.from_probs([[0.2, 0.7, 0.1]], class_names=["cat", "dog", "ox"])
    >>> describe_lists(np.array([[True, True, False]]), p)
    array(['dog | cat'], dtype=object)
    """
    names = predictions.class_names or range(predictions.n_classes)
    shown = np.array([str(name).replace("|", r"\|") for name in names], object)
    out = np.full(len(mask), "", object)
    sizes = mask.sum(1)
    out[sizes == mask.shape[1]] = FULL_REVIEW
    some = np.flatnonzero((sizes > 0) & (sizes < mask.shape[1]))
    for part in blocks((len(some), mask.shape[1])):
        rows = some[part]
        order = np.argsort(-predictions.logits[rows], axis=1, kind="stable")
        on = np.take_along_axis(mask[rows], order, 1)
        for size in np.unique(sizes[rows]).tolist():  # lists of one length at once
            own = sizes[rows] == size
            listed = shown[order[own][on[own]].reshape(-1, size)]
            texts = [" | ".join(classes) for classes in listed.tolist()]
            out[rows[own]] = np.array(texts, object)
    return out
