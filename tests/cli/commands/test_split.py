"""The command that parts a file in two: one line on each part, one on a mistake."""

import io

import numpy as np
import polars as pl
import pytest

import trustdoctor as td

BOTH = ["-o", "a.csv", "b.csv"]


def test_two_parts_are_written_and_counted(probs, tmp_path, run):
    completed = run("split", probs, "--part", "25%", *BOTH, cwd=tmp_path)
    assert (completed.returncode, completed.stderr) == (0, "")
    assert completed.stdout == "Wrote a.csv: 100 rows\nWrote b.csv: 300 rows\n"
    tables = [pl.read_csv(tmp_path / name) for name in ("a.csv", "b.csv")]
    assert pl.concat(tables).sort("id").equals(pl.read_csv(probs))


@pytest.mark.parametrize(
    ("size", "rows"),
    [(None, 200), ("50%", 200), ("0.5", 200), (" 10 % ", 40), ("7", 7), ("399", 399)],
)
def test_a_part_is_a_share_or_a_number(size, rows, probs, tmp_path, run):
    options = [] if size is None else ["--part", size]
    completed = run("split", probs, *options, *BOTH, "-q", cwd=tmp_path)
    assert (completed.returncode, completed.stdout, completed.stderr) == (0, "", "")
    assert len(pl.read_csv(tmp_path / "a.csv")) == rows


@pytest.mark.parametrize("option", ["--ids", "--clusters"])
def test_rows_that_belong_together(option, tmp_path, run, rng):
    rows = pl.DataFrame({"who": rng.integers(0, 20, 200), "prob_0": rng.random(200)})
    rows.write_csv(tmp_path / "in.csv")
    completed = run(
        "split", "in.csv", option, "who", "--part", "5", "--seed", 3, *BOTH,
        cwd=tmp_path,
    )  # fmt: skip
    assert completed.returncode == 0, completed.stderr
    who = [set(pl.read_csv(tmp_path / name)["who"]) for name in ("a.csv", "b.csv")]
    assert (len(who[0]), len(who[1]), who[0] & who[1]) == (5, 15, set())


def test_the_second_part_calibrates_a_gate(probs, tmp_path, run):
    """A gate can be calibrated on the rows that were set aside, in every format."""
    completed = run("split", probs, "-o", "look.csv", "rest.parquet", cwd=tmp_path)
    assert completed.returncode == 0, completed.stderr
    assert run("diagnose", "look.csv", cwd=tmp_path).returncode == 0
    completed = run(
        "calibrate", "rest.parquet", "--frr", "10%", "-o", "g.json", cwd=tmp_path
    )
    assert completed.returncode == 0, completed.stderr
    assert td.Gate.load(tmp_path / "g.json").certificate.n == 200


def test_standard_input_is_split(probs, tmp_path, run, monkeypatch):
    content = io.TextIOWrapper(io.BytesIO(probs.read_bytes()))
    monkeypatch.setattr("sys.stdin", content)
    completed = run("split", "-", *BOTH, cwd=tmp_path)
    assert completed.stdout == "Wrote a.csv: 200 rows\nWrote b.csv: 200 rows\n"


NO_PART = "expected --part as a share between 0 and 1, as 0.5 or 50%, or a number"


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (["--part", "x", *BOTH], f"{NO_PART} of rows, got 'x'"),
        (["--part", "150%", *BOTH], NO_PART),
        (["--part", "0%", *BOTH], NO_PART),
        (["--part", "100%", *BOTH], NO_PART),
        (["--part", "1.0", *BOTH], NO_PART),
        (["--part", "12.5", *BOTH], NO_PART),
        (["--part=-5", *BOTH], NO_PART),
        (["--part", "", *BOTH], NO_PART),
        (["--part", "nan", *BOTH], NO_PART),
        (["--part", "9" * 5000, *BOTH], NO_PART),
        (["--part", "0", *BOTH], "at least 1 of 400 rows, got 0 for the first"),
        (["--part", "400", *BOTH], "at least 1 of 400 rows, got 400 for the first"),
        (["--part", "401", *BOTH], "got 401"),
        (["--part", "0.001", *BOTH], "got 0 for the first"),
        (["--seed", "-1", *BOTH], "expected a seed of 0 or more, got -1"),
        (["--ids", "who", *BOTH], "has no column 'who'; it has id, prob_0"),
        (["--ids", "id", "--clusters", "id", *BOTH], "--clusters or --ids, got both"),
        (["-o", "a.csv", "a.csv"], "two outputs go to one file"),
        (["-o", "a.csv", "./a.csv"], "two outputs go to one file"),
        (["-o", "a.csv", "{probs}"], "the input itself"),
        (["-o", "{probs}", "b.csv"], "the input itself"),
        (["-o", "a.csv", "no/b.csv"], "there is no folder"),
        (["-o", "a.csv", "b.txt"], "expected an output in"),
        (["-o", "a.csv", "-"], "expected an output in"),
        (["-o", "a.csv", "b.npz"], "expected a table as b.npz"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_mistakes_end_in_one_line_and_write_nothing(
    arguments, match, probs, tmp_path, run
):
    command = [word.format(probs=probs) for word in arguments]
    completed = run("split", probs, *command, cwd=tmp_path)
    assert completed.returncode == 2
    assert match in completed.stderr
    assert completed.stderr.startswith("trustdoctor: ")
    assert (completed.stderr.count("\n"), completed.stdout) == (1, "")
    assert list(tmp_path.iterdir()) == [probs]


def test_a_link_to_the_input_is_the_input(probs, tmp_path, run):
    (tmp_path / "link.csv").symlink_to(probs)
    completed = run("split", probs, "-o", "a.csv", "link.csv", cwd=tmp_path)
    assert (completed.returncode, "the input itself" in completed.stderr) == (2, True)


def test_arrays_are_split_into_arrays(tmp_path, run, rng):
    z, y = rng.normal(size=(60, 3)), rng.integers(0, 3, 60)
    np.savez(tmp_path / "in.npz", logits=z, labels=y, row=np.arange(60))
    completed = run("split", "in.npz", "-o", "a.npz", "b.npz", cwd=tmp_path)
    assert completed.returncode == 0, completed.stderr
    with np.load(tmp_path / "a.npz") as first, np.load(tmp_path / "b.npz") as second:
        row = np.r_[first["row"], second["row"]]
        assert np.array_equal(np.r_[first["logits"], second["logits"]], z[row])
        assert np.array_equal(np.sort(row), np.arange(60))
    completed = run("split", "in.npz", "-o", "c.csv", "d.npz", cwd=tmp_path)
    assert (completed.returncode, completed.stderr.count("\n")) == (2, 1)
    assert not (tmp_path / "c.csv").exists()


def test_a_full_disk_is_one_line(probs, tmp_path, run, request):
    request.getfixturevalue("full_disk")
    completed = run("split", probs, *BOTH, cwd=tmp_path)
    assert completed.returncode == 2
    assert "cannot write" in completed.stderr
    assert completed.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == [probs]


def test_help_says_what_a_part_is(run):
    shown = " ".join(
        run("split", "--help", columns=80).stdout.replace("│", " ").split()
    )
    for word in ("--part", "RATE|N", "--ids", "--clusters", "--seed", "FIRST SECOND"):
        assert word in shown
    assert "50%, 0.5, or a number of rows; with --ids or --clusters, of their" in shown
