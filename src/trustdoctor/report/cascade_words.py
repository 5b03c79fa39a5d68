"""What is said of a cascade: on its page, in the terminal, beside its picture."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from trustdoctor.errors import InputError
from trustdoctor.gates import Certificate
from trustdoctor.metrics import Estimate
from trustdoctor.opinion import PERSON, Cascade, Measured
from trustdoctor.report.template import MOST_NAME, shorten
from trustdoctor.report.text import RATE_NAMES

RATES = {
    "risk": RATE_NAMES["risk"],
    "joint": "wrong and accepted, of all (joint)",
    "trr": "errors not caught (1 - TRR)",
}
"""What the rate is called that a cascade keeps below a limit."""

OPTIMISTIC = (
    "The rows that tested the policies also decided which one is used, so these costs "
    "are slightly optimistic."
)
_COMBINED = {
    "average": "A later model answers together with those asked before it, by the mean "
    "of their log-probabilities; the doubt is that of the mean.",
    "own": "Every model answers by itself.",
}


def require_measured(cascade: Cascade) -> tuple[Measured, Certificate]:
    """Return what policies cost and what is promised, or say that nothing is known."""
    if not isinstance(cascade, Cascade):
        message = f"expected a Cascade, got {type(cascade).__name__}."
        raise InputError(message)
    if cascade.measured is None or cascade.certificate is None:
        message = (
            "expected a cascade that knows what its policies cost, got one made by "
            "hand. Make it with Cascade.calibrate."
        )
        raise InputError(message)
    return cascade.measured, cascade.certificate


def short_name(name: str) -> str:
    """Return what a stage is called, in one line of bearable length."""
    return shorten(name, MOST_NAME)


class Step(NamedTuple):
    """What one stage does to the rows that tested.

    Attributes
    ----------
    name : str
    rule : str
        Where a row stops here.
    price : float
        Of asking about one row.
    asked, stops : float
        Shares of all rows that come here, and that end here.
    before : float
        Share of all rows that stopped earlier.
    """

    name: str
    rule: str
    price: float
    asked: float
    stops: float
    before: float

    @property
    def adds(self) -> float:
        """What the stage costs per row, over all rows."""
        return self.price * self.asked


def list_steps(cascade: Cascade) -> list[Step]:
    """Return the way of the rows through the stages; a person is the last.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(0, 3, 3000)
    >>> truth = 4 * np.eye(3)[labels]
    >>> two = [truth + s * rng.normal(size=(3000, 3)) for s in (4, 2)]
    >>> cascade = Cascade.calibrate(two, labels, risk=0.05, costs=[0, 1, 9])
    >>> [step.name for step in list_steps(cascade)]
    ['stage 1', 'stage 2', 'a person']
    """
    seen, _ = require_measured(cascade)
    person = seen.whole.person
    came = {k: seen.asked[k] for k in cascade.asked}
    left = dict(zip(came, [*list(came.values())[1:], person], strict=True))
    steps, before = [], 0.0
    for k, name in enumerate(cascade.stages):
        asked = came.get(k, 0.0)
        stops = asked - left.get(k, 0.0)
        own = short_name(name), _rule(cascade, k), cascade.costs[k]
        steps.append(Step(*own, asked, stops, before))
        before += stops
    steps.append(Step(PERSON, "always", cascade.costs[-1], person, person, before))
    return steps


def _rule(cascade: Cascade, k: int) -> str:
    """Say where rows stop at a stage."""
    at = cascade.thresholds[k]
    if k not in cascade.asked:
        return "not asked"
    if not math.isfinite(at):
        return "always" if at > 0 else "never"
    return f"{cascade.score} at most {at:.4g}"


def combined(cascade: Cascade) -> list[str]:
    """Say how models answer together, where more than one is asked."""
    return [_COMBINED[cascade.combine]] if len(cascade.asked) > 1 else []


def headline(cascade: Cascade) -> str:
    """Say who is asked how often, and what that costs against each model alone."""
    seen, _ = require_measured(cascade)
    form = cost_form(seen)
    names = list(map(short_name, cascade.stages))
    first, *later = cascade.asked
    shares = [(names[k], f"{seen.asked[k]:.1%}") for k in later]
    parts = [f"{name} about {share}" for name, share in shares]
    if parts:
        name, share = shares[0]
        parts[0] = f"{name} is asked about {share} of the rows"
    else:
        parts = [f"Only {names[first]} is asked"]
    parts.append(f"{PERSON} gets {seen.whole.person:.1%}")
    alone = ", ".join(
        f"{short_name(one.name)} alone {one.cost.value:{form}}" for one in seen.alone
    )
    return (
        f"{', '.join(parts)}. That costs {seen.whole.cost.value:{form}} per row; "
        f"{alone}."
    )


def doubtful_gains(seen: Measured) -> Iterator[str]:
    """Say which models alone are not clearly dearer than the cascade."""
    for one in seen.alone:
        if one.person == 1:
            yield f"No gate on {short_name(one.name)} alone keeps the promise."
        if one.more is None or one.more.low is None or one.more.low > 0:
            continue
        name = short_name(one.name)
        if one.more.high is not None and one.more.high < 0:
            yield f"{name} alone costs less on these rows: a gate for it would do."
        else:
            yield f"Whether the cascade costs less than {name} alone is not clear."


def cost_form(seen: Measured) -> str:
    """Return the format of costs: as many decimals as the largest needs, for all."""
    return digits_form(cost_digits(seen))


def cost_digits(seen: Measured) -> int:
    """Return how many decimals a cost is shown with."""
    return decimals(*(one.cost.value or 0.0 for one in (seen.whole, *seen.alone)))


def decimals(*costs: float) -> int:
    """Return the decimals that show three digits of the largest cost, or four above 10.

    Examples
    --------
    >>> decimals(12.3, 0.1), decimals(0.0123), decimals(4567.0), decimals(0.0)
    (2, 4, 0, 2)
    """
    most = max(costs)
    if most <= 0:
        return 2
    size = math.floor(math.log10(most))
    return min(12, max(0, (3 if size > 0 else 2) - size))


def digits_form(digits: int) -> str:
    """Return the format of a number with so many decimals."""
    return f",.{digits}f"


def cost_words(cost: Estimate | None, form: str, *, sign: bool = False) -> str:
    """Show a cost with its interval; nothing where there is none.

    Examples
    --------
    >>> cost_words(Estimate(1.234, 1.0, 1.5), ",.2f", sign=True)
    '+1.23 [+1.00, +1.50]'
    """
    if cost is None or cost.value is None:
        return ""
    own = f"+{form}" if sign else form
    ends = ""
    if cost.low is not None and cost.high is not None:
        ends = f" [{cost.low:{own}}, {cost.high:{own}}]"
    return f"{cost.value:{own}}{ends}"


class View(NamedTuple):
    """The part of the picture that is shown: rates, and costs, from and to."""

    rates: tuple[float, float]
    costs: tuple[float, float]


def find_view(seen: Measured) -> View:
    """Return the part around the limit: twice as far, and above every model alone."""
    right = min(1.0, 2 * seen.limit) or 1.0
    points = np.concatenate([seen.policies, seen.tested, *seen.curves.values()])
    near = points[points[:, 0] <= right, 1]
    own = [one.cost.value or 0.0 for one in (seen.whole, *seen.alone)]
    low, top = min([*own, *near.tolist()]), max(own)
    high = top + 0.6 * max(top - low, 0.1 * top, 1e-9)
    return View((0.0, right), (max(0.0, low - 0.05 * (high - low)), high))
