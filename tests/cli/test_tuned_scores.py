"""--score auto, scores with parameters, and tuned scores on the command line."""

import numpy as np
import polars as pl
import pytest

import trustdoctor as td
from trustdoctor.gates.request import Request
from trustdoctor.gates.score_choice import choose_score


@pytest.fixture
def table(rng):
    """3,000 rows whose errors follow the direction of the logits; length is noise."""
    z = rng.normal(size=(3000, 5))
    z *= rng.exponential(5, size=(3000, 1)) / np.linalg.norm(z, axis=1, keepdims=True)
    first, second = np.sort(z / np.linalg.norm(z, axis=1, keepdims=True))[:, :-3:-1].T
    wrong = rng.random(3000) < np.exp(-8 * (first - second))
    label = (z.argmax(1) + wrong) % 5
    return pl.DataFrame({f"logit_{k}": z[:, k] for k in range(5)} | {"label": label})


@pytest.fixture(params=["csv", "parquet"])
def path(table, request, tmp_path):
    path = tmp_path / f"rows.{request.param}"
    getattr(table, f"write_{request.param}")(path)
    return path


def predictions(table):
    z = table.select(pl.col("^logit_.*$")).to_numpy()
    return td.Predictions.from_logits(z, table["label"].to_numpy())


@pytest.mark.parametrize(
    ("words", "target"),
    [
        (("--trr", "90%"), {"trr": 0.9}),
        (("--risk", "10%"), {"risk": 0.1}),
        (("--frr", "0.1"), {"frr": 0.1}),
        (("--coverage", "80%"), {"coverage": 0.8}),
        (("--cost", "5"), {"cost": 5}),
        (("--frr", "0.1", "--per-class"), {"frr": 0.1, "groups": "predicted"}),
    ],
    ids=str,
)
def test_auto_reports_its_criterion_and_its_gain(words, target, path, table, run):
    gate = path.with_name("gate.json")
    completed = run("calibrate", path, "--score", "auto", *words, "-o", gate)
    assert completed.returncode == 0, completed.stderr
    p = predictions(table)
    expected = td.calibrate(p, score="auto", **target)
    assert td.Gate.load(gate) == expected
    text = " ".join(completed.stdout.split())
    name, value = next(iter(target.items()))
    choice = choose_score(p, Request({name: value}))
    errors = p[choice.choosing_rows].errors.sum()
    assert f"- 1,000 rows with {errors} errors chose the mean rank by" in text
    assert f", for {name} {value:g}. 2,000 other rows set the threshold." in text
    for note in expected.certificate.notes:
        assert " ".join(note.split()) in text
    assert "against msp: AUROC +" in text
    assert "Careful" not in text
    if "groups" not in target:
        assert f"Gate: reject where tuned > {expected.threshold:.6g}." in text


def test_auto_refuses_requests_it_cannot_choose_for(table, run, tmp_path):
    table.write_csv(tmp_path / "rows.csv")
    command = ("calibrate", tmp_path / "rows.csv", "--score", "auto")
    out = ("-o", tmp_path / "gate.json")
    for words, match in (
        (("--frr", "5%", "--no-labels"), "--score auto needs labels to choose by"),
        (("--threshold", "0.5"), "a threshold belongs to one. Name it"),
        (("--frr", "5%", "--temperature", "2"), "chooses temperatures itself"),
        (("--frr", "5%", "--clusters", "label"), "10 errors and 10 correct rows"),
        (("--frr", "5"), "frr"),
    ):
        completed = run(*command, *words, *out)
        assert completed.returncode == 2, words
        assert match in completed.stderr
        assert completed.stderr.count("\n") == 1
    table.drop("label").write_csv(tmp_path / "bare.csv")
    completed = run(
        "calibrate", tmp_path / "bare.csv", "--score", "auto", "--coverage", "90%", *out
    )
    assert completed.returncode == 2
    assert "label" in completed.stderr
    assert not (tmp_path / "gate.json").exists()


def test_a_gate_of_auto_that_decides_nothing_is_not_written(path, run):
    gate = path.with_name("gate.json")
    completed = run("calibrate", path, "--score", "auto", "--risk", "0.01%", "-o", gate)
    assert completed.returncode == 3
    assert not gate.exists()
    assert "2,000 rows are too few to prove the risk" in completed.stderr


def test_screening_is_the_same_in_memory_and_streamed(path, table, run, monkeypatch):
    gate, folder = path.with_name("gate.json"), path.parent
    command = ("calibrate", path, "--score", "auto", "--trr", "90%", "-o", gate)
    assert run(*command).returncode == 0
    assert (
        run("screen", path, "--gate", gate, "-o", folder / "a.parquet").returncode == 0
    )
    from trustdoctor.engines.local import LocalEngine

    monkeypatch.setattr(LocalEngine, "in_memory", False)
    completed = run("screen", path, "--gate", gate, "-o", folder / "b.parquet")
    assert completed.returncode == 0, completed.stderr
    assert "by tuned at threshold" in completed.stdout
    in_memory, streamed = (pl.read_parquet(folder / f"{name}.parquet") for name in "ab")
    assert in_memory.equals(streamed)
    expected = td.Gate.load(gate).screen(predictions(table))
    assert np.array_equal(in_memory["score"].to_numpy(), expected.doubts)
    assert np.array_equal(in_memory["accepted"].to_numpy(), expected.accepted)
    completed = run(*command)
    assert completed.returncode == 2
    assert "--score auto needs all rows at once" in completed.stderr


def test_compare_shows_a_tuned_score_and_its_file_calibrates(table, run, tmp_path):
    p = predictions(table)
    np.savez(tmp_path / "rows.npz", logits=p.logits, labels=p.labels)
    completed = run("compare", tmp_path / "rows.npz")
    assert completed.returncode == 0, completed.stderr
    rows = [line.split() for line in completed.stdout.splitlines()]
    (tuned,) = (row for row in rows if row and row[0] == "tuned")
    (base,) = (row for row in rows if row and row[0] == "msp")
    assert tuned[1] == "1"
    assert float(tuned[2]) > float(base[2]) + 5
    assert {"normalised_alpha", "normalised_margin", "pnorm"} <= {
        row[0] for row in rows if row
    }
    comparison = td.compare(p)
    score = comparison.scores["tuned"]
    score.save(tmp_path / "tuned.safetensors")
    gate = tmp_path / "gate.json"
    completed = run(
        "calibrate", tmp_path / "rows.npz", "--score", tmp_path / "tuned.safetensors",
        "--frr", "10%", "-o", gate,
    )  # fmt: skip
    assert completed.returncode == 0, completed.stderr
    assert td.Gate.load(gate) == td.calibrate(p, score=score, frr=0.1)


def test_what_compare_writes_calibrates_where_it_recommends_a_tuned_score(
    run, rng, tmp_path
):
    """MaxLogit-pNorm with p = 5 finds the errors; the default is p = 2."""
    z = rng.normal(size=(4000, 8)) * rng.exponential(5, size=(4000, 1))
    doubt = td.pnorm(z, p=5)
    odds = 4 * (doubt - np.quantile(doubt, 0.85)) / doubt.std()
    labels = (z.argmax(1) + (rng.random(4000) < 1 / (1 + np.exp(-odds)))) % 8
    np.savez(tmp_path / "rows.npz", logits=z, labels=labels)
    best, gate = tmp_path / "best.safetensors", tmp_path / "gate.json"
    completed = run("compare", tmp_path / "rows.npz", "-o", best)
    assert completed.returncode == 0, completed.stderr
    assert "Use tuned (one pass per row)" in completed.stdout
    score = td.load_score(best)
    assert isinstance(score, td.Tuned)
    command = ("calibrate", tmp_path / "rows.npz", "--frr", "10%", "-o", gate)
    completed = run(*command, "--score", best)
    assert completed.returncode == 0, completed.stderr
    assert td.Gate.load(gate).score.digest == score.digest
    completed = run(*command, "--score", best, "--temperature", "2")
    assert completed.returncode == 2
    assert "takes no temperature" in completed.stderr


@pytest.mark.parametrize(
    ("name", "full_name"),
    [
        ("pnorm:p=4", "pnorm:p=4"),
        ("pnorm:p=2", "pnorm"),
        ("normalised_alpha:p=4,t=0.1", "normalised_alpha:p=4,t=0.1"),
        ("normalised_alpha:t=0.1,p=4", "normalised_alpha:p=4,t=0.1"),
        ("normalised_margin:p=3", "normalised_margin:p=3"),
    ],
)
def test_parameters_are_part_of_the_name(name, full_name, table, run, tmp_path):
    path, gate = tmp_path / "rows.csv", tmp_path / "gate.json"
    table.write_csv(path)
    completed = run("calibrate", path, "--score", name, "--frr", "10%", "-o", gate)
    assert completed.returncode == 0, completed.stderr
    assert f"reject where {full_name} > " in completed.stdout
    assert td.Gate.load(gate).score_name == full_name
    p = predictions(table)
    assert td.Gate.load(gate) == td.calibrate(p, score=name, frr=0.1)
    completed = run("screen", path, "--gate", gate)
    assert f"by {full_name} at threshold" in " ".join(completed.stdout.split())
    completed = run("diagnose", path, "--score", name, "--score", "alpha")
    assert full_name in completed.stdout


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("pnorm:p=0.5", "expected p from 1 to 100, got 0.5"),
        ("pnorm:q=4", "expected pnorm:p=2, got 'pnorm:q=4'"),
        ("pnorm:p=x", "expected a number as p of pnorm, got 'x'"),
        ("pnorm:", "expected pnorm:p=2, got 'pnorm:'"),
        ("alpha:p=4", "expected alpha:temperature=1, got 'alpha:p=4'"),
        ("alpha:temperature=0", "expected a temperature above 0"),
        ("tuned", "must be fitted first"),
        ("tuned:p=4", "has no parameters"),
        ("nobody:p=4", "expected a score out of"),
    ],
)
def test_parameters_that_are_not_are_refused_in_one_line(
    name, match, table, run, tmp_path
):
    table.write_csv(tmp_path / "rows.csv")
    out = ("--frr", "10%", "-o", tmp_path / "gate.json")
    completed = run("calibrate", tmp_path / "rows.csv", "--score", name, *out)
    assert (completed.returncode, completed.stderr.count("\n")) == (2, 1)
    assert match in completed.stderr


def test_a_page_of_a_tuned_score(table, run, tmp_path):
    table.write_csv(tmp_path / "rows.csv")
    td.tune(predictions(table)[:1000]).save(tmp_path / "tuned.safetensors")
    for score in (tmp_path / "tuned.safetensors", "pnorm:p=4"):
        html = tmp_path / "page.html"
        command = ("--score", score, "--html", html)
        completed = run("diagnose", tmp_path / "rows.csv", *command)
        assert completed.returncode == 0, completed.stderr
        assert ("tuned" if score != "pnorm:p=4" else score) in html.read_text()
