"""Everything on the page follows the threshold, the score and what is asked."""

import csv
import re
import shlex

import numpy as np
import pytest

import trustdoctor as td


def table(page, name):
    """Return the cells of a table, row by row."""
    lines = page.locator(f"#{name} tbody tr")
    return [
        row.locator("th, td").all_text_contents()
        for row in (lines.nth(i) for i in range(lines.count()))
    ]


def threshold_of(page, note=None):
    """Return the threshold that a table was counted at, or that of the slider."""
    said = page.locator(f"#{note}").text_content() if note else ""
    found = re.match(r"At (-?[\d.e+-]+), the nearest", said)
    return float(
        found[1] if found else page.locator("#threshold").text_content().split()[0]
    )


def shown(part, whole):
    if not whole:
        return "-"
    low, high = td.clopper_pearson(int(part), int(whole))
    return f"{part / whole * 100:.2f} [{low * 100:.2f}, {high * 100:.2f}]"


@pytest.mark.parametrize("score", ["alpha", "entropy", "energy"])
def test_tables_follow_the_slider_and_the_score(score, page, rows):
    page.locator("#score").select_option(score)
    doubts, wrong = getattr(td, score)(rows), rows.errors
    last = int(page.locator("#slider").get_attribute("max"))
    for at in np.linspace(0, last, 20).astype(int):
        page.locator("#slider").fill(str(at))
        kept = doubts <= threshold_of(page, "classes-note")
        for name, n, accuracy, frr, trr, risk in table(page, "classes"):
            own = rows.predicted == int(name)
            assert n == f"{own.sum():,}"
            assert accuracy == shown((own & ~wrong).sum(), own.sum())
            assert frr == shown((own & ~wrong & ~kept).sum(), (own & ~wrong).sum())
            assert trr == shown((own & wrong & ~kept).sum(), (own & wrong).sum())
            assert risk == shown((own & wrong & kept).sum(), (own & kept).sum())
        kept = doubts <= threshold_of(page, "pairs-note")
        pairs, total = table(page, "pairs"), 0
        for label, predicted, through, n in pairs:
            if label != "all others":
                own = (rows.labels == int(label)) & (rows.predicted == int(predicted))
                assert (through, n) == (f"{(own & kept).sum():,}", f"{own.sum():,}")
                assert through != "0"
            total += int(through.replace(",", ""))
        assert total == (wrong & kept).sum()


@pytest.mark.parametrize("score", ["alpha", "entropy", "energy"])
def test_rows_follow_the_score_and_the_threshold(score, page, rows):
    page.locator("#score").select_option(score)
    doubts = getattr(td, score)(rows)
    for kind, own in (("0", rows.errors), ("1", ~rows.errors)):
        page.locator("#kind").select_option(kind)
        if page.locator("#more").is_visible():
            page.locator("#more").click()
        places = np.flatnonzero(own)
        sign = 1 if kind == "0" else -1
        wanted = places[np.lexsort([places, sign * doubts[places]])][:50]
        for at in (0, 300, 10**6):
            page.locator("#slider").fill(str(at))
            cut = threshold_of(page)
            assert table(page, "rows") == [
                [
                    *(str(row), str(rows.labels[row]), str(rows.predicted[row])),
                    f"{doubts[row]:.3f}",
                    "automatic" if doubts[row] <= cut else "a person",
                ]
                for row in wanted
            ]


def test_rows_are_searched_and_saved(page, tmp_path):
    def saved(name):
        with page.expect_download() as waiting:
            page.locator(f"button[data-table={name}]").click()
        waiting.value.save_as(tmp_path / "saved.csv")
        with (tmp_path / "saved.csv").open(encoding="utf-8-sig", newline="") as file:
            return list(csv.reader(file))

    head, *whole = saved("rows")  # all of them, also while ten are shown
    assert head == ["id", "true class", "predicted as", "doubt", "goes to"]
    page.locator("#more").click()
    every = table(page, "rows")
    assert whole == every
    assert len(every) == 50
    some = every[7][0]
    page.locator("#search").fill(some)
    kept = table(page, "rows")
    assert 0 < len(kept) < len(every)
    assert all(some in " ".join(row[:3]) for row in kept)
    assert saved("rows")[1:] == kept
    head, *lines = saved("classes")  # numbers, each in a column of its own
    assert head[:5] == ["class", "rows", "accuracy", "accuracy low", "accuracy high"]
    for line, cells in zip(lines, table(page, "classes"), strict=True):
        assert line[1] == cells[1].replace(",", "")
        assert f"{line[2]} [{line[3]}, {line[4]}]" == cells[2]
        assert all(cell == "-" or float(cell) >= 0 for cell in line[1:] if cell)
    page.complaints.clear()  # the download itself


def test_targets_are_met_together(page, rows):
    doubts, wrong = td.alpha(rows), rows.errors
    page.locator("#want-risk").fill("5")
    page.locator("#want-coverage").fill("30")
    page.keyboard.press("Enter")
    assert page.locator("#message").text_content() == ""
    at = td.confusion(doubts, wrong, threshold=threshold_of(page))
    assert at.risk <= 0.05
    assert at.coverage >= 0.3
    assert "--risk 0.05 --coverage 0.3 " in page.locator("#promise").text_content()


def test_targets_that_conflict_say_how_near_one_gets(page, rows):
    doubts, wrong = td.alpha(rows), rows.errors
    page.locator("#want-risk").fill("1")
    page.locator("#want-coverage").fill("90")
    page.keyboard.press("Enter")
    said = page.locator("#message").text_content()
    assert said.startswith("These targets conflict on these rows")
    risk = td.risk_at_coverage(doubts, wrong, coverage=0.9)
    most = td.coverage_at_risk(doubts, wrong, risk=0.01)
    found = re.findall(r"comes to ([\d.]+)%", said)
    assert float(found[0]) == pytest.approx(100 * risk, abs=0.3)
    assert float(found[1]) == pytest.approx(100 * most, abs=0.3)
    assert "comes nearest" in page.locator("#say-why").text_content()
    assert "expect the command to refuse" in page.locator("#promise-note").inner_text()
    page.locator("#want-coverage").fill("")
    page.keyboard.press("Enter")
    assert page.locator("#message").text_content() == ""
    assert "this one answers the most" in page.locator("#say-why").text_content()


def test_a_budget_is_kept(page, rows):
    page.locator("#value-traffic").fill("2000")
    page.locator("#value-budget").fill("300")
    page.keyboard.press("Enter")
    assert page.locator("#ask-budget").is_checked()
    at = td.confusion(td.alpha(rows), rows.errors, threshold=threshold_of(page))
    assert 0.85 <= at.coverage < 0.86
    assert "--coverage 0.85 " in page.locator("#promise").text_content()
    said = page.locator("#say-why").text_content()
    out = 2000 * at.fa / at.n
    words = f"{out:.1f}" if out < 100 else f"{out:,.0f}"
    assert f"{words} wrong answers would go out" in said


@pytest.mark.parametrize(
    ("field", "text"),
    [
        *(("risk", "0"), ("risk", "100"), ("frr", "-3"), ("frr", ""), ("budget", "0")),
        *(("budget", "2000"), ("traffic", "0"), ("cost", "0"), ("cost", "")),
    ],
)
def test_what_calibrate_refuses_the_page_refuses(field, text, page):
    page.locator(f"#value-{field}").fill(text)
    assert page.locator("#unmet").inner_text().startswith("Give ")
    assert page.locator("#promise").text_content() == ""
    assert page.locator("#answer.stale").count() == 1
    page.locator("#value-risk").fill("5")
    assert page.locator("#unmet").text_content() == ""
    assert "--risk 0.05 " in page.locator("#promise").text_content()
    assert page.locator("#answer.stale").count() == 0


def test_the_answer_follows_every_key(page):
    page.locator("#value-risk").fill("")
    page.locator("#value-risk").press_sequentially("7.5")
    assert "--risk 0.075 " in page.locator("#promise").text_content()


def test_the_slider_keeps_the_kind_of_target(page):
    for key in ("risk", "frr"):
        page.locator("#want-trr").fill("50")
        page.locator(f"#value-{key}").fill("6")
        assert page.locator("#want-trr").input_value() == ""
        page.locator("#slider").fill(
            str(int(page.locator("#slider").input_value()) - 9)
        )
        found = re.search(
            rf"--{key} ([\d.]+) ", page.locator("#promise").text_content()
        )
        own = float(page.locator(f"#{key}").inner_text().split()[0])
        assert 0 <= 100 * float(found[1]) - own < 0.11


@pytest.mark.parametrize("price", [1, 3, 20])
def test_a_price_gives_the_cheapest_threshold(price, page, rows):
    doubts, wrong = td.alpha(rows), rows.errors
    page.locator("#value-cost").fill(str(price))
    page.keyboard.press("Enter")

    def cost(threshold):
        at = td.confusion(doubts, wrong, threshold=threshold)
        return (price * at.fa + at.fr + at.tr) / at.n * 100

    every = [cost(one) for one in np.unique(doubts)]
    own = cost(threshold_of(page))
    assert own <= min(every) + 0.3  # the page has fewer thresholds
    said = page.locator("#say-why").text_content()
    assert f"cost as much as {own:.2f} reviews" in said
    assert f"At {price} review{'s' if price > 1 else ''} per" in said
    top = page.locator("#t-cost tbody tr").last.locator("td").last.text_content()
    assert float(top) == pytest.approx(100 * price * wrong.mean(), abs=0.005)


ASKED = [
    ({"value-risk": "5"}, {"risk": 0.05}),
    ({"value-frr": "10"}, {"frr": 0.1}),
    ({"value-budget": "300"}, {"coverage": 0.7}),
    ({"want-trr": "80"}, {"trr": 0.8}),
    ({"want-risk": "8", "want-coverage": "40"}, {"risk": 0.08, "coverage": 0.4}),
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("typed", "promised"), ASKED)
def test_the_offered_command_promises_what_was_asked(
    typed, promised, page, rows, run, tmp_path
):
    for name, text in typed.items():
        page.locator(f"#{name}").fill(text)
    page.keyboard.press("Enter")
    command = page.locator("#promise").text_content()
    np.savez(tmp_path / "other.npz", logits=rows.logits, labels=rows.labels)
    words = shlex.split(command.replace("OTHER_ROWS", "other.npz"))
    done = run(*words[1:], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    gate = td.Gate.load(tmp_path / "gate.json")
    assert gate.certificate.guarantee
    assert gate.certificate.target == promised


def test_a_cost_is_no_promise(page, rows, run, tmp_path):
    page.locator("#value-cost").fill("7")
    page.keyboard.press("Enter")
    assert "A cost is not a promise" in page.locator("#promise-note").text_content()
    command = page.locator("#promise").text_content()
    assert "--cost 7 " in command
    np.savez(tmp_path / "other.npz", logits=rows.logits, labels=rows.labels)
    words = shlex.split(command.replace("OTHER_ROWS", "other.npz"))
    assert run(*words[1:], cwd=tmp_path).returncode == 0
    assert not td.Gate.load(tmp_path / "gate.json").certificate.guarantee


def test_nothing_is_cut_on_a_phone(found, browser, tmp_path):
    found.to_html(
        tmp_path / "report.html", class_names=[f"class {i}" for i in range(6)]
    )
    context = browser.new_context(viewport={"width": 360, "height": 800})
    opened = context.new_page()
    opened.goto(f"file://{tmp_path / 'report.html'}")
    beyond = opened.evaluate(
        "[...document.querySelectorAll('td, th, .card, pre, input, button')]"
        ".filter(e => e.checkVisibility() && !e.closest('thead') && "
        "e.getBoundingClientRect().right > 360).map(e => e.outerHTML)"
    )
    assert beyond == []
    context.close()


def test_tips_are_whole_and_cover_no_number_on_a_phone(found, browser, tmp_path):
    found.to_html(tmp_path / "report.html")
    context = browser.new_context(viewport={"width": 360, "height": 800})
    opened = context.new_page()
    opened.goto(f"file://{tmp_path / 'report.html'}")
    for name in ("coverage", "risk", "trr", "frr"):
        opened.locator(f'button[aria-describedby="tip-{name}"]').click()
        tip = opened.locator(f"#tip-{name}").bounding_box()
        assert tip["x"] >= 0
        assert tip["x"] + tip["width"] <= 360
        number = opened.locator(f"#{name}").bounding_box()
        assert number["y"] + number["height"] <= tip["y"]
    context.close()


def test_commands_break_between_words_only(browser, found, tmp_path):
    options = ("--labels", "the true one", "--predicted", "what it said")
    found.to_html(tmp_path / "report.html", source="a.csv", options=options)
    context = browser.new_context(viewport={"width": 360, "height": 800})
    opened = context.new_page()
    opened.goto(f"file://{tmp_path / 'report.html'}")
    heights = opened.eval_on_selector_all(
        "#promise .word", "words => words.map(w => w.getClientRects().length)"
    )
    assert len(heights) > 10
    assert set(heights) == {1}
    context.close()
