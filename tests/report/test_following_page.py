"""Everything on the page follows the threshold, the score and the targets."""

import csv
import re
import shlex

import numpy as np
import pytest

import trustdoctor as td
from trustdoctor.report.offers import about_place, make_offers


def table(page, name):
    """Return the cells of a table, row by row."""
    lines = page.locator(f"#{name} tbody tr")
    return [
        row.locator("th, td").all_text_contents()
        for row in (lines.nth(i) for i in range(lines.count()))
    ]


def threshold_of(page, note=None):
    """Return the threshold that a table was counted at, or that of the slider."""
    note_text = page.locator(f"#{note}").text_content() if note else ""
    match = re.match(r"At (-?[\d.e+-]+), the nearest", note_text)
    return float(
        match[1] if match else page.locator("#threshold").text_content().split()[0]
    )


def shown(count, total):
    if not total:
        return "-"
    low, high = td.clopper_pearson(int(count), int(total))
    return f"{count / total * 100:.2f} [{low * 100:.2f}, {high * 100:.2f}]"


@pytest.mark.sampled(3)
@pytest.mark.parametrize("score", ["alpha", "entropy", "energy"])
def test_tables_follow_the_slider_and_the_score(score, page, rows):
    page.locator("#score").select_option(score)
    doubts, wrong = getattr(td, score)(rows), rows.errors
    last = int(page.locator("#slider").get_attribute("max"))
    for at in np.linspace(0, last, 20).astype(int):
        page.locator("#slider").fill(str(at))
        accepted = doubts <= threshold_of(page, "classes-note")
        for name, n, accuracy, frr, trr, risk in table(page, "classes"):
            matching = rows.predicted == int(name)
            assert n == f"{matching.sum():,}"
            assert accuracy == shown((matching & ~wrong).sum(), matching.sum())
            assert frr == shown(
                (matching & ~wrong & ~accepted).sum(), (matching & ~wrong).sum()
            )
            assert trr == shown(
                (matching & wrong & ~accepted).sum(), (matching & wrong).sum()
            )
            assert risk == shown(
                (matching & wrong & accepted).sum(), (matching & accepted).sum()
            )
        accepted = doubts <= threshold_of(page, "pairs-note")
        pairs, total = table(page, "pairs"), 0
        for label, predicted, through, n in pairs:
            if label != "all others":
                matching = (rows.labels == int(label)) & (
                    rows.predicted == int(predicted)
                )
                assert (through, n) == (
                    f"{(matching & accepted).sum():,}",
                    f"{matching.sum():,}",
                )
                assert through != "0"
            total += int(through.replace(",", ""))
        assert total == (wrong & accepted).sum()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("score", ["alpha", "entropy", "energy"])
def test_rows_follow_the_score_and_the_threshold(score, page, rows):
    page.locator("#score").select_option(score)
    doubts = getattr(td, score)(rows)
    for kind, is_kind in (("0", rows.errors), ("1", ~rows.errors)):
        page.locator("#kind").select_option(kind)
        if page.locator("#more").is_visible():
            page.locator("#more").click()
        places = np.flatnonzero(is_kind)
        sign = 1 if kind == "0" else -1
        expected = places[np.lexsort([places, sign * doubts[places]])][:50]
        for at in (0, 300, 10**6):
            page.locator("#slider").fill(str(at))
            cut = threshold_of(page)
            assert table(page, "rows") == [
                [
                    *(str(row), str(rows.labels[row]), str(rows.predicted[row])),
                    f"{doubts[row]:.3f}",
                    "automatic" if doubts[row] <= cut else "a person",
                ]
                for row in expected
            ]


def test_rows_are_searched_and_saved(page, tmp_path):
    def saved(name):
        with page.expect_download() as waiting:
            page.locator(f"button[data-table={name}]").click()
        waiting.value.save_as(tmp_path / "saved.csv")
        with (tmp_path / "saved.csv").open(encoding="utf-8-sig", newline="") as file:
            return list(csv.reader(file))

    head, *saved_rows = saved("rows")  # all of them, also while ten are shown
    assert head == ["id", "true class", "predicted as", "doubt", "goes to"]
    page.locator("#more").click()
    every = table(page, "rows")
    assert saved_rows == every
    assert len(every) == 50
    search_text = every[7][0]
    page.locator("#search").fill(search_text)
    shown_rows = table(page, "rows")
    assert 0 < len(shown_rows) < len(every)
    assert all(search_text in " ".join(row[:3]) for row in shown_rows)
    assert saved("rows")[1:] == shown_rows
    head, *lines = saved("classes")  # numbers, each in a separate column
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


def test_targets_that_conflict_say_how_near_one_gets(page, rows):
    doubts, wrong = td.alpha(rows), rows.errors
    page.locator("#want-risk").fill("1")
    page.locator("#want-coverage").fill("90")
    page.keyboard.press("Enter")
    message = page.locator("#message").text_content()
    assert message.startswith("These targets conflict on these rows")
    risk = td.risk_at_coverage(doubts, wrong, coverage=0.9)
    most = td.coverage_at_risk(doubts, wrong, risk=0.01)
    rates = re.findall(r"comes to ([\d.]+)%", message)
    assert float(rates[0]) == pytest.approx(100 * risk, abs=0.3)
    assert float(rates[1]) == pytest.approx(100 * most, abs=0.3)
    assert "comes nearest" in page.locator("#say-why").text_content()
    page.locator("#want-coverage").fill("")
    page.keyboard.press("Enter")
    assert page.locator("#message").text_content() == ""
    assert "this one answers the most" in page.locator("#say-why").text_content()


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("target", "value"),
    [("risk", "0.03"), ("frr", "0.1"), ("coverage", "0.8"), ("coverage", "0.99")],
)
@pytest.mark.parametrize("score", ["alpha", "energy"])
def test_a_question_is_answered_by_the_library(target, value, score, page, rows):
    """The page's words and its threshold are those of simulated calibrations."""
    page.locator("#score").select_option(score)
    page.locator(f"#value-{target}").select_option(value)
    assert page.locator(f"#ask-{target}").is_checked()
    doubts, wrong = getattr(td, score)(rows), rows.errors
    offers = make_offers(doubts, wrong, count_rows=score == "alpha")
    (offer,) = [o for o in offers if (o.target, o.value) == (target, float(value))]
    assert page.locator("#say-gate").text_content() == offer.headline
    assert page.locator("#say-simulated").text_content() == offer.detail
    assert page.locator("#say-why").text_content() == about_place(offer)
    at = td.confusion(doubts, wrong, threshold=threshold_of(page))
    if offer.coverage is not None:
        assert at.coverage == pytest.approx(offer.coverage, abs=0.01)
    command = page.locator("#promise").text_content()
    assert f"--{target} {float(value)!r} --score {score} " in command


def test_moving_the_slider_changes_no_promise(page):
    names = ("say-gate", "say-simulated", "promise")
    before = [page.locator(f"#{name}").text_content() for name in names]
    page.locator("#slider").fill("3")
    page.locator("#want-trr").fill("50")
    page.keyboard.press("Enter")
    assert [page.locator(f"#{name}").text_content() for name in names] == before
    assert "on these rows" in page.locator("#say-why").text_content()


@pytest.mark.parametrize("text", ["0", ""])
def test_a_cost_that_makes_no_sense_is_refused_and_forgotten(text, page):
    page.locator("#value-cost").fill(text)
    assert page.locator("#unmet").inner_text().startswith("Give ")
    assert page.locator("#promise").text_content() == ""
    assert page.locator("#answer.stale").count() == 1
    page.locator("#value-risk").select_option("0.05")
    assert page.locator("#unmet").text_content() == ""
    assert "--risk 0.05 " in page.locator("#promise").text_content()
    assert page.locator("#answer.stale").count() == 0


@pytest.mark.sampled(3)
@pytest.mark.parametrize("price", [1, 3, 20])
def test_a_price_gives_the_cheapest_threshold(price, page, rows):
    doubts, wrong = td.alpha(rows), rows.errors
    page.locator("#value-cost").fill(str(price))
    page.keyboard.press("Enter")

    def cost(threshold):
        at = td.confusion(doubts, wrong, threshold=threshold)
        return (price * at.accepted_errors + at.n_rejected) / at.n * 100

    every = [cost(threshold) for threshold in np.unique(doubts)]
    shown_cost = cost(threshold_of(page))
    assert shown_cost <= min(every) + 0.3  # the page has fewer thresholds
    reason = page.locator("#say-why").text_content()
    assert f"cost as much as {shown_cost:.2f} reviews" in reason
    assert f"At {price} review{'s' if price > 1 else ''} per" in reason
    top = page.locator("#t-cost tbody tr").last.locator("td").last.text_content()
    assert float(top) == pytest.approx(100 * price * wrong.mean(), abs=0.005)


ASKED = [("risk", 0.05), ("frr", 0.1), ("coverage", 0.7)]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("target", "value"), ASKED)
def test_the_offered_command_promises_what_was_asked(
    target, value, page, rows, run, tmp_path
):
    page.locator(f"#value-{target}").select_option(str(value))
    np.savez(tmp_path / "my file.npz", logits=rows.logits, labels=rows.labels)
    words = shlex.split(page.locator("#promise").text_content())
    completed = run(*words[1:], cwd=tmp_path)
    assert completed.returncode == 0, completed.stderr
    gate = td.Gate.load(tmp_path / "gate.json")
    assert gate.certificate.guarantee
    assert gate.certificate.target == {target: value}


def test_a_score_chosen_on_these_rows_needs_others(page):
    note = page.locator("#promise-note")
    assert "If you wanted this value before you saw the page" in note.text_content()
    page.locator("#score").select_option("entropy")
    assert "other rows have to make the gate" in note.text_content()
    assert "--score entropy " in page.locator("#promise").text_content()
    assert "--score entropy " in page.locator("#menu").text_content()


def test_a_cost_is_not_a_promise(page, rows, run, tmp_path):
    page.locator("#value-cost").fill("7")
    assert "No promise goes with the lowest cost" in (
        page.locator("#say-gate").text_content()
    )
    command = page.locator("#promise").text_content()
    assert "--cost 7 " in command
    np.savez(tmp_path / "my file.npz", logits=rows.logits, labels=rows.labels)
    assert run(*shlex.split(command)[1:], cwd=tmp_path).returncode == 0
    assert not td.Gate.load(tmp_path / "gate.json").certificate.guarantee


def test_nothing_is_cut_on_a_phone(evaluation, visit, tmp_path):
    evaluation.to_html(
        tmp_path / "report.html", class_names=[f"class {i}" for i in range(6)]
    )
    opened = visit(tmp_path / "report.html", width=360, height=800)
    beyond = opened.evaluate(
        "[...document.querySelectorAll('td, th, .card, pre, input, button')]"
        ".filter(e => e.checkVisibility() && !e.closest('thead') && "
        "e.getBoundingClientRect().right > 360).map(e => e.outerHTML)"
    )
    assert beyond == []


def test_tips_are_whole_and_cover_no_number_on_a_phone(visit, written):
    opened = visit(written, width=360, height=800)
    for name in ("coverage", "risk", "trr", "frr"):
        opened.locator(f'button[aria-describedby="tip-{name}"]').click()
        tip = opened.locator(f"#tip-{name}").bounding_box()
        assert tip["x"] >= 0
        assert tip["x"] + tip["width"] <= 360
        number = opened.locator(f"#{name}").bounding_box()
        assert number["y"] + number["height"] <= tip["y"]


def test_commands_break_between_words_only(evaluation, visit, tmp_path):
    options = ("--labels", "the true one", "--predicted", "what it said")
    evaluation.to_html(tmp_path / "report.html", file="a.csv", options=options)
    opened = visit(tmp_path / "report.html", width=360, height=800)
    heights = opened.eval_on_selector_all(
        "#promise .word", "words => words.map(w => w.getClientRects().length)"
    )
    assert len(heights) > 10
    assert set(heights) == {1}
