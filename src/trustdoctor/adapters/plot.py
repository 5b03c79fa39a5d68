"""Pictures as plain data, and matplotlib that draws them."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trustdoctor.errors import MissingPackageError
from trustdoctor.output import replacing

COLOURS = (
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000",
)  # fmt: skip
"""Okabe and Ito's, which colour-blind people tell apart."""

DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)), "-")

Numbers = tuple[float, ...]


@dataclass(frozen=True)
class Line:
    """A curve, with a band around it where there is one."""

    label: str
    x: Numbers
    y: Numbers
    low: Numbers = ()
    high: Numbers = ()


@dataclass(frozen=True)
class Bars:
    """A histogram: one height between each two edges."""

    label: str
    edges: Numbers
    heights: Numbers
    colour: str


@dataclass(frozen=True)
class Panel:
    """One chart of a picture.

    Attributes
    ----------
    level : float or None
        Where a dashed red line goes across.
    log_x : bool
        Whether x is drawn by its logarithm.
    """

    title: str
    x: str
    y: str
    lines: tuple[Line, ...] = ()
    bars: tuple[Bars, ...] = ()
    level: float | None = None
    log_x: bool = False


@dataclass(frozen=True)
class Picture:
    """Charts side by side, `columns` in a row."""

    name: str
    title: str
    panels: tuple[Panel, ...] = field(repr=False)
    columns: int = 2


def draw(picture: Picture) -> Any:
    """Return the picture as a matplotlib figure."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        message = (
            "pictures need matplotlib, which is not installed: "
            'pip install "trustdoctor[plot]"'
        )
        raise MissingPackageError(message) from error
    columns = min(picture.columns, len(picture.panels))
    rows = -(-len(picture.panels) // columns)
    figure = Figure(figsize=(4.2 * columns, 3.4 * rows), layout="constrained")
    figure.suptitle(picture.title)
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes in grid.flat[len(picture.panels) :]:
        axes.set_axis_off()
    for axes, panel in zip(grid.flat, picture.panels, strict=False):
        _draw_panel(axes, panel)
    return figure


def _draw_panel(axes: Any, panel: Panel) -> None:
    for bars in panel.bars:
        axes.stairs(
            bars.heights,
            bars.edges,
            fill=True,
            alpha=0.55,
            color=bars.colour,
            label=bars.label,
        )
    for i, line in enumerate(panel.lines):
        colour = COLOURS[i % len(COLOURS)]
        style = DASHES[i % len(DASHES)]
        axes.plot(
            line.x, line.y, color=colour, linestyle=style, lw=1.4, label=line.label
        )
        if line.low:
            axes.fill_between(line.x, line.low, line.high, color=colour, alpha=0.15)
    if panel.level is not None:
        axes.axhline(panel.level, color="#c00000", linestyle="--", lw=1)
    if panel.log_x:
        axes.set_xscale("log")
    axes.set_title(panel.title, fontsize=10)
    axes.set_xlabel(panel.x)
    axes.set_ylabel(panel.y)
    if panel.lines or panel.bars:
        axes.legend(fontsize=7, frameon=False)


def save(picture: Picture, path: str | Path) -> None:
    """Write the picture as SVG or PNG, whole or not at all, always the same bytes."""
    import matplotlib as mpl

    figure = draw(picture)
    kind = Path(path).suffix[1:]
    plain = {"Date": None} if kind == "svg" else {"Software": None}
    with replacing(path) as temporary, mpl.rc_context({"svg.hashsalt": picture.name}):
        figure.savefig(temporary, format=kind, dpi=150, metadata=plain)
