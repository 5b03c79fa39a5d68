"""How every case must end: one line and exit code 2, or equal results everywhere."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import polars as pl

import trustdoctor as td
from fuzz import (
    capture,
    check_datasets,
    check_journals,
    check_links,
    mutate_sqlite,
    reference,
    seeds,
)
from fuzz.capture import Execution, called, check_clean, check_line, refusal
from fuzz.cases import Case
from fuzz.check_documents import check_saved
from fuzz.check_outputs import check_kept, reread
from fuzz.verdicts import EQUAL, REFUSED, FindingError, Verdict, report
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
    """Run a case, and return how it ended."""
    try:
        outcome = _JUDGES[case.verb](case)
    except FindingError as finding:
        return Verdict(str(case), finding.kind, finding.detail[:600])
    return Verdict(str(case), outcome)


# The command line


def _options(case: Case) -> list[str]:
    """Return the command line's options for the columns."""
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
    """Return the same options for a call of the library."""
    named = dict(case.kind.options)
    if case.verb == "diagnose":
        named.pop("groups", None)
    names = named.pop("names_file", None)
    if names is not None:
        named["class_names"] = read_class_names(case.folder / names)
    if "truth" in named:
        named["truth"] = case.folder / named["truth"]
    return Columns(**named, **more)


def _run_command(case: Case, *arguments: str | Path) -> Execution:
    """Run a command, and check what it prints and leaves behind."""
    before = {p: p.read_bytes() for p in case.folder.rglob("*") if p.is_file()}
    options = _options(case)
    before |= {p: p.read_bytes() for p in case.folder.glob("classes.txt")}
    ran = capture.command(*arguments, *options)
    check_clean(ran)
    if ran.code not in (2, *ALLOWED[case.verb]):
        report(f"exit code {ran.code}", ran.err or ran.out)
    if ran.code in (2, 3):
        check_line(ran)
        after = {p: p.read_bytes() for p in case.folder.rglob("*") if p.is_file()}
        if after != before:
            odd = [str(p.name) for p in after if before.get(p) != after[p]]
            report("a refusal leaves or changes files", ", ".join(odd))
    elif ran.err:
        report("stderr of a success", ran.err)
    return ran


# The same rows in memory and in small batches


class SmallBatchEngine(LocalEngine):
    """The local engine, which never reads all rows at once."""

    in_memory = False


STREAMED = Means(SmallBatchEngine(), MEMORY)


@contextmanager
def small_batches() -> Iterator[None]:
    """Hand the core a few rows at a time, however polars splits them."""
    on_batches = local._on_batches

    def split(
        source: Any, function: Callable[[pl.Series], pl.Series], kind: Any
    ) -> Any:
        def in_small_batches(columns: pl.Series) -> pl.Series:
            starts = range(0, max(len(columns), 1), BATCH)
            return pl.concat([function(columns[i : i + BATCH]) for i in starts])

        return on_batches(source, in_small_batches, kind)

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
    """Tell whether some column of a typed table cannot be read, needed or not."""
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
    arguments: list[str | Path] = [
        "--threshold",
        _threshold(case),
        "--score",
        _score(case),
    ]
    if case.kind.gate:
        arguments = ["--gate", case.folder / case.kind.gate]
    ran = _run_command(case, "screen", case.rows, *arguments, "-o", output)
    at_once, by_batch = called(lambda: in_memory(case)), called(lambda: streamed(case))
    messages = [ran.err if ran.code == 2 else "", *map(refusal, (at_once, by_batch))]
    check_alike(case, *messages)
    if case.kind.format == "gate":
        check_saved(case, td.Gate.load)
    if any(messages):
        return REFUSED
    rows, decisions = at_once
    reread_decisions = called(lambda: reread(output))
    for way, decided in (("streamed", by_batch), ("re-read", reread_decisions)):
        check_decisions(f"{way}, {case.suffix[1:]}", decisions, *decided)
    check_rows(case, rows, decisions)
    if not case.kind.options.get("choices") and case.rows.is_file():
        check_kept(case.rows, output)
    return EQUAL


def _threshold(case: Case) -> str:
    return "0.4" if case.kind.score == "confidence" else str(THRESHOLD)


def _score(case: Case) -> str:
    score = case.kind.score
    return str(case.folder / score) if "." in score else score


def check_alike(case: Case, line: str, at_once: str, by_batch: str) -> None:
    """Report rows that one way takes and another refuses."""
    ways = {"command": line, "in memory": at_once, "streamed": by_batch}
    refused = {way: message for way, message in ways.items() if message}
    if len(refused) in (0, len(ways)) or any(map(_OF_A_COMMAND.search, ways.values())):
        return
    if not is_damaged(case):
        ways = {way: message or "taken" for way, message in ways.items()}
        report("refused one way alone", str(ways))


def check_decisions(way: str, decisions: Any, scores: Any, accepted: Any) -> None:
    """Report scores or decisions that differ from those of all rows at once."""
    expected = np.asarray(decisions.doubts)
    scores_again = np.asarray(scores).astype(expected.dtype)
    if len(expected) != len(scores_again):
        report(f"{way}: rows lost or made", f"{len(expected)} and {len(scores_again)}")
    if way.endswith("jsonl"):  # JSON has numbers that are finite alone
        expected, scores_again = (
            np.where(np.isfinite(v), v, np.nan) for v in (expected, scores_again)
        )
    if not np.array_equal(expected, scores_again, equal_nan=True):
        at = int(
            np.argmax(
                ~(
                    (expected == scores_again)
                    | (np.isnan(expected) & np.isnan(scores_again))
                )
            )
        )
        detail = f"row {at}: {expected[at]!r} and {scores_again[at]!r}"
        report(f"{way}: other scores", detail)
    if not np.array_equal(
        np.asarray(decisions.accepted), np.asarray(accepted).astype(bool)
    ):
        report(f"{way}: other decisions")


def check_rows(case: Case, rows: Any, decisions: Any) -> None:
    """Report rows or scores that differ from what other readers find in the file."""
    count = reference.rows_of(case.rows, case.kind)
    if count is not None and count != len(rows):
        detail = f"{count} in the file, {len(rows)} read"
        report("rows lost or made", detail)
    texts = case.rows.iterdir() if case.rows.is_dir() else [case.rows]
    for odd in filter(None, map(reference.cut_or_endless, texts)):
        report("a cut file is taken", odd)
    if reference.repeats_a_key(case.rows):
        report("a key twice is taken", "in a line of JSON")
    beside = case.kind.format in ("gate", "score", "names")
    if beside or case.kind.options.get("choices"):
        return
    values = reference.values_of(case.rows)
    if values is None or case.kind.score != "alpha":
        return
    make = getattr(td.Predictions, f"from_{values[0]}")
    expected = called(lambda: make(values[1]))
    if refusal(expected):
        report("taken from a file alone", str(expected))
    expected_scores = _gate(case).screen(expected).doubts
    if len(expected_scores) != len(rows) or not np.allclose(
        expected_scores, decisions.doubts, 1e-4, 1e-4
    ):
        report(
            "scores of other numbers", f"{expected_scores[:3]}, {decisions.doubts[:3]}"
        )


# Other commands


def _diagnose(case: Case) -> str:
    out, page = case.folder / "found.json", case.folder / "page.html"
    html = ["--html", page] if case.page else []
    ran = _run_command(case, "diagnose", case.rows, "--json", out, *html)

    def counted(means: Means) -> Any:
        with small_batches():
            return engines.diagnose(_find(case), means=means)

    at_once = called(lambda: counted(Means(LocalEngine(), MEMORY)))
    by_batch = called(lambda: counted(STREAMED))
    messages = [ran.err if ran.code == 2 else "", *map(refusal, (at_once, by_batch))]
    check_alike(
        case, "" if case.page and not any(messages[1:]) else messages[0], *messages[1:]
    )
    if any(messages):
        return REFUSED
    for name in ("n", "n_errors"):
        first, second = (
            getattr(evaluation, name, None) for evaluation in (at_once, by_batch)
        )
        if first != second:
            report("streamed: other counts", f"{name}: {first} and {second}")
    return EQUAL


def _calibrate(case: Case) -> str:
    out = case.folder / "made.json"
    score = [] if case.kind.score == "confidence" else ["--score", _score(case)]
    arguments = ("--coverage", "0.7", *score, "-o", out, "--allow-trivial")
    ran = _run_command(case, "calibrate", case.rows, *arguments)

    def calibrated() -> td.Gate:
        with small_batches():
            source = _find(case, need_labels=False)
            return engines.calibrate_files(source, means=STREAMED, coverage=0.7)

    by_batch = called(calibrated)
    message = ran.err if ran.code == 2 else ""
    check_alike(case, message, message, refusal(by_batch))
    if message:
        return REFUSED
    gate = called(lambda: td.Gate.load(out))
    if refusal(gate):
        report("a gate that was written is refused", str(gate))
    n_gate, n_batches = gate.certificate.n, by_batch.certificate.n
    if n_gate != n_batches:
        report("streamed: other counts", f"n: {n_gate} and {n_batches}")
    return EQUAL


def _check(case: Case) -> str:
    gate = case.folder / (case.kind.gate or "made.json")
    is_watch = case.kind.format in ("state", "database")
    state = case.target if is_watch else case.folder / "state.json"
    if not case.kind.gate:
        gate_kind = "confidence" if case.kind.score == "confidence" else "plain"
        gate.write_bytes(seeds.gate(gate_kind))
    damaged = ""
    if is_watch:
        loaded = called(lambda: td.Gate.load(gate))
        check_saved(case, lambda path: Watch.load(path, loaded))
        damaged = refusal(called(lambda: Watch.load(state, loaded)))
    elif case.kind.format == "gate":
        check_saved(case, td.Gate.load)
    foreign = mutate_sqlite.objects(state.read_bytes()) if is_watch else set()
    ran = _run_command(case, "check", case.rows, "--gate", gate, "--state", state)
    if ran.code == 2:
        return REFUSED
    if foreign and case.kind.format == "database":
        report("a database with foreign objects is taken", ", ".join(foreign))
    again = called(lambda: Watch.load(state, td.Gate.load(gate)))
    if refusal(again) and not damaged:  # of a database the history is not read
        report("a state that was written is refused", str(again))
    return EQUAL


_JUDGES = {
    "screen": _screen,
    "diagnose": _diagnose,
    "calibrate": _calibrate,
    "check": _check,
    "read": check_datasets.judge,
    "resume": check_journals.judge,
    "link": check_links.judge,
}
