"""Every command that a page offers runs as it is printed."""

import html
import re
import shlex

import numpy as np
import polars as pl
import pytest
from scipy.special import softmax

import trustdoctor as td

NAME = 'the vendor\'s "rows" $HOME.csv'


@pytest.fixture
def vendor(rows, tmp_path):
    """A file as people have it: names with spaces and quotes, ids, other columns."""
    sure = softmax(rows.logits, axis=1)
    names = [f"class {k}'s" for k in range(6)]
    table = pl.DataFrame(
        {"customer id": [f"c {i}" for i in range(len(rows))]}
        | {name: sure[:, k].round(6) for k, name in enumerate(names)}
        | {"the truth": [names[label] for label in rows.labels]}
    )
    table.write_csv(tmp_path / NAME)
    options = ["--probs", ",".join(names), "--labels", "the truth"]
    return [*options, "--ids", "customer id"]


def offered(page):
    """Return the commands of a page by their id."""
    marked = re.findall(r'<code id="([^"]+)">(.*?)</code>', page.read_text())
    return {k: html.unescape(re.sub(r"<.*?>", "", code)) for k, code in marked}


def type_in(command, run, folder):
    """Run a command as a POSIX shell would read it."""
    name, *words = shlex.split(command)
    assert name == "trustdoctor"
    completed = run(*words, cwd=folder)
    assert completed.returncode == 0, (command, completed.stderr)
    return completed


def test_all_commands_of_diagnose_run_in_a_row(vendor, run, tmp_path):
    completed = run("diagnose", NAME, *vendor, "--html", "page.html", cwd=tmp_path)
    assert completed.returncode == 0, completed.stderr
    commands = offered(tmp_path / "page.html")
    assert list(commands) == ["promise", "look-1", "look-2", "menu", "command"]
    for command in commands.values():
        type_in(command, run, tmp_path)
    assert len(pl.read_csv(tmp_path / "look.csv")) == 1500
    later = offered(tmp_path / "look.html")
    assert list(later) == ["promise", "command"]
    assert "calibrate rest.csv --risk" in later["promise"]
    type_in(later["promise"], run, tmp_path)
    gate = td.Gate.load(tmp_path / "gate.json")
    assert gate.certificate.n == 1500
    assert (
        "1,500 rows that had no part in this page"
        in (tmp_path / "look.html").read_text()
    )


def test_all_commands_of_compare_run_in_a_row(vendor, run, tmp_path):
    completed = run("compare", NAME, *vendor, "--html", "page.html", cwd=tmp_path)
    assert completed.returncode == 0, completed.stderr
    for command in offered(tmp_path / "page.html").values():
        type_in(command, run, tmp_path)
    first = run("split", NAME, "-o", "look.csv", "rest.csv", cwd=tmp_path)
    assert first.returncode == 0
    options = ("--html", "look.html", "--calibrate-on", "rest.csv")
    assert run("compare", "look.csv", *vendor, *options, cwd=tmp_path).returncode == 0
    later = offered(tmp_path / "look.html")
    assert not any(name.startswith("look") for name in later)
    for command in later.values():
        type_in(command, run, tmp_path)
    assert td.Gate.load(tmp_path / "gate.json").certificate.n == 1500


def test_a_fitted_score_is_named_by_its_file(rows, run, tmp_path):
    td.RelU.fit(rows).save(tmp_path / "my score.safetensors")
    np.savez(tmp_path / "rows.npz", logits=rows.logits, labels=rows.labels)
    options = ("--score", "my score.safetensors", "--temperature", "1")
    completed = run("diagnose", "rows.npz", *options, "--html", "p.html", cwd=tmp_path)
    assert completed.returncode == 0, completed.stderr
    command = offered(tmp_path / "p.html")["promise"]
    assert "--score 'my score.safetensors'" in command
    type_in(command, run, tmp_path)


def test_without_a_file_python_is_offered(rows, tmp_path):
    """As in a notebook; the call runs there."""
    path = td.evaluate(rows, temperature=1.5).to_html(tmp_path / "page.html")
    for call in offered(path).values():
        scope = {"td": td, "predictions": rows}
        exec(call, scope)
        assert scope["gate"].temperature == 1.5


@pytest.mark.parametrize("name", ["rows.csv", "./rows.csv"])
def test_rows_that_were_looked_at_are_not_others(name, rows, run, tmp_path):
    p = pl.DataFrame(rows.logits, schema=[f"logit_{k}" for k in range(6)])
    p.with_columns(label=pl.Series(rows.labels)).write_csv(tmp_path / "rows.csv")
    options = ("--html", "p.html", "--calibrate-on", name)
    for verb in ("diagnose", "compare"):
        completed = run(verb, "rows.csv", *options, cwd=tmp_path)
        assert completed.returncode == 2
        assert "--calibrate-on names the rows of the page" in completed.stderr
        assert not (tmp_path / "p.html").exists()
    alone = run("diagnose", "rows.csv", "--calibrate-on", "other.csv", cwd=tmp_path)
    assert "--calibrate-on is for the page. Give --html PAGE with it." in alone.stderr


@pytest.fixture
def patients(tmp_path):
    """Rows of 200 patients, eight of each, whose errors go together."""
    rng = np.random.default_rng(2)
    z = np.repeat(2 * rng.normal(size=(200, 3)), 8, 0) + rng.normal(size=(1600, 3)) / 3
    hard = np.repeat(rng.random(200) < 0.15, 8)
    labels = np.where(hard & (rng.random(1600) < 0.7), rng.integers(0, 3, 1600), 0)
    labels = np.where(hard, labels, z.argmax(1))
    table = {f"logit_{k}": z[:, k] for k in range(3)} | {"label": labels}
    table |= {"patient of record": [f"P{k // 8}" for k in range(1600)]}
    pl.DataFrame(table).write_csv(tmp_path / NAME)
    return tmp_path


def test_commands_name_the_clusters_that_were_found(patients, run):
    completed = run("diagnose", NAME, "--html", "p.html", cwd=patients)
    text = " ".join(completed.stdout.split())
    assert "200 rows like these" in text
    assert "One row of each 'patient of record' makes it." in text
    assert (
        "One row of each patient of record makes" in (patients / "p.html").read_text()
    )
    commands = offered(patients / "p.html")
    for name, command in commands.items():
        assert "--clusters 'patient of record'" in command or "diagnose" in command
        if name != "menu":  # none of its values can be promised here
            type_in(command, run, patients)
    look, other = (pl.read_csv(patients / name) for name in ("look.csv", "rest.csv"))
    assert not set(look["patient of record"]) & set(other["patient of record"])
    assert td.Gate.load(patients / "gate.json").certificate.n == 200


def test_clusters_that_some_rows_lack_are_in_no_command(patients, run):
    table = pl.read_csv(patients / NAME)
    names = table["patient of record"].set(pl.Series(range(1600)) % 50 == 0, None)
    table.with_columns(names).write_csv(patients / NAME)
    completed = run("diagnose", NAME, "--html", "p.html", cwd=patients)
    assert "Errors go together" in completed.stdout
    for command in offered(patients / "p.html").values():
        assert "--clusters" not in command


def test_pictures_next_to_the_rows_are_not_compared(patients, run):
    table = pl.read_csv(patients / NAME)
    picture = pl.Series("picture", [b"\xff\xd8%d" % k for k in range(len(table))])
    for name, half_table in (
        ("look.parquet", table[:800]),
        ("rest.parquet", table[800:]),
    ):
        half_table.with_columns(picture[: len(half_table)]).write_parquet(
            patients / name
        )
    options = ("--html", "p.html", "--calibrate-on", "rest.parquet")
    completed = run("diagnose", "look.parquet", *options, cwd=patients)
    assert completed.returncode == 0, completed.stderr
    assert (
        "rest.parquet has 800 rows that had no part"
        in (patients / "p.html").read_text()
    )


def test_other_rows_that_are_rows_of_the_page_are_counted(patients, run):
    run("split", NAME, "--part", "50%", "-o", "look.csv", "rest.csv", cwd=patients)
    (patients / "copy.csv").write_bytes((patients / "look.csv").read_bytes())
    for other, words in (
        ("copy.csv", "Careful: 800 of the 800 rows of copy.csv are rows of this page"),
        (NAME, "Careful: 800 of the 1,600 rows"),
        ("rest.csv", "rest.csv has 800 rows that had no part in this page"),
    ):
        options = ("--html", "p.html", "--calibrate-on", other)
        assert run("diagnose", "look.csv", *options, cwd=patients).returncode == 0
        assert words in (patients / "p.html").read_text()
