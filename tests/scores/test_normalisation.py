"""Scores of logits whose length was taken out, and the parameters in their names."""

from dataclasses import replace
from functools import partial

import exact_scores
import laws
import mpmath as mp
import numpy as np
import pytest
import torch

import trustdoctor as td
from trustdoctor.adapters.torch.metric import RejectionMetrics
from trustdoctor.errors import InputError
from trustdoctor.kernels import _native
from trustdoctor.scores import SCORES, find_logit_score, find_score, same_ranking
from trustdoctor.scores.normalisation import normalised_alpha, normalised_margin, pnorm

POWERS = (1, 1.5, 2, 3, 4, 5, 6, 7.3, 40)
TEMPERATURES = (0.01, 0.05, 0.2, 1.0)
FUNCTIONS = {f.__name__: f for f in (pnorm, normalised_alpha, normalised_margin)}
BOUNDS = {np.float32: 1e-6, np.float64: 1e-13}

dtypes = pytest.mark.parametrize("dtype", BOUNDS)
functions = pytest.mark.parametrize("score", FUNCTIONS.values(), ids=FUNCTIONS)


def forms(z):
    """The rows as each implementation takes them, with its name."""
    with pytest.MonkeyPatch.context() as patch:
        for name in _native.instruction_sets():
            patch.setattr(_native, "isa", _native.ISAS.index(name))
            yield name, z
        patch.setattr(_native, "available", False)
        yield "numpy", z
    yield "torch", torch.from_numpy(z)


def cases(classes, dtype, rng):
    """Rows by name."""
    about, plain = np.finfo(dtype), rng.normal(size=classes)
    first, last = np.eye(classes)[0], np.eye(classes)[-1]
    doubts = {
        "plain": plain,
        "wide": 300 * plain,
        "far from 0": plain + 1e4,
        "far below 0": 0.01 * plain - 1e4,
        "subnormal": np.round(5 * plain) * float(about.smallest_subnormal),
        "next to subnormal": plain * (1e-40 if dtype == np.float32 else 1e-310),
        "small": plain * (1e-30 if dtype == np.float32 else 1e-290),
        "large": plain * (1e30 if dtype == np.float32 else 1e290),
        "near the largest": plain * (float(about.max) / 8),
        "both ends": np.where(first, about.max, np.where(last, -about.max, plain)),
        "one far above": plain + 1000 * last,
        "one far below": plain - 1000 * first,
        "one above": 5 * first,
        "one below": -5 * last,
        "tied": np.where(first + last, plain.max(), plain),
        "nearly tied": np.where(first, plain.max() + 1e-4, plain),
        "equal": np.full(classes, 0.7),
        "equal and large": np.full(classes, about.max),
    }
    ends = (
        "next to subnormal",
        "small",
        "large",
        "near the largest",
        "equal and large",
    )
    for n_finite in {1, 2, 3, classes - 1} - {0, classes}:
        finite = rng.permutation(classes) < n_finite
        for name in ("plain", *(ends if n_finite < 4 else ())):
            doubts[f"{n_finite} left, {name}"] = np.where(finite, doubts[name], -np.inf)
    return {name: row.astype(dtype) for name, row in doubts.items()}


def truth(name, z, **options):
    with mp.workdps(50):
        scored = mp.mpf(1)
        return [exact_scores.definition(name, row, scored, **options) for row in z]


def check_values(name, rows, dtype, **options):
    """Compare every form with 50 digits."""
    z, largest = np.stack(list(rows.values())), float(np.finfo(dtype).max)
    true, sizes = truth(name, z, **options), np.ones(len(z))
    if name == "normalised_alpha":  # a last bit of the length counts gap / t times
        t = options.pop("t")
        sizes = [abs(gap) / t for gap in truth("normalised_margin", z, **options)]
        options["t"] = t
    for form, array in forms(z):
        doubts = FUNCTIONS[name](array, **options)
        assert np.asarray(doubts).dtype == dtype
        for value, right, size, row in zip(
            doubts.tolist(), true, sizes, rows, strict=True
        ):
            case = (form, options, row, value, mp.nstr(right, 12))
            if np.isinf(value):  # beyond the largest number there is infinity
                assert right == value or abs(right) > largest / 2, case
            else:
                error = abs(mp.mpf(value) - right) / max(1, abs(right), size)
                # At p = 1 a rounded mean of many classes shows in each of them.
                loose = 10 if form == "torch" and options["p"] == 1 else 1
                assert error < loose * BOUNDS[dtype], case


@pytest.mark.sampled(4)
@dtypes
@pytest.mark.parametrize("classes", [2, 3, 10, 47, 48, 49, 63, 64, 65, 100])
def test_values_meet_mpmath(classes, dtype, rng):
    rows = cases(classes, dtype, rng)
    powers = POWERS if classes in (3, 48, 49) else POWERS[classes % 2 :: 2]
    for k, p in enumerate(powers):
        t = TEMPERATURES[(k + classes) % 4]
        check_values("pnorm", rows, dtype, p=p)
        check_values("normalised_margin", rows, dtype, p=p)
        check_values("normalised_alpha", rows, dtype, p=p, t=t)


@dtypes
@pytest.mark.parametrize("p", [1, 2, 7.3])
@pytest.mark.sampled(2)
def test_values_of_many_classes_meet_mpmath(p, dtype, rng):
    names = ("plain", "far from 0", "one above", "one far above", "one far below")
    every = cases(1000, dtype, rng)
    rows = {name: every[name] for name in names}
    check_values("pnorm", rows, dtype, p=p)
    check_values("normalised_margin", rows, dtype, p=p)
    check_values("normalised_alpha", rows, dtype, p=p, t=0.2)


@functions
@pytest.mark.parametrize("p", [1, 2.0, 7.3])
def test_neither_the_length_nor_the_mean_matters(score, p, rng):
    z = rng.normal(size=(20, 6))
    doubts = score(z, p=p)
    for moved in (1e3 * z, z / 64, 8 * z + 3, 1e-150 * z):
        assert np.abs(score(moved, p=p) - doubts).max() < 1e-12


@functions
def test_two_classes_keep_their_length(score):
    """Without it all rows would score alike."""
    z = np.array([[2.0, 1], [3, 1], [9, 1]])
    masked = np.insert(z, 1, -np.inf, axis=1)
    assert (np.diff(score(z)) < -0.3).all()
    for form, array in forms(masked):
        doubts = np.asarray(score(array))
        assert np.allclose(doubts, score(z), rtol=1e-14, atol=0), form


@pytest.mark.parametrize("classes", [4, 60])
def test_margins_about_another_class_meet_their_definition(classes, rng):
    z, about = rng.normal(size=(12, classes)), rng.integers(0, classes, 12)
    z[3, :2], about[3] = -np.inf, 0
    z[4, : classes - 2], about[4] = -np.inf, classes - 1
    true = []
    for row, judged in zip(z, about, strict=True):
        finite = row[row > -np.inf]
        length = np.linalg.norm(finite - finite.mean(), 3) if len(finite) > 2 else 1
        true.append((np.delete(row, judged).max() - row[judged]) / length)
    for form, array in forms(z):
        judged = torch.from_numpy(about) if form == "torch" else about
        doubts = normalised_margin(array, p=3.0, predicted=judged)
        np.testing.assert_allclose(doubts, true, rtol=1e-12, err_msg=form)


def test_a_higher_top_may_raise_normalised_alpha():
    """Why direction is not among its laws: the top's rise shortens all other gaps."""
    z = np.array([[0.915, -1, 0.91, -0.8, -0.7, -1.1, 0.9, -1.1]])
    raised = z + 76 * np.eye(8)[0]
    before, after = (normalised_alpha(x, p=100, t=1.0) for x in (z, raised))
    assert after > before + 0.1


# --- gradients ----------------------------------------------------------------------


@pytest.mark.sampled(3)
@functions
@pytest.mark.parametrize("p", POWERS)
@pytest.mark.parametrize("classes", [2, 3, 50])
def test_gradients_match_finite_differences(score, p, classes, rng):
    z = torch.tensor(3 * rng.normal(size=(2, classes)), requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: score(x, p=p), z, atol=1e-6)


def gradient(score, row, dtype=torch.float64, **options):
    x = torch.tensor(row, dtype=dtype)[None].requires_grad_()
    doubts = score(x, **options).nan_to_num(neginf=0.0).sum()
    return torch.autograd.grad(doubts, x)[0][0]


ROWS = {
    "one left": [0, -np.inf, -np.inf, -np.inf],
    "two left": [3, 1, -np.inf, -np.inf],
    "three left": [3, 1, 0, -np.inf],
    "equal": [0.7] * 4,
    "zeros": [0] * 4,
    "equal and masked": [1, 1, 1, -np.inf],
    "two equal left": [1, 1, -np.inf, -np.inf],
    "tied": [2, 2, 0, -1],
    "others equal": [2, 1, 1, 1],
    "one at the mean": [1, 0, 0, -1],
    "two classes": [2, 1],
    "two equal": [1, 1],
    "ends": [3e38, -3e38, 0, 0],
    "large and equal": [1e38] * 4,
    "small": [1e-30, 0, 0, -1e-30],
    "far": [1000, 0, -1000, -2000],
}


@functions
@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
@pytest.mark.sampled(3)
def test_gradients_are_never_nan(score, row):
    for p in (1, 1.5, 2, 3, 6, 40):
        for dtype in (torch.float32, torch.float64):
            assert torch.isfinite(gradient(score, row, dtype, p=p)).all(), (p, dtype)


@functions
@pytest.mark.parametrize("row", [[3.0, 1, 0], [3, 1], [0.5, 0.4, 0.1, 0, -2]])
def test_masked_classes_do_not_change_gradients(score, row):
    for p in (1, 2.0, 2.5):
        masked = gradient(score, [-np.inf, *row, -np.inf], p=p)
        assert torch.allclose(masked[1:-1], gradient(score, row, p=p), atol=1e-12)
        assert masked[0] == masked[-1] == 0


@functions
def test_gradients_are_at_right_angles_to_what_does_not_matter(score, rng):
    """Neither a common shift nor a scale changes the score, so neither is a slope."""
    for row in rng.normal(size=(5, 6)):
        slope = gradient(score, row, p=3.0).numpy()
        assert abs(slope.sum()) < 1e-12
        assert abs(slope @ row) < 1e-12


@functions
def test_scores_trace_under_vmap(score, rng):
    z = torch.tensor(rng.normal(size=(4, 3, 5)))
    z[1, 1, :2], z[2, 2, :3] = -torch.inf, -torch.inf
    x = z.clone().requires_grad_()
    (grad,) = torch.autograd.grad(score(x).sum(), x)
    per_row = torch.func.vmap(torch.func.vmap(torch.func.grad(score)))
    assert torch.allclose(per_row(z), grad)
    assert torch.allclose(torch.vmap(score)(z), score(z))


# --- parameters in names ------------------------------------------------------------

NAMES = {
    "pnorm:p=4": ("pnorm:p=4", {"p": 4.0}),
    "pnorm: p = 4.50": ("pnorm:p=4.5", {"p": 4.5}),
    "pnorm:p=2": ("pnorm", {}),
    "normalised_alpha:t=0.25,p=4": ("normalised_alpha:p=4,t=0.25", {"p": 4, "t": 0.25}),
    "normalised_alpha:p=3,t=1e-3": ("normalised_alpha:t=0.001", {"t": 0.001}),
    "normalised_margin:p=100": ("normalised_margin:p=100", {"p": 100.0}),
    "gen:exponent=0.5": ("gen:exponent=0.5", {"exponent": 0.5}),
}
names = pytest.mark.parametrize("name", NAMES)


@names
def test_a_name_and_its_parameters_find_each_other(name, rng):
    doubts = find_score(name)
    shown, options = NAMES[name]
    assert (doubts.name, doubts.parameters) == (shown, options)
    repeated = find_logit_score(doubts.name)
    assert (repeated.name, repeated.parameters, repeated.registered_name) == (
        shown,
        options,
        doubts.registered_name,
    )
    built = SCORES[doubts.registered_name].with_parameters(**options)
    z = rng.normal(size=(5, 4))
    for scored in (doubts, repeated, built):
        direct = SCORES[doubts.registered_name].function(z, **options)
        assert np.array_equal(scored(td.Predictions.from_logits(z)), direct)
    assert find_score(name, temperature=2.0).temperature == 2


def test_parameters_are_added_to_those_that_were_set():
    score = SCORES["normalised_alpha"]
    assert (
        score.with_parameters(t=0.5).with_parameters(p=4).name
        == "normalised_alpha:p=4,t=0.5"
    )
    assert (
        score.with_parameters(t=0.5).with_parameters(t=0.2).name == "normalised_alpha"
    )
    assert score.with_parameters().name == "normalised_alpha"
    assert score.with_parameters(t=1 / 3).name == f"normalised_alpha:t={1 / 3!r}"
    warm = find_score("pnorm", temperature=2.0).with_parameters(p=4)
    assert (warm.name, warm.temperature) == ("pnorm:p=4", 2)
    for number in (np.int64(4), np.float32(4), 4):
        assert SCORES["pnorm"].with_parameters(p=number).name == "pnorm:p=4"


REFUSED = {
    "alpha:": "expected alpha:temperature=1, got 'alpha:'",
    "msp:p=2": "expected msp:temperature=1, got 'msp:p=2'",
    "rel_u:p=2": "rel_u has no parameters, got 'rel_u:p=2'",
    "confidence:p=2": "confidence has no parameters, got 'confidence:p=2'",
    "pnorm:": "expected pnorm:p=2, got 'pnorm:'",
    "pnorm:q=2": "expected pnorm:p=2, got 'pnorm:q=2'",
    "pnorm:=2": "expected pnorm:p=2, got 'pnorm:=2'",
    "pnorm:p=2,": "expected pnorm:p=2, got 'pnorm:p=2,'",
    "pnorm:p=2,p=3": "expected pnorm:p=2, got 'pnorm:p=2,p=3'",
    "normalised_alpha:x=1": "expected normalised_alpha:p=3,t=0.2, got",
    "normalised_margin:predicted=1": "expected normalised_margin:p=2, got",
    "pnorm:p": "expected a number as p of pnorm, got ''",
    "pnorm:p=two": "expected a number as p of pnorm, got 'two'",
    "pnorm:p==2": "expected a number as p of pnorm, got '=2'",
    "pnorm:p=nan": "expected p from 1 to 100, got nan",
    "pnorm:p=inf": "expected p from 1 to 100, got inf",
    "pnorm:p=0.5": "expected p from 1 to 100, got 0.5",
    "pnorm:p=101": "expected p from 1 to 100, got 101",
    "normalised_alpha:t=0": "expected t from 0.001 to 1000, got 0",
    "gen:exponent=2": "expected an exponent in (0, 1], got 2",
    "alpha:temperature=0": "expected a temperature above 0",
    "pnorm:p=4,temperature=two": "expected a number as temperature of pnorm",
    "nothing:p=2": "expected a score out of alpha, ",
    ":p=2": "expected a score out of alpha, ",
}
refused = pytest.mark.parametrize(("name", "reason"), REFUSED.items(), ids=REFUSED)


@pytest.fixture(scope="module")
def rows():
    return laws.rows(400)


@pytest.fixture(scope="module")
def table(rows, tmp_path_factory):
    path = tmp_path_factory.mktemp("rows") / "rows.parquet"
    laws.table_of(rows).write_parquet(path)
    return path


@refused
@pytest.mark.sampled(3)
def test_a_name_that_makes_no_sense_is_refused_everywhere(
    name, reason, rows, table, run
):
    ways = (
        lambda: find_score(name),
        lambda: td.evaluate(rows, scores=[name]),
        lambda: td.calibrate(rows, score=name, frr=0.1),
        lambda: td.Gate(0.0, score=name),
    )
    for way in ways:
        with pytest.raises(InputError) as refusal:
            way()
        assert reason in str(refusal.value)
        assert "\n" not in str(refusal.value)
    options = ("--score", name, "--frr", 0.1, "-o", table.with_name("gate.json"))
    completed = run("calibrate", table, *options, columns=1000)
    assert completed.returncode == 2
    assert reason in completed.stderr
    assert len(completed.stderr.splitlines()) == 1


@pytest.mark.parametrize("p", ["2", None, 0, 0.99, 100.1, np.nan, -np.inf, 2j])
def test_a_bad_p_is_refused(p):
    for score in FUNCTIONS.values():
        with pytest.raises(InputError, match=r"expected p from 1 to 100, got .* 2 is"):
            score(np.eye(3), p=p)
    with pytest.raises(InputError, match=r"expected (p from 1 to 100|a number as p)"):
        SCORES["pnorm"].with_parameters(p=p)


@pytest.mark.parametrize("t", ["1", None, 0, -1, 1e-4, 1e4, np.nan])
def test_a_bad_t_is_refused(t):
    with pytest.raises(
        InputError, match=r"expected t from 0.001 to 1000, got .* usual"
    ):
        normalised_alpha(np.eye(3), t=t)


def test_a_registered_name_has_no_colon():
    with pytest.raises(InputError, match="without a colon, got 'my:score'"):
        td.register(replace(SCORES["alpha"], name="my:score"))
    assert "my:score" not in SCORES


@pytest.mark.parametrize("name", ["pnorm:p=1.5", "normalised_alpha:p=4,t=0.25"])
def test_a_gate_keeps_the_parameters(name, rows, table, run, tmp_path):
    score, path = find_score(name), tmp_path / "gate.json"
    gate = td.calibrate(rows, score=name, frr=0.1)
    assert gate == td.calibrate(rows, score=score, frr=0.1)
    assert gate.score_name == name
    gate.save(path)
    loaded = td.Gate.load(path)
    assert loaded == gate
    assert np.array_equal(loaded.screen(rows).doubts, score(rows))
    assert loaded.watch().update(rows).tests["accepted"].n == len(rows)
    other = tmp_path / "other.json"
    completed = run("calibrate", table, "--score", name, "--frr", 0.1, "-o", other)
    assert completed.returncode == 0, completed.stderr
    assert td.Gate.load(other).score_name == name
    assert td.Gate.load(other).threshold == gate.threshold


def test_a_gate_names_a_score_in_one_way():
    assert td.Gate(0.0, score="pnorm: p = 4.0") == td.Gate(0.0, score="pnorm:p=4")
    assert td.Gate(0.0, score="pnorm:p=2") == td.Gate(0.0, score="pnorm")


def test_a_gate_does_not_take_a_score_for_another():
    for name, function in (
        ("pnorm", partial(pnorm, p=5.0)),
        ("pnorm:p=5", pnorm),
        ("pnorm:p=5", normalised_margin),
    ):
        with pytest.raises(InputError, match="is not in the registry"):
            td.Gate(0.0, score=replace(SCORES["pnorm"], name=name, function=function))


def test_scores_with_parameters_are_evaluated_and_shown(rows, table, run, tmp_path):
    names = ["pnorm:p=4", "alpha", "normalised_alpha:p=4,t=0.25"]
    doubts = td.evaluate(rows, scores=names)
    assert list(doubts.scores) == names
    for name in names:
        right = td.auroc(laws.tied(find_score(name)(rows)), rows.errors)
        assert doubts.scores[name]["auroc"].value == right
        assert name in doubts.to_html()
    options = [word for name in names for word in ("--score", name)]
    page = tmp_path / "page.html"
    completed = run("diagnose", table, *options, "--html", page)
    assert completed.returncode == 0, completed.stderr
    assert names[0] in completed.stdout
    assert all(name in page.read_text() for name in names)


def test_a_score_that_is_named_twice_is_one():
    scored, other = find_score("pnorm:p=4"), find_score("pnorm:p=4.0")
    assert same_ranking(scored, other)
    assert not same_ranking(scored, find_score("pnorm"))
    assert same_ranking(find_score("pnorm:p=2"), find_score("pnorm"))
    rows = laws.rows(300)
    twice = td.evaluate(rows, scores=["pnorm:p=4", "pnorm:p=4"])
    assert list(twice.scores) == ["pnorm:p=4"]
    first, second = (RejectionMetrics("pnorm:p=4") for _ in range(2))
    logits, labels = torch.tensor(rows.logits), torch.tensor(rows.labels)
    for metric in (first, second):
        metric.update(logits, labels)
    alone = first.compute()
    first.merge_state(second)
    assert first.compute()["auroc"] == alone["auroc"]
