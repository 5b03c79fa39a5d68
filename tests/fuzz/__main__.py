"""``python -m tests.fuzz``: run cases, and print the findings."""

import argparse
import re
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from fuzz import cases, kinds, pool
from fuzz.verdicts import EQUAL, REFUSED, Verdict


def cause(verdict: Verdict) -> str:
    """Return a key that findings of one cause share."""
    kind = verdict.case.split(" ", 1)[1].split(" (")[0].split(",")[0]
    place = re.search(r"crates/[\w./-]+|\w+\.py:\d+: \w+Warning", verdict.detail)
    if place or "control character" in verdict.outcome:
        return f"{verdict.outcome} | {place[0] if place else ''}"
    text = re.sub(r"\S*/\S*|'[^']*'|\"[^\"]*\"|[0-9]+", "", verdict.detail)
    return f"{verdict.outcome} | {kind} | {' '.join(text.split())[:80]}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="the first number")
    parser.add_argument("--only", choices=kinds.formats())
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--keep", type=Path, help="where the files of findings go")
    parser.add_argument("--replay", metavar="SEED:NUMBER", help="run one case again")
    return parser.parse_args()


def replay(case_id: str, keep: Path | None) -> int:
    """Run one case in this process, and show how it ended in full."""
    seed, number = map(int, case_id.split(":"))
    verdict = pool.run_one(seed, number, keep)
    sys.stdout.write(f"{verdict.case}\n{verdict.outcome}\n{verdict.detail}\n")
    return int(not verdict.good)


def main() -> int:
    arguments = _arguments()
    if arguments.keep is not None:
        arguments.keep = arguments.keep.resolve()
        arguments.keep.mkdir(parents=True, exist_ok=True)
    if arguments.replay:
        return replay(arguments.replay, arguments.keep)
    begun, counts = time.monotonic(), Counter[str]()
    findings: dict[str, list[Verdict]] = {}
    numbers = cases.numbers(arguments.cases, arguments.only, arguments.first)
    for verdict in pool.run_all(
        arguments.seed, numbers, arguments.jobs, arguments.keep
    ):
        counts[verdict.outcome] += 1
        if not verdict.good:
            if cause(verdict) not in findings:
                sys.stderr.write(f"{verdict.case}: {verdict.outcome}\n")
            findings.setdefault(cause(verdict), []).append(verdict)
    seconds = time.monotonic() - begun
    sys.stdout.write(summary(arguments.cases, counts, findings, seconds))
    return int(bool(findings))


def summary(
    count: int, counts: Counter[str], findings: dict[str, list[Verdict]], seconds: float
) -> str:
    """Return how many cases ended how, and one finding of each cause."""
    good = ", ".join(f"{counts[outcome]:,} {outcome}" for outcome in (REFUSED, EQUAL))
    odd = sum(map(len, findings.values()))
    out = [f"{count:,} cases in {seconds:.0f} s: {good}, {odd:,} findings."]
    for name, verdicts in sorted(findings.items(), key=lambda item: -len(item[1])):
        case_id = verdicts[0].case.split(" ")[0]
        detail = " ".join(verdicts[0].detail.split())[:400]
        out += [
            f"\n{len(verdicts)} x {name}",
            f"  {verdicts[0].case}",
            f"  {detail}",
            f"  python -m tests.fuzz --replay {case_id}",
        ]
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    sys.exit(main())
