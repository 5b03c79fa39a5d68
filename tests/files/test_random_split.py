"""A file in two random parts: each row once, as it was, with those it belongs to."""

import csv
import json
import zipfile

import numpy as np
import polars as pl
import pytest
from scipy import stats

from trustdoctor.errors import FileError, InputError, OutputError
from trustdoctor.files import find_source, split_file


def split(path, *names, **options):
    """Split into the file's folder; return the parts' paths and numbers of rows."""
    suffix = "".join(path.suffixes)
    outputs = [path.parent / (name if "." in name else name + suffix) for name in names]
    return outputs, split_file(find_source(path), *outputs, **options)


def lines(path):
    return path.read_text(encoding="utf-8").splitlines()


def table(n, seed=0):
    rng = np.random.default_rng(seed)
    return pl.DataFrame(
        {
            "id": [f"{i:06d}" for i in range(n)],
            "prob_0": rng.random(n),
            "label": rng.integers(0, 2, n),
            "seen": rng.random(n) < 0.5,
            "note": [None if i % 7 == 0 else f"text {i}" for i in range(n)],
        }
    )


def test_cells_of_a_csv_come_out_byte_for_byte(tmp_path):
    path = tmp_path / "in.csv"
    path.write_text(
        "id,prob_0,label,text,when\n"
        '007,0.50,0,"a, b",2026-01-02\n'
        '008,5e-1,1,"she said ""no""",\n'
        "009,.5,0, spaced ,x\n"
        "010,1.000,1,Müller,12345678901234567890\n"
        "011,0,0,TRUE,-0\n"
    )
    (first, second), sizes = split(path, "a", "b", share=0.4)
    assert sizes == (2, 3)
    header, *rows = list(csv.reader(lines(path)))
    tables = [list(csv.reader(lines(output))) for output in (first, second)]
    assert [output[0] for output in tables] == [header, header]
    assert sorted(tables[0][1:] + tables[1][1:]) == rows
    for output in tables:  # in the order that they had
        assert output[1:] == sorted(output[1:])


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".csv.gz", ".parquet", ".arrow"])
def test_each_row_once_in_its_order(suffix, tmp_path):
    """Also where a file is read in many batches: 200,000 rows."""
    rows = table(200_000 if suffix in (".csv", ".parquet") else 2_000)
    path = tmp_path / f"in{suffix}"
    write = {
        ".csv": rows.write_csv,
        ".tsv": lambda at: rows.write_csv(at, separator="\t"),
        ".csv.gz": lambda at: rows.write_csv(at, compression="gzip"),
        ".parquet": rows.write_parquet,
        ".arrow": rows.write_ipc,
    }[suffix]
    write(path)
    (first, second), sizes = split(path, "a", "b", share=0.3)
    assert sizes == (round(0.3 * len(rows)), len(rows) - round(0.3 * len(rows)))
    tables = [_read(output, rows.schema) for output in (first, second)]
    assert tuple(map(len, tables)) == sizes
    for output in tables:
        assert output.schema == rows.schema
        assert output["id"].is_sorted()
    assert pl.concat(tables).sort("id").equals(rows)


def _read(path, schema):
    if path.suffix == ".parquet":
        return pl.read_parquet(path)
    if path.suffix == ".arrow":
        return pl.read_ipc(path)
    separator = "\t" if path.suffix == ".tsv" else ","
    return pl.read_csv(path, separator=separator, schema=schema)


def test_json_lines_keep_their_values_and_lists(tmp_path):
    path = tmp_path / "in.jsonl"
    rows = [{"id": f"{i:03d}", "probs": [i / 40, 1 - i / 40]} for i in range(40)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (first, second), _ = split(path, "a", "b", share=0.5)
    objects = [json.loads(line) for output in (first, second) for line in lines(output)]
    assert sorted(objects, key=lambda row: row["id"]) == rows


def test_parquet_keeps_types_that_text_would_lose(tmp_path):
    path = tmp_path / "in.parquet"
    rows = table(50).with_columns(
        pl.col("prob_0").cast(pl.Float32),
        pl.col("label").cast(pl.Int8),
        pl.datetime_range(pl.datetime(2026, 1, 1), pl.datetime(2026, 2, 19), "1d"),
        pl.Series("list", [[i, i + 1] for i in range(50)]),
        pl.Series("kind", ["x", "y"] * 25, dtype=pl.Categorical),
    )
    rows.write_parquet(path)
    (first, second), _ = split(path, "a", "b", rows=20)
    joined = pl.concat([pl.read_parquet(first), pl.read_parquet(second)]).sort("id")
    assert joined.equals(rows)
    assert joined.schema == rows.schema


def test_arrays_of_an_npz_are_split_by_row_and_others_kept(tmp_path):
    """As many classes as rows, a scalar, and a name that numpy takes for its own."""
    n = 6
    arrays = {
        "logits": np.arange(n * n, dtype=np.float32).reshape(n, n),
        "labels": np.arange(n),
        "class_names": np.array(list("abcdef")),
        "temperature": np.float64(1.5),
        "file": np.array([f"{i}.png" for i in range(n)]),
        "bins": np.linspace(0, 1, 11),
    }
    path = tmp_path / "in.npz"
    with path.open("wb") as out:
        np.savez(out, **{k: v for k, v in arrays.items() if k != "file"})
    with zipfile.ZipFile(path, "a") as archive, archive.open("file.npy", "w") as entry:
        np.lib.format.write_array(entry, arrays["file"])
    paths, sizes = split(path, "a", "b", share=0.5)
    assert sizes == (3, 3)
    archives = [np.load(half) for half in paths]
    order = np.concatenate([half["labels"] for half in archives])
    assert sorted(order) == list(range(n))
    for name in ("logits", "labels", "file"):
        joined = np.concatenate([half[name] for half in archives])
        assert np.array_equal(joined, arrays[name][order])
        assert joined.dtype == arrays[name].dtype
    for name in ("class_names", "temperature", "bins"):
        assert all(np.array_equal(half[name], arrays[name]) for half in archives)


def test_arrays_that_cannot_be_split_are_refused(tmp_path):
    rng = np.random.default_rng(0)
    z = rng.normal(size=(5, 2))
    np.savez(tmp_path / "in.npz", logits=z, two=z, odd=np.array([{}], dtype=object))
    with pytest.raises(FileError, match="cannot read the arrays"):
        split(tmp_path / "in.npz", "a", "b", share=0.5)
    np.savez(tmp_path / "in.npz", logits=z, two=z, g=np.arange(5))
    for name in ("two", "absent"):
        with pytest.raises(FileError, match=r"one value per row as .*has g\."):
            split(tmp_path / "in.npz", "a", "b", share=0.5, together=name)
    with pytest.raises(FileError, match=r"expected two \.npz files"):
        split(tmp_path / "in.npz", "a.csv", "b.csv", share=0.5)
    with pytest.raises(OutputError, match="the input itself"):
        split(tmp_path / "in.npz", "a", "in.npz", share=0.5)
    (tmp_path / "two").mkdir()
    np.save(tmp_path / "two" / "logits.npy", z)
    with pytest.raises(FileError, match=r"one \.npz file to split, got logits\.npy"):
        split(tmp_path / "two" / "logits.npy", "a.npz", "b.npz", share=0.5)
    for name in "ab":
        np.savez(tmp_path / "two" / f"{name}.npz", logits=z)
    source = find_source(str(tmp_path / "two" / "*.npz"))
    with pytest.raises(FileError, match=r"one \.npz file to split, got 2 files"):
        split_file(source, tmp_path / "1.npz", tmp_path / "2.npz", share=0.5)


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".npz"])
def test_rows_of_one_value_stay_together(suffix, tmp_path):
    rng = np.random.default_rng(0)
    person = rng.integers(0, 40, 400)
    path = tmp_path / f"in{suffix}"
    if suffix == ".npz":
        z = rng.normal(size=(400, 2))
        np.savez(path, logits=z, person=person, row=np.arange(400))
    else:
        rows = pl.DataFrame({"row": np.arange(400), "person": person})
        rows.write_csv(path) if suffix == ".csv" else rows.write_parquet(path)
    paths, sizes = split(path, "a", "b", rows=10, together="person")
    people = [_column(output, "person") for output in paths]
    assert tuple(map(len, people)) == sizes
    assert len(set(people[0])) == 10
    assert set(people[0]).isdisjoint(people[1])
    every = np.concatenate([_column(output, "row") for output in paths])
    assert sorted(every) == list(range(400))


def _column(path, name):
    if path.suffix == ".npz":
        return np.load(path)[name]
    table = pl.read_csv if path.suffix == ".csv" else pl.read_parquet
    return table(path)[name].to_numpy()


NO_VALUE = {
    "a quoted blank": (".csv", ["a", "a", *['""'] * 40]),
    "nothing": (".csv", ["a", "a", *[""] * 40]),
    "spaces": (".csv", ["a", "a", *["  "] * 40]),
    "null": (".parquet", ["a", "a", *[None] * 40]),
    "NaN": (".parquet", [1.0, 1.0, *[np.nan] * 40]),
    "blanks in an array": (".npz", ["a", "a", *[""] * 40]),
}


@pytest.mark.parametrize("blank", NO_VALUE)
def test_rows_without_an_id_are_not_matched(blank, tmp_path):
    """Else all of them would be one unit, and fall into one part."""
    suffix, ids = NO_VALUE[blank]
    path = tmp_path / f"in{suffix}"
    if suffix == ".csv":
        path.write_text("id,row\n" + "".join(f"{v},{i}\n" for i, v in enumerate(ids)))
    elif suffix == ".parquet":
        pl.DataFrame({"id": ids, "row": range(42)}, strict=False).write_parquet(path)
    else:
        np.savez(path, logits=np.zeros((42, 2)), id=np.array(ids), row=np.arange(42))
    paths, sizes = split(path, "a", "b", rows=20, together="id")
    rows = [set(_column(output, "row")) for output in paths]
    assert rows[0] | rows[1] == set(range(42))
    assert len({0, 1} & rows[0]) in (0, 2)
    assert sizes[0] in (20, 21)  # of 41 units, one of two rows


@pytest.mark.parametrize(
    "values",
    [
        [[1], [1], [2], [2]],
        [True, True, False, False],
        pl.Series(["x", "x", "y", "y"], dtype=pl.Categorical),
        [1.5, 1.5, 2.5, 2.5],
        [b"x", b"x", b"y", b"y"],
    ],
    ids=["lists", "truths", "categories", "floats", "bytes"],
)
def test_ids_of_any_type(values, tmp_path):
    pl.DataFrame({"id": values, "row": range(4)}).write_parquet(tmp_path / "in.parquet")
    paths, sizes = split(tmp_path / "in.parquet", "a", "b", share=0.5, together="id")
    assert sizes == (2, 2)
    assert sorted(pl.read_parquet(paths[0])["row"]) in ([0, 1], [2, 3])


def test_the_same_seed_gives_the_same_parts(tmp_path):
    path = tmp_path / "in.csv"
    table(300).write_csv(path)
    texts = [
        split(path, "a", "b", share=0.5, seed=seed)[0][0].read_bytes()
        for seed in (0, 0, 1)
    ]
    assert texts[0] == texts[1] != texts[2]
    typed = split(path, "a.parquet", "b.parquet", share=0.5)[0][0]
    split(path, "a", "b", share=0.5)
    ids = [line.partition(",")[0] for line in lines(tmp_path / "a.csv")[1:]]
    assert pl.read_parquet(typed)["id"].to_list() == ids  # whatever it is written as


@pytest.mark.parametrize(
    ("n", "options", "sizes"),
    [
        (5, {"share": 0.5}, (2, 3)),
        (2, {"share": 0.5}, (1, 1)),
        (7, {"rows": 6}, (6, 1)),
        (1000, {"share": 0.001}, (1, 999)),
        (1000, {"share": 1 / 3}, (333, 667)),
    ],
    ids=str,
)
def test_shares_are_right(n, options, sizes, tmp_path):
    table(n).write_csv(tmp_path / "in.csv")
    assert split(tmp_path / "in.csv", "a", "b", **options)[1] == sizes


@pytest.mark.parametrize(
    ("n", "options"),
    [
        (1, {"share": 0.5}),
        (5, {"rows": 0}),
        (5, {"rows": 5}),
        (5, {"rows": 10**30}),
        (5, {"share": 0.01}),
        (5, {"share": 0.5, "together": "one"}),
    ],
    ids=str,
)
def test_an_empty_part_is_refused(n, options, tmp_path):
    table(n).with_columns(one=pl.lit("x")).write_csv(tmp_path / "in.csv")
    with pytest.raises(InputError, match="expected each part to get at least 1 of"):
        split(tmp_path / "in.csv", "a", "b", **options)
    assert [file.name for file in tmp_path.iterdir()] == ["in.csv"]


def test_a_file_without_rows_is_refused(tmp_path):
    (tmp_path / "in.csv").write_text("id,prob_0\n")
    with pytest.raises(InputError, match="of 0 rows"):
        split(tmp_path / "in.csv", "a", "b", share=0.5)


@pytest.mark.parametrize("seed", [-1, 1.5, "x"])
def test_an_invalid_seed_is_refused(seed, tmp_path):
    table(5).write_csv(tmp_path / "in.csv")
    with pytest.raises(InputError, match="expected a seed of 0 or more"):
        split(tmp_path / "in.csv", "a", "b", share=0.5, seed=seed)


def test_folders_and_patterns_are_one_table(tmp_path):
    rows = table(90)
    for month in range(3):
        (tmp_path / "in" / f"month={month}").mkdir(parents=True)
        month_rows = rows[30 * month : 30 * month + 30]
        month_rows.write_parquet(tmp_path / "in" / f"month={month}" / "x.parquet")
    outputs = tmp_path / "a.parquet", tmp_path / "b.parquet"
    for place in (tmp_path / "in", str(tmp_path / "in" / "*" / "*.parquet")):
        split_file(find_source(place), *outputs, share=0.5, seed=3)
        joined = pl.concat(map(pl.read_parquet, outputs)).sort("id")
        assert joined.select(rows.columns).equals(rows)
    inside = tmp_path / "in" / "month=0" / "x.parquet"
    with pytest.raises(OutputError, match="the input itself"):
        split_file(find_source(tmp_path / "in"), outputs[0], inside, share=0.5)


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".npz"])
def test_a_full_disk_leaves_both_old_files(suffix, tmp_path, request):
    """Also where one part fits and the other does not."""
    rng = np.random.default_rng(0)
    path = tmp_path / f"in{suffix}"
    if suffix == ".npz":
        np.savez(path, logits=rng.normal(size=(20_000, 3)))
    elif suffix == ".csv":
        table(20_000).write_csv(path)
    else:
        table(20_000).write_parquet(path)
    for name in "ab":
        (tmp_path / f"{name}{suffix}").write_text("old")
    request.getfixturevalue("full_disk")
    for rows in (10, 19_990):
        with pytest.raises((OutputError, FileError), match="cannot write"):
            split(path, f"a{suffix}", f"b{suffix}", rows=rows)
        assert [(tmp_path / f"{n}{suffix}").read_text() for n in "ab"] == ["old"] * 2
    assert not [f for f in tmp_path.iterdir() if f.name.startswith(".")]


def test_a_csv_may_become_another_table(tmp_path):
    """Ids with leading zeros stay text; numbers become numbers."""
    (tmp_path / "in.csv").write_text("id,p\n007,0.5\n008,0.25\n009,1\n010,0\n")
    paths, _ = split(tmp_path / "in.csv", "a.parquet", "b.jsonl", share=0.5)
    typed = pl.read_parquet(paths[0])
    assert typed.schema == {"id": pl.String, "p": pl.Float64}
    second_ids = [json.loads(line)["id"] for line in lines(paths[1])]
    assert sorted([*typed["id"], *second_ids]) == ["007", "008", "009", "010"]
    for name in ("b.npz", "b.txt"):
        with pytest.raises(FileError, match=r"expected (a table|an output)"):
            split(tmp_path / "in.csv", "a.csv", name, share=0.5)


def test_a_semicolon_and_utf_16_are_read_as_elsewhere(tmp_path):
    path = tmp_path / "in.csv"
    path.write_text("id;p\nä;0,5\nb;0,25\n", encoding="utf-16")
    paths, sizes = split(path, "a", "b", share=0.5)
    assert sizes == (1, 1)
    readers = [csv.reader(lines(output), delimiter=";") for output in paths]
    rows = [row for output in readers for row in list(output)[1:]]
    assert sorted(rows) == [["b", "0,25"], ["ä", "0,5"]]


def test_one_name_twice_and_another_encoding_are_refused(tmp_path):
    path = tmp_path / "in.csv"
    path.write_bytes("id,p\nä,0.5\nb,1\n".encode("latin-1"))
    with pytest.raises(FileError, match="in UTF-8"):
        split(path, "a", "b", share=0.5)
    path.write_text("id,p\na,0.5\nb,1,0,7\n")
    with pytest.raises(FileError, match="ragged"):
        split(path, "a", "b", share=0.5)
    path.write_text("id,p,p\na,0.5,1\nb,1,0\n")
    with pytest.raises(FileError, match="has the column 'p' twice"):
        split(path, "a", "b", share=0.5)


def test_rows_are_exchangeable_between_the_parts(tmp_path):
    """Each row is as likely in the first part, and so are two together."""
    n, draws, size = 12, 200, 4
    path = tmp_path / "in.parquet"
    pl.DataFrame({"row": np.arange(n)}).write_parquet(path)
    drawn = np.zeros((draws, n), bool)
    for seed in range(draws):
        (first, _), _ = split(path, "a", "b", rows=size, seed=seed)
        drawn[seed, pl.read_parquet(first)["row"].to_numpy()] = True
    assert (drawn.sum(1) == size).all()
    assert stats.chisquare(drawn.sum(0)).pvalue > 1e-3
    pairs = (drawn.T.astype(int) @ drawn)[np.triu_indices(n, 1)]
    assert stats.chisquare(pairs).pvalue > 1e-3
