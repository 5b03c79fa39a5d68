"""A tuned score: a function of one row, a file, and a choice that suits the model."""

import copy
import json
import pickle
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file
from sklearn.metrics import roc_auc_score

import trustdoctor as td
from trustdoctor.engines import Means, calibrate_files, find_engine, screen
from trustdoctor.errors import FileError, InputError
from trustdoctor.files import find_source
from trustdoctor.gates import CalibrationSketch
from trustdoctor.scores import find_logit_score, same_ranking
from trustdoctor.tuning import FAMILY
from trustdoctor.tuning.tuned_score import N_KNOTS

TARGETS = [None, {"trr": 0.95}, {"frr": 0.1}, {"risk": 0.1}, {"coverage": 0.8}]


def lengths_are_noise(rng, n=1000, classes=5):
    """Rows whose errors depend on the direction of the logits, not on their length."""
    z = rng.normal(size=(n, classes))
    z *= rng.exponential(5, size=(n, 1)) / np.linalg.norm(z, axis=1, keepdims=True)
    first, second = np.sort(z / np.linalg.norm(z, axis=1, keepdims=True))[:, :-3:-1].T
    wrong = rng.random(n) < np.exp(-8 * (first - second))
    return td.Predictions.from_logits(z, (z.argmax(1) + wrong) % classes)


def lengths_are_all(rng, n=1000, classes=5):
    """Rows whose errors depend only on the length of the logits."""
    z = rng.normal(size=(n, classes))
    long = rng.exponential(5, size=(n, 1))
    z *= long / np.linalg.norm(z, axis=1, keepdims=True)
    wrong = rng.random(n) < np.exp(-long[:, 0] / 2)
    return td.Predictions.from_logits(z, (z.argmax(1) + wrong) % classes)


def own_softmax(rng, n=1000, classes=10):
    """Rows whose labels are drawn from the softmax: its response is best."""
    z = 2.5 * rng.normal(size=(n, classes))
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    return td.Predictions.from_logits(z, (p.cumsum(1) > rng.random((n, 1))).argmax(1))


@pytest.fixture(scope="module")
def score():
    tuned = td.tune(lengths_are_noise(np.random.default_rng(0)))
    assert len(tuned.members) == 5
    return tuned


def mixed(names, p):
    """A tuned score of any members, its knots drawn by hand."""
    knots = [
        np.linspace(*np.quantile(find_logit_score(n)(p), [0, 1]), N_KNOTS)
        for n in names
    ]
    ranks = np.tile(
        np.linspace(0, 1, N_KNOTS) ** 2 + np.arange(N_KNOTS) / 64, (len(names), 1)
    )
    return td.Tuned(tuple(names), 99, 20, 59, "AUROC", np.stack(knots), ranks)


def test_it_is_the_mean_rank_by_hand(score, rng):
    p = lengths_are_noise(rng, 300)
    rank_sums = np.zeros(300)
    for name, knots, ranks in zip(score.members, score.knots, score.ranks, strict=True):
        for i, x in enumerate(find_logit_score(name)(p).astype(float)):
            k = int(np.clip(np.searchsorted(knots, x) - 1, 0, N_KNOTS - 2))
            share = (x - knots[k]) / (knots[k + 1] - knots[k])
            rank_sums[i] += ranks[k] + share * (ranks[k + 1] - ranks[k])
    np.testing.assert_allclose(score(p), rank_sums / 5, rtol=1e-9, atol=1e-12)


def test_ranks_are_shares_of_the_rows_that_chose(rng):
    p = lengths_are_noise(rng, 2000)
    score = td.tune(p)
    for name, knots, ranks in zip(score.members, score.knots, score.ranks, strict=True):
        below = np.searchsorted(np.sort(find_logit_score(name)(p)), knots) / 2000
        np.testing.assert_allclose(ranks, below, atol=2e-3)
    assert (score(p) >= -1e-9).all()
    assert (score(p) <= 1 + 1e-9).all()


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_a_row_scores_the_same_in_any_company(score, kind, rng):
    z = lengths_are_noise(rng, 200).logits.astype(kind)
    scores = [score, mixed(["max_logit", "alpha:temperature=0.1", "gen"], new(z))]
    for tuned in scores:
        doubts = tuned(new(z))
        assert doubts.dtype == np.float64
        order = rng.permutation(200)
        assert np.array_equal(tuned(new(z[order])), doubts[order])
        alone = np.concatenate([tuned(new(z[i : i + 1])) for i in range(200)])
        assert np.array_equal(alone, doubts)
        uneven = [tuned(new(rows)) for rows in np.split(z, [7, 8, 64, 131])]
        assert np.array_equal(np.concatenate(uneven), doubts)


def new(z, labels=None):
    return td.Predictions.from_logits(z, labels)


def test_it_rises_with_each_member(rng):
    p = lengths_are_noise(rng, 400)
    score = mixed(FAMILY, p)
    doubts = np.stack([find_logit_score(name)(p) for name in FAMILY])
    total = score(p)
    above = (doubts[:, :, None] >= doubts[:, None, :]).all(0)  # in all of them
    assert above.sum() > 2000
    assert (np.subtract.outer(total, total)[above] >= -1e-12).all()


def test_beyond_the_ends_it_goes_on_in_a_straight_line():
    """One class ahead by x: max_logit is -x, and so is the margin."""
    p = new(np.stack([np.linspace(1, 2, 50), np.zeros(50)], 1))
    score = mixed(["max_logit", "margin"], p)
    far = score(new([[x, 0.0] for x in (0.0, 0.5, 1.0, 2.0, 3.0, 4.0, 1e6, 1e300)]))
    assert far[0] - far[1] == pytest.approx(far[1] - far[2], rel=1e-9)
    assert far[3] - far[4] == pytest.approx(far[4] - far[5], rel=1e-9)
    assert np.isfinite(far).all()
    assert (np.diff(far) < 0).all()


def test_rows_without_doubt_are_the_surest(score):
    z = np.array([[3.0, 1, 0, 0, 0], [9, 8, 7, 6, 5], [1, 1, 1, 1, 1]])
    certain = np.full((2, 5), -np.inf)
    certain[:, 0] = 0, -7
    masked = np.array([[3.0, 1, -np.inf, 0, 0]])
    doubts = score(new(np.concatenate([certain, z, masked])))
    assert np.isneginf(doubts[:2]).all()
    assert np.isfinite(doubts[2:]).all()
    gate = td.Gate(float(np.median(doubts[2:])), score=score)
    assert gate.screen(new(certain)).accepted.all()


def test_certain_rows_and_ties_can_choose(rng):
    """A forest of ten trees: shares out of ten, many of them 0 or 1."""
    votes = rng.multinomial(10, [0.75, 0.15, 0.1], size=900) / 10
    labels = np.where(rng.random(900) < votes.max(1), votes.argmax(1), 1)
    p = td.Predictions.from_probs(votes, labels)
    assert np.isneginf(td.alpha(p)).any()
    for target in TARGETS:
        score = td.tune(p, **(target or {}), average=3)
        doubts = score(p)
        assert not np.isnan(doubts).any()
        same = votes[:, None] == votes
        equal = np.isclose(doubts[:, None], doubts) | (doubts[:, None] == doubts)
        assert equal[same.all(2)].all()


def by_margin(rng, n, mask):
    """Errors that the margin reveals; in some rows all classes but one are masked."""
    z = 2.5 * rng.normal(size=(n, 6))
    wrong = rng.random(n) < 1 / (1 + np.exp(-5 * (td.margin(z) + 0.6)))
    is_masked = rng.random(n) < 0.03
    z[is_masked[:, None] & (z < z.max(1, keepdims=True))] = mask
    return new(z.astype(np.float32), (z.argmax(1) + (wrong & ~is_masked)) % 6)


@pytest.mark.parametrize("mask", [-np.inf, -1e4, -1e9, -1e30, np.finfo("f4").min])
def test_masks_that_are_numbers_leave_the_other_rows_their_ranks(mask):
    rng = np.random.default_rng(0)
    score, fresh = td.tune(by_margin(rng, 1500, mask)), by_margin(rng, 4000, mask)
    assert len(score.members) > 1
    doubts = score(fresh)
    assert np.subtract(*np.quantile(doubts, [0.75, 0.25])) > 0.3
    alone = td.auroc(td.margin(fresh.logits), fresh.errors)
    assert td.auroc(doubts, fresh.errors) > alone - 0.005


@pytest.mark.parametrize("z", [np.zeros((60, 3)), np.full((60, 3), 1e308)])
def test_rows_that_are_all_alike_choose_nothing(z):
    assert td.tune(new(z, np.arange(60) % 3)).members == ("msp",)


@pytest.mark.parametrize("scale", [1e-310, 1e-30, 1e30, 1e306])
def test_logits_of_any_size_can_choose(scale, rng):
    p = lengths_are_noise(rng, 400)
    p = new(p.logits * scale, p.labels)
    doubts = td.tune(p)(p)
    assert not np.isnan(doubts).any()


def test_a_file_keeps_every_bit(score, tmp_path, rng):
    p = lengths_are_noise(rng, 200)
    score.save(tmp_path / "s.safetensors")
    restored = td.load_score(tmp_path / "s.safetensors")
    assert isinstance(restored, td.Tuned)
    assert (restored.digest, restored.verdict()) == (score.digest, score.verdict())
    assert (restored.members, restored.needs) == (score.members, score.needs)
    gate = td.calibrate(p, score=score, frr=0.2)
    gate.save(tmp_path / "gate.json")
    stored = td.Gate.load(tmp_path / "gate.json")
    assert stored == gate
    for loaded in (restored, stored.score):
        assert np.array_equal(loaded(p), score(p))


def test_one_score_alone_is_kept_too(tmp_path, rng):
    p = own_softmax(rng, 300)
    for name in ("msp", "alpha:temperature=2", "pnorm:p=4"):
        none = np.empty((1, 0))
        tuned = td.Tuned((name,), 300, 50, 59, "trr 0.9", none, none)
        tuned.save(tmp_path / "s.safetensors")
        loaded = td.load_score(tmp_path / "s.safetensors")
        assert np.array_equal(loaded(p), find_logit_score(name)(p))
        assert same_ranking(loaded, find_logit_score(name))
        gate = td.calibrate(p, score=loaded, coverage=0.5)
        gate.save(tmp_path / "gate.json")
        assert td.Gate.load(tmp_path / "gate.json") == gate


def test_laws_are_those_of_all_members(score, rng):
    p = lengths_are_noise(rng, 50)
    moved = new(p.logits + 3)
    assert score.laws == {"permutation", "shift"}
    np.testing.assert_allclose(score(moved), score(p), rtol=1e-6, atol=1e-6)
    with_length = mixed(["alpha", "max_logit"], p)
    assert "shift" not in with_length.laws
    assert not np.allclose(with_length(moved), with_length(p))
    assert with_length.needs == {"probs", "logits"}
    probs = td.Predictions.from_probs(np.full((2, 5), 0.2))
    with pytest.raises(InputError, match="needs true logits"):
        with_length(probs)
    assert score(probs).shape == (2,)


@pytest.mark.parametrize("options", [{"frr": 0.2}, {"trr": 0.9}, {"coverage": 0.8}])
def test_parts_of_the_rows_give_the_same_gate(score, options, rng):
    p = lengths_are_noise(rng, 900)
    at_once = td.calibrate(p, score=score, **options)
    counted = [
        CalibrationSketch(score, needs_labels="coverage" not in options) for _ in "xyz"
    ]
    for k, start in enumerate(range(0, 900, 50)):
        counted[k % 3].update(p[start : start + 50])
    for other in counted[1:]:
        counted[0].merge(other)
    assert counted[0].calibrate(**options) == at_once


def test_scores_travel_to_other_processes(score, rng):
    p = lengths_are_noise(rng, 400)
    for travelling in (
        score,
        *map(find_logit_score, ("pnorm:p=4", "normalised_alpha:p=4,t=0.1")),
    ):
        expected = td.calibrate(p, score=travelling, frr=0.2)
        counted = CalibrationSketch(travelling)
        counted.update(p)
        for travel in (copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))):
            assert travel(counted).calibrate(frr=0.2) == expected
            assert travel(expected) == expected
            assert np.array_equal(travel(travelling)(p), travelling(p))


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_files_are_screened_alike_in_memory_and_streamed(score, suffix, tmp_path, rng):
    p = lengths_are_noise(rng, 3000)
    table = {f"logit_{k}": p.logits[:, k] for k in range(5)} | {"label": p.labels}
    small = {"row_group_size": 250} if suffix == "parquet" else {}
    getattr(pl.DataFrame(table), f"write_{suffix}")(
        tmp_path / f"rows.{suffix}", **small
    )
    source = find_source(tmp_path / f"rows.{suffix}")
    streaming = Means(find_engine("local"), 10**9)
    streaming.engine.in_memory = False
    gates = [
        calibrate_files(source, score=score, frr=0.1, means=means)
        for means in (None, streaming)
    ]
    assert gates[0] == gates[1] == td.calibrate(source.read(), score=score, frr=0.1)
    expected = gates[0].screen(source.read())
    for k, means in enumerate((None, streaming)):
        out = tmp_path / f"out{k}.parquet"
        screen(source, gates[0], out, means=means)
        table_out = pl.read_parquet(out)
        assert np.array_equal(table_out["score"].to_numpy(), expected.doubts)
        assert np.array_equal(table_out["accepted"].to_numpy(), expected.accepted)


def last(value):
    def change(array):
        out = array.copy()
        out.flat[-1] = value
        return out

    return change


ARRAYS = {
    "knots fall": {"knots": lambda a: a[:, ::-1].copy()},
    "knots are equal": {"knots": lambda a: a * 0},
    "two knots are equal": {"knots": lambda a: last(a.flat[-2])(a)},
    "a knot is nan": {"knots": last(np.nan)},
    "a knot is inf": {"knots": last(np.inf)},
    "knots are short": {"knots": lambda a: a[:, 1:].copy()},
    "knots are few": {"knots": lambda a: a[1:].copy()},
    "knots are flat": {"knots": lambda a: a.ravel().copy()},
    "knots are empty": {"knots": lambda a: a[:, :0].copy()},
    "knots have slopes beyond all numbers": {"knots": lambda a: a * 1e-320},
    "both are short": {"knots": lambda a: a[:, 1:], "ranks": lambda a: a[:, 1:]},
    "ranks fall": {"ranks": lambda a: a[:, ::-1].copy()},
    "a rank is nan": {"ranks": last(np.nan)},
    "a rank is inf": {"ranks": last(np.inf)},
    "ranks are truths": {"ranks": lambda a: a > 0},
}


@pytest.mark.parametrize("change", ARRAYS)
def test_numbers_that_cannot_be_are_refused(score, change, tmp_path):
    path = tmp_path / "s.safetensors"
    score.save(path)
    with safe_open(path, "np") as file:
        arrays = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        metadata = dict(file.metadata())
    changed = {n: np.ascontiguousarray(c(arrays[n])) for n, c in ARRAYS[change].items()}
    save_file(arrays | changed, path, metadata=metadata)
    with pytest.raises(FileError, match="does not hold a valid score"):
        td.load_score(path)
    with pytest.raises(InputError):
        replace(score, **changed)


FIFTH = ["knn", "odin", "tuned", "confidence", "nobody", "", "pnorm:p=0.5", None]
FIFTH += [f"alpha:temperature={t}" for t in ("-1", "0", "nan", "inf", "x", "")]

FIELDS = {
    "members": [[], "msp", 5, None, ["msp"], [1, 2, 3, 4, 5], ["msp"] * 4]
    + [["msp"] * 4 + [name] for name in FIFTH],
    "n": ["x", None, -1, 1.5, True, [1]],
    "n_errors": ["x", None, -1, 1.5],
    "n_candidates": ["x", None, -1, []],
    "target": [5, None, ["AUROC"]],
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, v) for name, values in FIELDS.items() for v in values]
)
@pytest.mark.sampled(3)
def test_fields_that_cannot_be_are_refused(score, name, value, tmp_path, rng):
    score.save(tmp_path / "s.safetensors")
    with safe_open(tmp_path / "s.safetensors", "np") as file:
        arrays = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        header = json.loads(file.metadata()["json"])
    header["plain"][name] = value
    changed = {"json": json.dumps(header)}
    save_file(arrays, tmp_path / "s.safetensors", metadata=changed)
    with pytest.raises(FileError, match="does not hold a valid score"):
        td.load_score(tmp_path / "s.safetensors")
    gate = td.calibrate(lengths_are_noise(rng, 300), score=score, frr=0.2)
    gate.save(tmp_path / "gate.json")
    content = json.loads((tmp_path / "gate.json").read_text())
    content["score"]["fitted"]["plain"][name] = value
    (tmp_path / "gate.json").write_text(json.dumps(content))
    with pytest.raises((FileError, InputError)):
        td.Gate.load(tmp_path / "gate.json")


@pytest.mark.parametrize("target", TARGETS, ids=str)
@pytest.mark.sampled(2)
def test_two_classes_have_one_ranking(target):
    for seed in range(10):
        rng = np.random.default_rng(seed)
        z = 3 * rng.normal(size=(600, 2))
        wrong = rng.random(600) < 0.5 * np.exp(-abs(z[:, 0] - z[:, 1]) / 2)
        score = td.tune(new(z, (z.argmax(1) + wrong) % 2), **(target or {}))
        assert score.members == ("msp",)
        assert score.verdict().endswith("it stays msp.")
        assert f"600 rows with {wrong.sum()} errors" in score.verdict()


@pytest.mark.filterwarnings("ignore::trustdoctor.errors.OddLabelsWarning")
@pytest.mark.parametrize("target", TARGETS, ids=str)
@pytest.mark.sampled(2)
def test_probabilities_of_two_classes_have_one_ranking_whatever_the_errors(target):
    for seed in range(10):
        rng = np.random.default_rng(seed)
        first_class = rng.random(400)
        p = td.Predictions.from_probs(
            np.stack([first_class, 1 - first_class], 1), rng.random(400) < 0.5
        )
        assert td.tune(p, **(target or {})).members == ("msp",)


def gain(score, rows):
    """In AUROC over softmax response, by scikit-learn, certain rows apart."""
    tuned_area, baseline_area = (
        roc_auc_score(rows.errors, s(rows)) for s in (score, find_logit_score("msp"))
    )
    return tuned_area - baseline_area


def test_where_softmax_response_is_best_little_is_lost():
    gains, n_softmax = [], 0
    for seed in range(50):
        rng = np.random.default_rng(seed)
        score = td.tune(own_softmax(rng, 600))
        n_softmax += score.members == ("msp",)
        gains.append(gain(score, own_softmax(rng, 2000)))
    assert n_softmax > 25
    assert np.mean(gains) > -0.002
    assert min(gains) > -0.02


@pytest.mark.parametrize("target", TARGETS, ids=str)
@pytest.mark.sampled(2)
def test_a_length_that_is_noise_is_taken_out(target):
    for seed in range(5):
        rng = np.random.default_rng(seed)
        score = td.tune(lengths_are_noise(rng), **(target or {}))
        assert score.members[0].startswith(("normalised", "pnorm"))
        assert gain(score, lengths_are_noise(rng, 4000)) > 0.03
        assert "chose" in score.verdict()
        assert score.members[-1] in score.verdict()


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_an_informative_length_is_left_in(target):
    for seed in range(5):
        rng = np.random.default_rng(seed)
        score = td.tune(lengths_are_all(rng), **(target or {}))
        assert not any(n.startswith(("normalised", "pnorm")) for n in score.members)
        assert gain(score, lengths_are_all(rng, 4000)) > -0.001


def test_a_score_that_is_far_better_is_not_watered_down(rng):
    """The largest logit reveals every error; no other score comes close."""

    def rows(n):
        z = 3 * rng.normal(size=(n, 3))
        wrong = z.max(1) <= 1
        return new(z, (z.argmax(1) + wrong) % 3)

    score, fresh = td.tune(rows(1000)), rows(4000)
    assert score.members[0] == "max_logit"
    assert roc_auc_score(fresh.errors, score(fresh)) > 0.99
