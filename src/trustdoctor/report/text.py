"""What the commands print: tables and sentences of at most 80 columns."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from trustdoctor import envelope
from trustdoctor.evaluation import (
    Comparison,
    Difference,
    DominantConfusion,
    Evaluation,
)
from trustdoctor.gates import PREDICTED, Gate, ListRule, Outcome, Shortlist
from trustdoctor.report.offers import NO_OFFER, make_opening
from trustdoctor.report.shown_rows import finite
from trustdoctor.visible import visible

WIDE = 13
"""Letters of a score's name that a table of 80 columns holds without being tight."""


class _Terminal(Console):
    """A console that shows text as it is, and leaves a reader who went away to us."""

    def render_str(self, text: str, **options: Any) -> Text:
        """Return text without what would steer the terminal."""
        return super().render_str(visible(text), **options)

    def on_broken_pipe(self) -> None:
        """Say so; rich would end the program with exit code 1, which is an alarm."""
        raise BrokenPipeError


def make_console(*, quiet: bool, stderr: bool = False) -> Console:
    """Return a console of at most 80 columns; silent when quiet."""
    console = _Terminal(quiet=quiet, markup=False, stderr=stderr)
    console.width = min(console.width, 80)
    return console


def show_evaluation(console: Console, found: Evaluation) -> None:
    """Print an evaluation as a table and in words."""
    at, confidence = found.settings.points, found.settings.confidence
    over = f"predictions over {found.n_classes} classes"
    console.print(
        f"{found.n:,} {over if found.n_classes else 'answers'}, "
        f"{found.n_errors:,} wrong: accuracy {found.accuracy.percent()} %",
        highlight=False,
    )
    gap = 2 if max(map(len, found.scores)) <= WIDE else 1  # 80 columns hold so much
    table = Table(box=None, padding=(0, gap, 0, 0), header_style="bold")
    table.add_column("score", overflow="fold")
    for title in ("AUROC", f"FRR@{at.trr * 100:g}TRR"):
        table.add_column(title, no_wrap=True)
    table.add_column(f"risk@{at.coverage * 100:g}coverage", no_wrap=True)
    for name, metrics in found.scores.items():
        cells = (metrics[m] for m in ("auroc", "frr_at_trr", "risk_at_coverage"))
        table.add_row(name, *(cell.percent() for cell in cells))
    console.print()
    console.print(table)
    console.print()
    for line in _explanation(found):
        console.print(f"- {line}", highlight=False)
    console.print(
        f"\nIn %, with {confidence:.0%} intervals; a prediction is rejected when "
        f"its doubt is high. AUROC: how well doubt ranks errors above correct "
        f"predictions. FRR@{at.trr * 100:g}TRR: share of correct predictions lost when "
        f"{at.trr:.0%} of the errors are caught. risk@{at.coverage * 100:g}coverage: "
        f"errors left among the {at.coverage:.0%} least doubtful.",
        highlight=False,
        style="dim",
    )


def _explanation(found: Evaluation) -> Iterator[str]:
    yield from found.odd_labels
    yield found.verdict()
    yield from found.warnings[len(found.odd_labels) :]
    yield from _gate_to_expect(found)
    name, best = next(iter(found.scores.items()))
    frr = best["frr_at_trr"]
    if frr.value is None:
        yield "No interval can be given: all rows are right, or all are wrong."
        return
    yield (
        f"Catching {found.settings.points.trr:.0%} of the errors by {name} costs "
        f"{frr.percent()} % of the correct predictions."
    )
    yield from _comparison(found)
    yield from _reliability(found)
    if found.streamed:
        within = max(cell.within for m in found.scores.values() for cell in m.values())
        yield (
            "Rows were counted in ranges of scores, not kept: no figure is farther "
            f"than {within * 100:.1g} points from that of the rows themselves."
            if within
            else "Rows were counted, not kept; every figure is that of the rows."
        )
    notes = {cell.note for cell in best.values() if cell.note}
    yield from (f"Careful, {note}." for note in sorted(notes))


def _gate_to_expect(found: Evaluation) -> Iterator[str]:
    """Say what a gate from such rows would promise, and which errors it leaves."""
    if found.predictions is None or not 0 < found.n_errors < found.n:
        return  # rows that were counted are not at hand
    if found.odd_labels:
        yield NO_OFFER
        return
    doubts = finite(found.doubts[next(iter(found.scores))])
    offer = make_opening(doubts, found.predictions.errors, found.clusters)
    one = f" One row of each {found.clustered_by!r} makes it." * bool(
        found.clustered_by
    )
    yield f"{offer.headline} {offer.detail}{one}"
    if offer.coverage is not None:
        accepted = doubts <= np.quantile(doubts, offer.coverage, method="lower")
        confusion = DominantConfusion.of(found.predictions, accepted)
        if confusion is not None:
            sentence = confusion.sentence()
            yield f"On these rows {sentence[0].lower()}{sentence[1:]}"


def _reliability(found: Evaluation) -> Iterator[str]:
    """Say how far confidence can be taken at its word, where it is a probability."""
    if not found.calibration:
        return
    said, right = found.calibration["confidence"], found.accuracy
    assert said.value is not None
    assert right.value is not None
    word = "over-confident" if said.value > right.value else "under-confident"
    if (right.low or 0) <= said.value <= (right.high or 1):
        word = "neither clearly over- nor under-confident"
    yield (
        f"The model is {word}: its {found.stated_by} "
        f"claim {said.value:.1%} on average; it is right {right.value:.1%} of the time "
        f"(ECE {found.calibration['ece'].percent()} %)."
    )


def _comparison(found: Evaluation) -> Iterator[str]:
    """Say which scores rank errors better or worse than msp."""
    if "msp" not in found.scores or len(found.scores) == 1:
        return
    better: list[str] = []
    worse: list[str] = []
    for d in found.differences:
        if d.metric != "auroc" or "msp" not in (d.first, d.second) or d.low is None:
            continue
        sign = _sign(d) * (1 if d.second == "msp" else -1)
        other = d.first if d.second == "msp" else d.second
        if sign:
            (better if sign > 0 else worse).append(other)
    parts = [
        f"{', '.join(names)} rank{'s' if len(names) == 1 else ''} errors {word}"
        for names, word in ((better, "better"), (worse, "worse"))
        if names
    ]
    how = "AUROC, not paired" if found.streamed else "paired AUROC"
    if parts:
        yield f"Against msp: {' and '.join(parts)} ({how})."
    else:
        yield f"No score ranks errors clearly better or worse than msp ({how})."


def _sign(difference: Difference) -> int:
    assert difference.low is not None
    assert difference.high is not None
    return int(difference.low > 0) - int(difference.high < 0)


def show_comparison(console: Console, found: Comparison) -> None:
    """Print candidates, best first, and which to use."""
    console.print(f"{found.rows_sentence()}\n", highlight=False)
    against = f"against {found.baseline}"
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    frr = f"FRR@{found.points.trr * 100:g}TRR"
    for title in ("score", "passes", "AUROC", against, frr, "on rows"):
        table.add_column(title, overflow="fold")
    for c in found.candidates:
        own = c.name == found.baseline
        table.add_row(
            c.name,
            f"{c.passes:g}",
            f"{(c.auroc.value or 0) * 100:.2f}",
            "" if own else c.auroc_gain.percent(sign=True),
            f"{(c.frr_at_trr.value or 0) * 100:.2f}",
            f"{c.n:,}",
        )
    console.print(table)
    console.print(f"\n{found.verdict()}", highlight=False)
    for warning in found.warnings:
        console.print(f"- {warning}", highlight=False, markup=False)
    for reason in found.skipped:
        console.print(f"- left out, {reason}", highlight=False)
    console.print(
        f"\nIn %. Against {found.baseline}: AUROC more or less on the same rows, with "
        f"intervals that hold all together at {found.confidence:.0%}.",
        highlight=False,
        style="dim",
    )


def show_gate(
    console: Console, gate: Gate, path: Path, remarks: Sequence[str] = ()
) -> None:
    """Print a calibrated gate, its certificate, and what else to know."""
    c = gate.certificate
    assert c is not None
    lines = [
        f"{_promised(gate)}: {c.promise().removeprefix('no guarantee: ')}.",
        f"Gate: {_rule(gate)}.",
    ]
    lines += needed_words(gate)
    known = f", {c.n_errors:,} of them errors" if c.n_errors is not None else ""
    lines.append(
        f"Calibrated on {c.n:,} rows{known}; seen on them at this gate, with intervals "
        f"of {c.confidence * 100:g}%:"
    )
    for name, rate in c.observed.items():
        lines.append(f"  {name:<9}{rate.percent()} %")
    lines += _group_lines(gate)
    lines += [] if gate.shortlist is None else _list_lines(gate.shortlist)
    lines += [f"- {line}" for line in (c.rule, c.assumption, *c.notes, *remarks)]
    for line in lines:
        console.print(line, highlight=False)
    console.print(f"Wrote {path}", highlight=False, soft_wrap=True)


def trivial_words(gate: Gate) -> str:
    """Say what a gate that decides nothing does, and why."""
    why = "" if gate.certificate is None else gate.certificate.trivial
    if gate.state != "threshold":
        return f"{gate.state.replace('-', ' ')}: {why}"
    seen = {} if gate.certificate is None else gate.certificate.observed
    every = "coverage" in seen and seen["coverage"].value == 1
    return f"{'accept' if every else 'reject'} all of these rows: many scores are tied"


def needed_words(gate: Gate) -> list[str]:
    """Say how often such a calibration succeeds, and when it mostly does."""
    looks = () if gate.certificate is None else gate.certificate.outlook
    if not looks:
        return []
    often = "; ".join(look.words() for look in looks)
    more = "" if len(looks) > 1 else ", and no number of rows that was tried is enough"
    return [f"Simulated: this promise can be made {often}{more}."]


def _promised(gate: Gate) -> str:
    if gate.certificate is None or not gate.certificate.guarantee:
        return "NO GUARANTEE"
    return "Promise, in each group that has one" if gate.groups else "Promise"


def _rule(gate: Gate) -> str:
    c = gate.certificate
    assert c is not None
    if gate.state != "threshold":
        return trivial_words(gate)
    ratio = f" (gamma {gate.gamma:.4g})" if gate.gamma is not None else ""
    where = " in groups not named below" if gate.groups else ""
    return f"reject where {gate.rejects(gate.threshold)}{ratio}{where}"


def _group_lines(gate: Gate, most: int = 20) -> list[str]:
    lines = []
    for name, own in list(gate.groups.items())[:most]:
        at = own.state.replace("-", " ")
        if own.state == "threshold":
            condition = gate.rejects(own.threshold)
            at = f"reject {condition.removeprefix(f'{gate.score_name} ')}"
        bare = "" if own.promised else ", no promise"
        rows = "row" if own.n == 1 else "rows"
        lines.append(f"  group {name}: {at} ({own.n:,} {rows}{bare})")
    if gate.groups:
        promised = sum(own.promised for own in gate.groups.values())
        none = sum(
            own.promised and own.state == "reject-all" for own in gate.groups.values()
        )
        kept = f"{promised} of {len(gate.groups)} groups have their own promise"
        kept += f", {none} of them by rejecting every row." if none else "."
        own_thresholds = len({own.threshold for own in gate.groups.values()}) > 1
        if not promised and own_thresholds:
            kept = f"{len(gate.groups)} groups have thresholds of their own."
        lines.append(kept)
    return lines


def _list_lines(short: Shortlist, most: int = 20) -> list[str]:
    """Say which classes are on the lists of rejected rows."""
    if not short.groups:
        said = _listed(short, short.rule)
        return [f"Lists: {said} (set by {short.rule.rows:,} rejected rows)."]
    lines = [
        f"  lists in group {name}: {_listed(short, rule)} ({rule.rows:,} rows)"
        for name, rule in list(short.groups.items())[:most]
    ]
    return [*lines, "Rows of other groups get a full review."]


def _listed(short: Shortlist, rule: ListRule) -> str:
    """Say which classes are on a list."""
    if rule.threshold == math.inf:
        return "every rejected row gets a full review"
    if rule.threshold == -math.inf:
        return "the predicted class alone"
    longest = "" if short.max_size is None else f", {short.max_size} at most"
    if short.method == "lac":
        least = math.exp(-rule.threshold)
        return f"every class of probability {least:.3g} or more{longest}"
    ranks = ""
    if short.method == "raps":
        ranks = f", each rank beyond {short.free} counting {short.penalty:g}"
    mass = f"{1 + rule.threshold:.6g}"
    return f"the most probable classes until they sum to over {mass}{ranks}{longest}"


def summarize_screened(gate: Gate, done: Outcome) -> dict[str, object]:
    """Return what a gate did, as plain values for JSON."""
    out: dict[str, object] = {
        "score": gate.score_name,
        "temperature": gate.temperature,
        "threshold": envelope.number(gate.threshold),
        "rows": done.rows,
        "accepted": done.accepted,
        "unlabelled": done.intake.unlabelled,
    }
    out |= asdict(done.counts) if done.counts is not None else {}
    if gate.shortlist is not None and done.lists is not None:
        out["lists"] = {"level": gate.shortlist.level, **asdict(done.lists)}
    return out


def _where(gate: Gate) -> str:
    if gate.groups:
        return f"at the thresholds of {len(gate.groups)} groups"
    if gate.state != "threshold":
        return f"({gate.state.replace('-', ' ')})"
    if gate.score_name == "confidence":
        return f"of {0 - gate.threshold:.4g} or more"
    return f"at threshold {gate.threshold:.4g}"


RATE_NAMES = {
    "risk": "errors among the accepted (risk)",
    "trr": "errors caught (TRR)",
    "frr": "correct predictions lost (FRR)",
}
"""What rates are called for people who do not know their abbreviations."""


def _promise_lines(gate: Gate) -> Iterator[str]:
    """Say what a gate promises, and where its labels were odd."""
    if gate.certificate is None:
        return
    promise = gate.certificate.promise()
    if gate.certificate.guarantee:
        where = ", in each group that has one" if gate.groups else ""
        yield f"the gate's promise{where}: {promise}"
    else:
        yield f"the gate promises nothing: {promise.removeprefix('no guarantee: ')}"
    yield from gate.certificate.odd_labels


def show_screened(console: Console, gate: Gate, done: Outcome) -> None:
    """Print what a gate accepted, and how well where labels tell."""
    console.print(
        f"Accepted {done.accepted:,} of {done.rows:,} predictions "
        f"({done.accepted / done.rows:.1%}) by {gate.score_name} {_where(gate)}.",
        highlight=False,
    )
    for line in _promise_lines(gate):
        console.print(f"  {line}", highlight=False)
    rates = done.rates()
    asked = () if gate.certificate is None else gate.certificate.target
    shown = dict(RATE_NAMES) | {n: n for n in asked if n not in RATE_NAMES}
    for name, words in shown.items():
        if name in rates:
            console.print(f"  {words:<33}{rates[name].percent()} %", highlight=False)
    if gate.shortlist is not None and done.lists is not None:
        line = f"{done.lists.words(gate.shortlist.level)}."
        console.print(line, highlight=False)
    lines = list(done.intake.lines())
    if done.classes is not None and gate.grouped_by != PREDICTED:
        lines += filter(None, [done.classes.neglected()])
    for line in lines:
        console.print(f"- {line}", highlight=False)
