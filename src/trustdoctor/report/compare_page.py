"""The page of a comparison: which score to use, and by how much it is better."""

import shlex
from collections.abc import Sequence

from trustdoctor.evaluation import Comparison
from trustdoctor.metrics import Estimate
from trustdoctor.report.advice import FRR, round_risks
from trustdoctor.report.template import fill_page
from trustdoctor.scores import FittedScore


def render_comparison(
    found: Comparison,
    *,
    source: str = "",
    file: str = "",
    digest: str = "",
    options: Sequence[str] = (),
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
    """
    name = found.recommended or found.baseline
    best = next(c for c in found.candidates if c.name == name)
    fitted = isinstance(found.scores.get(name), FittedScore)
    flag = f"{name}.safetensors" if fitted else name
    risks = round_risks(found.n_errors / found.n)
    target = f"--risk {risks[0]:g}" if risks else f"--frr {FRR:g}"
    columns = "".join(f" {shlex.quote(option)}" for option in options)
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
        command=f"trustdoctor calibrate OTHER_ROWS {target} --score {flag}{columns} "
        "-o gate.json",
        keeps=f"trustdoctor compare {shlex.quote(file or 'FILE')}{columns} -o {flag}"
        if fitted
        else "",
    )


def _ends(gain: Estimate) -> tuple[float | None, ...]:
    return gain.value, gain.low, gain.high
