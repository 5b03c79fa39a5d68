"""Sources: files, patterns, folders, partitions and arrays, read in batches."""

import numpy as np
import polars as pl
import pytest

from trustdoctor.adapters.files import Columns
from trustdoctor.adapters.scan import BATCH, find_source
from trustdoctor.engines import local
from trustdoctor.errors import FileError
from trustdoctor.gate import Gate


def table(n=100, seed=0):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, 3)).astype(np.float32)
    named = {f"logit_{j}": z[:, j] for j in range(3)}
    return pl.DataFrame(named | {"label": rng.integers(0, 3, n), "id": range(n)})


def test_folders_and_patterns_are_read_in_the_order_of_names(tmp_path):
    for name in ("b", "a", "c"):
        table(seed=ord(name)).write_parquet(tmp_path / f"{name}.parquet")
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / ".hidden.parquet").touch()
    whole = pl.concat([table(seed=ord(name)) for name in "abc"])
    for path in (tmp_path, tmp_path / "*.parquet", f"{tmp_path}/[abc].parquet"):
        source = find_source(path)
        assert source.rows == 300
        assert (source.read().labels == whole["label"].to_numpy()).all()
        assert source.needed == ["logit_0", "logit_1", "logit_2", "label"]


def test_a_file_with_brackets_in_its_name_is_a_file(tmp_path):
    path = tmp_path / "run[1].parquet"
    table().write_parquet(path)
    assert find_source(path).rows == 100


def test_partitions_become_columns(tmp_path):
    for day in ("monday", "tuesday"):
        (tmp_path / f"day={day}").mkdir()
        table(seed=len(day)).write_parquet(tmp_path / f"day={day}" / "0.parquet")
    source = find_source(tmp_path)
    assert "day" in source.names
    out = tmp_path / "out.parquet"
    local.screen(source, Gate(0.0, score="alpha"), out)
    assert pl.read_parquet(out)["day"].to_list() == ["monday"] * 100 + ["tuesday"] * 100


ARRAYS = {
    "plain": lambda z: z,
    "columns first": np.asfortranarray,
    "big endian": lambda z: z.astype(">f4"),
    "half": lambda z: z.astype(np.float16),
    "double": lambda z: z.astype(np.float64),
    "whole": lambda z: (100 * z).astype(np.int32),
}


@pytest.mark.parametrize("save", ["savez", "savez_compressed", "npy", "folder"])
@pytest.mark.parametrize("kind", ARRAYS)
def test_arrays_are_read_in_batches(tmp_path, save, kind):
    rng, n = np.random.default_rng(0), BATCH + 1000
    z = ARRAYS[kind](rng.normal(size=(n, 3)).astype(np.float32))
    labels = rng.integers(0, 3, n)
    if save in ("npy", "folder"):
        np.save(tmp_path / "logits.npy", z)
        np.save(tmp_path / "labels.npy", labels)
        path = tmp_path if save == "folder" else tmp_path / "logits.npy"
    else:
        path = tmp_path / "a.npz"
        getattr(np, save)(path, logits=z, labels=labels)
    source, out = find_source(path), tmp_path / "out.npz"
    assert source.rows == n
    gate = Gate(0.0, score="alpha")
    done = local.screen(source, gate, out)
    from trustdoctor import Predictions

    expected = gate.screen(Predictions.from_logits(z, labels))
    with np.load(out) as found:
        assert (found["score"] == expected.scores).all()
        assert found["score"].dtype == expected.scores.dtype
        assert (found["accepted"] == expected.accepted).all()
    assert done.accepted == expected.accepted.sum()


def test_an_array_of_its_own_says_what_it_holds(tmp_path):
    z = np.random.default_rng(0).normal(size=(20, 3))
    np.save(tmp_path / "mine.npy", z)
    with pytest.raises(FileError, match="give --logits mine"):
        find_source(tmp_path / "mine.npy").needed  # noqa: B018
    named = find_source(tmp_path / "mine.npy", Columns(logits="mine"))
    assert named.read().logits.shape == (20, 3)


def test_the_bad_row_is_told_with_its_file(tmp_path):
    table().write_parquet(tmp_path / "a.parquet")
    bad = table(BATCH + 500)
    bad = bad.with_columns(
        pl.when(pl.col("id") == BATCH + 77)
        .then(float("nan"))
        .otherwise("logit_1")
        .cast(pl.Float32)
        .alias("logit_1")
    )
    bad.write_parquet(tmp_path / "b.parquet")
    source = find_source(tmp_path)
    with pytest.raises(FileError, match=rf"b\.parquet: .*NaN at row {BATCH + 77} "):
        local.screen(source, Gate(0.0, score="alpha"), tmp_path / "out.parquet")
    assert not (tmp_path / "out.parquet").exists()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: p / "none.parquet", "there is no file"),
        (lambda p: p / "*.parquet", "no file is like"),
        (lambda p: p, "holds no file"),
        (lambda p: p / "a.txt", "expected a file in"),
    ],
)
def test_missing_files_are_named(tmp_path, make, message):
    with pytest.raises(FileError, match=message):
        find_source(make(tmp_path))


def test_files_of_several_kinds_are_refused(tmp_path):
    table().write_parquet(tmp_path / "a.parquet")
    table().write_csv(tmp_path / "a.csv")
    with pytest.raises(FileError, match="of one kind"):
        find_source(tmp_path)


def test_files_of_other_columns_are_refused(tmp_path):
    table().write_parquet(tmp_path / "a.parquet")
    table().drop("logit_2").write_parquet(tmp_path / "b.parquet")
    with pytest.raises(FileError):
        local.screen(find_source(tmp_path), Gate(0.0, score="alpha"), None)
