"""Every command takes every format: a file, a folder, and a quoted pattern."""

import json
from hashlib import sha256

import numpy as np
import polars as pl
import pytest

import trustdoctor as td

N = 600
FORMATS = ("csv", "parquet", "npz")
PLACES = [
    *((kind, place) for kind in FORMATS for place in ("file", "folder", "pattern")),
    *(("npy", place) for place in ("file", "folder")),
]


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, N)
    z = rng.normal(size=(N, 3))
    z[np.arange(N), labels] += 1.5
    return td.Predictions.from_logits(z, labels)


def write(path, rows):
    columns = {f"logit_{j}": rows.logits[:, j] for j in range(3)}
    table = pl.DataFrame(columns | {"label": rows.labels})
    if path.suffix == ".csv":
        table.write_csv(path)
    elif path.suffix == ".parquet":
        table.write_parquet(path)
    elif path.suffix == ".npz":
        np.savez(path, logits=rows.logits, labels=rows.labels)
    else:
        np.save(path.with_name("logits.npy"), rows.logits)
        np.save(path.with_name("labels.npy"), rows.labels)


@pytest.fixture(params=PLACES, ids="-".join)
def place(request, rows, tmp_path):
    """What to name on the command line: all rows, in one file or in three."""
    kind, layout = request.param
    folder = tmp_path / "in"
    folder.mkdir()
    name = "logits" if kind == "npy" else "a"
    if layout == "file" or kind == "npy":
        write(folder / f"{name}.{kind}", rows)
        return folder if layout == "folder" else folder / f"{name}.{kind}"
    for i, indices in enumerate(np.array_split(np.arange(N), 3)):
        write(folder / f"{i}.{kind}", rows[indices])
    return folder if layout == "folder" else f"{folder}/*.{kind}"


def test_diagnose(place, rows, run, tmp_path):
    completed = run(
        "diagnose", place, "--score", "alpha", "--json", tmp_path / "r.json"
    )
    assert completed.returncode == 0, completed.stderr
    report = json.loads((tmp_path / "r.json").read_text())
    expected = json.loads(td.evaluate(rows, scores=["alpha"]).to_json())
    assert report["scores"] == expected["scores"]
    assert report["n"] == N


@pytest.mark.sampled(4)
def test_diagnose_with_a_page(place, rows, run, tmp_path):
    page = tmp_path / "page.html"
    completed = run("diagnose", place, "--score", "alpha", "--html", page)
    assert completed.returncode == 0, completed.stderr
    html = page.read_text()
    estimates = td.evaluate(rows, scores=["alpha"]).scores["alpha"]
    for name in ("auroc", "frr_at_trr", "aurc", "risk_at_coverage"):
        assert estimates[name].percent() in html
    files = sorted(f for f in (tmp_path / "in").iterdir() if f.stem != "labels")
    digests = [sha256(file.read_bytes()).hexdigest() for file in files]
    combined = sha256("\n".join(digests).encode()).hexdigest()
    assert (digests[0] if len(files) == 1 else combined) in html


def test_calibrate(place, rows, run, tmp_path):
    gate = tmp_path / "gate.json"
    completed = run("calibrate", place, "--frr", 0.1, "-o", gate)
    assert completed.returncode == 0, completed.stderr
    assert td.Gate.load(gate) == td.calibrate(rows, frr=0.1)


def test_screen(place, rows, run, tmp_path):
    out, gate = tmp_path / "out.npz", td.Gate(0.0, score="alpha")
    gate.save(tmp_path / "gate.json")
    completed = run("screen", place, "--gate", tmp_path / "gate.json", "-o", out)
    assert completed.returncode == 0, completed.stderr
    expected = gate.screen(rows)
    with np.load(out) as screened:
        assert (screened["score"] == expected.doubts).all()
        assert (screened["accepted"] == expected.accepted).all()


@pytest.mark.sampled(2)
def test_check(place, rows, run, tmp_path):
    gate, state = td.calibrate(rows, frr=0.1), tmp_path / "state.json"
    gate.save(tmp_path / "gate.json")
    arguments = ("check", place, "--gate", tmp_path / "gate.json", "--state", state)
    watch = gate.watch()
    for _ in range(2):
        completed = run(*arguments)
        assert completed.returncode == 0, completed.stderr
        loaded, expected = td.Watch.load(state, gate), watch.update(rows)
        for name, test in expected.tests.items():
            assert loaded.tests[name].settled == test.settled
            assert loaded.tests[name].evidence == test.evidence


@pytest.mark.sampled(2)
def test_compare(place, rows, run, tmp_path):
    completed = run("compare", place, "--json", tmp_path / "c.json", "--quiet")
    assert completed.returncode == 0, completed.stderr
    comparison = json.loads((tmp_path / "c.json").read_text())
    assert comparison == json.loads(td.compare(rows).to_json())


def test_patterns_of_bare_arrays_are_refused_by_every_command(rows, run, tmp_path):
    write(tmp_path / "logits.npy", rows)
    td.calibrate(rows, frr=0.1).save(tmp_path / "gate.json")
    gate = ("--gate", tmp_path / "gate.json")
    for command, *options in (
        ("diagnose",),
        ("compare",),
        ("calibrate", "--frr", 0.1, "-o", tmp_path / "g.json"),
        ("screen", *gate),
        ("check", *gate, "--state", tmp_path / "s.json"),
    ):
        completed = run(command, f"{tmp_path}/*.npy", *options)
        assert completed.returncode == 2
        assert "name their folder" in completed.stderr
