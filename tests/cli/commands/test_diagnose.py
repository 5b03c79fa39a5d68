"""Commands that measure: demo, diagnose, compare."""

import json
import re

import numpy as np
import polars as pl
import pytest

import trustdoctor as td


def test_demo_prints_the_verdict_in_80_columns(run):
    completed = run("demo")
    assert completed.returncode == 0
    assert completed.stderr == ""
    assert "accuracy 89.93" in completed.stdout
    assert re.search(r"alpha +91\.09 \[90\.31, 91\.82\] +30\.01", completed.stdout)
    assert "instead of 10.1%" in completed.stdout
    assert max(map(len, completed.stdout.splitlines())) <= 80
    assert "\x1b" not in completed.stdout


def test_demo_writes_json(tmp_path, run):
    completed = run("demo", "--quiet", "--json", tmp_path / "r.json")
    assert (completed.returncode, completed.stdout) == (0, "")
    content = json.loads((tmp_path / "r.json").read_text())
    assert content["n_errors"] == 1007


def test_demo_takes_scores_and_temperature(run):
    completed = run("demo", "--score", "gen", "--score", "all", "-T", 2)
    assert completed.returncode == 0
    assert completed.stdout.index("gen ") < completed.stdout.index("alpha ")


def test_diagnose_reads_scores_temperature_and_prints_json(probs, run):
    completed = run(
        "diagnose", probs, "--score", "gen", "--temperature", 2, "--json", "-"
    )
    assert completed.returncode == 0, completed.stderr
    content = json.loads(completed.stdout)
    assert list(content["scores"]) == ["gen"]
    assert content["settings"]["temperature"] == 2


def test_diagnose_compares_all_scores(probs, run):
    completed = run("diagnose", probs, "--score", "all")
    assert completed.returncode == 0, completed.stderr
    assert "margin" in completed.stdout
    assert "energy" not in completed.stdout


@pytest.mark.parametrize("label", [0, 1])
def test_diagnose_speaks_plainly_of_one_kind_of_rows(label, tmp_path, run):
    path = tmp_path / "p.csv"
    path.write_text(f"prob_0,prob_1,label\n0.9,0.1,{label}\n0.8,0.2,{label}\n")
    completed = run("diagnose", path)
    assert completed.returncode == 0, completed.stderr
    assert (
        f"All 2 predictions are {'wrong' if label else 'correct'}" in completed.stdout
    )


def test_diagnose_needs_labels(tmp_path, run):
    path = tmp_path / "p.csv"
    path.write_text("prob_0,prob_1\n0.9,0.1\n")
    completed = run("diagnose", path)
    assert completed.returncode == 2
    assert "label" in completed.stderr


@pytest.fixture(scope="module")
def rows():
    """Rows whose features know far more of the errors than the logits do."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 1500)
    z = rng.normal(size=(1500, 3))
    z[np.arange(1500), labels] += 1.5
    x = rng.normal(size=(1500, 4))
    x[z.argmax(1) != labels] *= 9
    return td.Predictions.from_logits(z, labels, features=x)


@pytest.fixture
def path(rows, tmp_path):
    columns = {f"logit_{j}": rows.logits[:, j] for j in range(3)}
    columns |= {f"x{j}": rows.features[:, j] for j in range(4)}
    path = tmp_path / "rows.parquet"
    pl.DataFrame(columns | {"label": rows.labels}).write_parquet(path)
    return path


def test_compare_writes_the_fitted_score_that_it_recommends(path, rows, run, tmp_path):
    best = td.compare(rows).score
    assert isinstance(best, td.FittedScore)
    file, gate, out = (tmp_path / n for n in ("s.safetensors", "g.json", "out.npz"))
    features = ("--features", "x")
    completed = run("compare", path, *features, "-o", file)
    assert completed.returncode == 0, completed.stderr
    assert f"Wrote {file}" in completed.stdout
    assert td.load_score(file).digest == best.digest
    options = ("--score", file, "--frr", 0.1, "-o", gate)
    completed = run("calibrate", path, *features, *options)
    assert completed.returncode == 0, completed.stderr
    completed = run("screen", path, *features, "--gate", gate, "-o", out)
    assert completed.returncode == 0, completed.stderr
    expected = td.calibrate(rows, score=best, frr=0.1).screen(rows)
    with np.load(out) as screened:
        assert (screened["accepted"] == expected.accepted).all()
    completed = run("diagnose", path, *features, "--score", file, "--json", "-")
    assert list(json.loads(completed.stdout)["scores"]) == [best.name]
    completed = run("screen", path, "--gate", gate)
    assert completed.returncode == 2
    assert "--features NAME" in completed.stderr


def test_compare_says_that_a_plain_score_needs_no_file(probs, run, tmp_path):
    file = tmp_path / "score.safetensors"
    best = td.compare(td.read(probs)).score
    assert not isinstance(best, td.FittedScore)
    completed = run("compare", probs, "-o", file)
    assert completed.returncode == 0, completed.stderr
    text = " ".join(completed.stdout.split())
    assert f"{best.name} needs no file. Calibrate with --score {best.name}." in text
    assert not file.exists()


def test_what_needs_all_rows_says_so_where_they_do_not_fit(run, tmp_path):
    big = tmp_path / "big.csv"
    big.write_text("logit_0,logit_1,label\n" + 5_000_000 * "1,0,0\n")
    for command, *options in (
        ("diagnose", "--html", tmp_path / "page.html"),
        ("compare",),
    ):
        completed = run(command, big, *options, "--memory", "1GB")
        assert completed.returncode == 2
        assert "needs all rows at once" in completed.stderr
        assert "Raise --memory" in completed.stderr


def test_a_page_is_made_here(path, run, tmp_path):
    pytest.importorskip("ray")
    page = tmp_path / "page.html"
    completed = run("diagnose", path, "--html", page, "--engine", "ray")
    assert completed.returncode == 2
    assert "use --engine local" in completed.stderr


def write_margins(path, rng, shift=0.0, sign=1):
    """Write distances from a support vector machine's boundary, and correctness."""
    margin = rng.normal(1, 1.5, 900)
    correct = rng.random(900) < 1 / (1 + np.exp(-2 * margin))
    pl.DataFrame({"margin": sign * margin + shift, "correct": correct}).write_csv(path)


@pytest.mark.parametrize("kind", ["confidence", "doubt"])
def test_values_that_are_not_probabilities_are_never_called_a_softmax(
    kind, tmp_path, rng, run
):
    write_margins(tmp_path / "rows.csv", rng, sign=-1 if kind == "doubt" else 1)
    rows = ("rows.csv", f"--{kind}", "margin", "--correct", "correct")
    texts = []
    for command in (
        ("diagnose", *rows, "--html", "page.html", "--json", "page.json"),
        ("compare", *rows, "--html", "compared.html"),
        ("calibrate", *rows, "--frr", "10%", "-o", "gate.json"),
        ("screen", *rows, "--gate", "gate.json"),
        ("check", *rows, "--gate", "gate.json", "--state", "s", "--html", "watch.html"),
    ):
        completed = run(*command, cwd=tmp_path)
        assert completed.stderr == ""
        texts.append(completed.stdout)
    pages = [path.read_text() for path in sorted(tmp_path.glob("*.html"))]
    assert len(pages) == 3
    for text in texts + pages + [(tmp_path / "gate.json").read_text()]:
        assert not re.search(r"softmax|\bmsp\b|over-conf|under-conf", text)
    assert "Calibration: the" not in pages[1]
    assert json.loads((tmp_path / "page.json").read_text())["row_kind"] == kind
    beyond = "Confidences go from -" in texts[0]  # a doubt is not a confidence
    assert beyond == (kind == "confidence")
    assert "--percent" not in texts[0]  # some are negative


def test_percentages_are_distinguished_from_other_numbers(tmp_path, rng, run):
    write_margins(tmp_path / "rows.csv", rng, shift=10)
    rows = ("rows.csv", "--confidence", "margin", "--correct", "correct")
    text = " ".join(run("diagnose", *rows, cwd=tmp_path).stdout.split())
    assert "they are not probabilities" in text
    assert "Divide percentages by 100 (--percent)." in text


def test_overconfidence_is_described_in_terms_of_the_given_values(tmp_path, rng, run):
    logits = 2 * rng.normal(size=(600, 3))
    probs = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    labels = np.where(rng.random(600) < 0.9, logits.argmax(1), 0)
    columns = {"label": labels, "sure": probs.max(1), "ok": labels == logits.argmax(1)}
    for i in range(3):
        columns |= {f"z_{i}": logits[:, i], f"p_{i}": probs[:, i]}
    pl.DataFrame(columns).write_csv(tmp_path / "rows.csv")
    confidence = ("--confidence", "sure", "--correct", "ok")
    for options, stated in (
        (("--logits", "z_"), "logits, as probabilities,"),
        (("--probs", "p_"), "probabilities"),
        (confidence, "confidences, as probabilities,"),
    ):
        arguments = ("rows.csv", *options, "--html", "page.html")
        text = " ".join(run("diagnose", *arguments, cwd=tmp_path).stdout.split())
        page = (tmp_path / "page.html").read_text()
        assert re.search(rf"The model is .*-confident: its {stated} claim [78]", text)
        assert f"Calibration: the {stated} claim " in page
        assert "softmax" not in text + page
