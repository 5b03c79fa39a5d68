"""Pictures as plain data, and matplotlib that draws them.

`plot_histogram`, `plot_roc`, `plot_risk_coverage` and `plot_reliability` take an
`Evaluation`, `plot_cascade` takes a `Cascade`. They return a figure, for a paper;
``figure.savefig("roc.pdf")`` saves it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trustdoctor.arrays import Array
from trustdoctor.atomic import replacing
from trustdoctor.errors import InputError, missing_package
from trustdoctor.evaluation import Benchmark, Evaluation
from trustdoctor.gates import LabelPlan
from trustdoctor.metrics import (
    histogram,
    reliability_bins,
    roc,
    thin_curve,
    threshold_grid,
)
from trustdoctor.opinion import Cascade, Measured
from trustdoctor.predictions import Predictions
from trustdoctor.report.cascade_page import (
    LIMITED_RATES,
    require_measured,
    short_name,
    visible_range,
)
from trustdoctor.report.theme import COLOURS, DASHES, LIMIT, MARKERS, RIGHT, WRONG
from trustdoctor.visible import visible

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Numbers = tuple[float, ...]


@dataclass(frozen=True)
class Line:
    """A curve, or points that are not joined, with intervals if there are any."""

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
    """Points that are not joined; transparent ones lie below the lines."""

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


def draw(picture: Picture) -> "Figure":
    """Return the picture as a matplotlib figure."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise missing_package(
            what="drawing pictures", package="matplotlib", extra="plot"
        ) from error
    columns = min(picture.columns, len(picture.panels))
    rows = -(-len(picture.panels) // columns)
    width = max(4.2, *(0.75 * len(panel.ticks) for panel in picture.panels))
    figure = Figure(figsize=(width * columns, 3.4 * rows), layout="constrained")
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
    for value, draw_at in ((panel.level, axes.axhline), (panel.upright, axes.axvline)):
        if value is not None:
            draw_at(value, color=LIMIT, linestyle="--", lw=1)
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
        whiskers = None
        if line.low:
            whiskers = [
                [y - low for y, low in zip(line.y, line.low, strict=True)],
                [high - y for y, high in zip(line.y, line.high, strict=True)],
            ]
        marker = MARKERS[i % len(MARKERS)]
        axes.errorbar(
            line.x, line.y, whiskers, fmt=marker, ms=4, color=colour, label=line.label
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
    file_format = Path(path).suffix[1:]
    # Without its date and version, the same picture is always the same bytes.
    metadata = {"Date": None} if file_format == "svg" else {"Software": None}
    with replacing(path) as temporary, mpl.rc_context({"svg.hashsalt": picture.name}):
        figure.savefig(temporary, format=file_format, dpi=150, metadata=metadata)


def plot_histogram(evaluation: Evaluation, *, score: str | None = None) -> "Figure":
    """Return a figure of a score's values for right and for wrong predictions.

    By default the evaluation's first score.
    """
    names = [score] if score else list(evaluation.scores)[:1]
    ((name, scores),) = _doubts(evaluation, names)
    errors = _predictions(evaluation).errors
    edges, right, wrong = histogram(scores, errors)
    n_right, n_wrong = max(1, int((~errors).sum())), max(1, int(errors.sum()))
    bars = (
        Bars("right", _floats(edges), _floats(right / n_right), RIGHT),
        Bars("wrong", _floats(edges), _floats(wrong / n_wrong), WRONG),
    )
    panel = Panel("", f"{name} (doubt)", "share of the rows", bars=bars)
    return draw(Picture("histogram", "", (panel,)))


def plot_roc(
    evaluation: Evaluation, *, scores: Sequence[str] | None = None
) -> "Figure":
    """Return a figure of TRR over FRR, one curve per score."""
    errors = _predictions(evaluation).errors
    lines = []
    for name, doubts in _doubts(evaluation, scores):
        frr, trr, _ = roc(doubts, errors)
        lines.append(Line(name, *map(_floats, thin_curve(frr, trr))))
    return draw(Picture("roc", "", (Panel("", "FRR", "TRR", tuple(lines)),)))


def plot_risk_coverage(
    evaluation: Evaluation, *, scores: Sequence[str] | None = None
) -> "Figure":
    """Return a figure of the risk of the accepted rows over coverage."""
    errors = _predictions(evaluation).errors
    lines = []
    for name, doubts in _doubts(evaluation, scores):
        grid = threshold_grid(doubts, errors)
        accepts = grid.coverage > 0
        coverage, risk = grid.coverage[accepts], grid.risk[accepts]
        lines.append(Line(name, _floats(coverage), _floats(risk)))
    panel = Panel("", "coverage", "risk", tuple(lines))
    return draw(Picture("risk-coverage", "", (panel,)))


def plot_reliability(evaluation: Evaluation) -> "Figure":
    """Return a figure of accuracy over confidence, with intervals."""
    settings = evaluation.settings
    bins = reliability_bins(
        _predictions(evaluation),
        temperature=settings.temperature,
        confidence=settings.confidence,
        doubts=evaluation.doubts,
    )
    points = [
        (b.confidence, b.accuracy.value, b.accuracy.low, b.accuracy.high) for b in bins
    ]
    lines = (
        Line("accuracy", *(tuple(column) for column in zip(*points, strict=True))),
        Line("calibrated", (0.0, 1.0), (0.0, 1.0)),
    )
    panel = Panel("", "confidence", "accuracy", lines)
    return draw(Picture("reliability", "", (panel,)))


def plot_cascade(cascade: Cascade) -> "Figure":
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
    measured, _ = require_measured(cascade)
    shown = visible_range(measured)
    lines = tuple(
        Line(
            f"{_plain_label(model.name)} alone",
            *_rates_and_costs(measured.curves[model.name]),
        )
        for model in measured.alone
    )
    panel = Panel(
        "",
        f"{LIMITED_RATES[measured.target]}, %",
        "cost per row",
        lines,
        dots=tuple(_policy_dots(measured)),
        upright=100 * measured.limit,
        view=((100 * shown.rates[0], 100 * shown.rates[1]), shown.costs),
    )
    return draw(Picture("cascade", "", (panel,)))


def plot_benchmark(benchmark: Benchmark, *, metric: str = "auroc") -> "Figure":
    """Return a figure of what each score gains over the baseline, on every model.

    Parameters
    ----------
    benchmark : Benchmark
    metric : str
        "auroc", "frr_at_trr", "aurc" or "augrc".

    Examples
    --------
    >>> import numpy as np
    >>> import trustdoctor as td
    >>> z = 3 * np.random.default_rng(0).normal(size=(600, 4))
    >>> p = Predictions.from_logits(z, np.where(z.max(1) > 2, z.argmax(1), 0))
    >>> result = td.benchmark({"a": p, "b": p[:500]}, scores=["alpha"], splits=2)
    >>> plot_benchmark(result).axes[0].get_ylabel()
    'AUROC less that of msp, points'
    """
    benchmark.model_table(metric)  # refuses other metrics
    names = [name for name in benchmark.scores if name != benchmark.baseline]
    gaps = [benchmark.mean_difference(name, metric) for name in names]
    places = range(len(names))
    mean = Line(
        "mean over models, with its interval",
        _floats(places),
        _floats(100 * (gap.value or 0.0) for gap in gaps),
        _floats(100 * (gap.low or 0.0) for gap in gaps) if gaps[0].low else (),
        _floats(100 * (gap.high or 0.0) for gap in gaps) if gaps[0].low else (),
        joined=False,
    )
    of_models = Dots(
        "one model",
        _floats(place for place in places for _ in benchmark.models),
        _floats(
            100
            * (
                results[name].values[metric]
                - results[benchmark.baseline].values[metric]
            )
            for name in names
            for results in benchmark.models.values()
        ),
        "#777777",
        size=3,
        opacity=0.5,
    )
    title = benchmark.table().columns[metric].partition(" against ")[0]
    panel = Panel(
        "",
        "",
        f"{title} less that of {benchmark.baseline}, points",
        (mean,),
        level=0.0,
        ticks=tuple(name.replace("_", "\n").replace(":", "\n") for name in names),
        dots=(of_models,),
    )
    return draw(Picture("benchmark", "", (panel,)))


def plot_plan(plan: LabelPlan) -> "Figure":
    """Return a figure of coverage against labels, with bands, and of the chance.

    Examples
    --------
    >>> import numpy as np
    >>> import trustdoctor as td
    >>> logits = np.arange(1.0, 301.0)[:, None] / 50 * [1.0, 0.0]
    >>> p = Predictions.from_logits(logits, logits[:, 0] < 0.5)
    >>> plot_plan(td.plan(p, risk=0.1)).axes[0].get_xlabel()
    'labels'
    """
    labels = _floats(o.rows for o in plan.outlooks)
    coverage = Line(
        "coverage of gates that decide (four of five within)",
        labels,
        _floats(100 * o.median for o in plan.outlooks),
        _floats(100 * o.low for o in plan.outlooks),
        _floats(100 * o.high for o in plan.outlooks),
        joined=False,
    )
    chance = Line(
        "calibrations that decide",
        labels,
        _floats(100 * o.decides for o in plan.outlooks),
    )
    title = f"{plan.target} {plan.value:g}"
    panel = Panel(title, "labels", "%", (chance, coverage), log_x=True)
    return draw(Picture("plan", "", (panel,)))


def _policy_dots(measured: Measured) -> Iterator[Dots]:
    """Yield the points of a cascade's picture, the least important first."""
    tested, k = measured.tested, measured.passed
    black = COLOURS[-1]
    policies = _rates_and_costs(measured.policies)
    yield Dots("policies", *policies, "#777777", size=2, opacity=0.3)
    yield Dots("tested, passed", *_rates_and_costs(tested[:k]), black, filled=False)
    if len(tested) > k:
        yield Dots("tested, failed", *_rates_and_costs(tested[k:]), LIMIT, "x", 5)
    for i, model in enumerate(measured.alone):
        rate, cost = (100 * model.rate,), (model.cost.value or 0.0,)
        yield Dots("", rate, cost, COLOURS[i % len(COLOURS)], "s", 6)
    yield Dots("cascade", *_rates_and_costs(tested[k - 1 : k]), black, "*", 11)


def _rates_and_costs(points: Array) -> tuple[Numbers, Numbers]:
    """Return the rates of points, in percent, and their costs."""
    return _floats(100 * points[:, 0]), _floats(points[:, 1])


def _plain_label(name: str) -> str:
    """Return a name that matplotlib shows as it is."""
    # $ would begin a formula, and a leading _ hides a label from the legend.
    label = visible(short_name(name)).replace("$", r"\$")
    return f" {label}" if label.startswith("_") else label


def _predictions(evaluation: Evaluation) -> Predictions:
    if evaluation.predictions is None:
        message = "this evaluation has no predictions with it; evaluate them again."
        raise InputError(message)
    return evaluation.predictions


def _doubts(
    evaluation: Evaluation, scores: Sequence[str] | None
) -> list[tuple[str, Array]]:
    """Return the names of scores and the doubts of the rows; by default of all."""
    if isinstance(scores, str):
        message = f"expected a list of scores, got the string {scores!r}. Use [...]."
        raise InputError(message)
    names = list(scores or evaluation.scores)
    missing = [name for name in names if name not in evaluation.scores]
    if missing:
        evaluated = ", ".join(evaluation.scores)
        message = (
            f"expected a score that was evaluated, {evaluated}; got {missing[0]!r}."
        )
        raise InputError(message)
    _predictions(evaluation)
    return [(name, evaluation.doubts[name]) for name in names]


def _floats(values: Any) -> Numbers:
    return tuple(float(value) for value in values)
