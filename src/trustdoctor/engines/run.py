"""Diagnose, calibrate and screen files, once for all engines.

If rows fit into the memory, and reading them at once is better, that is done; otherwise
an engine folds or maps them batch by batch. Decisions and scores are the same.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
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
    """What a task runs on.

    Attributes
    ----------
    engine : Engine
    memory : int
        Bytes to stay within.
    progress : callable, or None
        Called with the share of the work that is done, and what comes next.
    """

    engine: Engine
    memory: int
    progress: Tell | None = None

    @classmethod
    def here(cls) -> "Means":
        """Return this machine, and half of its free memory."""
        return cls(LocalEngine(), parse_memory(None))

    def pace(self, activity: str, source: Source) -> Pace:
        """Return a counter of rows that reports to `progress`."""
        return Pace(self.progress, f"{activity} {source.name}", source.about_rows)

    def tell(self, share: float, activity: str) -> None:
        """Report the share of the work that is done, and what comes next."""
        if self.progress is not None:
            self.progress(share, activity)

    def reads_at_once(self, source: Source, n_scores: int = 0) -> bool:
        """Tell whether all rows are to be read at once."""
        return self.engine.in_memory and fits(source, self.memory, n_scores=n_scores)


def diagnose(
    source: Source,
    *,
    scores: Sequence[str | Score] | None = None,
    temperature: float = 1.0,
    means: Means | None = None,
) -> Evaluation:
    """Measure how far labelled predictions can be trusted.

    If they do not fit into the memory, rows are counted in ranges of scores.
    """
    means = means or Means.here()
    source.require_labels("diagnose")
    if means.reads_at_once(source, len(scores or DEFAULT_SCORES)):
        return _diagnose_read(
            source, scores=scores, temperature=temperature, progress=means.progress
        ).evaluation
    tally = Tally(scores, temperature=temperature)
    counted = _fold(source, tally, means)
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
    _require_reading_at_once(source, means, "a page")
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

    `clusters` names the column of clusters; rows are then read at once. So they are for
    a `shortlist` if the same rows cannot set the gate and its lists in batches.

    `remark` is called with what else to know: what would do better on these rows if the
    gate decides nothing, which score ranks their errors clearly better, and how long
    lists are.
    """
    means = means or Means.here()
    requests = make_requests(**options)
    labelled = requests[0].needs_labels
    target_names = " and ".join(requests[0].target)
    if labelled:
        source.require_labels(target_names)
    list_options = None if shortlist is None else _list_options(source, shortlist)
    needs_all_rows = "--score auto" if score == AUTO else ""
    needs_all_rows = needs_all_rows or (
        "a file from draw" if source.draw_design else ""
    )
    needs_all_rows = needs_all_rows or ("--clusters" if clusters else "")
    is_by_rank = len(requests) == 1 and is_order_statistic(requests[0].target)
    if list_options and (groups or not is_by_rank):
        # Some rows are then drawn to set the lists alone, which batches cannot do.
        lists_of = f"--shortlist for {'groups' if groups else target_names}"
        needs_all_rows = needs_all_rows or lists_of
    if needs_all_rows:
        advice = OTHER_ROWS_SET_LISTS if list_options else ""
        _require_reading_at_once(source, means, needs_all_rows, advice)
    if needs_all_rows or means.reads_at_once(source):
        predictions, row_clusters, notes = _read_with_clusters(
            source, clusters, labelled=labelled
        )
        means.tell(0.5, "calibrating")
        calibration = run_calibration(
            predictions,
            requests,
            score=score,
            temperature=temperature,
            groups=groups,
            clusters=row_clusters,
            seed=seed,
            shortlist=list_options,
        )
        _pass_on(remark, remarks(calibration))
        if list_options is not None:
            _pass_on(remark, _list_lengths(calibration.gate, predictions))
        return calibration.gate.with_notes(*notes)
    scorer = find_score(score or source.scores[0], temperature=temperature)
    sketch = CalibrationSketch(scorer, groups or "", needs_labels=labelled)
    sketch = _fold(source, sketch, means)
    means.tell(1.0, "calibrating")
    calibration = sketch.run_calibration(requests)
    gate: Gate = calibration.gate
    if labelled:
        gate = gate.with_notes(*sampled_warnings(source))
    _pass_on(remark, remarks(calibration))
    if list_options is None:
        return gate
    return _shortlist_in_batches(source, gate, list_options, means, sketch)


def _read_with_clusters(
    source: Source, clusters: str | None, *, labelled: bool
) -> tuple[Predictions, Array | None, tuple[str, ...]]:
    """Read all rows and their clusters; without a named column, warn of clusters."""
    if clusters is not None:
        predictions, table = source.load(clusters)
        return predictions, _clusters(table[clusters]), ()
    if not labelled:
        return source.read(), None, ()
    predictions, _, error_clusters = load_checked(source)
    return predictions, None, error_clusters.lines


def _pass_on(remark: Callable[[str], object] | None, lines: Iterable[str]) -> None:
    """Call `remark` with each line; without it, lines of a generator cost nothing."""
    if remark is not None:
        for line in lines:
            remark(line)


def _list_lengths(gate: Gate, predictions: Predictions) -> Iterator[str]:
    """Say how long lists are on the rows of the calibration."""
    lists = gate.screen(predictions).shortlist
    assert lists is not None
    yield f"{ListCounts.of(predictions, lists).words(scope=' of this file')}."


def list_files(
    source: Source,
    gate: Gate,
    shortlist: Any,
    *,
    means: Means | None = None,
    remark: Callable[[str], object] | None = None,
) -> Gate:
    """Give a gate lists, set by all rows of some files; options as in `shortlist`.

    `remark` is called with how long they are, if the rows were read at once.
    """
    means, list_options = means or Means.here(), _list_options(source, shortlist)
    require_scoring_gate(gate)
    if not means.reads_at_once(source):
        return _shortlist_in_batches(source, gate, list_options, means)
    predictions = source.read()
    means.tell(0.5, "calibrating")
    gate = set_lists(gate, predictions, **list_options)
    _pass_on(remark, _list_lengths(gate, predictions))
    return gate


def _list_options(source: Source, shortlist: Any) -> dict[str, Any]:
    """Return the options of lists, checked before any row is read."""
    options = shortlist_options(shortlist)
    uncalibrated_shortlist(2, **options)
    source.require_labels("a shortlist")
    return options


def _shortlist_in_batches(
    source: Source,
    gate: Gate,
    list_options: dict[str, Any],
    means: Means,
    calibration: CalibrationSketch | None = None,
) -> Gate:
    """Give a gate lists, set by rows in batches.

    `calibration` are these rows, if the same ones set the gate.
    """
    reference_set = None
    if calibration is not None:
        if not calibration.pooled.labelled:
            message = (
                "some rows have no label, so they cannot set the lists."
                f"{OTHER_ROWS_SET_LISTS}"
            )
            raise InputError(message)
        rows = calibration.pooled.tied(calibration.score.rounding)
        reference_set = find_reference_set(gate, rows)
    sketch = _fold(source, ShortlistSketch(gate, list_options, reference_set), means)
    if reference_set is None and sketch.are_gate_rows:
        # Only the counts tell that these rows set the gate. Lists by the same rows keep
        # their promise with a reference set alone, so they are counted again.
        every = CalibrationSketch(gate.require_score(), needs_labels=True)
        every = _fold(source, every, means)
        return _shortlist_in_batches(source, gate, list_options, means, every)
    listed: Gate = sketch.calibrate()
    return listed


OTHER_ROWS_SET_LISTS = (
    " Or calibrate without --shortlist, and let other rows set the lists: calibrate "
    "OTHER --gate GATE --shortlist RATE."
)
"""What else can be done if rows cannot set a gate and its lists at once."""


def _require_reading_at_once(
    source: Source, means: Means, task: str, advice: str = ""
) -> None:
    """Refuse a task that needs all rows, if they cannot be read at once."""
    if not means.engine.in_memory:
        message = (
            f"{task} needs all rows at once, and another engine counts them: use "
            f"--engine local, or leave it out.{advice}"
        )
        raise InputError(message)
    require_fitting(source, means.memory, task, advice)


def _clusters(column: pl.Series) -> Array:
    """Return the clusters of rows: integers as they are, all else as text."""
    if column.null_count():
        row = int(column.is_null().arg_max() or 0)
        message = f"column {column.name!r} has no cluster at row {row}. Give it one."
        raise InputError(message)
    if column.dtype.is_integer():
        return column.to_numpy()
    return column.cast(pl.String).to_numpy().astype(str)


def _fold(source: Source, state: Any, means: Means) -> Any:
    """Count every row in a state, after the checks that every engine needs."""
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
    keeps_predicted : bool
        Whether the rows already have a column `predicted`, which stays as it is.
    """

    gate: Gate
    keeps_predicted: bool = False

    @property
    def has_shortlist(self) -> bool:
        """Whether rejected rows get lists."""
        return self.gate.shortlist is not None

    def __call__(self, predictions: Predictions) -> tuple[Added, Outcome]:
        """Return the columns that are added to the rows, and what was counted.

        These are `predicted` (the class's name if it has one), `score` and `accepted`;
        for a language model's responses also `id`; and `shortlist`, as text, if the
        gate has one.
        """
        decisions = self.gate.screen(predictions)
        added: Added = {}
        if predictions.ambiguous is not None:
            assert predictions.ids is not None
            added["id"] = np.array([i or "" for i in predictions.ids], str)
        names = None if self.keeps_predicted else predictions.predicted_names
        if names is not None:
            added["predicted"] = names.astype(str) if names.dtype == object else names
        added |= {"score": decisions.doubts, "accepted": decisions.accepted}
        lists = decisions.shortlist
        if lists is not None:
            added[SHORTLIST] = describe_lists(lists, predictions)
        outcome = Outcome.of_predictions(predictions, decisions.accepted, lists)
        if self.gate.groups:
            groups = self.gate.groups_of(predictions)
            has_threshold = np.isin(groups, list(self.gate.groups))
            n_unknown = int((~has_threshold).sum())
            intake = replace(outcome.intake, unknown_groups=n_unknown)
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
        Write only the "accepted" or the "rejected" rows; all are counted.
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
    """Refuse to write only some rows if that cannot be done."""
    if only not in ("accepted", "rejected"):
        message = f"expected --only accepted or rejected, got {only!r}."
        raise InputError(message)
    has_columns = source.format.is_table or source.columns.choices
    if output is None or not has_columns:
        message = (
            "--only writes a part of a table's rows. Give -o FILE.csv or .parquet."
        )
        raise InputError(message)
    if output.suffix and not find_format(output).is_table:
        message = f"--only writes tables, got {output.name!r}. Choose .csv or .parquet."
        raise InputError(message)
    return only


def _screen_folder(  # noqa: PLR0913 - what `screen` was given
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
    total, to_do = NO_OUTCOME, []
    for file_source in source.single():
        (file,) = file_source.files
        outcome = journal.find(file) if targets[file].is_file() else None
        if outcome is None:
            to_do.append((file_source, targets[file]))
        else:
            total += outcome
            pace.add(outcome.rows)
    for file, outcome in means.engine.map_files(to_do, decide, **options):
        journal.note(file, outcome)
        total += outcome
    return total


def require_rows(source: Source) -> None:
    """Refuse files without a row, and logits that are probabilities."""
    if source.is_empty:
        message = f"{source.files[0]} has no rows. Expected one line per prediction."
        raise FileError(message)
    source.require_logits()
