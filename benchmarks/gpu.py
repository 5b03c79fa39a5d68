"""Scores on a GPU: one pass over the logits, against copying them. By hand.

    python benchmarks/gpu.py

For each size and type: the bandwidth at which alpha reads the logits, as a share of
that of a device copy measured in the same run; the time of softmax and formula, eager
and compiled; and the largest distance from float64.
"""

import math
from functools import partial

import torch
from triton.testing import do_bench

import trustdoctor as td
from trustdoctor.kernels.rows import _gpu_kernels

SIZES = ((1_000_000, 1000), (65_536, 128_000))
ODD = ((1_000_000, 2), (200_000, 10), (50_000, 1001), (3000, 50_257), (1000, 32_000))


def seconds(function):
    """Return the median time of a call."""
    return do_bench(function, warmup=50, rep=300, return_mode="median") / 1000


def formula(z):
    """Compute the ratio of D_alpha as the paper writes it."""
    p = torch.softmax(z, -1)
    g = (p * p).sum(-1)
    return torch.log((1 - g) / g)


def reference(z):
    """Score by the common formulas in float64."""
    blocks = z.split(max(1, (1 << 26) // z.shape[1]))
    return torch.cat([td.alpha(block.double()) for block in blocks])


def make(rows, classes, dtype):
    z = torch.empty(rows, classes, dtype=dtype, device="cuda")
    for block in z.split(max(1, (1 << 26) // classes)):
        block.copy_(torch.randn(block.shape, device="cuda") * 3)
        block[:, 0] += 8
    return z


def error(z, ours):
    exact = reference(z)
    return float(((ours.double() - exact).abs() / exact.abs().clamp(min=1)).max())


def bench_size(rows, classes, dtype):
    z = make(rows, classes, dtype)
    size = z.numel() * z.element_size()
    source = z[: max(1, int(rows * min(1.0, 16e9 / size)))]
    target = torch.empty_like(source)
    bytes_moved = 2 * source.numel() * source.element_size()
    copy = bytes_moved / seconds(partial(target.copy_, source))
    del target
    seconds_taken = seconds(lambda: td.alpha(z))
    line = f"{rows:>9,} x {classes:<7,} {str(dtype)[6:]:<9}"
    line += (
        f" alpha {seconds_taken * 1e3:7.2f} ms, {size / seconds_taken / 1e12:.2f} TB/s;"
    )
    line += f" copy {copy / 1e12:.2f} TB/s: {size / seconds_taken / copy:.0%}"
    sample = z[: max(1, int(rows * min(1.0, 8e9 / size)))]
    ours = seconds(lambda: td.alpha(sample))
    eager = seconds(lambda: formula(sample)) / ours
    compiled = torch.compile(formula, dynamic=False)
    compiled(sample)
    line += f"; softmax + formula {eager:.1f}x, compiled "
    line += f"{seconds(lambda: compiled(sample)) / ours:.1f}x"
    line += f"; error {error(sample, td.alpha(sample)):.1e}"
    normed = seconds(lambda: td.normalised_alpha(sample)) / ours
    line += f"; normalised_alpha {normed:.1f}x the time of alpha"
    print(line, flush=True)


def check(rows, classes, dtype):
    z = make(rows, classes, dtype)
    z[1] = -math.inf
    z[1, classes // 2] = 1.0
    worst = {}
    for name in ("alpha", "beta", "msp", "entropy", "margin", "max_logit", "energy"):
        exact = torch.cat(
            [
                getattr(td, name)(block.double(), temperature=1.3)
                for block in z.split(4096)
            ]
        )
        ours = getattr(td, name)(z, temperature=1.3).double()
        same = torch.where(exact.isinf(), (ours != exact) * 1.0, 0.0).max()
        gap = (ours - exact).abs() / exact.abs().clamp(min=1)
        worst[name] = float(torch.where(exact.isinf(), 0.0, gap).max() + same)
    for name, p in (("pnorm", 2), ("normalised_margin", 5), ("normalised_alpha", 3)):
        score = partial(getattr(td, name), p=p)
        exact = torch.cat([score(block.double()) for block in z.split(4096)])
        gap = (score(z).double() - exact).abs() / exact.abs().clamp(min=1)
        worst[name] = float(torch.where(exact.isinf(), 0.0, gap).max())
    z[0, 0], z[2, 1], z[3] = math.nan, math.inf, -math.inf
    odd = td.alpha(z)
    assert odd[[0, 2, 3]].isnan().all()
    assert not odd[4:].isnan().any()
    shown = ", ".join(f"{name} {gap:.0e}" for name, gap in worst.items())
    print(f"{rows:,} x {classes:,} {str(dtype)[6:]}, error by score: {shown}")


def main():
    print(torch.cuda.get_device_name(), "torch", torch.__version__)
    assert _gpu_kernels() is not None, "Triton is not there"
    for rows, classes in ODD:
        for dtype in (torch.float32, torch.float16, torch.bfloat16):
            check(rows, classes, dtype)
    for rows, classes in SIZES:
        for dtype in (torch.float32, torch.float16, torch.bfloat16):
            bench_size(rows, classes, dtype)
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
