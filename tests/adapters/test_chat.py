"""Chat answers: the first token of each speaks for a label."""

import json

import numpy as np
import pytest

from trustdoctor.adapters.chat import read_chat
from trustdoctor.errors import FileError, InputError


def response(**tokens):
    top = [{"token": t, "logprob": float(np.log(p))} for t, p in tokens.items()]
    return {"choices": [{"logprobs": {"content": [{**top[0], "top_logprobs": top}]}}]}


def test_a_chats_first_token_speaks_for_a_label(tmp_path):
    names = ["positive", "negative", "neutral"]
    rows = [
        response(**{"positive": 0.6, " Positive": 0.2, "neg": 0.1, "I": 0.05}),
        response(**{" Neutral": 0.5, "pos": 0.4}),
    ]
    answers = read_chat(rows, names, labels=[0, 1])
    assert answers.predicted.tolist() == [0, 2]
    assert answers.top.probs[0] == pytest.approx([0.8, 0.1, 0.0])
    assert answers.errors.tolist() == [False, True]
    low, high = answers.interval("beta")
    assert high[0] == pytest.approx(np.log(0.2 / 0.8))
    assert low[0] == pytest.approx(np.log(0.1 / 0.9))
    assert answers.ambiguous.tolist() == [False, True]  # 0.1 of the mass is not seen
    for text in (json.dumps(rows), "\n".join(map(json.dumps, rows))):
        (tmp_path / "chat.json").write_text(text)
        reread = read_chat(tmp_path / "chat.json", names)
        assert np.array_equal(reread.top.probs, answers.top.probs)
    (tmp_path / "chat.json").write_text(json.dumps(rows[0]))
    assert len(read_chat(tmp_path / "chat.json", names)) == 1


def test_chats_that_cannot_be_read_are_named(tmp_path):
    with pytest.raises(InputError, match="share their first token"):
        read_chat([response(ne=0.9)], ["negative", "neutral"])
    with pytest.raises(InputError, match="none of the labels"):
        read_chat([response(**{"Sure": 0.9, " ": 0.1})], ["yes", "no"])
    with pytest.raises(InputError, match="Ask for logprobs"):
        read_chat([{"choices": []}], ["yes", "no"])
    with pytest.raises(InputError, match="at least one"):
        read_chat([], ["yes", "no"])
    (tmp_path / "x.json").write_text("{")
    with pytest.raises(FileError, match="JSON"):
        read_chat(tmp_path / "x.json", ["yes", "no"])
    for names in (["no", "not sure"], ["", "yes"], ["A", "a"]):
        with pytest.raises(InputError, match="begins with"):
            read_chat([response(no=0.9)], names)


def test_chats_are_read_however_they_are_written(tmp_path):
    chat = response(**{"A": 0.6, "B\u2028": 0.3})
    chat["choices"][0]["logprobs"]["content"][0]["logprob"] -= 1e-5  # another digit
    texts = (
        json.dumps(chat, indent=2),
        json.dumps([chat]),
        json.dumps(chat, ensure_ascii=False) + "\n\n",
    )
    for text in texts:
        (tmp_path / "chat.json").write_text(text, encoding="utf-8")
        answers = read_chat(tmp_path / "chat.json", [" A", "B"])
        assert answers.top.probs[0] == pytest.approx([0.6, 0.3])


def test_what_is_named_bounds_the_odds_where_p_rounds_to_one():
    chat = read_chat([response(A=1.0, B=2e-9)], ["A", "B"])
    assert chat.interval("beta")[1][0] >= np.log(2e-9) - 1e-3
