"""The fields of an endpoint: checked, written and read."""

import json
import math
from dataclasses import replace

import pytest
from endpoint_server import KEY, endpoint

from trustdoctor.adapters.endpoint import Endpoint
from trustdoctor.errors import FileError, InputError


def test_an_endpoint_is_saved_and_loaded(server, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    model = endpoint(
        server,
        prompt="{text}?",
        system="Be brief.",
        timeout=3.5,
        retries=1,
        workers=2,
        max_calls=9,
        answers=tmp_path / "answers.jsonl",
        extra={"seed": 1, "chat_template_kwargs": {"enable_thinking": False}},
    )
    path = tmp_path / "endpoint.json"
    model.save(path)
    assert Endpoint.load(path) == model
    content = json.loads(path.read_text())
    assert content["trustdoctor"] == "endpoint"
    assert content["schema"] == 1
    assert content["answers"] == "answers.jsonl"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "endpoint.json").write_text(path.read_text())
    moved = Endpoint.load(elsewhere / "endpoint.json")
    assert moved.answers == elsewhere / "answers.jsonl"
    model.save(elsewhere / "endpoint.json")
    assert Endpoint.load(elsewhere / "endpoint.json") == model
    monkeypatch.chdir(tmp_path)
    replace(model, answers="answers.jsonl").save("endpoint.json")
    assert Endpoint.load(path) == model
    assert KEY.encode() not in path.read_bytes()


LEAST = {"url": "http://127.0.0.1:1/v1", "model": "m", "choices": ["a", "b"]}


def written(tmp_path, **content):
    path = tmp_path / "endpoint.json"
    path.write_text(json.dumps({"trustdoctor": "endpoint", "schema": 1, **content}))
    return path


def test_a_short_file_is_enough(tmp_path):
    loaded = Endpoint.load(written(tmp_path, **LEAST))
    assert loaded == Endpoint(LEAST["url"], "m", ("a", "b"))


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"api_key": KEY}, "it holds a key, 'api_key'. Remove it"),
        ({"key": KEY}, "it holds a key, 'key'"),
        ({"Authorization": KEY}, "it holds a key, 'Authorization'"),
        ({"token": KEY}, "it holds a key, 'token'"),
        ({"extra": {"api-key": KEY}}, "it holds a key, 'api-key'"),
        ({"key_env": KEY}, "name of an environment variable"),
        ({"key_env": "gsk_abcdef0123456789"}, "name of an environment variable"),
        ({"url": f"https://me:{KEY}@example.org/v1"}, "with a user"),
        ({"url": f"https://example.org/v1?key={KEY}"}, "a query"),
        ({"colour": "red"}, "unknown field colour"),
        ({"model": None}, "model: expected str"),
        ({"choices": "ab"}, "choices: expected array"),
        ({"choices": ["a", 1]}, r"choices\[1\]: expected str"),
        ({"answers": 5}, "answers: expected str"),
        ({"schema": 2}, "schema 1"),
        ({"trustdoctor": "gate"}, "expected an endpoint of trustdoctor"),
        ({"_answer_file": None}, "unknown field _answer_file"),
    ],
)
def test_files_that_are_not_understood_are_refused(tmp_path, change, match):
    with pytest.raises(FileError, match=match) as error:
        Endpoint.load(written(tmp_path, **{**LEAST, **change}))
    message = str(error.value)
    assert "\n" not in message
    assert KEY not in message
    assert "gsk_" not in message


def test_a_file_that_lacks_something_is_refused(tmp_path):
    for name in LEAST:
        fields = {key: value for key, value in LEAST.items() if key != name}
        with pytest.raises(FileError, match=f"missing field {name}"):
            Endpoint.load(written(tmp_path, **fields))
    with pytest.raises(FileError, match="cannot read"):
        Endpoint.load(tmp_path / "absent.json")


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"url": "127.0.0.1:8000"}, "base of a server"),
        ({"url": "ftp://a/v1"}, "base of a server"),
        ({"url": "http:///v1"}, "base of a server"),
        ({"url": "http://a:99999/v1"}, "base of a server"),
        ({"url": "http://a b/v1"}, "base of a server"),
        ({"url": "http://[::1/v1"}, "base of a server"),
        ({"url": 5}, "url as text"),
        ({"url": "http://a/v1/chat/completions"}, "Leave /chat/completions out"),
        ({"model": " "}, "name of a model"),
        ({"choices": "yes,no"}, "choices as texts"),
        ({"choices": None}, "choices as texts"),
        ({"choices": 5}, "choices as texts"),
        ({"choices": ["yes"]}, "two choices or more"),
        ({"choices": ["no", "not"]}, "begins with"),
        ({"prompt": "no place"}, "expected {text} in the prompt"),
        ({"prompt": None}, "prompt as text"),
        ({"system": 1}, "system as text"),
        ({"key_env": "my key"}, "environment variable"),
        ({"key_env": None}, "environment variable"),
        ({"timeout": 0}, "above 0 seconds"),
        ({"timeout": math.inf}, "above 0 seconds"),
        ({"timeout": math.nan}, "above 0 seconds"),
        ({"timeout": True}, "above 0 seconds"),
        ({"timeout": "9"}, "above 0 seconds"),
        ({"retries": -1}, "retries as a whole number, 0 or more"),
        ({"retries": 1.0}, "retries as a whole number"),
        ({"workers": 0}, "workers as a whole number, 1 to 256"),
        ({"workers": 1000}, "1 to 256"),
        ({"max_calls": 0, "answers": "a"}, "max_calls as a whole number, 1 or more"),
        ({"max_calls": 5}, "Name one: answers="),
        ({"answers": ""}, "path of a file"),
        ({"answers": 5}, "path of a file"),
        ({"extra": [1]}, "extra as fields"),
        ({"extra": {"messages": []}}, "cannot change messages"),
        ({"extra": {"stream": True}}, "cannot change stream"),
        ({"extra": {"seed": {1, 2}}}, "plain values of JSON"),
        ({"extra": {"seed": math.nan}}, "plain values of JSON"),
        ({"extra": {"api_key": KEY}}, "holds a key"),
    ],
)
def test_fields_that_cannot_be_meant_are_refused(change, match):
    with pytest.raises(InputError, match=match) as error:
        Endpoint(**{**LEAST, **change})
    assert "\n" not in str(error.value)
    assert KEY not in str(error.value)
