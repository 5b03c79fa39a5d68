"""The pages of the service, as people use them in a browser."""

import json
import math
import os
import re
import struct
import subprocess
import sys
import zlib
from base64 import b64encode
from contextlib import suppress
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from itertools import count
from urllib.request import Request, urlopen

import numpy as np
import pytest
from injections import INJECTIONS

import trustdoctor as td
from trustdoctor.service.pages import (
    page_headers,
    render_live,
    render_login,
    render_review,
)

TOKEN = "a-token-for-the-tests-alone"
NOW = datetime(2026, 11, 16, 12, 30, 20, tzinfo=UTC)
PROMISE = "at most 5% of the correct predictions rejected, with confidence 0.9"
STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def ago(**span):
    return (NOW - timedelta(**span)).isoformat().replace("+00:00", "Z")


def watched(name, low, high, **more):
    return {
        "name": name, "verdict": "no rows yet", "why": "", "estimate": None, "low": low,
        "high": high, "evidence": 0.0, "limit": math.log(22), "alarm": None,
        "words": {"promise": f"at most {high:.0%} of them", "observed": [],
                  "groups": 0, "evidence": ""},
        **more,
    }  # fmt: skip


def version(number, state, **more):
    return {
        "version": number, "at": ago(hours=3), "origin": "start", "state": state,
        "promise": PROMISE, "note": None, "rows": 0, **more,
    }  # fmt: skip


def empty():
    """What the service says before the first row."""
    return {
        "time": ago(),
        "service": {"version": "0.2", "started": ago(minutes=1), "store": "sqlite",
                    "replica": "a1", "durable": True},
        "gate": {"version": 1, "since": ago(hours=3), "score": "alpha", "rule": "",
                 "promise": PROMISE, "classes": ["cat", "dog", "bird"]},
        "shadow": None,
        "traffic": {"rows": 0, "accepted": 0, "minutes": []},
        "watch": {"version": 1, "headline": "no rows yet", "waiting": 0, "upto": 0,
                  "review": {"rejected": 1.0, "accepted": 0.02}, "history": [],
                  "tests": [watched("accepted", 0.84, 0.87), watched("frr", 0, 0.05)]},
        "alarms": [],
        "versions": [version(1, "current")],
        "review": {"waiting": 0, "leased": 0, "rejected": 0, "audit": 0, "oldest": None,
                   "answered": 0, "cannot_say": 0},
        "latency": {"p50_ms": None, "p99_ms": None, "count": 0},
    }  # fmt: skip


def busy():
    """What it says after an hour, with two minutes without rows."""
    status, rng = empty(), np.random.default_rng(0)
    start = NOW.replace(second=0)
    minutes = [
        {"at": (start - timedelta(minutes=i)).isoformat(), "rows": 600 - 3 * i,
         "accepted": 510 - 3 * i, "drawn": 100, "labels": 90}
        for i in range(60, -1, -1) if i not in (20, 21)
    ]  # fmt: skip
    status["traffic"] = {"rows": 30_000, "accepted": 25_500, "minutes": minutes}
    watch = status["watch"]
    watch |= {"headline": "nothing to report", "waiting": 1, "upto": 30_000}
    for i in range(40):
        size, window = 50 * (i % 20 + 1), 1 + i // 20
        rates = {"accepted": 0.85 + 0.01 * rng.normal(), "frr": 0.04 + i / 4000}
        watch["history"].append({
            "number": i + 1, "at": ago(minutes=39 - i), "rows": 500, "accepted": 425,
            "labels": 80, "waiting": 1, "alarms": [],
            "evidence": {"accepted": 0.0, "frr": i / 20},
            "estimates": {name: [rate, rate - 0.01, rate + 0.02, size, window]
                          for name, rate in rates.items()},
        })  # fmt: skip
    last = watch["history"][-1]
    for test in watch["tests"]:
        estimate = last["estimates"][test["name"]]
        fields = ("value", "low", "high", "n", "window")
        test |= {"verdict": "holds", "evidence": last["evidence"][test["name"]]}
        test["estimate"] = dict(zip(fields, estimate, strict=True))
        value, low, high, n, _ = estimate
        test["words"] |= {
            "observed": [f"{value:.2%} [{low:.2%}, {high:.2%}] of {n:,} rows"],
            "evidence": "nothing speaks against it",
        }
    status["review"] = {"waiting": 1234, "leased": 2, "rejected": 1200, "audit": 34,
        "oldest": ago(minutes=95), "answered": 5678, "cannot_say": 41}  # fmt: skip
    status["latency"] = {"p50_ms": 1.2345, "p99_ms": 6.789, "count": 30_000}
    return status


def alarmed():
    """What it says when FRR is broken, with a candidate in the shadow."""
    status, words = busy(), "seen 9.42% of 1,017 rows; asked at most 5%"
    status["watch"]["headline"] = "the promise does not hold any more"
    status["watch"]["tests"][1] |= {
        "verdict": "alarm", "evidence": 30.0,
        "alarm": {"at": ago(minutes=23), "words": words},
    }  # fmt: skip
    bound = "a result this bad has a probability below 1 in 1 billion"
    status["watch"]["tests"][1]["words"]["evidence"] = f"if the promise holds, {bound}"
    status["alarms"] = [{"version": 1, "test": "frr", "at": ago(minutes=23),
                       "words": words, "sent": ago(minutes=22)}]  # fmt: skip
    status["shadow"] = {
        "version": 2, "rows": 1200, "both": 1000, "only_current": 20, "only_shadow": 80,
        "neither": 100, "labelled": {"rows": 180, "risk_current": [0.021, 0.004, 0.06],
                                     "risk_shadow": [0.024, 0.006, 0.065]},
    }  # fmt: skip
    status["versions"].insert(0, version(2, "shadow", note="new camera", rows=1200))
    return status


def unsure():
    status = busy()
    status["watch"]["headline"] = "the labels do not tell whether the promise holds"
    status["watch"]["tests"][1] |= {"verdict": "cannot tell", "why": "nothing is drawn"}
    return status


def hardly_labelled(n=38, low=0.002, high=0.606):
    """Return what it says after a few labels of the first window."""
    status = busy()
    step = status["watch"]["history"][-1]
    step["estimates"]["frr"] = [0.044, low, high, n, 1]
    status["watch"]["history"] = [step]
    fields = ("value", "low", "high", "n", "window")
    estimate = dict(zip(fields, step["estimates"]["frr"], strict=True))
    status["watch"]["tests"][1]["estimate"] = estimate
    return status


def next_window():
    """Return what it says when a window of many labels has just ended."""
    status = busy()
    step = deepcopy(status["watch"]["history"][-1])
    step["estimates"]["frr"] = [0.5, 0.01, 0.99, 2, 3]
    status["watch"]["history"].append(step)
    status["watch"]["headline"] = "a window began"
    status["watch"]["tests"][1]["estimate"] |= {
        "low": 0,
        "high": 1,
        "n": 2,
        "window": 3,
    }
    return status


def unlabelled():
    status = busy()
    status["watch"]["tests"][1] |= {"verdict": "no rows yet", "estimate": None}
    return status


def promoted():
    status = busy()
    status["watch"] = empty()["watch"] | {"version": 2}
    return status


def not_followed():
    status = busy()
    status["watch"] |= {"headline": "no rows yet", "tests": [], "history": []}
    return status


def nothing_watched():
    status = busy()
    status["watch"] |= {"headline": "nothing to watch", "tests": [], "history": []}
    return status


def png(width=8, height=8):
    """Return a picture as a data URL, made by hand."""

    def chunk(kind, body):
        check = struct.pack(">I", zlib.crc32(kind + body))
        return struct.pack(">I", len(body)) + kind + body + check

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    rows = zlib.compress((b"\0" + b"\x20\x80\xc0" * width) * height)
    chunks = chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    encoded = b64encode(b"\x89PNG\r\n\x1a\n" + chunks)
    return f"data:image/png;base64,{encoded.decode()}"


def row(number, **more):
    return {
        "id": f"row-{number}", "lease": f"lease-{number}", "until": ago(minutes=-5),
        "kind": "rejected", "doubt": -0.31, "predicted": "cat", "shortlist": None,
        "classes": ["cat", "dog", "bird"], "payload": {"text": f"What is {number}?"},
        "group": None, "at": ago(minutes=9), "version": 1, **more,
    }  # fmt: skip


class Desk:
    """A service that answers out of lists, and notes what it was asked."""

    ports = count(8571)

    def __init__(self, tab):
        self.status, self.rows = empty(), []
        self.answers, self.leases, self.requested_paths, self.complaints = (
            [],
            [],
            [],
            [],
        )
        self.labels, self.result = [], "corrected"
        self.broken, self.away = {}, False
        # What the page of an earlier test still sends has another address.
        self.home = f"http://127.0.0.1:{next(self.ports)}"
        self._work_in(tab)

    def _work_in(self, tab):
        self.tab = tab
        tab.context.route("**/*", self._serve)
        tab.on("pageerror", self._complain)

    def _complain(self, error):
        self.complaints.append(str(error))

    def take_clock(self):
        """Switch to a tab whose clock the test controls; a clock stays there."""
        self.leave()
        self._work_in(self.tab.context.browser.new_context().new_page())
        self.tab.clock.install()

    def leave(self):
        self.tab.mouse.move(0, 0)
        self.tab.goto("about:blank")
        self.tab.context.unroute_all(behavior="ignoreErrors")
        self.tab.remove_listener("pageerror", self._complain)

    def open(self, path, width=1280):
        self.tab.set_viewport_size({"width": width, "height": 800})
        self.tab.goto(self.home + path)
        return self.tab

    def review(self, *rows, width=1280):
        self.rows += rows
        tab = self.open("/review", width)
        tab.fill("#reviewer", "ann")
        tab.keyboard.press("Enter")
        return tab

    def _serve(self, route):
        path = route.request.url.removeprefix(self.home)
        if re.match(r"http://127\.0\.0\.1:", path):
            route.abort()  # of an earlier page
            return
        self.requested_paths.append(path)
        pages = {"/": render_live, "/review": render_review, "/login": render_login}
        with suppress(Exception):  # a tab that was closed meanwhile
            if path in self.broken:
                self._break(route, self.broken[path])
            elif path.partition("?")[0] in pages:
                page = pages[path.partition("?")[0]]()
                route.fulfill(body=page, headers=page_headers())
            else:
                self._answer(route, path)

    def _break(self, route, status):
        if not status:
            return route.abort()
        problem = {"title": "Unavailable", "detail": "the store is away."}
        kind = "application/problem+json"
        return route.fulfill(status=status, json=problem, content_type=kind)

    def _answer(self, route, path):
        if path == "/v1/events":
            body = f"retry: 100\nevent: status\ndata: {json.dumps(self.status)}\n\n"
            body = "event: away\ndata: {}\n\n" if self.away else body
            return route.fulfill(body=body, content_type="text/event-stream")
        if path == "/v1/review/lease":
            self.leases.append(route.request.post_data_json)
            skipped = self.leases[-1].get("skip", [])
            free = [row_ for row_ in self.rows if row_["id"] not in skipped][:1]
            waiting = len(self.rows)
            self.rows = [row_ for row_ in self.rows if row_ not in free]
            return route.fulfill(json={"rows": free, "waiting": waiting})
        if path == "/v1/labels":
            self.labels.append(route.request.post_data_json)
            label_result = {"id": "", "result": self.result, "why": "no such class."}
            return route.fulfill(json={"rows": [label_result]})
        if path == "/v1/review/answer":
            self.answers.append(route.request.post_data_json)
            return route.fulfill(json={"id": "", "result": "counted"})
        return route.fulfill(json=self.status)


@pytest.fixture(scope="module")
def shared_tab(browser):
    """One tab for all: to make one costs more than to open the page."""
    context = browser.new_context()
    yield context.new_page()
    context.close()


@pytest.fixture
def desk(shared_tab):
    fake_service = Desk(shared_tab)
    yield fake_service
    fake_service.leave()
    if fake_service.tab is not shared_tab:
        fake_service.tab.context.close()
    shared_tab.context.clear_cookies()
    assert fake_service.complaints == []


def wait_for_text(tab, selector, words):
    """Wait until an element says something."""
    tab.wait_for_function(
        "([selector, words]) => document.querySelector(selector)?.innerText"
        ".includes(words)",
        arg=[selector, words],
    )
    return tab.locator(selector).inner_text()


def cells(tab, table):
    return tab.evaluate(
        "id => [...document.querySelectorAll(`#${id} tbody tr`)]"
        ".map(row => [...row.cells].map(cell => cell.textContent))",
        table,
    )


STANDINGS = [
    (empty, "No rows yet", "waits for the first one"),
    (busy, "Holds", "Nothing to report."),
    (unsure, "Cannot tell", "The labels do not tell"),
    (unlabelled, "Cannot tell yet", "no labels yet"),
    (hardly_labelled, "No sign against it yet", "38 labels so far; more will tell."),
    (lambda: hardly_labelled(1), "No sign against it yet", "1 label so far; more"),
    (lambda: hardly_labelled(120), "No sign against it yet", "120 labels so far;"),
    (lambda: hardly_labelled(99, 0.01, 0.1), "No sign against it yet", "99 labels"),
    (lambda: hardly_labelled(100, 0.01, 0.21), "Holds", "Nothing to report."),
    (next_window, "Holds", "A window began."),
    (promoted, "No rows yet", "This version has not decided a row."),
    (alarmed, "ALARM", "does not hold any more. Since 2026-11-16 12:07 UTC."),
    (not_followed, "No rows yet", "This version has not decided a row."),
    (nothing_watched, "Nothing to watch", "Nothing to watch."),
]


def test_the_headline_follows_the_state(desk):
    tab = desk.open("/", width=360)
    for status, title, words in STANDINGS:
        desk.status = status()
        wait_for_text(tab, "#title", title)
        wait_for_text(tab, "#said", words)
        assert tab.locator("#title").inner_text() == title
        assert tab.title() == f"{title} - trustdoctor"
        assert PROMISE in tab.locator("#promise").inner_text()
        assert tab.evaluate("document.documentElement.scrollWidth") <= 360
        body = tab.locator("body").inner_text()
        assert not re.search("NaN|undefined|null", body)
        assert tab.locator("#todo").is_visible() == (title == "ALARM")


def test_after_an_alarm_it_says_what_to_do_next(desk):
    desk.status = alarmed()
    tab = desk.open("/")
    words = wait_for_text(
        tab, "#todo", "the time from which rows are like those to come"
    )
    assert "Review rows, the oldest first." in words
    assert f"curl {desk.home}/v1/recalibrate" in words
    body = re.search(r"-d '(.*)'", tab.inner_text("#recalibrate"))[1]
    assert json.loads(body) == {"since": "TIME"}
    assert words.index("/shadow") < words.index("/promote")


def test_tables_fold_on_a_small_screen(desk):
    desk.status = alarmed()
    tab = desk.open("/", width=360)
    wait_for_text(tab, "#title", "ALARM")
    for table in ("alarms", "versions", "shadow"):
        inside, box = tab.evaluate(
            "id => [document.getElementById(id).scrollWidth, "
            "document.getElementById(id).parentNode.clientWidth]",
            table,
        )
        assert inside <= box
    heads = tab.evaluate(
        "[...document.querySelectorAll('#alarms td')].map(cell => cell.dataset.label)"
    )
    assert heads == ["time (UTC)", "version", "what", "why", "sent on"]


def test_charts_hold_all_that_is_drawn(desk):
    """No line runs along the edge, and no words of a limit lie on a line."""
    desk.status = alarmed()
    minutes = desk.status["traffic"]["minutes"]
    minutes[5] |= {"rows": 20, "accepted": 0}
    steps = desk.status["watch"]["history"]
    for i, n in enumerate((2, 12, 31, 45)):
        steps[i]["estimates"]["accepted"] = [0.71, 0.4, 0.92, n, 1]
    for i, step in enumerate(steps):
        step["evidence"]["frr"] = float(i)
    tab = desk.open("/")
    wait_for_text(tab, "#title", "ALARM")
    charts = tab.evaluate(
        """ids => Object.fromEntries(ids.map(id => {
          const all = (what) => [...document.getElementById(id).querySelectorAll(what)];
          const path = (own) => own.getAttribute('d');
          const ys = all('path.curve, path.band').flatMap(own =>
            path(own).match(/[^ ML]+ [^MLZ]+/g).map(pair => +pair.split(' ')[1]));
          const lines = all('path.grid').map(own => path(own).match(/ ([^H]+)H/)?.[1]);
          const words = all('text.limit').map(own => +own.getAttribute('y'));
          const ticks = all('text[text-anchor=end]:not(.alarm)');
          return [id, {ys, words, lines: lines.filter(Boolean).map(Number),
            ticks: ticks.map(own => own.textContent)}]; }))""",
        ["share", "rate-0", "rate-1", "evidence-1"],
    )
    for chart in ("share", "rate-0", "rate-1"):
        assert min(charts[chart]["ys"]) > 10
        assert max(charts[chart]["ys"]) <= 208
        assert charts[chart]["ys"].count(208) <= 1  # the one minute of 0%
    assert charts["share"]["ys"].count(208) == 1
    assert charts["evidence-1"]["ticks"][-2:] == ["1 million", "1 billion"]
    assert min(charts["evidence-1"]["ys"]) == 10  # rarer still: it says so above
    for chart_parts in charts.values():
        for base in chart_parts["words"]:
            assert not [
                line for line in chart_parts["lines"] if base - 9 < line < base + 2
            ]
    assert "fewer than 1 in 1,000,000,000" in tab.inner_text("#at-evidence-1")


def test_before_the_first_row_it_says_how_to_send_one(desk):
    tab = desk.open("/")
    wait_for_text(tab, "#curl", "curl")
    command = tab.locator("#curl").inner_text()
    assert f"curl {desk.home}/v1/decide" in command
    body = json.loads(re.search(r"-d '(.*)'", command)[1])
    assert len(body["logits"]) == 3
    assert tab.locator("figure").count() == 0
    desk.status = busy()
    wait_for_text(tab, "#title", "Holds")
    assert tab.locator("#empty").is_hidden()


def test_numbers_are_those_of_the_service(desk):
    desk.status = alarmed()
    tab = desk.open("/")
    wait_for_text(tab, "#title", "ALARM")
    figures = tab.locator("#figures").inner_text()
    assert "597" in figures  # the last full minute
    assert f"{507 / 597:.2%}" in figures
    assert "30,000 rows in all" in figures
    assert "85.00% of all" in figures
    assert "the oldest for 1 hour" in figures
    assert "1.23 ms" in figures
    assert "6.79 ms or less for 99%" in figures
    card = tab.locator(".card.alarm").inner_text()
    value, low, high, n, _ = desk.status["watch"]["history"][-1]["estimates"]["frr"]
    assert "Correct predictions lost (FRR)" in card
    assert "At most 5%" in card
    assert f"{value:.2%} [{low:.2%}, {high:.2%}] of {n:,} rows" in card
    assert "If the promise holds, a result this bad has a probability below" in card
    assert cells(tab, "alarms")[0][:3] == [
        "2026-11-16 12:07", "1", "Correct predictions lost (FRR)",
    ]  # fmt: skip
    assert [line[:2] for line in cells(tab, "versions")] == [
        ["2", "in the shadow"], ["1", "decides now"],
    ]  # fmt: skip
    assert [line[1:] for line in cells(tab, "shadow")] == [
        ["1,000", "83.33%"], ["20", "1.67%"], ["80", "6.67%"], ["100", "8.33%"],
    ]  # fmt: skip
    beside = tab.locator("#s-shadow").inner_text()
    assert "differ in 8.33% of 1,200 rows" in beside
    assert "version 2 2.40% [0.60%, 6.50%]" in beside
    queue = tab.locator("#queue").inner_text()
    assert "1,234 rows wait: 1,200 rejected, 34 drawn" in queue
    assert 'labelled 5,678 rows so far, and said "cannot say" of 41.' in queue


def test_promises_to_groups_are_shown_by_group(desk):
    desk.status = busy()
    group_estimates = {
        "frr[north]": [0.02, 0.01, 0.03, 400, 1],
        "frr[south]": [0.04, 0.03, 0.06, 90, 1],
    }
    for step in desk.status["watch"]["history"]:
        step["estimates"] = {
            "accepted": step["estimates"]["accepted"]
        } | group_estimates
    desk.status["watch"]["tests"][1]["estimate"] = None
    desk.status["watch"]["tests"][1]["words"] |= {
        "observed": [
            "south: 4.00% [3.00%, 6.00%] of 90 rows",
            "north: 2.00% [1.00%, 3.00%] of 400 rows",
        ],
        "groups": 2,
    }
    desk.status["shadow"] = alarmed()["shadow"]
    desk.status["shadow"]["labelled"]["risk_current"] = None
    tab = desk.open("/")
    wait_for_text(tab, "#title", "No sign against it yet")
    assert "90 labels of south so far; more will tell." in tab.inner_text("#said")
    assert tab.locator(".card .state").all_inner_texts() == [
        "Holds", "No sign against it yet",
    ]  # fmt: skip
    groups = tab.locator(".card").nth(1).locator("dd").all_inner_texts()[1:3]
    assert groups == [
        "south: 4.00% [3.00%, 6.00%] of 90 rows",
        "north: 2.00% [1.00%, 3.00%] of 400 rows",
    ]
    assert tab.locator("#rate-1").count() == 0
    assert tab.locator("#evidence-1").count() == 1
    assert "as too few labelled rows were accepted" in tab.inner_text("#beside-risk")


def test_minutes_without_rows_are_shown_as_such(desk):
    desk.status = busy()
    tab = desk.open("/")
    wait_for_text(tab, "#title", "Holds")
    tab.locator("figure:has(#rows) summary").click()
    tab.locator("figure:has(#share) summary").click()
    wait_for_text(tab, "#t-share tbody", "12:29")
    wait_for_text(tab, "#t-rows tbody", "12:29")
    lines = {at: cells_after for at, *cells_after in cells(tab, "t-rows")}
    assert len(lines) == 61
    assert lines["2026-11-16 12:10"] == ["0", "0"]
    assert lines["2026-11-16 12:29"] == ["597", "507"]
    shares = dict(cells(tab, "t-share"))
    assert shares["2026-11-16 12:10"] == "-"
    assert shares["2026-11-16 12:29"] == f"{507 / 597:.2%} of 597 rows"


def test_charts_are_drawn_to_scale(desk):
    """Heights are read back from the axis labels."""
    desk.status = alarmed()
    tab = desk.open("/")
    wait_for_text(tab, "#title", "ALARM")
    ticks = tab.evaluate(
        "[...document.querySelectorAll('#rate-1 text[text-anchor=end]')]"
        ".filter(t => !t.classList.length)"
        ".map(t => [Number(t.getAttribute('y')) - 4, Number(t.textContent)])"
    )
    slope, zero = np.polyfit(*np.array(ticks).T, 1)
    limit = tab.locator("#rate-1 path.limit").get_attribute("d")
    assert slope * float(limit.split()[1].split("H")[0]) + zero == pytest.approx(5)
    ends = tab.evaluate(
        "[...document.querySelectorAll('#rate-1 .end')]"
        ".map(e => Number(e.getAttribute('cy')))"
    )
    steps = desk.status["watch"]["history"]
    expected = [100 * steps[i]["estimates"]["frr"][0] for i in (19, 39)]  # two windows
    assert [slope * end + zero for end in ends] == pytest.approx(expected, abs=0.02)
    assert tab.locator("#rate-1 path.alarm").count() == 1
    assert tab.locator("#rate-0 path.alarm").count() == 0
    chance = tab.locator("#at-evidence-1").inner_text()
    assert chance.endswith(
        f"at most 1 in {math.exp(39 / 20):.1f} cases".replace(".0 ", " ")
    )


def test_the_time_under_the_pointer_is_shown_and_stays_during_updates(desk):
    desk.status = busy()
    tab = desk.open("/")
    wait_for_text(tab, "#title", "Holds")
    tab.locator("#rate-1").hover(position={"x": 95, "y": 100})
    first = tab.locator("#at-rate-1").inner_text()
    assert not first.startswith("2026-11-16 12:30")
    desk.status["watch"]["history"][-1]["estimates"]["frr"][0] += 0.01
    desk.status["review"]["waiting"] = 77
    wait_for_text(tab, "#figures", "77")
    assert tab.locator("#at-rate-1").inner_text() == first


def test_updates_leave_alone_what_somebody_reads(desk):
    desk.status = busy()
    tab = desk.open("/")
    wait_for_text(tab, "#title", "Holds")
    tab.locator("figure:has(#rate-0) summary").click()
    tab.evaluate("window.kept = document.querySelector('.card')")
    desk.status["review"]["waiting"] = 88
    wait_for_text(tab, "#figures", "88")
    assert tab.evaluate("window.kept.isConnected")
    assert tab.locator("figure:has(#rate-0) details").get_attribute("open") == ""


def test_a_lost_connection_is_shown_with_its_time_and_comes_back(desk):
    desk.status = busy()
    desk.take_clock()
    tab = desk.open("/")
    wait_for_text(tab, "#heard", "Heard at 12:30:20 UTC")
    desk.broken = {"/v1/events": 0, "/v1/status": 0}
    text = wait_for_text(tab, "#lost", "Connection lost since 12:30:20 UTC.")
    assert "The service does not answer" in text
    assert "What stands below is from then. Trying again." in text
    assert tab.locator("#title").inner_text() == "Last known: Holds"
    assert tab.title() == "Connection lost - trustdoctor"
    desk.broken = {}
    tab.clock.run_for(4000)
    wait_for_text(tab, "#heard", "Heard at 12:30:20 UTC")
    assert tab.locator("#lost").is_hidden()
    assert tab.locator("#title").inner_text() == "Holds"


def test_a_hidden_tab_polls_rarely(desk):
    desk.take_clock()
    tab = desk.open("/")
    wait_for_text(tab, "#heard", "Heard at")
    hide = (
        "hidden => { Object.defineProperty(document, 'hidden', {value: hidden, "
        "configurable: true}); document.dispatchEvent(new Event('visibilitychange')) }"
    )
    tab.evaluate(hide, arg=True)
    tab.wait_for_timeout(200)
    desk.requested_paths.clear()
    tab.clock.run_for(20_000)
    assert desk.requested_paths == []
    desk.status = alarmed()
    tab.clock.run_for(12_000)
    wait_for_text(tab, "#title", "ALARM")
    assert desk.requested_paths == ["/v1/status"]
    tab.evaluate(hide, arg=False)
    wait_for_text(tab, "#heard", "Live.")


def test_without_events_it_asks(desk):
    desk.broken = {"/v1/events": 404}
    desk.take_clock()
    tab = desk.open("/")
    wait_for_text(tab, "#heard", "Asked every few seconds.")
    desk.status = busy()
    tab.clock.run_for(4000)
    wait_for_text(tab, "#title", "Holds")


def test_an_unavailable_store_is_reported_in_plain_words(desk):
    desk.broken, desk.away = {"/v1/status": 503}, True
    desk.take_clock()
    tab = desk.open("/")
    text = wait_for_text(tab, "#lost", "cannot reach its store")
    assert text.startswith("No news since ")
    assert "It says: the store is away." in text
    desk.broken = {}
    tab.clock.run_for(4000)
    wait_for_text(tab, "#title", "No rows yet")
    desk.away = False


@pytest.mark.parametrize("path", ["/", "/review"])
def test_a_visitor_is_sent_to_the_login_page(path, desk):
    desk.broken = {f"/v1/{name}": 401 for name in ("events", "status", "review/lease")}
    tab = desk.open(path)
    if path == "/review":
        tab.fill("#reviewer", "ann")
        tab.keyboard.press("Enter")
    tab.wait_for_url("**/login" + ("?next=/review" if path == "/review" else ""))
    assert tab.locator("#token").is_visible()


def test_the_form_sends_the_token_with_an_origin_that_can_be_checked(desk):
    tab = desk.open("/login")
    tab.fill("#token", "secret")
    is_sent = tab.expect_request(lambda r: r.method == "POST")
    with tab.expect_navigation(), is_sent as sent:
        tab.keyboard.press("Enter")
    assert "token=secret" in sent.value.post_data
    assert sent.value.headers["origin"] == desk.home
    assert "secret" not in tab.url


def answered(desk, n):
    """Wait until `n` answers came, and return the last without its row."""
    for _ in range(100):
        if len(desk.answers) >= n:
            break
        desk.tab.wait_for_timeout(20)
    assert len(desk.answers) == n
    last = dict(desk.answers[-1])
    return last.pop("id"), last.pop("lease"), last


def wait_for_row(tab, words):
    """Wait until a row is there and keys count."""
    wait_for_text(tab, "#payload", words)
    tab.wait_for_timeout(260)


def test_rows_are_answered_by_keys_one_after_the_other(desk):
    desk.take_clock()
    tab = desk.review(*(row(i) for i in range(1, 6)))
    keys = [
        ("2", {"label": "dog"}), ("0", {"cannot_say": True}),
        ("u", {"cannot_say": True}), ("s", {"release": True}), ("1", {"label": "cat"}),
    ]  # fmt: skip
    for i, (key, answer) in enumerate(keys, 1):
        wait_for_row(tab, f"What is {i}?")
        for free in ("n", "p", "9", "Enter"):
            tab.keyboard.press(free)
        tab.keyboard.press(key)
        assert answered(desk, i) == (f"row-{i}", f"lease-{i}", answer)
    wait_for_text(tab, "#nothing", "Nothing to review now.")
    assert "Stored: cat. 4 rows answered." in tab.locator("#told").inner_text()
    assert desk.leases[0] == {
        "reviewer": "ann", "order": "oldest", "count": 1, "seconds": 300, "skip": [],
    }  # fmt: skip
    desk.rows.append(row(6))
    tab.clock.run_for(5000)
    wait_for_text(tab, "#payload", "What is 6?")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("classes", [10, ["1", "2", "0"]])
def test_where_classes_are_digits_the_key_is_the_class(classes, desk):
    """A list in the order of probability changes places, not keys."""
    is_number = isinstance(classes, int)
    every = list(range(classes)) if is_number else classes
    first = [every[2], every[0]]
    rows = [row(i, classes=classes, shortlist=first) for i in range(1, 5)]
    tab = desk.review(*rows)
    wait_for_row(tab, "What is 1?")
    texts = tab.locator("#choices button").all_inner_texts()
    order = first + [name for name in every if name not in first]
    assert texts == [f"{name} {name}" for name in order]
    assert tab.locator("#unsure").inner_text().split() == ["u", "Cannot", "say"]
    assert tab.locator("#finder").is_hidden()
    keys = [str(every[0]), str(every[-1]), "0", "u"]
    expected = [every[0], every[-1], every[every.index(0 if is_number else "0")], None]
    for i, (key, label) in enumerate(zip(keys, expected, strict=True), 1):
        wait_for_row(tab, f"What is {i}?")
        tab.keyboard.press(key)
        answer = {"cannot_say": True} if label is None else {"label": label}
        assert answered(desk, i)[2] == answer


def test_few_classes_are_all_buttons_and_more_can_be_found_once(desk):
    names = [f"name {i}" for i in range(10)]
    tab = desk.review(
        row(1, classes=names[:4], shortlist=names[2:4]),
        row(2, classes=names, shortlist=names[2:4]),
    )
    wait_for_row(tab, "What is 1?")
    assert tab.locator("#choices button").all_inner_texts() == [
        "1 name 2", "2 name 3", "3 name 0", "4 name 1",
    ]  # fmt: skip
    assert tab.locator("#unsure").inner_text().split()[:2] == ["0", "u"]
    assert tab.locator("#finder").is_hidden()
    tab.keyboard.press("4")
    assert answered(desk, 1)[2] == {"label": "name 1"}
    wait_for_row(tab, "What is 2?")
    tab.fill("#search", "name")
    assert tab.locator("#found button").count() == 8  # none that is listed


def test_skipped_rows_come_last_and_when_asked_for(desk):
    desk.take_clock()
    tab = desk.review(row(1), row(2))
    wait_for_row(tab, "What is 1?")
    desk.rows.append(row(1))  # given back, it is the first again
    desk.rows.reverse()
    tab.keyboard.press("s")
    wait_for_row(tab, "What is 2?")
    assert desk.leases[-1]["skip"] == ["row-1"]
    tab.keyboard.press("2")
    wait_for_text(tab, "#nothing", "Only rows that you skipped are left.")
    tab.get_by_role("button", name="Show me the skipped rows").click()
    wait_for_text(tab, "#payload", "What is 1?")
    assert desk.leases[-1]["skip"] == []
    assert tab.locator("#again").is_hidden()


def test_the_last_answer_can_be_changed(desk):
    tab = desk.review(row(1), row(2))
    wait_for_row(tab, "What is 1?")
    assert tab.locator("#change").is_hidden()
    tab.keyboard.press("1")
    wait_for_row(tab, "What is 2?")
    tab.keyboard.press("b")
    wait_for_row(tab, "What is 1?")
    assert tab.inner_text("#why") == "You said cat of row row-1"
    assert "the watch keeps the first" in tab.inner_text("#left")
    tab.keyboard.press("s")  # leave it as it is
    wait_for_row(tab, "What is 2?")
    assert (len(desk.answers), desk.labels) == (1, [])
    tab.get_by_role("button", name="Change my last answer").click()
    wait_for_row(tab, "What is 1?")
    desk.result = "refused"
    tab.keyboard.press("3")
    wait_for_text(tab, "#trouble", "Your new answer was refused: no such class.")
    desk.result = "corrected"
    tab.keyboard.press("2")
    wait_for_row(tab, "What is 2?")
    assert desk.labels[-1] == {"id": "row-1", "label": "dog"}
    assert "Changed: row row-1 is now dog. 1 row answered." in tab.inner_text("#told")
    assert re.match(r"(5:00|4:5\d) left", tab.inner_text("#left"))
    tab.keyboard.press("3")  # the row that was ours meanwhile
    assert answered(desk, 2) == ("row-2", "lease-2", {"label": "bird"})
    wait_for_text(tab, "#nothing", "Nothing to review now.")
    tab.keyboard.press("b")
    wait_for_row(tab, "What is 2?")
    tab.keyboard.press("u")
    wait_for_text(tab, "#told", "row row-2 is now cannot say")
    assert desk.labels[-1] == {"id": "row-2", "cannot_say": True}


def test_a_row_without_a_prediction_is_judged_and_has_no_class(desk):
    tab = desk.review(
        *(row(i, predicted="", classes=c) for i, c in ((1, None), (2, 10)))
    )
    for i in (1, 2):
        wait_for_row(tab, f"What is {i}?")
        assert tab.locator("#choices button").all_inner_texts() == [
            "1 The answer is right", "2 The answer is wrong",
        ]  # fmt: skip
        assert tab.locator("#typed").is_hidden()
        assert tab.locator("#finder").is_hidden()
        tab.keyboard.press("2")
        assert answered(desk, i)[2] == {"correct": False}


def test_a_key_held_down_answers_one_row(desk):
    tab = desk.review(row(1), row(2))
    wait_for_row(tab, "What is 1?")
    tab.keyboard.down("1")
    for _ in range(20):
        tab.keyboard.down("1")  # the browser repeats it
    wait_for_row(tab, "What is 2?")
    tab.keyboard.down("1")
    tab.keyboard.up("1")
    tab.wait_for_timeout(100)
    assert len(desk.answers) == 1


def test_a_key_pressed_before_a_row_can_be_read_does_not_answer(desk):
    desk.take_clock()
    tab = desk.review(row(1))
    wait_for_text(tab, "#payload", "What is 1?")
    tab.clock.pause_at(datetime.now(UTC) + timedelta(minutes=1))
    desk.rows.append(row(2))
    tab.keyboard.press("1")
    wait_for_text(tab, "#payload", "What is 2?")
    tab.keyboard.press("1")
    tab.clock.run_for(200)
    tab.keyboard.press("1")
    tab.clock.run_for(100)
    assert len(desk.answers) == 1
    tab.keyboard.press("1")
    assert answered(desk, 2)[0] == "row-2"


def test_single_keys_can_be_switched_off(desk):
    tab = desk.review(row(1))
    wait_for_row(tab, "What is 1?")
    tab.locator("#keys").uncheck()
    tab.keyboard.press("1")
    tab.wait_for_timeout(100)
    assert desk.answers == []
    tab.get_by_role("button", name="bird").click()
    assert answered(desk, 1)[2] == {"label": "bird"}


def test_why_a_row_is_here_and_for_how_long(desk):
    tab = desk.review(row(1), row(2, kind="audit", group="north"))
    wait_for_row(tab, "What is 1?")
    assert tab.locator("#why").inner_text() == "The gate rejected this row"
    assert re.match(r"(5:00|4:5\d) left", tab.locator("#left").inner_text())
    assert tab.evaluate("document.activeElement.id") == "why"
    assert "cat" not in tab.locator(".subject").inner_text()  # the model's answer
    tab.keyboard.press("1")
    wait_for_text(tab, "#why", "Accepted, and drawn at random to check the gate")
    tab.locator("summary").click()
    facts = tab.locator("#facts").inner_text()
    for fact in (
        "row-2",
        "2026-11-16 12:21 UTC, by version 1",
        "-0.31",
        "cat",
        "north",
    ):
        assert fact in facts


def test_the_shortlist_comes_first_and_every_class_can_be_found(desk):
    names = [f"class {i}" for i in range(200)]
    tab = desk.review(
        row(1, classes=names, shortlist=["class 7", "class 3"]),
        row(2, classes=names),
        row(3, classes=120),
    )
    wait_for_row(tab, "What is 1?")
    assert tab.locator("#choices button").all_inner_texts() == [
        "1 class 7",
        "2 class 3",
    ]
    tab.keyboard.press("/")
    tab.keyboard.type("199")
    tab.keyboard.press("Enter")
    assert answered(desk, 1)[2] == {"label": "class 199"}
    wait_for_row(tab, "What is 2?")
    tab.keyboard.press("/")
    tab.keyboard.type("LASS 1")
    assert tab.locator("#found button").count() == 50
    assert "61 more" in tab.locator("#more").inner_text()
    tab.keyboard.press("Enter")  # more than one: the first is pointed at, not taken
    assert len(desk.answers) == 1
    tab.keyboard.press("3")
    assert answered(desk, 2)[2] == {"label": "class 11"}
    wait_for_row(tab, "What is 3?")
    tab.keyboard.press("4")
    assert answered(desk, 3)[2] == {"label": 3}


def test_rows_of_a_gate_without_classes_are_judged_or_typed(desk):
    tab = desk.review(*(row(i, classes=None, predicted=4) for i in (1, 2, 3)))
    wait_for_row(tab, "What is 1?")
    texts = tab.locator("#choices button").all_inner_texts()
    assert texts == [
        "1 The model says 4, and is right",
        "2 The model says 4, and is wrong",
    ]
    tab.keyboard.press("2")
    assert answered(desk, 1)[2] == {"correct": False}
    wait_for_row(tab, "What is 2?")
    tab.keyboard.press("/")
    tab.keyboard.type("12")
    tab.keyboard.press("Enter")
    assert answered(desk, 2)[2] == {"label": 12}


def test_payloads_with_scripts_are_inert(desk):
    name = INJECTIONS[1]
    texts = "\n".join(INJECTIONS)
    hostile = row(
        1, payload={"text": texts}, classes=list(INJECTIONS),
        shortlist=list(INJECTIONS[:3]), predicted=name, group=name, id=name, kind=name,
    )  # fmt: skip
    links = (
        "javascript:window.hacked=1",
        "data:text/html,<script>1</script>",
        "//x.y",
        "",
    )
    images = (
        "data:image/svg+xml;base64,PHN2Zz4=", "data:text/html;base64,PHNjcmlwdD4=",
        "https://example.org/x.png", 'data:image/png;base64,AA" onerror="hacked=1',
    )  # fmt: skip
    other_rows = [
        row(i, payload={"text": f"Row {i}.", "link": link, "image": image})
        for i, (link, image) in enumerate(zip(links, images, strict=True), 2)
    ]
    tab = desk.review(hostile, *other_rows, width=360)
    wait_for_row(tab, "window.hacked")
    text = tab.locator("#payload").inner_text()
    assert INJECTIONS[0] in text
    assert not STEERING.search(tab.locator("body").inner_text())
    assert tab.locator("img, #payload script").count() == 0
    for i, link in enumerate(links, 2):
        words = f"A link that is not http or https: {link}".strip()
        tab.keyboard.press("s")
        wait_for_row(tab, f"Row {i}.")
        assert words in tab.inner_text("#payload")
        assert "does not show" in tab.inner_text("#payload")
        assert tab.locator("#payload a, #payload img").count() == 0
    assert tab.evaluate("window.hacked") is None
    assert tab.evaluate("document.documentElement.scrollWidth") <= 360
    assert {path for path in desk.requested_paths if not path.startswith("/")} == set()


def test_pictures_are_shown_and_links_open_by_a_click_without_a_trace(desk):
    link = "https://user:secret@example.org/a?b=<i>"
    broken = f"data:image/png;base64,{b64encode(b'not a picture').decode()}"
    tab = desk.review(
        row(1, payload={"image": png(), "link": link}),
        row(2, payload={"image": broken}),
        row(3, payload=None),
    )
    wait_for_text(tab, "#payload", "Opens example.org in a new tab")
    tab.wait_for_function("document.querySelector('#payload img').naturalWidth === 8")
    anchor = tab.locator("#payload a")
    assert anchor.get_attribute("rel") == "noopener noreferrer"
    assert anchor.get_attribute("target") == "_blank"
    assert "https://example.org/" not in desk.requested_paths
    tab.wait_for_timeout(260)
    tab.keyboard.press("s")
    wait_for_text(tab, "#payload", "The image cannot be read.")
    tab.wait_for_timeout(260)
    tab.keyboard.press("s")
    wait_for_text(tab, "#payload", "came without a payload")
    assert "row-3" in tab.locator("#payload").inner_text()
    assert tab.locator("#facts").is_hidden()  # the model's answer is there


@pytest.mark.parametrize("path", ["/", "/review"])
def test_an_injected_script_is_stopped_by_the_policy(path, desk):
    tab = desk.open(path)
    tab.evaluate(
        "try { document.body.append(Object.assign(document.createElement('script'), "
        "{textContent: 'window.hacked = 1'})) } catch {}"
    )
    tab.evaluate(
        "try { document.body.innerHTML = '<img src=x onerror=hacked=1>' } catch {}"
    )
    assert tab.evaluate("window.hacked") is None
    assert tab.locator("img").count() == 0


def test_hostile_names_on_the_live_page_are_text(desk):
    desk.status = alarmed()
    for name, text in zip(("score", "promise"), INJECTIONS, strict=False):
        desk.status["gate"][name] = text
    desk.status["watch"] |= {"headline": INJECTIONS[2] + INJECTIONS[3]}
    desk.status["watch"]["tests"][1] |= {"why": INJECTIONS[3]}
    desk.status["watch"]["tests"][1]["alarm"]["words"] = INJECTIONS[4]
    desk.status["alarms"][0] |= {"words": INJECTIONS[0], "test": INJECTIONS[1]}
    desk.status["versions"][0] |= {"note": "x" * 5000, "promise": INJECTIONS[3]}
    desk.status["service"] |= {"replica": INJECTIONS[0], "store": INJECTIONS[1]}
    tab = desk.open("/", width=360)
    wait_for_text(tab, "#title", "ALARM")
    body = tab.locator("body").inner_text()
    assert all(text in body for text in INJECTIONS[:3])
    assert not STEERING.search(body)
    assert tab.evaluate("window.hacked") is None
    assert tab.locator("img").count() == 0
    assert tab.evaluate("document.documentElement.scrollWidth") <= 360


def test_a_lost_lease_is_reported_and_the_next_row_comes(desk):
    tab = desk.review(row(1), row(2))
    wait_for_row(tab, "What is 1?")
    desk.broken = {"/v1/review/answer": 409}
    tab.keyboard.press("1")
    wait_for_text(tab, "#told", "Not stored: the row is no longer yours.")
    wait_for_text(tab, "#payload", "What is 2?")


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("status", "words"),
    [
        (503, "It says: the store is away. Your answer was not stored"),
        (0, "It is not known whether your answer was stored: give it again."),
        (403, "Your token may not do this."),
    ],
)  # fmt: skip
def test_an_answer_that_was_not_taken_can_be_given_again(status, words, desk):
    tab = desk.review(row(1), row(2))
    wait_for_row(tab, "What is 1?")
    desk.broken = {"/v1/review/answer": status}
    tab.keyboard.press("1")
    wait_for_text(tab, "#trouble", words)
    assert "What is 1?" in tab.inner_text("#payload")
    desk.broken = {}
    tab.keyboard.press("1")
    assert answered(desk, 1)[0] == "row-1"
    wait_for_text(tab, "#payload", "What is 2?")
    assert tab.locator("#trouble").is_hidden()


def test_when_the_time_is_over_it_waits_for_the_reviewer(desk):
    desk.take_clock()
    tab = desk.review(row(1), row(2))
    wait_for_text(tab, "#payload", "What is 1?")
    tab.clock.fast_forward(250_000)
    wait_for_text(tab, "#told", "One minute left")
    tab.clock.fast_forward(60_000)
    wait_for_text(tab, "#nothing", "The time for this row is over")
    tab.keyboard.press("1")
    tab.clock.fast_forward(600_000)
    tab.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    tab.wait_for_timeout(100)
    assert len(desk.leases) == 1  # an empty chair takes no rows
    assert desk.answers == []
    tab.get_by_role("button", name="Go on").click()
    wait_for_text(tab, "#payload", "What is 2?")


def test_who_stops_gives_the_row_back(desk):
    tab = desk.review(row(1))
    wait_for_row(tab, "What is 1?")
    tab.get_by_role("button", name="Stop").click()
    assert answered(desk, 1) == ("row-1", "lease-1", {"release": True})
    assert tab.locator("#start").is_visible()
    assert tab.locator("#work").is_hidden()


def opened(browser, scheme, width, path):
    context = browser.new_context(color_scheme=scheme, bypass_csp=True)
    fake_service = Desk(context.new_page())
    fake_service.status = alarmed()
    tab = fake_service.open(path, width)
    return context, fake_service, tab


@pytest.mark.soak
@pytest.mark.parametrize(("scheme", "width"), [("light", 360), ("dark", 1280)])
@pytest.mark.parametrize("path", ["/", "/review", "/login"])
def test_the_page_is_accessible_to_a_screen_reader(scheme, width, path, browser):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    context, fake_service, tab = opened(browser, scheme, width, path)
    if path == "/":
        wait_for_text(tab, "#title", "ALARM")
    if path == "/review":
        names = [f"class {i}" for i in range(200)]
        payload = {
            "text": "word " * 2000,
            "image": png(),
            "link": "https://example.org",
        }
        fake_service.rows = [
            row(1, classes=names, shortlist=names[:3], payload=payload)
        ]
        tab.fill("#reviewer", "ann")
        tab.keyboard.press("Enter")
        wait_for_text(tab, "#payload", "word")
        tab.fill("#search", "class")
    tab.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    violations = axe.Axe().run(tab).response["violations"]
    assert [(v["id"], v["nodes"][0]["html"]) for v in violations] == []
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    context.close()


@pytest.fixture
def real(tmp_path):
    """The service itself, with a token, as a separate process."""
    rng = np.random.default_rng(0)
    logits = 3 * rng.normal(size=(2000, 3))
    labels = np.where(rng.random(2000) < 0.9, logits.argmax(1), 0)
    names = ("cat", "dog", "<b>bird</b>")
    rows = td.Predictions.from_logits(logits, labels, class_names=names)
    td.calibrate(rows, frr=0.1).save(tmp_path / "gate.json")
    options = ["--gate", tmp_path / "gate.json", "--port", "0"]
    process = subprocess.Popen(
        [sys.executable, "-m", "trustdoctor", "serve", *options],
        stderr=subprocess.PIPE,
        env=os.environ | {"TRUSTDOCTOR_TOKENS": f"admin={TOKEN}"},
    )
    lines = map(json.loads, process.stderr)
    home = next(line["page"] for line in lines if "page" in line)
    yield home, process
    process.terminate()
    process.communicate(timeout=20)


def call(url, body=None):
    content = None if body is None else json.dumps(body).encode()
    heads = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    with urlopen(Request(url, content, heads), timeout=20) as answer:
        return json.load(answer)


@pytest.mark.soak
def test_the_service_itself_from_login_to_the_end(real, browser):
    home, process = real
    context = browser.new_context()
    tab, complaints = context.new_page(), []
    tab.on("pageerror", lambda e: complaints.append(str(e)))
    tab.goto(home)
    tab.fill("#token", "another-token-that-is-not-known")
    tab.keyboard.press("Enter")
    wait_for_text(tab, "[role=alert]", "unknown")
    tab.fill("#token", TOKEN)
    tab.keyboard.press("Enter")
    wait_for_text(tab, "#title", "No rows yet")
    wait_for_text(tab, "#heard", "Live.")
    assert "Bearer $TOKEN" in tab.inner_text("#curl")
    text = "\n".join(INJECTIONS)
    row = {"id": "r/1", "logits": [0.1, 0, 0], "payload": {"text": text}}
    assert call(f"{home}/v1/decide", row)["accepted"] is False
    wait_for_text(tab, "#figures", "1 row in all")
    tab.get_by_role("link", name="Review", exact=True).click()
    tab.fill("#reviewer", "ann")
    tab.keyboard.press("Enter")
    wait_for_row(tab, "window.hacked")
    tab.reload()  # who leaves gives the row back
    tab.fill("#reviewer", "ann")
    tab.keyboard.press("Enter")
    wait_for_row(tab, "window.hacked")
    tab.keyboard.press("3")
    wait_for_text(tab, "#told", "Stored: <b>bird</b>. 1 row answered.")
    wait_for_text(tab, "#nothing", "Nothing to review now.")
    (label,) = call(f"{home}/v1/rows/r%2F1")["labels"]
    assert (label["label"], label["by"]) == ("<b>bird</b>", "ann")
    tab.keyboard.press("b")
    wait_for_row(tab, "window.hacked")
    tab.keyboard.press("2")
    wait_for_text(tab, "#told", "is now dog.")
    assert [label["label"] for label in call(f"{home}/v1/rows/r%2F1")["labels"]] == [
        "<b>bird</b>", "dog",
    ]  # fmt: skip
    assert tab.evaluate("window.hacked") is None
    tab.get_by_role("link", name="Live").click()
    wait_for_text(tab, "#heard", "Live.")
    process.terminate()
    wait_for_text(tab, "#lost", "Connection lost since")
    assert complaints == []
    context.close()


def test_the_pages_say_when_they_are_lost_without_ever_having_heard(desk):
    desk.broken = {"/v1/events": 0, "/v1/status": 0}
    tab = desk.open("/")
    assert re.match(
        r"Connection lost since \d\d:\d\d:\d\d UTC\.",
        wait_for_text(tab, "#lost", "lost since"),
    )


def test_words_that_this_page_does_not_know_do_not_stop_it(desk):
    desk.status = deepcopy(busy())
    desk.status["traffic"] = "strange"
    tab = desk.open("/")
    wait_for_text(tab, "#lost", "what this page cannot read")
    desk.status = busy()
    wait_for_text(tab, "#title", "Holds")
