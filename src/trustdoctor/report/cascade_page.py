"""A cascade in words and numbers, and its page: the picture of cost against risk."""

import math
from collections.abc import Iterator
from string import ascii_uppercase
from typing import Any, NamedTuple

import numpy as np

from trustdoctor.errors import InputError
from trustdoctor.gates import Certificate, Shortlist, shortlist_notes
from trustdoctor.metrics import Estimate
from trustdoctor.opinion import COST_CONFIDENCE, PERSON, Alone, Cascade, Measured
from trustdoctor.report.template import MOST_NAME, fill_page, sentence, shorten
from trustdoctor.watch import RATE_NAMES

LIMITED_RATES = RATE_NAMES | {"trr": "errors not caught (1 - TRR)"}
"""The name of the rate that a cascade keeps below a limit, by its target."""

OPTIMISTIC = (
    "The rows that tested the policies also decided which one is used, so these costs "
    "are slightly optimistic."
)
_COMBINED = {
    "average": "A later model answers together with those asked before it, by the mean "
    "of their log-probabilities; the doubt is that of the mean.",
    "own": "Every model answers by itself.",
}
_LINE_COLOURS = 5  # --s1 to --s5 of components.css


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
    """Return a stage's name in one line of bearable length."""
    return shorten(name, MOST_NAME)


class Step(NamedTuple):
    """One stage, and its share of the rows that tested.

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
    """Return the stages in order, with a person as the last.

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
    measured, _ = require_measured(cascade)
    person = measured.whole.person
    asked_shares = {k: measured.asked[k] for k in cascade.asked}
    # Who is not settled at a stage comes to the next one that is asked.
    goes_on = dict(
        zip(asked_shares, [*list(asked_shares.values())[1:], person], strict=True)
    )
    steps, before = [], 0.0
    for k, name in enumerate(cascade.stages):
        asked = asked_shares.get(k, 0.0)
        stops = asked - goes_on.get(k, 0.0)
        rule = _stop_rule(cascade, k)
        steps.append(
            Step(short_name(name), rule, cascade.costs[k], asked, stops, before)
        )
        before += stops
    steps.append(Step(PERSON, "always", cascade.costs[-1], person, person, before))
    return steps


def _stop_rule(cascade: Cascade, k: int) -> str:
    """Say where rows stop at a stage."""
    threshold = cascade.thresholds[k]
    if k not in cascade.asked:
        return "not asked"
    if not math.isfinite(threshold):
        return "always" if threshold > 0 else "never"
    return f"{cascade.score} at most {threshold:.4g}"


def combined(cascade: Cascade) -> list[str]:
    """Say how models answer together, if more than one is asked."""
    return [_COMBINED[cascade.combine]] if len(cascade.asked) > 1 else []


def headline(cascade: Cascade) -> str:
    """Say who is asked how often, and what that costs against each model alone."""
    measured, _ = require_measured(cascade)
    cost_format = format_of_costs(measured)
    names = list(map(short_name, cascade.stages))
    first, *later = cascade.asked
    shares = [f"{names[k]} about {measured.asked[k]:.1%}" for k in later]
    if later:
        k = later[0]
        shares[0] = f"{names[k]} is asked about {measured.asked[k]:.1%} of the rows"
    else:
        shares = [f"Only {names[first]} is asked"]
    shares.append(f"{PERSON} gets {measured.whole.person:.1%}")
    costs_alone = ", ".join(
        f"{short_name(model.name)} alone {model.cost.value:{cost_format}}"
        for model in measured.alone
    )
    return (
        f"{', '.join(shares)}. That costs {measured.whole.cost.value:{cost_format}} "
        f"per row; {costs_alone}."
    )


def doubtful_gains(measured: Measured) -> Iterator[str]:
    """Say which models alone are not clearly dearer than the cascade."""
    for model in measured.alone:
        name, more = short_name(model.name), model.more
        if model.person == 1:
            yield f"No gate on {name} alone keeps the promise."
        if more is None or more.low is None or more.low > 0:
            continue
        if more.high is not None and more.high < 0:
            yield f"{name} alone costs less on these rows: a gate for it would do."
        else:
            yield f"Whether the cascade costs less than {name} alone is not clear."


def format_of_costs(measured: Measured) -> str:
    """Return the format of costs: as many decimals as the largest needs, for all."""
    return with_decimals(cost_decimals(measured))


def cost_decimals(measured: Measured) -> int:
    """Return how many decimals a cost is shown with."""
    costs = (model.cost.value or 0.0 for model in (measured.whole, *measured.alone))
    return decimals(*costs)


def decimals(*costs: float) -> int:
    """Return the decimals that show three digits of the largest cost, or four above 10.

    Examples
    --------
    >>> decimals(12.3, 0.1), decimals(0.0123), decimals(4567.0), decimals(0.0)
    (2, 4, 0, 2)
    """
    largest = max(costs)
    if largest <= 0:
        return 2
    magnitude = math.floor(math.log10(largest))
    return min(12, max(0, (3 if magnitude > 0 else 2) - magnitude))


def with_decimals(n_decimals: int) -> str:
    """Return the format of a number with this many decimals."""
    return f",.{n_decimals}f"


def cost_words(cost: Estimate | None, cost_format: str, *, sign: bool = False) -> str:
    """Show a cost with its interval; an unknown one is empty.

    Examples
    --------
    >>> cost_words(Estimate(1.234, 1.0, 1.5), ",.2f", sign=True)
    '+1.23 [+1.00, +1.50]'
    """
    if cost is None or cost.value is None:
        return ""
    signed = f"+{cost_format}" if sign else cost_format
    interval = ""
    if cost.low is not None and cost.high is not None:
        interval = f" [{cost.low:{signed}}, {cost.high:{signed}}]"
    return f"{cost.value:{signed}}{interval}"


class VisibleRange(NamedTuple):
    """The ranges of rates and of costs that the picture shows."""

    rates: tuple[float, float]
    costs: tuple[float, float]


def visible_range(measured: Measured) -> VisibleRange:
    """Return the range around the limit: twice as far, and above every model alone."""
    highest_rate = min(1.0, 2 * measured.limit) or 1.0
    points = np.concatenate(
        [measured.policies, measured.tested, *measured.curves.values()]
    )
    costs_in_range = points[points[:, 0] <= highest_rate, 1].tolist()
    models = (measured.whole, *measured.alone)
    model_costs = [model.cost.value or 0.0 for model in models]
    low, dearest = min([*model_costs, *costs_in_range]), max(model_costs)
    high = dearest + 0.6 * max(dearest - low, 0.1 * dearest, 1e-9)
    return VisibleRange(
        (0.0, highest_rate), (max(0.0, low - 0.05 * (high - low)), high)
    )


def render_cascade(cascade: Cascade) -> str:
    """Return the page of a cascade. The same cascade gives the same bytes.

    Parameters
    ----------
    cascade : Cascade
        One from `Cascade.calibrate`, which knows what its policies cost.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(0, 3, 3000)
    >>> truth = 4 * np.eye(3)[labels]
    >>> two = [truth + s * rng.normal(size=(3000, 3)) for s in (4, 2)]
    >>> cascade = Cascade.calibrate(two, labels, risk=0.05, costs=[0, 1, 9])
    >>> "stage 2 is asked about" in render_cascade(cascade)
    True
    """
    measured, certificate = require_measured(cascade)
    cost_format = format_of_costs(measured)
    models = [measured.whole, *measured.alone]
    return fill_page(
        "cascade",
        _picture(measured),
        names=[*map(short_name, cascade.stages), PERSON],
        promise=certificate.promise(),
        headline=headline(cascade),
        doubtful=list(doubtful_gains(measured)),
        optimistic=OPTIMISTIC,
        level=f"{COST_CONFIDENCE * 100:g}%",
        rate=LIMITED_RATES[measured.target],
        measured=measured,
        rows=[_model_row(model, cost_format) for model in models],
        models=_curves(measured),
        steps=[(step, f"{step.adds:{cost_format}}") for step in list_steps(cascade)],
        total=f"{measured.whole.cost.value:{cost_format}}",
        combined=" ".join(combined(cascade)),
        score=cascade.score,
        certificate=certificate,
        notes=_certificate_notes(certificate, cascade.shortlist),
        observed=[
            (sentence(RATE_NAMES.get(name, name)), rate)
            for name, rate in certificate.observed.items()
        ],
        lists=_list_sentences(cascade.shortlist),
    )


def _model_row(model: Alone, cost_format: str) -> list[str]:
    """Return the table's cells for the cascade or for one model alone."""
    return [
        f"{short_name(model.name)} alone" if model.more else "The cascade",
        cost_words(model.cost, cost_format),
        cost_words(model.more, cost_format, sign=True),
        f"{model.person:.2%}",
        f"{model.rate:.2%}",
    ]


def _curves(measured: Measured) -> list[dict[str, Any]]:
    """Return each model alone, with the letter and the colour of its curve."""
    return [
        {
            "key": ascii_uppercase[i % len(ascii_uppercase)],
            "kind": f"s{i % _LINE_COLOURS + 1}",
            "name": short_name(model.name),
            "at": [model.rate, model.cost.value],
            "curve": measured.curves[model.name].tolist(),
        }
        for i, model in enumerate(measured.alone)
    ]


def _picture(measured: Measured) -> dict[str, Any]:
    """Return what the script draws."""
    shown = visible_range(measured)
    rate_name = LIMITED_RATES[measured.target]
    return {
        "rate": rate_name,
        "axis": f"{sentence(rate_name)}, %",
        "limit": measured.limit,
        "digits": cost_decimals(measured),
        "rates": list(shown.rates),
        "costs": list(shown.costs),
        "policies": measured.policies.tolist(),
        "tested": measured.tested.tolist(),
        "passed": measured.passed,
        "models": _curves(measured),
    }


def _certificate_notes(
    certificate: Certificate, shortlist: Shortlist | None
) -> list[str]:
    """Return the notes of a certificate but those of lists, which stand elsewhere."""
    of_lists = () if shortlist is None else shortlist_notes(shortlist)
    return [shorten(note) for note in certificate.notes if note not in of_lists]


def _list_sentences(shortlist: Shortlist | None) -> list[str]:
    """Say what short lists promise, and which classes are on them."""
    if shortlist is None:
        return []
    notes = [note.removeprefix("Shortlist: ") for note in shortlist_notes(shortlist)]
    least = shortlist.least_probability
    if least:
        notes.append(f"A list holds every class of probability {least:.2g} or more.")
    if shortlist.max_size is not None:
        notes.append(
            f"A list of more than {shortlist.max_size} becomes a full review, of every "
            "class."
        )
    return list(map(sentence, notes))
