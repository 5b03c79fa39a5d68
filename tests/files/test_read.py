import numpy as np
import polars as pl
import pytest

from trustdoctor.errors import FileError, InputError
from trustdoctor.files import Columns, find_source, read, read_class_names

PROBS = np.array([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8], [0.3, 0.4, 0.3]])
LOGITS = np.log(PROBS) + 3
LABELS = np.array([0, 2, 0])


def columns(prefix, values):
    return {f"{prefix}{i}": values[:, i] for i in range(values.shape[1])}


def write(path, table):
    if path.suffix == ".csv":
        pl.DataFrame(table).write_csv(path)
    elif path.suffix == ".parquet":
        pl.DataFrame(table).write_parquet(path)
    else:
        np.savez(path, **table)
    return path


def same(p, *, probs, labels=True):
    assert p.from_probabilities is probs
    expected = np.log(PROBS) if probs else LOGITS
    assert np.allclose(p.logits, expected)
    assert (p.labels.tolist() == LABELS.tolist()) if labels else p.labels is None


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_numbered_columns(suffix, tmp_path):
    path = tmp_path / f"p{suffix}"
    shuffled = dict(reversed(columns("logit_", LOGITS).items()))
    same(read(write(path, shuffled | {"label": LABELS})), probs=False)
    same(
        read(write(path, columns("prob_", PROBS) | {"label": LABELS})),
        probs=True,
    )
    same(read(write(path, columns("prob_", PROBS))), probs=True, labels=False)


@pytest.mark.parametrize("kind", [pl.List(pl.Float64), pl.Array(pl.Float32, 3)])
def test_list_columns(kind, tmp_path):
    table = {"probs": pl.Series(PROBS.tolist(), dtype=kind), "label": LABELS}
    same(read(write(tmp_path / "p.parquet", table)), probs=True)


def test_npz(tmp_path):
    path = tmp_path / "p.npz"
    same(read(write(path, {"logits": LOGITS, "labels": LABELS})), probs=False)
    same(read(write(path, {"probs": PROBS})), probs=True, labels=False)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_the_original_doctor_layout(suffix, tmp_path):
    table = columns("", PROBS) | {"label": PROBS.argmax(1), "true_label": LABELS}
    same(read(write(tmp_path / f"p{suffix}", table)), probs=True)


def test_the_doctor_layouts_columns_must_fit(tmp_path):
    path = tmp_path / "p.csv"
    table = columns("", PROBS) | {"label": LABELS, "true_label": PROBS.argmax(1)}
    with pytest.raises(FileError, match="column 'label' is the prediction"):
        read(write(path, table))
    table = columns("", PROBS) | {"label": PROBS.argmax(1), "true_label": LABELS}
    del table["2"]
    with pytest.raises(FileError, match="sums to"):
        read(write(path, table))


def test_other_names_can_be_given(tmp_path):
    path = tmp_path / "p.csv"
    table = columns("z", LOGITS) | {"truth": LABELS, "label": [9, 9, 9]}
    p = read(write(path, table), logits="z", labels="truth")
    same(p, probs=False)
    path = tmp_path / "p.npz"
    table = {"values": PROBS, "label": LABELS, "logits": np.zeros(3)}
    same(read(write(path, table), probs="values", labels="label"), probs=True)


def test_csv_with_missing_probability_zero_keeps_minus_infinity(tmp_path):
    path = tmp_path / "p.csv"
    path.write_text("logit_0,logit_1,label\n0.5,-inf,0\n1,2,1\n")
    assert read(path).logits[0, 1] == -np.inf


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "is empty"),
        ("prob_0,prob_1,label\n", "no rows"),
        ("prob_0,label\n1.0,0\n", "at least 2 classes"),
        ("a,b\n1,2\n", "expected columns logit_0"),
        ("prob_0,prob_2,label\n0.5,0.5,0\n", "prob_1 is missing"),
        ("prob_0,prob_1,label\n0.5,nan,0\n", "NaN at row 0"),
        ("logit_0,logit_1,label\n0.5,inf,0\n", r"logits hold \+inf at row 0"),
        ("prob_0,prob_1,label\n0.5,0.5,2\n", r"got 2(\.0)? at row 0"),
        ("prob_0,prob_1,label\n0.5,,0\n", "no value at row 0"),
        ("prob_0,prob_1,label\n0.5,0.5,cat\n", "'cat' at row 0"),
        ("prob_0,prob_1,label\n0.5,x,0\n0.5,0.5,0\n", "'x' at row 0"),
        ("prob_0,prob_1,label\n0.5,0.5,0\n0.5,0.5,0,7,8\n", "ragged"),
        ("prob_0,prob_1,label\n5,-4.5,0\n", "look like logits"),
        ("prob_0,prob_1,logit_0,logit_1\n0.5,0.5,1,1\n", "both logits and probs"),
    ],
)
def test_bad_csv_files_are_refused(text, match, tmp_path):
    path = tmp_path / "p.csv"
    path.write_text(text)
    with pytest.raises(FileError, match=match) as caught:
        read(path)
    assert "p.csv" in str(caught.value)


def test_bad_npz_files_are_refused(tmp_path):
    path = tmp_path / "p.npz"
    write(path, {"probs": PROBS, "labels": LABELS})
    intact = path.read_bytes()
    for content in (b"", b"not a zip", intact[:100], intact[:-30]):
        path.write_bytes(content)
        with pytest.raises(FileError, match="cannot read"):
            read(path)
    for table, match in (
        ({"x": PROBS}, "array logits or probs"),
        ({"probs": PROBS, "logits": LOGITS}, "both"),
        ({"probs": PROBS[0]}, "shape"),
        ({"probs": PROBS, "labels": LABELS[:2]}, "labels as 3 entries"),
    ):
        with pytest.raises(FileError, match=match):
            read(write(path, table))
    with pytest.raises(FileError, match="no 'y'"):
        read(write(path, {"probs": PROBS}), labels="y")
    for kind in ("logits", "probs", "features", "groups", "ids"):
        with pytest.raises(FileError, match="no 'y'"):
            read(path, **{kind: "y"})


class Bomb:
    def __reduce__(self):
        return pytest.fail, ("a pickle was read",)


def test_pickled_objects_are_refused_and_never_read(tmp_path):
    path = tmp_path / "p.npz"
    np.savez(path, logits=np.array([Bomb(), Bomb()], object), allow_pickle=True)
    with pytest.raises(FileError, match="pickled objects"):
        read(path)


def test_bad_parquet_files_are_refused(tmp_path):
    path = tmp_path / "p.parquet"
    write(path, {"probs": [[0.5, 0.5], [1.0]], "label": [0, 0]})
    with pytest.raises(FileError, match="one length"):
        read(path)
    intact = path.read_bytes()
    for content in (b"", intact[: len(intact) // 2]):
        path.write_bytes(content)
        with pytest.raises(FileError, match="cannot read"):
            read(path)


def test_unreadable_paths_are_reported(tmp_path):
    with pytest.raises(FileError, match="no file"):
        read(tmp_path / "absent.csv")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(FileError, match=r"folder\.csv holds no file in"):
        read(tmp_path / "folder.csv")
    with pytest.raises(FileError, match=r"expected a file in \.npz"):
        read(tmp_path / "p.xlsx")
    with pytest.raises(InputError, match="both"):
        read(tmp_path / "p.csv", logits="a", probs="b")


def test_names_are_names_and_not_patterns(tmp_path):
    table = columns("prob_", PROBS) | {"label": LABELS}
    for suffix in (".csv", ".parquet"):
        odd = write(tmp_path / f"run[12]{suffix}", table)
        write(tmp_path / f"run1{suffix}", {k: v[:1] for k, v in table.items()})
        assert len(read(odd)) == 3
        star = write(tmp_path / f"a*{suffix}", table)
        write(tmp_path / f"ab{suffix}", table)
        assert len(read(star)) == 3


def test_suffixes_may_be_upper_case(tmp_path):
    path = write(tmp_path / "p.csv", columns("prob_", PROBS)).rename(tmp_path / "P.CSV")
    assert len(read(path)) == 3


def test_columns_that_could_be_two_things_are_refused(tmp_path):
    path = tmp_path / "p.csv"
    path.write_text("prob_0,prob_1,prob_1,label\n0.5,0.5,0.1,0\n")
    with pytest.raises(FileError, match="'prob_1' twice"):
        read(path)
    path.write_text("prob_0,prob_1,label,true_label\n0.5,0.5,0,1\n")
    with pytest.raises(FileError, match="both 'label' and 'true_label'"):
        read(path)
    path.write_text("logit_0,logit_1,logit_01,label\n0.5,0.7,99,1\n")
    with pytest.raises(FileError, match="could mean the same class"):
        read(path)
    assert read(path, logits="logit_0,logit_1").logits.tolist() == [[0.5, 0.7]]


def test_spaces_blank_lines_and_other_numbers_are_read(tmp_path):
    path = tmp_path / "p.csv"
    path.write_text("prob_0, prob_1, labels\n0.5, 0.5, 0\n0.25, 0.75, 1\n\n")
    assert read(path).errors.tolist() == [False, False]
    table = {
        "logit_0": pl.Series(["0.5", "1.5"]).cast(pl.Decimal(10, 2)),
        "logit_1": pl.Series([1, 1], dtype=pl.Int8),
        "label": [True, False],
    }
    predictions = read(write(tmp_path / "p.parquet", table))
    assert predictions.logits.tolist() == [[0.5, 1], [1.5, 1]]
    assert predictions.labels.tolist() == [1, 0]


def test_labels_that_are_not_needed_may_be_incomplete(tmp_path):
    path = tmp_path / "p.csv"
    for label in ("", "cat", "7"):
        path.write_text(f"prob_0,prob_1,label\n0.5,0.5,0\n0.5,0.5,{label}\n")
        assert read(path, need_labels=False).has_label.tolist() == [True, False]
        if label:
            with pytest.raises(FileError):
                read(path)
        else:
            assert read(path).has_label.tolist() == [True, False]


def test_incomplete_labels_are_read(tmp_path):
    npz = tmp_path / "p.npz"
    np.savez(npz, probs=PROBS, labels=np.array([0, np.nan, 2]))
    csv = tmp_path / "p.csv"
    pl.DataFrame(columns("prob_", PROBS) | {"label": [0, None, 2]}).write_csv(csv)
    for path in (npz, csv):
        p = read(path)
        assert p.labels.tolist() == [0, -1, 2]
        assert p.has_label.tolist() == [True, False, True]
        assert len(p.labelled("a test")) == 2
        with pytest.raises(InputError, match="1 of 3 have none"):
            _ = p.errors
    write(npz, {"probs": PROBS, "labels": LABELS})
    assert read(npz).labels.tolist() == LABELS.tolist()
    assert read(write(csv, columns("prob_", PROBS))).labels is None


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".npz"])
@pytest.mark.parametrize(
    ("labels", "match"), [([0, 1, 9], "got 9"), (["a", "b", "c"], "numbers")]
)
def test_labels_that_are_not_classes_are_refused(suffix, labels, match, tmp_path):
    values = {"probs": PROBS} if suffix == ".npz" else columns("prob_", PROBS)
    path = write(tmp_path / f"p{suffix}", values | {"label": np.array(labels)})
    with pytest.raises(FileError, match=match):
        read(path)
    assert read(path, need_labels=False).has_label.sum() == (2 if labels[0] == 0 else 0)


@pytest.mark.parametrize(
    ("column", "match"),
    [
        ([[0.5, 0.5], [0.5, None]], "no value at row 1"),
        ([[], []], "one length"),
        ([[[0.5], [0.5]]], "lists within lists"),
        ([[["0.5"]], [["0.5"]]], "lists within lists"),
        ([["a", "b"]], "expected numbers"),
        ([None, [0.5, 0.5]], "one length"),
    ],
)
def test_bad_list_columns_are_refused(column, match, tmp_path):
    path = write(tmp_path / "p.parquet", {"probs": column})
    with pytest.raises(FileError, match=match):
        read(path)


def test_damaged_archives_are_refused_or_read_as_they_were(tmp_path, rng):
    path = tmp_path / "p.npz"
    np.savez_compressed(path, probs=PROBS, labels=LABELS)
    content = bytearray(path.read_bytes())
    messages = []
    for _ in range(300):
        damaged = bytearray(content)
        for at in rng.integers(0, len(content), 3):
            damaged[at] = rng.integers(256)
        path.write_bytes(damaged)
        try:
            predictions = read(path)
        except FileError as error:
            messages.append(str(error))
            continue
        # The damage lies where nothing is read: times, modes, or the labels' name.
        assert np.allclose(predictions.logits, np.log(PROBS))
        assert (
            predictions.labels is None or predictions.labels.tolist() == LABELS.tolist()
        )
    assert 150 <= len(messages) < 300
    assert all("p.npz" in message for message in messages)


def test_inaccessible_paths_are_reported(tmp_path):
    with pytest.raises(FileError):
        read(tmp_path / ("x" * 300 + ".csv"))


def test_ids_come_from_tables_and_archives(tmp_path):
    values = {"logit_0": [1.0, 2.0], "logit_1": [3.0, 0.0]}
    pl.DataFrame({"id": ["a", "b"], **values}).write_csv(tmp_path / "p.csv")
    pl.DataFrame({"id": ["a", None], **values}).write_parquet(tmp_path / "p.parquet")
    z = np.eye(2) + 1
    np.savez(tmp_path / "p.npz", id=np.array([3, 4]), logits=z)
    assert read(tmp_path / "p.csv", ids="id").ids.tolist() == ["a", "b"]
    assert read(tmp_path / "p.parquet", ids="id").ids.tolist() == ["a", None]
    assert read(tmp_path / "p.npz", ids="id").ids.tolist() == [3, 4]
    (tmp_path / "q.csv").write_text("id,logit_0,logit_1\n00541,1,2\n7,2,1\n")
    assert read(tmp_path / "q.csv", ids="id").ids.tolist() == ["00541", "7"]
    objects = np.array(["a", None], object)
    np.savez(tmp_path / "o.npz", id=objects, one=np.array(3), logits=z)
    for name, match in (("id", "pickled objects"), ("one", "'one' as 2 entries")):
        with pytest.raises(FileError, match=match):
            read(tmp_path / "o.npz", ids=name)
    for name, expected_ids in (
        ("p.csv", "it has id, logit_0"),
        ("p.npz", "it has id, logits"),
    ):
        with pytest.raises(FileError, match=f"no 'name' .*{expected_ids}"):
            read(tmp_path / name, ids="name")


def test_texts_are_kept_with_predictions(tmp_path):
    path = tmp_path / "p.csv"
    path.write_text("logit_0,logit_1,review\n1,2,fine\n2,1,007\n")
    predictions, table = find_source(path, Columns(texts="review")).load()
    assert table["review"].to_list() == ["fine", "007"]
    assert len(predictions) == 2


def test_class_names_are_lines(tmp_path):
    (tmp_path / "names.txt").write_text("cat\ndog\n")
    assert read_class_names(tmp_path / "names.txt") == ["cat", "dog"]
    (tmp_path / "names.txt").write_bytes(b"\xff\xfe\xfa")
    for name in ("names.txt", "none.txt"):
        with pytest.raises(FileError, match=name):
            read_class_names(tmp_path / name)
