import numpy as np
import polars as pl
import pytest

from trustdoctor import Gate, engines
from trustdoctor.errors import FileError, OutputError
from trustdoctor.files import Columns, find_source, read

PROBS = np.array([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8], [0.3, 0.4, 0.3]])
LOGITS = np.log(PROBS) + 3
LABELS = np.array([0, 2, 0])


def write_decisions(path, source):
    found = find_source(source, Columns(need_labels=False))
    return engines.screen(found, Gate.from_gamma(1.0), path)


def columns(prefix, values):
    return {f"{prefix}{i}": values[:, i] for i in range(values.shape[1])}


def read_table(path):
    """Read all columns, with the types that polars finds; text stays text."""
    if path.suffix == ".parquet":
        return pl.read_parquet(path)
    return pl.read_csv(path)


def write(path, table):
    if path.suffix == ".csv":
        pl.DataFrame(table).write_csv(path)
    elif path.suffix == ".parquet":
        pl.DataFrame(table).write_parquet(path)
    else:
        np.savez(path, **table)
    return path


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_decisions_keep_the_other_columns_and_their_order(suffix, tmp_path):
    source = write(
        tmp_path / f"p{suffix}", {"id": ["a", "b", "c"], **columns("prob_", PROBS)}
    )
    screened = Gate.from_gamma(1.0).screen(read(source))
    write_decisions(tmp_path / f"out{suffix}", source)
    before, after = read_table(source), read_table(tmp_path / f"out{suffix}")
    assert after.columns == [*before.columns, "predicted", "score", "accepted"]
    assert after.drop("predicted", "score", "accepted").equals(before)
    assert after["predicted"].to_list() == screened.predicted.tolist()
    assert after["accepted"].to_list() == [True, True, False]
    assert after["score"].to_numpy() == pytest.approx(screened.scores)


def test_decisions_on_an_npz(tmp_path):
    source = write(tmp_path / "p.npz", {"probs": PROBS})
    screened = Gate.from_gamma(1.0).screen(read(source))
    for name in ("out.npz", "out.csv"):
        write_decisions(tmp_path / name, source)
    with np.load(tmp_path / "out.npz") as out:
        assert np.array_equal(out["score"], screened.scores)
        assert out["accepted"].tolist() == [True, True, False]
    assert read_table(tmp_path / "out.csv").columns == [
        "predicted",
        "score",
        "accepted",
    ]


def test_decisions_that_cannot_be_written_leave_the_old_file(tmp_path, request):
    rng = np.random.default_rng(0)
    source = write(tmp_path / "p.npz", {"logits": rng.normal(size=(50_000, 3))})
    request.getfixturevalue("full_disk")
    for suffix in (".csv", ".parquet", ".npz"):
        out = tmp_path / f"out{suffix}"
        out.write_text("old")
        with pytest.raises((OutputError, FileError), match="cannot write"):
            write_decisions(out, source)
        assert out.read_text() == "old"
    assert not [f for f in tmp_path.iterdir() if f.name.startswith(".")]


def test_decisions_in_odd_places_are_refused(tmp_path):
    source = write(tmp_path / "p.csv", {"score": [1, 2, 3], **columns("prob_", PROBS)})
    with pytest.raises(FileError, match="already has a column 'score'"):
        write_decisions(tmp_path / "out.csv", source)
    with pytest.raises(FileError, match="expected an output"):
        write_decisions(tmp_path / "out.txt", source)
    lists = write(tmp_path / "l.parquet", {"probs": PROBS.tolist()})
    with pytest.raises(FileError, match="holds lists"):
        write_decisions(tmp_path / "out.csv", lists)
    assert not (tmp_path / "out.csv").exists()


def test_the_input_is_never_overwritten(tmp_path):
    path = write(tmp_path / "p.npz", {"probs": PROBS})
    before = path.read_bytes()
    with pytest.raises(OutputError, match="the input itself"):
        write_decisions(tmp_path / "." / "p.npz", path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_text_that_a_number_would_lose_is_kept(suffix, tmp_path):
    source = tmp_path / "p.csv"
    source.write_text("id,prob_0,prob_1\n007,0.50,5e-1\n012,1,0\n")
    write_decisions(tmp_path / f"out{suffix}", source)
    if suffix == ".csv":
        lines = (tmp_path / "out.csv").read_text().splitlines()
        assert lines[1].startswith("007,0.50,5e-1,")
    else:
        assert read_table(tmp_path / "out.parquet")["id"].to_list() == ["007", "012"]
