"""What a cascade is: its fields, its words, its copies, the files that it takes."""

import copy
import pickle

import numpy as np
import polars as pl
import pytest

import trustdoctor as td
from trustdoctor.errors import InputError
from trustdoctor.opinion import Cascade
from trustdoctor.predictions import Predictions

INF = np.inf


def world(n=2000):
    """What a small and a large model say of rows, and the truth."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, n)
    truth = 2.5 * np.eye(4)[labels]
    small, large = (truth + s * rng.normal(size=truth.shape) for s in (2.0, 1.3))
    return [Predictions.from_logits(small), Predictions.from_logits(large)], labels


GOOD = {"stages": ("a", "b"), "thresholds": (0.0, 1.0), "costs": (0, 1, 10)}


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"stages": ()}, "names of stages"),
        ({"stages": ("a", "a")}, "names of stages"),
        ({"stages": ("a", " ")}, "names of stages"),
        ({"stages": ("a", 3)}, "names of stages"),
        ({"stages": ("a", "a person")}, "'a person', who comes last"),
        ({"stages": "ab"}, "names of stages"),
        ({"stages": 5}, "names of stages"),
        ({"stages": None}, "names of stages"),
        ({"thresholds": (0.0,)}, "a threshold for each of 2 stages"),
        ({"thresholds": (0.0, np.nan)}, "a threshold for each of 2 stages"),
        ({"thresholds": ("0", "1")}, "a threshold for each of 2 stages"),
        ({"thresholds": None}, "a threshold for each of 2 stages"),
        ({"thresholds": (-INF, -INF)}, "a stage at which rows stop"),
        ({"costs": None}, "expected 3 costs"),
        ({"costs": 3}, "expected 3 costs"),
        ({"costs": np.array(3.0)}, "expected 3 costs"),
        ({"costs": (0, 1)}, "expected 3 costs"),
        ({"costs": (0, 1, 2, 3)}, "expected 3 costs"),
        ({"costs": (-1, 0, 1)}, "expected 3 costs of 0 or more"),
        ({"costs": (0, np.nan, 1)}, "expected 3 costs"),
        ({"costs": (0, 1, INF)}, "expected 3 costs"),
        ({"costs": (0, 1, 10**400)}, "expected 3 costs"),
        ({"costs": (0, 1, 1 + 2j)}, "expected 3 costs"),
        ({"costs": (0, True, 10)}, "expected 3 costs"),
        ({"costs": (0, np.True_, 10)}, "expected 3 costs"),
        ({"costs": ("0", "1", "10")}, "expected 3 costs"),
        ({"costs": "0,1,10"}, "expected 3 costs"),
        ({"costs": (1, 0, 10)}, "1, 0, 10, which falls. Put the cheapest first"),
        ({"costs": (0, 11, 10)}, "which falls"),
        ({"score": "nothing"}, "expected a score out of"),
        ({"score": 3}, "names its score"),
        ({"score": "mahalanobis"}, "must be fitted"),
        ({"combine": "mean"}, "'average' or 'own', got 'mean'"),
        ({"combine": None}, "'average' or 'own', got None"),
        ({"classes": 2.5}, "classes"),
        ({"classes": -1}, "classes"),
        ({"classes": "ab"}, "classes"),
        ({"certificate": 3}, "ertificate"),
        ({"shortlist": 0.9}, "hortlist|lists"),
        ({"measured": 3}, "measured"),
    ],
    ids=str,
)
def test_invalid_cascades_are_refused_in_one_line(change, match):
    with pytest.raises(InputError, match=match) as refusal:
        Cascade(**(GOOD | change))
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "change",
    [
        {"stages": ["a", "b"]},
        {"thresholds": [0, 1]},
        {"thresholds": np.array([0.0, 1.0])},
        {"thresholds": (np.float64(0), np.float32(1))},
        {"costs": [0, 1, 10]},
        {"costs": np.array([0, 1, 10])},
        {"costs": (np.float32(0), np.int8(1), 10.0)},
    ],
    ids=str,
)
def test_sequences_and_numbers_of_any_kind_make_the_same_cascade(change):
    plain, other = Cascade(**GOOD), Cascade(**(GOOD | change))
    assert other == plain
    assert hash(other) == hash(plain)
    assert repr(other) == repr(plain)


def test_equal_cascades_are_equal_when_copied():
    predictions, labels = world()
    options = {"risk": 0.1, "costs": [0, 1, 10], "shortlist": 0.9}
    cascade, twin = (Cascade.calibrate(predictions, labels, **options) for _ in "ab")
    for other in (twin, copy.deepcopy(cascade), pickle.loads(pickle.dumps(cascade))):
        assert other == cascade
        assert {cascade: 1}[other] == 1
    assert cascade != Cascade.calibrate(predictions, labels, **options, seed=1)
    assert cascade != Cascade(**GOOD)
    assert cascade != "a cascade"


def test_it_says_what_is_asked_and_what_is_promised():
    assert repr(Cascade(**GOOD)) == (
        "Cascade(a if alpha <= 0, b if alpha <= 1, else a person; no certificate)"
    )
    first = Cascade(("a", "b"), (-INF, 1.0), (0, 1, 2))
    assert "a, goes on, b if alpha <= 1" in repr(first)
    separate = Cascade(("a", "b"), (-INF, 1.0), (0, 1, 2), combine="own", score="beta")
    assert repr(separate).startswith("Cascade(b if beta <= 1, else a person")
    predictions, labels = world()
    calibrated = Cascade.calibrate(predictions, labels, risk=0.1, costs=[0, 1, 10])
    assert "at most 10% errors among the accepted, with confidence 0.9" in repr(
        calibrated
    )
    assert td.Cascade is Cascade


@pytest.mark.parametrize("stages", [None, 3, np.zeros((3, 2)), len, (), {}])
def test_screen_takes_a_list_of_stages(stages):
    with pytest.raises(InputError, match="stages as a list"):
        Cascade(**GOOD).screen(stages)


def test_files_in_the_wrong_order_are_refused(tmp_path):
    predictions, _ = world(240)
    paths = []
    for name, stage in zip(("small", "large"), predictions, strict=True):
        columns = {f"logit_{j}": stage.logits[:, j] for j in range(4)}
        table = pl.DataFrame(columns | {"id": np.arange(240)})
        paths.append(tmp_path / f"{name}.parquet")
        table.write_parquet(paths[-1])
    cascade = Cascade(("small", "large"), (-2.0, -1.0), (0, 1, 10))
    expected = cascade.screen(predictions).doubts.tolist()
    assert cascade.screen(paths).doubts.tolist() == expected
    with pytest.raises(InputError, match=r"expected small .* got large"):
        cascade.screen(paths[::-1])
    with pytest.raises(InputError, match=r"expected small .* got large"):
        cascade.screen(paths[1:])
    renamed = paths[1].rename(tmp_path / "new rows.parquet")
    assert cascade.screen([paths[0], renamed]).doubts.tolist() == expected
