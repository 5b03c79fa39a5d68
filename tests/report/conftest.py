from dataclasses import replace

import numpy as np
import pytest

import trustdoctor as td
from trustdoctor.opinion import Alone, Measured


@pytest.fixture(scope="session")
def tab(browser):
    """One tab for all pages; it notes errors, messages and requests.

    A context of its own would cost a page three times what it costs to open it.
    """
    context = browser.new_context()
    opened = context.new_page()
    opened.complaints = []
    opened.on("console", lambda m: opened.complaints.append(m.text))
    opened.on("pageerror", lambda e: opened.complaints.append(str(e)))
    opened.on("request", lambda r: opened.complaints.append(r.url))
    yield opened
    context.close()


@pytest.fixture
def visit(tab):
    """A function that opens a file in the tab, as if nothing had been there before."""

    def visit(path, *, width=1280, height=720):
        tab.mouse.move(0, 0)
        tab.goto("about:blank")
        tab.set_viewport_size({"width": width, "height": height})
        tab.complaints.clear()
        tab.goto(f"file://{path}")
        assert tab.complaints.pop(0) == f"file://{path}"
        return tab

    yield visit
    tab.context.clear_permissions()


@pytest.fixture(scope="session")
def axe_tab(browser):
    """A tab in which axe may run its script."""
    context = browser.new_context(bypass_csp=True)
    yield context.new_page()
    context.close()


@pytest.fixture
def violations(axe_tab):
    """A function that opens a file, and returns what hinders a screen reader."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")

    def violations(path, scheme, width):
        axe_tab.emulate_media(color_scheme=scheme)
        axe_tab.set_viewport_size({"width": width, "height": 800})
        axe_tab.goto(f"file://{path}")
        axe_tab.evaluate(
            "document.querySelectorAll('details').forEach(d => d.open = true)"
        )
        assert axe_tab.evaluate("document.documentElement.scrollWidth") <= width
        response = axe.Axe().run(axe_tab).response
        return [(v["id"], v["nodes"][0]["html"]) for v in response["violations"]]

    return violations


@pytest.fixture(scope="module")
def rows():
    """Return a model that errs as often as it says."""
    rng = np.random.default_rng(4)
    logits = 4 * rng.normal(size=(3000, 6))
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(1)
    return td.Predictions.from_logits(logits, labels)


@pytest.fixture(scope="module")
def evaluation(rows):
    return td.evaluate(rows)


@pytest.fixture(scope="module")
def written(evaluation, tmp_path_factory):
    """The page's file."""
    path = tmp_path_factory.mktemp("page") / "report.html"
    evaluation.to_html(path, source="my file.npz", file="my file.npz")
    return path


@pytest.fixture
def page(visit, written):
    """The page, opened; it asks for nothing, and says no error."""
    opened = visit(written)
    yield opened
    assert opened.complaints == []


@pytest.fixture(scope="session")
def three_models():
    """Logits of ever better models, the labels, and which rows are new."""
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 5, 6000)
    truth = 4 * np.eye(5)[labels]
    every = [truth + s * rng.normal(size=truth.shape) for s in (2.6, 2.0, 1.6)]
    return every, labels


@pytest.fixture(scope="session")
def calibrated(three_models):
    """A cascade with lists, set by half of the rows."""
    every, labels = three_models
    return td.Cascade.calibrate(
        [logits[:3000] for logits in every[:2]],
        labels[:3000],
        risk=0.05,
        costs=[0, 1, 10],
        names=["small", "large"],
        shortlist=0.9,
    )


@pytest.fixture
def by_hand(calibrated):
    """A cascade whose figures can be worked out on paper: 75% + 13% + 12%."""
    curve = np.array([[0.0, 9.0], [0.03, 2.0], [0.09, 0.5]])
    alone = (
        Alone("small", td.Estimate(1.69, 1.6, 1.78), 0.049, 0.169, _more(0.24, 0.1)),
        Alone("large", td.Estimate(2.36, 2.3, 2.42), 0.048, 0.136, _more(0.91, 0.8)),
    )
    measured = Measured(
        "risk",
        0.05,
        2000,
        1000,
        Alone("cascade", td.Estimate(1.45, 1.35, 1.55), 0.0412, 0.12),
        alone,
        (1.0, 0.25),
        np.array([[0.02, 3.0], [0.06, 1.1], [0.14, 2.5], [0.01, 9.5]]),
        np.array([[0.01, 4.0], [0.03, 2.0], [0.0412, 1.45], [0.052, 1.2]]),
        3,
        {"small": curve, "large": curve + np.array([0, 1])},
    )
    return replace(
        calibrated, thresholds=(-2.5, -1.25), costs=(0.0, 1.0, 10.0), measured=measured
    )


def _more(value, low):
    return td.Estimate(value, low, 2 * value - low)
