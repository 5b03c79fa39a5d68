"""The page of a cascade, as text and in a browser."""

import html
import json
import re
from dataclasses import replace

import numpy as np
import pytest
from injections import INJECTIONS

import trustdoctor as td
from trustdoctor.errors import InputError
from trustdoctor.report import render_cascade

STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def show(tab, cascade, folder, width=1280):
    """Open the page of a cascade; it asks for nothing, and says no error."""
    path = folder / "cascade.html"
    path.write_text(render_cascade(cascade))
    tab.set_viewport_size({"width": width, "height": 800})
    tab.complaints.clear()
    tab.goto(f"file://{path}")
    assert tab.complaints == [f"file://{path}"]
    return tab


def table(tab, name):
    return tab.evaluate(
        "id => [...document.querySelectorAll(`#${id} tbody tr`)]"
        ".map(row => [...row.cells].map(cell => cell.textContent))",
        name,
    )


def test_plain_words_come_first(by_hand):
    page = html.unescape(render_cascade(by_hand))
    verdict = re.search(r'id="verdict".*?</div>', page, re.DOTALL)[0]
    assert (
        "large is asked about 25.0% of the rows, a person gets 12.0%. That costs 1.45 "
        "per row; small alone 1.69, large alone 2.36."
    ) in verdict
    assert (
        "Promise: at most 5% errors among the accepted, with confidence 0.9." in verdict
    )
    assert "these costs are slightly optimistic" in page
    certificate = by_hand.certificate
    for words in (certificate.rule, certificate.assumption, *certificate.notes[:2]):
        assert words in page
    assert f"{certificate.observed['risk'].percent()} %" in page


def test_shortlists_and_their_promise_are_shown_if_present(by_hand):
    page = html.unescape(render_cascade(by_hand))
    promise = by_hand.shortlist.promise()
    assert page.count(promise[1:]) == 1
    least = np.exp(-by_hand.shortlist.rule.threshold)
    assert f"every class of probability {least:.2g} or more" in page
    shorter = replace(by_hand.shortlist, max_size=2)
    page = render_cascade(replace(by_hand, shortlist=shorter))
    assert "A list of more than 2 becomes a full review" in page
    assert "Short lists" not in render_cascade(replace(by_hand, shortlist=None))


def test_tables_have_the_numbers_worked_out_on_paper(by_hand, tab, tmp_path):
    show(tab, by_hand, tmp_path)
    assert table(tab, "costs") == [
        ["The cascade", "1.45 [1.35, 1.55]", "", "12.00%", "4.12%"],
        ["small alone", "1.69 [1.60, 1.78]", "+0.24 [+0.10, +0.38]", "16.90%", "4.90%"],
        ["large alone", "2.36 [2.30, 2.42]", "+0.91 [+0.80, +1.02]", "13.60%", "4.80%"],
    ]
    assert table(tab, "stages") == [
        ["small", "alpha at most -2.5", "0", "0.00"],
        ["large", "alpha at most -1.25", "1", "0.25"],
        ["a person", "always", "10", "1.20"],
        ["together", "", "", "1.45"],
    ]
    assert tab.locator(".flow li").all_inner_texts() == [
        "small: asked about 100.0%, 75.0% stop",
        "large: asked about 25.0%, 13.0% stop",
        "a person: gets 12.0%",
    ]
    bars = tab.evaluate(
        "[...document.querySelectorAll('.track')].map(track => {"
        "const whole = track.getBoundingClientRect();"
        "const bar = track.firstElementChild.getBoundingClientRect();"
        "return [(bar.left - whole.left) / whole.width, bar.width / whole.width]; })"
    )
    np.testing.assert_allclose(bars, [[0, 0.75], [0.75, 0.13], [0.88, 0.12]], atol=0.01)


def test_the_pictures_table_has_every_point(calibrated, tab, tmp_path):
    show(tab, calibrated, tmp_path)
    rows, measured = table(tab, "t-picture"), calibrated.measured
    n_tested = len(measured.tested)
    first = f"policy {measured.passed} of {n_tested} tested: passed, the cascade"
    rate, cost = measured.tested[measured.passed - 1]
    assert rows[0] == [first, f"{100 * rate:.2f}", f"{cost:.2f}"]
    for row, model in zip(rows[1:3], measured.alone, strict=True):
        label = f"{model.name} alone, with its own gate"
        assert row == [label, f"{100 * model.rate:.2f}", f"{model.cost.value:.2f}"]
    curves = sum(map(len, measured.curves.values()))
    assert len(rows) == 2 + len(measured.tested) + curves + len(measured.policies)
    untested = [row[1:] for row in rows if row[0] == "policy, not tested"]
    expected = np.column_stack([100 * measured.policies[:, 0], measured.policies[:, 1]])
    np.testing.assert_allclose(np.array(untested, float), expected, atol=0.0051)
    failed = [row for row in rows if row[0].endswith("failed")]
    assert len(failed) == len(measured.tested) - measured.passed


def scales(tab):
    """Return functions from places to values, read back from the axis labels."""
    at = tab.evaluate(
        "[...document.querySelectorAll('#picture > text:not([class], [transform])')]"
        ".map(t => [t.getAttribute('text-anchor'), Number(t.getAttribute('x')),"
        " Number(t.getAttribute('y')), Number(t.textContent)])"
        ".filter(t => !Number.isNaN(t[3]))"
    )
    x = [(row[1], row[3]) for row in at if row[0] == "middle"]
    y = [(row[2] - 4, row[3]) for row in at if row[0] == "end"]
    return [np.poly1d(np.polyfit(*np.array(pairs).T, 1)) for pairs in (x, y)]


def test_the_picture_is_drawn_to_scale(by_hand, tab, tmp_path):
    show(tab, by_hand, tmp_path)
    x, y = scales(tab)
    limit = tab.locator("#picture path.limit").get_attribute("d")
    assert x(float(re.match(r"M(\S+) ", limit)[1])) == pytest.approx(5)

    def places(selector, *names):
        return tab.evaluate(
            "([selector, names]) => [...document.querySelectorAll(selector)].map("
            "one => names.map(name => Number(one.getAttribute(name))))",
            [f"#picture {selector}", list(names)],
        )

    ((cx, cy),) = places("circle.dot", "cx", "cy")
    assert [x(cx), y(cy)] == pytest.approx([4.12, 1.45])
    passed = [[x(cx), y(cy)] for cx, cy in places("circle.tested", "cx", "cy")]
    np.testing.assert_allclose(passed, [[1, 4], [3, 2], [4.12, 1.45]])
    assert tab.locator("#picture path.failed").count() == 1
    squares = [[x(a + 4), y(b + 4)] for a, b in places("rect.square", "x", "y")]
    np.testing.assert_allclose(squares, [[4.9, 1.69], [4.8, 2.36]])
    dots = tab.locator("#picture path.policies").get_attribute("d")
    points = [
        [x(float(a)), y(float(b))] for a, b in re.findall(r"M(\S+) (\S+)h0", dots)
    ]
    np.testing.assert_allclose(points, [[2, 3], [6, 1.1]], atol=0.03)  # others: outside
    assert tab.locator("#picture path.curve").count() == 2
    curve = tab.locator("#picture path.curve.s2").get_attribute("d")
    points = [
        [x(float(a)), y(float(b))] for a, b in re.findall(r"([-\d.]+) ([-\d.]+)", curve)
    ]
    np.testing.assert_allclose(points, [[0, 10], [3, 3], [9, 1.5]], atol=0.03)


def test_points_are_described_under_the_pointer_and_by_the_slider(
    by_hand, tab, tmp_path
):
    show(tab, by_hand, tmp_path)
    note = tab.locator("#at-picture")
    rate = "errors among the accepted (risk)"
    chosen = f"Policy 3 of 4 tested: passed, the cascade: {rate} 4.12%, cost 1.45"
    assert note.inner_text() == f"{chosen} per row"
    tab.locator("#walk").focus()
    tab.keyboard.press("ArrowRight")
    assert note.inner_text().startswith(f"Policy 4 of 4 tested: failed: {rate} 5.20%")
    spoken = tab.locator("#walk").get_attribute("aria-valuetext")
    assert spoken == f"policy 4 of 4 tested: failed: {rate} 5.20%, cost 1.20 per row"
    tab.locator("#picture rect.square.s2").hover()
    assert note.inner_text().startswith(f"Large alone, with its own gate: {rate} 4.80%")
    tab.locator("#h-costs").hover()
    assert note.inner_text().startswith("Policy 4 of 4")


@pytest.mark.sampled(4)
@pytest.mark.parametrize("target", [{"trr": 0.75}, {"joint": 0.05}])
@pytest.mark.parametrize("combine", ["average", "own"])
def test_other_promises_look_right_on_a_telephone(
    target, combine, three_models, tab, tmp_path
):
    every, labels = three_models
    cascade = td.Cascade.calibrate(
        every, labels, costs=[0.001, 0.002, 0.003, 0.05], combine=combine, **target
    )
    show(tab, cascade, tmp_path, width=360)
    assert tab.evaluate("document.documentElement.scrollWidth") <= 360
    words = {
        "trr": "errors not caught (1 - TRR)",
        "joint": "wrong and accepted, of all",
    }
    heads = tab.locator("#costs thead th").all_text_contents()
    assert words[next(iter(target))] in heads[-1]
    assert tab.locator("#picture circle.dot").count() == 1
    assert "NaN" not in tab.content().partition("<script")[0]


def test_a_single_model_is_a_cascade_too(three_models, tab, tmp_path):
    every, labels = three_models
    cascade = td.Cascade.calibrate(every[:1], labels, risk=0.1, costs=[1, 10])
    show(tab, cascade, tmp_path, width=360)
    verdict = tab.locator("#verdict").inner_text()
    assert verdict.startswith("Only stage 1 is asked, a person gets ")


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("scheme", "width"), [("light", 360), ("dark", 1280)])
def test_the_page_is_accessible_to_a_screen_reader(
    scheme, width, violations, calibrated, tmp_path
):
    measured = calibrated.measured
    alone = tuple(
        replace(model, more=td.Estimate(0.0, -1.0, 1.0)) for model in measured.alone
    )
    fewer_policies = replace(measured, alone=alone, policies=measured.policies[:50])
    (tmp_path / "cascade.html").write_text(
        render_cascade(replace(calibrated, measured=fewer_policies))
    )
    assert violations(tmp_path / "cascade.html", scheme, width) == []


def test_hostile_names_are_text_and_run_nothing(three_models, tab, tmp_path):
    every, labels = three_models
    names = [*INJECTIONS, "x" * 600]
    cascade = td.Cascade.calibrate(
        [every[i % 3] for i in range(6)],
        labels,
        risk=0.05,
        costs=[0, 1, 1, 1, 1, 1, 10],
        names=names,
    )
    page = render_cascade(cascade)
    assert not STEERING.search(html.unescape(page))
    show(tab, cascade, tmp_path, width=360)
    assert tab.evaluate("window.hacked") is None
    assert tab.locator("img").count() == 0
    body = tab.locator("body").inner_text()
    assert all(name in body for name in (*INJECTIONS[:3], INJECTIONS[4], "\\u202egnp"))
    assert tab.evaluate("document.documentElement.scrollWidth") <= 360
    for place in range(0, 300, 60):
        tab.locator("#picture").hover(position={"x": 60 + place, "y": 100})
    assert tab.evaluate("window.hacked") is None


def test_it_is_one_small_file_of_the_same_bytes(calibrated, tmp_path):
    page = render_cascade(calibrated)
    assert page == render_cascade(calibrated)
    calibrated.save(tmp_path / "cascade.json")
    assert page == render_cascade(td.Cascade.load(tmp_path / "cascade.json"))
    assert len(page.encode()) < 200_000
    assert "https://" not in page
    assert "http://" not in page.replace('"http://www.w3.org/2000/svg"', "")
    assert len(re.findall("<script", page)) == 2  # the data, and one that runs
    assert len(re.findall("<style", page)) == 1
    data = json.loads(re.search(r'type="application/json">(.*?)</script>', page)[1])
    assert data["passed"] == calibrated.measured.passed


def test_a_cascade_without_costs_has_no_page():
    bare = td.Cascade(("small", "large"), (-2.0, -1.0), (0.0, 1.0, 10.0))
    with pytest.raises(InputError, match="made by hand"):
        render_cascade(bare)
