"""Who may do what, on every route."""

import hashlib
import time

import pytest
from service.house import Served

from trustdoctor.errors import FileError, InputError
from trustdoctor.service import access
from trustdoctor.service.access import (
    Access,
    Token,
    new_token,
    read_tokens,
    require_loopback,
    tokens_from,
)
from trustdoctor.service.problems import ProblemError
from trustdoctor.service.routes import OPERATIONS

TOKENS = {role: f"{role}-0123456789-0123456789" for role in access.ROLES}
HELD = [
    Token(role, hashlib.sha256(token.encode()).digest())
    for role, token in TOKENS.items()
]
TASKS = {"decide": {"decide"}, "label": {"label", "read"}, "admin": set()}


def bearer(token):
    return [(b"authorization", f"Bearer {token}".encode())]


def request_with(headers=(), host=b"localhost"):
    return [(b"host", host), *headers]


def refused(guard, headers, task="decide"):
    with pytest.raises(ProblemError) as refusal:
        guard.check(headers, task)
    message = str(refusal.value)
    assert not any(token in message for token in TOKENS.values())
    return refusal.value.status


@pytest.mark.parametrize("role", access.ROLES)
@pytest.mark.parametrize("task", ["decide", "label", "read", "admin"])
def test_roles(role, task):
    guard = Access(HELD)
    may = role == "admin" or task in TASKS[role]
    if may:
        assert guard.check(request_with(bearer(TOKENS[role])), task) == role
    else:
        assert refused(guard, request_with(bearer(TOKENS[role])), task) == 403


@pytest.mark.parametrize(
    "headers",
    [
        [],
        bearer("another-token-0123456789"),
        bearer(""),
        [(b"authorization", TOKENS["admin"].encode())],
        [(b"authorization", b"Basic " + TOKENS["admin"].encode())],
        [(b"authorization", b"Bearer " + HELD[2].digest.hex().encode())],
        [(b"authorization", b"Bearer \xff\xfe")],
        [(b"cookie", b"trustdoctor=" + TOKENS["admin"].encode())],
        [(b"cookie", b"trustdoctor=..")],
        [(b"cookie", b"trustdoctor")],
        [(b"cookie", b"\xff=\xff")],
    ],
)
def test_without_a_good_token(headers):
    assert refused(Access(HELD, (), "secret"), request_with(headers)) == 401


def test_cookies(monkeypatch):
    guard = Access(HELD, (), "secret")
    cookie = guard.log_in(TOKENS["label"])
    good = [(b"cookie", f"a=b; trustdoctor={cookie}; c=d".encode())]
    assert guard.check(request_with(good), "read") == "label"
    assert refused(guard, request_with(good), "admin") == 403
    assert TOKENS["label"] not in cookie
    assert guard.log_in("nobody-0123456789-0123456789") is None
    assert guard.log_in(TOKENS["decide"]) is None  # it may not read
    start, until, mark = cookie.split(".")
    for forged in (
        f"{start}.{int(until) + 9}.{mark}",
        f"{HELD[2].digest.hex()[:32]}.{until}.{mark}",
        f"{start}.{until}.{mark[:-1]}",
        f"{start}.{until}.",
    ):
        headers = [(b"cookie", f"trustdoctor={forged}".encode())]
        assert refused(guard, request_with(headers), "read") == 401
    other = Access(HELD, (), "another secret")
    assert refused(other, request_with(good), "read") == 401
    fewer = Access([token for token in HELD if token.role != "label"], (), "secret")
    assert refused(fewer, request_with(good), "read") == 401
    late = time.time() + access.SESSION + 1
    monkeypatch.setattr(time, "time", lambda: late)
    assert refused(guard, request_with(good), "read") == 401


@pytest.mark.parametrize(
    ("host", "good"),
    [
        (b"localhost", True),
        (b"LOCALHOST:8571", True),
        (b"127.0.0.1:8571", True),
        (b"127.3.2.1", True),
        (b"[::1]:80", True),
        (b"gate.example", True),
        (b"example.org", False),
        (b"localhost.example.org", False),
        (b"localhost:8571:1", False),
        (b"192.168.1.1", False),
        (b"", False),
        (b"\xff", False),
    ],
)
def test_hosts(host, good):
    guard = Access([], ["Gate.example"])
    if good:
        for _ in range(2):
            guard.check_host(host, None)
            guard.check_host(host, b"http://" + host)
    else:
        for _ in range(2):
            with pytest.raises(ProblemError) as refusal:
                guard.check_host(host, None)
            assert refusal.value.status == 421


def test_a_request_without_a_host():
    assert refused(Access(), []) in (400, 421)


@pytest.mark.parametrize(
    "origin",
    [b"http://example.org", b"null", b"http://localhost:1", b"ftp://localhost", b""],
)
def test_pages_of_others(origin):
    headers = request_with([(b"origin", origin)])
    assert refused(Access(), headers) == 403


def test_a_new_token_is_one_that_the_file_knows(tmp_path):
    token, line = new_token("label")
    path = tmp_path / "tokens"
    path.write_text(f"# people\n\n{line} ann # a note\n")
    (stored,) = read_tokens(path)
    assert (stored.role, stored.name) == ("label", "ann")
    assert token not in path.read_text()
    assert token not in repr(stored)
    assert stored.digest.hex() not in repr(stored)
    assert Access([stored]).check(request_with(bearer(token)), "label") == "label"
    assert new_token("label")[0] != token
    with pytest.raises(InputError, match="expected a role out of"):
        new_token("root")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected tokens in"),
        ("admin secret\n", "in line 1 of"),
        ("root sha256:" + "0" * 64, "expected a role out of"),
        ("admin sha256:xyz", "in line 1 of"),
    ],
)
def test_files_that_are_not_of_tokens(tmp_path, text, message):
    path = tmp_path / "tokens"
    path.write_text(text)
    with pytest.raises((FileError, InputError), match=message) as refusal:
        read_tokens(path)
    assert "secret" not in str(refusal.value).replace(str(path), "")
    with pytest.raises(FileError, match="cannot read the tokens"):
        read_tokens(tmp_path / "nowhere")


def test_tokens_of_the_environment():
    text = "admin=" + TOKENS["admin"] + ", decide=" + TOKENS["decide"]
    tokens = tokens_from({"TRUSTDOCTOR_TOKENS": text})
    assert [token.role for token in tokens] == ["admin", "decide"]
    assert tokens[0].digest == HELD[2].digest
    assert tokens_from({}) == []
    for wrong in ("admin", "admin=short", "root=" + "x" * 30):
        with pytest.raises(InputError) as refusal:
            tokens_from({"TRUSTDOCTOR_TOKENS": wrong})
        assert "x" * 30 not in str(refusal.value)


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "::1", "[::1]", "localhost", "127.9.9.9"]
)
def test_loopback_needs_no_tokens(host):
    require_loopback(host, [])


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.1", "example.org", ""])
def test_others_do(host):
    with pytest.raises(InputError, match="expected tokens to listen on"):
        require_loopback(host, [])
    require_loopback(host, HELD)


PATHS = {"{id}": "x", "{version}": "1", "{name}": "m"}


def filled(path):
    for mark, value in PATHS.items():
        path = path.replace(mark, value)
    return path


@pytest.fixture(scope="module")
def guarded(gate, loop, tmp_path_factory):
    place = tmp_path_factory.mktemp("guarded") / "rows.db"
    served = Served(gate, str(place), loop, tokens=HELD)
    yield served
    served.close()


OPEN = {"/healthz", "/readyz", "/openapi.json", "/login", "/logout", "/", "/review"}
OPEN |= {"/v2", "/v2/health/live", "/v2/health/ready", "/v2/models/{name}/ready"}


@pytest.mark.parametrize(
    ("method", "path"),
    [(operation.method, operation.path) for operation in OPERATIONS],
)
def test_every_route_is_guarded(guarded, method, path):
    """Without a token nothing is read or changed, but what says that it lives."""
    before = guarded.everything()
    answer = guarded.ask(method, filled(path), b"")
    if path in OPEN:
        assert answer.status != 401 or path == "/login"
        if path in ("/", "/review"):
            assert (answer.status, answer.headers["location"]) == (
                303,
                f"/login?next={path}",
            )
    else:
        assert answer.status == 401
        assert answer.headers["www-authenticate"] == "Bearer"
    query = guarded.ask(method, f"{filled(path)}?token={TOKENS['admin']}", b"")
    assert query.status == answer.status  # tokens in addresses are not read
    other = guarded.ask(method, filled(path), b"", headers=[(b"host", b"evil.org")])
    assert other.status == 421
    foreign = [*bearer(TOKENS["admin"]), (b"origin", b"http://evil.org")]
    assert guarded.ask(method, filled(path), b"", headers=foreign).status == 403
    assert guarded.everything() == before


def test_logging_in_and_out(guarded):
    wrong = guarded.post("/login", b"token=nobody")
    assert wrong.status == 401
    assert "set-cookie" not in wrong.headers
    response = guarded.post("/login", f"token={TOKENS['label']}".encode())
    assert (response.status, response.headers["location"]) == (303, "/")
    cookie = response.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    headers = [(b"cookie", cookie.split(";")[0].encode())]
    assert guarded.get("/", headers=headers).status == 200
    assert guarded.get("/v1/status", headers=headers).status == 200
    assert guarded.post("/v1/recalibrate", headers=headers).status == 403
    out = guarded.post("/logout", headers=headers)
    assert 'trustdoctor=""' in out.headers["set-cookie"]
