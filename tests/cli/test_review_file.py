"""Labels that people filled in are compared as those of any file are."""

import unicodedata

import numpy as np
import polars as pl
import pytest

import trustdoctor as td

NAMES = ("café", "3", "true")
SPELLED = {
    "as it is": lambda name: name,
    "taken apart": lambda name: unicodedata.normalize("NFD", name),
    "with blanks": lambda name: f"  {name}\u00a0",
    "as a float": lambda name: "3.0" if name == "3" else name,
    "in capitals where no case is": lambda n: n.upper() if n == "true" else n,
}


def rows(n, *, seed, labels=True):
    rng = np.random.default_rng(seed)
    z = 2 * rng.normal(size=(n, 3))
    probs = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    truth = (z + rng.gumbel(size=z.shape)).argmax(1)
    columns = {"id": [f"r{i}" for i in range(n)]}
    columns |= {name: probs[:, j] for j, name in enumerate(NAMES)}
    label_column = {"label": [NAMES[j] for j in truth]} if labels else {}
    return pl.DataFrame(columns | label_column)


@pytest.fixture
def place(tmp_path, run):
    """A gate, rows without labels of which some were drawn, and their labels."""
    probs = ("--probs", ",".join(NAMES))
    rows(2000, seed=0).write_csv(tmp_path / "calibration.csv")
    rows(400, seed=1).write_csv(tmp_path / "truth.csv")
    rows(400, seed=1, labels=False).write_csv(tmp_path / "bare.csv")
    gate = ("-o", "gate.json")
    words = ("calibrate", "calibration.csv", *probs, "--frr", "0.1", *gate)
    assert run(*words, cwd=tmp_path).returncode == 0
    drawn = ("--ids", "id", "--review-accepted", 0.2, "--draw", "drawn.csv")
    state = ("--gate", "gate.json", "--state", "state.json")
    completed = run("check", "bare.csv", *probs, *state, *drawn, cwd=tmp_path)
    assert completed.returncode == 0, completed.stderr
    return tmp_path


def filled(place, spell, separator=","):
    """Write the labels of the drawn rows; return them as they are."""
    drawn_rows = pl.read_csv(place / "drawn.csv", infer_schema=False).drop("label")
    truth = pl.read_csv(place / "truth.csv", infer_schema=False).select("id", "label")
    table = drawn_rows.join(truth, on="id", maintain_order="left")
    spelled_labels = pl.Series("label", [spell(name) for name in table["label"]])
    table.with_columns(spelled_labels).write_csv(
        place / "filled.csv", separator=separator
    )
    return table


def late(place, run, *more):
    state = ("--gate", "gate.json", "--state", "state.json")
    return run("check", "filled.csv", *state, "--late", *more, cwd=place)


@pytest.mark.parametrize("separator", [",", ";"])
@pytest.mark.parametrize("spelling", SPELLED)
@pytest.mark.sampled(2)
def test_labels_are_those_of_the_classes_however_they_are_spelled(
    spelling, separator, place, run
):
    gate = td.Gate.load(place / "gate.json")
    expected = td.Watch.load(place / "state.json", gate)
    table = filled(place, SPELLED[spelling], separator)
    wrong = (table["label"] != table["predicted"]).to_list()
    expected.label(errors=wrong, ids=table["id"].to_list())
    completed = late(place, run)
    assert completed.returncode == 0, completed.stderr
    watch = td.Watch.load(place / "state.json", gate)
    assert watch.totals.labels == len(table)
    assert 0 < sum(wrong) < len(table)
    for name, test in expected.tests.items():
        assert watch.tests[name].evidence == test.evidence, name
        assert watch.tests[name].estimate() == test.estimate(), name


def test_a_label_in_another_case_is_reported(place, run):
    filled(place, lambda name: name.replace("c", "C"))
    before = (place / "state.json").read_bytes()
    completed = late(place, run)
    assert completed.returncode == 2
    assert "It differs from 'café' only in case" in completed.stderr
    assert completed.stderr.count("\n") == 1
    assert (place / "state.json").read_bytes() == before


def test_missing_labels_are_those_that_files_may_have(place, run):
    filled(place, lambda name: "NA" if name == "3" else name)
    assert late(place, run).returncode == 0
    watch = td.Watch.load(place / "state.json", td.Gate.load(place / "gate.json"))
    truth = pl.read_csv(place / "truth.csv", infer_schema=False)
    drawn = pl.read_csv(place / "drawn.csv")["id"].to_list()
    truth_of_drawn = truth.filter(pl.col("id").is_in(drawn))["label"]
    assert watch.totals.labels == (truth_of_drawn != "3").sum()


def test_a_cut_file_of_labels_is_refused(place, run):
    filled(place, str)
    text = (place / "filled.csv").read_text()
    (place / "filled.csv").write_text(text[:-1])
    completed = late(place, run)
    assert completed.returncode == 2
    assert "has no line end" in completed.stderr
    assert late(place, run, "--last-line", "keep").returncode == 0
