"""What the commands print of a cascade, in at most 80 columns."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from trustdoctor import envelope
from trustdoctor.gates import ListCounts, Outcome
from trustdoctor.opinion import COST_CONFIDENCE, PERSON, Cascade, Cascaded, Measured
from trustdoctor.report.cascade_words import (
    OPTIMISTIC,
    combined,
    cost_form,
    cost_words,
    decimals,
    digits_form,
    doubtful_gains,
    list_steps,
    require_measured,
    short_name,
)
from trustdoctor.report.text import RATE_NAMES


def show_cascade(console: Console, cascade: Cascade, path: Path) -> None:
    """Print a calibrated cascade, what it costs against each model, its certificate."""
    seen, c = require_measured(cascade)
    console.print(f"Promise: {c.promise()}.\n", highlight=False)
    console.print(_stages(cascade))
    console.print()
    console.print(_costs(seen))
    console.print(
        f"\nMeasured on {seen.rows:,} rows, with intervals of "
        f"{COST_CONFIDENCE * 100:g}%. Each model alone has a gate for the same "
        f"promise, set by all rows. {OPTIMISTIC}",
        highlight=False,
        style="dim",
    )
    notes = (*doubtful_gains(seen), *combined(cascade), c.rule, c.assumption, *c.notes)
    for note in notes:
        console.print(f"- {note}", highlight=False)
    console.print(f"Wrote {path}", highlight=False, soft_wrap=True)


def _stages(cascade: Cascade) -> Table:
    """Return where rows stop, and who is asked how often."""
    table = _bare_table("stage", "a row stops where", "asked about", "stop there")
    for step in list_steps(cascade):
        table.add_row(step.name, step.rule, f"{step.asked:.1%}", f"{step.stops:.1%}")
    return table


def _bare_table(*titles: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for title in titles:
        table.add_column(title, overflow="fold")
    return table


def _costs(seen: Measured) -> Table:
    """Return what the cascade costs, and each model alone."""
    form = cost_form(seen)
    rate = {"risk": "risk", "joint": "joint", "trr": "1 - TRR"}[seen.target]
    titles = ("who answers", "cost per row", "more than the cascade", PERSON)
    table = _bare_table(*titles, f"{rate}, %")
    for one in (seen.whole, *seen.alone):
        alone = one is not seen.whole
        table.add_row(
            f"{short_name(one.name)} alone" if alone else "cascade",
            cost_words(one.cost, form),
            cost_words(one.more, form, sign=True),
            f"{one.person:.1%}",
            f"{one.rate * 100:.2f}" if one.person < 1 else "-",
        )
    return table


def _settled(cascade: Cascade, done: Cascaded) -> list[tuple[str, int, int]]:
    """Return each stage that was asked: about how many rows, how many it settled."""
    out = []
    for i, k in enumerate(cascade.asked, start=1):
        came = int((done.passes >= i).sum())
        if came:
            own = int((done.accepted & (done.passes == i)).sum())
            out.append((cascade.stages[k], came, own))
    return out


def _goes_to(done: Cascaded) -> tuple[str, int]:
    """Return where rows that are not accepted go, and how many."""
    left = done.goes_to[~done.accepted]
    return (str(left[0]) if len(left) else PERSON), len(left)


def show_cascaded(console: Console, cascade: Cascade, done: Cascaded) -> None:
    """Print what a cascade accepted, at what cost, and how well where labels tell."""
    for line in _cascaded_lines(cascade, done):
        console.print(line, highlight=False)


def _cascaded_lines(cascade: Cascade, done: Cascaded) -> Iterator[str]:
    rows, accepted = len(done.accepted), int(done.accepted.sum())
    settled = _settled(cascade, done)
    by = ", ".join(f"{own:,} by {short_name(name)}" for name, _, own in settled)
    where, left = _goes_to(done)
    over = where == PERSON
    cost = _mean_cost(done)
    yield (
        f"Accepted {accepted:,} of {rows:,} answers ({accepted / max(rows, 1):.1%})"
        f"{f': {by}' if by else ''}; {left:,} {'goes' if left == 1 else 'go'} "
        f"{'' if over else 'on '}to {short_name(where)}. Cost "
        f"{cost:{digits_form(decimals(cost))}} per row{'' if over else ' so far'}."
    )
    for name, came, _ in settled[1:]:
        yield f"  {short_name(name)} was asked about {came:,} ({came / rows:.1%})"
    outcome = Outcome.of_predictions(done.predictions, done.accepted)
    yield from _promise_lines(cascade, outcome, over=over)
    if cascade.shortlist is not None and done.shortlist is not None:
        lists = ListCounts.of(done.predictions, done.shortlist)
        if lists.rows:
            yield f"{lists.words(cascade.shortlist.level)}."
    yield from (f"- {line}" for line in outcome.intake.lines())


def _promise_lines(cascade: Cascade, outcome: Outcome, *, over: bool) -> Iterator[str]:
    """Say what is promised, and what was seen; of rows on their way risk alone."""
    c = cascade.certificate
    if c is not None:
        when = "" if over else ", when all stages were asked"
        yield f"  the cascade's promise{when}: {c.promise()}"
    rates = outcome.rates()
    asked = () if c is None else tuple(c.target)
    shown = RATE_NAMES | {name: name for name in asked if name not in RATE_NAMES}
    if not over:  # rows that go on are neither caught nor lost
        shown = {"risk": f"{RATE_NAMES['risk']} so far"}
    for name, words in shown.items():
        if name in rates:
            yield f"  {words:<33} {rates[name].percent()} %"


def _mean_cost(done: Cascaded) -> float:
    return float(done.costs.mean()) if len(done.costs) else 0.0


def summarize_cascaded(cascade: Cascade, done: Cascaded) -> dict[str, object]:
    """Return what a cascade did, as plain values for JSON.

    Examples
    --------
    >>> import numpy as np
    >>> small = np.array([[4.0, 0.0], [0.2, 0.0], [0.1, 0.0]])
    >>> large = np.array([[4.0, 0.0], [0.0, 5.0], [0.0, 0.1]])
    >>> two = Cascade(("small", "large"), (-2.0, -1.0), (0.0, 1.0, 10.0), "beta")
    >>> found = summarize_cascaded(two, two.screen([small, large]))
    >>> found["accepted"], found["goes_to"], found["cost"]
    (2, {'a person': 1}, 4.0)
    """
    outcome = Outcome.of_predictions(done.predictions, done.accepted)
    at = dict(zip(cascade.stages, cascade.thresholds, strict=True))
    where, left = _goes_to(done)
    out: dict[str, Any] = {
        "score": cascade.score,
        "rows": outcome.rows,
        "accepted": outcome.accepted,
        "unlabelled": outcome.intake.unlabelled,
        "cost": _mean_cost(done),
        "stages": [
            {
                "name": name,
                "threshold": envelope.number(at[name]),
                "asked": came,
                "accepted": own,
            }
            for name, came, own in _settled(cascade, done)
        ],
        "goes_to": {where: left} if left else {},
    }
    if outcome.counts is not None:
        out |= asdict(outcome.counts)
    if done.shortlist is not None:
        out["shortlist"] = asdict(ListCounts.of(done.predictions, done.shortlist))
    return out
