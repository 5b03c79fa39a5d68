"""Every verb says that labels are odd, and calibrate and cascade write nothing."""

import json

import numpy as np
import polars as pl
import pytest
from scipy.special import softmax

import trustdoctor as td

NAMES = ["cat", "dog", "horse", "ship"]


@pytest.fixture
def tables(tmp_path):
    """Files of the same rows: good, and with each kind of odd labels."""
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 4, 1200)
    logits = 3 * np.eye(4)[truth] + 1.5 * rng.normal(size=(1200, 4))
    probs = softmax(logits, axis=1)
    odd = {
        "good": truth,
        "class": (truth + 1) % 4,
        "row": np.roll(truth, 1),
        "chance": rng.permutation(truth),
        "own": probs.argmax(1),
    }
    paths = {}
    for name, labels in odd.items():
        paths[name] = tmp_path / f"{name}.csv"
        pl.DataFrame(
            {
                "id": np.arange(1200),
                **{f"prob_{c}": probs[:, k] for k, c in enumerate(NAMES)},
                "label": np.array(NAMES)[labels],
            }
        ).write_csv(paths[name])
    return paths


WORDS = {
    "class": "Labels seem to count from 1",
    "row": "Labels fit better when moved up by one row",
    "chance": "Labels agree with the predictions as labels in random order would",
    "own": "All 1,200 predictions are correct",
}


@pytest.mark.parametrize("problem", WORDS)
def test_calibrate_writes_no_gate_unless_allowed(problem, tables, tmp_path, run):
    gate = tmp_path / "gate.json"
    command = ("calibrate", tables[problem], "--frr", "10%", "-o", gate)
    completed = run(*command)
    assert completed.returncode == 3, completed.stderr
    assert WORDS[problem] in completed.stderr
    assert "--allow-odd-labels writes it" in completed.stderr
    assert completed.stderr.count("\n") == 1
    assert not gate.exists()
    completed = run(*command, "--allow-odd-labels")
    assert completed.returncode == 0, completed.stderr
    assert completed.stderr == ""
    assert "The labels are odd" in completed.stdout
    assert any(WORDS[problem] in note for note in td.Gate.load(gate).certificate.notes)


def test_good_labels_make_a_gate(tables, tmp_path, run):
    gate = tmp_path / "gate.json"
    completed = run("calibrate", tables["good"], "--risk", "10%", "-o", gate)
    assert completed.returncode == 0, completed.stderr
    assert "odd" not in completed.stdout


@pytest.mark.parametrize("problem", ["class", "row", "chance"])
def test_compare_says_so_first_and_recommends_nothing(problem, tables, tmp_path, run):
    page = tmp_path / "page.html"
    completed = run(
        "compare", tables[problem], "--html", page, "--json", tmp_path / "c.json"
    )
    assert completed.returncode == 0, completed.stderr
    text = " ".join(completed.stdout.split())
    assert f"The labels are odd, so no score is recommended. {WORDS[problem]}" in text
    content = json.loads((tmp_path / "c.json").read_text())
    assert content["recommended"] is None
    assert content["odd_labels"][0].startswith(WORDS[problem])
    assert "Check the labels first" in page.read_text()
    assert "Make the gate" not in page.read_text()


def test_compare_says_why_there_is_no_error(tables, run):
    completed = run("compare", tables["own"])
    assert completed.returncode == 2
    assert WORDS["own"] in completed.stderr


def test_diagnose_says_so_in_text_json_and_page(tables, tmp_path, run):
    for problem, words in WORDS.items():
        json_path, page = tmp_path / "d.json", tmp_path / "d.html"
        completed = run(
            "diagnose", tables[problem], "--json", json_path, "--html", page
        )
        assert words in " ".join(completed.stdout.split())
        warnings = json.loads(json_path.read_text())["warnings"]
        assert any(line.startswith(words) for line in warnings)
        assert words in page.read_text()


def test_check_says_so_before_the_alarm(tables, tmp_path, run):
    gate = tmp_path / "gate.json"
    assert run("calibrate", tables["good"], "--risk", "10%", "-o", gate).returncode == 0
    command = ("check", "--gate", gate, "--json", tmp_path / "w.json")
    completed = run(*command, tables["class"], "--state", tmp_path / "a.json")
    assert completed.returncode == 1
    assert completed.stdout.startswith(f"Careful: the labels are odd. {WORDS['class']}")
    assert (
        WORDS["class"] in json.loads((tmp_path / "w.json").read_text())["warnings"][0]
    )
    completed = run(*command, tables["good"], "--state", tmp_path / "b.json")
    assert completed.returncode == 0
    assert "odd" not in completed.stdout


def test_a_cascade_is_not_written(tables, tmp_path, run):
    path = tmp_path / "cascade.json"
    other = tmp_path / "large.csv"
    other.write_bytes(tables["row"].read_bytes())
    command = ("cascade", tables["row"], other, "--costs", "0,1,9", "--joint", "60%")
    completed = run(*command, "-o", path)
    assert completed.returncode == 3, completed.stderr
    assert f"row: {WORDS['row']}" in completed.stderr
    assert not path.exists()
    completed = run(*command, "-o", path, "--allow-odd-labels")
    assert completed.returncode == 0, completed.stderr
    assert path.exists()


def test_a_score_that_is_constant_makes_no_gate(tmp_path, run):
    rng = np.random.default_rng(0)
    hard = np.eye(3, dtype=int)[rng.integers(0, 3, 400)]
    table = pl.DataFrame({f"prob_{k}": hard[:, k] for k in range(3)})
    label = np.where(rng.random(400) < 0.8, hard.argmax(1), 0)
    table.with_columns(label=label).write_csv(tmp_path / "hard.csv")
    for target in ("--frr", "--coverage"):
        completed = run(
            "calibrate", tmp_path / "hard.csv", target, "5%", "-o", tmp_path / "g.json"
        )
        assert completed.returncode == 3
        assert "alpha gives all rows one value" in completed.stderr
        assert not (tmp_path / "g.json").exists()
    completed = run("diagnose", tmp_path / "hard.csv")
    assert "they cannot tell rows apart" in " ".join(completed.stdout.split())


def test_answers_in_other_letters_are_named(tmp_path, run):
    path = tmp_path / "answers.csv"
    rows = [("Paris", "paris", 0.9), ("Rome", "Rome", 0.8), ("Rome", "Oslo", 0.4)] * 20
    pl.DataFrame(rows, ["label", "predicted", "sure"], orient="row").write_csv(path)
    completed = run("diagnose", path, "--confidence", "sure")
    text = " ".join(completed.stdout.split())
    assert "'Paris' and 'paris' differ only in case, and count as two" in text


@pytest.mark.parametrize("problem", ["class", "row", "chance"])
def test_diagnose_offers_no_gate_on_odd_labels(problem, tables, tmp_path, run):
    page = tmp_path / "d.html"
    completed = run("diagnose", tables[problem], "--html", page)
    text = " ".join(completed.stdout.split())
    assert "These labels cannot be right, so no promise can rest on them." in text
    assert "answered automatically" not in text
    assert text.index(WORDS[problem]) < text.index("Rejecting the 10% most doubtful")
    shown = page.read_text()
    assert 'id="say-gate">These labels cannot be right' in shown
    assert shown.index("<div hidden>") < shown.index("Make the gate")
    assert "answered automatically" not in shown.partition("On these very rows")[0]


def test_a_gate_on_odd_labels_warns_when_it_screens(tables, tmp_path, run):
    gate = tmp_path / "gate.json"
    run("calibrate", tables["row"], "--frr", "10%", "--allow-odd-labels", "-o", gate)
    out = tmp_path / "out.csv"
    completed = run("screen", tables["good"], "--gate", gate, "-o", out, columns=500)
    assert "The labels are odd, and the promise may rest on nothing" in completed.stdout
