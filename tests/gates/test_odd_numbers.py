"""Numbers that nobody means, wherever a promise takes one: an answer, or one line."""

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

import trustdoctor as td
from trustdoctor.errors import InputError
from trustdoctor.gates.rules import MOST_ROWS, least_rows
from trustdoctor.gates.shortlist_calibration import conformal_rank

pytestmark = pytest.mark.filterwarnings("ignore")

ODD = {
    "denormal": 1e-320,
    "least": 5e-324,
    "minus zero": -0.0,
    "nan": math.nan,
    "infinite": math.inf,
    "huge": 1e308,
    "beyond floats": 10**400,
    "below floats": -(10**400),
    "too long to write": 10**5000,
    "fraction": Fraction(1, 10**400),
    "decimal": Decimal("1e-400"),
    "numpy": np.float64(1e-320),
    "next to 1": 1 - 2**-53,
    "next to 0": 1e-16,
    "text": "1e-320%",
    "bytes": b"1",
    "none": None,
    "complex": 1 + 0j,
    "array": np.array([0.1]),
    "true": True,
}

RATES = ("risk", "frr", "trr", "coverage", "joint", "cost", "threshold")

ASKS = {
    **{name: lambda p, v, n=name: td.calibrate(p, **{n: v}) for name in RATES},
    "frr and trr": lambda p, v: td.calibrate(p, frr=v, trr=0.5),
    "risk and coverage": lambda p, v: td.calibrate(p, risk=v, coverage=0.5),
    "coverage and risk": lambda p, v: td.calibrate(p, risk=0.3, coverage=v),
    "confidence": lambda p, v: td.calibrate(p, risk=0.3, confidence=v),
    "label_noise": lambda p, v: td.calibrate(p, risk=0.3, label_noise=v),
    "temperature": lambda p, v: td.calibrate(p, risk=0.3, temperature=v),
    "shortlist": lambda p, v: td.calibrate(p, frr=0.1, shortlist=v),
    "expectation": lambda p, v: td.calibrate(p, frr=v, mode="expectation"),
    "risk on average": lambda p, v: td.calibrate(p, risk=v, mode="expectation"),
    "accuracy": lambda p, v: td.calibrate_unlabelled(p, risk=0.3, accuracy=v),
    "compare": lambda p, v: td.compare(p, confidence=v),
    "evaluate": lambda p, v: td.evaluate(p, scores=["alpha"], confidence=v),
    "evaluate's temperature": lambda p, v: td.evaluate(p, temperature=v),
    "tune": lambda p, v: td.tune(p, risk=v),
    "exponent": lambda _, v: td.SCORES["gen"].with_parameters(exponent=v),
    "watch": lambda _, v: GATE.watch(level=v),
    "watch's noise": lambda _, v: GATE.watch(label_noise=v),
    "watch's deadline": lambda _, v: GATE.watch(deadline=v),
    "gamma": lambda _, v: td.Gate.from_gamma(v),
    "gate": lambda _, v: td.Gate(v),
    "gate's temperature": lambda _, v: td.Gate.from_gamma(1.0, temperature=v),
}


def make_rows():
    rng = np.random.default_rng(0)
    logits = 3 * rng.normal(size=(300, 3))
    labels = np.where(rng.random(300) < 0.9, logits.argmax(1), 0)
    return td.Predictions.from_logits(logits, labels)


GATE = td.calibrate(make_rows(), frr=0.1)


@pytest.fixture(scope="module")
def rows():
    return make_rows()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("ask", ASKS)
def test_odd_numbers_are_accepted_or_refused_in_one_line(ask, rows):
    for value in ODD.values():
        message = ""
        try:
            ASKS[ask](rows, value)
        except InputError as error:
            message = str(error)
        assert "\n" not in message
        assert len(message) < 600


def test_the_least_rows_of_a_promise_are_bounded():
    for risk in (1e-320, 1e-18):
        assert least_rows(risk, 0.1) == MOST_ROWS
    assert least_rows(0.02, 0.09) == 120


@pytest.mark.parametrize("level", [0.5, 0.7, 0.9, 0.95, 0.99, 1 - 2**-53])
@pytest.mark.parametrize("frr", [0.1, 0.5])
def test_how_many_rows_a_list_needs_is_found_without_counting(level, frr, rows):
    too_few = rows[:30] if level > 0.6 else rows[:12]
    gate = td.calibrate(too_few, frr=frr, shortlist=level)
    notes = [note for note in gate.certificate.notes if "At least" in note]
    if not notes:
        return
    words = notes[0].split()
    least = int(words[words.index("least") + 1].replace(",", ""))
    same = gate.shortlist.same_rows
    assert conformal_rank(least + same, level) <= least
    assert least == 1 or conformal_rank(least - 1 + same, level) > least - 1
