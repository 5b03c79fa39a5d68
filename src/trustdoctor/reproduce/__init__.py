"""The paper's experiments, one command each, beside the truth."""

from collections.abc import Callable
from importlib import import_module

from trustdoctor.errors import InputError
from trustdoctor.reproduce.experiment import Options
from trustdoctor.reproduce.report import Report, Table

__all__ = ["EXPERIMENTS", "Options", "Report", "Table", "reproduce"]

EXPERIMENTS = {
    "bounds": "Proposition 2 and what follows it, on random posteriors",
    "intervals": "appendix C.3: the table of interval sizes",
}


def reproduce(name: str, options: Options | None = None) -> Report:
    """Run an experiment by its name."""
    if name not in EXPERIMENTS:
        message = (
            f"expected an experiment out of {', '.join(EXPERIMENTS)}, got {name!r}."
        )
        raise InputError(message)
    run: Callable[[Options], Report] = import_module(
        f"trustdoctor.reproduce.{name}"
    ).run
    return run(options or Options())
