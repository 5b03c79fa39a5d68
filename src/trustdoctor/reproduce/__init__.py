"""The paper's experiments, one command each, beside the truth."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from importlib import import_module

from trustdoctor.adapters.datasets import DATASETS
from trustdoctor.errors import InputError
from trustdoctor.reproduce.experiment import Options, Steps
from trustdoctor.reproduce.report import Report, Table

__all__ = [
    "EXPERIMENTS",
    "Experiment",
    "Options",
    "Report",
    "Steps",
    "Table",
    "reproduce",
]


@dataclass(frozen=True)
class Experiment:
    """One entry of the registry: what it is, and which options it takes."""

    what: str
    takes: tuple[str, ...] = ()


_FILES = ("predictions", "data", "dataset", "rows")
_MODEL = ("data", "dataset", "model", "weights", "rows")

EXPERIMENTS = {
    "gaussian": Experiment("appendix B: two Gaussians, where the optimum is known"),
    "bounds": Experiment(
        "Proposition 2 and what follows it, on random posteriors", _FILES[:1]
    ),
    "table1": Experiment(
        "Table 1: all methods, with and without perturbation", (*_FILES, *_MODEL)
    ),
    "intervals": Experiment("appendix C.3: the table of interval sizes", _FILES[:1]),
    "histograms": Experiment(
        "Figure 1: scores of right and wrong predictions", (*_FILES, *_MODEL)
    ),
    "roc": Experiment("Figure 2: ROC curves", (*_FILES, *_MODEL)),
    "sweep": Experiment("appendix C.4: AUROC over temperature and magnitude", _MODEL),
    "ood": Experiment(
        "Table 2: out-of-distribution rows mixed in",
        (*_MODEL, "predictions", "ood", "draws", "layers"),
    ),
    "whitebox": Experiment(
        "appendix C.7: Mahalanobis over all layers", (*_MODEL, "layers")
    ),
    "timings": Experiment("appendix C.1: seconds a score", (*_FILES[:1], "rows")),
}


def reproduce(name: str, options: Options | None = None) -> Report:
    """Run an experiment by its name."""
    if name not in EXPERIMENTS:
        message = (
            f"expected an experiment out of {', '.join(EXPERIMENTS)}, got {name!r}."
        )
        raise InputError(message)
    options = options or Options()
    _check(name, options)
    run: Callable[[Options], Report] = import_module(
        f"trustdoctor.reproduce.{name}"
    ).run
    report = run(options)
    if name in ("bounds", "intervals", "timings") and options.protocol != "exact":
        both = "both are shown" if name != "bounds" else "nothing here is evaluated"
        note = f"--protocol changes nothing for {name}: {both}."
        report = replace(report, notes=(*report.notes, note))
    return report


_ALWAYS = ("seed", "protocol", "steps", "tell")
PROTOCOLS = ("exact", "grid")


def _check(name: str, options: Options) -> None:
    """Refuse options that the experiment would not heed, or that make no sense."""
    takes = EXPERIMENTS[name].takes
    for field in fields(Options):
        unset = getattr(options, field.name) == field.default
        if field.name not in (*_ALWAYS, *takes) and not unset:
            known = ", ".join(f"--{option}" for option in dict.fromkeys(takes))
            message = f"{name} takes no --{field.name}; it takes {known or 'none'}."
            raise InputError(message)
    for needy in ("weights", "layers"):
        if getattr(options, needy) and options.model is None:
            message = f"--{needy} goes with --model FILE.py:NAME. Give both, or none."
            raise InputError(message)
    for option, known_ones in (("protocol", PROTOCOLS), ("dataset", (None, *DATASETS))):
        given = getattr(options, option)
        if given not in known_ones:
            named = ", ".join(one for one in known_ones if one)
            message = f"expected --{option} out of {named}, got {given!r}."
            raise InputError(message)
    _check_numbers(options)


def _check_numbers(options: Options) -> None:
    for option, least in (("rows", 10), ("draws", 2), ("seed", 0)):
        given = getattr(options, option)
        if given is not None and given < least:
            message = f"expected --{option} of {least} or more, got {given}."
            raise InputError(message)
