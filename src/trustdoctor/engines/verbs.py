"""What can be done with files, once for all engines: diagnose, calibrate, screen.

Rows that fit into the memory are read at once where that is better; otherwise an
engine folds or maps them batch by batch. Decisions and scores are the same either way.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trustdoctor.engines.contract import Added, Engine
from trustdoctor.engines.local import LocalEngine
from trustdoctor.engines.memory import fits, parse_memory
from trustdoctor.errors import FileError, InputError
from trustdoctor.evaluation import DEFAULT_SCORES, Evaluation, Tally, evaluate
from trustdoctor.files import Journal, Source, check_output, check_outside, plan_targets
from trustdoctor.gates import NOTHING, Gate, Outcome, Sketches, calibrate
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
    if means.reads(source, len(scores or DEFAULT_SCORES)):
        return evaluate(
            source.read(),
            scores=scores,
            temperature=temperature,
            progress=means.progress,
        )
    tally = Tally(scores, temperature=temperature)
    found = _folded(source, tally, means)
    means.tell(1.0, "measuring")
    return found.evaluate()


def calibrate_files(
    source: Source,
    *,
    score: str | Score = "alpha",
    temperature: float = 1.0,
    groups: str | None = None,
    means: Means | None = None,
    **options: Any,
) -> Gate:
    """Calibrate on all rows of some files; options as in `calibrate`."""
    means = means or Means.here()
    ready = find_score(score, temperature=temperature)
    if means.reads(source):
        p = source.read()
        means.tell(0.5, "calibrating")
        return calibrate(p, score=ready, groups=groups, **options)
    counted = _folded(source, Sketches(ready, groups or ""), means)
    means.tell(1.0, "calibrating")
    return counted.calibrate(**options)


def _folded(source: Source, state: Any, means: Means) -> Any:
    source = means.engine.check(source)
    require_rows(source)
    pace = means.pace("reading", source)
    return means.engine.fold(source, state, memory=means.memory, pace=pace)


@dataclass(frozen=True)
class BatchScreen:
    """A gate as a function of batches, which engines map."""

    gate: Gate

    def __call__(self, predictions: Predictions) -> tuple[Added, Outcome]:
        """Return the columns `score` and `accepted`, and what was counted."""
        done = self.gate.screen(predictions)
        added = {"score": done.scores, "accepted": done.accepted}
        return added, Outcome.on(predictions, done.accepted)


def screen(
    source: Source,
    gate: Gate,
    output: Path | None,
    *,
    resume: bool = False,
    means: Means | None = None,
) -> Outcome:
    """Decide on every row, and write the rows with `score` and `accepted` added.

    Into a file all rows go in their order. Into a folder (a path without a suffix)
    each input file goes by itself, under its own name.

    Parameters
    ----------
    source : Source
    gate : Gate
    output : Path, optional
        Its suffix says the format.
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
    pace, decide = means.pace("screening", source), BatchScreen(gate)
    if output is not None and not output.suffix:
        return _screen_folder(source, decide, output, means, pace, resume=resume)
    if output is not None:
        check_output(output, *source.files)
        check_outside(source, output)
    return means.engine.map(source, decide, output, memory=means.memory, pace=pace)


def _screen_folder(  # noqa: PLR0913 - what the verb was given
    source: Source,
    decide: BatchScreen,
    folder: Path,
    means: Means,
    pace: Pace,
    *,
    resume: bool,
) -> Outcome:
    """Screen each file by itself, keeping a journal of those that are done."""
    targets = plan_targets(source, folder)
    journal = Journal(folder, decide.gate, source)
    journal.begin(resume=resume)
    total, left = NOTHING, []
    for one in source.single():
        (file,) = one.files
        known = journal.find(file) if targets[file].is_file() else None
        if known is None:
            left.append((one, targets[file]))
        else:
            total += known
            pace.add(known.rows)
    done = means.engine.map_files(left, decide, memory=means.memory, pace=pace)
    for file, outcome in done:
        journal.note(file, outcome)
        total += outcome
    return total


def require_rows(source: Source) -> None:
    """Refuse files without a row."""
    if source.is_empty:
        message = f"{source.files[0]} has no rows. Expected one line per prediction."
        raise FileError(message)
