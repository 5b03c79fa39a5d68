"""Puts the page that `trustdoctor reproduce all` wrote into the documentation.

``python benchmarks/reproduction_page.py OUT docs`` copies OUT/reproduction.md and the
pictures that it shows into docs/pictures/reproduction. ``--note TEXT`` adds a line to
"How this was made", after the processor; it can be given several times.
"""

import argparse
import re
import shutil
from pathlib import Path

LINK = re.compile(r"\]\(([\w.-]+\.svg)\)")


PROCESSOR = re.compile(r"^- processor: .*\n", re.MULTILINE)


def put(out, docs, notes=()):
    """Copy the page and its pictures; the notes say more of how it was made."""
    page = (out / "reproduction.md").read_text(encoding="utf-8")
    folder = docs / "pictures" / "reproduction"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in LINK.findall(page):
        shutil.copy(out / name, folder / name)
    text = LINK.sub(r"](pictures/reproduction/\1)", page)
    if notes:
        processor = PROCESSOR.search(text)
        lines = "".join(f"- {note}\n" for note in notes)
        text = text[: processor.end()] + lines + text[processor.end() :]
    (docs / "reproduction.md").write_text(text, encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("docs", type=Path)
    parser.add_argument("--note", action="append", default=[])
    options = parser.parse_args()
    put(options.out, options.docs, options.note)


if __name__ == "__main__":
    main()
