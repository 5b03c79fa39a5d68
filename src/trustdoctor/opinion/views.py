"""Views: the same input, asked about once more in another form.

A view changes the inputs in a way that leaves their label as it is, and that the model
was trained to survive. A view of a row never depends on the other rows.
"""

import re
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trustdoctor.arrays import to_numpy
from trustdoctor.errors import InputError

LAYOUTS = ("NCHW", "NHWC", "NHW")


@dataclass(frozen=True)
class View:
    """A change of inputs that keeps their labels.

    Attributes
    ----------
    name : str
        What gates and reports call it.
    function : callable
        Inputs (n, ...) or a list of n texts to as many others.

    Examples
    --------
    >>> View("twice", lambda x: 2 * x)(np.array([1.0, 2.0]))
    array([2., 4.])
    """

    name: str
    function: Callable[[Any], Any]

    def __call__(self, inputs: Any) -> Any:
        """Return the inputs as this view has them."""
        changed = self.function(inputs)
        if not hasattr(changed, "__len__"):
            message = (
                f"the view {self.name} returned {type(changed).__name__}, not rows."
            )
            raise InputError(message)
        if len(changed) != len(inputs):
            message = (
                f"the view {self.name} made {len(changed)} rows of {len(inputs)}. A "
                "view returns one row per row."
            )
            raise InputError(message)
        return changed


def as_views(views: Sequence[Any]) -> tuple[View, ...]:
    """Name callables that are not views yet, and refuse two of one name."""
    if not isinstance(views, (list, tuple)):
        message = f"expected a list of views, got {type(views).__name__}."
        raise InputError(message)
    out = [
        view
        if isinstance(view, View)
        else View(getattr(view, "__name__", "view"), view)
        for view in views
    ]
    if not out or not all(callable(view.function) for view in out):
        message = "expected at least one view: a View, or a function of the inputs."
        raise InputError(message)
    names = [view.name for view in out]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        message = f"two views are called {twice!r}. Name them: View(name, function)."
        raise InputError(message)
    return tuple(out)


def image_views(
    count: int = 5, *, layout: str = "NCHW", shift: int | None = None
) -> list[View]:
    """Return views of images: a flip, shifts, and flipped shifts.

    Shifts reflect at the edge. The flip comes first: it says the most.

    Parameters
    ----------
    count : int
        1 (the flip), 5 (and two shifts, two flipped shifts) or 9 (four and four).
    layout : str
        "NCHW" (torch), "NHWC" or "NHW".
    shift : int, optional
        In pixels; by default a sixteenth of the side, which is 2 of 32.

    Examples
    --------
    >>> images = np.arange(3.0).reshape(1, 1, 1, 3)
    >>> image_views(1)[0](images)
    array([[[[2., 1., 0.]]]])
    """
    if layout not in LAYOUTS or count not in (1, 5, 9):
        message = (
            f"expected a layout out of {', '.join(LAYOUTS)} and 1, 5 or 9 views, got "
            f"{layout!r} and {count!r}."
        )
        raise InputError(message)
    if shift is not None and not (type(shift) is int and shift >= 1):
        message = f"expected a shift of 1 pixel or more, got {shift!r}."
        raise InputError(message)
    size = "" if shift is None else f" by {shift}"
    across, along = [(0, 1), (0, -1)], [(1, 0), (-1, 0)]
    flipped, plain = (across, along) if count > 1 else ([], [])
    if count == 9:
        flipped, plain = across + along, along + across
    views = [View("flip", _mover(layout, 0, 0, shift, mirror=True))]
    for still, turned in zip(plain, flipped, strict=True):
        for mirror, move in ((True, turned), (False, still)):
            name = f"{'flip ' if mirror else ''}{_NAMES[move]}{size}"
            views.append(View(name, _mover(layout, *move, shift, mirror=mirror)))
    return views


_NAMES = {(0, 1): "right", (0, -1): "left", (1, 0): "down", (-1, 0): "up"}


def _mover(
    layout: str, down: int, right: int, shift: int | None, *, mirror: bool
) -> Callable[[Any], Any]:
    return lambda x: _move(x, layout, down, right, shift, mirror=mirror)


def _move(  # noqa: PLR0913 - one place that moves images
    x: Any, layout: str, down: int, right: int, shift: int | None, *, mirror: bool
) -> Any:
    """Shift and mirror images by picking rows and columns; edges reflect."""
    shape = tuple(getattr(x, "shape", ()))
    if len(shape) != len(layout):
        message = f"expected images {layout} in one array, got shape {shape}."
        raise InputError(message)
    for axis, step in ((layout.index("H"), down), (layout.index("W"), right)):
        side = int(x.shape[axis])
        size = max(1, round(side / 16)) if shift is None else shift
        if size >= side and step:
            message = f"expected a shift below the side of {side}, got {size}."
            raise InputError(message)
        at = np.abs(np.arange(side) - step * size)
        at = np.where(at >= side, 2 * (side - 1) - at, at)
        if mirror and layout[axis] == "W":
            at = at[::-1]
        if step or (mirror and layout[axis] == "W"):
            x = _pick(x, np.ascontiguousarray(np.clip(at, 0, side - 1)), axis)
    return x


def _pick(x: Any, at: Any, axis: int) -> Any:
    if hasattr(x, "index_select"):  # torch, without importing it
        import torch

        return x.index_select(axis, torch.from_numpy(at).to(x.device))
    return np.take(x, at, axis)


def text_views(*, window: int | None = None, paraphrase: Any = None) -> list[View]:
    """Return views of texts: case, punctuation, white space, and windows of words.

    Parameters
    ----------
    window : int, optional
        Also ask about the first and about the last so many words.
    paraphrase : callable, optional
        A function of a text that says the same in other words.

    Examples
    --------
    >>> [view(["Good,  really!"])[0] for view in text_views()]
    ['good,  really!', 'Good  really', 'Good, really!']
    """
    views = [
        View("lower case", _each(str.lower)),
        View("no punctuation", _each(_no_punctuation)),
        View("single spaces", _each(_single_spaces)),
    ]
    if window is not None:
        if not (isinstance(window, int) and window >= 1):
            message = f"expected a window of at least one word, got {window!r}."
            raise InputError(message)
        views.append(View("first words", _each(lambda t: _words(t, 0, window))))
        views.append(View("last words", _each(lambda t: _words(t, -window, None))))
    if paraphrase is not None:
        views.append(View("paraphrase", _each(paraphrase)))
    return views


def _each(function: Callable[[str], str]) -> Callable[[Any], list[str]]:
    return lambda texts: [function(text) for text in texts]


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
    same in any batch. Columns of two values or fewer are left alone.

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
    names, x = _numbers(train)
    known = type(count) is int and count >= 1 and isinstance(noise, (int, float))
    if x.ndim != 2 or len(x) < 2 or not (known and 0 <= noise < np.inf):
        message = (
            f"expected training rows (n, d), a count of 1 or more and noise of 0 or "
            f"more, got shape {x.shape}, {count!r} and {noise!r}."
        )
        raise InputError(message)
    rng = np.random.default_rng(seed)
    spread = np.array([_spread(column[np.isfinite(column)]) for column in x.T])
    offsets = noise * spread * rng.normal(size=(count, x.shape[1]))
    what = f"{noise:g}, seed {seed}"
    return [
        View(f"noise {i + 1} ({what})", _adder(offsets[i], names)) for i in range(count)
    ]


def _numbers(table: Any) -> tuple[list[Any] | None, Any]:
    """Return the numeric columns, by name where the table has names."""
    if hasattr(table, "select_dtypes"):  # pandas
        part = table.select_dtypes("number")
        return list(part.columns), part.to_numpy(np.float64)
    array = to_numpy(table)
    if array.dtype.kind not in "fiub":
        message = f"expected numbers in the table, got {array.dtype}."
        raise InputError(message)
    return None, array.astype(np.float64)


def _spread(column: Any) -> float:
    return float(column.std()) if len(np.unique(column)) > 2 else 0.0


def _adder(offset: Any, names: list[Any] | None) -> Callable[[Any], Any]:
    def add(rows: Any) -> Any:
        if names is not None and hasattr(rows, "iloc"):
            moved = rows.copy()
            moved[names] = rows[names] + offset
            return moved
        if hasattr(rows, "new_tensor"):  # torch
            return rows + rows.new_tensor(offset.tolist())
        array = np.asarray(rows)
        if array.ndim != 2 or array.shape[1] != len(offset):
            message = f"expected rows of {len(offset)} columns, got {array.shape}."
            raise InputError(message)
        kind = array.dtype if array.dtype.kind == "f" else np.dtype(np.float64)
        return (array + offset).astype(kind)

    return add
