"""The page of a comparison: which score to use, and by how much it is better."""

import shlex
from collections.abc import Sequence
from pathlib import PurePath

from trustdoctor.evaluation import Comparison
from trustdoctor.metrics import Estimate
from trustdoctor.report.advice import FRR, round_risks
from trustdoctor.report.commands import as_typed, part_first
from trustdoctor.report.template import fill_page
from trustdoctor.scores import FittedScore


def render_comparison(  # noqa: PLR0913 - what is known of the rows, by keyword only
    found: Comparison,
    *,
    source: str = "",
    file: str = "",
    digest: str = "",
    options: Sequence[str] = (),
    calibrate_on: str = "",
) -> str:
    """Return a page of a comparison.

    Parameters
    ----------
    found : Comparison
    source, file : str
        What the rows came from: its name, and its path for commands.
    digest : str
        The file's SHA-256.
    options : sequence of str
        Options of the command line that reading the file takes.
    calibrate_on : str
        The path of other rows, which had no part in this and may make the gate.
    """
    name = found.recommended or found.baseline
    best = next(c for c in found.candidates if c.name == name)
    fitted = isinstance(found.scores.get(name), FittedScore)
    flag = f"{name}.safetensors" if fitted else name
    risks = round_risks(found.n_errors / found.n)
    target = f"--risk {risks[0]:g}" if risks else f"--frr {FRR:g}"
    columns = as_typed(options)
    named = shlex.quote(file) if file else ""
    rest = shlex.quote(calibrate_on) if calibrate_on else named
    shown = [
        [c.name, *(100 * (end or 0.0) for end in _ends(c.auroc_gain))]
        for c in found.candidates[1:]
        if c.auroc_gain.value is not None
    ]
    return fill_page(
        "compare",
        scripts=("tables.js", "copying.js"),
        payload={"gains": shown},
        found=found,
        best=best,
        source=source,
        digest=digest,
        level=f"{found.confidence:.0%}",
        frr=f"FRR@{found.points.trr * 100:g}TRR",
        target=target,
        first=name == found.baseline,
        calibrate_on=PurePath(calibrate_on).name,
        command=f"trustdoctor calibrate {rest} {target} --score {flag}{columns} "
        "-o gate.json"
        if file
        else "",
        look=part_first("compare", file, options, columns) if file else [],
        keeps=f"trustdoctor compare {named}{columns} -o {flag}"
        if fitted and file
        else "",
    )


def _ends(gain: Estimate) -> tuple[float | None, ...]:
    return gain.value, gain.low, gain.high
