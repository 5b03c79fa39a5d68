"""The matching temperature, against scipy's softmax and root finder."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import softmax

import trustdoctor as td
from trustdoctor.errors import InputError
from trustdoctor.metrics import matching_temperature, top_probability


def by_scipy(logits, accuracy):
    def gap(warmth):
        return softmax(logits / np.exp(warmth), axis=1).max(1).mean() - accuracy

    return np.exp(brentq(gap, -8, 8, xtol=1e-13))


@pytest.mark.parametrize("classes", [2, 10, 100])
@pytest.mark.parametrize("accuracy", [0.55, 0.8, 0.97, 0.999])
def test_it_is_the_root_that_scipy_finds(classes, accuracy, rng):
    logits = 4 * rng.normal(size=(500, classes))
    found = matching_temperature(logits, accuracy)
    assert found == pytest.approx(by_scipy(logits, accuracy), rel=1e-8)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_narrow_numbers_and_excluded_classes(dtype, rng):
    logits = (4 * rng.normal(size=(500, 5))).astype(dtype)
    logits[::3, 4] = -np.inf
    found = matching_temperature(logits, 0.8)
    assert found == pytest.approx(by_scipy(logits.astype(float), 0.8), rel=1e-4)


@given(st.floats(-2, 2), st.floats(0.5, 0.95))
def test_a_colder_model_has_a_higher_temperature(scale, accuracy):
    logits = 3 * np.random.default_rng(0).normal(size=(50, 4))
    once = matching_temperature(logits, accuracy)
    scaled = matching_temperature(np.exp(scale) * logits, accuracy)
    assert scaled == pytest.approx(np.exp(scale) * once, rel=1e-9)


def test_top_probabilities_of_arrays_and_predictions(rng):
    logits = 3 * rng.normal(size=(50, 4))
    found = top_probability(td.Predictions.from_logits(logits), temperature=2.0)
    np.testing.assert_allclose(found, softmax(logits / 2, axis=1).max(1), rtol=1e-12)
    np.testing.assert_array_equal(found, top_probability(logits, temperature=2.0))


@pytest.mark.parametrize("accuracy", [0.0, 0.2, 0.25, 1.0, 1.2, np.nan])
def test_what_no_temperature_gives_is_refused(accuracy, rng):
    logits = 3 * rng.normal(size=(50, 4))
    with pytest.raises(InputError, match=r"no temperature .* between 0.25 and 1\. "):
        matching_temperature(logits, accuracy)


def test_certain_and_tied_rows_depend_on_no_temperature():
    for row in ([0.0, -np.inf], [0.0, 0.0]):
        with pytest.raises(InputError, match="no temperature"):
            matching_temperature(np.array([row] * 20), 0.75)
