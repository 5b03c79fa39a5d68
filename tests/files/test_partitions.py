"""What folders' names say of files: each column once, and the same of every file."""

import polars as pl
import pytest

import trustdoctor as td
from trustdoctor.errors import FileError
from trustdoctor.files import find_source

ROWS = pl.DataFrame({"logit_0": [1.0, 2.0], "logit_1": [2.0, 1.0], "label": [1, 0]})
WRITE = {
    "csv": pl.DataFrame.write_csv,
    "csv.gz": lambda t, p: t.lazy().sink_csv(p, compression="gzip"),
    "jsonl": pl.DataFrame.write_ndjson,
    "parquet": pl.DataFrame.write_parquet,
    "arrow": pl.DataFrame.write_ipc,
}


def folder(path, kind, *places):
    for place in places:
        (path / place).mkdir(parents=True, exist_ok=True)
        WRITE[kind](ROWS, path / place / f"a.{kind}")
    return path


@pytest.mark.parametrize("kind", WRITE)
def test_folders_that_say_alike_are_read(kind, tmp_path):
    place = folder(tmp_path / "in", kind, "day=1/hour=2", "day=2/hour=2")
    source = find_source(place)
    assert source.names[-2:] == ["day", "hour"]
    assert len(source.read()) == 4


@pytest.mark.parametrize("kind", WRITE)
@pytest.mark.parametrize(
    ("places", "message"),
    [
        (("a=1/a=2",), "say 'a' twice"),
        (("a=1/b=3/a=1", "a=2/b=3/a=1"), "say 'a' twice"),
        (("day=1", "."), r"day=\.\.\. for .* and none for|none for .* and day=\.\.\."),
        (
            ("day=1", "day=1/hour=2"),
            r"got day=\.\.\. for .* and day=\.\.\./hour=\.\.\.",
        ),
        (("day=1", "date=1"), r"got date=\.\.\. for .* and day=\.\.\. for"),
    ],
)
def test_contradictory_folders_are_reported(kind, places, message, tmp_path, run):
    place = folder(tmp_path / "in", kind, *places)
    with pytest.raises(FileError, match=message):
        td.read(place)
    completed = run("screen", place, "--gamma", 1, "-o", tmp_path / "out")
    assert completed.returncode == 2
    assert completed.stderr.count("\n") == 1
    assert "folders" in completed.stderr
    assert not (tmp_path / "out").exists()
