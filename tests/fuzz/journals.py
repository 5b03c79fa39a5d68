"""The journal of a folder that was screened: damaged, and gone on with."""

from pathlib import Path
from random import Random

from fuzz import capture, raw, trees
from fuzz.capture import check_clean, check_line
from fuzz.cases import BLIND, Case
from fuzz.verdicts import EQUAL, REFUSED, found


def _contents(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.rglob("*.csv")}


def judge(case: Case) -> str:
    """Screen a folder, change its journal, and go on: refused, or the same files."""
    output = case.folder / "decided"
    how = ("screen", case.rows, "--threshold", "-0.4", "-o", output, "--quiet")
    check_clean(capture.command(*how))
    (journal,) = output.glob(".*.json")
    before = _contents(output)
    rng = Random(f"{case}")
    own = raw.BYTES if rng.random() < BLIND else trees.DOCUMENT
    journal.write_bytes(rng.choice(own)(rng, journal.read_bytes()))
    (output / "b.csv").unlink()
    ran = capture.command(*how, "--resume")
    check_clean(ran)
    if ran.code == 2:
        check_line(ran)
        if set(_contents(output).items()) - set(before.items()):
            found("a refusal leaves or changes files")
        return REFUSED
    if ran.code or ran.err:
        found(f"exit code {ran.code}", ran.err)
    if _contents(output) != before:
        found("resumed: other files")
    return EQUAL
