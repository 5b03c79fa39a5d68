"""The paper's experiments, one command each, beside the paper's numbers."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

from trustdoctor.errors import InputError
from trustdoctor.reproduce import (
    bounds,
    gaussian,
    histograms,
    instead,
    intervals,
    models,
    ood,
    page,
    roc_curves,
    sweep,
    table1,
    timings,
    whitebox,
)
from trustdoctor.reproduce.datasets import DATASETS
from trustdoctor.reproduce.experiment import Options, Steps
from trustdoctor.reproduce.page import write_readme
from trustdoctor.reproduce.report import Report, Table, make_folder, show_report
from trustdoctor.reproduce.sources import passed_over

__all__ = [
    "EXPERIMENTS",
    "Experiment",
    "Options",
    "Report",
    "Steps",
    "Table",
    "make_folder",
    "reproduce",
    "show_report",
    "write_readme",
]


@dataclass(frozen=True)
class Experiment:
    """One experiment of the paper.

    Attributes
    ----------
    title : str
        What it is in the paper.
    run : callable
        From options to a report.
    uses : frozenset of str
        The options that can change the report. All others are accepted, too; the
        report's notes say that they change nothing.
    """

    title: str
    run: Callable[[Options], Report]
    uses: frozenset[str]


_MODEL = frozenset({"data", "dataset", "model", "weights", "rows"})
_ROWS = _MODEL | {"predictions"}

EXPERIMENTS = {
    "gaussian": Experiment(
        "appendix B: two Gaussians, where the optimum is known",
        gaussian.run,
        frozenset({"seed", "protocol"}),
    ),
    "bounds": Experiment(
        "Proposition 2 and what follows it, on random posteriors",
        bounds.run,
        _ROWS | {"seed"},
    ),
    "table1": Experiment(
        "Table 1: all methods, with and without perturbation",
        table1.run,
        _ROWS | {"protocol", "seed"},
    ),
    "intervals": Experiment(
        "appendix C.3: the table of interval sizes", intervals.run, _ROWS
    ),
    "histograms": Experiment(
        "Figure 1: scores of right and wrong predictions",
        histograms.run,
        _ROWS | {"protocol"},
    ),
    "roc": Experiment("Figure 2: ROC curves", roc_curves.run, _ROWS | {"protocol"}),
    "sweep": Experiment(
        "appendix C.4: AUROC over temperature and magnitude",
        sweep.run,
        _MODEL | {"protocol", "seed", "fine"},
    ),
    "ood": Experiment(
        "Table 2: out-of-distribution rows mixed in",
        ood.run,
        _ROWS | {"protocol", "seed", "ood", "draws", "layers"},
    ),
    "whitebox": Experiment(
        "appendix C.7: Mahalanobis over all layers",
        whitebox.run,
        _MODEL | {"protocol", "seed", "layers"},
    ),
    "models": Experiment(
        "alpha against softmax response on every model, and over them",
        models.run,
        _ROWS,
    ),
    "instead": Experiment(
        "what to do instead on the same models: tune, ask twice, promise",
        instead.run,
        _ROWS | {"seed"},
    ),
    "timings": Experiment("appendix C.1: seconds per score", timings.run, _ROWS),
}
EXPERIMENTS["all"] = Experiment(
    "everything that the data allow, and one page about it",
    lambda options: page.run(options, EXPERIMENTS),
    frozenset().union(*(entry.uses for entry in EXPERIMENTS.values())),
)


def reproduce(name: str, options: Options | None = None) -> Report:
    """Run an experiment by its name.

    Every experiment takes every option. An option that changes nothing for this one
    is set aside, and the report's last note says so.
    """
    if name not in EXPERIMENTS:
        message = (
            f"expected an experiment out of {', '.join(EXPERIMENTS)}, got {name!r}."
        )
        raise InputError(message)
    options = options or Options()
    _check(options)
    idle = dict(_idle(EXPERIMENTS[name], options))
    report = EXPERIMENTS[name].run(replace(options, **idle))
    notes = report.notes
    if (
        options.data is not None
        and options.data.is_dir()
        and "data" in EXPERIMENTS[name].uses
    ):
        notes += passed_over(options.data)
    if idle:
        verb = "changes" if len(idle) == 1 else "change"
        named = ", ".join(f"--{option}" for option in idle)
        notes += (f"{named} {verb} nothing for {name} here.",)
    return replace(report, notes=notes)


_ALWAYS = ("steps", "tell")
PROTOCOLS = ("exact", "grid")


def _idle(entry: Experiment, options: Options) -> Iterator[tuple[str, Any]]:
    """Yield the options that were set but change nothing here, with their defaults."""
    used = set(entry.uses)
    if (options.model, options.predictions, options.data) == (None, None, None):
        used -= {"dataset", "rows"}  # there is nothing that they could be about
    if options.rows is not None and "rows" in used:
        used |= {"seed"}  # rows are drawn
    for field in fields(Options):
        value = getattr(options, field.name)
        if field.name not in (*_ALWAYS, *used) and value != field.default:
            yield field.name, field.default


def _check(options: Options) -> None:
    """Refuse values that make no sense for any experiment."""
    for option in ("weights", "layers"):
        if getattr(options, option) and options.model is None:
            message = f"--{option} goes with --model FILE.py:NAME. Give both, or none."
            raise InputError(message)
    for option, choices in (("protocol", PROTOCOLS), ("dataset", (None, *DATASETS))):
        value = getattr(options, option)
        if value not in choices:
            names = ", ".join(choice for choice in choices if choice)
            message = f"expected --{option} out of {names}, got {value!r}."
            raise InputError(message)
    for option, least in (("rows", 10), ("draws", 2), ("seed", 0)):
        value = getattr(options, option)
        if value is not None and value < least:
            message = f"expected --{option} of {least} or more, got {value}."
            raise InputError(message)
