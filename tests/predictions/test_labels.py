"""Labels as people have them: names, categoricals, booleans, missing ones; tables."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from file_kinds import NAMES, by_name, class_labels, held_out, plain_probs
from scipy.special import expit, log_softmax, softmax

import trustdoctor as td
from trustdoctor.errors import InputError
from trustdoctor.predictions import Intake
from trustdoctor.scores import available_scores, default_score

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
    codes = labels_of(["cafe\u0301", "th\u00e9", "b"], ("caf\u00e9", "the\u0301", "b"))
    assert codes.tolist() == [0, 1, 2]


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
    nullable_labels = pd.Series(labels, dtype="Int64")
    nullable_labels[rows] = pd.NA
    return nullable_labels, np.where(rows, -1, labels)


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
    "float labels": lambda: pandas_table(label=held_out().labels.astype(float)),
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
    expected = td.Predictions.from_probs(held_out().probs, held_out().labels)
    assert p.logits.tobytes() == expected.logits.tobytes()
    assert p.labels.tolist() == expected.labels.tolist()
    assert p.class_names == NAMES


def test_integers_that_may_be_missing():
    labels, expected = nullable(held_out().labels)
    p = td.Predictions.from_frame(
        pandas_table(label=labels), probs=list(NAMES), labels="label"
    )
    assert p.labels.tolist() == expected.tolist()
    plain = pd.DataFrame(plain_probs().to_dict(as_series=False)).assign(label=labels)
    assert td.Predictions.from_frame(plain).labels.tolist() == expected.tolist()
    codes = pd.Categorical(labels)
    predictions = td.Predictions.from_frame(plain.assign(label=codes))
    assert predictions.labels.tolist() == expected.tolist()


@pytest.mark.parametrize("kind", ["bool", "boolean", "object", "category"])
def test_booleans_of_pandas(kind):
    predictions = held_out(2)
    truth = pd.Series(predictions.labels == 1).astype(kind)
    table = pd.DataFrame({"prob": predictions.probs[:, 1], "spam": truth})
    p = td.Predictions.from_frame(table, probs="prob", positive="True", labels="spam")
    assert p.labels.tolist() == predictions.labels.tolist()
    plain = pd.DataFrame(
        {"prob_0": predictions.probs[:, 0], "prob_1": predictions.probs[:, 1]}
    )
    p = td.Predictions.from_frame(plain.assign(label=truth))
    assert p.labels.tolist() == predictions.labels.tolist()


def test_answers_in_tables():
    predictions = held_out()
    right = predictions.probs.argmax(1) == predictions.labels
    correct = pd.Series(right, dtype="boolean")
    correct[5] = pd.NA
    table = pd.DataFrame({"conf": predictions.probs.max(1), "ok": correct})
    p = td.Predictions.from_frame(table, confidence="conf", correct="ok")
    assert not p.has_label[5]
    assert p.labelled("x").errors.tolist() == np.delete(~right, 5).tolist()


def test_ids_groups_and_features_of_tables():
    table = pandas_table(
        who=[f"r{i}" for i in range(len(held_out().labels))],
        site=["a", "b"] * (len(held_out().labels) // 2),
        f0=held_out().features[:, 0],
        f1=held_out().features[:, 1],
    )
    p = td.Predictions.from_frame(
        table, probs=NAMES, labels="label", ids="who", groups="site", features="f"
    )
    assert p.ids.tolist() == table["who"].tolist()
    assert p.groups.tolist() == table["site"].tolist()
    assert (
        p.features.tobytes()
        == np.ascontiguousarray(held_out().features[:, :2]).tobytes()
    )


def test_lists_of_numbers_in_pandas():
    for values in (held_out().probs.tolist(), list(held_out().probs)):
        table = pd.DataFrame(
            {"probs": values, "label": class_labels(held_out().labels)}
        )
        p = td.Predictions.from_frame(table, class_names=NAMES)
        assert p.labels.tolist() == held_out().labels.tolist()


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


ALL_CLASSES = ("alpha", "entropy", "gen", "pnorm", "energy", "max_logit")


@pytest.fixture(scope="module")
def logits():
    return np.random.default_rng(0).normal(size=(500, 4)) * 2


@pytest.fixture(scope="module")
def decided(logits):
    """Any classes at all, and none in every tenth row."""
    rng = np.random.default_rng(1)
    answers = rng.integers(0, 4, 500).astype(object)
    answers[::10] = None
    labels = rng.integers(0, 4, 500)
    return td.Predictions.from_logits(logits, labels, predicted=answers)


def test_a_cutoff_decides_between_two_classes():
    rng = np.random.default_rng(0)
    p, labels = rng.random(1000), rng.integers(0, 2, 1000)
    p[0] = 0.3  # at the cut-off itself the answer is yes, as in scikit-learn
    by_probs = td.Predictions.from_probs(np.stack([1 - p, p], 1), labels, cutoff=0.3)
    assert by_probs.predicted.tolist() == (p >= 0.3).astype(int).tolist()
    assert by_probs.errors.tolist() == ((p >= 0.3) != labels).tolist()
    z = rng.normal(size=(1000, 2)) * 3
    by_logits = td.Predictions.from_logits(z, cutoff=0.2)
    yes = expit(z[:, 1] - z[:, 0]) >= 0.2
    assert by_logits.predicted.tolist() == yes.astype(int).tolist()
    assert by_logits.decided_by == "cutoff 0.2"


def test_a_cutoff_is_compared_in_the_precision_of_the_probabilities():
    probs = np.array([[0.3, 0.7]], np.float32)  # 0.7 in float64 is above
    assert td.Predictions.from_probs(probs, cutoff=0.7).predicted.tolist() == [1]


@pytest.mark.parametrize("name", ["beta", "msp", "margin", "normalised_margin"])
def test_doubts_are_those_of_the_class_decided_on(name, logits, decided):
    """The odds of the class, or its lead over the best other, written out."""
    doubts = td.SCORES[name](decided)
    answered = np.flatnonzero(~decided.abstained)
    assert np.isposinf(doubts[decided.abstained]).all()
    for row in answered:
        z = logits[row]
        if name == "normalised_margin":
            z = (z - z.mean()) / np.linalg.norm(z - z.mean())
        m = decided.predicted[row]
        other_logits = np.delete(z, m)
        log_not_p = np.logaddexp.reduce(np.delete(log_softmax(z), m))
        expected = {"beta": log_not_p - log_softmax(z)[m], "msp": log_not_p}
        lead = other_logits.max() - z[m]
        wanted = expected.get(name, lead)
        assert doubts[row] == pytest.approx(wanted, rel=1e-9, abs=1e-9), name
    assert np.array_equal(
        np.argsort(doubts[answered]), np.argsort(td.SCORES[name](decided[answered]))
    )


def test_without_decisions_they_are_those_of_the_most_probable_class(logits, decided):
    plain = decided.without_decisions()
    assert np.array_equal(plain.predicted, logits.argmax(1))
    assert np.array_equal(td.SCORES["beta"](plain), td.beta(logits))
    same = td.Predictions.from_logits(logits, predicted=logits.argmax(1))
    assert np.array_equal(td.SCORES["beta"](same), td.beta(logits))


@pytest.mark.parametrize("name", ALL_CLASSES)
def test_scores_of_all_classes_are_refused_by_name(name, decided):
    with pytest.raises(InputError, match=rf"the score {name} .* Choose beta, msp"):
        td.SCORES[name](decided)
    assert name not in available_scores(decided)


def test_functions_and_fitted_scores_refuse_decisions(decided):
    for function in (td.alpha, td.beta):
        with pytest.raises(InputError, match=r"SCORES\['beta'\]"):
            function(decided)
    labelled = decided[~decided.abstained]
    for fitted in (td.RelU, td.Fusion):
        with pytest.raises(InputError, match="Choose beta"):
            fitted.fit(labelled)
    with pytest.raises(InputError, match="Choose beta"):
        td.tune(labelled)


def test_the_usual_score_follows_the_decisions(decided):
    assert default_score(decided) == "beta"
    assert default_score(decided.without_decisions()) == "alpha"
    assert list(td.evaluate(decided).scores) == ["beta", "msp"]


def test_rows_without_an_answer_are_errors(decided):
    assert decided.errors[decided.abstained].all()
    assert np.array_equal(decided.always_rejected, decided.abstained)
    named = td.Predictions.from_probs(
        [[0.9, 0.1], [0.2, 0.8]], class_names=["no", "yes"], predicted=["yes", None]
    )
    assert named.predicted.tolist() == [1, -1]
    assert named.predicted_names.tolist() == ["yes", ""]
    abstention = td.Predictions.from_probs([[0.9, 0.1]], predicted=[None])
    assert abstention.abstained.tolist() == [True]


def test_rows_are_picked_with_their_decisions(decided):
    picked = decided[10:20]
    assert np.array_equal(picked.predicted, decided.predicted[10:20])
    assert np.array_equal(td.SCORES["beta"](picked), td.SCORES["beta"](decided)[10:20])


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"cutoff": 0.3, "predicted": [0]}, "got both"),
        ({"cutoff": 1.0}, "between 0 and 1"),
        ({"cutoff": True}, "between 0 and 1"),
        ({"cutoff": "0.3"}, "between 0 and 1"),
        ({"predicted": [2]}, "predictions from 0 to 1"),
        ({"predicted": ["maybe"]}, "predictions"),
        ({"predicted": [0, 1]}, "expected predictions as 1 entries"),
    ],
)
def test_invalid_decisions_are_refused(options, match):
    with pytest.raises(InputError, match=match):
        td.Predictions.from_probs([[0.6, 0.4]], **options)


def test_a_cutoff_among_three_classes_is_refused():
    with pytest.raises(InputError, match=r"two classes .* got 3\. .*--predicted"):
        td.Predictions.from_logits([[1.0, 2.0, 3.0]], cutoff=0.3)


def test_calibration_is_of_the_class_decided_on(decided):
    """ECE by hand; NLL and Brier score know no decision."""
    rows = decided[~decided.abstained]
    p = softmax(rows.logits, 1)[np.arange(len(rows)), rows.predicted]
    bins = np.minimum((p * 15).astype(int), 14)
    gaps = [abs(((~rows.errors) - p)[bins == k].sum()) for k in range(15)]
    assert td.ece(rows) == pytest.approx(sum(gaps) / len(rows))
    calibration = td.evaluate(rows).calibration
    assert calibration["ece"].value == pytest.approx(td.ece(rows))
    assert calibration["confidence"].value == pytest.approx(p.mean())
    plain = rows.without_decisions()
    for name in ("nll", "brier"):
        same = td.evaluate(plain).calibration[name].value
        assert calibration[name].value == pytest.approx(same)
        assert getattr(td, name)(rows) == pytest.approx(getattr(td, name)(plain))


def test_what_came_in_says_whose_decisions_they_are(decided):
    lines = list(Intake.of(decided).lines())
    assert lines[0].startswith("50 of 500 rows have no answer: they are rejected")
    other = (decided.predicted != decided.logits.argmax(1)) & ~decided.abstained
    assert f"system's own (predicted); {int(other.sum())} of 500 differ" in lines[1]
    assert Intake.of(decided[:100]) + Intake.of(decided[100:]) == Intake.of(decided)


# One class against the rest.


def test_each_row_of_one_against_the_rest_is_divided_by_its_sum():
    shares = np.random.default_rng(0).random((300, 5))
    p = td.Predictions.from_probs(shares, one_vs_rest=True)
    expected = shares / shares.sum(1, keepdims=True)
    np.testing.assert_allclose(np.exp(p.logits), expected, rtol=1e-12)
    assert np.array_equal(p.predicted, shares.argmax(1))
    assert list(Intake.of(p).lines()) == [
        "The probabilities are of one class against the rest: each row was divided by "
        "its sum."
    ]


@pytest.mark.parametrize(
    ("probs", "match"),
    [([[0.0, 0.0]], "probability 0 at row 0"), ([[0.5, 1.2]], "not from 0 to 1")],
)
def test_what_is_not_of_one_against_the_rest_is_refused(probs, match):
    with pytest.raises(InputError, match=match):
        td.Predictions.from_probs(probs, one_vs_rest=True)


@pytest.mark.parametrize("scale", [1, 100])
def test_values_from_0_to_1_that_do_not_sum_to_1_are_not_called_logits(scale):
    shares = np.random.default_rng(0).random((300, 5)) * scale
    with pytest.raises(InputError, match=r"one.vs.rest") as refusal:
        td.Predictions.from_probs(shares)
    if scale == 1:
        assert "logits" not in str(refusal.value)
        for way in ("class is missing", "rounded", r"Several labels per row (tags)"):
            assert way in str(refusal.value)
    else:
        assert "--percent" in str(refusal.value)


# Answers with a confidence.


def answers(**options):
    return td.Predictions.from_confidence(
        [0.9, np.nan, 0.7, 0.2],
        predicted=["a", None, "", "b"],
        labels=["a", "a", "b", "a"],
        **options,
    )


def test_missing_answers_are_errors_of_infinite_doubt():
    p = answers()
    assert p.doubts.tolist() == [-0.9, np.inf, np.inf, -0.2]
    assert p.errors.tolist() == [False, True, True, True]
    assert (
        p.abstained.tolist() == p.always_rejected.tolist() == [False, True, True, False]
    )
    assert p.predicted_names.tolist() == ["a", "", "", "b"]
    assert p.confidence.tolist() == [0.9, 0, 0, 0.2]
    assert p[1:2].abstained.tolist() == [True]
    assert td.Gate(np.inf, score="confidence").screen(p).accepted.tolist() == [
        *(True, False, False, True)
    ]


def test_no_answer_is_never_right():
    p = td.Predictions.from_confidence(
        [0.9, 0.8, 0.7], [True, True, None], predicted=["a", None, None]
    )
    assert p.has_label.tolist() == [True, True, False]
    assert p[:2].errors.tolist() == [False, True]


def test_a_confidence_may_be_missing_only_without_an_answer():
    with pytest.raises(InputError, match="NaN at row 0"):
        td.Predictions.from_confidence([np.nan, 0.5], predicted=["a", None])
