"""Pictures as plain data, and matplotlib that draws them.

`plot_histogram`, `plot_roc`, `plot_risk_coverage` and `plot_reliability` take an
`Evaluation`, `plot_cascade` takes a `Cascade`. They return a figure, for a paper;
``figure.savefig("roc.pdf")`` saves it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trustdoctor.arrays import Array
from trustdoctor.atomic import replacing
from trustdoctor.errors import InputError, missing_package
from trustdoctor.evaluation import Evaluation
from trustdoctor.metrics import (
    histogram,
    reliability_bins,
    roc,
    thin_curve,
    threshold_grid,
)
from trustdoctor.opinion import Cascade, Measured
from trustdoctor.predictions import Predictions
from trustdoctor.report.cascade_words import (
    RATES,
    find_view,
    require_measured,
    short_name,
)
from trustdoctor.report.look import COLOURS, DASHES, LIMIT, MARKERS, RIGHT, WRONG
from trustdoctor.visible import visible

Numbers = tuple[float, ...]


@dataclass(frozen=True)
class Line:
    """A curve with a band around it, or points with bars, where there are any."""

    label: str
    x: Numbers
    y: Numbers
    low: Numbers = ()
    high: Numbers = ()
    joined: bool = field(default=True, kw_only=True)


@dataclass(frozen=True)
class Bars:
    """A histogram: one height between each two edges."""

    label: str
    edges: Numbers
    heights: Numbers
    colour: str


@dataclass(frozen=True)
class Dots:
    """Points that are not joined; those one sees through lie below the lines."""

    label: str
    x: Numbers
    y: Numbers
    colour: str
    marker: str = "o"
    size: float = 4.0
    opacity: float = 1.0
    filled: bool = True


@dataclass(frozen=True)
class Panel:
    """One chart of a picture.

    Attributes
    ----------
    level : float or None
        Where a dashed red line goes across.
    dots : tuple of Dots
    upright : float or None
        Where a dashed red line goes upwards.
    view : tuple of two ranges, or None
        Of x and y: what is shown; by default everything.
    log_x, log_y : bool
        Whether it is drawn by its logarithm.
    ticks : tuple of str
        Names of x = 0, 1, ...
    """

    title: str
    x: str
    y: str
    lines: tuple[Line, ...] = ()
    bars: tuple[Bars, ...] = ()
    level: float | None = None
    log_x: bool = False
    log_y: bool = False
    ticks: tuple[str, ...] = ()
    dots: tuple[Dots, ...] = ()
    upright: float | None = None
    view: tuple[tuple[float, float], tuple[float, float]] | None = None


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
        raise missing_package(
            what="drawing pictures", package="matplotlib", extra="plot"
        ) from error
    columns = min(picture.columns, len(picture.panels))
    rows = -(-len(picture.panels) // columns)
    wide = max(4.2, *(0.75 * len(panel.ticks) for panel in picture.panels))
    figure = Figure(figsize=(wide * columns, 3.4 * rows), layout="constrained")
    if picture.title:
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
        _draw_line(axes, line, i)
    for dots in panel.dots:
        _draw_dots(axes, dots)
    _draw_limits(axes, panel)
    if panel.log_x:
        axes.set_xscale("log")
    if panel.log_y:
        axes.set_yscale("log")
    if panel.ticks:
        axes.set_xticks(range(len(panel.ticks)), panel.ticks, fontsize=7)
    axes.set_title(panel.title, fontsize=10)
    axes.set_xlabel(panel.x)
    axes.set_ylabel(panel.y)
    if panel.lines or panel.bars:
        axes.legend(fontsize=7, frameon=False)


def _draw_limits(axes: Any, panel: Panel) -> None:
    for at, line in ((panel.level, axes.axhline), (panel.upright, axes.axvline)):
        if at is not None:
            line(at, color=LIMIT, linestyle="--", lw=1)
    if panel.view is not None:
        axes.set_xlim(*panel.view[0])
        axes.set_ylim(*panel.view[1])


def _draw_dots(axes: Any, dots: Dots) -> None:
    axes.plot(
        dots.x,
        dots.y,
        marker=dots.marker,
        ms=dots.size,
        alpha=dots.opacity,
        color=dots.colour,
        mfc=dots.colour if dots.filled else "white",
        mew=dots.opacity == 1,
        linestyle="none",
        zorder=3 if dots.opacity == 1 else 1,
        label=dots.label,
    )


def _draw_line(axes: Any, line: Line, i: int) -> None:
    colour = COLOURS[i % len(COLOURS)]
    if not line.joined:
        ends = None
        if line.low:
            ends = [
                [y - low for y, low in zip(line.y, line.low, strict=True)],
                [high - y for y, high in zip(line.y, line.high, strict=True)],
            ]
        marker = MARKERS[i % len(MARKERS)]
        axes.errorbar(
            line.x, line.y, ends, fmt=marker, ms=4, color=colour, label=line.label
        )
        return
    style = DASHES[i % len(DASHES)]
    axes.plot(line.x, line.y, color=colour, linestyle=style, lw=1.4, label=line.label)
    if line.low:
        axes.fill_between(line.x, line.low, line.high, color=colour, alpha=0.15)


def save_picture(picture: Picture, path: str | Path) -> None:
    """Write the picture as SVG or PNG, whole or not at all, always the same bytes."""
    import matplotlib as mpl

    figure = draw(picture)
    kind = Path(path).suffix[1:]
    plain = {"Date": None} if kind == "svg" else {"Software": None}
    with replacing(path) as temporary, mpl.rc_context({"svg.hashsalt": picture.name}):
        figure.savefig(temporary, format=kind, dpi=150, metadata=plain)


def plot_histogram(found: Evaluation, *, score: str | None = None) -> Any:
    """Return a figure of a score's values for right and for wrong predictions.

    By default the evaluation's first score.
    """
    name, (scores,) = _named(found, [score] if score else list(found.scores)[:1])
    wrong = _predictions(found).errors
    edges, right, bad = histogram(scores, wrong)
    n = max(1, int((~wrong).sum())), max(1, int(wrong.sum()))
    bars = tuple(
        Bars(label, _tuple(edges), _tuple(heights), colour)
        for label, heights, colour in (
            ("right", right / n[0], RIGHT),
            ("wrong", bad / n[1], WRONG),
        )
    )
    panel = Panel("", f"{name[0]} (doubt)", "share of the rows", bars=bars)
    return draw(Picture("histogram", "", (panel,)))


def plot_roc(found: Evaluation, *, scores: Sequence[str] | None = None) -> Any:
    """Return a figure of TRR over FRR, one curve per score."""
    wrong = _predictions(found).errors
    lines = []
    for name, values in zip(*_named(found, scores), strict=True):
        frr, trr, _ = roc(values, wrong)
        lines.append(Line(name, *map(_tuple, thin_curve(frr, trr))))
    return draw(Picture("roc", "", (Panel("", "FRR", "TRR", tuple(lines)),)))


def plot_risk_coverage(
    found: Evaluation, *, scores: Sequence[str] | None = None
) -> Any:
    """Return a figure of the risk of the accepted rows over coverage."""
    wrong = _predictions(found).errors
    lines = []
    for name, values in zip(*_named(found, scores), strict=True):
        chart = threshold_grid(values, wrong)
        some = chart.coverage > 0
        x, y = chart.coverage[some], chart.risk[some]
        lines.append(Line(name, _tuple(x), _tuple(y)))
    panel = Panel("", "coverage", "risk", tuple(lines))
    return draw(Picture("risk-coverage", "", (panel,)))


def plot_reliability(found: Evaluation) -> Any:
    """Return a figure of accuracy over confidence, with intervals."""
    at = found.settings
    bins = reliability_bins(
        _predictions(found),
        temperature=at.temperature,
        confidence=at.confidence,
        doubts=found.doubts,
    )
    cells = [(b.confidence, b.accuracy) for b in bins]
    columns = zip(*((c, a.value, a.low, a.high) for c, a in cells), strict=True)
    lines = (
        Line("accuracy", *(tuple(column) for column in columns)),
        Line("calibrated", (0.0, 1.0), (0.0, 1.0)),
    )
    panel = Panel("", "confidence", "accuracy", lines)
    return draw(Picture("reliability", "", (panel,)))


def plot_cascade(cascade: Cascade) -> Any:
    """Return a figure of cost against risk: all policies, and each model alone.

    Parameters
    ----------
    cascade : Cascade
        One from `Cascade.calibrate`, which knows what its policies cost.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(0, 3, 3000)
    >>> truth = 4 * np.eye(3)[labels]
    >>> two = [truth + s * rng.normal(size=(3000, 3)) for s in (4, 2)]
    >>> cascade = Cascade.calibrate(two, labels, risk=0.05, costs=[0, 1, 9])
    >>> plot_cascade(cascade).axes[0].get_xlabel()
    'errors among the accepted (risk), %'
    """
    seen, _ = require_measured(cascade)
    view = find_view(seen)
    lines = tuple(
        Line(f"{_label(one.name)} alone", *_columns(seen.curves[one.name]))
        for one in seen.alone
    )
    panel = Panel(
        "",
        f"{RATES[seen.target]}, %",
        "cost per row",
        lines,
        dots=tuple(_policies(seen)),
        upright=100 * seen.limit,
        view=((100 * view.rates[0], 100 * view.rates[1]), view.costs),
    )
    return draw(Picture("cascade", "", (panel,)))


def _policies(seen: Measured) -> Iterator[Dots]:
    """Yield the points of a cascade's picture, the least important first."""
    k = seen.passed
    black = COLOURS[-1]
    yield Dots("policies", *_columns(seen.policies), "#777777", size=2, opacity=0.3)
    yield Dots("tested, passed", *_columns(seen.tested[:k]), black, filled=False)
    if len(seen.tested) > k:
        yield Dots("tested, failed", *_columns(seen.tested[k:]), LIMIT, "x", 5)
    for i, one in enumerate(seen.alone):
        at = (100 * one.rate,), (one.cost.value or 0.0,)
        yield Dots("", *at, COLOURS[i % len(COLOURS)], "s", 6)
    yield Dots("cascade", *_columns(seen.tested[k - 1 : k]), black, "*", 11)


def _columns(points: Array) -> tuple[Numbers, Numbers]:
    """Return rates, in percent, and costs."""
    return _tuple(100 * points[:, 0]), _tuple(points[:, 1])


def _label(name: str) -> str:
    """Return a name that matplotlib shows as it is."""
    shown = visible(short_name(name)).replace("$", r"\$")
    return f" {shown}" if shown.startswith("_") else shown


def _predictions(found: Evaluation) -> Predictions:
    if found.predictions is None:
        message = "this evaluation has no predictions with it; evaluate them again."
        raise InputError(message)
    return found.predictions


def _named(
    found: Evaluation, scores: Sequence[str] | None
) -> tuple[list[str], list[Any]]:
    if isinstance(scores, str):
        message = f"expected a list of scores, got the string {scores!r}. Use [...]."
        raise InputError(message)
    names = list(scores or found.scores)
    missing = [name for name in names if name not in found.scores]
    if missing:
        known = ", ".join(found.scores)
        message = f"expected a score that was evaluated, {known}; got {missing[0]!r}."
        raise InputError(message)
    _predictions(found)
    return names, [found.doubts[name] for name in names]


def _tuple(values: Any) -> Numbers:
    return tuple(float(value) for value in values)
