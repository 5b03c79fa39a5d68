"""A folder of outputs with links in it: no file is written through a link."""

import os
from pathlib import Path
from random import Random
from typing import Any

from fuzz import capture
from fuzz.capture import check_clean, check_line
from fuzz.cases import Case
from fuzz.verdicts import EQUAL, REFUSED, report

PLACES = ("a.csv", "b.csv", ".trustdoctor-screen.json", "deep", "c.csv", "page.html")
LEADS_TO = (
    "rows/a.csv", "rows/b.csv", "rows", "victim.txt", "gate.json", "absent.csv",
    "absent/x.csv", "decided/a.csv", "decided/b.csv", ".", "decided", "/dev/null",
)  # fmt: skip


def _victims(folder: Path) -> dict[str, Any]:
    """Return the content of all files that are not outputs."""
    out: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if not name.startswith("decided") and path.is_file():
            out[name] = path.read_bytes()
    return out


def _link(rng: Random, place: Path, target: Path) -> None:
    """Put a link of some make into a place, where nothing is."""
    if place.exists() or place.is_symlink():
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    if target.is_file() and rng.random() < 0.3:
        place.hardlink_to(target)
    elif rng.random() < 0.5:
        place.symlink_to(target)
    else:
        place.symlink_to(os.path.relpath(target, place.parent))


def _place_links(rng: Random, folder: Path, decided: Path) -> bool:
    """Put links where outputs go; tell whether the folder itself is one."""
    if rng.random() < 0.2:
        decided.symlink_to(folder / rng.choice(("clean", "rows", "elsewhere")))
        return True
    for _ in range(rng.choice((1, 1, 2, 3))):
        _link(rng, decided / rng.choice(PLACES), folder / rng.choice(LEADS_TO))
    return False


def judge(case: Case) -> str:
    """Screen a folder into one with links: refused, or the same files as without."""
    rng = Random(f"{case}")
    (case.folder / "victim.txt").write_text("the only copy\n")
    arguments = ("screen", case.rows, "--threshold", "-0.4", "--quiet", "-o")
    check_clean(capture.command(*arguments, case.folder / "clean"))
    clean = {p.name: p.read_bytes() for p in (case.folder / "clean").glob("*.csv")}
    decided = case.folder / "decided"
    through = _place_links(rng, case.folder, decided)
    before = _victims(case.folder)
    options = [option for option in ("--resume",) if rng.random() < 0.5]
    ran = capture.command(*arguments, decided, *options)
    check_clean(ran)
    after = _victims(case.folder)
    if after != before and not (through and ran.code == 0):
        odd = [
            name for name in {**before, **after} if before.get(name) != after.get(name)
        ]
        report("something is written through a link", ", ".join(odd))
    if ran.code == 2:
        check_line(ran)
        return REFUSED
    if ran.code or ran.err:
        report(f"exit code {ran.code}", ran.err)
    for name, content in clean.items():
        written = decided / name
        if written.is_symlink() or written.read_bytes() != content:
            report("other files among links", name)
    return EQUAL
