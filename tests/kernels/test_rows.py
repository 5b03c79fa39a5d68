import os
import subprocess
import sys

import mpmath as mp
import numpy as np
import pytest
import torch

from trustdoctor.errors import InputError
from trustdoctor.kernels import _native, normalise
from trustdoctor.scores import SCORES, LogitScore, alpha
from trustdoctor.scores.normalisation import normalised_alpha, normalised_margin, pnorm

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


def test_torch_gives_torch_on_the_same_device():
    z = torch.zeros(3, 2, device="meta")
    assert FORMULAS["alpha"].function(z).device.type == "meta"


def test_scores_trace_under_torch_compile_and_func(rng):
    z = torch.tensor(rng.normal(size=(3, 4)))
    per_row = torch.func.vmap(torch.func.grad(alpha))
    x = z.clone().requires_grad_()
    (grad,) = torch.autograd.grad(FORMULAS["alpha"].function(x).sum(), x)
    assert torch.allclose(per_row(z), grad)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("score", FORMULAS)
def test_jax_arrays_are_scored_as_numpy_ones(score, rng):
    jax = pytest.importorskip("jax")
    z = (5 * rng.normal(size=(40, 7))).astype(np.float32)
    doubts = FORMULAS[score].function(jax.numpy.asarray(z))
    np.testing.assert_allclose(
        np.asarray(doubts), FORMULAS[score].function(z), rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("name", FORMULAS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("classes", [2, 17, 128, 129])
def test_without_c_too_a_row_has_one_score_in_any_batch(
    name, dtype, classes, rng, monkeypatch
):
    """numpy adds up a single row in another order than rows side by side."""
    monkeypatch.setattr(_native, "available", False)
    z = (rng.normal(size=(40, classes)) * 4).astype(dtype)
    at_once = FORMULAS[name].function(z)
    for rows in (1, 2, 3, 9):
        assert np.array_equal(
            FORMULAS[name].function(z[5 : 5 + rows]), at_once[5:][:rows]
        )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("classes", [10, 11, 1000, 1003])
def test_each_score_is_the_same_alone_and_with_others(classes, dtype, rng, monkeypatch):
    rows = (rng.normal(size=(37, classes)) * 5).astype(dtype)
    together = np.empty((len(_native.KINDS), len(rows)), dtype)
    alone = np.empty((1, len(rows)), dtype)
    for name in _native.instruction_sets():
        monkeypatch.setattr(_native, "isa", _native.ISAS.index(name))
        _native.score(rows, _native.KINDS, temperature=1.7, out=together)
        for kind, expected in zip(_native.KINDS, together, strict=True):
            _native.score(rows, [kind], temperature=1.7, out=alone)
            assert np.array_equal(alone[0], expected), (name, kind)


@pytest.mark.parametrize(("dtype", "bound"), [(np.float32, 1e-6), (np.float64, 1e-15)])
def test_baseline_differs_in_the_last_bits_alone(dtype, bound, rng, monkeypatch):
    names = _native.instruction_sets()
    if "baseline" not in names or len(names) < 2:
        pytest.skip("this processor has one instruction set")
    rows = (rng.normal(size=(2000, 100)) * 5).astype(dtype)
    outputs = []
    for name in (names[0], names[-1]):
        monkeypatch.setattr(_native, "isa", _native.ISAS.index(name))
        out = np.empty((len(_native.KINDS), len(rows)), dtype)
        _native.score(rows, _native.KINDS, temperature=1.0, out=out)
        outputs.append(out)
    apart = np.abs(outputs[0] - outputs[1]) / np.maximum(1, np.abs(outputs[1]))
    assert apart.max() < bound


@pytest.mark.parametrize("gap", [80.0, 87.0, 87.5, 88.0, 89.0, 104.0, 1e4, np.inf])
def test_far_logits_add_nothing_at_the_end_of_float32(gap, monkeypatch):
    """exp ends near -87.7 in float32: there is nothing wild on either side."""
    z = np.full((1, 60), -gap, np.float32)
    z[0, :2] = 1.0, 0.0
    for name in _native.instruction_sets():
        monkeypatch.setattr(_native, "isa", _native.ISAS.index(name))
        scores = np.empty((len(_native.KINDS), 1), np.float32)
        assert _native.score(z, _native.KINDS, temperature=1.0, out=scores) == -1
        alone = np.empty((len(_native.KINDS), 1), np.float32)
        near = np.ascontiguousarray(z[:, :2])
        assert _native.score(near, _native.KINDS, temperature=1.0, out=alone) == -1
        np.testing.assert_allclose(scores, alone, rtol=3e-7)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("classes", [2, 10, 48, 49, 100, 1000, 1003])
def test_wide_and_narrow_vectors_give_the_same_bits(classes, dtype, rng):
    """Ties cannot flip between machines; baseline x86-64 cannot fuse products."""
    sets = [name for name in _native.instruction_sets() if name != "baseline"]
    if len(sets) < 2:
        pytest.skip(f"this processor has {', '.join(sets) or 'baseline'} alone")
    rows = (rng.normal(size=(333, classes)) * 5).astype(dtype)
    rows[::7, 0] = -np.inf
    outputs = {}
    for name in sets:
        out = np.empty((len(_native.KINDS), len(rows)), dtype)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_native, "isa", _native.ISAS.index(name))
            for t in (1.0, 0.3):
                assert _native.score(rows, _native.KINDS, temperature=t, out=out) == -1
                outputs.setdefault(t, []).append(out.copy())
    for first, *other_outputs in outputs.values():
        assert all(np.array_equal(first, other) for other in other_outputs)


def test_an_instruction_set_can_be_forced():
    code = "from trustdoctor.kernels import _native; print(_native.ISAS[_native.isa])"
    names = _native.instruction_sets() or pytest.skip("there is no C kernel")
    for name in (*names, "mmx"):
        environment = {**os.environ, "TRUSTDOCTOR_ISA": name}
        completed = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            env=environment,
            check=False,
        )
        if name in names:
            assert completed.stdout.split() == [name]
        else:
            assert "expected TRUSTDOCTOR_ISA out of baseline" in completed.stderr


POWERS = (1, 1.5, 2, 3, 4, 5, 6, 40)
SCORES = (pnorm, normalised_alpha, normalised_margin)
FUSED = [name for name in _native.instruction_sets() if name != "baseline"]

dtypes = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def mixed(classes, dtype, rng, n=150):
    """Plain rows, and odd ones among them: masked, flat, near the ends of numbers."""
    ends = np.finfo(dtype)
    z = (rng.normal(size=(n, classes)) * 5).astype(dtype)
    z[5::13] *= 4 * ends.tiny
    z[6::17] *= ends.max / 40
    z[8::19] = 0.7
    z[9::23] = np.round(z[9::23])
    z[10::29] += 10_000
    z[::7, 0] = -np.inf
    for n_finite, start in ((1, 3), (2, 12), (3, 13)):
        z[start::31, : max(0, classes - n_finite)] = -np.inf
    return z


def score(z, name, p, kinds=_native.NORMED):
    out = np.empty((len(kinds), len(z)), z.dtype)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_native, "isa", _native.ISAS.index(name))
        z = np.ascontiguousarray(z)
        assert _native.score(z, kinds, temperature=0.3, out=out, p=p) == -1
    return out


@dtypes
@pytest.mark.parametrize("classes", [2, 3, 10, 48, 49, 64, 65, 1000])
def test_wide_and_narrow_vectors_normalise_to_the_same_bits(classes, dtype, rng):
    if len(FUSED) < 2:
        pytest.skip(f"this processor has {', '.join(FUSED) or 'baseline'} alone")
    z = mixed(classes, dtype, rng)
    for p in POWERS:
        first, *other_outputs = (score(z, name, p) for name in FUSED)
        assert not np.isnan(first).any()
        assert all(np.array_equal(first, other) for other in other_outputs)


@dtypes
@pytest.mark.parametrize("classes", [2, 3, 10, 48, 49, 65])
@pytest.mark.parametrize("name", _native.instruction_sets())
def test_a_row_has_one_score_in_any_batch_and_with_any_other_score(
    name, classes, dtype, rng
):
    z = mixed(classes, dtype, rng)
    for p in (1, 2, 7.3):
        at_once = score(z, name, p)
        for rows in (slice(1, None), slice(5, 22), slice(None, None, -1)):
            assert np.array_equal(score(z[rows], name, p), at_once[:, rows])
        for i in range(0, len(z), 9):
            assert np.array_equal(score(z[i : i + 1], name, p)[:, 0], at_once[:, i])
        for kind, expected in zip(_native.NORMED, at_once, strict=True):
            assert np.array_equal(score(z, name, p, [kind])[0], expected)


@dtypes
@pytest.mark.parametrize("classes", [2, 3, 17, 128, 129])
def test_without_c_too_a_normalised_row_has_one_score_in_any_batch(
    classes, dtype, rng, monkeypatch
):
    monkeypatch.setattr(_native, "available", False)
    z = mixed(classes, dtype, rng, 60)
    for function in SCORES:
        for p in (1, 3, 7.3):
            at_once = function(z, p=p)
            for rows in (slice(0, 1), slice(8, 9), slice(5, 22), slice(None, None, -1)):
                assert np.array_equal(function(z[rows], p=p), at_once[rows])


@dtypes
@pytest.mark.parametrize("classes", [3, 48, 49])
def test_baseline_and_numpy_differ_in_the_last_bits_alone(
    classes, dtype, rng, monkeypatch
):
    z = mixed(classes, dtype, rng)
    bound = 2e-5 if dtype == np.float32 else 1e-13
    for function in SCORES:
        for p in POWERS:
            monkeypatch.setattr(_native, "available", True)
            fast = function(z, p=p)
            monkeypatch.setattr(_native, "available", False)
            slow = function(z, p=p)
            sure = np.isneginf(fast)
            assert np.array_equal(sure, np.isneginf(slow))
            apart = np.abs(fast[~sure] - slow[~sure])
            assert (apart <= bound * np.maximum(1, np.abs(slow[~sure]))).all()


BAD = {
    "NaN": lambda row: np.put(row, 1, np.nan),
    "NaN first": lambda row: np.put(row, 0, np.nan),
    "NaN last": lambda row: np.put(row, -1, np.nan),
    "NaN beside masked": lambda row: np.copyto(
        row, [np.nan] + [-np.inf] * (len(row) - 1)
    ),
    "nothing but NaN": lambda row: row.fill(np.nan),
    "+inf": lambda row: np.put(row, 1, np.inf),
    "+inf twice": lambda row: np.put(row, [0, -1], np.inf),
    "+inf beside masked": lambda row: np.copyto(
        row, [-np.inf] * (len(row) - 1) + [np.inf]
    ),
    "all masked": lambda row: row.fill(-np.inf),
}


@dtypes
@pytest.mark.parametrize("classes", [2, 3, 48, 49, 100])
@pytest.mark.parametrize("spoil", BAD.values(), ids=BAD)
def test_a_bad_row_is_refused_by_its_number(spoil, classes, dtype, rng, monkeypatch):
    for i in (0, 33, 39):
        z = mixed(classes, dtype, rng, 40)
        spoil(z[i])
        for native in (None, *_native.instruction_sets()):
            monkeypatch.setattr(_native, "available", native is not None)
            if native is not None:
                monkeypatch.setattr(_native, "isa", _native.ISAS.index(native))
            for function in SCORES:
                with pytest.raises(InputError, match=rf"\brow {i}\b"):
                    function(z, p=2 if i else 1.5)
        for function in SCORES:
            refused = torch.isnan(function(torch.from_numpy(z), p=1.5))
            assert refused.nonzero().tolist() == [[i]]


@dtypes
@pytest.mark.parametrize("p", POWERS)
def test_normalised_logits_have_length_1_around_their_mean(p, dtype, rng):
    z = (rng.normal(size=(9, 6)) * 5 + 3).astype(dtype)
    z[4, :3] = -np.inf
    with np.errstate(invalid="ignore"):  # as its callers do
        short, lead, count = normalise(z, p)
    assert count.tolist() == [6] * 4 + [3] + [6] * 4
    assert np.array_equal(np.isneginf(short), np.isneginf(z))
    assert np.array_equal(short.max(1), np.zeros(9))
    for row, ahead in zip(short, lead, strict=True):
        centred = [mp.mpf(float(x)) + float(ahead) for x in row if x > -np.inf]
        assert abs(mp.fsum(centred)) < 4 * len(centred) * np.finfo(dtype).eps
        length = mp.fsum(abs(x) ** p for x in centred) ** (1 / mp.mpf(p))
        assert abs(length - 1) < 8 * np.finfo(dtype).eps
    two = z[:4, :2]
    assert np.array_equal(normalise(two, p)[0], two)
