"""The paper's experiments, one command each, beside the truth."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from importlib import import_module

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
    return run(options)


_ALWAYS = ("seed", "protocol", "steps", "tell")


def _check(name: str, options: Options) -> None:
    """Refuse options that the experiment would not heed."""
    takes = EXPERIMENTS[name].takes
    for field in fields(Options):
        given = getattr(options, field.name)
        unset = given == field.default
        if field.name not in (*_ALWAYS, *takes) and not unset:
            known = ", ".join(f"--{option}" for option in dict.fromkeys(takes))
            message = f"{name} takes no --{field.name}; it takes {known or 'none'}."
            raise InputError(message)
    if options.protocol not in ("exact", "grid"):
        message = f"expected --protocol exact or grid, got {options.protocol!r}."
        raise InputError(message)
    for number, least in (("rows", 10), ("draws", 2)):
        given = getattr(options, number)
        if given is not None and given < least:
            message = f"expected --{number} of {least} or more, got {given}."
            raise InputError(message)
