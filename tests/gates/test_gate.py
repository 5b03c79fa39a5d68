import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import trustdoctor as td
from trustdoctor import Gate, Predictions
from trustdoctor.errors import FileError, InputError, OutputError


@given(gamma=st.floats(1e-3, 1e3), seed=st.integers(0, 99))
def test_gamma_is_the_papers_definition(gamma, seed):
    """D_alpha: 1 - g > gamma g; D_beta: Pe > gamma (1 - Pe)."""
    z = np.random.default_rng(seed).normal(size=(50, 4)) * 2
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    g, pe = (p**2).sum(1), 1 - p.max(1)
    for score, rejected, ratio in (
        ("alpha", 1 - g > gamma * g, (1 - g) / g),
        ("beta", pe > gamma * (1 - pe), pe / (1 - pe)),
    ):
        clear = np.abs(np.log(ratio / gamma)) > 1e-9
        accepted = (
            Gate.from_gamma(gamma, score=score)
            .screen(Predictions.from_logits(z))
            .accepted
        )
        assert np.array_equal(accepted[clear], ~rejected[clear])


def test_a_score_equal_to_the_threshold_is_accepted():
    for dtype in (np.float32, np.float64):
        s = np.array([0.1, 0.2, 0.3], dtype)
        gate = Gate(float(s[1]))
        assert gate.accept(s).tolist() == [True, True, False]
        assert gate.accept(torch.tensor(s)).tolist() == [True, True, False]


def test_a_threshold_just_below_a_float32_score_rejects_it():
    """numpy and torch would round such a threshold onto the score."""
    s = np.array([0.1], np.float32)
    gate = Gate(math.nextafter(float(s[0]), -math.inf))
    assert gate.accept(s).tolist() == [False]
    assert gate.accept(torch.tensor(s)).tolist() == [False]


@pytest.mark.parametrize("kind", [np.array, torch.tensor])
def test_trivial_states_hold_for_certain_rows(kind):
    s = kind([-math.inf, 0.0, math.inf])
    assert Gate(0.0, state="accept-all").accept(s).tolist() == [True] * 3
    assert Gate(0.0, state="reject-all").accept(s).tolist() == [False] * 3
    assert Gate(-math.inf).accept(s).tolist() == [True, False, False]


@pytest.mark.parametrize(
    "gate",
    [
        Gate.from_gamma(0.1),
        Gate(math.pi, td.SCORES["energy"].with_temperature(1.3)),
        Gate(-math.inf, score="beta"),
        Gate(math.inf),
        Gate(0.0, score="msp", state="accept-all"),
        Gate(0.0, state="reject-all"),
    ],
)
def test_gates_round_trip(gate, tmp_path):
    gate.save(tmp_path / "gate.json")
    assert Gate.load(tmp_path / "gate.json") == gate
    json.loads((tmp_path / "gate.json").read_text(), parse_constant=pytest.fail)


ALPHA = {"name": "alpha", "temperature": 1.0, "fitted": None}


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"schema": 99}, "schema"),
        (
            {"trustdoctor": "report"},
            "expected a gate of trustdoctor in .*, got a report",
        ),
        ({"score": ALPHA | {"name": "magic"}}, "magic"),
        ({"score": 3}, r"score: expected object . null, got int"),
        ({"state": "maybe"}, "maybe"),
        ({"threshold": "low"}, "threshold: invalid enum value 'low'"),
        ({"threshold": None}, "threshold: expected float"),
        ({"threshold": True}, "threshold: expected float"),
        ({"score": ALPHA | {"temperature": 10**400}}, "beyond 64 bits"),
        ({"score": ALPHA | {"temperature": -1}}, r"score\.temperature: expected"),
        ({"score": ALPHA | {"temperature": None}}, r"score\.temperature: expected"),
        ({"surprise": 1}, "surprise"),
        ({"temperature": 1.0}, "unknown field temperature"),
    ],
)
def test_gates_that_are_not_understood_are_refused(change, match, tmp_path):
    path = tmp_path / "gate.json"
    Gate.from_gamma(1.0).save(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(FileError, match=match):
        Gate.load(path)


def test_files_that_are_not_gates_are_refused(tmp_path):
    path = tmp_path / "gate.json"
    deep, huge = "[" * 100_000, json.dumps({"x": 10**400})
    short = '{"trustdoctor": "gate", "schema": 1}'
    for text in ("", "{", "[]", "3", short, deep, huge):
        path.write_text(text)
        with pytest.raises(FileError):
            Gate.load(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FileError):
        Gate.load(path)
    with pytest.raises(FileError, match="no such file"):
        Gate.load(tmp_path / "absent.json")
    with pytest.raises(OutputError, match="cannot write"):
        Gate(0.0).save(tmp_path / "no" / "folder" / "gate.json")


@pytest.mark.parametrize("gamma", [0, -1, math.inf, math.nan])
def test_bad_gammas_are_refused(gamma):
    with pytest.raises(InputError, match="gamma"):
        Gate.from_gamma(gamma)


@pytest.mark.parametrize("score", ["margin", "max_logit", "energy", "pnorm"])
def test_gamma_is_refused_for_scores_that_are_not_ratios(score):
    with pytest.raises(InputError, match="threshold"):
        Gate.from_gamma(1.0, score=score)


def test_numpy_numbers_become_plain_ones(tmp_path):
    gate = Gate.from_gamma(np.float32(0.5), temperature=np.float64(2))
    gate.save(tmp_path / "gate.json")
    assert Gate.load(tmp_path / "gate.json") == gate
    with pytest.raises(InputError, match="number"):
        Gate("low")


def test_other_mistakes_are_refused():
    with pytest.raises(InputError, match="NaN"):
        Gate(math.nan)
    with pytest.raises(InputError, match="NaN"):
        Gate(0.0).accept([math.nan])
    with pytest.raises(InputError, match="NaN"):
        Gate(0.0).accept(torch.tensor([math.nan]))
    with pytest.raises(InputError, match="names no score"):
        Gate(0.0).screen(Predictions.from_logits([[0.0, 1.0]]))
    with pytest.raises(InputError, match="true logits"):
        Gate(0.0, score="energy").screen(Predictions.from_probs([[0.5, 0.5]]))


def test_scores_that_are_not_registered_are_refused(rng):
    """A gate that names them could be saved, and never be loaded."""
    unregistered = td.LogitScore("own", td.alpha, frozenset({"probs"}), frozenset())
    fake = td.LogitScore("alpha", td.beta, frozenset({"probs"}), frozenset())

    class Other(td.RelU):
        name = "rel_u"

    z = rng.normal(size=(300, 3))
    p = Predictions.from_logits(z, rng.integers(0, 3, 300))
    for score in (unregistered, fake, Other.fit(p)):
        with pytest.raises(InputError, match="is not in the registry"):
            td.calibrate(p, score=score, frr=0.1)
    gate = Gate(0.0, score=td.SCORES["alpha"].with_temperature(2.0))
    assert (gate.score_name, gate.temperature) == ("alpha", 2.0)
    with pytest.raises(InputError, match="temperature 2, and temperature=3 was given"):
        Gate.from_gamma(1.0, score=gate.score, temperature=3.0)
