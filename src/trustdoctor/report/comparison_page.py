"""The page of a comparison: which score to use, and by how much it is better."""

import shlex
from collections.abc import Sequence
from pathlib import PurePath

from trustdoctor.evaluation import Comparison
from trustdoctor.report.commands import as_typed, split_first
from trustdoctor.report.offers import FRR, round_risks
from trustdoctor.report.template import fill_page
from trustdoctor.scores import FittedScore


def render_comparison(  # noqa: PLR0913 - what is known of the rows, by keyword only
    comparison: Comparison,
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
    comparison : Comparison
    source, file : str
        What the rows came from: its name, and its path for commands.
    digest : str
        The file's SHA-256.
    options : sequence of str
        Options of the command line that reading the file takes.
    calibrate_on : str
        The path of other rows, which had no part in this and may make the gate.
    """
    name = comparison.recommended or comparison.baseline
    best = next(c for c in comparison.candidates if c.name == name)
    is_fitted = isinstance(comparison.scores.get(name), FittedScore)
    flag = f"{name}.safetensors" if is_fitted else name
    risks = round_risks(comparison.n_errors / comparison.n)
    target = f"--risk {risks[0]:g}" if risks else f"--frr {FRR:g}"
    columns = as_typed(options)
    gate_file = shlex.quote(calibrate_on or file)
    gains = ((c.name, c.auroc_gain) for c in comparison.candidates[1:])
    return fill_page(
        "comparison",
        scripts=("sortable_tables.js", "commands.js"),
        payload={
            "gains": [
                [name, *(100 * (x or 0.0) for x in (gain.value, gain.low, gain.high))]
                for name, gain in gains
                if gain.value is not None
            ]
        },
        comparison=comparison,
        best=best,
        source=source,
        digest=digest,
        level=f"{comparison.confidence:.0%}",
        frr=f"FRR@{comparison.points.trr * 100:g}TRR",
        target=target,
        first=name == comparison.baseline,
        calibrate_on=PurePath(calibrate_on).name,
        command=f"trustdoctor calibrate {gate_file} {target} --score {flag}{columns} "
        "-o gate.json"
        if file
        else "",
        look=split_first("compare", file, options, columns) if file else [],
        keeps=f"trustdoctor compare {shlex.quote(file)}{columns} -o {flag}"
        if is_fitted and file
        else "",
    )
