"""Scores of CUDA tensors in one pass over the logits, by a Triton kernel.

The kernel keeps, over blocks of classes, the two largest logits and the sums of the
others relative to the second, and merges blocks as it goes. With (t, z, s) the top, the
second and the sum of exp((z_j - z) / T) over all but the top, two blocks become

    t = max(t1, t2),  z = max(z1, z2, min(t1, t2)),
    s = s1 exp((z1 - z) / T) + s2 exp((z2 - z) / T) + exp((min(t1, t2) - z) / T),

where nothing cancels. `rows.py` calls it where Triton is there and no gradient is
asked for; everything else takes the common formulas.
"""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

KINDS = ("beta", "alpha", "msp", "entropy", "margin", "max_logit", "energy")
_ELEMENTS = 2048  # that a warp holds at a time; measured on an H200
_TYPES = (torch.float32, torch.float16, torch.bfloat16)


def can_score(logits: Tensor) -> bool:
    """Say whether the kernel takes these logits: floats on CUDA, and no gradient."""
    return (
        logits.is_cuda
        and logits.dtype in _TYPES
        and not (logits.requires_grad and torch.is_grad_enabled())
        and not torch.compiler.is_compiling()
        and not torch._C._functorch.is_functorch_wrapped_tensor(logits)
    )


def score(logits: Tensor, kind: str, *, temperature: float) -> Tensor:
    """Score rows (..., C); NaN for rows with NaN, +inf or nothing but -inf."""
    classes = logits.shape[-1]
    rows = logits.reshape(-1, classes)
    rows = rows if rows.stride(1) == 1 else rows.contiguous()
    out = torch.empty(len(rows), dtype=torch.float32, device=logits.device)
    if len(rows):
        _launch(rows, out, kind, temperature)
    return out.reshape(logits.shape[:-1])


def _launch(rows: Tensor, out: Tensor, kind: str, temperature: float) -> None:
    stride, classes = rows.stride(0), rows.shape[1]
    # A warp alone takes whole rows, so that no sum has to cross warps.
    block = min(triton.next_power_of_2(classes), _ELEMENTS)
    together = _ELEMENTS // block
    # How many entries surely lie together at every row's start: wide loads need it.
    unit = math.gcd(stride, classes, rows.storage_offset() or 16, 16)
    with torch.cuda.device(rows.device):
        _score_rows[(triton.cdiv(len(rows), together),)](
            rows,
            out,
            len(rows),
            classes // unit,
            stride // unit,
            1.0 / temperature,
            float(temperature),
            KIND=KINDS.index(kind),
            BLOCK=block,
            ROWS=together,
            UNIT=unit,
            num_warps=1,
        )


@triton.jit
def _weight(shift, inv_t):
    """exp(shift / T), 0 for -inf and for -inf less -inf."""
    return tl.where(shift > float("-inf"), tl.exp(shift * inv_t), 0.0)


@triton.jit
def _score_rows(  # noqa: PLR0913, C901 - one kernel, its branches known beforehand
    z,
    out,
    n,
    classes,
    stride,
    inv_t,
    temperature,
    KIND: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
    ROWS: tl.constexpr,  # noqa: N803
    UNIT: tl.constexpr,  # noqa: N803
):
    lowest = float("-inf")
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    here = row < n
    columns = tl.arange(0, BLOCK)
    scale = inv_t * 1.4426950408889634  # exp(v) is exp2(v / log 2)
    top = tl.full([ROWS], lowest, tl.float32)
    second = tl.full([ROWS], lowest, tl.float32)
    s = tl.zeros([ROWS], tl.float32)
    s2 = tl.zeros([ROWS], tl.float32)
    f = tl.zeros([ROWS], tl.float32)
    for first in range(0, classes * UNIT, BLOCK):
        inside = here[:, None] & (first + columns < classes * UNIT)[None, :]
        at = z + row[:, None] * (stride * UNIT) + (first + columns)[None, :]
        x = tl.load(at, mask=inside, other=lowest).to(tl.float32)
        here_top = tl.max(x, 1)
        is_top = x == here_top[:, None]
        others = tl.where(is_top, lowest, x)
        tied = tl.sum(is_top.to(tl.float32), 1) - 1.0  # tops but one are others, too
        tied = tl.where(here_top > lowest, tied, 0.0)
        here_second = tl.where(tied > 0, here_top, tl.max(others, 1))
        offset = tl.where(here_second > lowest, here_second, 0.0)
        v = (others - offset[:, None]) * scale
        e = tl.exp2(v)  # NaN stays NaN, up to the result
        own = tl.sum(e, 1) + tied
        own2 = tl.sum(e * e, 1) + tied
        low = tl.minimum(top, here_top)
        new = tl.maximum(low, tl.maximum(second, here_second))
        a = _weight(second - new, inv_t)
        b = _weight(here_second - new, inv_t)
        c = _weight(low - new, inv_t)
        if KIND == 3:
            own_f = tl.sum(tl.where(e > 0, e * v, 0.0), 1) * 0.6931471805599453
            da = tl.where(a > 0, (second - new) * inv_t, 0.0)
            db = tl.where(b > 0, (here_second - new) * inv_t, 0.0)
            dc = tl.where(c > 0, (low - new) * inv_t, 0.0)
            f = a * (f + da * s) + b * (own_f + db * own) + c * dc
        s = a * s + b * own + c
        s2 = a * a * s2 + b * b * own2 + c * c
        top = tl.maximum(top, here_top)
        second = new
    certain = second == lowest
    u2 = (tl.where(certain, top, second) - top) * inv_t
    e2 = tl.exp(u2)
    whole = tl.where(certain, 1.0, s)
    a = tl.where(certain, 0.0, e2 * s)
    if KIND == 5:
        result = -top * inv_t
    elif KIND == 4:
        result = tl.where(certain, lowest, u2)
    elif KIND == 6:
        result = -(top + temperature * tl.log(1.0 + a))
    else:
        inner = whole
        more = tl.zeros([ROWS], tl.float32)
        if KIND == 1:
            inner = whole * (2.0 + a - e2 * (s2 / whole)) / (1.0 + e2 * e2 * s2)
        if KIND == 2:
            inner = whole / (1.0 + a)
        if KIND == 3:
            y = 1.0 + a
            d = y - 1.0
            phi = tl.where(d == 0.0, 1.0, tl.log(y) / tl.where(d == 0.0, 1.0, d))
            # The gap may be near the largest number, or beyond it.
            gap = tl.where(u2 > lowest, -u2, 0.0)
            more = tl.log(phi + (gap - f / whole) / y)
        result = tl.where(certain, lowest, u2 + (tl.log(inner) + more))
    fine = (top > lowest) & (top < float("inf")) & (s == s)
    tl.store(out + row, tl.where(fine, result, float("nan")), mask=here)
