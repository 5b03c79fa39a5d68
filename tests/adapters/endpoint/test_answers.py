"""Answers that are kept: nothing is asked twice, and a budget holds."""

import json
import time
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from endpoint_server import CHOICES, by_hand, completion, endpoint, probs_of, say

import trustdoctor as td
from trustdoctor.errors import FileError, InputError, OutputError


def test_answered_rows_are_not_asked_again(server, tmp_path):
    path = tmp_path / "answers.jsonl"
    model = endpoint(server, answers=path)
    first = model(["a", "bb", "a"])
    assert len(server.requests) == 2
    for same_model in (model, endpoint(server, answers=str(path))):
        answers = same_model(["bb", "a", "a"])
        assert np.array_equal(answers.logits, first.logits[[1, 0, 0]])
    assert len(server.requests) == 2
    model(["a", "ccc"])
    assert server.texts[2:] == ["ccc"]
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "answers.jsonl",
        "answers.jsonl.calls",
    ]


def test_calls_are_not_counted_in_a_file_that_a_link_leads_to(server, tmp_path):
    path, other = tmp_path / "answers.jsonl", tmp_path / "other.txt"
    model = endpoint(server, answers=path)
    model(["a"])
    counted = tmp_path / "answers.jsonl.calls"
    counted.unlink()
    other.write_text("kept")
    counted.symlink_to(other)
    with pytest.raises(FileError, match="got a link"):
        model(["bb"])
    assert other.read_text() == "kept"


def test_answers_behind_a_link_are_neither_followed_nor_replaced(server, tmp_path):
    link, other = tmp_path / "link.jsonl", tmp_path / "other.jsonl"
    link.symlink_to(other)
    with pytest.raises(OutputError, match="got a link to"):
        endpoint(server, answers=link)(["a"])
    assert link.is_symlink()
    assert not other.exists()
    assert not server.requests


def test_a_changed_question_is_asked_again(server, tmp_path):
    model = endpoint(server, answers=tmp_path / "answers.jsonl")
    changes = (
        {"model": "large"},
        {"choices": ("yes", "no", "other")},
        {"prompt": "{text}?"},
        {"system": "Be brief."},
        {"extra": {"seed": 1}},
        {"url": server.url.replace("127.0.0.1", "localhost")},
    )
    model(["a"])
    for i, change in enumerate(changes):
        replace(model, **change)(["a"])
        assert len(server.requests) == i + 2, change
    same = {"retries": 0, "workers": 1, "timeout": 9.0, "url": server.url + "/"}
    replace(model, **same, key_env="OTHER")(["a"])
    assert len(server.requests) == 1 + len(changes)


def test_the_file_of_answers_is_one_of_responses(server, tmp_path, run):
    path, truth = tmp_path / "answers.jsonl", tmp_path / "truth.csv"
    texts = ["", *("x" * i for i in range(2, 9))]
    server.say = lambda text: {**say(text), "\u2028\u00e9": 0.01, "\ud83d": 0.001}
    predictions = endpoint(server, answers=path, workers=1)(texts)
    answers = td.read(path, choices="yes,no")
    assert answers.predicted_names.tolist() == [
        CHOICES[i] for i in predictions.predicted
    ]
    np.testing.assert_allclose(  # exact: not normalised
        answers.confidence, 0.9 * by_hand(texts).max(1), rtol=1e-9
    )
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    body = lines[0]["response"]["body"]
    assert body == completion({**say(""), "\u2028\u00e9": 0.01, "?": 0.001})
    rows = "".join(f"{line['custom_id']},yes\n" for line in lines)
    truth.write_text("id,label\n" + rows)
    process = run("diagnose", path, "--choices", "yes,no", "--truth", truth)
    assert process.returncode == 0, process.stderr


@pytest.mark.parametrize("share", [0.0001, 0.3, 0.9999])
def test_a_torn_last_line_is_ignored_and_rewritten(server, tmp_path, share):
    path = tmp_path / "answers.jsonl"
    model = endpoint(server, answers=path, workers=1)
    model(["a", "bb", "ccc"])
    complete = path.read_bytes()
    start = complete[:-1].rfind(b"\n") + 1
    cut = start + max(1, int(share * (len(complete) - 1 - start)))
    path.write_bytes(complete[:cut])
    predictions = endpoint(server, answers=path)(["a", "bb"])
    assert len(server.requests) == 3
    assert path.read_bytes() == complete[:cut]  # nothing was to be written
    predictions = endpoint(server, answers=path)(["a", "bb", "ccc"])
    np.testing.assert_allclose(probs_of(predictions), by_hand(["a", "bb", "ccc"]))
    assert server.texts[3:] == ["ccc"]
    assert path.read_bytes() == complete


@pytest.mark.parametrize(
    "content",
    [b"my notes", b"id,label\n1,2\n", b'{"custom_id":"1"}\n', b"\0" * 9, b"{}\n"],
)
def test_another_file_is_refused_and_left_as_it_is(server, tmp_path, content):
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(FileError, match="something else in line 1"):
        endpoint(server, answers=path)(["a"])
    assert path.read_bytes() == content
    assert not server.requests


def test_an_answer_that_was_changed_is_named(server, tmp_path):
    path = tmp_path / "answers.jsonl"
    endpoint(server, answers=path)(["a"])
    path.write_bytes(path.read_bytes()[:-3] + b"\n")
    with pytest.raises(FileError, match=r"not as it was written\. Remove its line"):
        endpoint(server, answers=path)(["a"])


def test_a_replaced_file_is_read_again(server, tmp_path):
    path = tmp_path / "answers.jsonl"
    model = endpoint(server, answers=path)
    model(["a", "bb"])
    path.unlink()
    model(["a"])
    assert server.texts[2:] == ["a"]
    assert len(path.read_bytes().splitlines()) == 1


@pytest.mark.usefixtures("full_disk")
def test_a_full_disk_is_reported_and_leaves_complete_lines(server, tmp_path):
    path = tmp_path / "answers.jsonl"
    model = endpoint(server, answers=path, workers=1)
    with pytest.raises(OutputError, match=r"The answers in it are kept; make room"):
        model([f"text {i}" for i in range(20)])
    content = path.read_bytes()
    assert content.endswith(b"\n")
    assert len(content) <= 4096
    assert all(json.loads(line) for line in content.splitlines())


def test_an_invalid_answers_file_is_refused_before_any_request(server, tmp_path):
    for path in (tmp_path, tmp_path / "absent" / "answers.jsonl"):
        with pytest.raises(OutputError, match="cannot write"):
            endpoint(server, answers=path)(["a"])
    assert not server.requests


def test_a_budget_ends_the_run_and_answers_are_kept(server, tmp_path):
    path = tmp_path / "answers.jsonl"
    texts = [f"text {'x' * i}" for i in range(10)]
    model = endpoint(server, answers=path, max_calls=4)
    for _ in range(2):  # nothing more is asked the second time
        with pytest.raises(InputError) as refusal:
            model([*texts, texts[0]])
        assert type(refusal.value) is InputError
        assert str(refusal.value) == (
            f"max_calls=4 is spent: 5 rows are answered, 6 are left. The answers are "
            f"kept in {path}; raise max_calls, and run again."
        )
        assert len(server.requests) == 4
    model(server.texts)  # which costs nothing
    np.testing.assert_allclose(
        probs_of(replace(model, max_calls=10)(texts)), by_hand(texts), rtol=1e-12
    )
    assert Counter(server.texts) == Counter(texts)


def test_repeated_and_failed_calls_are_part_of_the_budget(server, tmp_path, pauses):
    path = tmp_path / "answers.jsonl"
    server.faults = [503, 503, 503]
    with pytest.raises(InputError, match=r"=4 is spent: 1 rows are answered, 1 are"):
        endpoint(server, answers=path, max_calls=4, workers=1)(["a", "b"])
    assert len(server.requests) == 4
    assert len(pauses) == 3
    server.faults = [503]
    with pytest.raises(InputError, match="=5 is spent: 1 rows"):
        endpoint(server, answers=path, max_calls=5, workers=1)(["a", "b"])
    assert len(server.requests) == 5
    assert (tmp_path / "answers.jsonl.calls").stat().st_size == 5


def test_the_end_of_a_budget_ends_pauses(server, tmp_path):
    server.faults = [(429, {"Retry-After": "60"})]
    began = time.monotonic()
    with pytest.raises(InputError, match="=2 is spent: 1 rows are answered, 2 are"):
        endpoint(server, answers=tmp_path / "a", max_calls=2, workers=2)(
            ["a", "b", "c"]
        )
    assert time.monotonic() - began < 20


def test_a_lost_count_is_at_least_that_of_the_answers(server, tmp_path):
    path = tmp_path / "answers.jsonl"
    endpoint(server, answers=path)(["a", "b", "c"])
    (tmp_path / "answers.jsonl.calls").unlink()
    with pytest.raises(InputError, match="=3 is spent: 0 rows"):
        endpoint(server, answers=path, max_calls=3)(["d"])
    endpoint(server, answers=path, max_calls=4)(["d"])
    assert (tmp_path / "answers.jsonl.calls").stat().st_size == 4
    path.unlink()  # a new file has a count of its own
    endpoint(server, answers=path, max_calls=2)(["a", "b"])
    path.unlink()
    (tmp_path / "answers.jsonl.calls").write_text("my calls")
    with pytest.raises(FileError, match="to count calls"):
        endpoint(server, answers=path)(["a"])
    assert (tmp_path / "answers.jsonl.calls").read_text() == "my calls"
