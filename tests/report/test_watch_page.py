"""The page of a watch, as text and in a browser."""

import html
import json
import math
import re
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest
from injections import INJECTIONS
from msgspec import structs

import trustdoctor as td
from trustdoctor.errors import OutputError
from trustdoctor.report import render_watch
from trustdoctor.report.watch_charts import thin
from trustdoctor.watch import HistoryEntry, RateEstimate

DAY = 86400
START = 1.75e9
STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
HOSTILE = (*INJECTIONS, "x" * 600)


def drawn(n, seed, worse=0.0):
    """Return doubts, and where the rows are wrong: more often as `worse` grows."""
    rng = np.random.default_rng(seed)
    doubts = rng.normal(size=n)
    return doubts, rng.random(n) < 1 / (1 + np.exp(2 - worse - 2 * doubts))


def watched(updates, *, worse_from=1000, window=1000, **target):
    gate = td.calibrate_scores(*drawn(4000, 0), **(target or {"risk": 0.15}))
    watch = gate.watch(window=window)
    for i in range(updates):
        rows = drawn(200, i + 1, worse=float(i >= worse_from))
        watch.update(*rows, at=START + i * DAY, batch=f"day {i + 1}")
    return watch


def in_groups(names, updates):
    rng = np.random.default_rng(1)
    doubts, wrong = drawn(len(names) * 600, 0)
    group_names = np.array(names)[rng.integers(0, len(names), len(doubts))]
    watch = td.calibrate_scores(doubts, wrong, frr=0.1, groups=group_names).watch(
        window=300
    )
    for i in range(updates):
        doubts, wrong = drawn(300, i + 1)
        group_names = np.array(names)[rng.integers(0, len(names), 300)]
        doubts += 1.5 * (group_names == names[0]) * (i > updates // 2)
        batch = f"{i} {names[i % len(names)]}"
        watch.update(doubts, wrong, groups=group_names, at=START + i * DAY, batch=batch)
    return watch


def unsure():
    watch = watched(0)
    doubts, wrong = drawn(400, 1)
    partial_labels = np.where(watch.gate.accept(doubts), np.nan, wrong)
    return watch.update(doubts, partial_labels, at=START)


def idle():
    gate = td.calibrate_scores(np.arange(50.0), np.arange(50) > 40, risk=0.001)
    return gate.watch().update([1.0, 2.0], at=START)


@pytest.fixture(scope="module")
def drifted():
    return watched(40, worse_from=25)


def show(tab, watch, folder, width=1280):
    """Open the page of a watch; it asks for nothing, and says no error."""
    watch.to_html(folder / "watch.html")
    tab.set_viewport_size({"width": width, "height": 800})
    tab.complaints.clear()
    tab.goto(f"file://{folder / 'watch.html'}")
    assert tab.complaints == [f"file://{folder / 'watch.html'}"]
    return tab


def table(tab, chart):
    """Return the table of a chart, by the number of the update."""
    rows = tab.evaluate(
        "id => [...document.querySelectorAll(`#t-${id} tbody tr`)]"
        ".map(row => [...row.cells].map(cell => cell.textContent))",
        chart,
    )
    return {int(row[0].replace(",", "")): row[1:] for row in rows}


def data_of(page):
    return json.loads(re.search(r'type="application/json">(.*?)</script>', page)[1])


def when(entry):
    return f"{datetime.fromtimestamp(entry.time, UTC):%Y-%m-%d %H:%M}"


def test_an_alarm_is_shown_with_its_time_and_reason(drifted):
    page = html.unescape(render_watch(drifted))
    (at,) = [i for i, entry in enumerate(drifted.records()) if "risk" in entry.alarms]
    assert "ALARM.</strong> The promise no longer holds" in page
    assert f"since {when(drifted.records()[at])} UTC (update {at + 1})" in page
    risk_test = drifted.to_dict()["tests"]["risk"]
    assert risk_test["alarm"]["reason"] in page
    estimate = risk_test["estimate"]
    ends = f"[{estimate['low']:.2%}, {estimate['high']:.2%}]"
    assert estimate["window"] > 1
    assert (
        f"{estimate['value']:.2%} {ends} of the latest {estimate['n']:,} rows" in page
    )
    assert "at most 15% errors among the accepted, with confidence 0.9" in page
    assert "the probability of any false alarm is at most 10%" in page


def test_the_time_is_that_of_the_broken_promise_not_of_an_earlier_alarm(drifted):
    before = structs.replace(drifted.tests["risk"].alarm, time=START)
    tests = drifted.tests | {"accepted": replace(drifted.tests["accepted"])}
    tests["accepted"].alarm = before
    page = render_watch(replace(drifted, tests=tests))
    banner = re.search(r'id="verdict".*?</p>', page, re.DOTALL)[0]
    (broken,) = [entry for entry in drifted.records() if "risk" in entry.alarms]
    assert f"since {when(broken)} UTC" in banner
    tests = {"accepted": tests["accepted"]}
    page = render_watch(replace(drifted, tests=tests))
    assert "since 2025-06-15 15:06 UTC" in page
    assert "accept rate has changed" in page


def test_numbers_are_those_of_the_watch(drifted, tab, tmp_path):
    show(tab, drifted, tmp_path)
    rates, chances = table(tab, "rate-risk"), table(tab, "evidence-risk")
    accepted = table(tab, "rate-accepted")
    history = drifted.history.to_dicts()
    assert sorted(rates) == list(range(1, 41))
    for number, row in enumerate(history, 1):
        time, words = rates[number]
        assert time == f"{row['time']:%Y-%m-%d %H:%M}"
        ends = f"[{row['risk_low']:.2%}, {row['risk_high']:.2%}]"
        assert words.startswith(f"{row['risk']:.2%} {ends} of ")
        share = f"{row['accepted'] / row['rows']:.2%} of 200 rows"
        assert accepted[number][1] == share
        n = math.exp(max(0.0, row["risk_evidence"]))
        words = re.fullmatch(
            "(?:at most|fewer than) 1 in (.*) cases", chances[number][1]
        )
        shown = float(words[1].replace(",", "")) if words else 1.0
        assert shown == pytest.approx(min(n, 1e9), rel=0.1)
    cells = tab.locator("#updates tbody tr").first.locator("th, td").all_text_contents()
    assert cells[0] == "40"
    assert "day 40" in cells


def test_charts_are_drawn_to_scale(drifted, tab, tmp_path):
    """Heights are read back from the axis labels."""
    show(tab, drifted, tmp_path)
    ticks = tab.evaluate(
        "[...document.querySelectorAll('#rate-risk text[text-anchor=end]')]"
        ".filter(t => !t.classList.length)"
        ".map(t => [Number(t.getAttribute('y')) - 4, Number(t.textContent)])"
    )
    slope, zero = np.polyfit(*np.array(ticks).T, 1)
    line = tab.locator("#rate-risk path.limit").get_attribute("d")
    height = float(re.match(r"M\S+ ([\d.]+)H", line)[1])
    assert slope * height + zero == pytest.approx(15)
    ends = tab.evaluate(
        "[...document.querySelectorAll('#rate-risk .end')]"
        ".map(e => Number(e.getAttribute('cy')))"
    )
    estimates = [entry.estimates["risk"] for entry in drifted.records()]
    last = {
        estimate.window: 100 * estimate.value for estimate in estimates
    }  # windows are drawn apart
    assert [slope * end + zero for end in ends] == pytest.approx(
        list(last.values()), abs=0.02
    )
    assert tab.locator("#rate-risk path.curve").count() == len(last) > 2
    assert tab.locator("#rate-risk path.alarm").count() == 1
    assert tab.locator("#rate-accepted path.alarm").count() == 0


def test_the_update_under_the_pointer_is_described(drifted, tab, tmp_path):
    show(tab, drifted, tmp_path)
    note = tab.locator("#at-rate-risk")
    assert note.inner_text().startswith("Update 40, ")
    tab.locator("#rate-risk").hover(position={"x": 90, "y": 100})
    assert note.inner_text().startswith("Update 1, 2025-06-15 15:06 UTC: estimate: ")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: watched(0), "No rows yet."),
        (lambda: watched(1), "Nothing to report."),
        (unsure, "Cannot tell. The labels cannot show whether the promise holds."),
        (idle, "Nothing to watch: the gate rejects every row"),
    ],
    ids=["empty", "one", "unsure", "idle"],
)
def test_little_to_say_looks_right_on_a_telephone(make, words, tab, tmp_path):
    watch = make()
    show(tab, watch, tmp_path, width=360)
    assert tab.locator("#verdict").inner_text().startswith(words)
    assert tab.evaluate("document.documentElement.scrollWidth") <= 360
    blind = [name for name in watch.tests if watch.untestable(name)]
    assert all(watch.untestable(name)[1:] in tab.inner_text("body") for name in blind)
    charts = set(watch.tests) - set(blind) if watch.records() else set()
    assert tab.locator("figure").count() == 2 * len(charts)
    assert "NaN" not in tab.content().partition("<script")[0]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("scheme", "width"), [("light", 360), ("dark", 1280)])
def test_the_page_is_accessible_to_a_screen_reader(scheme, width, violations, tmp_path):
    in_groups(["north", "south", "east", "west", "isle", "quay"], 12).to_html(
        tmp_path / "watch.html"
    )
    assert violations(tmp_path / "watch.html", scheme, width) == []


def test_hostile_names_are_text_and_run_nothing(tab, tmp_path):
    watch = in_groups(HOSTILE, 12)
    assert watch.tests["frr"].alarm.groups == (HOSTILE[0],)
    page = render_watch(watch)
    assert not STEERING.search(html.unescape(page))
    show(tab, watch, tmp_path, width=360)
    assert tab.evaluate("window.hacked") is None
    assert tab.locator("img").count() == 0
    body = tab.locator("body").inner_text()
    assert all(name in body for name in (*HOSTILE[:3], HOSTILE[4], "\\u202egnp"))
    assert tab.evaluate("document.documentElement.scrollWidth") <= 360
    letters = tab.locator("#rate-frr text.name").all_text_contents()
    assert sorted(letters) == list("ABCDE")  # the worst five of six groups


def test_labels_that_do_not_come_are_drawn(tab, tmp_path):
    gate = td.calibrate_scores(*drawn(4000, 0), risk=0.15)
    watch = gate.watch(review={"rejected": 1.0, "accepted": 0.5}, deadline=2.5 * DAY)
    for i in range(6):
        doubts, wrong = drawn(100, i + 1)
        ids = [f"{i}-{row}" for row in range(100)]
        picked = watch.draw(gate.accept(doubts), ids=ids)
        at = START + i * DAY
        watch.update(doubts, ids=ids, reviewed=picked, at=at)
        delivered = np.flatnonzero(picked)[::2]
        watch.label(
            errors=wrong[delivered], ids=[ids[row] for row in delivered], at=at + 60
        )
    show(tab, watch, tmp_path)
    entries = watch.records()
    rows = table(tab, "labels")
    n_unresolved = n_labels = 0
    for number, entry in enumerate(entries, 1):
        n_unresolved, n_labels = (
            n_unresolved + entry.unresolved,
            n_labels + entry.labels,
        )
        every = n_unresolved + n_labels + entry.waiting
        expected = [f"{entry.waiting / every:.2%}", f"{n_unresolved / every:.2%}"]
        assert rows[number][1:] == expected
    assert n_unresolved > 0
    assert "A label may take 2.5 days" in tab.locator("footer").inner_text()


def test_what_the_model_expects_is_marked_as_no_guarantee(tab, tmp_path):
    rng = np.random.default_rng(0)
    logits = 2 * rng.normal(size=(3000, 4))
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(1)
    p = td.Predictions.from_logits(logits, labels)
    watch = td.calibrate(p[:2000], frr=0.1).watch(reference=p[:2000])
    for i in range(4):
        watch.update(p[2000 + 250 * i : 2250 + 250 * i], at=START + i * DAY)
    show(tab, watch, tmp_path)
    rows = table(tab, "expected-accuracy")
    for number, entry in enumerate(watch.records(), 1):
        value, low, high = entry.expected["accuracy"]
        assert rows[number][1] == f"{value:.2%} [{low:.2%}, {high:.2%}]"
    caption = tab.locator("figure:has(#expected-risk) figcaption").inner_text()
    assert "no guarantee" in caption


def long_history(watch, n, groups=()):
    """Give a watch n updates, as if it had run for years."""
    rng = np.random.default_rng(0)
    names = [f"frr[{g}]" for g in groups] or ["frr"]

    def entry(i):
        rates = dict.fromkeys(watch.tests, 0.0) | {"accepted": rng.uniform(0.7, 0.9)}
        estimates = {
            name: RateEstimate(
                rng.uniform(0.02, 0.1), 0.012345678, 0.123456789, 1000, i // 3
            )
            for name in ("accepted", *names)
        }
        rows = 100_000 + int(rng.integers(1000))
        share = int(rows * rates["accepted"])
        evidence = {name: float(rng.normal()) for name in watch.tests}
        return HistoryEntry(
            START + 60.5 * i, "update", f"batch {i}", rows, share, labels=rows,
            waiting=int(rng.integers(100)), unresolved=1, evidence=evidence,
            estimates=estimates,
        )  # fmt: skip

    entries = [entry(i) for i in range(n)]
    entries[4321] = structs.replace(entries[4321], alarms=("frr",))
    entries[777] = structs.replace(entries[777], accepted=1)
    return replace(watch, entries=entries)


def test_ten_thousand_updates_are_thinned_and_stay_small(tab, tmp_path):
    groups = [f"a group with a name of some length, {i}" for i in range(6)]
    watch = long_history(in_groups(groups, 6), 10_000, groups)
    page = render_watch(watch)
    assert len(page.encode()) < 400_000
    charts = {chart["id"]: chart for chart in data_of(page)["charts"]}
    assert all(len(chart["updates"]) <= 400 for chart in charts.values())
    assert all({1, 10_000} <= set(chart["updates"]) for chart in charts.values())
    assert 4322 in charts["rate-frr"]["updates"]  # the alarm
    assert 778 in charts["rate-accepted"]["updates"]  # the least accept rate
    windows = charts["rate-frr"]["lines"][0]["windows"]
    estimated = [window for window in windows if window is not None]
    assert len(estimated) == len(set(estimated)) > 30  # one estimate of each
    assert re.search(r"\d+ of 10,000 updates are shown", page)
    assert "the latest 200 of 10,000 updates" in page
    show(tab, watch, tmp_path, width=360)
    assert tab.locator("#updates tbody tr").count() == 200
    assert tab.locator("#updates tbody th").first.text_content() == "10,000"
    assert tab.evaluate("document.documentElement.scrollWidth") <= 360


def test_thinning_keeps_extremes_ends_and_what_must_stay(rng):
    values = [None if v > 2.5 else v for v in rng.normal(size=5000).tolist()]
    other = rng.exponential(size=5000).tolist()
    indices = thin(5000, [values, other], always=[17, 4000])
    numbers = np.array([np.nan if v is None else v for v in values])
    assert len(indices) <= 400
    assert indices == sorted(set(indices))
    expected = {0, 4999, 17, 4000, int(np.argmax(other)), int(np.argmin(other))}
    assert expected | {np.nanargmin(numbers), np.nanargmax(numbers)} <= set(indices)
    assert thin(3, [[1, 2, 3]], always=[]) == [0, 1, 2]
    assert max(np.diff(indices)) < 5000 / 50  # no long stretch is left out


def test_it_is_one_file_of_the_same_bytes_written_whole(drifted, tmp_path):
    page = render_watch(drifted)
    assert page == render_watch(drifted)
    assert "https://" not in page
    assert "http://" not in page.replace('"http://www.w3.org/2000/svg"', "")
    assert len(re.findall("<script", page)) == 2  # the data, and one that runs
    assert len(re.findall("<style", page)) == 1
    drifted.to_html(tmp_path / "watch.html")
    assert (tmp_path / "watch.html").read_text() == page
    with pytest.raises(OutputError, match="nowhere"):
        drifted.to_html(tmp_path / "nowhere" / "watch.html")
