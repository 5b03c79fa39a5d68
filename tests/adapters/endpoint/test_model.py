"""A language model behind an endpoint, asked over a real connection."""

import copy
import pickle
from collections import Counter

import numpy as np
import pandas as pd
import polars as pl
import pytest
from endpoint_server import CHOICES, by_hand, completion, endpoint, probs_of, say

import trustdoctor as td
from trustdoctor.errors import InputError
from trustdoctor.opinion.models import predictor


def test_probabilities_are_those_of_the_choices_in_order_of_the_rows(server):
    texts = ["one", "a longer text", "", "one", "four"]
    predictions = endpoint(server)(texts)
    assert isinstance(predictions, td.Predictions)
    np.testing.assert_allclose(probs_of(predictions), by_hand(texts), rtol=1e-12)
    assert predictions.class_names == CHOICES
    assert predictions.predicted.tolist() == [0, 0, 1, 0, 0]
    assert Counter(server.texts) == Counter(set(texts))  # equal ones once


def test_a_response_for_no_choice_is_the_largest_doubt(server):
    server.say = lambda text: {"I": 0.9, "Hm": 0.1} if text == "odd" else say(text)
    predictions = endpoint(server)(["plain", "odd"])
    assert probs_of(predictions)[1] == pytest.approx([0.5, 0.5])
    assert td.beta(predictions.logits).argmax() == 1


@pytest.mark.parametrize("end", ["stop", "content_filter"])
def test_an_answer_without_any_text_is_the_largest_doubt(server, end):
    server.say = lambda _: completion({}, end=end)
    predictions = endpoint(server, choices=("A", "B", "C"))(["silence"])
    assert probs_of(predictions)[0] == pytest.approx([1 / 3] * 3)


def test_the_request_is_as_written(server):
    model = endpoint(
        server,
        prompt="{text}\nIs it so? {choices}. {x} {text}",
        system="Say {choices}.",
        extra={"top_logprobs": 5, "temperature": None, "seed": 1},
    )
    model(["a {choices} {text} %s"])
    (request,) = server.requests
    assert request == {
        "model": "tiny",
        "messages": [
            {"role": "system", "content": "Say yes, no."},
            {
                "role": "user",
                "content": "a {choices} {text} %s\nIs it so? yes, no. {x} "
                "a {choices} {text} %s",
            },
        ],
        "max_tokens": 1,
        "logprobs": True,
        "top_logprobs": 5,
        "seed": 1,
    }
    assert request == model.question("a {choices} {text} %s")
    assert server.paths == ["/v1/chat/completions"]
    plain = endpoint(server).question("hello")
    assert plain["temperature"] == 0
    assert plain["messages"] == [{"role": "user", "content": "hello"}]


def test_any_text_can_be_asked(server):
    texts = ["ü", "日本", "\x00\x1b", "a\nb", '"\\', "\ud800", "x" * 100_000]
    endpoint(server)(texts)
    assert Counter(server.texts) == Counter(texts)


@pytest.mark.parametrize(
    "form",
    [tuple, np.array, pd.Series, pl.Series, iter, lambda rows: np.array(rows, object)],
)
def test_rows_come_in_many_forms(server, form):
    texts = ["one", "three"]
    np.testing.assert_allclose(
        probs_of(endpoint(server)(form(texts))), by_hand(texts), rtol=1e-12
    )


@pytest.mark.parametrize(
    ("rows", "match"),
    [
        ("one text", "got a str"),
        ([], "at least one row"),
        (["a", None], "row 1, got a NoneType"),
        (["a", 3.5], "row 1, got a float"),
        (5, "got a int"),
        ({"text": ["a"]}, "one column"),
        (pd.DataFrame({"text": ["a"]}), "one column"),
        (pl.DataFrame({"text": ["a"]}), "one column"),
    ],
)
def test_rows_that_are_not_texts_are_refused(server, rows, match):
    with pytest.raises(InputError, match=match):
        endpoint(server)(rows)
    assert not server.requests


def test_as_many_calls_at_once_as_there_are_workers(server):
    server.delay = 0.1
    texts = [f"text {'x' * i}" for i in range(12)]
    for workers in (1, 6):
        server.busiest = 0
        predictions = endpoint(server, workers=workers)(texts)
        np.testing.assert_allclose(probs_of(predictions), by_hand(texts), rtol=1e-12)
        assert server.busiest == workers
    assert Counter(server.texts) == Counter(texts * 2)


def test_progress_is_reported(server):
    reports = []
    endpoint(server)(["a", "b", "a"], progress=lambda *report: reports.append(report))
    assert [share for share, _ in reports] == [0.5, 1.0]
    assert reports[1][1] == "2 of 2 questions asked"


def test_an_endpoint_can_be_copied(server, tmp_path):
    model = endpoint(server, answers=tmp_path / "answers.jsonl", extra={"seed": 1})
    model(["a"])
    for same in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert same == model
        assert hash(same) == hash(model)
        same(["a"])
    assert len(server.requests) == 1


def test_an_endpoint_is_a_model(server):
    model = endpoint(server)
    assert predictor(model) is model
    views = [td.View("doubled", lambda rows: [row * 2 for row in rows])]
    texts = ["aa", "bbbb"]
    opinions = td.SecondOpinion(model, views)(texts, [0, 1])
    assert opinions.predictions.errors.tolist() == [False, True]
    odds = np.log(by_hand(texts))
    np.testing.assert_allclose(
        opinions.doubts[:, 0],
        np.abs(odds[:, 0] - odds[:, 1]) * -1,
        rtol=1e-9,
        atol=1e-12,
    )


def test_a_gate_is_calibrated_on_an_endpoints_answers(server, rng):
    """End to end: the promise is kept on rows that come later."""
    texts = [f"{i} {'x' * int(k)}" for i, k in enumerate(rng.integers(0, 9, 300))]
    labels = (rng.random(300) > by_hand(texts)[:, 0]).astype(int)
    predictions = endpoint(server, workers=8)(texts)
    rows = td.Predictions.from_logits(predictions.logits, labels)
    gate = td.calibrate(rows, score="alpha", frr=0.2)
    assert 0 < gate.screen(predictions).accepted.mean() < 1


def test_a_model_that_names_no_choice_is_given_up_early(server):
    """Nothing more is spent on it; one that names one now and then is not."""
    server.say = lambda _: {"I": 0.9, "Hm": 0.1}
    texts = [f"row {i}" for i in range(300)]
    with pytest.raises(InputError, match="none of 20 answers of tiny begins with one"):
        endpoint(server)(texts)
    assert len(server.requests) == 20
    server.say = lambda text: say(text) if text == "row 3" else {"I": 1.0}
    assert len(endpoint(server)(texts)) == 300
