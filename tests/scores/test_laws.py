"""What holds for every score that is a formula of the logits, written once."""

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from trustdoctor.errors import InputError
from trustdoctor.predictions import Predictions
from trustdoctor.scores import SCORES, LogitScore, alpha, beta, gen, msp, pnorm

FORMULAS = {n: s for n, s in SCORES.items() if isinstance(s, LogitScore)}
ABOUT = [name for name, score in FORMULAS.items() if score.about_class]

scores = pytest.mark.parametrize("score", FORMULAS.values(), ids=FORMULAS)
logits = st.integers(2, 40).flatmap(
    lambda c: arrays(np.float64, (6, c), elements=st.floats(-300, 300, width=32))
)
temperatures = st.sampled_from([0.5, 1.0, 1.3, 10.0])


def close(a, b, tolerance=1e-12):
    assert np.all(np.abs(a - b) <= tolerance * np.maximum(1, np.abs(b)))


def obeying(law):
    keep = [s for s in FORMULAS.values() if law in s.laws]
    return pytest.mark.parametrize("score", keep, ids=[s.name for s in keep])


def breaking(law):
    keep = [s for s in FORMULAS.values() if law not in s.laws]
    return pytest.mark.parametrize("score", keep, ids=[s.name for s in keep])


@obeying("permutation")
@given(z=logits, t=temperatures, seed=st.integers(0, 99))
@pytest.mark.sampled(3)
def test_permuting_classes_changes_nothing(score, z, t, seed):
    order = np.random.default_rng(seed).permutation(z.shape[1])
    close(score.function(z[:, order], temperature=t), score.function(z, temperature=t))


@obeying("shift")
@given(z=logits, t=temperatures, shift=st.integers(-500, 500))
@pytest.mark.sampled(2)
def test_adding_a_constant_to_a_row_changes_nothing(score, z, t, shift):
    z = np.round(z)  # so that the sum itself does not round
    close(score.function(z + shift, temperature=t), score.function(z, temperature=t))


@breaking("shift")
def test_a_declared_exception_to_shift_is_real(score, rng):
    z = rng.normal(size=(5, 4))
    assert (np.abs(score.function(z + 3) - score.function(z)) > 1).all()


@obeying("direction")
@given(z=logits, t=temperatures, step=st.floats(0, 50))
@pytest.mark.sampled(2)
def test_raising_the_top_logit_never_raises_the_doubt(score, z, t, step):
    raised = z.copy()
    raised[np.arange(len(z)), z.argmax(1)] += step
    before = score.function(z, temperature=t)
    after = score.function(raised, temperature=t)
    assert (after <= before + 1e-12 * np.maximum(1, np.abs(before))).all()


def test_gen_over_few_classes_does_not_obey_direction():
    """Why `top` is not part of what the registry promises."""
    z = np.log([[0.4, 0.3, 0.3]])
    raised = z + np.array([0.2, 0, 0])
    assert gen(raised, exponent=1.0, top=1) > gen(z, exponent=1.0, top=1)
    assert gen(raised, exponent=1.0) < gen(z, exponent=1.0)


@scores
@given(z=logits, t=temperatures)
@pytest.mark.sampled(3)
def test_numpy_and_torch_agree(score, z, t):
    ours = score.function(torch.tensor(z), temperature=t)
    assert ours.dtype == torch.float64
    close(ours.numpy(), score.function(z, temperature=t))


@scores
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_half_precision_is_scored_in_float32(score, dtype, rng):
    z = rng.normal(size=(20, 5)).astype(dtype)
    doubts = score.function(z)
    assert doubts.dtype == np.float32
    close(doubts, score.function(z.astype(np.float64)), 1e-6)
    half = {np.float16: torch.float16, np.float32: torch.float32}[dtype]
    close(score.function(torch.tensor(z, dtype=half)).numpy(), doubts, 1e-6)


@scores
def test_bfloat16_tensors_are_scored_in_float32(score, rng):
    z = torch.tensor(rng.normal(size=(20, 5))).bfloat16()
    doubts = score.function(z)
    assert doubts.dtype == torch.float32
    close(doubts.numpy(), score.function(z.double().numpy()), 1e-6)


@scores
@pytest.mark.parametrize("classes", [2, 10, 48, 49, 300])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_score_does_not_depend_on_its_batch(score, classes, dtype, rng):
    z = (rng.normal(size=(3000, classes)) * 10).astype(dtype)
    doubts = score.function(z)
    for start, stop in ((0, 1), (1, 2), (5, 22), (2990, 3000)):
        assert np.array_equal(score.function(z[start:stop]), doubts[start:stop])
    assert np.array_equal(score.function(z[::-1])[::-1], doubts)
    assert np.array_equal(score.function(np.asfortranarray(z)), doubts)


@scores
def test_leading_axes_are_kept(score, rng):
    z = rng.normal(size=(2, 3, 4))
    assert score.function(z).shape == (2, 3)
    assert np.array_equal(score.function(z[1]), score.function(z)[1])
    assert score.function(z[0, 0]).shape == ()


@scores
def test_certain_rows_are_least_doubtful_and_harm_no_other(score):
    z = np.array([[0.0, -np.inf, -np.inf], [0.0, -1.0, -np.inf]])
    doubts = score.function(z)
    assert doubts[0] < doubts[1] or "logits" in score.needs
    assert not np.isnan(doubts).any()
    t = torch.tensor(z, requires_grad=True)
    score.function(t).nan_to_num(neginf=0.0).sum().backward()
    assert torch.isfinite(t.grad).all()


@scores
@pytest.mark.parametrize("invalid", [np.nan, np.inf])
def test_rows_without_a_score_are_refused(score, invalid):
    z = np.zeros((40, 60))
    z[33, 7] = invalid
    with pytest.raises(InputError, match="row 33"):
        score.function(z)
    with pytest.raises(InputError, match="row 1"):
        score.function(np.array([[0.0, 1], [-np.inf, -np.inf]]))


@scores
def test_rows_without_a_score_are_nan_in_torch(score):
    z = torch.zeros(4, 3)
    z[0, 1], z[1, 2], z[2] = torch.nan, torch.inf, -torch.inf
    assert torch.isnan(score.function(z)).tolist() == [True, True, True, False]


@pytest.mark.parametrize("make", [np.asarray, torch.from_numpy])
def test_doubts_about_a_class_far_below_the_top(make):
    """msp of -inf there would be full trust in a class that has no mass."""
    far = [[1e300, -1e300, 0], [-1e308, 1e308, 0]]
    z = make(np.array([[1000.0, 0, 3], [-1, -np.inf, 0], *far]))
    about, apart = make(np.array([1, 1, 1, 0])), [1000, np.inf, 2e300, np.inf]
    doubts = {name: FORMULAS[name].function(z, predicted=about) for name in ABOUT}
    assert doubts["msp"].tolist() == [0, 0, 0, 0]
    assert doubts["odin"].tolist() == [0, 0, 0, 0]
    assert doubts["beta"].tolist() == pytest.approx(apart)
    assert doubts["margin"].tolist() == pytest.approx(apart)


def test_rows_without_a_score_are_nan_about_any_class():
    z = torch.tensor([[0.0, torch.inf, 0], [0, torch.nan, 0], [0, -torch.inf, 1]])
    for name in ABOUT:
        doubts = FORMULAS[name].function(z, predicted=torch.tensor([0, 0, 1]))
        assert torch.isnan(doubts).tolist() == [True, True, False]


@scores
def test_gaps_beyond_the_largest_number_have_gradients(score):
    z = torch.tensor([[3e38, -3e38, 0.0], [3e38, -3e38, -3e38]], requires_grad=True)
    score.function(z).nan_to_num(neginf=0.0).sum().backward()
    assert torch.isfinite(z.grad).all()


@scores
@pytest.mark.parametrize("gap", [1.0, 20, 85, 90, 95, 100, 105, 1000])
def test_float32_gradients_are_true_at_every_gap(score, gap):
    """In torch, where values near the smallest float32 could break them."""
    z = torch.tensor([[gap, 0.0, -1.0]], requires_grad=True)
    wide = z.detach().double().requires_grad_()
    narrow_score, wide_score = score.function(z), score.function(wide)
    assert narrow_score.item() == pytest.approx(wide_score.item(), rel=1e-6)
    (narrow,) = torch.autograd.grad(narrow_score.sum(), z)
    (true,) = torch.autograd.grad(wide_score.sum(), wide)
    assert torch.allclose(narrow.double(), true, atol=1e-5)


@scores
@pytest.mark.parametrize("t", [np.float32(2), np.int64(2), 2])
def test_numpy_numbers_are_temperatures(score, t):
    z = np.array([[1.0, 0.0]])
    assert score.function(z, temperature=t) == score.function(z, temperature=2.0)


@scores
@pytest.mark.parametrize("t", [0, 1e-310, -1.0, np.nan, np.inf, "hot", None])
def test_a_bad_temperature_is_refused(score, t):
    with pytest.raises(InputError, match="temperature"):
        score.function(np.zeros((2, 3)), temperature=t)


@scores
@pytest.mark.parametrize("shape", [(), (3, 1), (0,)])
def test_a_bad_shape_is_refused(score, shape):
    with pytest.raises(InputError, match="shape"):
        score.function(np.zeros(shape))
    with pytest.raises(InputError, match="shape"):
        score.function(np.array([["a", "b"]]))


@scores
def test_no_rows_give_no_scores(score):
    assert score.function(np.zeros((0, 3))).shape == (0,)


@breaking("shift")
def test_true_logits_are_demanded_where_needed(score):
    p = Predictions.from_probs([[0.5, 0.5]])
    with pytest.raises(InputError, match="needs true logits"):
        score(p)
    with pytest.raises(InputError, match="needs true logits"):
        score.function(p)


@scores
def test_predictions_are_scored_as_their_logits(score, rng):
    p = Predictions.from_logits(rng.normal(size=(12, 5)))
    assert np.array_equal(score.function(p), score.function(p.logits))


@scores
@pytest.mark.parametrize(
    "kind", ["numpy", "list", "torch", "float32", "bfloat16", "frame"]
)
def test_ten_rows_of_probabilities_are_not_mistaken_for_logits(score, kind, rng):
    probs = rng.dirichlet(np.ones(4), 10)
    array = {
        "numpy": probs,
        "list": probs.tolist(),
        "torch": torch.tensor(probs, requires_grad=True),
        "float32": probs.astype(np.float32),
        "bfloat16": torch.tensor(probs).bfloat16(),
        "frame": pl.DataFrame(probs),
    }[kind]
    with pytest.raises(InputError, match="from_probs, or --probs"):
        score.function(array)
    assert np.shape(score.function(array[:9])) == (9,)  # few rows may be chance
    for near in (np.round(probs, 3), np.round(probs, 2), probs[None]):
        with pytest.raises(InputError, match="from_probs, or --probs"):
            score.function(near)
    moved = probs.copy()
    moved[4] *= 1.1
    assert score.function(moved).shape == (10,)


def test_a_compiled_model_may_score(rng):
    """While tracing, when there are no values yet, values are not checked."""
    z = torch.tensor(rng.normal(size=(12, 3)))
    traced = torch.vmap(alpha)(z[None])[0]
    assert torch.allclose(traced, alpha(z))


@given(z=logits)
def test_beta_and_msp_rank_alike(z):
    assert_same_ranking(beta(z), msp(z))


@given(z=arrays(np.float64, (8, 2), elements=st.floats(-300, 300, width=32)))
def test_two_classes_make_alpha_beta_and_msp_rank_alike(z):
    assert_same_ranking(alpha(z), beta(z))
    assert_same_ranking(msp(z), beta(z))


def assert_same_ranking(a, b):
    """No pair of rows is ordered one way by a and the other way by b."""
    da, db = np.subtract.outer(a, a), np.subtract.outer(b, b)
    scale = 1e-12 * np.maximum(1, np.abs(a).max())
    assert not ((da > scale) & (db < -scale)).any()


@given(z=logits, t=temperatures)
def test_alpha_is_the_logit_of_gen_with_exponent_one(z, t):
    log_gini = gen(z, temperature=t, exponent=1.0)
    close(alpha(z, temperature=t), log_gini - np.log(-np.expm1(log_gini)), 1e-11)


@given(z=logits)
def test_the_papers_bounds_hold(z):
    """Pe <= 1 - g <= 2 Pe, the inequality behind Proposition 2."""
    log_pe, log_gini = msp(z), gen(z, exponent=1.0)
    assert (log_pe <= log_gini + 1e-12 * np.maximum(1, -log_pe)).all()
    assert (log_gini <= np.log(2) + log_pe + 1e-12 * np.maximum(1, -log_pe)).all()


@pytest.mark.parametrize("score", [alpha, beta])
def test_cold_scores_tend_to_minus_the_margin(score, rng):
    z = rng.normal(size=(50, 6))
    top = np.sort(z)
    cold = 1e-4
    assert np.allclose(
        cold * score(z, temperature=cold), top[:, -2] - top[:, -1], atol=2e-3
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("score", [alpha, beta, msp])
def test_wide_gaps_do_not_saturate(score, dtype):
    gaps = np.array([1, 20, 100, 1000], dtype)
    z = np.zeros((4, 10), dtype)
    z[:, 3] = gaps
    doubts = score(z)
    assert np.isfinite(doubts).all()
    assert (np.diff(doubts) < 0).all()
    t = torch.tensor(z, requires_grad=True)
    score(t).sum().backward()
    grad = t.grad.numpy()
    assert np.isfinite(grad).all()
    assert (grad[:, 3] < -0.1).all()
    assert (np.delete(grad, 3, 1) > 0).all()


def test_options_of_gen_are_checked():
    for options in ({"exponent": 0}, {"exponent": 1.5}, {"top": 0}):
        with pytest.raises(InputError):
            gen(np.zeros((1, 2)), **options)


@pytest.mark.parametrize(("value", "classes"), [(0.7, 3), (0.1, 6), (0.3, 10)])
def test_pnorm_of_equal_logits_is_0(value, classes):
    assert pnorm(np.full((1, classes), value)) == 0
    far = np.array([[1e6 + 1, 1e6, 1e6]], np.float32)
    assert pnorm(far)[0] == pytest.approx(-((2 / 3) ** 0.5), rel=1e-6)
    two = np.array([[3.0, 1.0, -np.inf], [30.0, 1.0, -np.inf]])
    assert np.diff(pnorm(two))[0] < -10
