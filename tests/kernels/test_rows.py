import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from trustdoctor.kernels import _native, rows, sort
from trustdoctor.scores import SCORES, LogitScore, alpha

FORMULAS = {n: s for n, s in SCORES.items() if isinstance(s, LogitScore)}


def test_the_compiled_kernel_is_in_this_environment():
    """Where the tests run there is a compiler; without it they would test less."""
    assert _native.available


def test_without_the_library_numpy_does_the_work():
    code = (
        "import numpy as np, trustdoctor as td\n"
        "from trustdoctor.kernels import _native\n"
        "print(_native.available, td.alpha(np.array([[0., 100.]]))[0])"
    )
    out = subprocess.run(
        [sys.executable, "-c", code],
        env={"TRUSTDOCTOR_NATIVE": "0", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    available, value = out.stdout.split()
    assert available == "False"
    assert float(value) == pytest.approx(100 * -1 + np.log(2), rel=1e-15)


@pytest.mark.parametrize("name", FORMULAS)
def test_numpy_and_compiled_forms_agree(name, rng, monkeypatch):
    z = rng.normal(size=(5000, 60)) * 20
    fast = FORMULAS[name].function(z)
    monkeypatch.setattr(_native, "available", False)
    slow = FORMULAS[name].function(z)
    assert np.allclose(fast, slow, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", ["normal", "ties", "wide", "infinite"])
def test_the_radix_sort_sorts(dtype, kind, rng):
    n = rows._RADIX_ROWS + 17
    values = {
        "normal": rng.normal(size=n),
        "ties": rng.integers(-3, 3, n) * 1.0,
        "wide": rng.normal(size=n) * 10.0 ** rng.integers(-30, 30, n),
        "infinite": np.where(rng.random(n) < 0.1, -np.inf, rng.normal(size=n)),
    }[kind].astype(dtype)
    assert np.array_equal(sort(values.copy()), np.sort(values))


def test_torch_gives_torch_on_the_same_device():
    z = torch.zeros(3, 2, device="meta")
    assert FORMULAS["alpha"].function(z).device.type == "meta"


def test_scores_trace_under_torch_compile_and_func(rng):
    z = torch.tensor(rng.normal(size=(3, 4)))
    per_row = torch.func.vmap(torch.func.grad(alpha))
    x = z.clone().requires_grad_()
    (grad,) = torch.autograd.grad(FORMULAS["alpha"].function(x).sum(), x)
    assert torch.allclose(per_row(z), grad)


@pytest.mark.parametrize("score", FORMULAS)
def test_jax_arrays_are_scored_as_numpy_ones(score, rng):
    jax = pytest.importorskip("jax")
    z = (5 * rng.normal(size=(40, 7))).astype(np.float32)
    found = FORMULAS[score].function(jax.numpy.asarray(z))
    np.testing.assert_allclose(
        np.asarray(found), FORMULAS[score].function(z), rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("classes", [2, 10, 48, 49, 100, 1000, 1003])
def test_wide_and_narrow_vectors_give_the_same_bits(classes, dtype, rng):
    """Ties cannot flip between machines; baseline x86-64 cannot fuse products."""
    sets = [name for name in _native.instruction_sets() if name != "baseline"]
    if len(sets) < 2:
        pytest.skip(f"this processor has {', '.join(sets) or 'baseline'} alone")
    rows = (rng.normal(size=(333, classes)) * 5).astype(dtype)
    rows[::7, 0] = -np.inf
    found = {}
    for name in sets:
        out = np.empty((len(_native.KINDS), len(rows)), dtype)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_native, "isa", _native.ISAS.index(name))
            for t in (1.0, 0.3):
                assert _native.score(rows, _native.KINDS, temperature=t, out=out) == -1
                found.setdefault(t, []).append(out.copy())
    for first, *others in found.values():
        assert all(np.array_equal(first, other) for other in others)


def test_an_instruction_set_can_be_forced():
    code = "from trustdoctor.kernels import _native; print(_native.ISAS[_native.isa])"
    names = _native.instruction_sets() or pytest.skip("there is no C kernel")
    for name in (*names, "mmx"):
        given = {**os.environ, "TRUSTDOCTOR_ISA": name}
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            env=given,
            check=False,
        )
        if name in names:
            assert done.stdout.split() == [name]
        else:
            assert "expected TRUSTDOCTOR_ISA out of baseline" in done.stderr
