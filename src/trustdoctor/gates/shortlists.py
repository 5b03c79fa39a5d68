"""A shortlist: the classes that a rejected row may be, from which a person chooses.

It is a conformal prediction set: a class is on the list if its nonconformity is at most
a threshold. The prediction always is on it, with a nonconformity of -inf. That of any
other class is -log p by default ("lac": least ambiguous sets, which have the order of
1 - p), or the mass of the more probable classes, minus 1 ("aps"), with a penalty for
each rank beyond the first few ("raps"). Each depends on the row and the class alone, so
the threshold is an order statistic, and nothing is interpolated or drawn at random.

References
----------
Vovk, Gammerman and Shafer, Algorithmic Learning in a Random World, 2005.
Sadinle, Lei and Wasserman, Least Ambiguous Set-Valued Classifiers, JASA 2019.
Romano, Sesia and Candès, Classification with Valid and Adaptive Coverage, NeurIPS 2020.
Angelopoulos et al., Uncertainty Sets for Image Classifiers, ICLR 2021.
"""

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from trustdoctor.arrays import Array, as_groups, shown_number
from trustdoctor.envelope import Count, Document, Number, convert, number, read_number
from trustdoctor.errors import FileError, InputError
from trustdoctor.gates.groups import Group
from trustdoctor.predictions import Predictions, refuse_decisions

METHODS = ("lac", "aps", "raps")
PENALTY, FREE = 0.05, 2
"""Of raps: the cost of a rank, and the ranks that cost nothing."""

FULL_REVIEW = "full review"
"""The text for a list of all classes: it is too long, or could not be calibrated."""

_BLOCK = 1 << 22  # numbers computed at once, so that temporary arrays stay small


@dataclass(frozen=True)
class ListRule:
    """The threshold of lists, for all rows or for one group.

    Attributes
    ----------
    threshold : float
        The largest nonconformity on a list; inf if lists hold every class.
    rows : int
        The rejected calibration rows that set it.
    """

    threshold: float
    rows: int

    def __post_init__(self) -> None:
        """Refuse impossible values."""
        real = type(self.threshold) is float and not math.isnan(self.threshold)
        if not real or type(self.rows) is not int or self.rows < 0:
            message = (
                f"expected a threshold and a number of rows, got {self.threshold!r} "
                f"and {self.rows!r}."
            )
            raise InputError(message)


@dataclass(frozen=True)
class Shortlist:
    """The rule of lists of classes for rejected rows, calibrated by `shortlist`.

    Attributes
    ----------
    level : float
        The probability that the list of a rejected row holds its true class.
    rule : ListRule
        For all rows, unless there are groups.
    n_classes : int
    method : str
        "lac", "aps" or "raps".
    penalty, free : float, int
        Of raps.
    max_size : int or None
        Longer lists become a full review, which holds every class.
    same_rows : bool
        Whether the rows that set the gate's threshold also set that of the lists.
    groups : dict of group to ListRule
        For a gate with groups; rows of other groups get a full review.

    Examples
    --------
    >>> short = Shortlist(0.9, ListRule(-math.log(0.2), 50), 3)
    >>> short.prediction_sets(np.log([[0.5, 0.3, 0.2], [0.9, 0.08, 0.02]]))
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
        """Refuse impossible values; numpy's numbers become Python's."""
        invalid = next(self._invalid_fields(), None)
        if invalid is not None:
            name, expected = invalid
            words = name.replace("_", " ")
            got = shown_number(getattr(self, name))
            message = f"expected {words} of a shortlist {expected}, got {got}."
            raise InputError(message)
        for name, kind in (("level", float), ("n_classes", int), ("free", int)):
            object.__setattr__(self, name, kind(getattr(self, name)))
        if self.max_size is not None:
            object.__setattr__(self, "max_size", int(self.max_size))
        object.__setattr__(self, "penalty", float(self.penalty))

    def _invalid_fields(self) -> Iterator[tuple[str, str]]:
        """Yield the fields with impossible values, and what they should be."""
        size, penalty = self.max_size, self.penalty
        valid_penalty = _is_number(penalty) and 0 <= penalty <= sys.float_info.max
        tests = (
            ("level", is_level(self.level), LEVELS),
            ("method", self.method in METHODS, f"out of {', '.join(METHODS)}"),
            ("n_classes", _is_count(self.n_classes, 2), "of 2 or more"),
            ("penalty", valid_penalty, "of 0 or more"),
            ("free", _is_count(self.free, 0), "of 0 or more"),
            ("max_size", size is None or _is_count(size, 1), "of 1 or more"),
        )
        yield from ((name, expected) for name, valid, expected in tests if not valid)

    def __hash__(self) -> int:
        """Return the same for shortlists that are equal."""
        # A frozen dataclass would hash every field, and a dict has no hash.
        return hash((self.level, self.rule, self.n_classes, self.method, self.max_size))

    @property
    def least_probability(self) -> float | None:
        """For lac without groups: the least probability of a class on a list."""
        single = self.method == "lac" and not self.groups
        return math.exp(-self.rule.threshold) if single else None

    def promise(self) -> str:
        """Say what is promised, in one sentence."""
        scope = "among the rejected rows"
        scope += " of each group" if self.groups else ""
        return (
            f"a rejected row's list holds the true class with probability at least "
            f"{self.level:g} {scope}, on average over calibrations"
        )

    def prediction_sets(
        self, logits: Any, predicted: Any = None, groups: Any = None
    ) -> NDArray[np.bool_]:
        """Return which classes are on the list of each row, as a mask (n, C).

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
        thresholds = self._thresholds(groups, len(z))
        sets = np.zeros(z.shape, bool)
        for block in row_blocks(z.shape):
            top = None if predicted is None else np.asarray(predicted)[block]
            included = self.nonconformity(z[block], top) <= thresholds[block, None]
            if self.max_size is not None:
                included[included.sum(1) > self.max_size] = True
            sets[block] = included
        return sets

    def _thresholds(self, groups: Any, rows: int) -> Array:
        """Return the threshold of each row."""
        if not self.groups:
            return np.full(rows, self.rule.threshold)
        if groups is None:
            message = (
                "this shortlist has thresholds for groups, and no groups were given. "
                "Pass groups=, one per row."
            )
            raise InputError(message)
        group_of_row = as_groups(groups, rows=rows)
        thresholds = np.full(rows, np.inf)
        for name, rule in self.groups.items():
            thresholds[group_of_row == name] = rule.threshold
        return thresholds

    def rejected_sets(
        self, predictions: Predictions, accepted: Array, groups: Any = None
    ) -> NDArray[np.bool_]:
        """Return the lists of rejected rows, (n, C); accepted rows have none."""
        require_classes(predictions)
        rejected = np.flatnonzero(~np.asarray(accepted))
        sets = np.zeros((len(predictions), predictions.n_classes), bool)
        if len(rejected):
            if groups is not None:
                groups = np.asarray(groups)[rejected]
            logits = predictions.logits[rejected]
            sets[rejected] = self.prediction_sets(logits, groups=groups)
        return sets

    def nonconformity(self, logits: Any, predicted: Any = None) -> Array:
        """Return the nonconformity of each class as the true one, (n, C)."""
        z = np.ascontiguousarray(logits, np.float64)
        top = z.argmax(1) if predicted is None else np.asarray(predicted)
        scores = _negative_log_probs(z) if self.method == "lac" else self._aps_scores(z)
        np.put_along_axis(scores, top[:, None], -np.inf, 1)
        return scores

    def _aps_scores(self, z: Array) -> Array:
        """Return minus the mass from a class on downwards, plus raps' penalty.

        With p_(1) >= p_(2) >= ... it is -(p_(k) + ... + p_(C)) + penalty (k - free)_+.
        """
        # APS is the mass above a class. Minus 1, it is minus the mass from the class
        # on: a sum from below, which keeps the small probabilities that matter.
        order = np.argsort(-z, axis=1, kind="stable")
        p = np.exp(-_negative_log_probs(np.take_along_axis(z, order, 1)))
        mass_below = np.cumsum(p[:, ::-1], 1)[:, ::-1]
        n_classes = z.shape[1]
        ranks = np.arange(1, n_classes + 1)
        costly_ranks = np.maximum(ranks - min(self.free, n_classes), 0)
        penalty = self.penalty if self.method == "raps" else 0.0
        with np.errstate(over="ignore"):  # a penalty may be the largest float
            ranked = penalty * costly_ranks - mass_below
        scores = np.empty_like(ranked)
        np.put_along_axis(scores, order, ranked, 1)
        return scores


LEVELS = "from 0.5 to below 1 (0.95 means 95%)"


def is_level(value: Any) -> bool:
    """Return whether a value can be the level of a shortlist."""
    return _is_number(value) and 0.5 <= value < 1


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _is_count(value: Any, least: int) -> bool:
    integer = isinstance(value, Integral) and not isinstance(value, bool)
    return integer and value >= least


def _negative_log_probs(z: Array) -> Array:
    """Return -log p of every class, (n, C); inf where p is 0."""
    with np.errstate(over="ignore"):  # logits may differ by more than the largest float
        shifted = z - z.max(1, keepdims=True)
    return np.asarray(np.log(np.exp(shifted).sum(1, keepdims=True)) - shifted)


def row_blocks(shape: tuple[int, ...]) -> Iterator[slice]:
    """Yield slices of the rows of an array (n, C), small enough for temporaries."""
    step = max(1, _BLOCK // max(1, shape[1]))
    yield from (slice(start, start + step) for start in range(0, shape[0], step))


def require_classes(predictions: Any) -> None:
    """Refuse rows that do not give a probability to every class."""
    if isinstance(predictions, Predictions) and predictions.n_classes >= 2:
        refuse_decisions(predictions, "a shortlist")
        if predictions.outside.any():
            message = (
                "a shortlist holds true classes, and some rows belong to none. Leave "
                "the rows outside of all classes out."
            )
            raise InputError(message)
        return
    kind = type(predictions).__name__
    message = (
        f"a shortlist needs the logits or probabilities of every class, got {kind}. "
        "Give those, or a gate without a shortlist."
    )
    raise InputError(message)


def describe_lists(mask: NDArray[np.bool_], predictions: Predictions) -> NDArray[Any]:
    """Return lists as text, the most probable class first; "" for accepted rows.

    A bar separates classes; one in a name is escaped by a backslash.

    Examples
    --------
    >>> p = Predictions.from_probs([[0.2, 0.7, 0.1]], class_names=["cat", "dog", "ox"])
    >>> describe_lists(np.array([[True, True, False]]), p)
    array(['dog | cat'], dtype=object)
    """
    names = predictions.class_names or range(predictions.n_classes)
    escaped = np.array([str(name).replace("|", r"\|") for name in names], object)
    texts = np.full(len(mask), "", object)
    sizes = mask.sum(1)
    texts[sizes == mask.shape[1]] = FULL_REVIEW
    partial = np.flatnonzero((sizes > 0) & (sizes < mask.shape[1]))
    for block in row_blocks((len(partial), mask.shape[1])):
        rows = partial[block]
        order = np.argsort(-predictions.logits[rows], axis=1, kind="stable")
        included = np.take_along_axis(mask[rows], order, 1)
        for size in np.unique(sizes[rows]).tolist():  # lists of one length at once
            same_size = sizes[rows] == size
            classes = order[same_size][included[same_size]].reshape(-1, size)
            lines = [" | ".join(names) for names in escaped[classes].tolist()]
            texts[rows[same_size]] = np.array(lines, object)
    return texts


class GroupListRuleDocument(Document, frozen=True):
    """The threshold of one group's lists, in a gate's file."""

    group: int | str
    threshold: Number
    rows: Count


class ShortlistDocument(Document, frozen=True):
    """A shortlist in a gate's file."""

    level: Annotated[float, msgspec.Meta(ge=0.5, lt=1)]
    n_classes: Annotated[int, msgspec.Meta(ge=2)]
    method: Literal["lac", "aps", "raps"]
    penalty: Annotated[float, msgspec.Meta(ge=0)]
    free: Annotated[int, msgspec.Meta(ge=0)]
    max_size: Annotated[int, msgspec.Meta(ge=1)] | None
    same_rows: bool
    threshold: Number
    rows: Count
    groups: list[GroupListRuleDocument]

    @classmethod
    def of(cls, shortlist: Shortlist) -> "ShortlistDocument":
        """Return the document of a shortlist."""
        return cls(
            level=shortlist.level,
            n_classes=shortlist.n_classes,
            method=shortlist.method,  # type: ignore[arg-type]
            penalty=shortlist.penalty,
            free=shortlist.free,
            max_size=shortlist.max_size,
            same_rows=shortlist.same_rows,
            threshold=number(shortlist.rule.threshold),
            rows=shortlist.rule.rows,
            groups=[
                GroupListRuleDocument(
                    group=name,
                    threshold=number(rule.threshold),
                    rows=rule.rows,
                )
                for name, rule in shortlist.groups.items()
            ],
        )

    def shortlist(self) -> Shortlist:
        """Return the shortlist of a document."""
        rules = {
            entry.group: ListRule(read_number(entry.threshold), entry.rows)
            for entry in self.groups
        }
        if len(rules) < len(self.groups):
            message = "groups: expected each group once."
            raise FileError(message)
        return Shortlist(
            level=self.level,
            rule=ListRule(read_number(self.threshold), self.rows),
            n_classes=self.n_classes,
            method=self.method,
            penalty=self.penalty,
            free=self.free,
            max_size=self.max_size,
            same_rows=self.same_rows,
            groups=rules,
        )


def shortlist_content(shortlist: Shortlist) -> dict[str, Any]:
    """Return a shortlist as plain values, for a gate's or a cascade's file."""
    content: dict[str, Any] = msgspec.to_builtins(ShortlistDocument.of(shortlist))
    return content


def read_shortlist(content: Any) -> Shortlist | None:
    """Read what `shortlist_content` wrote; None without a shortlist."""
    return None if content is None else convert(content, ShortlistDocument).shortlist()
