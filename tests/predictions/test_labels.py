"""Labels as people have them: names, categoricals, booleans, missing ones; tables."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from first_contact import NAMES, by_name, called, plain_probs, said

import trustdoctor as td
from trustdoctor.errors import InputError

PROBS = np.array([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8], [0.3, 0.4, 0.3]])
ANIMALS = ("cat", "dog", "horse")


def labels_of(labels, names=None, probs=PROBS):
    return td.Predictions.from_probs(probs, labels, class_names=names).labels


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ([0, 2, 1], [0, 2, 1]),
        ([0.0, 2.0, 1.0], [0, 2, 1]),
        (np.array([0, 2, 1], np.uint8), [0, 2, 1]),
        ([0, None, 1], [0, -1, 1]),
        ([0.0, np.nan, 1.0], [0, -1, 1]),
        ([0, pd.NA, 1], [0, -1, 1]),
        ([True, False, True], [1, 0, 1]),
        ([True, None, False], [1, -1, 0]),
    ],
)
def test_numbers_of_classes(labels, expected):
    assert labels_of(labels).tolist() == expected


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["cat", "horse", "dog"], [0, 2, 1]),
        (np.array(["cat", "horse", "dog"]), [0, 2, 1]),
        (["cat", None, "dog"], [0, -1, 1]),
        (["cat", "", "dog"], [0, -1, 1]),
        (["cat", np.nan, "dog"], [0, -1, 1]),
        (["cat", pd.NA, " dog "], [0, -1, 1]),
        (pd.Series(["cat", "horse", "dog"], dtype="category"), [0, 2, 1]),
        (pd.Series(["cat", None, "dog"], dtype="string"), [0, -1, 1]),
    ],
)
def test_names_of_classes(labels, expected):
    assert labels_of(labels, ANIMALS).tolist() == expected


def test_names_are_compared_in_nfc():
    found = labels_of(["cafe\u0301", "th\u00e9", "b"], ("caf\u00e9", "the\u0301", "b"))
    assert found.tolist() == [0, 1, 2]


def test_rows_without_any_label_have_none():
    for labels in ([None] * 3, [np.nan] * 3, ["", "", ""]):
        assert labels_of(labels, ANIMALS) is None


@pytest.mark.parametrize(
    ("labels", "names", "match"),
    [
        (["cat", "cow", "dog"], ANIMALS, "'cow' at row 1"),
        ([None, "cow", "dog"], ANIMALS, "'cow' at row 1"),
        (["cat", "dog", "dog"], None, "class_names"),
        ([0, 1, 3], None, "3(.0)? at row 2"),
        ([None, 3, 0], None, "3(.0)? at row 1"),
        ([0, 0.5, 1], ANIMALS, "row 1"),
        ([0, -1, 1], None, "-1(.0)? at row 1"),
        ([0, np.inf, 1], None, "row 1"),
        ([0, 1], None, "3 entries"),
    ],
)
def test_labels_that_are_not_classes_are_refused(labels, names, match):
    with pytest.raises(InputError, match=match):
        labels_of(labels, names)


@pytest.mark.parametrize("names", [("a", "b"), ("a", "b", "b"), ("a", "b", " b ")])
def test_names_are_one_per_class(names):
    with pytest.raises(InputError, match="3 different class names"):
        labels_of(None, names)


# Tables of other libraries.


def pandas_table(**changed):
    return pd.DataFrame(by_name().to_dict(as_series=False)).assign(**changed)


def nullable(labels, share=0.3):
    rows = np.random.default_rng(0).random(len(labels)) < share
    found = pd.Series(labels, dtype="Int64")
    found[rows] = pd.NA
    return found, np.where(rows, -1, labels)


TABLES = {
    "pandas": pandas_table,
    "polars": by_name,
    "polars, lazy": lambda: by_name().lazy(),
    "Arrow": lambda: by_name().to_arrow(),
    "Arrow, dictionary": lambda: pa.table(
        {
            name: column.dictionary_encode() if name == "label" else column
            for name, column in zip(
                by_name().columns, by_name().to_arrow().columns, strict=True
            )
        }
    ),
    "categorical": lambda: pandas_table(label=pd.Categorical(by_name()["label"])),
    "ordered categorical": lambda: pandas_table(
        label=pd.Categorical(by_name()["label"], NAMES[::-1], ordered=True)
    ),
    "pandas' strings": lambda: pandas_table(
        label=pd.array(by_name()["label"].to_list(), dtype="string")
    ),
    "pandas of Arrow": lambda: pandas_table().convert_dtypes(dtype_backend="pyarrow"),
    "float labels": lambda: pandas_table(label=said().labels.astype(float)),
    "polars, categorical": lambda: by_name().with_columns(
        pl.col("label").cast(pl.Categorical)
    ),
    "polars, enum": lambda: by_name().with_columns(
        pl.col("label").cast(pl.Enum(NAMES[::-1]))
    ),
}


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_tables_are_as_the_arrays_in_them(table):
    p = td.Predictions.from_frame(table(), probs=list(NAMES), labels="label")
    expected = td.Predictions.from_probs(said().probs, said().labels)
    assert p.logits.tobytes() == expected.logits.tobytes()
    assert p.labels.tolist() == expected.labels.tolist()
    assert p.class_names == NAMES


def test_integers_that_may_be_missing():
    labels, expected = nullable(said().labels)
    p = td.Predictions.from_frame(
        pandas_table(label=labels), probs=list(NAMES), labels="label"
    )
    assert p.labels.tolist() == expected.tolist()
    plain = pd.DataFrame(plain_probs().to_dict(as_series=False)).assign(label=labels)
    assert td.Predictions.from_frame(plain).labels.tolist() == expected.tolist()
    codes = pd.Categorical(labels)
    found = td.Predictions.from_frame(plain.assign(label=codes))
    assert found.labels.tolist() == expected.tolist()


@pytest.mark.parametrize("kind", ["bool", "boolean", "object", "category"])
def test_booleans_of_pandas(kind):
    found = said(2)
    truth = pd.Series(found.labels == 1).astype(kind)
    table = pd.DataFrame({"prob": found.probs[:, 1], "spam": truth})
    p = td.Predictions.from_frame(table, probs="prob", positive="True", labels="spam")
    assert p.labels.tolist() == found.labels.tolist()
    plain = pd.DataFrame({"prob_0": found.probs[:, 0], "prob_1": found.probs[:, 1]})
    p = td.Predictions.from_frame(plain.assign(label=truth))
    assert p.labels.tolist() == found.labels.tolist()


def test_answers_in_tables():
    found = said()
    right = found.probs.argmax(1) == found.labels
    known = pd.Series(right, dtype="boolean")
    known[5] = pd.NA
    table = pd.DataFrame({"conf": found.probs.max(1), "ok": known})
    p = td.Predictions.from_frame(table, confidence="conf", correct="ok")
    assert not p.known[5]
    assert p.labelled("x").errors.tolist() == np.delete(~right, 5).tolist()


def test_ids_groups_and_features_of_tables():
    table = pandas_table(
        who=[f"r{i}" for i in range(len(said().labels))],
        site=["a", "b"] * (len(said().labels) // 2),
        f0=said().features[:, 0],
        f1=said().features[:, 1],
    )
    p = td.Predictions.from_frame(
        table, probs=NAMES, labels="label", ids="who", groups="site", features="f"
    )
    assert p.ids.tolist() == table["who"].tolist()
    assert p.groups.tolist() == table["site"].tolist()
    assert (
        p.features.tobytes() == np.ascontiguousarray(said().features[:, :2]).tobytes()
    )


def test_lists_of_numbers_in_pandas():
    for values in (said().probs.tolist(), list(said().probs)):
        table = pd.DataFrame({"probs": values, "label": called(said().labels)})
        p = td.Predictions.from_frame(table, class_names=NAMES)
        assert p.labels.tolist() == said().labels.tolist()


@pytest.mark.parametrize(
    ("table", "options", "match"),
    [
        ({"a": 1}, {}, "pandas, polars or Arrow table, got dict"),
        (np.zeros((2, 2)), {}, "table, got ndarray"),
        (None, {}, "table"),
        (pl.DataFrame({"prob_0": []}), {}, "at least one row"),
        (by_name(), {"prob": "cat"}, "columns by name"),
        (by_name(), {"probs": ["cat", "cow"]}, "no 'cow'"),
        (by_name(), {"probs": list(NAMES[:3]), "labels": "label"}, "sums to|'ship'"),
        (by_name(), {"choices": ["a", "b"]}, "choices"),
        (
            pd.DataFrame([[0.8, 0.2, 0.2]], columns=["prob_0", "prob_1", "prob_1"]),
            {},
            "twice",
        ),
        (
            pd.DataFrame([[0.8, 0.2, 0.2]], columns=["prob_0", 1, "1"]),
            {"probs": "prob_0,1"},
            "twice",
        ),
    ],
)
def test_tables_that_are_not_as_expected_are_refused(table, options, match):
    with pytest.raises(InputError, match=match):
        td.Predictions.from_frame(table, **options)
