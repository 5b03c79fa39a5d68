import sys
from dataclasses import replace

import numpy as np
import pytest

import trustdoctor as td
from trustdoctor.errors import InputError, MissingPackageError
from trustdoctor.report import (
    Bars,
    Line,
    Panel,
    Picture,
    plot_cascade,
    plot_histogram,
    plot_reliability,
    plot_risk_coverage,
    plot_roc,
    save_picture,
)
from trustdoctor.report.figures import draw


@pytest.fixture
def picture():
    line = Line("a", (0.1, 1.0), (0.0, 1.0), (0.0, 0.9), (0.1, 1.0))
    bars = Bars("right", (0.0, 1.0, 2.0), (0.5, 0.5), "#0072b2")
    panels = (
        Panel("curve", "x", "y", (line,), level=0.95, log_x=True),
        Panel("bars", "x", "y", bars=(bars,)),
        Panel("empty", "x", "y"),
    )
    return Picture("two", "A title", panels)


def test_a_picture_is_drawn_as_described(picture):
    axes = draw(picture).axes
    assert [a.get_title() for a in axes] == ["curve", "bars", "empty", ""]
    assert axes[0].get_xscale() == "log"
    assert axes[0].lines[0].get_xydata().tolist() == [[0.1, 0.0], [1.0, 1.0]]
    assert axes[0].lines[1].get_ydata()[0] == 0.95
    assert [t.get_text() for t in axes[1].get_legend().get_texts()] == ["right"]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("suffix", [".svg", ".png"])
def test_the_same_picture_has_the_same_bytes(suffix, picture, tmp_path):
    paths = [tmp_path / f"{i}{suffix}" for i in range(2)]
    for path in paths:
        save_picture(picture, path)
    first, second = (path.read_bytes() for path in paths)
    assert first == second
    assert first[:4] in (b"<?xm", b"\x89PNG")


def test_matplotlib_is_named_where_it_is_missing(monkeypatch, picture):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(
        MissingPackageError, match=r"drawing pictures needs matplotlib.*\[plot\]"
    ):
        draw(picture)


@pytest.fixture
def evaluation(rng):
    logits = 2 * rng.normal(size=(400, 4))
    labels = rng.integers(0, 4, 400)
    return td.evaluate(
        td.Predictions.from_logits(logits, labels), scores=["alpha", "msp"]
    )


def test_every_chart_of_the_page_is_a_figure_for_a_paper(evaluation):
    (axes,) = plot_roc(evaluation).axes
    frr, trr, _ = td.roc(td.msp(evaluation.predictions), evaluation.predictions.errors)
    x, y = axes.lines[1].get_data()
    np.testing.assert_allclose(np.interp(x + y, frr + trr, trr), y, atol=1e-9)
    (axes,) = plot_histogram(evaluation, score="msp").axes
    assert axes.get_xlabel() == "msp (doubt)"
    (axes,) = plot_histogram(evaluation).axes
    assert axes.get_xlabel() == "alpha (doubt)"
    (axes,) = plot_risk_coverage(evaluation, scores=["alpha"]).axes
    assert axes.lines[0].get_ydata()[-1] == evaluation.predictions.errors.mean()
    (axes,) = plot_reliability(evaluation).axes
    assert len(axes.lines) == 2
    with pytest.raises(InputError, match="Use"):
        plot_roc(evaluation, scores="alpha")
    with pytest.raises(InputError, match="evaluate them again"):
        plot_roc(replace(evaluation, predictions=None))


def points(axes, label):
    (line,) = [line for line in axes.lines if line.get_label() == label]
    return line.get_xydata()


def test_a_cascade_is_drawn_as_cost_against_risk(by_hand):
    (axes,) = plot_cascade(by_hand).axes
    assert axes.get_xlabel() == "errors among the accepted (risk), %"
    measured = by_hand.measured
    np.testing.assert_allclose(points(axes, "cascade"), [[4.12, 1.45]])
    np.testing.assert_allclose(
        points(axes, "tested, passed"), [[1, 4], [3, 2], [4.12, 1.45]]
    )
    np.testing.assert_allclose(points(axes, "tested, failed"), [[5.2, 1.2]])
    np.testing.assert_allclose(points(axes, "policies"), measured.policies * [100, 1])
    curve = points(axes, "large alone")
    np.testing.assert_allclose(curve, measured.curves["large"] * [100, 1])
    squares = [line for line in axes.lines if line.get_marker() == "s"]
    lines = [line for line in axes.lines if line.get_label().endswith("alone")]
    gates = [[4.9, 1.69], [4.8, 2.36]]
    for square, line, at in zip(squares, lines, gates, strict=True):
        np.testing.assert_allclose(square.get_xydata(), [at])
        assert square.get_color() == line.get_color()
    assert any(np.allclose(line.get_xdata(), 5) for line in axes.lines)  # the limit
    assert axes.get_xlim() == (0, 10)
    shown = [text.get_text() for text in axes.get_legend().get_texts()]
    assert shown[:2] == ["small alone", "large alone"]


def test_names_are_not_formulas_in_a_figure(by_hand, tmp_path):
    odd = ("_$\\frac$", "two$x^")
    measured = by_hand.measured
    alone = tuple(
        replace(model, name=name)
        for model, name in zip(measured.alone, odd, strict=True)
    )
    curves = dict(zip(odd, measured.curves.values(), strict=True))
    measured = replace(measured, alone=alone, curves=curves)
    figure = plot_cascade(replace(by_hand, stages=odd, measured=measured))
    figure.savefig(tmp_path / "cascade.svg")
    shown = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert [name.strip() for name in shown[:2]] == [
        "_\\$\\frac\\$ alone",
        "two\\$x^ alone",
    ]
