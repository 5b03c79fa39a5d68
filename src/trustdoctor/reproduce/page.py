"""All experiments that the data allow, and one page about them."""

import os
import platform
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from trustdoctor._version import __version__
from trustdoctor.atomic import write_text
from trustdoctor.errors import TrustDoctorError
from trustdoctor.reproduce.claims import claims
from trustdoctor.reproduce.experiment import Options
from trustdoctor.reproduce.report import Report

TITLE = "The paper, reproduced"
PARTS: dict[str, dict[str, Any]] = {
    "table1": {},
    "models": {},
    "instead": {},
    "histograms": {"dataset": "tinyimagenet"},
    "roc": {},
    "intervals": {"dataset": "cifar10"},
    "sweep": {"rows": 500},
    "ood": {},
    "whitebox": {},
    "bounds": {},
    "gaussian": {},
    "timings": {"dataset": "cifar10", "rows": 1_000},
}
"""The experiments in the order of the page, and what is set for the page's sake."""

EVERY_NET = ("table1", "models", "instead")
"""What shows public nets on the page; of the others it shows only our own nets."""

PACKAGES = ("numpy", "scipy", "polars", "torch", "matplotlib")
WORDS = (
    "Every table and figure of the DOCTOR paper (Granese et al., NeurIPS 2021), the "
    "paper's numbers beside ours. The models and, for some rows, the images are not "
    "the paper's: each table names its own. `exact` puts a threshold at every score, "
    "`grid` repeats the published evaluation; `PBB paper` counts the errors of the "
    "perturbed prediction, `PBB deployed` those of the clean one, which a user acts "
    "on. FRR95 is the share of the right predictions that are rejected when 95% of the "
    "errors are. "
    "Intervals are of 95%."
)


@dataclass(frozen=True)
class ReproductionPage(Report):
    """The whole page: the claims, and a chapter per experiment.

    Attributes
    ----------
    chapters : tuple of Report
        One per experiment.
    seconds : tuple of (str, float)
        What was run and how long it took; what an earlier run left in the cache took
        no time.
    """

    chapters: tuple[Report, ...] = ()
    seconds: tuple[tuple[str, float], ...] = ()

    def to_markdown(self) -> str:
        """Return the page: the claims first, then a chapter per experiment."""
        front = replace(self, notes=())
        sections = [Report.to_markdown(front).rstrip()]
        chapters = map(_for_the_page, self.chapters)
        sections += ["#" + chapter.to_markdown().rstrip() for chapter in chapters]
        sections.append(f"## How this was made\n\n{self.how()}")
        return "\n\n".join(sections) + "\n"

    def how(self) -> str:
        """Say what was run: versions, processor, commands and times."""
        lines = [f"- {name}: {fact}" for name, fact in facts()]
        lines.append(
            "- times: of this run; what an earlier one left in the cache took none"
        )
        lines += [
            f"- `trustdoctor reproduce {experiment} --data DIR --out DIR`: "
            f"{seconds:,.0f} s"
            for experiment, seconds in self.seconds
        ]
        return "\n".join([*lines, *(f"- {note}" for note in self.notes)])

    def write(self, folder: str | Path) -> list[Path]:
        """Write the page, and each chapter's files, into a folder."""
        for chapter in self.chapters:
            chapter.write(folder)
        return super().write(folder)


def write_readme(folder: Path, report: Report, command: str, seconds: float) -> Path:
    """Say in README.md how a report was made; keep the sections of other reports."""
    path = folder / "README.md"
    lines = [f"- {name}: {fact}" for name, fact in facts()]
    took = f"{seconds:,.0f} s; what an earlier run left in `cache` takes no time again"
    lines = [f"- command: `{command}`", f"- took: {took}", *lines]
    lines += [f"- {note}" for note in report.notes]
    heading = f"## {report.name}\n"
    before = path.read_text(encoding="utf-8") if path.is_file() else ""
    sections = [f"## {section}" for section in f"\n{before}".split("\n## ")[1:]]
    sections = [section for section in sections if not section.startswith(heading)]
    sections.append(f"{heading}\n" + "\n".join(lines))
    text = "\n".join(section.rstrip() + "\n" for section in sections)
    write_text(path, f"# What was run\n\n{text}")
    return path


def _for_the_page(chapter: Report) -> Report:
    """Leave out the public nets, except where all nets count."""
    if chapter.name in EVERY_NET:
        return chapter
    tables = tuple(t for t in chapter.tables if "(public)" not in t.title)
    pictures = tuple(p for p in chapter.pictures if not p.name.endswith("-public"))
    return replace(chapter, tables=tables, pictures=pictures)


def facts() -> Iterator[tuple[str, str]]:
    """Yield versions and the processor, which numbers and times depend on."""
    yield "trustdoctor", __version__
    yield "Python", platform.python_version()
    for package in PACKAGES:
        try:
            yield package, version(package)
        except PackageNotFoundError:
            yield package, "not installed"
    yield "processor", f"{_processor()}, {os.cpu_count()} cores, no accelerator"


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.machine()
    names = [line.split(":")[1] for line in text.splitlines() if "model name" in line]
    return names[0].strip() if names else platform.machine()


def run(options: Options, experiments: dict[str, Any]) -> ReproductionPage:
    """Run every experiment that the data allow, and gather the reports."""
    reports: dict[str, Report] = {}
    seconds: list[tuple[str, float]] = []
    notes: list[str] = []
    for i, (name, set_here) in enumerate(PARTS.items()):

        def tell(share: float, doing: str, i: int = i, name: str = name) -> None:
            options.tell((i + share) / len(PARTS), f"{name}: {doing}")

        start = time.monotonic()
        chosen = {k: v for k, v in set_here.items() if getattr(options, k) is None}
        experiment = experiments[name]
        try:
            reports[name] = experiment.run(replace(options, **chosen, tell=tell))
        except TrustDoctorError as error:
            notes.append(f"{name} was left out: {error}")
            continue
        flags = [f"--{option} {value}" for option, value in chosen.items()]
        if options.fine and "fine" in experiment.uses:
            flags.append("--fine")
        seconds.append((" ".join([name, *flags]), time.monotonic() - start))
    return ReproductionPage(
        "reproduction",
        TITLE,
        (claims(reports),),
        WORDS,
        notes=tuple(notes),
        chapters=tuple(reports.values()),
        seconds=tuple(seconds),
    )
