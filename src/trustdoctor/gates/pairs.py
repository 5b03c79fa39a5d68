"""Two targets at once: the thresholds that keep both promises, or how near one gets."""

import math
from collections.abc import Mapping

from trustdoctor.gates.rules import Cut, accepting, place
from trustdoctor.gates.sample import Sample
from trustdoctor.gates.targets import TARGETS, Target

PAIRS = (("frr", "trr"), ("risk", "coverage"), ("risk", "frr"), ("risk", "trr"))
"""Targets that may be asked for together."""

BOTH = "Order statistics of the correct rows' and of the errors' scores bound it."
_KINDS = {"all": "all rows'", "correct": "the correct rows'", "errors": "the errors'"}


def is_pair(names: Mapping[str, object]) -> bool:
    """Tell whether these two targets may be asked for together.

    Examples
    --------
    >>> is_pair({"trr": 0.9, "risk": 0.1}), is_pair({"frr": 0.1, "joint": 0.1})
    (True, False)
    """
    return any(set(names) == set(pair) for pair in PAIRS)


def pair_words() -> str:
    """Name the pairs, for messages."""
    return "frr with trr, or risk with coverage, frr or trr"


def pair_rule(targets: list[Target]) -> str:
    """Say what bounds two targets, in one sentence."""
    kinds = {target.name: _KINDS[target.rests_on] for target in targets}
    if "risk" not in kinds:
        return BOTH
    (other,) = set(kinds) - {"risk"}
    return (
        "Fixed sequences of binomial tests over accepted counts bound the risk, and an "
        f"order statistic of {kinds[other]} scores the {_shown(other)}."
    )


def pair_delta(names: Mapping[str, object], delta: float) -> float:
    """Return what each of two promises may break, so that both hold at 1 - delta.

    Correct rows and errors are independent, so FRR and TRR multiply; other pairs rest
    on the same rows, and their risks add up.

    Examples
    --------
    >>> round(pair_delta({"frr": 0, "trr": 0}, 0.1), 6)
    0.051317
    >>> pair_delta({"risk": 0, "frr": 0}, 0.1)
    0.05
    """
    return delta / 2 if "risk" in names else 1 - math.sqrt(1 - delta)


def both_cut(rows: Sample, cuts: dict[str, Cut]) -> Cut:
    """Return a cut between the thresholds that keep both promises."""
    stages = tuple(stage for cut in cuts.values() for stage in cut.stages)
    if stages and all(cut.state == "accept-all" for cut in cuts.values()):
        return cuts["risk"]
    failed = {n: cut for n, cut in cuts.items() if _fails(TARGETS[n], cut)}
    if failed:
        return _not_both(failed)
    kept = [_kept(TARGETS[name], cut, rows) for name, cut in cuts.items()]
    spans = [(max(a[0], b[0]), min(a[1], b[1])) for a in kept[0] for b in kept[1]]
    least, most = max(spans, key=lambda at: (at[0] <= at[1], at[1], -at[0]))
    if least > most:
        return _apart(rows, cuts, least, most)
    if most == math.inf:
        why = "even accepting every row keeps the promise"
        return Cut("accept-all", trivial=why, stages=stages)
    middle = least + (most - least) / 2 if math.isfinite(least) else most
    if not rows.exact:
        middle = least if math.isfinite(least) else most  # parts no cell
    ends = (least, most) if math.isfinite(least) else None
    return Cut(at=middle, side="exact", feasible=ends, stages=stages)


def _shown(name: str) -> str:
    return name.upper() if len(name) == 3 else name


def _fails(target: Target, cut: Cut) -> bool:
    return cut.state == ("accept-all" if target.safe == "accept" else "reject-all")


def _kept(target: Target, cut: Cut, rows: Sample) -> list[tuple[float, float]]:
    """Return from where to where thresholds keep a promise.

    Of risk, which need not fall with the threshold, those alone that passed a test.
    """
    if cut.stages:
        ends = [(one.first, one.last) for one in cut.stages]
        return [(_at(first, rows), _at(last, rows)) for first, last in ends]
    at = place(cut, rows)
    return [(at, math.inf) if target.safe == "accept" else (-math.inf, at)]


def _at(accepted: int, rows: Sample) -> float:
    return place(accepting(rows, accepted), rows)


def _apart(rows: Sample, cuts: dict[str, Cut], least: float, most: float) -> Cut:
    """Say that no threshold does both, and how near one gets at either end."""
    low = next((name for name in cuts if TARGETS[name].safe == "accept"), "risk")
    (high,) = set(cuts) - {low}
    why = (
        f"no threshold does both: {_shown(low)} needs at least {least:.6g}"
        f"{_seen(rows, high, least)}, {_shown(high)} at most {most:.6g}"
        f"{_seen(rows, low, most)}; both are doubts"
    )
    return Cut("reject-all", trivial=why, broken=True)


def _seen(rows: Sample, name: str, threshold: float) -> str:
    """Say which rate was seen at a threshold, where that is known."""
    seen, counts = rows.confusion(threshold), TARGETS[name].counts
    if seen is None or counts is None:
        return ""
    part, whole = counts(seen)
    return f" ({_shown(name)} {part / whole:.1%} on these rows)" if whole else ""


def _not_both(failed: dict[str, Cut]) -> Cut:
    """Say why two targets cannot both be promised, where one of them cannot."""
    never = [(name, cut) for name, cut in failed.items() if not cut.short]
    if never:
        name, cut = never[0]
        why = f"{_shown(name)} cannot be promised: {cut.trivial}"
        return Cut("reject-all", trivial=why, broken=True)
    why = "the rows are too few to promise both: "
    why += ", and ".join(cut.trivial for cut in reversed(failed.values()))
    return Cut("reject-all", trivial=why, short=True, broken=True)
