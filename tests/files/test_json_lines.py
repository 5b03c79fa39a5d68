"""Lines of JSON that do not say what they should: rows, and models' responses."""

import json

import numpy as np
import polars as pl
import pytest
from file_kinds import CHOICES, IN_MEMORY, STREAMED, response, write_responses

import trustdoctor as td
from trustdoctor import engines
from trustdoctor.errors import FileError
from trustdoctor.files import Columns, find_source

GATE = td.Gate(-0.5, score="confidence")


def one_line(completed):
    assert completed.returncode == 2, completed.stdout + completed.stderr
    assert completed.stderr.startswith("trustdoctor: ")
    assert completed.stderr.count("\n") == 1
    assert "internal error" not in completed.stderr
    return completed.stderr


def refused(path, run, match, **columns):
    """Check that rows are refused in memory, in batches and on the command line."""
    messages = set()
    for means in (IN_MEMORY, STREAMED):
        with pytest.raises(FileError, match=match) as refusal:
            engines.screen(
                find_source(path, Columns(need_labels=False, **columns)),
                GATE,
                None,
                means=means,
            )
        messages.add(str(refusal.value))
    assert len(messages) == 1
    options = Columns(**columns).options()
    line = one_line(run("screen", path, "--threshold", 0.5, *options))
    assert line == f"trustdoctor: {messages.pop()}\n"


def answered(**first):
    """A response whose first token is another."""
    changed = response(0.7)
    changed["choices"][0]["logprobs"]["content"][0] |= first
    return changed


def top(token, logprob):
    return {"top_logprobs": [{"token": token, "logprob": logprob}]}


WRONG = {
    "a number as a token": (answered(**top(7, -0.1)), "has no choices"),
    "no token": (answered(**top(None, -0.1)), "has no choices"),
    "a list as a token": (answered(**top(["positive"], -0.1)), "has no choices"),
    "the first token is a number": (answered(token=7), "has no choices"),
    "a text as a number": (answered(**top("positive", "much")), "has no choices"),
    "a probability above 1": (
        answered(**top("positive", 0.7)),
        "got 0.7 in response 2",
    ),
    "an endless one": (answered(**top("positive", 1e999)), "got inf in response 2"),
    "one that is none": (answered(**top("positive", float("nan"))), "got nan"),
    "the first token above 1": (answered(token="so", logprob=5), "got 5 in response 2"),
}


@pytest.mark.parametrize("case", WRONG)
def test_unusable_responses_are_refused(case, run, tmp_path):
    wrong, match = WRONG[case]
    good = [{"id": f"r{i}", **response(0.3 + 0.1 * i)} for i in range(5)]
    good[2] = {"id": "r2", **wrong}
    path = write_responses(tmp_path, good)
    refused(path, run, match, choices=",".join(CHOICES))


def test_probabilities_may_be_rounded_above_1(tmp_path):
    rows = [{"id": "r", **answered(**top("positive", 1e-6))}]
    path = write_responses(tmp_path, rows)
    answers = td.read(path, choices=",".join(CHOICES))
    assert answers.confidence[0] == pytest.approx(1)


@pytest.mark.parametrize(
    ("line", "match"),
    [
        ("[" * 100_000 + "]" * 100_000, "one JSON object per line"),
        ('{"a": ' * 100_000 + "1" + "}" * 100_000, "one JSON object per line"),
        ('{"id": "r2", "id": "r3"}', "'id' twice"),
        ('{"id": "r2", "choices": [{"a": 1, "a": 2}]}', "'a' twice"),
        ("7", "JSON object"),
        ("", "rows"),
    ],
)
def test_lines_that_are_not_responses_are_reported(line, match, run, tmp_path):
    path = tmp_path / "answers.jsonl"
    good = [json.dumps({"id": f"r{i}", **response(0.7)}) for i in range(2)]
    rows = [*good, line, *good] if line else [""]
    path.write_text("\n".join(rows) + "\n")
    refused(path, run, match, choices=",".join(CHOICES))


@pytest.mark.parametrize(
    "line",
    [
        '{"confidence": 0.5, "confidence": 0.9, "text": "x"}',
        '{"confidence": 0.5, "text": "x", "text": "y"}',
        '{"text": "x", "confidence": 0.5, "confidence" : 0.5}',
    ],
)
def test_a_name_stands_once_in_a_row(line, run, tmp_path):
    path = tmp_path / "rows.jsonl"
    good = '{"confidence": 0.5, "text": "x"}'
    path.write_text(f"{good}\n{line}\n{good}\n")
    refused(path, run, "each name once", confidence="confidence")


@pytest.mark.parametrize(
    "rows",
    [
        [{"confidence": 0.5, "text": '"confidence": 7, "confidence"'}],
        [{"confidence": 0.5, "inner": {"confidence": 0.7, "text": "a"}, "text": "b"}],
        [{"confidence": 0.5, 'a"b': 1, "a": 2}, {"confidence": 0.6, 'a"b': 1, "a": 2}],
        [{"confidence": 0.5, "text": "\u2028\\"}, {"confidence": 0.25, "text": "{"}],
    ],
)
def test_names_in_texts_and_nested_names_are_not_duplicates(rows, tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    answers = td.read(path, confidence="confidence")
    assert answers.confidence.tolist() == [row["confidence"] for row in rows]
    source = find_source(path, Columns(confidence="confidence"))
    out = tmp_path / "out.jsonl"
    engines.screen(source, GATE, out, means=STREAMED)
    written = [json.loads(line) for line in out.read_text().split("\n")[:-1]]
    for row, first in zip(written, rows, strict=True):
        assert {name: row[name] for name in first} == first


def long_numbers(digits, path):
    number = int("1234567890" * 5) // 10 ** (50 - digits)
    rows = [{"logit_0": number, "logit_1": i + 0.5, "label": 0} for i in range(20)]
    if path.suffix == ".csv":
        lines = [",".join(map(str, row.values())) for row in rows]
        path.write_text("\n".join([",".join(rows[0]), *lines]) + "\n")
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return number


@pytest.mark.parametrize("digits", [15, 18, 19, 25, 38, 39, 45])
@pytest.mark.parametrize("suffix", [".jsonl", ".csv"])
def test_long_numbers_are_read_alike(suffix, digits, run, tmp_path):
    path = tmp_path / f"rows{suffix}"
    number = long_numbers(digits, path)
    if (suffix, digits) == (".jsonl", 45):  # beyond 128 bits
        refused(path, run, "InvalidNumber", logits="logit_")
        return
    source, gate = find_source(path), td.Gate(0, score="alpha")
    answers = source.read()
    assert answers.logits[:, 0].tolist() == [float(number)] * 20
    out = tmp_path / "out.parquet"
    engines.screen(source, gate, out, means=STREAMED)
    decisions = pl.read_parquet(out)
    assert np.array_equal(decisions["score"].to_numpy(), td.alpha(answers))
