"""What hostile requests get. Those that are slow, or fill something: test_stress.py."""

import json
import re
import socket
import stat
import time

import pytest
from service.load import make_gate, serving

TOKENS = {
    role: f"{role}-0123456789-0123456789" for role in ("decide", "label", "admin")
}
ROW = {"logits": [1.0, 2.0, 3.0]}
BODY = json.dumps(ROW).encode()
DECIDE = "/v1/decide"
HOST = b"Host: localhost\r\n"
DEEP = 100_000


@pytest.fixture(scope="module")
def gate(tmp_path_factory):
    return make_gate(tmp_path_factory.mktemp("attacked"))


@pytest.fixture(scope="module")
def service(gate):
    """A service without tokens: everything is open to this machine."""
    with serving(gate, gate.with_name("open.db")) as running:
        yield running


@pytest.fixture(scope="module")
def guarded(gate):
    tokens = ",".join(f"{role}={token}" for role, token in TOKENS.items())
    env = {"TRUSTDOCTOR_TOKENS": tokens}
    with serving(gate, gate.with_name("guarded.db"), env=env) as running:
        yield running


def bearer(role):
    return {"Authorization": f"Bearer {TOKENS[role]}"}


def stored(service):
    return service.count("rows", "labels", "gates", "gate_changes")


def refused(answer, status, words=""):
    """Check a problem."""
    actual, problem = answer
    assert actual == status, problem
    assert problem["status"] == status
    assert words in problem["detail"], problem


# Who asks


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        (DECIDE, {}),
        (DECIDE, {"Authorization": "Bearer " + "x" * 30}),
        (DECIDE, {"Authorization": f"Basic {TOKENS['admin']}"}),
        (DECIDE, {"Authorization": "Bearer "}),
        (f"{DECIDE}?token={TOKENS['admin']}", {}),
        (f"{DECIDE}?access_token={TOKENS['admin']}", {}),
        ("/v1/labels", {}),
        ("/v1/gates/rollback", {}),
        ("/v2/models/any/infer", {}),
    ],
)
def test_requests_without_a_valid_token_are_refused(path, headers, guarded):
    refused(guarded.ask("POST", path, ROW, headers), 401, "expected a token")


@pytest.mark.parametrize(
    ("role", "method", "path"),
    [
        ("decide", "POST", "/v1/labels"),
        ("decide", "POST", "/v1/review/lease"),
        ("decide", "GET", "/v1/status"),
        ("decide", "GET", "/v1/rows/a"),
        ("decide", "GET", "/v1/export"),
        ("label", "POST", DECIDE),
        ("label", "DELETE", "/v1/rows/a"),
        ("label", "POST", "/v1/gates"),
        ("label", "POST", "/v1/gates/1/promote"),
        ("label", "POST", "/v1/recalibrate"),
        ("label", "GET", "/v1/export"),
    ],
)
def test_a_token_is_good_for_its_role_alone(role, method, path, guarded):
    refused(guarded.ask(method, path, None, bearer(role)), 403, f"one for {role!r}")


def log_in(service, token, **headers):
    """Return the status and the cookie."""
    link = service.link()
    all_headers = {"Content-Type": "application/x-www-form-urlencoded"} | headers
    link.request("POST", "/login", f"token={token}", all_headers)
    answer = link.getresponse()
    link.close()
    return answer.status, answer.getheader("set-cookie")


def test_cookies_are_not_to_be_forged_nor_read_by_scripts_nor_sent_by_others(guarded):
    assert log_in(guarded, "x" * 30) == (401, None)
    assert log_in(guarded, TOKENS["decide"]) == (401, None)
    status, cookie = log_in(guarded, TOKENS["label"])
    assert status == 303
    assert {"HttpOnly", "SameSite=strict"} <= set(cookie.split("; "))
    cookie_pair = cookie.split(";")[0]
    assert guarded.ask("GET", "/v1/status", None, {"Cookie": cookie_pair})[0] == 200
    name, _, value = cookie_pair.partition("=")
    who, until, mark = value.split(".")
    for forged in (
        f"{who}.{int(until) + 9999}.{mark}",
        f"{'0' * len(who)}.{until}.{mark}",
        f"{who}.{until}.{'0' * len(mark)}",
        f"{who}.{until}.",
        "..",
        "",
    ):
        answer = guarded.ask("GET", "/v1/status", None, {"Cookie": f"{name}={forged}"})
        refused(answer, 401)
    foreign = {"Cookie": cookie_pair, "Origin": "http://evil.example"}
    refused(guarded.ask("POST", "/v1/labels", {"id": 1, "label": 1}, foreign), 403)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 421),  # a name that was bound anew to this machine
        ({"Host": "127.0.0.1.evil.example"}, 421),
        ({"Host": "192.0.2.1"}, 421),
        ({"Host": ""}, 421),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://localhost:1"}, 403),
        (
            {
                "Origin": "http://evil.example",
                "Content-Type": "application/x-www-form-urlencoded",
            },
            403,
        ),
    ],
)
@pytest.mark.parametrize("path", [DECIDE, "/v1/labels", "/login"])
@pytest.mark.sampled(3)
def test_pages_of_others_reach_nothing(path, headers, status, service):
    before = stored(service)
    refused(service.ask("POST", path, ROW, headers), status)
    assert stored(service) == before


# What they send

BODIES = {
    "nested lists": (b"[" * DEEP, 400),
    "nested lists, closed": (b"[" * DEEP + b"]" * DEEP, 400),
    "nested logits": (b'{"logits":' + b"[" * DEEP + b"]" * DEEP + b"}", 400),
    "nested objects": (b'{"a":' * DEEP + b"1" + b"}" * DEEP, 400),
    "a million columns": (b'{"logits":[' + b"0," * 999_999 + b"0]}", 400),
    "too many rows": (b'{"logits":[' + b"[0,1,2]," * 20_000 + b"[0,1,2]]}", 413),
    "too many bytes": (b" " * (17 << 20), 413),
    "NaN": (b'{"logits":[NaN,1,2]}', 400),
    "Infinity": (b'{"logits":[-Infinity,1,2]}', 400),
    "a number too large": (b'{"logits":[1e999,1,2]}', 400),
    "a number of 5,000 digits": (b'{"id":' + b"9" * 5000 + b',"logits":[0,1,2]}', 400),
    "a null byte in an id": (b'{"id":"a\\u0000b","logits":[0,1,2]}', 400),
    "a new line in an id": (b'{"id":"a\\nb","logits":[0,1,2]}', 400),
    "a terminal's escape in an id": (b'{"id":"\\u001b[2J","logits":[0,1,2]}', 400),
    "a line separator in an id": (b'{"id":"\\u2028","logits":[0,1,2]}', 400),
    "half a character in an id": (b'{"id":"\\ud800","logits":[0,1,2]}', 400),
    "an id that is no UTF-8": (b'{"id":"\xff","logits":[0,1,2]}', 400),
    "an id of a million characters": (
        b'{"id":"' + b"x" * 10**6 + b'","logits":[0,1,2]}',
        400,
    ),
    "a link that is a script": (
        b'{"logits":[0,1,2],"payload":{"link":"javascript:alert(1)"}}',
        400,
    ),
    "an image that can hold scripts": (
        b'{"logits":[0,1,2],"payload":{"image":"data:image/svg+xml;base64,AAAA"}}',
        400,
    ),
    "an image of another kind than it says": (
        b'{"logits":[0,1,2],"payload":{"image":"data:image/png;base64,PHN2Zz4="}}',
        400,
    ),
    "nothing": (b"", 400),
    "null": (b"null", 400),
    "a field that there is not": (b'{"logits":[0,1,2],"gate":"mine"}', 400),
}


@pytest.mark.parametrize("name", BODIES)
def test_a_body_that_is_not_as_expected_is_refused_and_nothing_is_stored(name, service):
    body, status = BODIES[name]
    before = stored(service)
    refused(service.ask("POST", DECIDE, body), status, "expected")
    assert stored(service) == before


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/labels", b'{"labels":' + b"[" * DEEP + b"]" * DEEP + b"}"),
        ("/v1/gates", b'{"gate":' + b"[" * DEEP + b"]" * DEEP + b"}"),
        ("/v1/gates", b'{"gate":{"state":"threshold"},"note":"x"}'),
        ("/v1/review/lease", b'{"count":' + b"9" * 5000 + b"}"),
        ("/v1/review/answer", b'{"id":"a","lease":"\xff","label":1}'),
        ("/v1/recalibrate", b'{"targets":' + b"[" * DEEP + b"]" * DEEP + b"}"),
    ],
)
def test_so_is_one_for_another_path(path, body, service):
    refused(service.ask("POST", path, body), 400, "expected")


def test_scripts_in_a_payload_are_kept_as_text_and_answered_as_json(service):
    script = "<script>alert(1)</script>"
    row = {"id": script, "payload": {"text": script, "link": "https://a.example/?<b>"}}
    assert service.ask("POST", DECIDE, ROW | row)[0] == 200
    link = service.link()
    link.request("GET", "/v1/rows/%3Cscript%3Ealert(1)%3C%2Fscript%3E")
    answer = link.getresponse()
    assert json.loads(answer.read())["payload"] == row["payload"]
    link.close()
    assert answer.getheader("content-type") == "application/json"
    assert answer.getheader("x-content-type-options") == "nosniff"


# How they send it


def post(*headers, body=BODY, path=b"/v1/decide"):
    lines = b"".join(header + b"\r\n" for header in headers)
    return b"POST " + path + b" HTTP/1.1\r\n" + lines + b"\r\n" + body


OWN, LENGTH = b"Host: localhost", b"Content-Length: %d" % len(BODY)
CHUNKED = b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)
RAW = {
    "two lengths": (post(OWN, LENGTH, b"Content-Length: 5"), 400),
    "the same length twice": (post(OWN, LENGTH, LENGTH), 400),
    "length and chunks": (
        post(OWN, LENGTH, b"Transfer-Encoding: chunked", body=CHUNKED),
        400,
    ),
    "chunks by another name": (
        post(OWN, b"Transfer-Encoding: xchunked", body=CHUNKED),
        400,
    ),
    "a negative length": (post(OWN, b"Content-Length: -5"), 400),
    "a length with a sign": (post(OWN, b"Content-Length: +32"), 400),
    "a length without end": (post(OWN, b"Content-Length: " + b"9" * 30), 400),
    "a length that is too short": (post(OWN, b"Content-Length: 5"), 400),
    "a folded header": (post(OWN, b"X: a\r\n b", LENGTH), 400),
    "a space before the colon": (post(OWN, b"Content-Length : 32"), 400),
    "lines that end by LF": (post(OWN, LENGTH).replace(b"\r\n", b"\n"), 400),
    "a null byte in a header": (post(OWN, b"X: a\0b", LENGTH), 400),
    "two hosts": (post(b"Host: evil.example", OWN, LENGTH), 400),
    "no host": (post(LENGTH), 400),
    "HTTP/2 at once": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    "HTTP/9": (b"GET / HTTP/9.9\r\n" + HOST + b"\r\n", 400),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
    "a proxy's CONNECT": (
        b"CONNECT evil.example:443 HTTP/1.1\r\n" + HOST + b"\r\n",
        400,
    ),
    "a method that there is not": (b"FOO / HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    "a path that is not ASCII": (post(OWN, LENGTH, path=b"/\xc3\xa9"), 400),
    "a large head": (post(OWN, b"X: " + b"x" * 300_000, LENGTH), 431),
    "a large address": (post(OWN, LENGTH, path=b"/" + b"x" * 300_000), 431),
}


@pytest.mark.parametrize("name", RAW)
def test_what_is_not_plain_http_is_refused_and_nothing_is_stored(name, service):
    data, status = RAW[name]
    before = stored(service)
    head, _, body = service.send(data, 1.0).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status), head
    assert b"application/problem+json" in head
    assert json.loads(body.partition(b"}")[0] + b"}")["status"] == status
    assert stored(service) == before


def test_a_request_hidden_in_another_is_a_request_like_others(guarded):
    """What follows a body is read as the next request, with no rights of the first."""
    hidden = b"GET /v1/status HTTP/1.1\r\n" + HOST + b"\r\n"
    token = b"Authorization: Bearer " + TOKENS["admin"].encode()
    answers = guarded.send(post(OWN, token, LENGTH) + hidden, 1.0)
    assert re.findall(rb"HTTP/1.1 (\d+)", answers) == [b"200", b"401"]


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "TRACE", "PUT", "PATCH", "GET"])
def test_other_methods_are_refused(method, service):
    status, headers = service.ask(method, DECIDE)
    assert status == 405
    assert method == "HEAD" or "TRACE" not in headers["allow"]


@pytest.mark.parametrize(
    "path",
    [
        "//v1/decide",
        "/v1/decide/",
        "/v1/decide%2f",
        "/v1/./decide",
        "/v1/../v1/decide",
        "/v1/%2e%2e/v1/decide",
        "/v1/decide%00",
        "/v1/decide;x",
        "/V1/decide",
        "/static/../../etc/passwd",
    ],
)
def test_paths_are_taken_as_they_are(path, guarded):
    refused(guarded.ask("POST", path, ROW, bearer("admin")), 404, "expected a path")


def test_another_spelling_of_a_path_needs_the_same_token(guarded):
    refused(guarded.ask("POST", "/v1/%64ecide", ROW), 401)
    request = b"GET http://evil.example/v1/status HTTP/1.1\r\n" + HOST + b"\r\n"
    assert guarded.send(request, 1.0).startswith(b"HTTP/1.1 401 ")


def test_a_request_that_ends_too_soon_stores_nothing(service):
    before = stored(service)
    with socket.create_connection(("127.0.0.1", service.port)) as link:
        link.sendall(post(OWN, b"Content-Length: 1000"))
    time.sleep(0.2)
    assert stored(service) == before


@pytest.mark.parametrize(
    "start",
    [
        b"GET /healthz HTTP/1.1\r\n" + HOST,
        b"POST /nothing HTTP/1.1\r\n"
        + HOST
        + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n",
    ],
)
def test_headers_and_trailers_without_end_are_cut(start, service):
    before = service.memory
    service.send(start + b"a: b\r\n" * 10_000_000, 1.0)
    assert service.memory < before + 50


# What is left of it


def test_the_log_contains_neither_tokens_nor_payloads(guarded):
    secret = "what a person wrote"
    row = ROW | {"id": "told", "payload": {"text": secret}}
    assert guarded.ask("POST", DECIDE, row, bearer("decide"))[0] == 200
    other = row | {"logits": [3.0, 2.0, 1.0]}
    refused(guarded.ask("POST", DECIDE, other, bearer("decide")), 409)
    guarded.ask("POST", f"{DECIDE}?token={TOKENS['admin']}", row)
    guarded.ask("GET", f"/v1/rows/{TOKENS['admin']}", None, bearer("admin"))
    log_in(guarded, TOKENS["label"])
    log = guarded.log.read_text()
    assert '"route": "/v1/rows' in log
    assert [
        secret_text for secret_text in (secret, *TOKENS.values()) if secret_text in log
    ] == []


def test_the_store_is_for_its_owner_alone(guarded, gate):
    guarded.ask("POST", DECIDE, ROW, bearer("decide"))
    files = list(gate.parent.glob("guarded.db*"))
    assert len(files) == 4
    for path in files:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path.name
