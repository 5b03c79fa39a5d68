"""What the commands print: tables and sentences of at most 80 columns."""

import math
from collections.abc import Iterable, Iterator, Sequence
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
from trustdoctor.gates import (
    PREDICTED,
    Gate,
    ListCounts,
    ListRule,
    Outcome,
    Shortlist,
)
from trustdoctor.metrics import Estimate
from trustdoctor.opinion import COST_CONFIDENCE, PERSON, Cascade, Cascaded, Measured
from trustdoctor.report.cascade_page import (
    OPTIMISTIC,
    combined,
    cost_words,
    decimals,
    doubtful_gains,
    format_of_costs,
    list_steps,
    require_measured,
    short_name,
    with_decimals,
)
from trustdoctor.report.offers import NO_OFFER, make_opening
from trustdoctor.report.row_examples import finite
from trustdoctor.visible import visible
from trustdoctor.watch import RATE_NAMES

_COLUMNS = 80
_LONG_NAME = 13
"""Letters of a score's name that a table of 80 columns holds without being tight."""

_MOST_GROUPS = 20
_PRINTED_RATES = ("risk", "trr", "frr")


class _Terminal(Console):
    """A console that shows text as it is, and leaves a reader who went away to us."""

    def render_str(self, text: str, **options: Any) -> Text:
        """Return text without what would steer the terminal."""
        return super().render_str(visible(text), **options)

    def on_broken_pipe(self) -> None:
        """Raise: rich would end the program with exit code 1, which is an alarm."""
        raise BrokenPipeError


def make_console(*, quiet: bool, stderr: bool = False) -> Console:
    """Return a console of at most 80 columns; silent when quiet."""
    console = _Terminal(quiet=quiet, markup=False, stderr=stderr)
    console.width = min(console.width, _COLUMNS)
    return console


def _print(console: Console, lines: Iterable[str]) -> None:
    for line in lines:
        console.print(line, highlight=False)


def _bare_table(*titles: str, gap: int = 2) -> Table:
    table = Table(box=None, padding=(0, gap, 0, 0), header_style="bold")
    for title in titles:
        table.add_column(title, overflow="fold")
    return table


def show_evaluation(console: Console, evaluation: Evaluation) -> None:
    """Print an evaluation as a table and in words."""
    points, confidence = evaluation.settings.points, evaluation.settings.confidence
    rows = f"predictions over {evaluation.n_classes} classes"
    console.print(
        f"{evaluation.n:,} {rows if evaluation.n_classes else 'answers'}, "
        f"{evaluation.n_errors:,} wrong: accuracy {evaluation.accuracy.percent()} %",
        highlight=False,
    )
    gap = 2 if max(map(len, evaluation.scores)) <= _LONG_NAME else 1
    table = _bare_table("score", gap=gap)
    for title in ("AUROC", f"FRR@{points.trr * 100:g}TRR"):
        table.add_column(title, no_wrap=True)
    table.add_column(f"risk@{points.coverage * 100:g}coverage", no_wrap=True)
    for name, metrics in evaluation.scores.items():
        cells = (metrics[m] for m in ("auroc", "frr_at_trr", "risk_at_coverage"))
        table.add_row(name, *(cell.percent() for cell in cells))
    console.print()
    console.print(table)
    console.print()
    _print(console, (f"- {line}" for line in _explanation(evaluation)))
    console.print(
        f"\nIn %, with {confidence:.0%} intervals; a prediction is rejected when "
        f"its doubt is high. AUROC: how well doubt ranks errors above correct "
        f"predictions. FRR@{points.trr * 100:g}TRR: share of correct predictions lost "
        f"when {points.trr:.0%} of the errors are caught. "
        f"risk@{points.coverage * 100:g}coverage: errors left among the "
        f"{points.coverage:.0%} least doubtful.",
        highlight=False,
        style="dim",
    )


def _explanation(evaluation: Evaluation) -> Iterator[str]:
    yield from evaluation.odd_labels
    yield evaluation.verdict()
    yield from evaluation.warnings[len(evaluation.odd_labels) :]
    yield from _expected_gate(evaluation)
    name, metrics = next(iter(evaluation.scores.items()))
    frr = metrics["frr_at_trr"]
    if frr.value is None:
        yield "No interval can be given: all rows are right, or all are wrong."
        return
    yield (
        f"Catching {evaluation.settings.points.trr:.0%} of the errors by {name} costs "
        f"{frr.percent()} % of the correct predictions."
    )
    yield from _score_ranking(evaluation)
    yield from _reliability(evaluation)
    if evaluation.streamed:
        estimates = (e for m in evaluation.scores.values() for e in m.values())
        within = max(estimate.within for estimate in estimates)
        yield (
            "Rows were counted in ranges of scores, not kept: no figure is farther "
            f"than {within * 100:.1g} points from that of the rows themselves."
            if within
            else "Rows were counted, not kept; every figure is that of the rows."
        )
    notes = {estimate.note for estimate in metrics.values() if estimate.note}
    yield from (f"Careful, {note}." for note in sorted(notes))


def _expected_gate(evaluation: Evaluation) -> Iterator[str]:
    """Say what a gate from such rows would promise, and which errors it leaves."""
    if evaluation.predictions is None or not 0 < evaluation.n_errors < evaluation.n:
        return  # rows that were counted are not at hand
    if evaluation.odd_labels:
        yield NO_OFFER
        return
    doubts = finite(evaluation.doubts[next(iter(evaluation.scores))])
    errors = evaluation.predictions.errors
    offer = make_opening(doubts, errors, evaluation.clusters)
    clusters = ""
    if evaluation.clustered_by:
        clusters = f" One row of each {evaluation.clustered_by!r} makes it."
    yield f"{offer.headline} {offer.detail}{clusters}"
    if offer.coverage is not None:
        accepted = doubts <= np.quantile(doubts, offer.coverage, method="lower")
        confusion = DominantConfusion.of(evaluation.predictions, accepted)
        if confusion is not None:
            sentence = confusion.sentence()
            yield f"On these rows {sentence[0].lower()}{sentence[1:]}"


def _reliability(evaluation: Evaluation) -> Iterator[str]:
    """Say whether confidences are probabilities, if the rows have some."""
    if not evaluation.calibration:
        return
    confidence, accuracy = evaluation.calibration["confidence"], evaluation.accuracy
    assert confidence.value is not None
    assert accuracy.value is not None
    overconfident = confidence.value > accuracy.value
    word = "over-confident" if overconfident else "under-confident"
    if (accuracy.low or 0) <= confidence.value <= (accuracy.high or 1):
        word = "neither clearly over- nor under-confident"
    yield (
        f"The model is {word}: its {evaluation.stated_by} "
        f"claim {confidence.value:.1%} on average; it is right {accuracy.value:.1%} of "
        f"the time (ECE {evaluation.calibration['ece'].percent()} %)."
    )


def _score_ranking(evaluation: Evaluation) -> Iterator[str]:
    """Say which scores rank errors better or worse than msp."""
    if "msp" not in evaluation.scores or len(evaluation.scores) == 1:
        return
    better: list[str] = []
    worse: list[str] = []
    for difference in evaluation.differences:
        scores = (difference.first, difference.second)
        if difference.metric != "auroc" or "msp" not in scores:
            continue
        sign = _sign(difference) * (1 if difference.second == "msp" else -1)
        other = scores[0] if difference.second == "msp" else scores[1]
        if sign:
            (better if sign > 0 else worse).append(other)
    rankings = [
        f"{', '.join(names)} rank{'s' if len(names) == 1 else ''} errors {word}"
        for names, word in ((better, "better"), (worse, "worse"))
        if names
    ]
    test = "AUROC, not paired" if evaluation.streamed else "paired AUROC"
    if rankings:
        yield f"Against msp: {' and '.join(rankings)} ({test})."
    else:
        yield f"No score ranks errors clearly better or worse than msp ({test})."


def _sign(difference: Difference) -> int:
    """Return the sign of a difference; 0 if its interval holds 0 or is unknown."""
    if difference.low is None or difference.high is None:
        return 0
    return int(difference.low > 0) - int(difference.high < 0)


def show_comparison(console: Console, comparison: Comparison) -> None:
    """Print candidates, best first, and which to use."""
    console.print(f"{comparison.rows_sentence()}\n", highlight=False)
    against = f"against {comparison.baseline}"
    frr = f"FRR@{comparison.points.trr * 100:g}TRR"
    table = _bare_table("score", "passes", "AUROC", against, frr, "on rows")
    for candidate in comparison.candidates:
        is_baseline = candidate.name == comparison.baseline
        table.add_row(
            candidate.name,
            f"{candidate.passes:g}",
            f"{(candidate.auroc.value or 0) * 100:.2f}",
            "" if is_baseline else candidate.auroc_gain.percent(sign=True),
            f"{(candidate.frr_at_trr.value or 0) * 100:.2f}",
            f"{candidate.n:,}",
        )
    console.print(table)
    console.print(f"\n{comparison.verdict()}", highlight=False)
    _print(console, (f"- {warning}" for warning in comparison.warnings))
    _print(console, (f"- left out, {reason}" for reason in comparison.skipped))
    console.print(
        f"\nIn %. Against {comparison.baseline}: AUROC more or less on the same rows, "
        f"with intervals that hold all together at {comparison.confidence:.0%}.",
        highlight=False,
        style="dim",
    )


def show_gate(
    console: Console, gate: Gate, path: Path, remarks: Sequence[str] = ()
) -> None:
    """Print a calibrated gate, its certificate, and what else to know."""
    certificate = gate.certificate
    assert certificate is not None
    errors = ""
    if certificate.n_errors is not None:
        errors = f", {certificate.n_errors:,} of them errors"
    notes = (certificate.rule, certificate.assumption, *certificate.notes, *remarks)
    lines = [
        f"{_promise_title(gate)}: {certificate.promise().removeprefix(_UNPROMISED)}.",
        f"Gate: {_reject_rule(gate)}.",
        *needed_words(gate),
        f"Calibrated on {certificate.n:,} rows{errors}; seen on them at this gate, "
        f"with intervals of {certificate.confidence * 100:g}%:",
        *(f"  {name:<9}{r.percent()} %" for name, r in certificate.observed.items()),
        *_group_lines(gate),
        *([] if gate.shortlist is None else _shortlist_lines(gate.shortlist)),
        *(f"- {note}" for note in notes),
    ]
    _print(console, lines)
    console.print(f"Wrote {path}", highlight=False, soft_wrap=True)


_UNPROMISED = "no guarantee: "


def trivial_words(gate: Gate) -> str:
    """Say what a gate that decides nothing does, and why."""
    certificate = gate.certificate
    if gate.state != "threshold":
        reason = "" if certificate is None else certificate.trivial
        return f"{gate.state.replace('-', ' ')}: {reason}"
    observed = {} if certificate is None else certificate.observed
    accepts = "coverage" in observed and observed["coverage"].value == 1
    verb = "accept" if accepts else "reject"
    return f"{verb} all of these rows: many scores are tied"


def needed_words(gate: Gate) -> list[str]:
    """Say how often such a calibration succeeds, and when it mostly does."""
    outlooks = () if gate.certificate is None else gate.certificate.outlook
    if not outlooks:
        return []
    words = "; ".join(outlook.words() for outlook in outlooks)
    if len(outlooks) == 1:
        words += ", and no number of rows that was tried is enough"
    return [f"Simulated: this promise can be made {words}."]


def _promise_title(gate: Gate) -> str:
    if gate.certificate is None or not gate.certificate.guarantee:
        return "NO GUARANTEE"
    return "Promise, in each group that has one" if gate.groups else "Promise"


def _reject_rule(gate: Gate) -> str:
    assert gate.certificate is not None
    if gate.state != "threshold":
        return trivial_words(gate)
    gamma = f" (gamma {gate.gamma:.4g})" if gate.gamma is not None else ""
    groups = " in groups not named below" if gate.groups else ""
    return f"reject where {gate.rejects(gate.threshold)}{gamma}{groups}"


def _group_lines(gate: Gate) -> Iterator[str]:
    for name, group in list(gate.groups.items())[:_MOST_GROUPS]:
        unpromised = "" if group.promised else ", no promise"
        rows = "row" if group.n == 1 else "rows"
        rule = _group_rule(gate, group.state, group.threshold)
        yield f"  group {name}: {rule} ({group.n:,} {rows}{unpromised})"
    if not gate.groups:
        return
    groups = gate.groups.values()
    promised = [group for group in groups if group.promised]
    if not promised and len({group.threshold for group in groups}) > 1:
        yield f"{len(groups)} groups have thresholds of their own."
        return
    trivial = sum(group.state == "reject-all" for group in promised)
    by_rejecting = f", {trivial} of them by rejecting every row" if trivial else ""
    yield (
        f"{len(promised)} of {len(groups)} groups have their own promise{by_rejecting}."
    )


def _group_rule(gate: Gate, state: str, threshold: float) -> str:
    if state != "threshold":
        return state.replace("-", " ")
    # The score is named once, for all groups.
    return f"reject {gate.rejects(threshold).removeprefix(f'{gate.score_name} ')}"


def _shortlist_lines(shortlist: Shortlist) -> list[str]:
    """Say which classes are on the lists of rejected rows."""
    if not shortlist.groups:
        rule = shortlist.rule
        words = _list_rule_words(shortlist, rule)
        return [f"Lists: {words} (set by {rule.rows:,} rejected rows)."]
    lines = [
        f"  lists in group {name}: {_list_rule_words(shortlist, rule)} "
        f"({rule.rows:,} rows)"
        for name, rule in list(shortlist.groups.items())[:_MOST_GROUPS]
    ]
    return [*lines, "Rows of other groups get a full review."]


def _list_rule_words(shortlist: Shortlist, rule: ListRule) -> str:
    """Say which classes are on a list."""
    if rule.threshold == math.inf:
        return "every rejected row gets a full review"
    if rule.threshold == -math.inf:
        return "the predicted class alone"
    longest = "" if shortlist.max_size is None else f", {shortlist.max_size} at most"
    if shortlist.method == "lac":
        least = math.exp(-rule.threshold)
        return f"every class of probability {least:.3g} or more{longest}"
    ranks = ""
    if shortlist.method == "raps":
        ranks = f", each rank beyond {shortlist.free} counting {shortlist.penalty:g}"
    mass = f"{1 + rule.threshold:.6g}"
    return f"the most probable classes until they sum to over {mass}{ranks}{longest}"


def summarize_screened(gate: Gate, outcome: Outcome) -> dict[str, object]:
    """Return what a gate did, as plain values for JSON."""
    summary: dict[str, object] = {
        "score": gate.score_name,
        "temperature": gate.temperature,
        "threshold": envelope.number(gate.threshold),
        "rows": outcome.rows,
        "accepted": outcome.accepted,
        "unlabelled": outcome.intake.unlabelled,
    }
    summary |= asdict(outcome.counts) if outcome.counts is not None else {}
    if gate.shortlist is not None and outcome.lists is not None:
        summary["lists"] = {"level": gate.shortlist.level, **asdict(outcome.lists)}
    return summary


def show_screened(console: Console, gate: Gate, outcome: Outcome) -> None:
    """Print what a gate accepted, and how well if labels tell."""
    share = outcome.accepted / outcome.rows
    lines = [
        f"Accepted {outcome.accepted:,} of {outcome.rows:,} predictions ({share:.1%}) "
        f"by {gate.score_name} {_threshold_words(gate)}.",
        *_gate_promise_lines(gate),
    ]
    targets = () if gate.certificate is None else gate.certificate.target
    lines += _rate_lines(outcome.rates(), targets)
    if gate.shortlist is not None and outcome.lists is not None:
        lines.append(f"{outcome.lists.words(gate.shortlist.level)}.")
    lines += [f"- {line}" for line in outcome.intake.lines()]
    if outcome.classes is not None and gate.grouped_by != PREDICTED:
        neglected = outcome.classes.neglected()
        lines += [f"- {neglected}"] if neglected else []
    _print(console, lines)


def _threshold_words(gate: Gate) -> str:
    if gate.groups:
        return f"at the thresholds of {len(gate.groups)} groups"
    if gate.state != "threshold":
        return f"({gate.state.replace('-', ' ')})"
    if gate.score_name == "confidence":
        return f"of {0 - gate.threshold:.4g} or more"
    return f"at threshold {gate.threshold:.4g}"


def _gate_promise_lines(gate: Gate) -> Iterator[str]:
    """Say what a gate promises, and whether its labels were odd."""
    if gate.certificate is None:
        return
    promise = gate.certificate.promise()
    if gate.certificate.guarantee:
        groups = ", in each group that has one" if gate.groups else ""
        yield f"  the gate's promise{groups}: {promise}"
    else:
        yield f"  the gate promises nothing: {promise.removeprefix(_UNPROMISED)}"
    yield from (f"  {line}" for line in gate.certificate.odd_labels)


def _rate_lines(rates: dict[str, Estimate], targets: Iterable[str]) -> Iterator[str]:
    """Show the usual rates, and those that a certificate is about."""
    names = {name: RATE_NAMES[name] for name in _PRINTED_RATES}
    names |= {name: name for name in targets if name not in names}
    for name, words in names.items():
        if name in rates:
            yield f"  {words:<33}{rates[name].percent()} %"


def show_cascade(console: Console, cascade: Cascade, path: Path) -> None:
    """Print a calibrated cascade, what it costs against each model, its certificate."""
    measured, certificate = require_measured(cascade)
    console.print(f"Promise: {certificate.promise()}.\n", highlight=False)
    console.print(_stage_table(cascade))
    console.print()
    console.print(_cost_table(measured))
    console.print(
        f"\nMeasured on {measured.rows:,} rows, with intervals of "
        f"{COST_CONFIDENCE * 100:g}%. Each model alone has a gate for the same "
        f"promise, set by all rows. {OPTIMISTIC}",
        highlight=False,
        style="dim",
    )
    notes = (
        *doubtful_gains(measured),
        *combined(cascade),
        certificate.rule,
        certificate.assumption,
        *certificate.notes,
    )
    _print(console, (f"- {note}" for note in notes))
    console.print(f"Wrote {path}", highlight=False, soft_wrap=True)


def _stage_table(cascade: Cascade) -> Table:
    """Return where rows stop, and who is asked how often."""
    table = _bare_table("stage", "a row stops where", "asked about", "stop there")
    for step in list_steps(cascade):
        table.add_row(step.name, step.rule, f"{step.asked:.1%}", f"{step.stops:.1%}")
    return table


def _cost_table(measured: Measured) -> Table:
    """Return what the cascade costs, and each model alone."""
    cost_format = format_of_costs(measured)
    rate = {"risk": "risk", "joint": "joint", "trr": "1 - TRR"}[measured.target]
    titles = ("who answers", "cost per row", "more than the cascade", PERSON)
    table = _bare_table(*titles, f"{rate}, %")
    for model in (measured.whole, *measured.alone):
        is_cascade = model is measured.whole
        table.add_row(
            "cascade" if is_cascade else f"{short_name(model.name)} alone",
            cost_words(model.cost, cost_format),
            cost_words(model.more, cost_format, sign=True),
            f"{model.person:.1%}",
            f"{model.rate * 100:.2f}" if model.person < 1 else "-",
        )
    return table


def show_cascaded(console: Console, cascade: Cascade, cascaded: Cascaded) -> None:
    """Print what a cascade accepted, at what cost, and how well if labels tell."""
    _print(console, _cascaded_lines(cascade, cascaded))


def _cascaded_lines(cascade: Cascade, cascaded: Cascaded) -> Iterator[str]:
    n_rows, n_accepted = len(cascaded.accepted), int(cascaded.accepted.sum())
    counts = _stage_counts(cascade, cascaded)
    by_stage = ", ".join(f"{n:,} by {short_name(name)}" for name, _, n in counts)
    next_stage, n_left = _next_stage(cascaded)
    is_over = next_stage == PERSON
    cost = _mean_cost(cascaded)
    yield (
        f"Accepted {n_accepted:,} of {n_rows:,} answers "
        f"({n_accepted / max(n_rows, 1):.1%}){f': {by_stage}' if by_stage else ''}; "
        f"{n_left:,} {'goes' if n_left == 1 else 'go'} "
        f"{'' if is_over else 'on '}to {short_name(next_stage)}. Cost "
        f"{cost:{with_decimals(decimals(cost))}} per row{'' if is_over else ' so far'}."
    )
    for name, n_asked, _ in counts[1:]:
        share = n_asked / n_rows
        yield f"  {short_name(name)} was asked about {n_asked:,} ({share:.1%})"
    outcome = Outcome.of_predictions(cascaded.predictions, cascaded.accepted)
    yield from _cascade_promise_lines(cascade, outcome, is_over=is_over)
    if cascade.shortlist is not None and cascaded.shortlist is not None:
        lists = ListCounts.of(cascaded.predictions, cascaded.shortlist)
        if lists.rows:
            yield f"{lists.words(cascade.shortlist.level)}."
    yield from (f"- {line}" for line in outcome.intake.lines())


def _stage_counts(cascade: Cascade, cascaded: Cascaded) -> list[tuple[str, int, int]]:
    """Return each stage that was asked: about how many rows, how many it accepted."""
    counts = []
    for place, k in enumerate(cascade.asked, start=1):
        n_asked = int((cascaded.passes >= place).sum())
        if n_asked:
            n_accepted = int((cascaded.accepted & (cascaded.passes == place)).sum())
            counts.append((cascade.stages[k], n_asked, n_accepted))
    return counts


def _next_stage(cascaded: Cascaded) -> tuple[str, int]:
    """Return where rows that are not accepted go, and how many."""
    destinations = cascaded.goes_to[~cascaded.accepted]
    stage = str(destinations[0]) if len(destinations) else PERSON
    return stage, len(destinations)


def _cascade_promise_lines(
    cascade: Cascade, outcome: Outcome, *, is_over: bool
) -> Iterator[str]:
    """Say what is promised, and what was seen; of rows on their way risk alone."""
    certificate, rates = cascade.certificate, outcome.rates()
    if certificate is not None:
        when = "" if is_over else ", when all stages were asked"
        yield f"  the cascade's promise{when}: {certificate.promise()}"
    if is_over:
        targets = () if certificate is None else certificate.target
        yield from _rate_lines(rates, targets)
    elif "risk" in rates:  # rows that go on are neither caught nor lost
        yield f"  {RATE_NAMES['risk']} so far {rates['risk'].percent()} %"


def _mean_cost(cascaded: Cascaded) -> float:
    return float(cascaded.costs.mean()) if len(cascaded.costs) else 0.0


def summarize_cascaded(cascade: Cascade, cascaded: Cascaded) -> dict[str, object]:
    """Return what a cascade did, as plain values for JSON.

    Examples
    --------
    >>> import numpy as np
    >>> small = np.array([[4.0, 0.0], [0.2, 0.0], [0.1, 0.0]])
    >>> large = np.array([[4.0, 0.0], [0.0, 5.0], [0.0, 0.1]])
    >>> two = Cascade(("small", "large"), (-2.0, -1.0), (0.0, 1.0, 10.0), "beta")
    >>> summary = summarize_cascaded(two, two.screen([small, large]))
    >>> summary["accepted"], summary["goes_to"], summary["cost"]
    (2, {'a person': 1}, 4.0)
    """
    outcome = Outcome.of_predictions(cascaded.predictions, cascaded.accepted)
    thresholds = dict(zip(cascade.stages, cascade.thresholds, strict=True))
    next_stage, n_left = _next_stage(cascaded)
    summary: dict[str, Any] = {
        "score": cascade.score,
        "rows": outcome.rows,
        "accepted": outcome.accepted,
        "unlabelled": outcome.intake.unlabelled,
        "cost": _mean_cost(cascaded),
        "stages": [
            {
                "name": name,
                "threshold": envelope.number(thresholds[name]),
                "asked": n_asked,
                "accepted": n_accepted,
            }
            for name, n_asked, n_accepted in _stage_counts(cascade, cascaded)
        ],
        "goes_to": {next_stage: n_left} if n_left else {},
    }
    if outcome.counts is not None:
        summary |= asdict(outcome.counts)
    if cascaded.shortlist is not None:
        lists = ListCounts.of(cascaded.predictions, cascaded.shortlist)
        summary["shortlist"] = asdict(lists)
    return summary
