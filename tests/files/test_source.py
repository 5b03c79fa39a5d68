"""Sources: files, patterns, folders, partitions and arrays, read in batches."""

import numpy as np
import polars as pl
import pytest

from trustdoctor import Gate, Predictions, engines
from trustdoctor.errors import FileError
from trustdoctor.files import Columns, find_source
from trustdoctor.files.source import BATCH


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
    joined = pl.concat([table(seed=ord(name)) for name in "abc"])
    for path in (tmp_path, tmp_path / "*.parquet", f"{tmp_path}/[abc].parquet"):
        source = find_source(path)
        assert source.rows == 300
        assert (source.read().labels == joined["label"].to_numpy()).all()
        assert source.needed == ["logit_0", "logit_1", "logit_2", "label"]


def test_a_file_with_brackets_in_its_name_is_a_file(tmp_path):
    path = tmp_path / "run[1].parquet"
    table().write_parquet(path)
    assert find_source(path).rows == 100


def test_partitions_become_columns(tmp_path):
    out, gate = tmp_path / "out.parquet", Gate(0.0, score="alpha")
    for kind in ("parquet", "csv"):
        folder = tmp_path / kind
        for day in ("monday", "tuesday"):
            inner = folder / f"day={day}"
            inner.mkdir(parents=True)
            getattr(table(seed=len(day)), f"write_{kind}")(inner / f"0.{kind}")
        source = find_source(folder)
        assert "day" in source.names
        engines.screen(source, gate, out)
        days = ["monday"] * 100 + ["tuesday"] * 100
        assert pl.read_parquet(out)["day"].to_list() == days
        engines.screen(source, gate, tmp_path / f"{kind} out")
        monday = find_source(tmp_path / f"{kind} out" / "day=monday" / f"0.{kind}")
        assert "day" not in monday.names


def test_labels_may_be_partitions(tmp_path):
    for label in range(3):
        (tmp_path / "in" / f"label={label}").mkdir(parents=True)
        inner = tmp_path / "in" / f"label={label}" / "0.parquet"
        table(seed=label).drop("label").write_parquet(inner)
    gate = Gate(0.0, score="alpha")
    outcome = engines.screen(find_source(tmp_path / "in"), gate, None)
    assert outcome.counts is not None
    assert (
        engines.screen(find_source(tmp_path / "in"), gate, tmp_path / "out") == outcome
    )


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
@pytest.mark.sampled(3)
def test_arrays_are_read_in_batches(tmp_path, save, kind):
    rng, n = np.random.default_rng(0), BATCH + 1000
    z = ARRAYS[kind](rng.normal(size=(n, 3)).astype(np.float32))
    labels = rng.integers(0, 3, n)
    if save in ("npy", "folder"):
        (tmp_path / "in").mkdir()
        np.save(tmp_path / "in" / "logits.npy", z)
        np.save(tmp_path / "in" / "labels.npy", labels)
        path = tmp_path / "in" if save == "folder" else tmp_path / "in" / "logits.npy"
    else:
        path = tmp_path / "a.npz"
        getattr(np, save)(path, logits=z, labels=labels)
    source, out = find_source(path), tmp_path / "out.npz"
    assert source.rows == n
    gate = Gate(0.0, score="alpha")
    outcome = engines.screen(source, gate, out)
    expected = gate.screen(Predictions.from_logits(z, labels))
    with np.load(out) as decisions:
        assert (decisions["score"] == expected.doubts).all()
        assert decisions["score"].dtype == expected.doubts.dtype
        assert (decisions["accepted"] == expected.accepted).all()
    assert outcome.accepted == expected.accepted.sum()


def test_an_array_of_its_own_says_what_it_holds(tmp_path):
    z = np.random.default_rng(0).normal(size=(20, 3))
    np.save(tmp_path / "mine.npy", z)
    with pytest.raises(FileError, match="give --logits mine"):
        find_source(tmp_path / "mine.npy").needed  # noqa: B018
    named = find_source(tmp_path / "mine.npy", Columns(logits="mine"))
    assert named.read().logits.shape == (20, 3)


def test_the_bad_row_is_reported_with_its_file(tmp_path):
    (tmp_path / "in").mkdir()
    table().write_parquet(tmp_path / "in" / "a.parquet")
    bad_table = table(BATCH + 500)
    bad_table = bad_table.with_columns(
        pl.when(pl.col("id") == BATCH + 77)
        .then(float("nan"))
        .otherwise("logit_1")
        .cast(pl.Float32)
        .alias("logit_1")
    )
    bad_table.write_parquet(tmp_path / "in" / "b.parquet")
    source = find_source(tmp_path / "in")
    with pytest.raises(FileError, match=rf"b\.parquet: .*NaN at row {BATCH + 77} "):
        engines.screen(source, Gate(0.0, score="alpha"), tmp_path / "out.parquet")
    assert not (tmp_path / "out.parquet").exists()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: p / "none.parquet", "there is no file"),
        (lambda p: p / "*.parquet", "no file matches"),
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


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_files_of_other_columns_are_refused(tmp_path, kind):
    getattr(table(), f"write_{kind}")(tmp_path / f"a.{kind}")
    getattr(table().drop("logit_2"), f"write_{kind}")(tmp_path / f"b.{kind}")
    with pytest.raises(FileError, match=rf"columns of .*b\.{kind}.*'logit_2'"):
        engines.screen(find_source(tmp_path), Gate(0.0, score="alpha"), None)


def test_csv_files_may_differ_in_what_types_would_be_guessed(tmp_path):
    gate = Gate(0.0, score="alpha")
    tables = [table(), table().with_columns(logit_1=1), table(seed=1)]
    (tmp_path / "in").mkdir()
    for i, file_rows in enumerate(tables):
        order = file_rows.columns if i < 2 else file_rows.columns[::-1]
        file_rows.select(order).write_csv(tmp_path / "in" / f"{i}.csv")
    outcome = engines.screen(
        find_source(tmp_path / "in"), gate, tmp_path / "out.parquet"
    )
    decisions = pl.read_parquet(tmp_path / "out.parquet")
    assert outcome.rows == len(decisions) == 300
    assert decisions.schema["logit_1"] == pl.Float64
    assert decisions["id"].to_list() == [*range(100)] * 3


def test_rows_of_other_widths_are_refused(tmp_path):
    for name, width in (("a", 3), ("b", 4)):
        lists = np.random.default_rng(0).normal(size=(50, width)).tolist()
        pl.DataFrame({"logits": lists}).write_parquet(tmp_path / f"{name}.parquet")
    with pytest.raises(FileError, match=r"one number of classes|lists of one length"):
        engines.screen(find_source(tmp_path), Gate(0.0, score="alpha"), None)
    for name, width in (("a", 3), ("b", 4)):
        np.savez(tmp_path / f"{name}.npz", logits=np.ones((5, width)))
    with pytest.raises(FileError, match=r"b\.npz as in"):
        find_source(f"{tmp_path}/*.npz").scan()


def test_damaged_and_odd_files_are_named(tmp_path):
    rng = np.random.default_rng(0)
    good = tmp_path / "good.npz"
    np.savez_compressed(good, logits=rng.normal(size=(2000, 3)))
    content = bytearray(good.read_bytes())
    content[len(content) // 2] ^= 255
    (tmp_path / "bad.npz").write_bytes(content)
    np.savez(tmp_path / "long.npz", logits=np.ones((5, 3), np.longdouble))
    (tmp_path / "empty.csv").touch()
    gate = Gate(0.0, score="alpha")
    for name in ("bad.npz", "long.npz", "empty.csv"):
        with pytest.raises(FileError, match=name):
            engines.screen(find_source(tmp_path / name), gate, tmp_path / "out.csv")
    with pytest.raises(FileError, match="UTF-8"):
        find_source("x\udcff.parquet")
    np.save(tmp_path / "logits.npy", np.ones((5, 3)))
    with pytest.raises(FileError, match="name their folder"):
        find_source(f"{tmp_path}/*.npy")


def test_labels_that_are_not_numbers_are_reported(tmp_path):
    z = np.random.default_rng(0).normal(size=(20, 3))
    np.savez(tmp_path / "a.npz", logits=z, labels=np.array(["a"] * 20))
    path, gate = tmp_path / "a.npz", Gate(0.0, score="alpha")
    with pytest.raises(FileError, match="--class-names"):
        find_source(path).read()
    loose = find_source(path, Columns(need_labels=False))
    assert engines.screen(loose, gate, None).counts is None
    text = table(20).with_columns(pl.col("label") > 0)
    text.write_csv(tmp_path / "t.csv")
    assert (
        engines.screen(find_source(tmp_path / "t.csv"), gate, None).counts is not None
    )
