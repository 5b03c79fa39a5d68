"""What a page recommends as it opens: a score, and round values of a risk."""

from trustdoctor.evaluation import Evaluation, gains_over

ROUND = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3)
"""Risks that are offered first."""

FRR = 0.05
"""Offered where no such risk can be had."""

PRICE = 20
"""What an error costs in reviews, at first."""


def best_score(found: Evaluation) -> str:
    """Return the first score, or of those that rank errors clearly better the best."""
    first = next(iter(found.scores))
    level = found.settings.confidence
    gains = gains_over(first, found.differences, confidence=level)
    clear = {name: g.value or 0.0 for name, g in gains.items() if (g.low or 0) > 0}
    return max(clear, key=lambda name: clear[name]) if clear else first


def say_alike(found: Evaluation, best: str) -> str:
    """Say in one sentence which scores are as good as the best one here."""
    names = list(found.scores)
    if len(names) < 2:
        return ""
    level = found.settings.confidence
    gains = gains_over(best, found.differences, confidence=level)
    worse = [name for name, gain in gains.items() if (gain.high or 0) < 0]
    alike = [name for name in names if name != best and name not in worse]
    if not worse:
        return (
            f"On these rows no score is clearly better than another; {best} is shown."
        )
    if not alike:
        return f"On these rows {best} ranks errors clearly better than all others."
    return (
        f"On these rows {best} ranks errors clearly better than {_listed(worse)}, and "
        f"does not differ clearly from {_listed(alike)}."
    )


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def round_risks(without: float) -> list[float]:
    """Return round risks of at most half of that without a gate, the largest first.

    Examples
    --------
    >>> round_risks(0.05)
    [0.02, 0.01, 0.005, 0.002, 0.001]
    """
    return [risk for risk in reversed(ROUND) if risk <= without / 2]
