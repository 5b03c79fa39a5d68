"""The state of a watch as plain values, and back: what is read is checked."""

from collections import deque
from dataclasses import asdict, fields
from typing import Any, TypeVar

import numpy as np

from trustdoctor import envelope
from trustdoctor.arrays import Array
from trustdoctor.errors import FileError, InputError
from trustdoctor.gates import Gate
from trustdoctor.watch import counting
from trustdoctor.watch.bets import ODDS, Bet
from trustdoctor.watch.given import check_level, check_noise
from trustdoctor.watch.ledger import DONE, DRAWN, GONE, OPEN, PASSED
from trustdoctor.watch.plain import (
    read_codes,
    read_finite,
    read_group,
    read_named,
    read_pair,
    read_peak,
    read_review,
    read_several,
    read_share,
    read_texts,
    read_time,
    read_whole,
    write_review,
)
from trustdoctor.watch.preference import Preference
from trustdoctor.watch.promised import make_tests
from trustdoctor.watch.queue import UNSAID, WAITING, Batch, Queue, Run
from trustdoctor.watch.rate_tests import Alarm, Group, GroupTest, RateTest, Seen
from trustdoctor.watch.records import Entry, Totals
from trustdoctor.watch.reference import Reference, Sums
from trustdoctor.watch.review import Drawn, Pool, Sampling
from trustdoctor.watch.run_coding import read_run, write_run
from trustdoctor.watch.watching import Watch
from trustdoctor.watch.windows import Window

FIELDS = {
    *("gate", "level", "review", "deadline", "window", "label_noise"),
    *("notes", "totals", "sampling", "tests", "queue", "reference", "sums"),
}
STATUSES = {"open": OPEN, "drawn": DRAWN, "done": DONE, "passed": PASSED, "gone": GONE}
"""What became of a row, as files say it."""

_WHATS = ("update", "labels")
Counts = TypeVar("Counts", Totals, Pool, Drawn, Window)


def write_state(watch: Watch) -> dict[str, Any]:
    """Return all but the history, the ids, and the gate."""
    return {
        "level": watch.level,
        "review": write_review(watch.review),
        "deadline": watch.deadline,
        "window": watch.window,
        "label_noise": watch.label_noise,
        "notes": list(watch.notes),
        "totals": asdict(watch.totals),
        "sampling": _write_sampling(watch.sampling),
        "tests": {name: _write_test(test) for name, test in watch.tests.items()},
        "queue": [_write_waiting(batch) for batch in watch.queue.batches],
        "reference": None if watch.reference is None else watch.reference.to_dict(),
        "sums": watch.sums.to_dict(),
    }


def read_state(content: dict[str, Any], gate: Gate) -> Watch:
    """Read what `write_state` wrote."""
    try:
        level = check_level(envelope.read_number(content["level"]))
        window = read_whole(content["window"], 1)
        deadline, reference = content["deadline"], content["reference"]
        noise = check_noise(envelope.read_number(content["label_noise"]))
        fresh = make_tests(gate, level, window, noise)
        envelope.check_fields(content["tests"], set(fresh))
        for name, test in fresh.items():
            _read_test(test, content["tests"][name])
        watch = Watch(
            gate,
            level,
            read_review(content["review"]),
            None if deadline is None else read_time(deadline),
            window,
            noise,
            fresh,
            _read_sampling(content["sampling"]),
            Queue(deque(map(_read_waiting, envelope.read_list(content["queue"])))),
            _read_counts(Totals, content["totals"]),
            notes=read_texts(content["notes"]),
            reference=None if reference is None else Reference.from_dict(reference),
            sums=Sums.from_dict(content["sums"]),
        )
        counting.look_ahead(watch)
        for name, test in watch.tests.items():  # whose peak was known before
            test.peak = read_peak(content["tests"][name]["peak"])
        return watch
    except (InputError, KeyError, TypeError, OverflowError) as error:
        raise FileError(str(error)) from error


def _write_test(test: RateTest) -> dict[str, Any]:
    alarm = None if test.alarm is None else asdict(test.alarm)
    if alarm is not None:
        alarm["groups"] = list(alarm["groups"])
    parts = [_write_part(group, part) for group, part in test.parts.items()]
    return {"peak": test.peak, "alarm": alarm, "parts": parts}


def _read_test(test: RateTest, content: Any) -> None:
    envelope.check_fields(content, {"peak", "alarm", "parts"})
    test.peak = read_peak(content["peak"])
    if content["alarm"] is not None:
        envelope.check_fields(content["alarm"], {"time", "words", "groups"})
        test.alarm = Alarm(
            read_time(content["alarm"]["time"]),
            envelope.read_text(content["alarm"]["words"]),
            tuple(map(read_group, envelope.read_list(content["alarm"]["groups"]))),
        )
    able = {None} if test.groups is None else set(test.groups)
    for one in envelope.read_list(content["parts"]):
        group, part = _read_part(one, test)
        if group not in able or group in test.parts:
            message = f"it has a group that cannot be, {envelope.shown(group)}."
            raise FileError(message)
        test.parts[group] = part


def _write_part(group: Group, part: GroupTest) -> dict[str, Any]:
    bet = part.bet
    used = [side for side, own in enumerate(bet.sides) if own]
    return {
        "group": group,
        "n": bet.n,
        "counted": bet.counted,
        "starts": bet.starts,
        "left": bet.left,
        "peak": bet.peak,
        "sums": [[envelope.number(x) for x in bet.sums[s].tolist()] for s in used],
        "window": asdict(part.window),
        "review": write_review(part.review),
    }


def _read_part(content: Any, test: RateTest) -> tuple[Group, GroupTest]:
    names = {"group", "n", "counted", "starts", "left", "peak", "sums", "window"}
    envelope.check_fields(content, {*names, "review"})
    bet = Bet(
        test.low,
        test.high,
        read_whole(content["n"]),
        read_whole(content["counted"]),
        read_whole(content["starts"]),
        read_share(content["left"]),
        peak=read_peak(content["peak"]),
    )
    used = [side for side, own in enumerate(bet.sides) if own]
    rows = envelope.read_list(content["sums"])
    if len(rows) != len(used) or bet.counted > bet.n or bet.left < 1e-300:
        message = f"its counts cannot be, {envelope.shown(content)}."
        raise FileError(message)
    for side, row in zip(used, rows, strict=True):
        bet.sums[side] = _sums(row, len(ODDS))
    window = _read_counts(Window, content["window"], 1)
    if window.counted > window.n or window.most > window.more:
        message = f"its window cannot be, {envelope.shown(content['window'])}."
        raise FileError(message)
    review = read_review(content["review"])
    return read_group(content["group"]), GroupTest(bet, window, review)


def _sums(row: Any, size: int) -> Array:
    values = [envelope.read_number(one) for one in envelope.read_list(row)]
    if len(values) != size or any(one > 1e300 for one in values):
        message = f"its evidence cannot be, {envelope.shown(row)}."
        raise FileError(message)
    return np.array(values)


def _write_sampling(sampling: Sampling) -> dict[str, Any]:
    return {
        "pool": asdict(sampling.pool),
        "accepted": asdict(sampling.accepted),
        "rejected": asdict(sampling.rejected),
        "among_accepted": _write_preference(sampling.among_accepted),
        "among_rejected": _write_preference(sampling.among_rejected),
    }


def _read_sampling(content: Any) -> Sampling:
    envelope.check_fields(content, {one.name for one in fields(Sampling)})
    return Sampling(
        _read_counts(Pool, content["pool"]),
        _read_counts(Drawn, content["accepted"]),
        _read_counts(Drawn, content["rejected"]),
        _read_preference(content["among_accepted"]),
        _read_preference(content["among_rejected"]),
    )


def _write_preference(kind: Preference) -> dict[str, Any]:
    return {
        "starts": kind.starts,
        "left": kind.left,
        "sums": [envelope.number(x) for x in kind.sums.ravel().tolist()],
        "peak": kind.peak,
        "review": write_review(kind.review),
        "doubts": [envelope.number(x) for x in kind.doubts.tolist()],
        "drawn": kind.drawn.astype(int).tolist(),
    }


def _read_preference(content: Any) -> Preference:
    envelope.check_fields(content, {one.name for one in fields(Preference)})
    first, drawn = Preference(), read_codes(content["drawn"])
    doubts = [envelope.read_number(x) for x in envelope.read_list(content["doubts"])]
    kind = Preference(
        read_whole(content["starts"]),
        read_share(content["left"]),
        _sums(content["sums"], first.sums.size).reshape(first.sums.shape),
        read_peak(content["peak"]),
        read_review(content["review"]),
        np.array(doubts),
        drawn == 1,
    )
    bits = np.isin(drawn, (0, 1)).all()
    if len(doubts) != len(drawn) or not bits or kind.left < 1e-300:
        message = f"its doubts cannot be, {envelope.shown(content)}."
        raise FileError(message)
    return kind


def _read_counts(kind: type[Counts], content: Any, least: int = 0) -> Counts:
    """Read a record of numbers: whole ones, unless the record has others."""
    envelope.check_fields(content, {one.name for one in fields(kind)})
    values: dict[str, Any] = {}
    for one in fields(kind):
        value = content[one.name]
        if one.type is float:
            read = read_finite if one.name == "beyond" else read_peak
            values[one.name] = read(value)
        else:
            values[one.name] = read_whole(value, least if one.name == "number" else 0)
    return kind(**values)


def _write_waiting(batch: Batch | Run) -> dict[str, Any]:
    return write_run(batch) if isinstance(batch, Run) else _write_batch(batch)


def _read_waiting(content: Any) -> Batch | Run:
    followed = isinstance(content, dict) and "places" in content
    return read_run(content) if followed else _read_batch(content)


def _write_batch(batch: Batch) -> dict[str, Any]:
    return {
        "time": batch.time,
        "review": write_review(batch.review),
        "totals": [[group, rows] for group, rows in batch.totals.items()],
        "keys": batch.keys,
        "accepted": batch.accepted.astype(int).tolist(),
        "known": batch.known.tolist(),
        "groups": batch.groups,
        "done": batch.done,
        "started": batch.started,
    }


def _read_batch(content: Any) -> Batch:
    envelope.check_fields(content, {one.name for one in fields(Batch)})
    keys = read_texts(content["keys"])
    accepted, known = (read_codes(content[name]) for name in ("accepted", "known"))
    groups = content["groups"]
    if groups is not None:
        groups = [read_group(one) for one in envelope.read_list(groups)]
    batch = Batch(
        read_time(content["time"]),
        read_review(content["review"]),
        _read_totals(content["totals"]),
        keys,
        accepted == 1,
        known,
        groups,
        read_whole(content["done"]),
        content["started"],
    )
    sizes = {
        len(keys),
        len(accepted),
        len(known),
        len(keys if groups is None else groups),
    }
    named = all(key for key, one in zip(keys, known, strict=False) if one == WAITING)
    if (
        len(sizes) != 1
        or not np.isin(accepted, (0, 1)).all()
        or not ((known >= WAITING) & (known <= UNSAID)).all()
        or not 0 <= batch.done <= len(keys)
        or (known[: batch.done] == WAITING).any()
        or not named
        or len(batch.totals) < len(content["totals"])
        or type(batch.started) is not bool
    ):
        message = f"its waiting rows cannot be, {envelope.shown(content)}."
        raise FileError(message)
    return batch


def _read_totals(content: Any) -> dict[Group, int]:
    pairs = map(read_pair, envelope.read_list(content))
    return {read_group(group): read_whole(rows) for group, rows in pairs}


def write_entry(entry: Entry) -> dict[str, Any]:
    """Return a record as plain values."""
    out = {one.name: getattr(entry, one.name) for one in fields(Entry)}
    out["estimates"] = {name: list(seen) for name, seen in entry.estimates.items()}
    out["expected"] = {name: list(ends) for name, ends in entry.expected.items()}
    out["alarms"] = list(entry.alarms)
    return out


def read_entry(content: Any) -> Entry:
    """Read what `write_entry` wrote."""
    names = {one.name for one in fields(Entry)}
    envelope.check_fields(content, names)
    plain = {one.name: content[one.name] for one in fields(Entry) if one.type is int}
    if content["what"] not in _WHATS:
        message = f"expected an update, got {envelope.shown(content['what'])}."
        raise FileError(message)
    return Entry(
        read_time(content["time"]),
        content["what"],
        envelope.read_text(content["batch"]),
        **{name: read_whole(value) for name, value in plain.items()},
        evidence=read_named(content["evidence"], read_finite),
        estimates=read_named(content["estimates"], _seen),
        alarms=tuple(read_texts(content["alarms"])),
        expected=read_named(content["expected"], _ends),
    )


def _seen(content: Any) -> Seen:
    values = envelope.read_list(content)
    if len(values) != len(Seen._fields):
        message = f"expected an estimate, got {envelope.shown(content)}."
        raise FileError(message)
    value, low, high = map(read_share, values[:3])
    return Seen(value, low, high, read_whole(values[3]), read_whole(values[4], 1))


def _ends(content: Any) -> tuple[float, float, float]:
    value, low, high = map(read_share, read_several(content, 3))
    return value, low, high
