"""One thread writes: concurrent requests share a commit, and fail separately."""

import asyncio
import threading
import time

import pytest

from trustdoctor.service import writer as module
from trustdoctor.service.problems import ProblemError
from trustdoctor.service.store import UnavailableError

ROW = {"logits": [1.0, 2.0, 3.0, 4.0]}


@pytest.fixture
def blocked(served):
    """A service whose writer waits until it is let go, so that requests gather."""
    entered, leave = threading.Event(), threading.Event()

    def hold(_):
        entered.set()
        leave.wait(30)

    thread = threading.Thread(target=served.service.writer.call, args=(hold,))
    thread.start()
    assert entered.wait(10)
    served.let_go = leave.set
    yield served
    leave.set()
    thread.join()


def together(served, *requests):
    """Send requests while the writer is held; return what they were answered."""

    async def send():
        tasks = [
            asyncio.ensure_future(served.ask_async(*request)) for request in requests
        ]
        while served.service.writer.waiting < len(requests):
            await asyncio.sleep(0.001)
        served.let_go()
        return await asyncio.gather(*tasks)

    return asyncio.run_coroutine_threadsafe(send(), served.loop).result(30)


def test_one_commit_for_many_requests(blocked):
    before = blocked.service.writer.commits
    requests = [("POST", "/v1/decide", ROW | {"id": at}) for at in range(30)]
    answers = together(blocked, *requests)
    assert [answer.status for answer in answers] == [200] * 30
    assert blocked.service.writer.commits == before + 2  # with the one that held it
    positions = blocked.read("SELECT position FROM rows ORDER BY position")
    assert [at for (at,) in positions] == list(range(2, 32))
    times = blocked.read("SELECT DISTINCT decided_at FROM rows")
    assert len(times) == 1


def test_a_failing_request_does_not_affect_the_others(blocked, monkeypatch):
    decider = blocked.service.writer.decider
    real = decider.decide

    def decide(session, head, requests):
        if any(rows.ids == ["bad"] for rows in requests):
            session.run("UPDATE gates SET note = 'spoilt'")
            message = "nobody expected this"
            raise ZeroDivisionError(message)
        return real(session, head, requests)

    monkeypatch.setattr(decider, "decide", decide)
    names = ["a", "bad", "b"]
    requests = [("POST", "/v1/decide", ROW | {"id": name}) for name in names]
    lease = ("POST", "/v1/review/lease", {})
    answers = together(blocked, *requests, lease)
    assert [answer.status for answer in answers] == [200, 500, 200, 200]
    assert "nobody expected" not in answers[1].detail
    stored = blocked.read("SELECT id FROM rows ORDER BY id")
    assert stored == [("a",), ("b",)]
    assert blocked.read("SELECT note FROM gates") == [("",)]


def test_a_job_that_fails_is_undone_alone(blocked):
    row = ("POST", "/v1/decide", ROW | {"id": "a"})
    wrong = ("POST", "/v1/gates/9/promote", None)
    rollback = ("POST", "/v1/gates/rollback", None)
    answers = together(blocked, wrong, row, rollback)
    assert [answer.status for answer in answers] == [404, 200, 409]
    assert blocked.read("SELECT count(*) FROM rows") == [(1,)]
    assert blocked.read("SELECT count(*) FROM gate_changes") == [(1,)]


def test_a_failed_commit_is_never_confirmed(blocked, monkeypatch):
    session = blocked.service.writer._session
    real = session.commit

    def commit():
        monkeypatch.setattr(session, "commit", real)
        message = "the disk is full."
        raise UnavailableError(message)

    requests = [("POST", "/v1/decide", ROW | {"id": at}) for at in range(5)]
    before = blocked.everything()

    async def send():
        tasks = [
            asyncio.ensure_future(blocked.ask_async(*request)) for request in requests
        ]
        while blocked.service.writer.waiting < 5:
            await asyncio.sleep(0.001)
        blocked.let_go()
        await asyncio.sleep(0)
        return await asyncio.gather(*tasks)

    def spoil(_):
        monkeypatch.setattr(session, "commit", commit)

    # The job that holds it commits well; the next commit does not.
    blocked.service.writer._tasks.put(module.Task(spoil, lambda _: None, None, 0))
    answers = asyncio.run_coroutine_threadsafe(send(), blocked.loop).result(30)
    assert {answer.status for answer in answers} == {503}
    assert blocked.everything() == before
    repeated = blocked.post("/v1/decide", ROW | {"id": 0})
    assert repeated.status == 200


def test_too_much_is_refused(blocked, monkeypatch):
    monkeypatch.setattr(module, "MOST_WAITING", 5)
    monkeypatch.setattr(module, "MOST_ROWS", 3)
    body = {"rows": [ROW] * 9}
    refused = blocked.post("/v1/decide", body)
    assert refused.status == 503
    assert "too many rows wait" in refused.detail
    assert refused.headers["retry-after"] == "1"
    blocked.let_go()
    assert blocked.post("/v1/decide", {"rows": [ROW] * 4}).status == 200
    assert blocked.service.writer.waiting == 0


def test_closing_finishes_accepted_requests(blocked):
    futures = [
        asyncio.run_coroutine_threadsafe(
            blocked.ask_async("POST", "/v1/decide", ROW | {"id": at}), blocked.loop
        )
        for at in range(8)
    ]
    while blocked.service.writer.waiting < 8:
        time.sleep(0.001)
    closing = threading.Thread(target=blocked.service.writer.close)
    closing.start()
    blocked.let_go()
    assert [future.result(30).status for future in futures] == [200] * 8
    closing.join()
    late = blocked.post("/v1/decide", ROW)
    assert late.status == 503
    assert "shutting down" in late.detail
    blocked.die()


def test_calls_from_threads(served):
    assert served.service.writer.call(lambda _: 7) == 7
    with pytest.raises(ProblemError, match=r"no\."):
        served.service.writer.call(lambda _: _raise())


def _raise():
    raise ProblemError(400, "no.")


def test_a_request_whose_sender_is_gone_is_still_stored(blocked):
    async def leave():
        task = asyncio.ensure_future(
            blocked.ask_async("POST", "/v1/decide", ROW | {"id": "x"})
        )
        while blocked.service.writer.waiting < 1:
            await asyncio.sleep(0.001)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run_coroutine_threadsafe(leave(), blocked.loop).result(30)
    blocked.let_go()
    assert blocked.post("/v1/decide", ROW | {"id": "y"}).status == 200
    assert blocked.read("SELECT count(*) FROM rows") == [(2,)]
