"""Answers with a confidence or a doubt, and no classes, through every verb."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from file_kinds import (
    ANSWERS,
    CHOICES,
    IN_MEMORY,
    ROWS,
    STREAMED,
    answers,
    class_labels,
    held_out,
    response,
    responses,
    write_responses,
    write_truth,
)
from sklearn.metrics import roc_auc_score

import trustdoctor as td
from trustdoctor import engines
from trustdoctor.adapters.chat import read_chat
from trustdoctor.errors import InputError
from trustdoctor.files import Columns, find_source

HOW = {"in memory": IN_MEMORY, "streamed": STREAMED}
TARGETS = {
    "frr": {"frr": 0.1},
    "trr": {"trr": 0.8},
    "risk": {"risk": 0.15},
    "joint": {"joint": 0.1},
    "coverage": {"coverage": 0.7},
    "cost": {"cost": 4.0},
    "threshold": {"threshold": -0.6},
    "frr and trr": {"frr": 0.6, "trr": 0.6},
}

every_kind = pytest.mark.parametrize("kind", ANSWERS.values(), ids=ANSWERS)
both_ways = pytest.mark.parametrize("means_name", HOW)


def confidences():
    predictions = held_out()
    return predictions.probs.max(1), predictions.probs.argmax(1) == predictions.labels


def correct_or_not():
    stated, right = confidences()
    return td.Predictions.from_confidence(stated, right)


@every_kind
def test_every_kind_of_answers_is_read(kind, tmp_path):
    stated, right = confidences()
    for path in (kind.alone(tmp_path / "one"), kind.halves(tmp_path / "two")):
        p = td.read(path, **kind.options)
        assert p.errors.tolist() == (~right).tolist()
        assert p.n_classes == 0
        if p.signal == "doubt":
            assert p.doubts.tobytes() == (-np.log(stated)).tobytes()
        elif kind.options.get("percent"):
            assert p.doubts.tobytes() == (-(100 * stated / 100)).tobytes()
        else:
            assert p.doubts.tobytes() == (-stated).tobytes()


@both_ways
def test_metrics_are_those_of_other_libraries(means_name, tmp_path):
    stated, right = confidences()
    kind = ANSWERS["confidence and correct"]
    source = kind.source(kind.halves(tmp_path))
    evaluation = engines.diagnose(source, means=HOW[means_name])
    assert list(evaluation.scores) == ["confidence"]
    assert evaluation.n_errors == (~right).sum()
    assert evaluation.accuracy.value == pytest.approx(right.mean(), abs=1e-12)
    auroc = evaluation.scores["confidence"]["auroc"]
    expected = roc_auc_score(~right, -stated)
    assert auroc.value == pytest.approx(expected, abs=1e-12 + (auroc.within or 0))
    values = {name: estimate.value for name, estimate in evaluation.calibration.items()}
    assert values["confidence"] == pytest.approx(stated.mean(), abs=1e-8)
    assert values["brier"] == pytest.approx(((stated - right) ** 2).mean(), abs=1e-8)
    nll = -np.log(np.where(right, stated, 1 - stated)).mean()
    assert values["nll"] == pytest.approx(nll, abs=1e-8)
    assert values["ece"] == pytest.approx(binned(stated, right), abs=1e-8)


def binned(stated, right, bins=15):
    """The expected calibration error, bin by bin; a bin has its upper end."""
    total = 0.0
    for i in range(bins):
        in_bin = (stated > i / bins) & (stated <= (i + 1) / bins)
        total += abs(stated[in_bin].sum() - right[in_bin].sum())
    return total / len(stated)


@both_ways
def test_a_doubt_has_a_rank_and_no_calibration(means_name, tmp_path):
    stated, right = confidences()
    kind = ANSWERS["doubt and correct"]
    evaluation = engines.diagnose(
        kind.source(kind.halves(tmp_path)), means=HOW[means_name]
    )
    assert evaluation.calibration == {}
    auroc = evaluation.scores["doubt"]["auroc"].value
    assert auroc == pytest.approx(roc_auc_score(~right, -stated), abs=1e-6)


@pytest.mark.parametrize("means_name", HOW)
def test_confidences_beyond_1_have_no_calibration_in_whichever_batch(
    means_name, tmp_path
):
    stated, right = confidences()
    high = np.where(np.arange(ROWS) == ROWS - 1, 1.5, stated)
    for i, rows in enumerate((slice(None, ROWS // 2), slice(ROWS // 2, None))):
        table = pl.DataFrame({"confidence": high[rows], "correct": right[rows]})
        table.write_csv(tmp_path / f"{i}.csv")
    source = find_source(tmp_path, Columns(confidence="confidence"))
    evaluation = engines.diagnose(source, means=HOW[means_name])
    assert evaluation.calibration == {}


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_every_promise_equals_that_of_the_scores_alone(target, tmp_path):
    stated, right = confidences()
    kind = ANSWERS["prediction and label"]
    source = kind.source(kind.halves(tmp_path / "in"))
    gate = engines.calibrate_files(source, means=IN_MEMORY, **target)
    assert gate.score_name == "confidence"
    bare = td.calibrate_scores(-stated, ~right, **target)
    assert gate.threshold == bare.threshold
    assert gate.certificate.observed == bare.certificate.observed
    streamed = engines.calibrate_files(source, means=STREAMED, **target)
    # A sketch's threshold is on the safe side, within one range of scores.
    assert streamed.threshold == pytest.approx(gate.threshold, rel=1e-3)
    assert streamed.certificate.promise() == gate.certificate.promise()
    assert streamed.certificate.n == gate.certificate.n == ROWS
    out = tmp_path / "out.csv"
    outcomes = []
    for means in HOW.values():
        outcomes.append(engines.screen(source, gate, out, means=means))
        decisions = pl.read_csv(out)
        assert decisions["score"].to_numpy().tobytes() == (-stated).tobytes()
        accepted = -stated <= gate.threshold
        assert decisions["accepted"].to_list() == accepted.tolist()
        assert decisions["predicted"].to_list() == answers()["prediction"].to_list()
    assert outcomes[0] == outcomes[1]
    assert outcomes[0].counts.accepted_errors == (accepted & ~right).sum()


def test_gates_of_answers_are_saved_watched_and_compared(tmp_path):
    p, (stated, right) = correct_or_not(), confidences()
    gate = td.calibrate(p, frr=0.1)
    gate.save(tmp_path / "gate.json")
    loaded = td.Gate.load(tmp_path / "gate.json")
    assert loaded.to_json() == gate.to_json()
    watch = loaded.watch().update(p)
    assert watch.tests["frr"].n == right.sum()
    assert watch.tests["frr"].counted == (right & (-stated > gate.threshold)).sum()
    comparison = td.compare(p)
    assert comparison.score.name == "confidence"
    page = str(td.evaluate(p).to_html())
    assert page.lower().startswith("<!doctype html>")
    assert "NaN" not in page
    path = td.evaluate(p).to_html(tmp_path / "page.html")
    assert path.read_text(encoding="utf-8") == page


def test_a_page_of_doubts_and_of_answers_by_name():
    stated, right = confidences()
    doubt = td.Predictions.from_doubt(-np.log(stated), right)
    table = answers()
    named = td.Predictions.from_confidence(
        stated, predicted=table["prediction"], labels=table["label"], ids=table["id"]
    )
    for p in (doubt, named):
        assert "</html>" in str(td.evaluate(p).to_html())


def test_classes_scores_are_refused_for_answers_and_the_reverse():
    with pytest.raises(InputError, match="Choose confidence"):
        td.calibrate(correct_or_not(), score="alpha", frr=0.1)
    probs = td.Predictions.from_probs(held_out().probs, held_out().labels)
    with pytest.raises(InputError, match="Choose alpha"):
        td.calibrate(probs, score="confidence", frr=0.1)


def test_thresholds_per_answer_are_keyed_by_its_name(tmp_path):
    """Numbers of answers depend on which answers a batch holds; names do not."""
    kind = ANSWERS["prediction and label"]
    source = kind.source(kind.halves(tmp_path))
    for means in HOW.values():
        gate = engines.calibrate_files(source, frr=0.4, groups="predicted", means=means)
        assert sorted(gate.groups) == ["cat", "dog", "horse", "ship"]
        ships = source.read()
        ships = ships[np.flatnonzero(ships.predicted_names == "ship")]
        alone = td.Predictions.from_confidence(
            -ships.doubts, predicted=["ship"] * len(ships)
        )
        assert (
            gate.screen(alone).accepted.tolist()
            == (ships.doubts <= gate.groups["ship"].threshold).tolist()
        )


# Correctness, and missing labels.


def test_what_is_not_known_is_left_out():
    missing = [None, float("nan"), np.nan]
    for unknown in missing:
        p = td.Predictions.from_confidence([0.9, 0.8, 0.4], [True, unknown, False])
        assert p.has_label.tolist() == [True, False, True]
    p = td.Predictions.from_confidence(
        [0.9, 0.8, 0.4], predicted=["a", "b", "c"], labels=["a", None, "x"]
    )
    assert p.has_label.tolist() == [True, False, True]
    assert p.labelled("x").errors.tolist() == [False, True]
    assert td.evaluate(p).n == 2


@pytest.mark.parametrize("unknown", [pd.NA, pd.NaT, np.nan, None, "", "  "])
def test_pandas_markers_of_missing_labels_are_recognised(unknown):
    p = td.Predictions.from_confidence(
        [0.9, 0.8], predicted=["a", "b"], labels=np.array(["a", unknown], object)
    )
    assert p.has_label.tolist() == [True, False]


def test_a_list_with_nan_among_texts_has_a_missing_label():
    """Where numpy makes the text "nan" of it."""
    p = td.Predictions.from_confidence(
        [0.9, 0.8], predicted=["a", "b"], labels=["a", np.nan]
    )
    assert p.has_label.tolist() == [True, False]


@pytest.mark.parametrize("blank", ["", "NA", "nan", "NaN", "null", "None"])
def test_missing_labels_of_answers_are_not_errors(blank, tmp_path):
    """A file of probabilities takes these as missing, so this one does, too."""
    path = tmp_path / "p.csv"
    path.write_text(f"confidence,prediction,label\n0.9,a,a\n0.8,b,{blank}\n0.7,c,d\n")
    p = td.read(path, confidence="confidence")
    assert p.has_label.tolist() == [True, False, True]
    assert p.labelled("x").errors.tolist() == [False, True]


def test_answers_are_compared_as_people_would():
    for predicted, labels in (
        ([1, 2], ["1", "3.0"]),
        ([1.0, 2.0], [1, 3]),
        (["caf\u00e9", "b"], ["cafe\u0301", "c"]),
        ([" a", "b "], ["a", "c"]),
    ):
        p = td.Predictions.from_confidence(
            [0.9, 0.8], predicted=predicted, labels=labels
        )
        assert p.errors.tolist() == [False, True]


@pytest.mark.parametrize("words", [("True", "False"), ("true", "false")])
def test_booleans_are_the_words_for_them(words):
    """Truth in a CSV file of pandas' says True where Parquet has a boolean."""
    table = pl.DataFrame(
        {
            "confidence": [0.9, 0.8, 0.7],
            "prediction": [True, False, True],
            "label": [words[0], words[1], words[1]],
        }
    )
    p = td.Predictions.from_frame(table, confidence="confidence")
    assert p.errors.tolist() == [False, False, True]


@pytest.mark.parametrize(
    "words", ["1 0", "true false", "True False", "yes no", "correct wrong", "1.0 0.0"]
)
def test_words_for_right_and_wrong(words, tmp_path):
    right, wrong = words.split()
    path = tmp_path / "p.csv"
    path.write_text(f"confidence,correct\n0.9,{right}\n0.4,{wrong}\n0.3,\n")
    p = td.read(path, confidence="confidence")
    assert p.labelled("x").errors.tolist() == [False, True]
    assert p.has_label.tolist() == [True, True, False]


def test_two_ways_to_be_right_are_not_chosen_between(tmp_path):
    """Of free text a person's judgement and equal words are different things."""
    path = tmp_path / "p.csv"
    path.write_text(
        "confidence,prediction,label,correct\n0.9,in Paris,Paris,1\n0.4,Rome,Bonn,0\n"
    )
    p = td.read(path, confidence="confidence", correct="correct")
    assert p.errors.tolist() == [False, True]
    p = td.read(path, confidence="confidence", labels="label")
    assert p.errors.tolist() == [True, True]
    with pytest.raises(td.errors.TrustDoctorError, match="correct"):
        td.read(path, confidence="confidence")


def test_rows_of_answers_are_picked_with_all_that_they_have():
    p = td.Predictions.from_confidence(
        [0.9, 0.8, 0.4],
        predicted=["a", "b", "a"],
        labels=["a", "c", "b"],
        ids=[7, 8, 9],
        groups=["x", "y", "x"],
    )
    picked = p[[2, 0]]
    assert picked.doubts.tolist() == [-0.4, -0.9]
    assert picked.predicted_names.tolist() == ["a", "a"]
    assert picked.ids.tolist() == [9, 7]
    assert picked.errors.tolist() == [True, False]
    assert repr(picked) == "Answers(2 rows, confidence, accuracy 50.00%)"


@pytest.mark.parametrize(
    ("arguments", "options", "match"),
    [
        (([0.9, np.nan],), {}, "NaN at row 1"),
        (([0.9, np.inf],), {}, "infinite at row 1"),
        (([[0.9]],), {}, "one per row"),
        ((["high", "low"],), {}, "numbers"),
        (([0.9, 0.8], [True]), {}, "2 booleans"),
        (([0.9, 0.8], [True, 2]), {}, "not True or False"),
        (([0.9, 0.8], ["right", "wrong"]), {}, "True"),
        (([0.9, 0.8],), {"labels": ["a", "b"]}, "pass predicted"),
        (([0.9], [True]), {"predicted": ["a"], "labels": ["a"]}, "got both"),
        (([np.nan],), {"predicted": ["a"], "labels": ["a"]}, "NaN at row 0"),
    ],
)
def test_answers_that_are_not_as_expected_are_refused(arguments, options, match):
    with pytest.raises(InputError, match=match):
        td.Predictions.from_confidence(*arguments, **options)


# A language model's responses.


@pytest.mark.parametrize("batch", [False, True])
def test_responses_are_those_of_the_chat_adapter(batch, tmp_path):
    path = write_responses(tmp_path, responses(batch=batch))
    p = td.read(path, choices=CHOICES, truth=write_truth(tmp_path))
    plain = write_responses(tmp_path, responses(batch=False), "plain.jsonl")
    top = read_chat(plain, CHOICES, held_out(2).labels)
    assert p.predicted_names.tolist() == class_labels(top.predicted, CHOICES)
    assert p.ambiguous.tolist() == top.ambiguous.tolist()
    assert p.errors.tolist() == top.errors.tolist()
    assert p.ids.tolist() == [f"r{i}" for i in range(ROWS)]
    sure = 0.9 * held_out(2).probs.max(1)
    expected = np.where(top.ambiguous, 0, sure)
    assert np.allclose(p.confidence, expected, rtol=1e-12)
    assert p.ambiguous.any()
    assert not p.ambiguous.all()


def test_choices_may_come_in_one_text_and_without_truth(tmp_path):
    path = write_responses(tmp_path, responses(batch=True))
    p = td.read(path, choices="negative, positive")
    assert p.labels is None
    assert len(p) == ROWS


@both_ways
def test_responses_go_through_every_verb(means_name, tmp_path):
    rows = responses(batch=True)
    (tmp_path / "in").mkdir()
    write_responses(tmp_path / "in", rows[: ROWS // 2], "a.jsonl")
    write_responses(tmp_path / "in", rows[ROWS // 2 :], "b.jsonl")
    columns = Columns(choices=CHOICES, truth=write_truth(tmp_path))
    source = find_source(tmp_path / "in", columns)
    means, p = HOW[means_name], source.read()
    evaluation = engines.diagnose(source, means=means)
    auroc = evaluation.scores["confidence"]["auroc"].value
    assert auroc == pytest.approx(roc_auc_score(p.errors, -p.confidence), abs=1e-6)
    gate = engines.calibrate_files(source, frr=0.3, means=means)
    out = tmp_path / "out.csv"
    screened = engines.screen(source, gate, out, means=means)
    table = pl.read_csv(out)
    assert table["id"].to_list() == p.ids.tolist()
    assert table["predicted"].to_list() == p.predicted_names.tolist()
    accepted = (p.doubts <= gate.threshold) & ~p.ambiguous
    assert table["accepted"].to_list() == accepted.tolist()
    assert screened.counts.accepted_errors == (accepted & p.errors).sum()


def test_a_response_that_speaks_for_no_choice_is_rejected(tmp_path):
    rows = [
        {"id": f"r{i}", **response(p, other)}
        for i, (p, other) in enumerate([(0.9, 0.01), (0.5, 1.0), (0.02, 0.01)])
    ]
    path = write_responses(tmp_path, rows)
    p = td.read(path, choices=CHOICES, truth=write_truth(tmp_path, [1, 1, 0]))
    assert p.ambiguous.tolist() == [False, True, False]
    assert p.errors.tolist() == [False, True, False]
    gate = td.Gate(0.0, score="confidence")
    assert gate.screen(p).accepted.tolist() == [True, False, True]


def test_truth_that_lacks_some_ids_is_missing_there(tmp_path):
    path = write_responses(tmp_path, responses(batch=True)[:20])
    p = td.read(
        path, choices=CHOICES, truth=write_truth(tmp_path, held_out(2).labels[:15])
    )
    assert p.has_label.tolist() == [True] * 15 + [False] * 5
