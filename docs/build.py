"""Builds the documentation: ``python docs/build.py [FOLDER]``, by default of this tree.

Zensical builds the pages, strictly. It does not miss a page that the navigation leaves
out, so that is checked here. Then ``trustdoctor`` writes the page that the home shows.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from trustdoctor import read
from trustdoctor.demo import bundled_file, save_demo

ROOT = Path(__file__).resolve().parents[1]


def left_out(root: Path) -> list[str]:
    """Return the pages that the navigation does not name."""
    docs, settings = root / "docs", (root / "mkdocs.yml").read_text(encoding="utf-8")
    pages = sorted(str(page.relative_to(docs)) for page in docs.rglob("*.md"))
    named = {line.split()[-1] for line in settings.splitlines() if line.strip()}
    return [page for page in pages if page not in named]


def run(*command: str, cwd: Path) -> None:
    """Run a module of this Python; end the build where it fails."""
    places = [str(ROOT / "docs"), os.environ.get("PYTHONPATH", "")]  # formulas.py
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, places))},
        check=False,
    )
    if done.returncode:
        sys.exit(done.returncode)


def write_live_page(page: Path) -> None:
    """Diagnose the bundled predictions, as a person would."""
    page.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        here = Path(scratch)
        save_demo(read(bundled_file()), here)
        names = ["--class-names", "classes.txt", "--ids", "id"]
        found = ["--html", str(page.resolve()), "-q"]
        run("trustdoctor", "diagnose", "labelled.csv", *names, *found, cwd=here)


def main() -> None:
    """Build, or say which page is missing."""
    root = Path(sys.argv[1]) if sys.argv[1:] else ROOT
    missing = left_out(root)
    if missing:
        sys.exit(f"not in the navigation of mkdocs.yml: {', '.join(missing)}")
    run("zensical", "build", "--strict", "--clean", cwd=root)
    write_live_page(root / "build" / "site" / "live" / "report.html")


if __name__ == "__main__":
    main()
