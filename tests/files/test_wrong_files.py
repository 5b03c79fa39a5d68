"""Files that cannot be meant so: one line that says what to do, and no output."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from file_kinds import (
    CHOICES,
    NAMES,
    STREAMED,
    Kind,
    answers,
    by_name,
    class_labels,
    held_out,
    plain_probs,
    response,
    responses,
    text,
    write_responses,
    write_truth,
)

import trustdoctor as td
from trustdoctor import engines
from trustdoctor.errors import TrustDoctorError
from trustdoctor.files import Columns, find_source


@dataclass(frozen=True)
class Wrong:
    """An invalid file: its content, how it is read, and words of the refusal."""

    content: Any
    words: tuple[str, ...]
    options: dict[str, Any] = field(default_factory=dict)
    name: str = "wrong.csv"
    beside: Any = None  # writes other files, and returns more options

    def write(self, folder: Path) -> tuple[Path, dict[str, Any]]:
        folder.mkdir(exist_ok=True)
        path = folder / self.name
        content = self.content() if callable(self.content) else self.content
        if isinstance(content, pl.DataFrame):
            text(content, path)
        elif isinstance(content, list):
            write_responses(folder, content, self.name)
        elif isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content, encoding="utf-8")
        more = {} if self.beside is None else self.beside(folder)
        return path, self.options | more


def relabelled(at, label):
    table = by_name("prob_")
    labels = table["label"].to_list()
    labels[at] = label
    return table.with_columns(label=pl.Series(labels))


def ranked(first=1, width=4):
    return (
        plain_probs()
        .with_columns(pl.col("label") + first)
        .rename({f"prob_{i}": f"prob_{i + first}" for i in range(width)})
    )


def twins(first, second):
    """The column of one class twice, under names that could mean the same."""
    return (
        by_name("prob_")
        .with_columns(pl.col("prob_cat").alias(second))
        .rename({"prob_cat": first})
    )


def binary(labels, name="prob"):
    return pl.DataFrame({name: held_out(2).probs[:, 1], "label": labels})


def words(labels, names):
    return class_labels(labels, names)


def truth_of(content, **more):
    def write(folder):
        path = folder / "truth.csv"
        path.write_text(content)
        return {"truth": path, **more}

    return write


LISTED = {"probs": ",".join(NAMES)}
POSITIVE = {"probs": "prob", "positive": "yes"}
STATED = {"confidence": "confidence"}
ROW = "prob_0,prob_1,label\n0.5,0.5,0\n"

WRONG: dict[str, Wrong] = {
    "a label that is not a class": Wrong(
        lambda: relabelled(3, "cow"), ("'cow' at row 3", "fix the label")
    ),
    "a label in other letters": Wrong(
        lambda: relabelled(5, "Cat"), ("'Cat' at row 5", "'cat', 'dog'")
    ),
    "names without columns for them": Wrong(
        lambda: plain_probs().with_columns(
            label=pl.Series(words(held_out().labels, NAMES))
        ),
        ("at row 0", "--probs A,B,C", "--class-names"),
    ),
    "a class column that is missing": Wrong(
        lambda: by_name("prob_").drop("prob_dog"),
        ("sums to", "If a class is missing, name its column"),
    ),
    "a numbered column that is missing": Wrong(
        lambda: plain_probs().drop("prob_2"), ("prob_2 is missing",)
    ),
    "a column that is not there": Wrong(
        by_name, ("no 'cow'", "cat, dog"), {"probs": "cat,dog,cow"}
    ),
    "a column named twice": Wrong(
        by_name, ("'cat'", "twice"), {"probs": "cat,dog,cat,ship"}
    ),
    "prob_1 and prob_01": Wrong(
        lambda: plain_probs().with_columns(pl.col("prob_1").alias("prob_01")),
        ("'prob_1' and 'prob_01'", "same class", "Remove one"),
    ),
    "prob_1 and prob_01, listed": Wrong(
        "prob_1,prob_01,label\n0.5,0.5,1\n",
        ("same class",),
        {"probs": "prob_1,prob_01"},
    ),
    "prob_cat and prob_Cat": Wrong(
        lambda: twins("prob_cat", "prob_Cat"), ("same class", "Remove one")
    ),
    "underscores": Wrong(
        "logit_0,logit__0,logit_1,label\n1,2,3,0\n", ("same class", "Remove one")
    ),
    "an underscore more": Wrong(
        "z0,z_0,z1,label\n1,2,3,0\n", ("same class", "Remove one"), {"logits": "z"}
    ),
    "full-width digit": Wrong(
        "logit_0,logit_1,logit_\uff12,label\n1,2,3,0\n", ("'logit_\uff12'", "Rename")
    ),
    "another script's digit": Wrong(
        "logit_0,logit_1,logit_\u0662,label\n1,2,3,0\n", ("of a class", "Rename")
    ),
    "blank before the digit": Wrong(
        "p0,p1,p 2,label\n1,2,3,0\n", ("'p 2'", "Rename"), {"logits": "p"}
    ),
    "names that look alike": Wrong(
        lambda: twins("prob_caf\u00e9", "prob_cafe\u0301"), ("look alike", "Rename")
    ),
    "the same column twice": Wrong(
        "prob_0,prob_1,prob_1,label\n0.5,0.4,0.1,0\n", ("'prob_1' twice",)
    ),
    "two prefixes": Wrong(
        "prob_a,prob_b,proba_a,proba_b,label\n0.5,0.5,0.5,0.5,a\n",
        ("prob_", "proba_", "--probs"),
    ),
    "logits and probabilities": Wrong(
        "prob_0,prob_1,logit_0,logit_1\n0.5,0.5,1,1\n", ("--logits or --probs",)
    ),
    "sums far from 1": Wrong(
        lambda: plain_probs().with_columns(pl.col("prob_0") * 0.7),
        ("sums to", "fix those rows"),
    ),
    "logits that are said to be probabilities": Wrong(
        lambda: pl.DataFrame(
            held_out().logits, [f"prob_{n}" for n in NAMES], orient="row"
        ),
        ("look like logits", "--logits"),
    ),
    "probabilities that are said to be logits": Wrong(
        by_name, ("are probabilities", "--probs"), {"logits": ",".join(NAMES)}
    ),
    "percentages": Wrong(
        lambda: plain_probs(change=lambda p: np.round(100 * p, 2)),
        ("percentages", "--percent"),
    ),
    "percentages of a binary model": Wrong(
        lambda: pl.DataFrame(
            {
                "prob": 100 * held_out(2).probs[:, 1],
                "label": words(held_out(2).labels, ("no", "yes")),
            }
        ),
        ("percent",),
        POSITIVE,
    ),
    "percentages with a sign": Wrong(
        "confidence,correct\n80%,1\n10%,0\n",
        ("'80%' at row 0", "--percent"),
        {**STATED, "correct": "correct"},
    ),
    "one decimal": Wrong(
        lambda: plain_probs(change=lambda p: np.round(p, 1)), ("more decimals",)
    ),
    "labels from 1": Wrong(
        lambda: plain_probs().with_columns(pl.col("label") + 1), ("--first-class 1",)
    ),
    "columns and labels from 1": Wrong(ranked, ("--first-class 1",)),
    "labels from 0 that are said to be from 1": Wrong(
        plain_probs, ("expected labels",), {"first_class": 1}
    ),
    "fractions as labels": Wrong(
        lambda: plain_probs().with_columns(pl.col("label") + 0.5),
        ("not a whole number", "row 0"),
    ),
    "fractions as labels of named classes": Wrong(
        lambda: by_name().with_columns(label=pl.col("cat")), ("row 0",), LISTED
    ),
    "infinity as a label": Wrong("prob_0,prob_1,label\n0.5,0.5,inf\n", ("row 0",)),
    "booleans for classes called otherwise": Wrong(
        "yes,no,label\n0.8,0.2,true\n0.1,0.9,false\n",
        ("true", "row 0"),
        {"probs": "yes,no"},
    ),
    "one column of probabilities": Wrong(
        lambda: binary(words(held_out(2).labels, ("no", "yes"))),
        ("--positive LABEL",),
        {"probs": "prob"},
    ),
    "one column that nothing says of": Wrong(
        lambda: binary(words(held_out(2).labels, ("no", "yes"))),
        ("--probs prob --positive LABEL",),
    ),
    "a positive label that is not there": Wrong(
        lambda: binary(words(held_out(2).labels, ("ham", "spam"))),
        ("'yes' of --positive", "'ham' and 'spam'"),
        POSITIVE,
    ),
    "a positive label in other letters": Wrong(
        lambda: binary(words(held_out(2).labels, ("No", "Yes"))),
        ("'yes' of --positive",),
        POSITIVE,
    ),
    "three labels of a binary model": Wrong(
        lambda: binary(
            [("no", "yes", "maybe")[i % 3] for i in range(len(held_out(2).labels))]
        ),
        ("two classes",),
        POSITIVE,
    ),
    "a positive label and several columns": Wrong(
        by_name, ("binary model",), {**LISTED, "positive": "cat"}
    ),
    "confidence alone": Wrong(
        lambda: answers().select("confidence", "id"), ("--correct",), STATED
    ),
    "confidence that nothing says of": Wrong(
        lambda: answers().select("confidence", "correct"),
        ("--confidence confidence --correct correct",),
    ),
    "labels without answers": Wrong(
        lambda: answers().select("confidence", "label"),
        ("--predicted NAME", "--correct NAME"),
        {**STATED, "labels": "label"},
    ),
    "words for right and wrong": Wrong(
        "confidence,correct\n0.9,1\n0.8,maybe\n",
        ("'maybe' at row 1", "Write 1 where the answer is right"),
        {**STATED, "correct": "correct"},
    ),
    "a sheet": Wrong(b"PK\x03\x04", ("Save the sheet as CSV",), name="wrong.xlsx"),
    "a list of objects": Wrong(
        lambda: json.dumps(by_name("prob_").to_dicts()[:3]),
        ("one JSON object per line", "lines=True"),
        name="wrong.jsonl",
    ),
    "ragged rows": Wrong(ROW + "0.5,0.5,0,7,8\n", ("cannot read", "ragged")),
    "a word among numbers": Wrong(
        ROW + "0.5,high,0\n", ("'high' at row 1", "Fix or remove")
    ),
    "a number that is missing": Wrong(ROW + "0.5,,0\n", ("no value at row 1",)),
    "decimal commas in a file of commas": Wrong(
        'prob_0,prob_1,label\n"0,5","0,5",0\n', ("Decimal commas", "semicolons")
    ),
    "nothing at all": Wrong("", ("is empty",)),
    "a header alone": Wrong("prob_0,prob_1,label\n", ("no rows",)),
    "another encoding": Wrong(
        "prob_caf\u00e9,prob_b,label\n0.5,0.5,caf\u00e9\n".encode("latin-1"),
        ("UTF-8",),
    ),
    "a header in another encoding": Wrong(
        "prob_caf\u00e9,prob_b,label\n0.5,0.5,b\n".encode("latin-1"), ("UTF-8",)
    ),
    "truth without ids": Wrong(
        lambda: by_name("prob_").drop("label"),
        ("--ids NAME",),
        beside=truth_of("id,label\nr0,cat\n"),
    ),
    "truth of other ids": Wrong(
        lambda: by_name("prob_").drop("label").with_row_index("row"),
        ("truth", "id"),
        beside=truth_of("id,label\nr0,cat\n", ids="row"),
    ),
    "truth that says an id twice": Wrong(
        lambda: by_name("prob_").drop("label").with_row_index("row"),
        ("'1' twice",),
        beside=truth_of("id,label\n1,cat\n1,dog\n", ids="row"),
    ),
    "truth of other columns": Wrong(
        lambda: by_name("prob_").drop("label").with_row_index("row"),
        ("expected the columns id and label",),
        beside=truth_of("a,b,c\n1,cat,x\n", ids="row"),
    ),
    "truth that is not there": Wrong(
        lambda: by_name("prob_").drop("label").with_row_index("row"),
        ("no file", "--truth"),
        {"truth": "/absent/truth.csv", "ids": "row"},
    ),
    "choices that begin alike": Wrong(
        lambda: responses(batch=False)[:3],
        ("begins with",),
        {"choices": ("pos", "positive")},
        "wrong.jsonl",
    ),
    "choices that share their first token": Wrong(
        lambda: [{"id": "r0", **response(0.9)}],
        ("share their first token", "A, B, C"),
        {"choices": ("positive", "possible")},
        "wrong.jsonl",
    ),
    "one choice": Wrong(
        lambda: responses(batch=False)[:3],
        ("two choices or more",),
        {"choices": ("positive",)},
        "wrong.jsonl",
    ),
    "responses in a table": Wrong(
        by_name, ("--choices", ".jsonl"), {"choices": CHOICES}
    ),
    "responses without log-probabilities": Wrong(
        lambda: [{"id": "r0", "choices": [{"message": {"content": "positive"}}]}],
        ("row 0|response 0", "Ask for logprobs"),
        {"choices": CHOICES},
        "wrong.jsonl",
    ),
    "truth that is not a choice": Wrong(
        lambda: responses(batch=True)[:2],
        ("'neutral'", "--choices"),
        {"choices": CHOICES},
        "wrong.jsonl",
        truth_of("id,label\nr0,positive\nr1,neutral\n"),
    ),
    "a positive label that is not the last name": Wrong(
        lambda: binary(words(held_out(2).labels, ("no", "yes"))),
        ("yes",),
        {**POSITIVE, "class_names": ("yes", "no")},
    ),
    "too few names": Wrong(
        plain_probs, ("4", "3"), {"class_names": ("cat", "dog", "ship")}
    ),
}

every_wrong = pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)


def matches(line, words):
    for word in words:
        alternatives = word.split("|")
        assert any(alternative in line for alternative in alternatives), line


@every_wrong
def test_invalid_files_are_refused_with_a_remedy(wrong, tmp_path):
    path, options = wrong.write(tmp_path)
    with pytest.raises(TrustDoctorError) as caught:
        td.calibrate(td.read(path, **options), frr=0.1)
    line = str(caught.value)
    assert "\n" not in line
    assert len(line) < 500
    matches(line, wrong.words)


@every_wrong
def test_wrong_files_end_commands_with_one_line_and_code_2(wrong, run, tmp_path):
    path, options = wrong.write(tmp_path)
    arguments = Kind(by_name, options).arguments(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    completed = run(
        "calibrate", path, *arguments, "--frr", "0.1", "-o", tmp_path / "g.json"
    )
    assert completed.returncode == 2, completed.stdout
    assert len(completed.stderr.strip().splitlines()) == 1, completed.stderr
    matches(completed.stderr, wrong.words)
    assert completed.stdout == ""
    assert sorted(tmp_path.rglob("*")) == before


STREAMED_TOO = (
    *("a label that is not a class", "labels from 1", "percentages", "one decimal"),
    *("sums far from 1", "three labels of a binary model", "ragged rows"),
    *("words for right and wrong", "a word among numbers", "truth without ids"),
    "infinity as a label",
)


@pytest.mark.parametrize("name", STREAMED_TOO)
def test_wrong_files_are_answered_alike_in_batches(name, tmp_path):
    wrong = WRONG[name]
    path, options = wrong.write(tmp_path)
    with pytest.raises(TrustDoctorError) as caught:
        engines.diagnose(find_source(path, Columns(**options)), means=STREAMED)
    assert "\n" not in str(caught.value)
    matches(str(caught.value), wrong.words)


SCREENED = (
    *("a column that is not there", "sums far from 1", "percentages"),
    *("prob_1 and prob_01", "a word among numbers", "ragged rows", "a header alone"),
)


@pytest.mark.parametrize("name", SCREENED)
def test_wrong_files_leave_no_decisions(name, run, tmp_path):
    wrong = WRONG[name]
    path, options = wrong.write(tmp_path)
    arguments = Kind(by_name, options).arguments(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    completed = run(
        *("screen", path, *arguments, "--threshold", "-1", "--quiet"),
        *("-o", tmp_path / "out.csv"),
    )
    assert completed.returncode == 2
    matches(completed.stderr, wrong.words)
    assert sorted(tmp_path.rglob("*")) == before


def test_truth_for_rows_without_ids_is_refused(tmp_path):
    """Responses without an id cannot find their truth."""
    rows = [response(p) for p in held_out(2).probs[:20, 1]]
    path = write_responses(tmp_path, rows)
    with pytest.raises(TrustDoctorError, match="id"):
        td.calibrate(
            td.read(path, choices=CHOICES, truth=write_truth(tmp_path)), frr=0.1
        )


def errors_or_none(read):
    """Return which rows are wrong; None where the file was refused."""
    try:
        return read().errors.tolist()
    except TrustDoctorError:
        return None


def test_the_positive_label_is_the_one_that_was_meant(tmp_path):
    """False, 0 and no are the other side of 1; so 1 does not stand for them."""
    path = tmp_path / "p.csv"
    for positive, labels in (("false", "0 1"), ("0", "false true"), ("no", "0 1")):
        first, second = labels.split()
        path.write_text(f"prob,label\n0.9,{first}\n0.2,{second}\n")
        options = {"probs": "prob", "positive": positive}
        errors = errors_or_none(lambda named=options: td.read(path, **named))
        assert errors in (None, [False, False])


@pytest.mark.parametrize("positive", ["False", "false"])
def test_a_positive_boolean_may_be_written_in_any_case(positive):
    table = pl.DataFrame({"prob": [0.9, 0.2], "label": [False, True]})
    p = td.Predictions.from_frame(table, probs="prob", positive=positive)
    assert p.errors.tolist() == [False, False]


@pytest.mark.parametrize("names", ["prob_true,prob_false", "prob_True,prob_False"])
@pytest.mark.parametrize("case", [str.lower, str.title, str.upper])
def test_true_and_false_are_classes_in_any_case(names, case, tmp_path):
    path = tmp_path / "p.csv"
    path.write_text(f"{names},label\n0.9,0.1,{case('true')}\n0.2,0.8,{case('false')}\n")
    assert errors_or_none(lambda: td.read(path)) in (None, [False, False])


def test_classes_called_by_fractions_are_matched(tmp_path):
    path = tmp_path / "p.csv"
    rows = "0.8,0.1,0.1,1.0\n0.1,0.8,0.1,2.0\n"
    path.write_text(f"prob_1.0,prob_2.0,prob_3.0,label\n{rows}")
    assert td.read(path).errors.tolist() == [False, False]


def test_gates_for_each_class_go_by_its_name(tmp_path):
    """Another file may have the columns of the classes in another order."""
    table = by_name("prob_")
    text(table, tmp_path / "a.csv")
    text(table.select("label", *reversed(table.columns[:-1])), tmp_path / "b.csv")
    first, second = (td.read(tmp_path / f"{name}.csv") for name in "ab")
    assert first.predicted_names.tolist() == second.predicted_names.tolist()
    gate = td.calibrate(first, frr=0.3, groups="predicted")
    assert len({rule.threshold for rule in gate.groups.values()}) > 1
    second_accepted = gate.screen(second).accepted
    assert second_accepted.tolist() == gate.screen(first).accepted.tolist()
