import math

import numpy as np
import pytest
from mpmath import mp, mpf

from trustdoctor.kernels import _native, bet

NOTHING = -math.inf


@pytest.fixture(params=["C", "numpy"], autouse=True)
def _implementation(request, monkeypatch):
    if request.param == "numpy":
        monkeypatch.setattr(_native, "available", False)


def exactly(sums, hit, miss, row_kinds, unstaked, starts, opposed=()):
    """Bet as the definition says, in 60 digits."""
    with mp.workdps(60):
        wealths = [mp.exp(mpf(float(log_sum))) for log_sum in sums]
        ratios, sides = [[mpf(1)] * len(wealths)], (miss, hit, opposed)
        ratios += [
            [mp.exp(mpf(float(log_ratio))) for log_ratio in side] for side in sides
        ]
        unstaked, evidence = mpf(unstaked), []
        for row in row_kinds.tolist():
            starts += 1
            stake = unstaked / (starts + 1)
            unstaked -= stake
            wealths = [
                (s + stake) * r for s, r in zip(wealths, ratios[row], strict=True)
            ]
            evidence.append(float(mp.log(sum(wealths) / len(wealths) + unstaked)))
        return [float(mp.log(wealth)) for wealth in wealths], float(unstaked), evidence


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
    row_kinds = steps(rng, 400, share)
    sums = np.log(rng.random(len(hit)) * 0.01)
    sums[0] = NOTHING
    results = bet(sums, hit, miss, row_kinds, 0.25, 3)
    for actual, exact in zip(
        results, exactly(sums, hit, miss, row_kinds, 0.25, 3), strict=True
    ):
        np.testing.assert_allclose(actual, exact, rtol=1e-12, atol=1e-11)


def test_a_third_ratio_is_the_definition(rng):
    hit, miss = np.linspace(0.02, 3, 60), np.linspace(-0.01, -1, 60)
    opposed, sums = np.linspace(-0.02, -0.7, 60), np.full(60, NOTHING)
    row_kinds = rng.integers(0, 4, 400).astype(np.uint8)
    results = bet(sums, hit, miss, row_kinds, 1.0, 0, opposed)
    exact = exactly(sums, hit, miss, row_kinds, 1.0, 0, opposed)
    for actual, expected in zip(results, exact, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-11)


def test_pieces_are_the_whole(rng):
    """Wherever a call ends, the next one goes on from there."""
    hit, miss = np.linspace(0.02, 3, 60), np.linspace(-0.01, -1, 60)
    row_kinds, state = steps(rng, 5000, 0.3), (np.full(60, NOTHING), 1.0)
    at_once = bet(state[0], hit, miss, row_kinds, state[1], 0)
    pieces, at = [], 0
    for end in (1, 2, 100, 1000, 4999, 5000):
        sums, unstaked, evidence = bet(
            state[0], hit, miss, row_kinds[at:end], state[1], at
        )
        state, at = (sums, unstaked), end
        pieces.append(evidence)
    np.testing.assert_allclose(np.concatenate(pieces), at_once[2], atol=1e-9)
    np.testing.assert_allclose(state[0], at_once[0], atol=1e-9)
    assert state[1] == at_once[1]


def test_evidence_beyond_all_numbers_and_back():
    hit, miss = np.full(2, 3.0), np.full(2, -3.0)
    row_kinds = np.repeat(np.uint8([2, 1]), 2000)
    _, _, evidence = bet(np.full(2, NOTHING), hit, miss, row_kinds, 1.0, 0)
    assert evidence[1999] == pytest.approx(6000, abs=2)
    assert np.isfinite(evidence).all()
    assert evidence[-1] < 1


@pytest.mark.parametrize("alternatives", [0, 200])
def test_any_number_of_alternatives(alternatives, rng):
    """None at all, and more than the library takes."""
    row_kinds = steps(rng, 50, 0.5)
    hit, miss = np.full(alternatives, 0.1), np.full(alternatives, -0.1)
    sums, unstaked, evidence = bet(
        np.full(alternatives, NOTHING), hit, miss, row_kinds, 1.0, 0
    )
    assert unstaked == pytest.approx(1 / 51)
    assert len(sums) == alternatives
    if not alternatives:
        assert not evidence.any()
    else:
        exact = exactly([NOTHING], hit[:1], miss[:1], row_kinds, 1.0, 0)
        np.testing.assert_allclose(evidence, exact[2], atol=1e-11)


def test_no_rows():
    sums, unstaked, evidence = bet(
        np.zeros(2), np.ones(2), -np.ones(2), np.uint8([]), 0.5, 1
    )
    assert (sums.tolist(), unstaked, len(evidence)) == ([0.0, 0.0], 0.5, 0)
