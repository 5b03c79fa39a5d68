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
def found(rng):
    logits = 2 * rng.normal(size=(400, 4))
    labels = rng.integers(0, 4, 400)
    return td.evaluate(
        td.Predictions.from_logits(logits, labels), scores=["alpha", "msp"]
    )


def test_every_chart_of_the_page_is_a_figure_for_a_paper(found):
    (axes,) = plot_roc(found).axes
    frr, trr, _ = td.roc(td.msp(found.predictions), found.predictions.errors)
    x, y = axes.lines[1].get_data()
    np.testing.assert_allclose(np.interp(x + y, frr + trr, trr), y, atol=1e-9)
    (axes,) = plot_histogram(found, score="msp").axes
    assert axes.get_xlabel() == "msp (doubt)"
    (axes,) = plot_histogram(found).axes
    assert axes.get_xlabel() == "alpha (doubt)"
    (axes,) = plot_risk_coverage(found, scores=["alpha"]).axes
    assert axes.lines[0].get_ydata()[-1] == found.predictions.errors.mean()
    (axes,) = plot_reliability(found).axes
    assert len(axes.lines) == 2
    with pytest.raises(InputError, match="Use"):
        plot_roc(found, scores="alpha")
    with pytest.raises(InputError, match="evaluate them again"):
        plot_roc(replace(found, predictions=None))
