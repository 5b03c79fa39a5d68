"""What can be done with files, once for all engines: diagnose, calibrate, screen.

Rows that fit into the memory are read at once where that is better; otherwise an
engine folds or maps them batch by batch. Decisions and scores are the same either way.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from trustdoctor.arrays import Array
from trustdoctor.engines.contract import SHORTLIST, Added, Engine
from trustdoctor.engines.local import LocalEngine
from trustdoctor.engines.memory import fits, parse_memory, require_fitting
from trustdoctor.engines.shared_values import load_checked, sampled_warnings
from trustdoctor.errors import FileError, InputError
from trustdoctor.evaluation import DEFAULT_SCORES, Evaluation, Tally, evaluate
from trustdoctor.files import (
    Journal,
    Source,
    check_output,
    check_outside,
    find_format,
    plan_targets,
    warn_of_answers,
)
from trustdoctor.gates import (
    AUTO,
    NO_OUTCOME,
    CalibrationSketch,
    Gate,
    ListCounts,
    Outcome,
    ShortlistSketch,
    describe_lists,
    find_reference_set,
    is_order_statistic,
    make_requests,
    remarks,
    require_scoring_gate,
    run_calibration,
    shortlist_options,
    uncalibrated_shortlist,
)
from trustdoctor.gates import shortlist as set_lists
from trustdoctor.predictions import Predictions
from trustdoctor.progress import Pace, Tell
from trustdoctor.scores import Score, find_score


@dataclass(frozen=True)
class Means:
    """What a verb runs on.

    Attributes
    ----------
    engine : Engine
    memory : int
        Bytes to stay within.
    progress : callable, or None
        Told the share done and the pace.
    """

    engine: Engine
    memory: int
    progress: Tell | None = None

    @classmethod
    def here(cls) -> "Means":
        """Return this machine, and half of its free memory."""
        return cls(LocalEngine(), parse_memory(None))

    def pace(self, what: str, source: Source) -> Pace:
        """Return what tells how many rows are done."""
        return Pace(self.progress, f"{what} {source.name}", source.about_rows)

    def tell(self, share: float, what: str) -> None:
        """Say what is being done."""
        if self.progress is not None:
            self.progress(share, what)

    def reads(self, source: Source, scores: int = 0) -> bool:
        """Say whether all rows are to be read at once."""
        return self.engine.in_memory and fits(source, self.memory, scores=scores)


def diagnose(
    source: Source,
    *,
    scores: Sequence[str | Score] | None = None,
    temperature: float = 1.0,
    means: Means | None = None,
) -> Evaluation:
    """Measure how far labelled predictions can be trusted.

    Where they do not fit into the memory, rows are counted in ranges of scores.
    """
    means = means or Means.here()
    source.require_labels("diagnose")
    if means.reads(source, len(scores or DEFAULT_SCORES)):
        return _diagnose_read(
            source, scores=scores, temperature=temperature, progress=means.progress
        ).evaluation
    tally = Tally(scores, temperature=temperature)
    counted = _folded(source, tally, means)
    means.tell(1.0, "measuring")
    evaluation = counted.evaluate()
    warnings = (
        *evaluation.warnings,
        *sampled_warnings(source),
        *warn_of_answers(source),
    )
    return replace(evaluation, warnings=warnings)


class Diagnosis(NamedTuple):
    """An evaluation of rows that were read at once, the rows, and their columns.

    Attributes
    ----------
    evaluation : Evaluation
    predictions : Predictions
    table : DataFrame
        The columns that predictions are made of, and those that were named.
    """

    evaluation: Evaluation
    predictions: Predictions
    table: pl.DataFrame


def diagnose_rows(
    source: Source,
    *columns: str,
    scores: Sequence[str | Score] | None = None,
    temperature: float = 1.0,
    means: Means | None = None,
) -> Diagnosis:
    """Diagnose rows, and return them and some columns, too, for a page that shows them.

    They must fit into the memory.
    """
    means = means or Means.here()
    _require_reading(source, means, "a page")
    source.require_labels("diagnose")
    return _diagnose_read(
        source,
        *columns,
        scores=scores,
        temperature=temperature,
        progress=means.progress,
    )


def _diagnose_read(source: Source, *columns: str, **options: Any) -> Diagnosis:
    """Read all rows at once and measure them; options as in `evaluate`."""
    predictions, table, clusters = load_checked(source, *columns)
    evaluation = evaluate(predictions, **options)
    warnings = (*evaluation.warnings, *clusters.lines, *warn_of_answers(source))
    evaluation = replace(evaluation, warnings=warnings)
    # calibrate refuses a row without a cluster, so no such gate can be offered.
    if clusters.column and not table[clusters.column].null_count():
        row_clusters = _clusters(table[clusters.column])
        rows = evaluation.labelled_rows
        row_clusters = row_clusters if rows is None else row_clusters[rows]
        evaluation = replace(
            evaluation, clustered_by=clusters.column, clusters=row_clusters
        )
    return Diagnosis(evaluation, predictions, table)


def calibrate_files(  # noqa: PLR0913 - what a calibration is made of
    source: Source,
    *,
    score: str | Score | None = None,
    temperature: float = 1.0,
    groups: str | None = None,
    clusters: str | None = None,
    seed: int = 0,
    shortlist: Any = None,
    means: Means | None = None,
    remark: Callable[[str], object] | None = None,
    **options: Any,
) -> Gate:
    """Calibrate on all rows of some files; options as in `calibrate`.

    `clusters` names the column of clusters; rows are then read at once, and so they are
    for a `shortlist` where the same rows cannot set the gate and its lists.

    `remark` is told what else to know: what would do better on these rows where the
    gate decides nothing, which score ranks their errors clearly better, and how long
    lists are.
    """
    means = means or Means.here()
    requests = make_requests(**options)
    labelled = requests[0].needs_labels
    target_names = " and ".join(requests[0].target)
    if labelled:
        source.require_labels(target_names)
    own = None if shortlist is None else _wanted(source, shortlist)
    at_once = "--score auto" if score == AUTO else "--clusters" if clusters else ""
    is_by_rank = len(requests) == 1 and is_order_statistic(requests[0].target)
    if own and (groups or not is_by_rank):
        at_once = at_once or f"--shortlist for {'groups' if groups else target_names}"
    if at_once:
        _require_reading(source, means, at_once, OTHERWISE if own else "")
    if at_once or means.reads(source):
        p, row_clusters, notes = _read_clustered(source, clusters, labelled=labelled)
        means.tell(0.5, "calibrating")
        calibration = run_calibration(
            p,
            requests,
            score=score,
            temperature=temperature,
            groups=groups,
            clusters=row_clusters,
            seed=seed,
            shortlist=own,
        )
        _tell(remark, remarks(calibration))
        if own is not None:
            _tell(remark, (_sizes(calibration.gate, p),))
        return calibration.gate.with_notes(*notes)
    ready = find_score(score or source.scores[0], temperature=temperature)
    state = CalibrationSketch(ready, groups or "", needs_labels=labelled)
    counted = _folded(source, state, means)
    means.tell(1.0, "calibrating")
    calibration = counted.run_calibration(requests)
    gate: Gate = calibration.gate
    if labelled:
        gate = gate.with_notes(*sampled_warnings(source))
    _tell(remark, remarks(calibration))
    return gate if own is None else _fold_lists(source, gate, own, means, counted)


def _read_clustered(
    source: Source, clusters: str | None, *, labelled: bool
) -> tuple[Predictions, Array | None, tuple[str, ...]]:
    """Read all rows, their clusters, and what to say where no column names these."""
    if clusters is not None:
        predictions, table = source.load(clusters)
        return predictions, _clusters(table[clusters]), ()
    if not labelled:
        return source.read(), None, ()
    predictions, _, found = load_checked(source)
    return predictions, None, found.lines


def _tell(remark: Callable[[str], object] | None, lines: Iterable[str]) -> None:
    """Hand lines to `remark`, if anybody listens; else they are not even computed."""
    if remark is not None:
        for line in lines:
            remark(line)


def _sizes(gate: Gate, predictions: Predictions) -> str:
    """Say how long lists are on the rows of the calibration."""
    lists = gate.screen(predictions).shortlist
    assert lists is not None
    return f"{ListCounts.of(predictions, lists).words(scope=' of this file')}."


def list_files(
    source: Source,
    gate: Gate,
    shortlist: Any,
    *,
    means: Means | None = None,
    remark: Callable[[str], object] | None = None,
) -> Gate:
    """Give a gate lists, set by all rows of some files; options as in `shortlist`.

    `remark` is told how long they are, where the rows were read at once.
    """
    means, own = means or Means.here(), _wanted(source, shortlist)
    require_scoring_gate(gate)
    if not means.reads(source):
        return _fold_lists(source, gate, own, means)
    p = source.read()
    means.tell(0.5, "calibrating")
    listed = set_lists(gate, p, **own)
    if remark is not None:
        remark(_sizes(listed, p))
    return listed


def _wanted(source: Source, shortlist: Any) -> dict[str, Any]:
    """Return the options of lists, checked before any row is read."""
    own = shortlist_options(shortlist)
    uncalibrated_shortlist(2, **own)
    source.require_labels("a shortlist")
    return own


def _fold_lists(
    source: Source,
    gate: Gate,
    own: dict[str, Any],
    means: Means,
    counted: CalibrationSketch | None = None,
) -> Gate:
    """Set lists by rows that are counted; `counted` are those that set the gate."""
    if counted is not None and not counted.pooled.labelled:
        message = f"some rows have no label, so they cannot set the lists.{OTHERWISE}"
        raise InputError(message)
    reference_set = (
        None
        if counted is None
        else find_reference_set(gate, counted.pooled.tied(counted.score.rounding))
    )
    found = _folded(source, ShortlistSketch(gate, own, reference_set), means)
    if reference_set is None and found.are_gate_rows:
        every = CalibrationSketch(gate.scorer, needs_labels=True)
        return _fold_lists(source, gate, own, means, _folded(source, every, means))
    listed: Gate = found.calibrate()
    return listed


OTHERWISE = (
    " Or calibrate without --shortlist, and let other rows set the lists: calibrate "
    "OTHER --gate GATE --shortlist RATE."
)
"""What else can be done where rows cannot set a gate and its lists at once."""


def _require_reading(
    source: Source, means: Means, what: str, otherwise: str = ""
) -> None:
    """Refuse what needs all rows where they cannot be read at once."""
    if not means.engine.in_memory:
        message = (
            f"{what} needs all rows at once, and another engine counts them: use "
            f"--engine local, or leave it out.{otherwise}"
        )
        raise InputError(message)
    require_fitting(source, means.memory, what, otherwise)


def _clusters(column: pl.Series) -> Array:
    """Return the clusters of rows, as text unless they are whole numbers."""
    if column.null_count():
        row = int(column.is_null().arg_max() or 0)
        message = f"column {column.name!r} has no cluster at row {row}. Give it one."
        raise InputError(message)
    if column.dtype.is_integer():
        return column.to_numpy()
    return column.cast(pl.String).to_numpy().astype(str)


def _folded(source: Source, state: Any, means: Means) -> Any:
    source = means.engine.check(source)
    require_rows(source)
    pace = means.pace("reading", source)
    return means.engine.fold(source, state, memory=means.memory, pace=pace)


@dataclass(frozen=True)
class BatchScreen:
    """A gate as a function of batches, which engines map.

    Attributes
    ----------
    gate : Gate
    own : bool
        Whether the rows have a column `predicted` of their own, which is kept.
    """

    gate: Gate
    own: bool = False

    @property
    def listed(self) -> bool:
        """Whether rejected rows get lists."""
        return self.gate.shortlist is not None

    def __call__(self, predictions: Predictions) -> tuple[Added, Outcome]:
        """Return the columns that are added to the rows, and what was counted.

        `predicted` (the class's name where it has one), `score` and `accepted`; of a
        language model's responses their ids, too; and `shortlist`, as text, where the
        gate has one.
        """
        done = self.gate.screen(predictions)
        added: Added = {}
        if predictions.ambiguous is not None:
            assert predictions.ids is not None
            added["id"] = np.array([i or "" for i in predictions.ids], str)
        names = None if self.own else predictions.predicted_names
        if names is not None:
            added["predicted"] = names.astype(str) if names.dtype == object else names
        added |= {"score": done.scores, "accepted": done.accepted}
        if done.shortlist is not None:
            added[SHORTLIST] = describe_lists(done.shortlist, predictions)
        outcome = Outcome.of_predictions(predictions, done.accepted, done.shortlist)
        if self.gate.groups:
            known = np.isin(self.gate.groups_of(predictions), list(self.gate.groups))
            intake = replace(outcome.intake, unknown_groups=int((~known).sum()))
            outcome = replace(outcome, intake=intake)
        return added, outcome


def screen(  # noqa: PLR0913 - options, by keyword only
    source: Source,
    gate: Gate,
    output: Path | None,
    *,
    only: str | None = None,
    resume: bool = False,
    means: Means | None = None,
) -> Outcome:
    """Decide on every row, and write them with `predicted`, `score`, `accepted` added.

    A gate with a shortlist adds `shortlist`, the classes that a rejected row may be.
    Into a file all rows go in their order. Into a folder (a path without a suffix)
    each input file goes by itself, under its own name.

    Parameters
    ----------
    source : Source
    gate : Gate
    output : Path, optional
        Its suffix says the format.
    only : str, optional
        Write "accepted" or "rejected" rows alone; all are counted.
    resume : bool
        For a folder: keep the files that an earlier, stopped run finished.
    means : Means, optional
        By default this machine.
    """
    means = means or Means.here()
    if resume and (output is None or output.suffix):
        message = "--resume goes on over a folder. Give a folder as the output."
        raise InputError(message)
    source = means.engine.check(source, output)
    require_rows(source)
    pace = means.pace("screening", source)
    decide = BatchScreen(gate, "predicted" in source.names)
    options: dict[str, Any] = {"memory": means.memory, "pace": pace}
    if only is not None:
        options["only"] = check_only(only, source, output)
    if output is not None and not output.suffix:
        return _screen_folder(source, decide, output, means, options, resume=resume)
    if output is not None:
        check_output(output, *source.files)
        check_outside(source, output)
    return means.engine.map(source, decide, output, **options)


def check_only(only: str, source: Source, output: Path | None) -> str:
    """Refuse to write a part of the rows where that cannot be done."""
    if only not in ("accepted", "rejected"):
        message = f"expected --only accepted or rejected, got {only!r}."
        raise InputError(message)
    written = output is not None
    if not written or not (source.format.is_table or source.columns.choices):
        message = (
            "--only writes a part of a table's rows. Give -o FILE.csv or .parquet."
        )
        raise InputError(message)
    if output is not None and output.suffix and not find_format(output).is_table:
        message = f"--only writes tables, got {output.name!r}. Choose .csv or .parquet."
        raise InputError(message)
    return only


def _screen_folder(  # noqa: PLR0913 - what the verb was given
    source: Source,
    decide: BatchScreen,
    folder: Path,
    means: Means,
    options: dict[str, Any],
    *,
    resume: bool,
) -> Outcome:
    """Screen each file by itself, keeping a journal of those that are done."""
    targets = plan_targets(source, folder)
    pace: Pace = options["pace"]
    journal = Journal(folder, decide.gate, source, options.get("only"))
    journal.begin(resume=resume)
    total, left = NO_OUTCOME, []
    for one in source.single():
        (file,) = one.files
        known = journal.find(file) if targets[file].is_file() else None
        if known is None:
            left.append((one, targets[file]))
        else:
            total += known
            pace.add(known.rows)
    done = means.engine.map_files(left, decide, **options)
    for file, outcome in done:
        journal.note(file, outcome)
        total += outcome
    return total


def require_rows(source: Source) -> None:
    """Refuse files without a row, and those that are not what they are said to be."""
    if source.is_empty:
        message = f"{source.files[0]} has no rows. Expected one line per prediction."
        raise FileError(message)
    source.require_logits()
