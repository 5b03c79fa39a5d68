"""``python -m tests.fuzz``: run cases, and tell what was found."""

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
    """Return what findings of one cause have in common."""
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


def replay(which: str, keep: Path | None) -> int:
    """Run one case in this process, and show all of what became of it."""
    seed, number = map(int, which.split(":"))
    verdict = pool.run_one(seed, number, keep)
    sys.stdout.write(f"{verdict.case}\n{verdict.outcome}\n{verdict.detail}\n")
    return int(not verdict.good)


def main() -> int:
    given = _arguments()
    if given.keep is not None:
        given.keep = given.keep.resolve()
        given.keep.mkdir(parents=True, exist_ok=True)
    if given.replay:
        return replay(given.replay, given.keep)
    begun, counts = time.monotonic(), Counter[str]()
    found: dict[str, list[Verdict]] = {}
    numbers = cases.numbers(given.cases, given.only, given.first)
    for verdict in pool.run_all(given.seed, numbers, given.jobs, given.keep):
        counts[verdict.outcome] += 1
        if not verdict.good:
            if cause(verdict) not in found:
                sys.stderr.write(f"{verdict.case}: {verdict.outcome}\n")
            found.setdefault(cause(verdict), []).append(verdict)
    taken = time.monotonic() - begun
    sys.stdout.write(summary(given.cases, counts, found, taken))
    return int(bool(found))


def summary(
    count: int, counts: Counter[str], found: dict[str, list[Verdict]], taken: float
) -> str:
    """Return how many cases came to what, and one of each cause."""
    good = ", ".join(f"{counts[one]:,} {one}" for one in (REFUSED, EQUAL))
    odd = sum(map(len, found.values()))
    out = [f"{count:,} cases in {taken:.0f} s: {good}, {odd:,} findings."]
    for name, verdicts in sorted(found.items(), key=lambda item: -len(item[1])):
        which = verdicts[0].case.split(" ")[0]
        detail = " ".join(verdicts[0].detail.split())[:400]
        out += [
            f"\n{len(verdicts)} x {name}",
            f"  {verdicts[0].case}",
            f"  {detail}",
            f"  python -m tests.fuzz --replay {which}",
        ]
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    sys.exit(main())
