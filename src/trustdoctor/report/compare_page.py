"""The page of a comparison: which score to use, and by how much it is better."""

from trustdoctor.evaluation import Comparison
from trustdoctor.metrics import Estimate
from trustdoctor.report.template import fill_page
from trustdoctor.scores import FittedScore


def render_comparison(
    found: Comparison, *, source: str = "", file: str = "", digest: str = ""
) -> str:
    """Return a page of a comparison.

    Parameters
    ----------
    found : Comparison
    source, file : str
        What the rows came from: its name, and its path for commands.
    digest : str
        The file's SHA-256.
    """
    name = found.recommended or found.baseline
    best = next(c for c in found.candidates if c.name == name)
    fitted = isinstance(found.scores.get(name), FittedScore)
    flag = f"{name}.safetensors" if fitted else name
    shown = [
        [c.name, *(100 * (end or 0.0) for end in _ends(c.auroc_gain))]
        for c in found.candidates[1:]
        if c.auroc_gain.value is not None
    ]
    return fill_page(
        "compare",
        scripts=("tables.js",),
        payload={"gains": shown},
        found=found,
        best=best,
        source=source,
        digest=digest,
        level=f"{found.confidence:.0%}",
        frr=f"FRR@{found.points.trr * 100:g}TRR",
        command=f"trustdoctor calibrate OTHER_ROWS --risk 0.05 --score {flag} "
        "-o gate.json",
        keeps=f"trustdoctor compare {file or 'FILE'} -o {flag}" if fitted else "",
    )


def _ends(gain: Estimate) -> tuple[float | None, ...]:
    return gain.value, gain.low, gain.high
