"""Puts a cascade, and the picture of cost against risk, into its template."""

from string import ascii_uppercase
from typing import Any

from trustdoctor.gates import Certificate, Shortlist, shortlist_notes
from trustdoctor.opinion import COST_CONFIDENCE, PERSON, Alone, Cascade, Measured
from trustdoctor.report.cascade_words import (
    OPTIMISTIC,
    RATES,
    combined,
    cost_digits,
    cost_form,
    cost_words,
    doubtful_gains,
    find_view,
    headline,
    list_steps,
    require_measured,
    short_name,
)
from trustdoctor.report.template import fill_page, shorten
from trustdoctor.report.text import RATE_NAMES

_COLOURS = 5  # that lines are drawn in
_NAMES = {
    "coverage": "rows accepted (coverage)",
    "joint": RATES["joint"],
    **RATE_NAMES,
}


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
    seen, certificate = require_measured(cascade)
    form = cost_form(seen)
    return fill_page(
        "cascade",
        _payload(seen),
        names=[*map(short_name, cascade.stages), PERSON],
        promise=certificate.promise(),
        headline=headline(cascade),
        doubtful=list(doubtful_gains(seen)),
        optimistic=OPTIMISTIC,
        level=f"{COST_CONFIDENCE * 100:g}%",
        rate=RATES[seen.target],
        seen=seen,
        rows=[_row(one, form) for one in (seen.whole, *seen.alone)],
        models=_models(seen),
        steps=[(step, f"{step.adds:{form}}") for step in list_steps(cascade)],
        total=f"{seen.whole.cost.value:{form}}",
        combined=" ".join(combined(cascade)),
        score=cascade.score,
        certificate=certificate,
        grounds=_grounds(certificate, cascade.shortlist),
        observed=[
            (_sentence(_NAMES.get(name, name)), rate)
            for name, rate in certificate.observed.items()
        ],
        lists=_lists(cascade.shortlist),
    )


def _sentence(text: str) -> str:
    """Return a text that begins with a capital letter."""
    return text[:1].upper() + text[1:]


def _row(one: Alone, form: str) -> list[str]:
    """Return what the cascade or one model does, for the table."""
    name = f"{short_name(one.name)} alone" if one.more else "The cascade"
    return [
        name,
        cost_words(one.cost, form),
        cost_words(one.more, form, sign=True),
        f"{one.person:.2%}",
        f"{one.rate:.2%}",
    ]


def _models(seen: Measured) -> list[dict[str, Any]]:
    """Return each model alone, with the letter and the colour of its curve."""
    return [
        {
            "key": ascii_uppercase[i % len(ascii_uppercase)],
            "kind": f"s{i % _COLOURS + 1}",
            "name": short_name(one.name),
            "at": [one.rate, one.cost.value],
            "curve": seen.curves[one.name].tolist(),
        }
        for i, one in enumerate(seen.alone)
    ]


def _payload(seen: Measured) -> dict[str, Any]:
    """Return what the script draws."""
    view = find_view(seen)
    return {
        "rate": RATES[seen.target],
        "axis": f"{_sentence(RATES[seen.target])}, %",
        "limit": seen.limit,
        "digits": cost_digits(seen),
        "rates": list(view.rates),
        "costs": list(view.costs),
        "policies": seen.policies.tolist(),
        "tested": seen.tested.tolist(),
        "passed": seen.passed,
        "models": _models(seen),
    }


def _grounds(certificate: Certificate, short: Shortlist | None) -> list[str]:
    """Return the notes of a certificate; what is said of lists stands elsewhere."""
    own = () if short is None else shortlist_notes(short)
    return [shorten(note) for note in certificate.notes if note not in own]


def _lists(short: Shortlist | None) -> list[str]:
    """Say what short lists promise, and which classes are on them."""
    if short is None:
        return []
    notes = [note.removeprefix("Shortlist: ") for note in shortlist_notes(short)]
    least = short.least_probability
    if least:
        notes.append(f"A list holds every class of probability {least:.2g} or more.")
    if short.max_size is not None:
        notes.append(
            f"A list of more than {short.max_size} becomes a full review, of every "
            "class."
        )
    return [_sentence(note) for note in notes]
