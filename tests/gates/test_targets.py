"""The contract of targets, over the table."""

import laws
import numpy as np
import pytest

import trustdoctor as td
from trustdoctor.errors import InputError
from trustdoctor.gates import ExpectedCounts

VALUES = {
    "frr": 0.1,
    "trr": 0.8,
    "risk": 0.12,
    "joint": 0.1,
    "coverage": 0.7,
    "cost": 3.0,
    "threshold": -1.5,
}
targets = pytest.mark.parametrize("name", td.TARGETS)


def test_the_table_is_covered():
    assert set(VALUES) == set(td.TARGETS)


@targets
def test_limits_and_words(name):
    laws.target_refuses_what_is_beyond_its_limits(td.TARGETS[name], VALUES[name])
    laws.target_says_what_it_promises(td.TARGETS[name], VALUES[name])


@targets
def test_gates(name, tmp_path):
    target = td.TARGETS[name]
    laws.target_makes_a_gate(target, VALUES[name])
    laws.target_survives_its_file(target, VALUES[name], tmp_path)
    laws.target_is_watched(target, VALUES[name])


@targets
def test_the_safe_side_is_where_its_name_says(name):
    """Accepting more keeps FRR and coverage; rejecting more keeps the others."""
    target = td.TARGETS[name]
    if target.expected_to_hold is None:
        return
    correct, errors = np.array([0.9, 1.7, 2.3, 2.5]), np.array([0.1, 0.3, 0.7, 1.5])
    expected = ExpectedCounts(np.arange(1.0, 5), correct, errors, 4)
    good = target.expected_to_hold(expected, 0.3 if name != "trr" else 0.7)
    assert good.any()
    assert not good.all()
    first = good.argmax() if target.safe_side == "accept" else (~good).argmax()
    assert (good[first:] == (target.safe_side == "accept")).all()


def test_labels_are_asked_for_where_they_are_needed():
    bare = td.Predictions.from_logits(laws.rows(500).logits)
    for name, target in td.TARGETS.items():
        if target.needs_labels:
            with pytest.raises(InputError, match="needs to know which"):
                td.calibrate(bare, **{name: VALUES[name]})
        else:
            assert (
                td.calibrate(bare, **{name: VALUES[name]}).certificate.n_errors is None
            )


def test_a_name_is_taken_once():
    with pytest.raises(InputError, match="is taken by a target"):
        td.register_target(td.TARGETS["frr"])
