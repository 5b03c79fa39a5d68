"""Answers that name only the k best classes, as remote models give them.

What is not known of a row is how the rest of its mass is spread. So a score is an
interval; decisions are taken on its upper end, which doubts more.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trustdoctor.arrays import as_labels, to_numpy
from trustdoctor.errors import InputError

Floats = NDArray[np.float64]
TOLERANCE = 0.01
SCORES = ("alpha", "beta", "msp")


@dataclass(frozen=True, eq=False)
class TopK:
    """The k best classes of `n` rows with their probabilities, best first.

    Build one with `Predictions.from_topk`.

    Attributes
    ----------
    probs : array (n, k)
        Descending; 0 where a row names fewer classes.
    classes : array (n, k)
    labels : array (n,), or None
    beyond : array (n,)
        1 - p of the best class, exact also where p is next to 1.
    n_classes : int or None
        How many classes there are, where that is known.
    open_rest : bool
        Whether the rest of the mass may belong to the named classes, too, as with a
        language model's tokens; else it belongs to other classes, each with at most
        the least probability named.

    Examples
    --------
    >>> from trustdoctor import Predictions
    >>> p = Predictions.from_topk([[0.7, 0.2]], [[4, 1]], n_classes=10)
    >>> p.predicted, p.doubt("beta").round(3)
    (array([4]), array([-0.847]))
    """

    probs: Floats = field(repr=False)
    classes: NDArray[np.int64] = field(repr=False)
    labels: NDArray[np.int64] | None = field(repr=False)
    beyond: Floats = field(repr=False)
    n_classes: int | None = None
    open_rest: bool = False

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.probs)

    @property
    def predicted(self) -> NDArray[np.int64]:
        """The best class of each row."""
        return self.classes[:, 0]

    @property
    def errors(self) -> NDArray[np.bool_]:
        """Where the prediction is wrong."""
        if self.labels is None:
            message = "errors need the true labels: from_topk(..., labels)."
            raise InputError(message)
        return self.predicted != self.labels

    @property
    def rest(self) -> Floats:
        """The mass that no named class has."""
        return np.maximum(0.0, self.beyond - self.probs[:, 1:].sum(1))

    @property
    def ambiguous(self) -> NDArray[np.bool_]:
        """Where the rest could make another class the best: such rows are rejected."""
        if not self.open_rest:
            return np.zeros(len(self), bool)
        second = self.probs[:, 1] if self.probs.shape[1] > 1 else 0.0
        return np.asarray(second + self.rest >= self.probs[:, 0]) & (self.rest > 0)

    @property
    def always_rejected(self) -> NDArray[np.bool_]:
        """Where a row is rejected whatever the threshold: the ambiguous ones."""
        return self.ambiguous

    def interval(self, score: str) -> tuple[Floats, Floats]:
        """Return the ends between which the score of each row lies.

        Parameters
        ----------
        score : str
            "alpha", "beta" or "msp", at temperature 1.
        """
        if score not in SCORES:
            message = (
                f"top-k answers have the scores {', '.join(SCORES)}, got {score!r}."
            )
            raise InputError(message)
        if score == "alpha":
            least, greatest = self._squares()
            return self._alpha(greatest), self._alpha(least)
        rest = self.rest if self.open_rest else 0.0
        beyond = np.maximum(0.0, self.beyond - rest), self.beyond
        with np.errstate(divide="ignore"):
            low, high = (np.log(part) for part in beyond)
            if score == "msp":
                return low, high
            top = self.probs[:, 0]
            return low - np.log(np.minimum(1.0, top + rest)), high - np.log(top)

    def doubt(self, score: str) -> Floats:
        """Return the upper end, on which decisions are taken; inf where ambiguous."""
        return np.where(self.ambiguous, np.inf, self.interval(score)[1])

    def _alpha(self, squares: Floats) -> Floats:
        """Return log((1 - g) / g), g being the top probability's square and these.

        1 - p^2 is (1 - p) (1 + p), which keeps its digits where p is next to 1.
        """
        impurity = self.beyond * (2 - self.beyond) - squares
        with np.errstate(divide="ignore"):
            return np.log(np.maximum(impurity, 0.0)) - np.log1p(
                -np.clip(impurity, 0.0, 1.0)
            )

    def _squares(self) -> tuple[Floats, Floats]:
        """Return the least and the greatest sum of squares beside the top's own."""
        known = (self.probs[:, 1:] ** 2).sum(1)
        rest = self.rest
        if self.open_rest:
            top = self.probs[:, 0]
            return self._levelled() - top**2, known + rest * (2 * top + rest)
        k = (self.probs > 0).sum(1)
        others = np.inf if self.n_classes is None else self.n_classes - k
        least_named = self.probs[np.arange(len(self)), np.maximum(k - 1, 0)]
        with np.errstate(divide="ignore", invalid="ignore"):
            spread = np.where(others > 0, rest**2 / others, 0.0)
            whole = np.where(least_named > 0, np.floor(rest / least_named), 0.0)
        left = rest - whole * least_named
        most = known + whole * least_named**2 + left**2
        return np.minimum(known + spread, most), most

    def _levelled(self) -> Floats:
        """Return the least sum of squares where the rest may go to any class.

        Water is poured on the smallest probabilities first. Without a number of classes
        it runs off to arbitrarily many, and adds nothing.
        """
        if self.n_classes is None:
            return np.asarray((self.probs**2).sum(1))
        wide = np.zeros((len(self), self.n_classes))
        wide[:, : self.probs.shape[1]] = self.probs
        wide = np.sort(wide, axis=1)
        sums = np.cumsum(wide, axis=1)
        sizes = np.arange(1, self.n_classes + 1)
        levels = (self.rest[:, None] + sums) / sizes
        above = np.concatenate([wide[:, 1:], np.full((len(self), 1), np.inf)], axis=1)
        at = np.argmax(levels <= above, axis=1)
        level = levels[np.arange(len(self)), at]
        return np.asarray((np.maximum(wide, level[:, None]) ** 2).sum(1))


def make_topk(  # noqa: PLR0913 - options, by keyword only
    probs: Any,
    classes: Any,
    labels: Any = None,
    *,
    log: bool = False,
    n_classes: int | None = None,
    open_rest: bool = False,
) -> TopK:
    """Check top-k answers and put them in order; see `Predictions.from_topk`."""
    p, c = _as_arrays(probs, classes)
    if n_classes is not None and (type(n_classes) is not int or n_classes < 2):
        message = f"expected n_classes as a whole number above 1, got {n_classes!r}."
        raise InputError(message)
    beyond = -np.expm1(p) if log else 1 - p
    p = np.exp(p) if log else p
    _check_rows(p, c, n_classes)
    order = np.argsort(-p, axis=1, kind="stable")
    p, c, beyond = (np.take_along_axis(a, order, 1) for a in (p, c, beyond))
    total = p.sum(1, keepdims=True)
    complete = p.shape[1] == n_classes and not open_rest
    whole = (total > 1) | complete
    p = p / np.where(whole, total, 1.0)
    others = p[:, 1:].sum(1)
    sure = np.where(
        whole[:, 0], others, np.maximum(np.clip(beyond[:, 0], 0, 1), others)
    )
    found = TopK(p, c, _known(labels, c, n_classes), sure, n_classes, open_rest)
    _check_rest(found)
    return found


def _as_arrays(probs: Any, classes: Any) -> tuple[Floats, NDArray[np.int64]]:
    try:
        p = np.asarray(to_numpy(probs), np.float64)
        c = np.asarray(to_numpy(classes))
    except (TypeError, ValueError) as error:
        message = f"expected probabilities and classes as numbers (n, k): {error}."
        raise InputError(message) from error
    if p.ndim != 2 or p.shape != c.shape or not p.size or c.dtype.kind not in "iu":
        message = (
            f"expected probabilities (n, k) and classes (n, k) as whole numbers, got "
            f"shapes {p.shape} and {c.shape} ({c.dtype})."
        )
        raise InputError(message)
    return p, c.astype(np.int64)


def _known(
    labels: Any, c: NDArray[np.int64], n_classes: int | None
) -> NDArray[np.int64] | None:
    if labels is None:
        return None
    given = np.asarray(to_numpy(labels))
    width = n_classes
    if width is None and given.dtype.kind in "iu":
        width = max(int(c.max()), int(given.max(initial=0))) + 1
    return as_labels(given, len(c), width or int(c.max()) + 1)


def _check_rest(found: TopK) -> None:
    """Refuse a rest that the classes not named, each below the least, cannot hold."""
    if found.open_rest or found.n_classes is None:
        return
    k = (found.probs > 0).sum(1)
    least = found.probs[np.arange(len(found)), k - 1]
    room = (found.n_classes - k) * least
    over = found.rest > room * (1 + 1e-6) + TOLERANCE
    if over.any():
        row = int(np.argmax(over))
        message = (
            f"row {row} leaves {found.rest[row]:.3g} to {found.n_classes - k[row]} "
            f"classes of at most {least[row]:.3g} each: these are not its best, or "
            "n_classes is too small. Pass open_rest=True if the rest may be anyone's."
        )
        raise InputError(message)


def _check_rows(p: Floats, c: NDArray[np.int64], n_classes: int | None) -> None:
    sums = p.sum(1)
    bad = ~((p >= 0).all(1) & (p.max(1) > 0) & (sums <= 1 + TOLERANCE))
    if bad.any():
        row = int(np.argmax(bad))
        message = (
            f"expected probabilities of 0 or more that sum to at most 1, got "
            f"{p[row].tolist()} in row {row}. Pass log=True for log-probabilities."
        )
        raise InputError(message)
    if c.min() < 0 or (n_classes is not None and c.max() >= n_classes):
        message = (
            f"expected classes from 0 to {n_classes or 'C'} - 1, got {c.min()} to "
            f"{c.max()}."
        )
        raise InputError(message)
    named = np.sort(np.where(p > 0, c, -1 - np.arange(c.shape[1])), axis=1)
    twice = (np.diff(named, axis=1) == 0).any(1)
    if twice.any():
        row = int(np.argmax(twice))
        message = f"expected different classes in a row, row {row} has one twice."
        raise InputError(message)
