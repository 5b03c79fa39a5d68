"""The page as text, and as people use it in a browser."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from injections import INJECTIONS

import trustdoctor as td
from trustdoctor.errors import InputError
from trustdoctor.evaluation import evaluate_logits

HOSTILE = (*INJECTIONS, "x" * 10_000)


def data_of(html):
    return json.loads(re.search(r'type="application/json">(.*?)</script>', html)[1])


def live(page):
    """Return what the page shows at its threshold."""
    texts = {
        name: page.locator(f"#{name}").inner_text()
        for name in (
            *("coverage", "risk", "trr", "frr", "rejected"),
            *("n-coverage", "n-rejected", "threshold", "say-person", "say-wrong"),
        )
    }
    texts["dots"] = [
        page.locator(f"{chart} .dot").first.get_attribute("cx")
        for chart in ("#roc", "#risk-coverage", "#budget", "#cost")
    ]
    texts["line"] = page.locator("#histogram .mark").get_attribute("d")
    texts["command"] = page.locator("#command").text_content()
    return texts


def shown(count, total):
    if not total:
        return "-"
    low, high = td.clopper_pearson(int(count), int(total))
    return f"{count / total * 100:.2f} [{low * 100:.2f}, {high * 100:.2f}]"


def expected(rows, threshold, score="alpha"):
    """Return what the library says at a threshold."""
    at = td.confusion(getattr(td, score)(rows), rows.errors, threshold=threshold)
    accepted, wrong = at.n_accepted, at.accepted_errors
    return {
        "coverage": shown(at.n_accepted, at.n),
        "risk": shown(at.accepted_errors, at.n_accepted),
        "trr": shown(at.rejected_errors, at.n_errors),
        "frr": shown(at.rejected_correct, at.n_correct),
        "n-coverage": f"{at.n_accepted:,} of {at.n:,}",
        "n-rejected": f"{at.n_rejected:,} of {at.n:,}",
        "rejected": shown(at.n_rejected, at.n),
        "say-person": f"{at.n_rejected:,} of {at.n:,} rows "
        f"({at.n_rejected / at.n * 100:.2f}%) "
        f"{'goes' if at.n_rejected == 1 else 'go'} to a person.",
        "say-wrong": f"{wrong:,} wrong {'answer' if wrong == 1 else 'answers'} still "
        f"{'goes' if wrong == 1 else 'go'} out: {shown(wrong, accepted)} % of "
        f"the {accepted:,} given automatically."
        if accepted
        else "No answer is given automatically, so no wrong one goes out.",
    }


def test_the_page_is_one_small_file_that_loads_nothing(evaluation, written):
    html = written.read_text()
    assert len(html.encode()) < 400_000
    assert "http://" not in re.sub(r'"http://www.w3.org/2000/svg"', "", html)
    assert "https://" not in html
    repeated = evaluation.to_html(source="my file.npz", file="my file.npz")
    assert html == repeated  # the same bytes each time


def test_numbers_are_those_of_the_json(evaluation, written):
    html = written.read_text()
    for metrics in evaluation.to_dict()["scores"].values():
        for name in ("auroc", "frr_at_trr", "aurc", "risk_at_coverage"):
            cell = metrics[name]
            text = f"{cell['value'] * 100:.2f} [{cell['low'] * 100:.2f}, "
            assert text + f"{cell['high'] * 100:.2f}]" in html
    for d in evaluation.differences:
        if d.metric == "auroc" and d.second == "msp":
            ends = f"[{d.low * 100:+.2f}, {d.high * 100:+.2f}]"
            assert f"{d.value * 100:+.2f} {ends}" in html


def test_values_at_twenty_thresholds_are_the_librarys(page, rows):
    last = int(page.locator("#slider").get_attribute("max"))
    for at in np.linspace(0, last, 20).astype(int):
        page.locator("#slider").fill(str(at))
        texts = live(page)
        threshold = float(texts["threshold"].split()[0])
        for name, text in expected(rows, threshold).items():
            assert texts[name] == text, (name, threshold)


def test_the_slider_moves_everything_by_mouse_and_by_key(page):
    before = live(page)
    page.locator("#slider").scroll_into_view_if_needed()
    box = page.locator("#slider").bounding_box()
    page.mouse.click(box["x"] + 0.3 * box["width"], box["y"] + box["height"] / 2)
    middle = live(page)
    for _ in range(12):
        page.keyboard.press("ArrowRight")
    after = live(page)
    for first, second in ((before, middle), (middle, after)):
        for name, text in first.items():
            assert second[name] != text, name


@pytest.mark.parametrize(
    ("target", "typed"), [("frr", 5), ("trr", 90), ("risk", 8), ("coverage", 80)]
)
def test_typed_targets_land_on_the_right_threshold(target, typed, page, rows):
    page.locator(f"#want-{target}").fill(str(typed))
    page.keyboard.press("Enter")
    threshold = float(live(page)["threshold"].split()[0])
    scores, errors = td.alpha(rows), rows.errors

    def rates(t):
        at = td.confusion(scores, errors, threshold=t)
        return {"frr": at.frr, "trr": at.trr, "risk": at.risk, "coverage": at.coverage}

    actual = rates(threshold)
    direction = {"frr": -1, "trr": 1, "risk": 1, "coverage": -1}[target]
    every = np.unique(scores)
    meets = [
        rates(t)[target] <= typed / 100
        if target in ("frr", "risk")
        else rates(t)[target] >= typed / 100
        for t in every
    ]
    best = rates(every[meets][-1 if direction > 0 else 0])
    if target in ("frr", "risk"):
        assert actual[target] <= typed / 100
    else:
        assert actual[target] >= typed / 100
    step = 1 / 400 + 1 / errors.sum()  # what the page says of its thresholds
    assert abs(actual["frr"] - best["frr"]) <= step
    assert abs(actual["trr"] - best["trr"]) <= step


def test_a_target_that_cannot_be_met_is_reported_and_forgotten(page):
    page.locator("#want-frr").fill("150")
    page.keyboard.press("Enter")
    assert "below 100" in page.locator("#message").inner_text()
    page.locator("#score").select_option("beta")
    assert page.locator("#message").inner_text() == ""


def test_typing_what_the_page_shows_stays_there(page):
    last = int(page.locator("#slider").get_attribute("max"))
    for at in np.linspace(1, last, 25).astype(int):
        page.locator("#slider").fill(str(at))
        accepted = int(live(page)["n-coverage"].split()[0].replace(",", ""))
        exact = f"{accepted / 3000 * 100:.10g}"  # the share itself, in percent
        page.locator("#want-coverage").fill(exact)
        page.keyboard.press("Enter")
        assert live(page)["n-coverage"].startswith(f"{accepted:,} of")


@pytest.mark.parametrize("risk", [1, 3.5, 10])
def test_the_risk_asked_for_is_met_with_the_greatest_coverage(risk, page, rows):
    page.locator("#want-risk").fill(str(risk))
    page.keyboard.press("Enter")
    expected = td.coverage_at_risk(td.alpha(rows), rows.errors, risk=risk / 100)
    if expected == 0:
        message = page.locator("#message").inner_text()
        assert f"at most {risk}% on these rows; the nearest is" in message
    else:
        assert live(page)["coverage"].startswith(f"{expected * 100:.2f} [")


def test_another_score_redraws_the_curves(page, rows):
    before = page.locator("#roc .curve").get_attribute("d")
    page.locator("#score").select_option("energy")
    assert page.locator("#roc .curve").get_attribute("d") != before
    texts = live(page)
    threshold = float(texts["threshold"].split()[0])
    for name, text in expected(rows, threshold, "energy").items():
        assert texts[name] == text
    assert "--score energy" in texts["command"]


def test_commands_can_be_copied_and_run(page, rows, tmp_path):
    command = live(page)["command"]
    assert command.startswith("trustdoctor calibrate 'my file.npz' --threshold=")
    promise = page.locator("#promise").inner_text()
    assert promise.startswith("trustdoctor calibrate 'my file.npz' --risk 0.")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.locator("details", has=page.locator("#command")).locator("summary").click()
    page.locator("button[data-copies=command]").click()
    page.wait_for_function("document.getElementById('copied').textContent !== ''")
    assert page.locator("#copied").inner_text() == "Copied."
    np.savez(tmp_path / "my file.npz", logits=rows.logits, labels=rows.labels)
    bin_folder = Path(sys.executable).parent
    subprocess.run(
        f"{bin_folder}/{command}",
        shell=True,
        check=True,
        cwd=tmp_path,
        capture_output=True,
    )
    gate = td.Gate.load(tmp_path / "gate.json")
    texts = live(page)
    assert gate.threshold == float(texts["threshold"].split()[0])
    assert not gate.certificate.guarantee
    accepted = gate.screen(rows).accepted.sum()
    assert texts["n-coverage"] == f"{accepted:,} of 3,000"


def test_tables_sort(page):
    table = page.locator("table.sortable").first
    head = table.get_by_role("button", name="AUROC", exact=True)

    def order():
        cells = table.locator("tbody td:nth-of-type(1)").all_inner_texts()
        return [float(cell.split()[0]) for cell in cells]

    head.click()
    assert order() == sorted(order(), reverse=True)
    head.press("Enter")
    assert order() == sorted(order())
    assert table.locator("th[aria-sort=ascending]").count() == 1


@pytest.mark.sampled(2)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_serious_accessibility_violation(scheme, violations, written):
    assert violations(written, scheme, 1280) == []


@pytest.mark.parametrize("width", [360, 1200])
def test_it_fits_the_screen_and_the_paper(width, visit, written):
    opened = visit(written, width=width, height=800)
    assert opened.evaluate("document.documentElement.scrollWidth") <= width
    assert opened.pdf().startswith(b"%PDF")


def test_hostile_content_is_text_and_runs_nothing(visit, rows, evaluation, tmp_path):
    names = list(HOSTILE)
    texts = [HOSTILE[i % 6] for i in range(len(rows))]
    evaluation.to_html(
        tmp_path / "report.html",
        class_names=names,
        ids=texts,
        texts=texts,
        source=HOSTILE[2],
        perturbed={HOSTILE[1]: evaluate_logits(rows, rows.logits, score="alpha")},
    )
    opened = visit(tmp_path / "report.html")
    opened.wait_for_timeout(200)
    assert opened.complaints == []
    assert opened.evaluate("window.hacked") is None
    body = opened.locator("body").inner_text()
    for text in HOSTILE[:3]:
        assert text in body
    assert "{{ 7 * 7 }}" in body
    assert opened.locator("img").count() == 0
    assert opened.evaluate("document.documentElement.scrollWidth") <= 1280
    # An injected script would be stopped by the page's own policy, too.
    opened.evaluate(
        "document.body.append(Object.assign(document.createElement('script'), "
        "{textContent: 'window.hacked = 1'}))"
    )
    assert opened.evaluate("window.hacked") is None


@pytest.mark.parametrize("labels", [[0, 0, 0], [1, 1, 1]])
def test_a_page_of_rows_that_are_all_right_or_all_wrong(labels, visit, tmp_path):
    p = td.Predictions.from_logits([[2.0, 0], [3, 0], [1, 0]], labels)
    path = td.evaluate(p).to_html(tmp_path / "report.html")
    assert path == tmp_path / "report.html"
    html = path.read_text()
    assert "All 3 predictions are" in html
    assert visit(path).complaints == []


@pytest.mark.parametrize("certain", [1.0, 0.5])
def test_one_hot_answers_make_a_page_that_works(certain, visit, tmp_path):
    rng = np.random.default_rng(0)
    classes = rng.integers(0, 3, 200)
    probs = np.eye(3)[classes]
    probs[rng.random(200) >= certain] = [0.5, 0.3, 0.2]
    labels = np.where(rng.random(200) < 0.8, probs.argmax(1), 2)
    evaluation = td.evaluate(td.Predictions.from_probs(probs, labels))
    evaluation.to_html(tmp_path / "report.html")
    opened = visit(tmp_path / "report.html")
    assert opened.complaints == []
    assert np.isfinite(float(opened.locator("#threshold").inner_text().split()[0]))


def test_without_a_script_the_opening_rates_are_there(browser, page, written):
    context = browser.new_context(java_script_enabled=False)
    bare, texts = context.new_page(), []
    bare.goto(f"file://{written}")
    for opened in (page, bare):
        names = ("coverage", "rejected", "risk", "trr", "frr", "n-frr", "command")
        names += ("promise", "say-person", "say-wrong", "say-why", "promise-note")
        names += ("say-gate", "say-simulated", "say-confusion", "menu")
        texts.append([opened.locator(f"#{n}").text_content() for n in names])
    context.close()
    assert texts[0] == texts[1]


def test_few_errors_are_pointed_out_and_any_first_score_is_a_baseline(rng):
    logits = rng.normal(size=(60, 3))
    labels = logits.argmax(1)
    labels[:5] = (labels[:5] + 1) % 3
    p = td.Predictions.from_logits(logits, labels)
    html = td.evaluate(p, scores=["alpha", "energy"]).to_html()
    assert "Careful: few errors" in html
    assert "AUROC against alpha, paired" in html


def test_an_uninformative_score_is_pointed_out_at_the_top(rng):
    probs = rng.dirichlet(np.ones(3), 300)
    p = td.Predictions.from_probs(probs, rng.integers(0, 3, 300))
    html = td.evaluate(p, scores=["msp"]).to_html()
    first = html[html.index("What matters to you?") : html.index("Make the gate")]
    assert "msp does not clearly tell wrong answers from right ones here" in first


def test_answers_show_the_confidence_that_was_given(visit, rng, tmp_path):
    sure = rng.uniform(0.3, 1, 400)
    right = rng.random(400) < sure
    p = td.Predictions.from_confidence(sure, correct=right)
    td.evaluate(p).to_html(tmp_path / "report.html")
    opened = visit(tmp_path / "report.html")
    assert opened.title() == opened.locator("h1").inner_text()
    assert opened.locator("#doubt-head").inner_text() == "confidence"
    column = opened.locator("#rows tbody tr td:nth-child(2)").all_text_contents()
    assert float(column[0]) == pytest.approx(sure[~right].max(), abs=5e-4)


def test_commands_keep_every_digit_and_the_path(rows):
    evaluation = td.evaluate(rows, scores=["alpha"], temperature=1.23456789)
    html = evaluation.to_html(
        source="p.npz", file="sub folder/p.npz", options=("--probs", "")
    )
    before, between, after = data_of(html)["command"]["gate"]
    assert before == "trustdoctor calibrate 'sub folder/p.npz' "
    assert between == " --score "
    assert after == " --probs '' --temperature 1.23456789 -o gate.json"


def test_certain_rows_make_a_page():
    probs = np.array([[1.0, 0], [1, 0], [0.7, 0.3], [0.6, 0.4]] * 5)
    p = td.Predictions.from_probs(probs, [0, 1, 0, 1] * 5)
    data = data_of(td.evaluate(p).to_html())
    thresholds = data["scores"]["alpha"]["thresholds"]
    assert all(isinstance(t, float) for t in thresholds)


def test_a_notebook_shows_the_table(evaluation, tab):
    tab.goto("about:blank")
    tab.set_content(evaluation._repr_html_())
    assert tab.locator("thead th").all_inner_texts()[:2] == ["score", "AUROC"]
    cells = tab.locator("tbody tr").first.locator("td").all_inner_texts()
    first = next(iter(evaluation.scores))
    assert cells[:2] == [first, evaluation.scores[first]["auroc"].percent()]


def test_mismatched_arguments_are_refused(evaluation):
    for name, wrong in (("ids", [1]), ("texts", ["a"]), ("class_names", ["a"])):
        with pytest.raises(InputError, match=name):
            evaluation.to_html(**{name: wrong})
    for name in ("ids", "thumbnails"):
        with pytest.raises(InputError, match=name):
            evaluation.to_html(**{name: 5})
    with pytest.raises(InputError, match="colour"):
        evaluation.to_html(colour="red")
    of_scores = replace(evaluation, predictions=None)
    with pytest.raises(InputError, match="is of scores alone"):
        of_scores.to_html()
    with pytest.raises(InputError, match="no predictions, as it was streamed"):
        replace(of_scores, streamed=True).to_html()


def test_the_command_writes_the_page(rows, run, tmp_path):
    columns = {f"logit_{j}": rows.logits[:, j] for j in range(6)}
    texts = [f"review {i}" for i in range(3000)]
    table = pl.DataFrame({**columns, "label": rows.labels, "id": texts, "text": texts})
    table.write_csv(tmp_path / "p.csv")
    (tmp_path / "names.txt").write_text("a\nb\nc\nd\ne\nf\n")
    options = ("--ids", "id", "--texts", "text", "--class-names", "names.txt")
    completed = run("diagnose", "p.csv", "--html", "r.html", *options, cwd=tmp_path)
    assert completed.returncode == 0, completed.stderr
    assert "Wrote r.html" in completed.stdout
    html = (tmp_path / "r.html").read_text()
    assert "review " in html
    assert "SHA-256" in html
    for mistake, word in (
        (("--texts", "text"), "--html"),
        (("--html", "r.html", "--ids", "nobody"), "nobody"),
        (("--html", "r.html", "--class-names", "p.csv"), "6 class names"),
        (("--html", "nowhere/r.html"), "nowhere"),
        (("--html", "p.csv"), "the input itself"),
        (("--html", "names.txt", "--class-names", "names.txt"), "the input itself"),
        (("--html", "x", "--json", "x"), "two outputs"),
        (("--html", "-"), "Name one"),
        (("--html", "r.html", "--thumbnails", "pictures"), "pictures"),
    ):
        completed = run("diagnose", "p.csv", *mistake, cwd=tmp_path)
        assert (completed.returncode, word in completed.stderr) == (2, True), (
            completed.stderr
        )


def test_perturbed_logits_in_the_file_are_shown_under_both_protocols(
    rows, run, tmp_path
):
    np.savez(
        tmp_path / "p.npz",
        logits=rows.logits,
        labels=rows.labels,
        **{"pbb_beta_T1.5_eps0.001": rows.logits[:, ::-1]},
    )
    completed = run("diagnose", "p.npz", "--html", "r.html", "-q", cwd=tmp_path)
    assert completed.returncode == 0, completed.stderr
    html = (tmp_path / "r.html").read_text()
    assert "beta, T 1.5, epsilon 0.001" in html
    assert "<td>deployed</td>" in html
    assert "<td>paper</td>" in html


@pytest.mark.parametrize("temperature", [1e19, 1e-19])
def test_scores_that_are_one_number_make_a_page(temperature, rows, visit, tmp_path):
    evaluation = td.evaluate(rows, scores=["alpha", "msp"], temperature=temperature)
    evaluation.to_html(tmp_path / "page.html")
    opened = visit(tmp_path / "page.html")
    opened.wait_for_timeout(100)
    assert opened.complaints == []
