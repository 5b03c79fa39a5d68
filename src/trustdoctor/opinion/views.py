"""Views: other forms of the same input, asked about once more.

A view changes the inputs in a way that leaves their label as it is, and that the model
was trained to survive. A view of a row never depends on the other rows.
"""

import re
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from trustdoctor.arrays import Array, to_numpy
from trustdoctor.errors import InputError
from trustdoctor.metrics import auroc
from trustdoctor.predictions import Opinions

LAYOUTS = ("NCHW", "NHWC", "NHW")


@dataclass(frozen=True)
class View:
    """A change of inputs that keeps their labels.

    Attributes
    ----------
    name : str
        The name in gates and reports.
    function : callable
        From inputs (n, ...) or a list of n texts to as many others.

    Examples
    --------
    >>> View("twice", lambda x: 2 * x)(np.array([1.0, 2.0]))
    array([2., 4.])
    """

    name: str
    function: Callable[[Any], Any]

    def __call__(self, inputs: Any) -> Any:
        """Return the inputs, changed."""
        changed = self.function(inputs)
        if not hasattr(changed, "__len__"):
            message = (
                f"the view {self.name} returned {type(changed).__name__}, not rows."
            )
            raise InputError(message)
        if len(changed) != len(inputs):
            message = (
                f"the view {self.name} made {len(changed)} rows of {len(inputs)}. A "
                "view returns one row for each row."
            )
            raise InputError(message)
        return changed


def as_views(views: Sequence[Any]) -> tuple[View, ...]:
    """Return views; other callables get their own names. Refuse a name used twice."""
    if not isinstance(views, (list, tuple)):
        message = f"expected a list of views, got {type(views).__name__}."
        raise InputError(message)
    named = [
        view
        if isinstance(view, View)
        else View(getattr(view, "__name__", "view"), view)
        for view in views
    ]
    if not named or not all(callable(view.function) for view in named):
        message = "expected at least one view: a View, or a function of the inputs."
        raise InputError(message)
    names = [view.name for view in named]
    if len(set(names)) < len(names):
        duplicate = next(name for name in names if names.count(name) > 1)
        message = (
            f"two views are called {duplicate!r}. Name them: View(name, function)."
        )
        raise InputError(message)
    return tuple(named)


def image_views(
    n: int = 5, *, layout: str = "NCHW", shift: int | None = None
) -> list[View]:
    """Return views of images: a flip, shifts, and flipped shifts.

    Shifts reflect at the edge. The flip comes first, since it tells the most; then a
    flipped shift and a plain one take turns. Every eight of them go another step.

    Parameters
    ----------
    n : int
        How many: 5 gain most of what 9 do.
    layout : str
        "NCHW" (torch), "NHWC" or "NHW".
    shift : int, optional
        The first step in pixels; by default a sixteenth of the side, which is 2 of 32.

    Examples
    --------
    >>> images = np.arange(3.0).reshape(1, 1, 1, 3)
    >>> image_views(1)[0](images)
    array([[[[2., 1., 0.]]]])
    >>> [view.name for view in image_views(3)]
    ['flip', 'flip right', 'down']
    """
    if layout not in LAYOUTS:
        message = f"expected a layout out of {', '.join(LAYOUTS)}, got {layout!r}."
        raise InputError(message)
    if type(n) is not int or n < 1:
        message = f"expected 1 view or more, got {n!r}."
        raise InputError(message)
    if shift is not None and not (type(shift) is int and shift >= 1):
        message = f"expected a shift of 1 pixel or more, got {shift!r}."
        raise InputError(message)
    size = "" if shift is None else f" by {shift}"
    views = [View("flip", partial(_move, layout=layout, mirror=True))]
    while len(views) < n:
        steps, place = divmod(len(views) - 1, len(_MOVES))
        mirror, direction = _MOVES[place]
        down, right = (step * (steps + 1) for step in _DIRECTIONS[direction])
        further = f" {steps + 1} times" if steps else ""
        name = f"{'flip ' if mirror else ''}{direction}{further}{size}"
        move = partial(_move, layout=layout, down=down, right=right, shift=shift)
        views.append(View(name, partial(move, mirror=mirror)))
    return views


_DIRECTIONS = {"right": (0, 1), "left": (0, -1), "down": (1, 0), "up": (-1, 0)}
"""How far down and to the right one step goes."""

_MOVES = (
    *((True, "right"), (False, "down"), (True, "left"), (False, "up")),
    *((True, "down"), (False, "right"), (True, "up"), (False, "left")),
)
"""Whether a view is flipped, and where it is shifted, in the order of the views."""


def _move(  # noqa: PLR0913 - one place that moves images
    images: Any,
    *,
    layout: str,
    down: int = 0,
    right: int = 0,
    shift: int | None = None,
    mirror: bool = False,
) -> Any:
    """Shift and mirror images by picking rows and columns; edges reflect."""
    shape = tuple(getattr(images, "shape", ()))
    if len(shape) != len(layout):
        message = f"expected images {layout} in one array, got shape {shape}."
        raise InputError(message)
    for axis, step in ((layout.index("H"), down), (layout.index("W"), right)):
        side = int(images.shape[axis])
        size = max(1, round(side / 16)) if shift is None else shift
        if abs(step) * size >= side:
            message = (
                f"expected a shift below the side of {side}, got {abs(step) * size}."
            )
            raise InputError(message)
        indices = np.abs(np.arange(side) - step * size)
        indices = np.where(indices >= side, 2 * (side - 1) - indices, indices)
        mirrored = mirror and layout[axis] == "W"
        if mirrored:
            indices = indices[::-1]
        if step or mirrored:
            # torch takes no array of negative strides, which [::-1] makes
            indices = np.ascontiguousarray(np.clip(indices, 0, side - 1))
            images = _pick(images, indices, axis)
    return images


def _pick(images: Any, indices: Any, axis: int) -> Any:
    if hasattr(images, "index_select"):  # a torch tensor; then torch is imported
        import torch

        return images.index_select(axis, torch.from_numpy(indices).to(images.device))
    return np.take(images, indices, axis)


def text_views(*, window: int | None = None, paraphrase: Any = None) -> list[View]:
    """Return views of texts: case, punctuation, white space, and windows of words.

    Parameters
    ----------
    window : int, optional
        Also ask about the first `window` words, and about the last ones.
    paraphrase : callable, optional
        A function of a text that says the same in other words.

    Examples
    --------
    >>> [view(["Good,  really!"])[0] for view in text_views()]
    ['good,  really!', 'Good  really', 'Good, really!']
    """
    views = [
        View("lower case", partial(_each, str.lower)),
        View("no punctuation", partial(_each, _no_punctuation)),
        View("single spaces", partial(_each, _single_spaces)),
    ]
    if window is not None:
        if not (isinstance(window, int) and window >= 1):
            message = f"expected a window of at least one word, got {window!r}."
            raise InputError(message)
        first = partial(_words, first=0, last=window)
        last = partial(_words, first=-window, last=None)
        views.append(View("first words", partial(_each, first)))
        views.append(View("last words", partial(_each, last)))
    if paraphrase is not None:
        views.append(View("paraphrase", partial(_each, paraphrase)))
    return views


def _each(function: Callable[[str], str], texts: Any) -> list[str]:
    return [function(text) for text in texts]


def _no_punctuation(text: str) -> str:
    return text.translate(str.maketrans("", "", string.punctuation))


def _single_spaces(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def _words(text: str, first: int, last: int | None) -> str:
    return " ".join(text.split()[first:last])


def table_views(
    train: Any, *, count: int = 4, noise: float = 0.05, seed: int = 0
) -> list[View]:
    """Return views of rows of a table: noise scaled to the training columns.

    Each view adds one vector to every row, drawn once, so that a row's views are the
    same in any batch. Columns of two values or fewer stay as they are.

    Parameters
    ----------
    train : array (n, d)
        The rows that the model was trained on.
    count : int
    noise : float
        In standard deviations of each column.
    seed : int

    Examples
    --------
    >>> rows = np.arange(12.0).reshape(4, 3)
    >>> table_views(rows, noise=0.0)[0](rows).shape
    (4, 3)
    """
    names, columns = _numeric_columns(train)
    valid = type(count) is int and count >= 1 and isinstance(noise, (int, float))
    shape = columns.shape
    if columns.ndim != 2 or len(columns) < 2 or not (valid and 0 <= noise < np.inf):
        message = (
            f"expected training rows (n, d), a count of 1 or more and noise of 0 or "
            f"more, got shape {shape}, {count!r} and {noise!r}."
        )
        raise InputError(message)
    rng = np.random.default_rng(seed)
    spread = np.array([_spread(column[np.isfinite(column)]) for column in columns.T])
    offsets = noise * spread * rng.normal(size=(count, shape[1]))
    settings = f"{noise:g}, seed {seed}"
    return [
        View(f"noise {i + 1} ({settings})", partial(_add, offsets[i], names))
        for i in range(count)
    ]


def _numeric_columns(table: Any) -> tuple[list[Any] | None, Any]:
    """Return the names of the numeric columns, None without names, and the values."""
    if hasattr(table, "select_dtypes"):  # pandas
        numeric = table.select_dtypes("number")
        return list(numeric.columns), numeric.to_numpy(np.float64)
    array = to_numpy(table)
    if array.dtype.kind not in "fiub":
        message = f"expected numbers in the table, got {array.dtype}."
        raise InputError(message)
    return None, array.astype(np.float64)


def _spread(column: Any) -> float:
    """Return a column's standard deviation; 0 for a flag or a constant."""
    return float(column.std()) if len(np.unique(column)) > 2 else 0.0


def _add(offset: Any, names: list[Any] | None, rows: Any) -> Any:
    """Return rows of a table with an offset added to their numeric columns."""
    if names is not None and hasattr(rows, "iloc"):  # pandas
        moved = rows.copy()
        moved[names] = rows[names] + offset
        return moved
    if hasattr(rows, "new_tensor"):  # torch
        return rows + rows.new_tensor(offset.tolist())
    array = np.asarray(rows)
    if array.ndim != 2 or array.shape[1] != len(offset):
        message = f"expected rows of {len(offset)} columns, got {array.shape}."
        raise InputError(message)
    # float32 stays float32: models refuse rows of another type
    dtype = array.dtype if array.dtype.kind == "f" else np.dtype(np.float64)
    return (array + offset).astype(dtype)


@dataclass(frozen=True)
class ViewCheck:
    """The effect of one view on the answers.

    Attributes
    ----------
    name : str
    agreement : float
        The share of rows whose answer is that of the clean input.
    confidence : float
        The model's mean confidence on the view, less that on the clean input.
    accuracy : float or None
        The accuracy of the view's answers, less that of the clean ones, if labels are
        known.
    auroc : float or None
        The AUROC of clean input and this view together, less that of the clean input
        alone.
    keep : bool
        False if the view costs more than a point of accuracy and finds no more errors
        (without labels: a point of confidence), or if it changes nothing.
    reason : str
        Why to drop it.
    """

    name: str
    agreement: float
    confidence: float
    accuracy: float | None
    auroc: float | None
    keep: bool
    reason: str = ""


def check_views(opinions: Opinions, names: Sequence[str]) -> list[ViewCheck]:
    """Report the effect of each view on the model's answers."""
    clean, checks = opinions.predictions, []
    confidence = opinions.confidence
    for k, name in enumerate(names, start=1):
        answers = opinions.answers[:, k]
        agreement = float((answers == clean.predicted).mean())
        gained_confidence = float(confidence[:, k].mean() - confidence[:, 0].mean())
        gained_accuracy = gained_auroc = None
        reason = "" if gained_confidence > -0.01 else "the model is less sure of it"
        if clean.labels is not None:
            errors = answers != clean.labels
            gained_accuracy = float(clean.errors.mean() - errors.mean())
            if clean.errors.any() and not clean.errors.all():
                gained_auroc = auroc(_pair_doubts(opinions, k), clean.errors) - auroc(
                    opinions.doubts[:, 0], clean.errors
                )
            finds_no_more = gained_auroc is None or gained_auroc <= 0
            harms = gained_accuracy <= -0.01 and finds_no_more
            reason = "it costs accuracy and finds no errors" if harms else ""
        same = np.allclose(confidence[:, k], confidence[:, 0], atol=1e-6)
        if same and agreement == 1:
            reason = reason or "it changes nothing"
        checks.append(
            ViewCheck(
                name,
                agreement,
                gained_confidence,
                gained_accuracy,
                gained_auroc,
                keep=not reason,
                reason=reason,
            )
        )
    return checks


def _pair_doubts(opinions: Opinions, k: int) -> Array:
    """Return doubts from clean input and one view: its own confidence in the label."""
    agrees = opinions.answers[:, k] == opinions.predictions.predicted
    # Away from 0 and 1, so that no doubt is infinite and two of them can cancel.
    confidence = np.clip(opinions.confidence[:, k], 1e-12, 1 - 1e-12)
    log_odds = np.log((1 - confidence) / confidence)
    return np.asarray(opinions.doubts[:, 0] + np.where(agrees, log_odds, -log_odds))
