"""The journal of a folder that was screened: damaged, then resumed."""

from pathlib import Path
from random import Random

from fuzz import capture, mutate_bytes, mutate_json
from fuzz.capture import check_clean, check_line
from fuzz.cases import BLIND, Case
from fuzz.verdicts import EQUAL, REFUSED, report


def _contents(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.rglob("*.csv")}


def judge(case: Case) -> str:
    """Screen a folder, change its journal, and go on: refused, or the same files."""
    output = case.folder / "decided"
    arguments = ("screen", case.rows, "--threshold", "-0.4", "-o", output, "--quiet")
    check_clean(capture.command(*arguments))
    (journal,) = output.glob(".*.json")
    before = _contents(output)
    rng = Random(f"{case}")
    mutators = mutate_bytes.BYTES if rng.random() < BLIND else mutate_json.DOCUMENT
    journal.write_bytes(rng.choice(mutators)(rng, journal.read_bytes()))
    (output / "b.csv").unlink()
    ran = capture.command(*arguments, "--resume")
    check_clean(ran)
    if ran.code == 2:
        check_line(ran)
        if set(_contents(output).items()) - set(before.items()):
            report("a refusal leaves or changes files")
        return REFUSED
    if ran.code or ran.err:
        report(f"exit code {ran.code}", ran.err)
    if _contents(output) != before:
        report("resumed: other files")
    return EQUAL
