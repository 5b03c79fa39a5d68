"""Values against mpmath, gradients against finite differences and closed forms."""

import exact_scores
import mpmath as mp
import numpy as np
import pytest
import torch

from trustdoctor.kernels import _native
from trustdoctor.scores import SCORES, LogitScore, alpha, beta, gen

FORMULAS = {n: s for n, s in SCORES.items() if isinstance(s, LogitScore)}


def reference(name, row, t, *, exponent=0.1, top=None):
    """The definition, in 60 digits and with no thought for stability."""
    if name != "gen":
        return exact_scores.definition({"odin": "msp"}.get(name, name), row, mp.mpf(t))
    e = [mp.exp((mp.mpf(float(x)) - mp.mpf(float(max(row)))) / mp.mpf(t)) for x in row]
    e, total = sorted(e, reverse=True), mp.fsum(e)
    others_sums = [
        mp.fsum(e[1:]),
        *(total - x for x in e[1:]),
    ]  # 60 digits may hide the first
    pairs = list(zip(e, others_sums, strict=True))[:top]
    return mp.log(
        mp.fsum(
            (x * complement / total**2) ** mp.mpf(exponent) for x, complement in pairs
        )
    )


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("dtype", "bound"), [(np.float32, 1e-6), (np.float64, 1e-13)])
@pytest.mark.parametrize("classes", [2, 3, 10, 48, 49, 1000])
def test_values_meet_mpmath(dtype, bound, classes, rng, monkeypatch):
    """The C kernel's on each instruction set, and those of numpy alone."""
    mp.mp.dps = 60
    kinds = [None, *_native.instruction_sets()]
    rows, scales = (1, (20,)) if classes == 1000 else (5, (1, 20, 300))
    for scale in scales:
        z = (rng.normal(size=(rows, classes)) * scale).astype(dtype)
        for t in (1.0, 1.7):
            for name, score in FORMULAS.items():
                true = [reference(name, row, t) for row in z]
                for native in kinds:
                    monkeypatch.setattr(_native, "available", native is not None)
                    if native is not None:
                        monkeypatch.setattr(_native, "isa", _native.ISAS.index(native))
                    doubts = score.function(z, temperature=t)
                    assert doubts.dtype == dtype
                    for value, right in zip(doubts, true, strict=True):
                        error = abs(mp.mpf(float(value)) - right) / max(1, abs(right))
                        assert error < bound, (name, scale, t, native)


@pytest.mark.parametrize("options", [{"exponent": 1.0}, {"exponent": 0.5, "top": 3}])
def test_gen_with_options_meets_mpmath(options, rng):
    mp.mp.dps = 60
    for row in rng.normal(size=(10, 7)) * 5:
        true = reference("gen", row, 1.0, **options)
        assert abs(float(gen(row, **options)) - float(true)) < 1e-13 * max(1, abs(true))


def test_the_worst_row_of_a_large_sample_is_exact(rng):
    """float32 against float64 over many rows, where mpmath would be slow."""
    z = (
        rng.normal(size=(200_000, 10)) * rng.choice([1, 10, 200], (200_000, 1))
    ).astype(np.float32)
    for score in FORMULAS.values():
        wide = score.function(z.astype(np.float64))
        error = np.abs(score.function(z) - wide) / np.maximum(1, np.abs(wide))
        assert error.max() < 1e-6, score.name


@pytest.mark.parametrize("name", FORMULAS)
def test_gradients_match_finite_differences(name, rng):
    z = torch.tensor(rng.normal(size=(4, 5)) * 3, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda x: FORMULAS[name].function(x, temperature=1.3), z, atol=1e-7
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_match_the_closed_forms(dtype, rng):
    bound = 1e-6 if dtype == torch.float32 else 1e-13
    t = 1.4
    z = rng.normal(size=(30, 6)) * rng.choice([1, 30, 400], (30, 1))
    tensor = torch.tensor(z, dtype=dtype, requires_grad=True)
    z = tensor.detach().double().numpy()
    top = z.argmax(1)
    rows = np.arange(len(z))
    u = (z - z[rows, top, None]) / t
    u[rows, top] = -np.inf
    log_a = np.logaddexp.reduce(u, axis=1)
    w = np.exp(u - log_a[:, None])
    q = 1 / (1 + np.exp(-log_a))
    p, big_w = 1 - q, (w**2).sum(1)
    g = p**2 + q**2 * big_w
    d = 2 - q * (1 + big_w)
    true_beta = w.copy()
    true_alpha = 2 * w * (g[:, None] - q[:, None] * w) / (g * d)[:, None]
    true_beta[rows, top] = -1
    true_alpha[rows, top] = -2 * p * (p - q * big_w) / (g * d)
    for score, true in ((alpha, true_alpha), (beta, true_beta)):
        (grad,) = torch.autograd.grad(score(tensor, temperature=t).sum(), tensor)
        assert np.abs(grad.double().numpy() - true / t).max() < 10 * bound


def test_ties_at_the_top_have_the_closed_gradient():
    z = torch.zeros(1, 3, dtype=torch.float64, requires_grad=True)
    (grad,) = torch.autograd.grad(beta(z).sum(), z)
    assert grad.tolist() == [[-1.0, 0.5, 0.5]]
