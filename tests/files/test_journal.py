"""An interrupted run over a folder resumes with the files that are unchanged."""

import json
import os

import polars as pl
import pytest

import trustdoctor as td
from trustdoctor.engines import screen
from trustdoctor.errors import FileError
from trustdoctor.files import Columns, find_source
from trustdoctor.files.journal import JOURNAL, Journal

GATE = td.Gate(-0.5, score="alpha")


@pytest.fixture
def folder(tmp_path, rng):
    (tmp_path / "in").mkdir()
    for name in "abc":
        z = rng.normal(size=(20, 3))
        table = {f"logit_{k}": z[:, k] for k in range(3)}
        label = pl.Series("label", rng.integers(0, 3, 20))
        pl.DataFrame(table).with_columns(label).write_csv(
            tmp_path / "in" / f"{name}.csv"
        )
    return tmp_path


def run(folder, **options):
    return screen(find_source(folder / "in"), GATE, folder / "out", **options)


def contents(folder):
    return {file.name: file.read_bytes() for file in (folder / "out").glob("*.csv")}


@pytest.mark.parametrize("change", ["shorter", "as long", "empty", "gone"])
def test_an_output_that_was_changed_is_written_again(change, folder):
    first = run(folder)
    before, intact_state = contents(folder), (folder / "out" / "a.csv").stat()
    path = folder / "out" / "b.csv"
    text = path.read_text()
    if change == "gone":
        path.unlink()
    else:
        other = text.replace("true", "TRUE", 1) if change == "as long" else text[:50]
        path.write_text("" if change == "empty" else other)
    assert contents(folder) != before
    assert run(folder, resume=True) == first
    assert contents(folder) == before
    rewritten = (folder / "out" / "a.csv").stat()
    assert (rewritten.st_ino, rewritten.st_mtime_ns) == (
        intact_state.st_ino,
        intact_state.st_mtime_ns,
    )


def test_a_truth_that_was_changed_is_counted_again(folder):
    truth, file = folder / "truth.csv", folder / "in" / "a.csv"
    for other in "bc":
        (folder / "in" / f"{other}.csv").unlink()
    rows = pl.read_csv(file).drop("label").with_row_index("id")
    rows.write_csv(file)
    best = rows.select("logit_0", "logit_1", "logit_2").to_numpy().argmax(1)
    columns = Columns(truth=truth, ids="id")

    def risk(labels):
        rows.select("id", pl.Series("label", labels)).write_csv(truth)
        source = find_source(folder / "in", columns)
        return screen(source, GATE, folder / "out", resume=(folder / "out").exists())

    assert risk(best).counts.accepted_errors == 0
    with pytest.raises(FileError, match="other columns"):
        risk((best + 1) % 3)


def test_an_input_that_changes_while_it_is_read_is_read_again(folder):
    source = find_source(folder / "in")
    out = folder / "out"
    journal = Journal(out, GATE, source)
    journal.begin(resume=False)
    file = folder / "in" / "a.csv"
    assert journal.find(file) is None
    run(folder)
    file.write_text(file.read_text() + "1,2,3,0\n")
    journal.begin(resume=False)
    journal.note(file, td.gates.Outcome(20, 10))
    later = Journal(out, GATE, find_source(folder / "in"))
    later.begin(resume=True)
    assert later.find(file) is None


def test_processes_that_share_a_folder_keep_what_the_others_noted(folder):
    first = run(folder)
    files = sorted((folder / "in").iterdir())
    journals = [Journal(folder / "out", GATE, find_source(folder / "in")) for _ in "xy"]
    journals[0].begin(resume=False)
    journals[1].begin(resume=True)
    outcomes = [td.gates.Outcome(20, k) for k in range(3)]
    for turn, file, outcome in zip((0, 1, 0), files, outcomes, strict=True):
        journals[turn].note(file, outcome)
    last = Journal(folder / "out", GATE, find_source(folder / "in"))
    last.begin(resume=True)
    assert [last.find(file) for file in files] == outcomes
    assert first.rows == 60
    gate = td.Gate(0.0, score="alpha")
    other = Journal(folder / "out", gate, find_source(folder / "in"))
    with pytest.raises(FileError, match="another gate"):
        other.note(files[0], outcomes[0])
    assert not [f for f in (folder / "out").iterdir() if f.name.endswith(".lock")]


@pytest.mark.parametrize(
    "entry",
    [
        None,
        [],
        {},
        "x",
        [20, 21, None, 20, 0, 0.0, 0],
        [-1, -1, None, -1, 0, 0.0, 0],
        [20, 1.0, None, 20, 0, 0.0, 0],
        [20, True, None, 20, 0, 0.0, 0],
        [20, 1, [5, 5, 5, 50], 20, 0, 0.0, 0],
        [20, 1, [-5, 5, 5, 5], 20, 0, 0.0, 0],
        [20, 1, [5, 5, 5], 20, 0, 0.0, 0],
        [20, 1, 5, 20, 0, 0.0, 0],
        [20, 1, None, 10, 0, 0.0, 0],
        [20, 1, None, 20, 99, 0.0, 0],
        [20, 1, None, 20, 0, "inf", 0],
        [20, 1, None, 20, 0, None, 0],
        [20, 1, None, 20, 0, 0.0, 0, 0, 99],
        [20, 1, None, 20, 0, 0.0, 0, 0, 0, 0, 0, None],
        # Each count is possible, but not together with the others.
        [20, 10, [5, 5, 6, 4], 20, 0, 0.0, 1, 0, 9, 2],
        [20, 10, [4, 5, 6, 5], 20, 0, 0.0],
        [20, 10, [6, 5, 4, 5], 20, 0, 0.0],
        [20, 10, [5, 5, 5, 4], 20, 0, 0.0],
        [20, 10, [5, 5, 5, 5], 20, 1, 0.0],
        [20, 10, None, 20, 0, 0.0],
        [20, 10, [5, 5, 5, 5], 20, 0, 0.0, 0, 0, 0, 0, 1, ""],
        [20, 10, [5, 5, 5, 5], 20, 0, 0.0, 0, 0, 0, 0, 0, "", False, [10, 15, 0, 9, 8]],
    ],
    ids=str,
)
@pytest.mark.sampled(3)
def test_a_tampered_journal_is_refused(entry, folder):
    run(folder)
    path = folder / "out" / JOURNAL
    content = json.loads(path.read_text())
    stamp = next(iter(content["done"]))
    content["done"][stamp] = entry
    path.write_text(json.dumps(content))
    with pytest.raises(FileError, match="cannot read the journal"):
        run(folder, resume=True)


@pytest.mark.parametrize(
    "entry",
    [
        [20, 10, [5, 5, 5, 5], 20, 0, 0.0],
        [20, 10, [5, 4, 5, 5], 20, 1, 0.0, 4, 20, 3, 3],
        [20, 10, None, 20, 20, 0.0],
        [20, 10, [5, 4, 3, 5], 0, 0, 0.0],
        [20, 10, [5, 4, 5, 5], 20, 1, 0.0, 0, 0, 2, 0, 18, "cutoff 0.3", False],
        [20, 10, [5, 4, 5, 5], 20, 1, 0.0, 0, 0, 0, 0, 0, "", True, [10, 15, 0, 9, 8]],
    ],
    ids=str,
)
def test_plausible_counts_are_kept(entry, folder):
    run(folder)
    path = folder / "out" / JOURNAL
    content = json.loads(path.read_text())
    content["done"] = dict.fromkeys(content["done"], entry)
    path.write_text(json.dumps(content))
    outcome = run(folder, resume=True)
    assert (outcome.rows, outcome.accepted) == (60, 30)


def test_a_journal_is_a_file_and_strict_json(folder):
    run(folder)
    path = folder / "out" / JOURNAL
    text = path.read_text()
    for other in ("", "[]", "{}", text[:-9], text.replace("1,", "1e400,"), "[" * 10**5):
        path.write_text(other)
        with pytest.raises(FileError, match="cannot read the journal"):
            run(folder, resume=True)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(FileError, match="cannot read the journal"):
        run(folder, resume=True)


def test_folders_whose_names_are_not_utf_8_have_journals(folder):
    out = folder / os.fsdecode(b"\xff\xfe")
    out.mkdir()
    source, outcome = find_source(folder / "in"), td.gates.Outcome(20, 1)
    Journal(out, GATE, source).note(source.files[0], outcome)
    later = Journal(out, GATE, source)
    later.begin(resume=True)
    assert later.find(source.files[0]) == outcome
