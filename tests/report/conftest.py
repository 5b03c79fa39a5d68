from dataclasses import replace

import numpy as np
import pytest

import trustdoctor as td
from trustdoctor.opinion import Alone, Measured


@pytest.fixture(scope="module")
def tab(browser):
    """One tab for all pages; it notes errors, messages and requests."""
    context = browser.new_context(bypass_csp=False)
    opened = context.new_page()
    opened.complaints = []
    opened.on("console", lambda m: opened.complaints.append(m.text))
    opened.on("pageerror", lambda e: opened.complaints.append(str(e)))
    opened.on("request", lambda r: opened.complaints.append(r.url))
    yield opened
    context.close()


@pytest.fixture(scope="module")
def rows():
    """Return a model that errs as often as it says."""
    rng = np.random.default_rng(4)
    logits = 4 * rng.normal(size=(3000, 6))
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(1)
    return td.Predictions.from_logits(logits, labels)


@pytest.fixture(scope="module")
def found(rows):
    return td.evaluate(rows)


@pytest.fixture(scope="module")
def written(found, tmp_path_factory):
    """The page's file."""
    path = tmp_path_factory.mktemp("page") / "report.html"
    found.to_html(path, source="my file.npz", file="my file.npz")
    return path


@pytest.fixture
def page(browser, written):
    """The page opened in a browser that notes errors and requests."""
    context = browser.new_context()
    opened = context.new_page()
    opened.complaints = []
    opened.on("console", lambda m: opened.complaints.append(m.text))
    opened.on("pageerror", lambda e: opened.complaints.append(str(e)))
    opened.on("request", lambda r: opened.complaints.append(r.url))
    opened.goto(f"file://{written}")
    assert opened.complaints.pop(0).startswith("file://")
    yield opened
    assert opened.complaints == []
    context.close()


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
    seen = Measured(
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
        calibrated, thresholds=(-2.5, -1.25), costs=(0.0, 1.0, 10.0), measured=seen
    )


def _more(value, low):
    return td.Estimate(value, low, 2 * value - low)
