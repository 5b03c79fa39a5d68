"""Commands that pages offer: they run as printed, in a POSIX shell.

A page that was made from a file offers commands of the command line, with the file's
own path and the options that reading it takes; one that was made in Python offers
calls. A page's script fills in the target and the score, so commands come in parts.
"""

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import PurePath

from trustdoctor.evaluation import Evaluation
from trustdoctor.report.extras import Extras
from trustdoctor.scores import SCORES

MENU = "1%,2%,5%,10%"
"""Risks fixed in advance, whatever the rows, of which `calibrate` takes one."""


@dataclass(frozen=True)
class Commands:
    """What a page offers to type.

    Attributes
    ----------
    gate, cut : list of three str
        What stands before the target, between it and the score, and after it: for a
        gate with a promise, and for a threshold on these very rows.
    flags : dict of str to str
        What names each score.
    look : list of str
        How to split the file, and to make the page of one part.
    menu : list of two str
        How to take one of several values fixed in advance: before and after the score.
    shell : bool
        Whether these are commands; otherwise they are calls in Python.
    """

    gate: list[str]
    cut: list[str]
    flags: dict[str, str]
    look: list[str]
    menu: list[str]
    shell: bool = True

    def target(self, name: str, value: float) -> str:
        """Return a target as it is typed.

        Examples
        --------
        >>> Commands([], [], {}, [], []).target("risk", 0.02)
        '--risk 0.02'
        """
        separator = " " if self.shell and name != "threshold" else "="
        return f"{'--' * self.shell}{name}{separator}{float(value)!r}"


def offer_commands(evaluation: Evaluation, extras: Extras) -> Commands:
    """Return the commands that a page of an evaluation offers."""
    temperature = evaluation.settings.temperature
    if not extras.file:
        return _calls(evaluation, temperature)
    options = as_typed(extras.options)
    if temperature != 1:
        options += f" --temperature {temperature!r}"
    file, gate_file = extras.file, extras.calibrate_on or extras.file
    clusters = evaluation.clustered_by
    end = f"{options} -o gate.json"
    if clusters:
        end = f"{options} --clusters {shlex.quote(clusters)} -o gate.json"
    return Commands(
        [f"trustdoctor calibrate {shlex.quote(gate_file)} ", " --score ", end],
        [f"trustdoctor calibrate {shlex.quote(file)} ", " --score ", end],
        {name: shlex.quote(_flag(name, extras)) for name in evaluation.scores},
        split_first("diagnose", file, extras.options, options, clusters=clusters),
        [f"trustdoctor calibrate {shlex.quote(file)} --risk {MENU} --score ", end],
    )


def split_first(
    command: str, file: str, options: Sequence[str], typed: str, *, clusters: str = ""
) -> list[str]:
    r"""Return how to split a file, and to run a command that makes a page of one part.

    Parameters
    ----------
    command, file : str
    options : sequence of str
        Those that reading the file takes.
    typed : str
        All options of the command, as they are typed.
    clusters : str
        The column whose rows of one value stay together.

    Examples
    --------
    >>> lines = split_first("compare", "a b.csv", ["--ids", "no"], " --ids no")
    >>> print(*lines, sep="\n")
    trustdoctor split 'a b.csv' --part 50% --ids no -o look.csv rest.csv
    trustdoctor compare look.csv --ids no --html look.html --calibrate-on rest.csv
    """
    suffix = PurePath(file).suffix or ".csv"
    first, second = shlex.quote(f"look{suffix}"), shlex.quote(f"rest{suffix}")
    return [
        f"trustdoctor split {shlex.quote(file)} --part 50%"
        f"{_together(options, clusters)} -o {first} {second}",
        f"trustdoctor {command} {first}{typed} --html look.html "
        f"--calibrate-on {second}",
    ]


def as_typed(options: Sequence[str]) -> str:
    """Return options as they are typed after a file; empty if there are none."""
    return f" {shlex.join(options)}" if options else ""


def _calls(evaluation: Evaluation, temperature: float) -> Commands:
    """Return calls in Python, for predictions that came from no file."""
    end = f", temperature={temperature!r})" if temperature != 1 else ")"
    menu = ", ".join(f"{float(v.rstrip('%')) / 100:g}" for v in MENU.split(","))
    gate = ["gate = td.calibrate(predictions, ", ", score=", end]
    return Commands(
        gate,
        gate,
        {
            name: "score" if _is_fitted(name) else json.dumps(name)
            for name in evaluation.scores
        },
        [],
        [f"gate = td.calibrate(predictions, risk=[{menu}], score=", end],
        shell=False,
    )


def _flag(score: str, extras: Extras) -> str:
    """Return what --score takes: a name, or the file of a fitted score."""
    if score in extras.score_files:
        return extras.score_files[score]
    return f"{score}.safetensors" if _is_fitted(score) else score


def _is_fitted(score: str) -> bool:
    return isinstance(SCORES[score.partition(":")[0]], type)


def _together(options: Sequence[str], clusters: str) -> str:
    """Return the option that keeps rows of one cluster, or of one id, in one part."""
    if clusters:
        return f" --clusters {shlex.quote(clusters)}"
    by_flag = dict(pairwise(options))
    return f" --ids {shlex.quote(by_flag['--ids'])}" if "--ids" in by_flag else ""
