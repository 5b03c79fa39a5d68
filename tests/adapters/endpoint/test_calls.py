"""Failing calls: retries, error messages, and where the key is sent."""

import json
import math
import pickle
import shutil
import ssl
import subprocess
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import numpy as np
import pytest
from endpoint_server import (
    CHOICES,
    KEY,
    by_hand,
    completion,
    endpoint,
    probs_of,
    refused,
    say,
    serving,
)

import trustdoctor as td
from trustdoctor.adapters.endpoint import Endpoint
from trustdoctor.errors import FileError, InputError


@pytest.mark.parametrize(
    "fault", [408, 409, 429, 500, 502, 503, 529, "close", "cut", "cut chunk"]
)
def test_transient_failures_are_retried(server, pauses, fault):
    server.faults = [fault, fault]
    predictions = endpoint(server)(["four"])
    np.testing.assert_allclose(probs_of(predictions), by_hand(["four"]))
    assert len(server.requests) == 3
    assert 0.25 <= pauses[0] <= 0.5
    assert 0.5 <= pauses[1] <= 1.0


def test_an_answer_may_come_in_chunks(server):
    server.faults = ["chunks"]
    assert probs_of(endpoint(server)(["a"])).tolist() == [[1.0, 0.0]]


def test_pauses_grow_and_differ(server, pauses):
    server.faults = [500] * 40
    refusal = refused(server, retries=11)
    assert len(server.requests) == 12
    assert "answered 500 to row 0: told to fail. Calls made: 12. See" in refusal
    grown = [min(0.5 * 2**i, 30) for i in range(11)]
    assert all(
        longest / 2 <= pause <= longest
        for pause, longest in zip(pauses, grown, strict=True)
    )
    assert (
        len({pause / longest for pause, longest in zip(pauses, grown, strict=True)}) > 5
    )


@pytest.mark.parametrize(
    ("after", "least", "most"),
    [
        ("7", 7, 7),
        ("2.5", 2.5, 2.5),
        ("86400", 60, 60),
        ("0", 0.25, 0.5),
        ("-5", 0.25, 0.5),
        ("nan", 0.25, 0.5),
        ("inf", 0.25, 0.5),
        ("soon", 0.25, 0.5),
        (lambda: format_datetime(datetime.now(UTC) + timedelta(seconds=55)), 30, 55),
        (lambda: format_datetime(datetime(2020, 1, 1, tzinfo=UTC)), 0.25, 0.5),
    ],
)
def test_a_server_may_ask_to_wait(server, pauses, after, least, most):
    value = after if isinstance(after, str) else after()
    server.faults = [(429, {"Retry-After": value})]
    endpoint(server)(["a"])
    assert least <= pauses[0] <= most


def test_answers_that_do_not_come_in_time(server, pauses):
    server.delay = 0.4
    refusal = refused(server, timeout=0.05, retries=1)
    assert "did not answer row 0: timed out. Calls made: 2." in refusal
    assert len(pauses) == 1


def test_a_server_that_is_not_there(pauses):
    with serving(say) as stopped_server:
        pass
    refusal = refused(stopped_server, retries=2)
    assert "did not answer row 0: Connection refused. Calls made: 3." in refusal
    assert len(pauses) == 2


def test_a_missing_key_is_named(server, monkeypatch):
    server.key = f"Bearer {KEY}"
    refusal = refused(server)
    assert (
        "answered 401 to row 0: wrong key None. Set the environment variable" in refusal
    )
    assert "OPENAI_API_KEY, which is empty" in refusal
    monkeypatch.setenv("MY_KEY", "another-wrong-key")
    refusal = refused(server, key_env="MY_KEY")
    assert "Set the environment variable MY_KEY to a key that it takes" in refusal
    assert "another" not in refusal
    assert "in key_env" in refused(server, key_env="")
    server.faults = [403]
    assert "answered 403" in refused(server)
    assert len(server.requests) == 4  # none twice


def test_an_unknown_model_is_named_with_the_available_ones(server):
    refusal = refused(server, model="big")
    assert "answered 404 to row 0: no model big. Name a model that GET" in refusal
    assert refusal.endswith("/v1/models lists: tiny, large.")
    server.faults = [400]
    assert "Change the question" in refused(server)
    server.faults = [422]
    assert "answered 422" in refused(server)
    assert len([p for p in server.paths if p == "/v1/chat/completions"]) == 3


def test_other_addresses_are_not_a_servers(server):
    refusal = refused(server, url=server.url + "x")
    assert "answered 404 to row 0: Not Found. Name a model that GET" in refusal
    refusal = refused(server, url=server.url.replace("http:", "https:"), retries=0)
    assert "did not answer row 0" in refusal


@pytest.mark.parametrize(
    ("body", "match"),
    [
        ("<html>\n<p>Welcome</html>", "got: <html> <p>Welcome</html>. Give the base"),
        ("", "got: nothing. Give"),
        ('{"choices": []}', "expected a chat completion"),
        ('{"error": {"message": "overloaded"}}', "got: overloaded. Give"),
        ("[" * 100_000, "expected a chat completion"),
        (b"\xff\xfe\x00", "expected a chat completion"),
        ("[" + "1," * 4_000_000 + "1]", "expected a chat completion"),
    ],
)
def test_nonsense_is_refused_once(server, body, match):
    server.faults = [(200, {}, body)]
    assert match in refused(server)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"logprobs": None},
        {"logprobs": {"content": None}},
        {"logprobs": {"content": [], "refusal": None}},
        {"logprobs": {"content": [{"token": "yes", "logprob": "no"}]}},
        {"logprobs": {"content": [{"token": 1, "logprob": 0, "top_logprobs": []}]}},
    ],
)
def test_a_server_without_log_probabilities_is_refused(server, tmp_path, change):
    path = tmp_path / "answers.jsonl"
    choice = {**completion({"yes": 1.0})["choices"][0], **change}
    server.faults = [(200, {}, {"choices": [choice]})]
    refusal = refused(server, answers=path)
    assert "answered row 0 without log-probabilities" in refusal
    assert "though asked for them" in refusal
    assert not path.read_bytes()  # a better server is asked again
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("tokens", "reason"),
    [
        ([("yes", 3)], "log-probabilities, 0 or below, got 3"),
        ([("so", 0.5)], "log-probabilities, 0 or below, got 0.5"),
        ([("yes", math.nan)], "log-probabilities, 0 or below, got nan"),
        ([("yes", 0), ("no", -1e-9)], "sum to 1 at most, got 2"),
        ([("yes", 0), (" Yes", -0.7)], "sum to 1 at most, got 1.5"),
    ],
)
def test_probabilities_above_1_are_refused_as_in_a_file(
    server, tmp_path, tokens, reason
):
    top = [{"token": token, "logprob": logprob} for token, logprob in tokens]
    body = completion({"yes": 1.0})
    first = {**top[0], "top_logprobs": top}
    body["choices"][0]["logprobs"]["content"] = [first]
    path, responses = tmp_path / "answers.jsonl", tmp_path / "responses.jsonl"
    server.faults = [(200, {}, body)]
    assert reason in refused(server, answers=path)
    assert not path.read_bytes()
    assert len(server.requests) == 1
    responses.write_text(json.dumps(body) + "\n")
    with pytest.raises(FileError, match=reason):
        td.read(responses, choices=CHOICES)


def test_sums_that_rounding_moves_from_1_are_divided_out(server, tmp_path):
    body = completion({"yes": 0.7, "no": 0.305})
    server.faults = [(200, {}, body)]
    shares = probs_of(endpoint(server)(["a"]))
    np.testing.assert_allclose(shares, [[0.7 / 1.005, 0.305 / 1.005]])
    path = tmp_path / "responses.jsonl"
    path.write_text(json.dumps(body) + "\n")
    assert td.read(path, choices=CHOICES).confidence[0] == pytest.approx(0.7 / 1.005)


def test_a_model_that_thinks_first_is_not_mistaken_for_a_silent_one(server):
    thinking = {**completion({})["choices"][0], "finish_reason": "length"}
    server.faults = [(200, {}, {"choices": [thinking]})]
    assert "without log-probabilities" in refused(server)


def test_a_servers_message_is_shortened_and_escaped(server):
    message = "\x1b[31mred\u202e\n" + "y" * 1000
    server.faults = [(400, {}, {"error": {"message": message}})]
    refusal = refused(server)
    assert "\\x1b[31mred\\u202e yyy" in refusal
    assert 150 < refusal.count("y") < 220
    server.faults = [(302, {"Location": "http://a.example/\x1b"})]
    assert "here to http://a.example/\\x1b; give" in refused(server)
    server.models = ["a\nb\x1b[0m", "c" * 1000]
    refusal = refused(server, model="big")
    assert "lists: a b\\x1b[0m, ccc" in refusal
    assert len(refusal) < 600


def test_an_error_stops_all_workers(server):
    server.faults, server.delay = [400], 0.02
    refused(server, [f"text {i}" for i in range(60)], workers=3)
    assert len(server.requests) <= 6


def test_an_error_says_where_earlier_answers_are_kept(server, tmp_path):
    texts = ["a", "b", "c"]
    server.faults = [(200, {}, completion({"yes": 1.0})), 400]
    refusal = refused(server, texts, workers=1)
    assert refusal.endswith("1 answers are lost; name a file in answers= to keep them.")
    server.faults = [(200, {}, completion({"yes": 1.0})), 400]
    path = tmp_path / "answers.jsonl"
    refusal = refused(server, texts, workers=1, answers=path)
    assert "to row 1" in refusal
    assert refusal.endswith(f"1 answers are kept in {path}.")


def test_the_key_goes_to_the_server_and_nowhere_else(
    server, tmp_path, monkeypatch, pauses
):
    monkeypatch.setenv("MY_KEY", f" {KEY}\n")
    server.key = f"Bearer {KEY}"
    path, saved = tmp_path / "answers.jsonl", tmp_path / "endpoint.json"
    model = endpoint(server, key_env="MY_KEY", answers=path, retries=1)
    body = {**completion({"yes": 1.0}), "note": f"you sent {KEY}"}
    server.faults = [(200, {}, body)]
    model(["a", "b"])
    assert server.keys == [f"Bearer {KEY}"] * 2
    model.save(saved)
    shown = [repr(model), repr(model.question("a")), repr(pickle.dumps(model))]
    for fault in ((401, {}, f"bad {KEY}"), (500, {}, KEY), (200, {}, KEY)):
        server.faults = [fault] * 2
        with pytest.raises(InputError) as refusal:
            model(["c"])
        cause = refusal.value
        while cause is not None:
            shown.append(repr(cause))
            cause = cause.__cause__ or cause.__context__
    shown += [text.read_text() for text in tmp_path.iterdir()]
    assert len(pauses) == 1
    assert all(KEY not in text for text in shown)
    assert any("you sent ***" in text for text in shown)


def test_no_key_is_sent_where_none_is_set(server, monkeypatch):
    endpoint(server)(["a"])
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    endpoint(server, key_env="")(["a"])
    endpoint(server)(["a"])
    assert server.keys == [None, None, f"Bearer {KEY}"]


@pytest.mark.parametrize("key", [f"{KEY}\nX-Evil: 1", f"{KEY} b", f"{KEY}é"])
def test_a_key_that_is_invalid_in_a_header_is_not_shown(server, monkeypatch, key):
    monkeypatch.setenv("OPENAI_API_KEY", key)
    refusal = refused(server)
    assert "OPENAI_API_KEY" in refusal
    assert KEY not in refusal
    assert not server.requests


@pytest.mark.parametrize("scheme", ["http", "HTTP"])
@pytest.mark.parametrize("host", ["example.org", "10.0.0.1", "127.evil.example"])
def test_a_key_is_not_sent_unencrypted(monkeypatch, scheme, host):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    model = Endpoint(f"{scheme}://{host}:8000/v1", "tiny", CHOICES)
    with pytest.raises(InputError, match=r"Use https, or key_env=''") as refusal:
        model(["a"])
    assert KEY not in str(refusal.value)


def test_redirects_are_not_followed(server, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with serving(say) as other:
        for status in (301, 302, 303, 307, 308):
            server.faults = [(status, {"Location": other.url + "/chat/completions"})]
            refusal = refused(server)
            assert f"answered {status}" in refusal
            assert f"here to {other.url}/chat/completions; give the URL" in refusal
        assert not other.requests
        assert not other.paths
    assert len(server.requests) == 5


def test_a_local_server_is_called_directly(server, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    assert len(endpoint(server, retries=0)(["a"])) == 1


@pytest.fixture
def certificate(tmp_path):
    """A certificate for this machine that nobody else has signed, with its key."""
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl to make a certificate with")
    files = tmp_path / "certificate.pem", tmp_path / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
         "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=me",
         "-addext", "subjectAltName=IP:127.0.0.1", "-out", files[0], "-keyout",
         files[1]],
        check=True, capture_output=True,
    )  # fmt: skip
    return files


def test_a_server_is_called_if_its_certificate_is_trusted(
    server, certificate, monkeypatch, pauses
):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    url = server.url.replace("http:", "https:")
    refusal = refused(server, url=url)
    assert "cannot be trusted: self-signed certificate" in refusal
    assert not pauses
    assert not server.requests
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    np.testing.assert_allclose(
        probs_of(endpoint(server, url=url)(["four"])), by_hand(["four"])
    )
    assert server.keys == [f"Bearer {KEY}"]
