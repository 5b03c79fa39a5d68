"""Scores of rows of both kinds."""

import numpy as np
from hypothesis import strategies as st


def draw(rng, n=400, rate=0.2, apart=1.5, step=0.0):
    """Normal scores, those of errors shifted; rounded to `step`."""
    errors = rng.random(n) < rate
    errors[:2] = True, False
    scores = rng.normal(size=n) + apart * errors
    return (np.round(scores / step) * step if step else scores), errors


@st.composite
def samples(draw, most=40):
    """Scores with many ties or none."""
    n = draw(st.integers(2, most))
    tied = st.integers(-3, 3).map(float)
    free = st.floats(-50, 50, width=32)
    scores = draw(st.lists(draw(st.sampled_from([tied, free])), min_size=n, max_size=n))
    errors = draw(st.lists(st.booleans(), min_size=n, max_size=n))
    errors[0], errors[1] = True, False
    return np.array(scores), np.array(errors)


def components(scores, errors):
    """DeLong's structural components by comparing every pair."""
    e, c = scores[errors], scores[~errors]
    kernel = (e[:, None] > c) + 0.5 * (e[:, None] == c)
    return kernel.mean(1), kernel.mean(0)
