"""The page of a comparison, as text and in a browser."""

import numpy as np
import pytest
from injections import INJECTIONS

import trustdoctor as td


@pytest.fixture(scope="module")
def compared(rows):
    return td.compare(rows)


@pytest.fixture
def opened(visit, compared, tmp_path):
    tab = visit(compared.to_html(tmp_path / "compare.html", source="rows.npz"))
    yield tab
    assert tab.complaints == []


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
    page = compared.to_html(source=INJECTIONS[0])
    assert len(page.encode()) < 100_000
    assert "https://" not in page
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")
    assert page == compared.to_html(source=INJECTIONS[0])


def test_without_a_file_no_command_is_offered(compared):
    assert "Make the gate" not in compared.to_html()
    assert 'id="command"' in compared.to_html(file="a.csv")


@pytest.mark.parametrize("name", ["rows.npz", "-"])
def test_a_page_is_not_written_over_its_rows(name, rows, run, tmp_path):
    np.savez(tmp_path / "rows.npz", logits=rows.logits, labels=rows.labels)
    assert run("compare", "rows.npz", "--html", name, cwd=tmp_path).returncode == 2


def test_one_candidate_makes_a_page(rng):
    confidence = rng.random(500)
    p = td.Predictions.from_confidence(confidence, rng.random(500) < confidence)
    page = td.compare(p).to_html()
    assert "there is nothing to compare" in page
    assert 'id="gains"' not in page
