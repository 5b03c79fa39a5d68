import math

import numpy as np
import pytest
from mpmath import mp, mpf

from trustdoctor.kernels import _native, bet

NOTHING = -math.inf


@pytest.fixture(params=["C", "numpy"], autouse=True)
def _how(request, monkeypatch):
    if request.param == "numpy":
        monkeypatch.setattr(_native, "available", False)


def exactly(sums, hit, miss, what, left, starts, opposed=()):
    """Bet as the definition says, in 60 digits."""
    with mp.workdps(60):
        own = [mp.exp(mpf(float(one))) for one in sums]
        ratios, sides = [[mpf(1)] * len(own)], (miss, hit, opposed)
        ratios += [[mp.exp(mpf(float(one))) for one in side] for side in sides]
        left, evidence = mpf(left), []
        for row in what.tolist():
            starts += 1
            stake = left / (starts + 1)
            left -= stake
            own = [(s + stake) * r for s, r in zip(own, ratios[row], strict=True)]
            evidence.append(float(mp.log(sum(own) / len(own) + left)))
        return [float(mp.log(one)) for one in own], float(left), evidence


def steps(rng, n, share):
    return np.where(rng.random(n) < 0.1, 0, 1 + (rng.random(n) < share)).astype(
        np.uint8
    )


@pytest.mark.parametrize("share", [0.0, 0.04, 0.5, 1.0])
@pytest.mark.parametrize(
    ("hit", "miss"),
    [
        (np.linspace(0.02, 3.7, 7), np.linspace(-0.001, -1.2, 7)),
        (np.array([0.5]), np.array([-0.7])),
        (np.full(3, 690.0), np.zeros(3)),  # a row that cannot be
    ],
)
def test_it_is_the_definition(hit, miss, share, rng):
    what = steps(rng, 400, share)
    sums = np.log(rng.random(len(hit)) * 0.01)
    sums[0] = NOTHING
    found = bet(sums, hit, miss, what, 0.25, 3)
    for own, exact in zip(found, exactly(sums, hit, miss, what, 0.25, 3), strict=True):
        np.testing.assert_allclose(own, exact, rtol=1e-12, atol=1e-11)


def test_a_third_ratio_is_the_definition(rng):
    hit, miss = np.linspace(0.02, 3, 60), np.linspace(-0.01, -1, 60)
    opposed, sums = np.linspace(-0.02, -0.7, 60), np.full(60, NOTHING)
    what = rng.integers(0, 4, 400).astype(np.uint8)
    found = bet(sums, hit, miss, what, 1.0, 0, opposed)
    exact = exactly(sums, hit, miss, what, 1.0, 0, opposed)
    for own, wanted in zip(found, exact, strict=True):
        np.testing.assert_allclose(own, wanted, rtol=1e-12, atol=1e-11)


def test_pieces_are_the_whole(rng):
    """Wherever a call ends, the next one goes on from there."""
    hit, miss = np.linspace(0.02, 3, 60), np.linspace(-0.01, -1, 60)
    what, state = steps(rng, 5000, 0.3), (np.full(60, NOTHING), 1.0)
    whole = bet(state[0], hit, miss, what, state[1], 0)
    parts, at = [], 0
    for end in (1, 2, 100, 1000, 4999, 5000):
        sums, left, evidence = bet(state[0], hit, miss, what[at:end], state[1], at)
        state, at = (sums, left), end
        parts.append(evidence)
    np.testing.assert_allclose(np.concatenate(parts), whole[2], atol=1e-9)
    np.testing.assert_allclose(state[0], whole[0], atol=1e-9)
    assert state[1] == whole[1]


def test_evidence_beyond_all_numbers_and_back():
    hit, miss = np.full(2, 3.0), np.full(2, -3.0)
    what = np.repeat(np.uint8([2, 1]), 2000)
    _, _, evidence = bet(np.full(2, NOTHING), hit, miss, what, 1.0, 0)
    assert evidence[1999] == pytest.approx(6000, abs=2)
    assert np.isfinite(evidence).all()
    assert evidence[-1] < 1


@pytest.mark.parametrize("alternatives", [0, 200])
def test_any_number_of_alternatives(alternatives, rng):
    """None at all, and more than the library takes."""
    what = steps(rng, 50, 0.5)
    hit, miss = np.full(alternatives, 0.1), np.full(alternatives, -0.1)
    sums, left, evidence = bet(np.full(alternatives, NOTHING), hit, miss, what, 1.0, 0)
    assert left == pytest.approx(1 / 51)
    assert len(sums) == alternatives
    if not alternatives:
        assert not evidence.any()
    else:
        exact = exactly([NOTHING], hit[:1], miss[:1], what, 1.0, 0)
        np.testing.assert_allclose(evidence, exact[2], atol=1e-11)


def test_no_rows():
    sums, left, evidence = bet(
        np.zeros(2), np.ones(2), -np.ones(2), np.uint8([]), 0.5, 1
    )
    assert (sums.tolist(), left, len(evidence)) == ([0.0, 0.0], 0.5, 0)
