"""A folder of outputs with links in it: nothing that they lead to is written."""

import os
from pathlib import Path
from random import Random
from typing import Any

from fuzz import capture
from fuzz.capture import check_clean, check_line
from fuzz.cases import Case
from fuzz.verdicts import EQUAL, REFUSED, found

PLACES = ("a.csv", "b.csv", ".trustdoctor-screen.json", "deep", "c.csv", "page.html")
LEADS_TO = (
    "rows/a.csv", "rows/b.csv", "rows", "victim.txt", "gate.json", "absent.csv",
    "absent/x.csv", "decided/a.csv", "decided/b.csv", ".", "decided", "/dev/null",
)  # fmt: skip


def _victims(folder: Path) -> dict[str, Any]:
    """Return what is none of the outputs, links as what they say."""
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
    how = ("screen", case.rows, "--threshold", "-0.4", "--quiet", "-o")
    check_clean(capture.command(*how, case.folder / "clean"))
    clean = {p.name: p.read_bytes() for p in (case.folder / "clean").glob("*.csv")}
    decided = case.folder / "decided"
    through = _place_links(rng, case.folder, decided)
    before = _victims(case.folder)
    more = [one for one in ("--resume",) if rng.random() < 0.5]
    ran = capture.command(*how, decided, *more)
    check_clean(ran)
    after = _victims(case.folder)
    if after != before and not (through and ran.code == 0):
        odd = [
            name for name in {**before, **after} if before.get(name) != after.get(name)
        ]
        found("something is written through a link", ", ".join(odd))
    if ran.code == 2:
        check_line(ran)
        return REFUSED
    if ran.code or ran.err:
        found(f"exit code {ran.code}", ran.err)
    for name, content in clean.items():
        own = decided / name
        if own.is_symlink() or own.read_bytes() != content:
            found("other files among links", name)
    return EQUAL
