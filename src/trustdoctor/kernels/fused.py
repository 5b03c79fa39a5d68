"""Scores of CUDA tensors in one pass over the logits, by a Triton kernel.

The kernel keeps, over blocks of classes, the two largest logits and the sums of the
others relative to the second, and merges blocks as it goes. With (t, z, s) the top, the
second and the sum of exp((z_j - z) / T) over all but the top, two blocks become

    t = max(t1, t2),  z = max(z1, z2, min(t1, t2)),
    s = s1 exp((z1 - z) / T) + s2 exp((z2 - z) / T) + exp((min(t1, t2) - z) / T),

where nothing cancels. Where lengths are to be taken out, another kernel finds them
first, as lengths_body.h does. `rows.py` calls both where Triton is there and no
gradient is asked for; everything else takes the common formulas.
"""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

KINDS = ("beta", "alpha", "msp", "entropy", "margin", "max_logit", "energy", "pnorm")
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


def score(
    logits: Tensor, kind: str, *, temperature: float, p: float | None = None
) -> Tensor:
    """Score rows (..., C); NaN for rows with NaN, +inf or nothing but -inf.

    With `p`, the p-norms of centred rows are taken out first.
    """
    classes = logits.shape[-1]
    rows = logits.reshape(-1, classes)
    rows = rows if rows.stride(1) == 1 else rows.contiguous()
    out = torch.empty(len(rows), dtype=torch.float32, device=logits.device)
    if len(rows):
        _launch(rows, out, kind, temperature, p)
    return out.reshape(logits.shape[:-1])


def _launch(
    rows: Tensor, out: Tensor, kind: str, temperature: float, p: float | None
) -> None:
    stride, classes = rows.stride(0), rows.shape[1]
    inv, lead = (out.new_empty(len(rows) if p else 0) for _ in range(2))
    # A warp alone takes whole rows, so that no sum has to cross warps.
    block = min(triton.next_power_of_2(classes), _ELEMENTS)
    together = _ELEMENTS // block
    # How many entries surely lie together at every row's start: wide loads need it.
    unit = math.gcd(stride, classes, rows.storage_offset() or 16, 16)
    shape = {"BLOCK": block, "ROWS": together, "UNIT": unit, "num_warps": 1}
    grid = (triton.cdiv(len(rows), together),)
    with torch.cuda.device(rows.device):
        if p:
            whole = int(p) if p in (1, 2, 3, 4, 5, 6) else 0
            sizes = len(rows), classes // unit, stride // unit
            _lengths[grid](rows, inv, lead, *sizes, float(p), 1.0, POWER=whole, **shape)
        _score_rows[grid](
            rows,
            out,
            inv,
            lead,
            len(rows),
            classes // unit,
            stride // unit,
            1.0 / temperature,
            float(temperature),
            KIND=KINDS.index(kind),
            NORMED=bool(p),
            **shape,
        )


@triton.jit
def _weight(shift, inv_t):
    """exp(shift / T), 0 for -inf and for -inf less -inf."""
    return tl.where(shift > float("-inf"), tl.exp(shift * inv_t), 0.0)


@triton.jit
def _raised(u, p, POWER: tl.constexpr):  # noqa: N803
    """|u|^p; POWER is p where that is a whole number up to 6, and else 0.

    For p = 1 what is above the mean counts twice, as in lengths_body.h.
    """
    size = tl.abs(u)
    if POWER == 0:
        return tl.exp(p * tl.log(tl.maximum(size, 1e-37)))
    if POWER == 1:
        return 2 * tl.maximum(u, 0.0)
    y = size
    for _ in tl.static_range(POWER - 1):
        y = y * size
    return y


@triton.jit
def _lengths(  # noqa: PLR0913 - one kernel, its branches known beforehand
    z,
    inv,
    lead,
    n,
    classes,
    stride,
    p,
    one,  # 1, where the compiler cannot see it: it fails on plain sums in loops
    POWER: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
    ROWS: tl.constexpr,  # noqa: N803
    UNIT: tl.constexpr,  # noqa: N803
):
    """Find 1 / length and the lead of rows; lead is inf where two classes are left."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    here, start = row < n, z + row * (stride * UNIT)
    width = classes * UNIT
    top, least, count = _ends(start, here, width, one, BLOCK, ROWS)
    # Sixteenths: the range itself may be beyond the largest number.
    spread = top / 16 - least / 16
    tiny = spread < 1e-30
    scale = tl.where(tiny, 1.2676506002282294e30, 1.0)
    spread = tl.where(tiny, (top * scale - least * scale) / 16, spread)
    unit = 1.0 / tl.where(spread > 0, spread, 1.0)
    rows = start, here, width, top * scale / 16, scale / 16, unit
    mean = unit * 0
    total = _total(rows, mean, mean + 1, p, one, -1, BLOCK)
    mean = total / tl.maximum(count, 1.0)
    most = tl.maximum(tl.maximum(mean, 1.0 - mean), 0.5)
    power = _total(rows, mean, most, p, one, POWER, BLOCK)
    normed = tl.exp(-tl.log(tl.maximum(power, 1.0)) / p) / most
    two = count == 2.0
    tl.store(lead + row, tl.where(two, float("inf"), mean * normed), mask=here)
    # Logits were divided by 16 and moved by scale: so is their length.
    inverse = tl.minimum(normed * unit * scale / 16, 3e38)
    tl.store(inv + row, tl.where(two, 1.0, inverse), mask=here)


@triton.jit
def _loaded(start, here, first, width, BLOCK: tl.constexpr):  # noqa: N803
    """Load a block of classes of some rows, -inf beyond the last."""
    columns = first + tl.arange(0, BLOCK)
    inside = here[:, None] & (columns < width)[None, :]
    at = start[:, None] + columns[None, :]
    return tl.load(at, mask=inside, other=float("-inf")).to(tl.float32)


@triton.jit
def _ends(start, here, width, one, BLOCK: tl.constexpr, ROWS: tl.constexpr):  # noqa: N803, PLR0913
    """Find the largest and the least logit above -inf, and how many there are."""
    top = tl.full([ROWS], float("-inf"), tl.float32)
    least = tl.full([ROWS], float("inf"), tl.float32)
    count = tl.zeros([ROWS], tl.float32)
    for first in range(0, width, BLOCK):
        x = _loaded(start, here, first, width, BLOCK)
        there = x > float("-inf")
        high, low = tl.max(x, 1), tl.min(tl.where(there, x, float("inf")), 1)
        top = tl.where(high > top, high, top)
        least = tl.where(low < least, low, least)
        count = count * one + tl.sum(there.to(tl.float32), 1)
    return top, least, count


@triton.jit
def _total(rows, mean, most, p, one, POWER: tl.constexpr, BLOCK: tl.constexpr):  # noqa: N803, PLR0913
    """Sum over rows how far logits are below the top, or |that - mean|^p.

    Both are in units of the range. POWER is -1 for the first.
    """
    start, here, width, top, scale, unit = rows
    total = unit * 0
    for first in range(0, width, BLOCK):
        x = _loaded(start, here, first, width, BLOCK)
        y = (top[:, None] - x * scale[:, None]) * unit[:, None]
        if POWER >= 0:
            y = _raised((mean[:, None] - y) / most[:, None], p, POWER)
        total = total * one + tl.sum(tl.where(x > float("-inf"), y, 0.0), 1)
    return total


@triton.jit
def _score_rows(  # noqa: PLR0913, C901 - one kernel, its branches known beforehand
    z,
    out,
    inv,
    lead,
    n,
    classes,
    stride,
    inv_t,
    temperature,
    KIND: tl.constexpr,  # noqa: N803
    NORMED: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
    ROWS: tl.constexpr,  # noqa: N803
    UNIT: tl.constexpr,  # noqa: N803
):
    lowest = float("-inf")
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    here = row < n
    columns = tl.arange(0, BLOCK)
    if NORMED:
        inv_t = inv_t * tl.load(inv + row, mask=here, other=1.0)
    else:
        inv_t = tl.full([ROWS], 1.0, tl.float32) * inv_t
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
        v = (others - offset[:, None]) * scale[:, None]
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
        if KIND == 2 or KIND == 7:
            inner = whole / (1.0 + a)
        if KIND == 3:
            y = 1.0 + a
            d = y - 1.0
            phi = tl.where(d == 0.0, 1.0, tl.log(y) / tl.where(d == 0.0, 1.0, d))
            # The gap may be near the largest number, or beyond it.
            gap = tl.where(u2 > lowest, -u2, 0.0)
            more = tl.log(phi + (gap - f / whole) / y)
        result = u2 + (tl.log(inner) + more)
        if KIND == 7:
            ahead = tl.load(lead + row, mask=here, other=0.0)
            result = tl.where(ahead < float("inf"), -ahead, result)
        result = tl.where(certain, lowest, result)
    fine = (top > lowest) & (top < float("inf")) & (s == s)
    tl.store(out + row, tl.where(fine, result, float("nan")), mask=here)
