"""What every case must come to: one line and exit code 2, or the same everywhere."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import polars as pl

import trustdoctor as td
from fuzz import capture, datasets, independent, journals, links, seeds, stores
from fuzz.capture import Ran, called, check_clean, check_line, refusal
from fuzz.cases import Case
from fuzz.documents import check_saved
from fuzz.outputs import check_kept, reread
from fuzz.verdicts import EQUAL, REFUSED, FindingError, Verdict, found
from trustdoctor import engines
from trustdoctor.engines import Means, local
from trustdoctor.engines.local import LocalEngine
from trustdoctor.files import Columns, find_source, read_class_names
from trustdoctor.watch import Watch

BATCH = 7
THRESHOLD = -0.4
ALLOWED = {"screen": (0,), "diagnose": (0,), "calibrate": (0, 3), "check": (0, 1)}
MEMORY = 2 * 10**9
_OF_A_COMMAND = re.compile(
    "already has a column|holds (?:lists|bytes)|do not fit into NPZ|an input itself|"
    "has pieces of|cannot be written to"
)


def judge(case: Case) -> Verdict:
    """Run a case, and say what became of it."""
    try:
        outcome = _JUDGES[case.verb](case)
    except FindingError as finding:
        return Verdict(str(case), finding.kind, finding.detail[:600])
    return Verdict(str(case), outcome)


# What is said on the command line


def _options(case: Case) -> list[str]:
    """Return what the command line is told of the columns."""
    out = []
    for name, value in case.kind.options.items():
        if name == "groups" and case.verb == "diagnose":
            continue
        if name == "names_file":
            out += ["--class-names", str(case.folder / value)]
        elif name == "truth":
            out += ["--truth", str(case.folder / value)]
        elif name == "class_names":
            beside = case.folder / "classes.txt"
            beside.write_text("\n".join(value) + "\n", encoding="utf-8")
            out += ["--class-names", str(beside)]
        else:
            out += [f"--{name.replace('_', '-')}", str(value)]
    return out if not case.quiet else [*out, "--quiet"]


def _columns(case: Case, **more: Any) -> Columns:
    """Return the same for a call of the library."""
    given = dict(case.kind.options)
    if case.verb == "diagnose":
        given.pop("groups", None)
    names = given.pop("names_file", None)
    if names is not None:
        given["class_names"] = read_class_names(case.folder / names)
    if "truth" in given:
        given["truth"] = case.folder / given["truth"]
    return Columns(**given, **more)


def _told(case: Case, *arguments: str | Path) -> Ran:
    """Run a command; what it says and leaves is as promised."""
    before = {p: p.read_bytes() for p in case.folder.rglob("*") if p.is_file()}
    options = _options(case)
    before |= {p: p.read_bytes() for p in case.folder.glob("classes.txt")}
    ran = capture.command(*arguments, *options)
    check_clean(ran)
    if ran.code not in (2, *ALLOWED[case.verb]):
        found(f"exit code {ran.code}", ran.err or ran.out)
    if ran.code in (2, 3):
        check_line(ran)
        after = {p: p.read_bytes() for p in case.folder.rglob("*") if p.is_file()}
        if after != before:
            odd = [str(p.name) for p in after if before.get(p) != after[p]]
            found("a refusal leaves or changes files", ", ".join(odd))
    elif ran.err:
        found("stderr of a success", ran.err)
    return ran


# The same rows in memory and in small batches


class Streaming(LocalEngine):
    """The local engine, which never reads all rows at once."""

    in_memory = False


STREAMED = Means(Streaming(), MEMORY)


@contextmanager
def small_batches() -> Iterator[None]:
    """Hand the core a few rows at a time, however polars splits them."""
    whole = local._on_batches

    def split(
        source: Any, function: Callable[[pl.Series], pl.Series], kind: Any
    ) -> Any:
        def parts(columns: pl.Series) -> pl.Series:
            starts = range(0, max(len(columns), 1), BATCH)
            return pl.concat([function(columns[i : i + BATCH]) for i in starts])

        return whole(source, parts, kind)

    with patch.object(local, "_on_batches", split):
        yield


def _find(case: Case, **more: Any) -> Any:
    return find_source(case.rows, _columns(case, **more))


def _gate(case: Case) -> td.Gate:
    if case.kind.gate:
        return td.Gate.load(case.folder / case.kind.gate)
    score: Any = case.kind.score
    if "." in score:
        score = td.load_score(case.folder / score)
    return td.Gate(THRESHOLD, score=score)


def in_memory(case: Case) -> Any:
    """Return the predictions and the decisions on all rows at once."""
    gate = _gate(case)
    rows = _find(case, need_labels=False).read()
    return rows, gate.screen(rows)


def is_damaged(case: Case) -> bool:
    """Say whether a typed table cannot be read whole; what is needed perhaps can."""
    source = called(lambda: _find(case, need_labels=False))
    if refusal(source) or not (source.format.typed and source.format.is_table):
        return False
    return bool(refusal(called(lambda: source.load(*source.names))))


def streamed(case: Case) -> Any:
    """Return scores and decisions on a few rows at a time."""
    target = case.folder / f"streamed{case.suffix}"
    gate = _gate(case)
    with small_batches():
        source = _find(case, need_labels=False)
        engines.screen(source, gate, target, means=STREAMED)
    decided = reread(target)
    target.unlink()
    return decided


def _screen(case: Case) -> str:
    output = case.folder / f"decided{case.suffix}"
    how: list[str | Path] = ["--threshold", _threshold(case), "--score", _score(case)]
    if case.kind.gate:
        how = ["--gate", case.folder / case.kind.gate]
    ran = _told(case, "screen", case.rows, *how, "-o", output)
    at_once, by_batch = called(lambda: in_memory(case)), called(lambda: streamed(case))
    told = [ran.err if ran.code == 2 else "", *map(refusal, (at_once, by_batch))]
    check_alike(case, *told)
    if case.kind.format == "gate":
        check_saved(case, td.Gate.load)
    if any(told):
        return REFUSED
    rows, done = at_once
    again = called(lambda: reread(output))
    for way, decided in (("streamed", by_batch), ("re-read", again)):
        check_decisions(f"{way}, {case.suffix[1:]}", done, *decided)
    check_rows(case, rows, done)
    if not case.kind.options.get("choices") and case.rows.is_file():
        check_kept(case.rows, output)
    return EQUAL


def _threshold(case: Case) -> str:
    return "0.4" if case.kind.score == "confidence" else str(THRESHOLD)


def _score(case: Case) -> str:
    score = case.kind.score
    return str(case.folder / score) if "." in score else score


def check_alike(case: Case, line: str, at_once: str, by_batch: str) -> None:
    """Refuse that one way takes rows which another does not take."""
    ways = {"command": line, "in memory": at_once, "streamed": by_batch}
    refused = {way: told for way, told in ways.items() if told}
    if len(refused) in (0, len(ways)) or any(map(_OF_A_COMMAND.search, ways.values())):
        return
    if not is_damaged(case):
        ways = {way: told or "taken" for way, told in ways.items()}
        found("refused one way alone", str(ways))


def check_decisions(how: str, done: Any, scores: Any, accepted: Any) -> None:
    """Refuse other scores or decisions than those of the rows at once."""
    own = np.asarray(done.scores)
    other = np.asarray(scores).astype(own.dtype)
    if len(own) != len(other):
        found(f"{how}: rows lost or made", f"{len(own)} and {len(other)}")
    if how.endswith("jsonl"):  # JSON has numbers that are finite alone
        own, other = (np.where(np.isfinite(v), v, np.nan) for v in (own, other))
    if not np.array_equal(own, other, equal_nan=True):
        at = int(np.argmax(~((own == other) | (np.isnan(own) & np.isnan(other)))))
        told = f"row {at}: {own[at]!r} and {other[at]!r}"
        found(f"{how}: other scores", told)
    if not np.array_equal(np.asarray(done.accepted), np.asarray(accepted).astype(bool)):
        found(f"{how}: other decisions")


def check_rows(case: Case, rows: Any, done: Any) -> None:
    """Refuse rows or scores that are not those of the file, as others read it."""
    count = independent.rows_of(case.rows, case.kind)
    if count is not None and count != len(rows):
        told = f"{count} in the file, {len(rows)} read"
        found("rows lost or made", told)
    texts = case.rows.iterdir() if case.rows.is_dir() else [case.rows]
    for odd in filter(None, map(independent.cut_or_endless, texts)):
        found("a cut file is taken", odd)
    if independent.repeats_a_key(case.rows):
        found("a key twice is taken", "in a line of JSON")
    beside = case.kind.format in ("gate", "score", "names")
    if beside or case.kind.options.get("choices"):
        return
    values = independent.values_of(case.rows)
    if values is None or case.kind.score != "alpha":
        return
    make = getattr(td.Predictions, f"from_{values[0]}")
    expected = called(lambda: make(values[1]))
    if refusal(expected):
        found("taken from a file alone", str(expected))
    own = _gate(case).screen(expected).scores
    if len(own) != len(rows) or not np.allclose(own, done.scores, 1e-4, 1e-4):
        found("scores of other numbers", f"{own[:3]}, {done.scores[:3]}")


# Other verbs


def _diagnose(case: Case) -> str:
    out, page = case.folder / "found.json", case.folder / "page.html"
    html = ["--html", page] if case.page else []
    ran = _told(case, "diagnose", case.rows, "--json", out, *html)

    def counted(means: Means) -> Any:
        with small_batches():
            return engines.diagnose(_find(case), means=means)

    at_once = called(lambda: counted(Means(LocalEngine(), MEMORY)))
    by_batch = called(lambda: counted(STREAMED))
    told = [ran.err if ran.code == 2 else "", *map(refusal, (at_once, by_batch))]
    check_alike(case, "" if case.page and not any(told[1:]) else told[0], *told[1:])
    if any(told):
        return REFUSED
    for name in ("n", "n_errors"):
        own, other = (getattr(one, name, None) for one in (at_once, by_batch))
        if own != other:
            found("streamed: other counts", f"{name}: {own} and {other}")
    return EQUAL


def _calibrate(case: Case) -> str:
    out = case.folder / "made.json"
    score = [] if case.kind.score == "confidence" else ["--score", _score(case)]
    how = ("--coverage", "0.7", *score, "-o", out, "--allow-trivial")
    ran = _told(case, "calibrate", case.rows, *how)

    def made() -> td.Gate:
        with small_batches():
            source = _find(case, need_labels=False)
            return engines.calibrate_files(source, means=STREAMED, coverage=0.7)

    by_batch = called(made)
    told = ran.err if ran.code == 2 else ""
    check_alike(case, told, told, refusal(by_batch))
    if told:
        return REFUSED
    gate = called(lambda: td.Gate.load(out))
    if refusal(gate):
        found("a gate that was written is refused", str(gate))
    own, other = gate.certificate.n, by_batch.certificate.n
    if own != other:
        found("streamed: other counts", f"n: {own} and {other}")
    return EQUAL


def _check(case: Case) -> str:
    gate = case.folder / (case.kind.gate or "made.json")
    kept = case.kind.format in ("state", "database")
    state = case.target if kept else case.folder / "state.json"
    if not case.kind.gate:
        own = "confidence" if case.kind.score == "confidence" else "plain"
        gate.write_bytes(seeds.gate(own))
    damaged = ""
    if kept:
        loaded = called(lambda: td.Gate.load(gate))
        check_saved(case, lambda path: Watch.load(path, loaded))
        damaged = refusal(called(lambda: Watch.load(state, loaded)))
    elif case.kind.format == "gate":
        check_saved(case, td.Gate.load)
    foreign = stores.objects(state.read_bytes()) if kept else set()
    ran = _told(case, "check", case.rows, "--gate", gate, "--state", state)
    if ran.code == 2:
        return REFUSED
    if foreign and case.kind.format == "database":
        found("a database with foreign objects is taken", ", ".join(foreign))
    again = called(lambda: Watch.load(state, td.Gate.load(gate)))
    if refusal(again) and not damaged:  # of a database the history is not read
        found("a state that was written is refused", str(again))
    return EQUAL


_JUDGES = {
    "screen": _screen,
    "diagnose": _diagnose,
    "calibrate": _calibrate,
    "check": _check,
    "read": datasets.judge,
    "resume": journals.judge,
    "link": links.judge,
}
