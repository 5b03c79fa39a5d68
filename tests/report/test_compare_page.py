"""The page of a comparison, as text and in a browser."""

import html
import re
import shlex

import numpy as np
import polars as pl
import pytest
from hostile import STEERED
from scipy.special import softmax

import trustdoctor as td


@pytest.fixture(scope="module")
def compared(rows):
    return td.compare(rows)


@pytest.fixture
def opened(tab, compared, tmp_path):
    path = compared.to_html(tmp_path / "compare.html", source="rows.npz")
    tab.goto(f"file://{path}")
    tab.complaints[:] = tab.complaints[1:]
    yield tab
    assert tab.complaints == []
    tab.complaints.clear()


def test_the_page_has_the_numbers_of_the_comparison(compared, opened):
    text = opened.locator("#candidates").text_content()
    for c in compared.candidates:
        assert c.auroc.percent() in text
    shown = opened.locator("#t-gains tbody tr").all_text_contents()
    assert shown == [
        c.name + c.auroc_gain.percent(sign=True) for c in compared.candidates[1:]
    ]
    assert opened.locator("#verdict").text_content() == compared.verdict()
    assert opened.locator("#gains .dot").count() == len(compared.candidates) - 1


@pytest.mark.parametrize("width", [360, 1280])
def test_it_fits_the_screen(width, opened):
    opened.set_viewport_size({"width": width, "height": 800})
    assert opened.evaluate("document.documentElement.scrollWidth") <= width


def test_it_is_one_file_that_runs_nothing_else(compared):
    page = compared.to_html(source=STEERED[0])
    assert len(page.encode()) < 100_000
    assert "https://" not in page
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")
    assert page == compared.to_html(source=STEERED[0])


def offered(page):
    """Return the command of a page."""
    marked = re.search(r'<code id="command">(.*?)</code>', page)[1]
    return html.unescape(re.sub(r"<.*?>", "", marked))


def test_the_offered_command_names_the_columns(rows, run, tmp_path):
    words = [f"class {label}" for label in rows.labels]
    said = [f"class {label}" for label in rows.predicted]
    sure = softmax(rows.logits, axis=1).max(1)
    table = pl.DataFrame({"the truth": words, "it said": said, "how sure": sure})
    table.write_csv(tmp_path / "rows.csv")
    names = ("--labels", "the truth", "--predicted", "it said")
    names += ("--confidence", "how sure")
    done = run("compare", "rows.csv", *names, "--html", "c.html", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    command = offered((tmp_path / "c.html").read_text())
    words = shlex.split(command.replace("OTHER_ROWS", "rows.csv"))[1:]
    assert run(*words, cwd=tmp_path).returncode == 0


def test_the_offered_command_runs(rows, run, tmp_path):
    np.savez(tmp_path / "rows.npz", logits=rows.logits, labels=rows.labels)
    done = run("compare", "rows.npz", "--html", "c.html", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Wrote c.html" in done.stdout
    page = (tmp_path / "c.html").read_text()
    assert "SHA-256" in page
    command = offered(page)
    fits = re.search(r"<code>(trustdoctor compare .*?)</code>", page)
    if fits:
        assert run(*shlex.split(fits[1])[1:], cwd=tmp_path).returncode == 0
    words = shlex.split(command.replace("OTHER_ROWS", "rows.npz"))[1:]
    assert run(*words, cwd=tmp_path).returncode == 0
    risk = td.Gate.load(tmp_path / "gate.json").certificate.target["risk"]
    assert rows.errors.mean() / 4 < risk <= rows.errors.mean() / 2
    for wrong in ("rows.npz", "-"):
        assert run("compare", "rows.npz", "--html", wrong, cwd=tmp_path).returncode == 2


def test_one_candidate_makes_a_page(rng):
    confidence = rng.random(500)
    p = td.Predictions.from_confidence(confidence, rng.random(500) < confidence)
    page = td.compare(p).to_html()
    assert "there is nothing to compare" in page
    assert 'id="gains"' not in page
