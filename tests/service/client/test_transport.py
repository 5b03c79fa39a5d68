"""Calls that fail, kept connections, and where the token goes."""

import shutil
import ssl
import subprocess
import sys
import threading

import pytest
from stub_service import GATE, LOGITS, TOKEN, answered_as, problem, refused

from trustdoctor.service.client import Client


@pytest.mark.parametrize(
    "fault", ["close", "lost", *[(s,) for s in (429, 502, 503, 504)]]
)
def test_transient_failures_are_retried_and_count_once(service, pauses, fault):
    service.faults = [fault] * 3
    with Client(service.url) as client:
        decisions = client.decide(logits=LOGITS)
    contents = [content for _, _, content in service.requests]
    assert contents == [contents[0]] * 4  # the same ids, so the same rows
    assert list(service.first_answers) == [decision.id for decision in decisions]
    for pause, grown in zip(pauses, (0.25, 0.5, 1.0), strict=True):
        assert grown / 2 <= pause <= grown


@pytest.mark.parametrize(
    ("after", "least", "most"),
    [("7", 7, 7), ("2.5", 2.5, 2.5), ("86400", 60, 60), ("-3", 0, 1), ("x", 0, 1),
     ("inf", 0, 1)],
)  # fmt: skip
def test_the_service_says_how_long_to_wait(client, service, pauses, after, least, most):
    service.faults = [(503, {"Retry-After": after})]
    client.status()
    assert len(pauses) == 1
    assert least <= pauses[0] <= most


def test_after_the_last_attempt_the_reason_is_reported(service, pauses):
    service.faults = [problem(503, "the store is away. Send it again later.")] * 9
    with Client(service.url, retries=2) as client:
        assert refused(client.status) == "the store is away. Send it again later."
    assert len(service.requests) == 3
    service.faults = ["close"] * 9
    with Client(service.url, retries=1) as client:
        message = refused(client.status)
    assert message.startswith(f"{service.url} did not answer: Remote end closed")
    assert message.endswith("Calls made: 2. See that it runs, and call again.")
    assert len(pauses) == 3


def test_a_service_that_is_not_there_is_named(pauses):
    client = Client("http://127.0.0.1:9", retries=0)
    message = refused(client.status)
    assert message.startswith("http://127.0.0.1:9 did not answer: Connection refused. ")
    assert not pauses


@pytest.mark.parametrize("name", ["rollback", "recalibrate", "add_gate"])
def test_calls_that_are_not_idempotent_are_tried_once(client, service, pauses, name):
    client.status()
    arguments = [GATE] if name == "add_gate" else []
    service.faults = ["lost"]
    message = refused(getattr(client, name), *arguments)
    assert message.endswith(
        "It was called once; look whether it was done, and call again."
    )
    assert len(service.requests) == 2
    assert not pauses
    assert service.connections == 2  # one that may have gone stale is not used


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 413, 500])
def test_problems_are_passed_on_unchanged(client, service, pauses, status):
    service.faults = [problem(status, f"expected\x1b another\nrow {TOKEN[:5]}.")]
    assert refused(client.status) == f"expected\\x1b another row {TOKEN[:5]}."
    assert not pauses


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (
            (404, {}, b"<h1>Not Found</h1>"),
            "answered 404: <h1>Not Found</h1>. Give the",
        ),
        ((307, {"Location": "/x"}, b""), "answered 307: nothing. Redirects are not"),
        ((400, {}, b'{"detail": [1]}'), 'answered 400: {"detail": [1]}. Give the URL'),
        ((502, {}, b""), "answered 502: nothing. Calls made: 1."),
        (b"<h1>It works!</h1>", "expected JSON from http"),
        (b"[1]", "expected JSON from http"),
        (b"[" * 100_000, "expected JSON from http"),
        (b'{"rows": [{"id": "a"}]}', "expected rows from http"),
        (b'{"rows": 3}', "expected rows from http"),
        (b'{"rows": []}', "expected answers to the 1 rows sent from http"),
        (answered_as("cat"), "expected answers to the 1 rows sent from http"),
    ],
)
def test_other_servers_are_recognised(service, fault, message):
    service.faults = [fault]
    with Client(service.url, TOKEN, retries=0) as client:
        refusal = refused(client.decide, [{"id": "b", "logits": [1.0, 0.0]}])
    assert message in refusal
    assert len(refusal) < 400


def test_answers_of_another_server_are_refused(client, service):
    service.faults = [b'{"counted": 1}', b"{}", b"{}"]
    assert "expected what became of labels" in refused(client.label, {"a": 0})
    assert "expected gates" in refused(client.gates)
    assert "expected rows" in refused(client.lease)


def test_threads_share_a_pool_of_connections(client, service):
    barrier = threading.Barrier(3)

    def work():
        barrier.wait()
        for _ in range(5):
            client.decide(logits=LOGITS[:1])

    client.status()
    assert service.connections == 1
    for _ in range(2):
        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(service.requests) == 31
    assert service.connections <= 3


def test_a_connection_that_was_closed_meanwhile_is_opened_again(service, pauses):
    service.hangs_up = True
    with Client(service.url, retries=0) as client:
        for _ in range(3):
            client.status()
            assert service.closed.acquire(timeout=60)
    assert service.connections == 3
    assert not pauses


def test_a_closed_client_opens_a_connection_again(client, service):
    client.status()
    client.close()
    client.status()
    assert service.connections == 2


FORK = """
import os, sys
from trustdoctor.service.client import Client
client = Client(sys.argv[1])
client.status()
child = os.fork()
if not child:
    client.status()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
client.status()
"""


def test_a_forked_process_has_a_connection_of_its_own(service):
    """In a process without threads: JAX and others, once imported, warn of a fork."""
    subprocess.run([sys.executable, "-c", FORK, service.url], check=True)
    assert service.connections == 2
    assert len(service.requests) == 3


def test_an_interrupt_leaves_no_half_answer_behind(client, monkeypatch):
    client.status()

    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("http.client.HTTPResponse.read1", interrupt)
        with pytest.raises(KeyboardInterrupt):
            client.status()
    assert client.gates() == []


def test_the_token_is_sent_and_never_shown(service):
    service.faults = [problem(401, f"not a token: Bearer {TOKEN}.")]
    with Client(service.url, TOKEN) as client:
        message = refused(client.status)
        client.status()
        assert TOKEN not in repr(client)
        assert message == "not a token: Bearer ***."
    assert [headers["Authorization"] for headers in service.headers] == [
        f"Bearer {TOKEN}"
    ] * 2


def test_without_a_token_none_is_sent(client, service):
    client.status()
    assert "Authorization" not in service.headers[0]


def test_a_token_is_sent_unencrypted_only_to_this_machine():
    for url in ("https://example.org", "http://127.0.0.1:1", "http://[::1]:1"):
        Client(url, TOKEN)
    for url in ("http://example.org", "http://10.0.0.3:8571"):
        message = refused(Client, url, TOKEN)
        assert message.startswith(f"{url} is not encrypted, so the token could be read")
        Client(url)
        Client(url, TOKEN, unencrypted=True)


@pytest.mark.parametrize(
    ("url", "options", "message"),
    [
        ("127.0.0.1:8571", {}, "expected url as that of a service"),
        ("ftp://127.0.0.1", {}, "expected url as that of a service"),
        ("http://127.0.0.1:99999", {}, "expected url as that of a service"),
        ("http://exa mple.org", {}, "expected url as that of a service"),
        (None, {}, "expected url as that of a service"),
        (f"http://me:{TOKEN}@127.0.0.1", {}, "got one with a user, a query"),
        (f"http://127.0.0.1/?token={TOKEN}", {}, "pass a token as token=."),
        (
            "http://127.0.0.1",
            {"token": f"{TOKEN} x"},
            "expected token as text of plain",
        ),
        ("http://127.0.0.1", {"token": f"{TOKEN}\r\nX: y"}, "expected token as text"),
        ("http://127.0.0.1", {"token": ""}, "expected token as text of plain"),
        ("http://127.0.0.1", {"timeout": 0}, "expected a timeout above 0 seconds"),
        ("http://127.0.0.1", {"timeout": True}, "expected a timeout above 0 seconds"),
        ("http://127.0.0.1", {"retries": -1}, "expected retries as a whole number"),
        ("http://127.0.0.1", {"retries": 1.5}, "expected retries as a whole number"),
    ],
)
def test_clients_that_cannot_work_are_refused(url, options, message):
    assert message in refused(Client, url, **options)


def test_a_certificate_must_be_trusted(service, tmp_path, monkeypatch, pauses):
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
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*files)
    service.socket = context.wrap_socket(service.socket, server_side=True)
    url = service.url.replace("http:", "https:")
    with Client(url, TOKEN) as client:
        message = refused(client.status)
        assert "cannot be trusted: self-signed certificate" in message
        assert not pauses
        assert not service.requests
    monkeypatch.setenv("SSL_CERT_FILE", str(files[0]))
    with Client(url, TOKEN) as client:
        for _ in range(3):
            client.status()
    assert (len(service.requests), service.connections) == (3, 1)
    assert service.headers[0]["Authorization"] == f"Bearer {TOKEN}"


def test_the_client_needs_no_package_of_the_service():
    code = "import sys, trustdoctor.service.client; print(*sys.modules)"
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    heavy = {"starlette", "uvicorn", "psycopg", "http.client", "ssl"}
    assert heavy.isdisjoint(out.stdout.split())
