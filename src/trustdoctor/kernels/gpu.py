"""Scores of CUDA tensors in one pass over the logits, by a Triton kernel.

The kernel keeps, over blocks of classes, the two largest logits and the sums of the
others relative to the second, and merges blocks as it goes. With (t, z, s) the top, the
second and the sum of exp((z_j - z) / T) over all but the top, two blocks become

    t = max(t1, t2),  z = max(z1, z2, min(t1, t2)),
    s = s1 exp((z1 - z) / T) + s2 exp((z2 - z) / T) + exp((min(t1, t2) - z) / T),

where nothing cancels. Where rows are to be divided by their p-norms, another kernel
finds these first, as lengths_body.h does. `rows.py` calls both if Triton is installed
and no gradient is needed; everything else takes the common formulas. Times on an H200
are in docs/scale.md.
"""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

KINDS = ("beta", "alpha", "msp", "entropy", "margin", "max_logit", "energy", "pnorm")
_ELEMENTS = 2048  # logits that a warp holds at a time: the fastest size on an H200
_TYPES = (torch.float32, torch.float16, torch.bfloat16)


def can_score(logits: Tensor) -> bool:
    """Tell whether the kernel takes these logits: floats on CUDA, and no gradient."""
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

    With `p`, centred rows are divided by their p-norms first.
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
    inv_length, lead = (out.new_empty(len(rows) if p else 0) for _ in range(2))
    # One warp takes whole rows, so that no sum has to cross warps.
    block = min(triton.next_power_of_2(classes), _ELEMENTS)
    rows_each = _ELEMENTS // block
    # The alignment of every row's start, in logits. Passed as a constant, it tells the
    # compiler that it may load 16 bytes at once.
    unit = math.gcd(stride, classes, rows.storage_offset() or 16, 16)
    shape = {"BLOCK": block, "ROWS": rows_each, "UNIT": unit, "num_warps": 1}
    grid = (triton.cdiv(len(rows), rows_each),)
    with torch.cuda.device(rows.device):
        if p:
            integer_power = int(p) if p in (1, 2, 3, 4, 5, 6) else 0
            sizes = len(rows), classes // unit, stride // unit
            _lengths[grid](
                rows,
                inv_length,
                lead,
                *sizes,
                float(p),
                1.0,
                POWER=integer_power,
                **shape,
            )
        _score_rows[grid](
            rows,
            out,
            inv_length,
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
    """exp(shift / T); 0 for -inf and for -inf - (-inf), which is NaN."""
    return tl.where(shift > float("-inf"), tl.exp(shift * inv_t), 0.0)


@triton.jit
def _power(u, p, POWER: tl.constexpr):  # noqa: N803
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
def _lengths(  # noqa: PLR0913 - one kernel
    z,
    inv,
    lead,
    n,
    classes,
    stride,
    p,
    runtime_one,  # 1, unknown to the compiler, which fails on plain sums in loops
    POWER: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
    ROWS: tl.constexpr,  # noqa: N803
    UNIT: tl.constexpr,  # noqa: N803
):
    """Find 1 / p-norm and the lead of rows; lead is inf for rows of two classes."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside, start = row < n, z + row * (stride * UNIT)
    width = classes * UNIT
    top, lowest, count = _extremes(start, inside, width, runtime_one, BLOCK, ROWS)
    # Divided by 16: the range itself may overflow.
    spread = top / 16 - lowest / 16
    tiny = spread < 1e-30
    scale = tl.where(tiny, 1.2676506002282294e30, 1.0)
    spread = tl.where(tiny, (top * scale - lowest * scale) / 16, spread)
    unit = 1.0 / tl.where(spread > 0, spread, 1.0)
    rows = start, inside, width, top * scale / 16, scale / 16, unit
    mean = unit * 0
    total = _sum_rows(rows, mean, mean + 1, p, runtime_one, -1, BLOCK)
    mean = total / tl.maximum(count, 1.0)
    largest_share = tl.maximum(tl.maximum(mean, 1.0 - mean), 0.5)
    power = _sum_rows(rows, mean, largest_share, p, runtime_one, POWER, BLOCK)
    normed = tl.exp(-tl.log(tl.maximum(power, 1.0)) / p) / largest_share
    two_classes = count == 2.0
    tl.store(
        lead + row, tl.where(two_classes, float("inf"), mean * normed), mask=inside
    )
    # Logits were multiplied by scale / 16, and so is their norm.
    inverse = tl.minimum(normed * unit * scale / 16, 3e38)
    tl.store(inv + row, tl.where(two_classes, 1.0, inverse), mask=inside)


@triton.jit
def _load_block(start, row_inside, first, width, BLOCK: tl.constexpr):  # noqa: N803
    """Load a block of classes of some rows, -inf beyond the last."""
    columns = first + tl.arange(0, BLOCK)
    inside = row_inside[:, None] & (columns < width)[None, :]
    addresses = start[:, None] + columns[None, :]
    return tl.load(addresses, mask=inside, other=float("-inf")).to(tl.float32)


@triton.jit
def _extremes(  # noqa: PLR0913 - as _lengths
    start,
    inside,
    width,
    runtime_one,
    BLOCK: tl.constexpr,  # noqa: N803
    ROWS: tl.constexpr,  # noqa: N803
):
    """Find the largest and the least logit above -inf, and how many there are."""
    top = tl.full([ROWS], float("-inf"), tl.float32)
    lowest = tl.full([ROWS], float("inf"), tl.float32)
    count = tl.zeros([ROWS], tl.float32)
    for first in range(0, width, BLOCK):
        x = _load_block(start, inside, first, width, BLOCK)
        finite = x > float("-inf")
        high, low = tl.max(x, 1), tl.min(tl.where(finite, x, float("inf")), 1)
        top = tl.where(high > top, high, top)
        lowest = tl.where(low < lowest, low, lowest)
        count = count * runtime_one + tl.sum(finite.to(tl.float32), 1)
    return top, lowest, count


@triton.jit
def _sum_rows(  # noqa: PLR0913 - as _lengths
    rows,
    mean,
    largest_share,
    p,
    runtime_one,
    POWER: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
):
    """Sum the distances y of logits from the top, or |y - mean|^p, over each row.

    Both are in units of the range. POWER is -1 for the first.
    """
    start, inside, width, top, scale, unit = rows
    total = unit * 0
    for first in range(0, width, BLOCK):
        x = _load_block(start, inside, first, width, BLOCK)
        y = (top[:, None] - x * scale[:, None]) * unit[:, None]
        if POWER >= 0:
            y = _power((mean[:, None] - y) / largest_share[:, None], p, POWER)
        total = total * runtime_one + tl.sum(tl.where(x > float("-inf"), y, 0.0), 1)
    return total


@triton.jit
def _score_rows(  # noqa: PLR0913, C901 - one kernel
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
    row_inside = row < n
    columns = tl.arange(0, BLOCK)
    if NORMED:
        inv_t = inv_t * tl.load(inv + row, mask=row_inside, other=1.0)
    else:
        inv_t = tl.full([ROWS], 1.0, tl.float32) * inv_t
    scale = inv_t * 1.4426950408889634  # exp(v) = exp2(v / log 2), one instruction
    top = tl.full([ROWS], lowest, tl.float32)
    second = tl.full([ROWS], lowest, tl.float32)
    s = tl.zeros([ROWS], tl.float32)
    s2 = tl.zeros([ROWS], tl.float32)
    f = tl.zeros([ROWS], tl.float32)
    for first in range(0, classes * UNIT, BLOCK):
        inside = row_inside[:, None] & (first + columns < classes * UNIT)[None, :]
        addresses = z + row[:, None] * (stride * UNIT) + (first + columns)[None, :]
        logits = tl.load(addresses, mask=inside, other=lowest).to(tl.float32)
        block_top = tl.max(logits, 1)
        is_top = logits == block_top[:, None]
        below_top = tl.where(is_top, lowest, logits)
        # All but one of several equal tops belong to the others, with e = 1 each.
        tied = tl.sum(is_top.to(tl.float32), 1) - 1.0
        tied = tl.where(block_top > lowest, tied, 0.0)
        block_second = tl.where(tied > 0, block_top, tl.max(below_top, 1))
        offset = tl.where(block_second > lowest, block_second, 0.0)
        v = (below_top - offset[:, None]) * scale[:, None]
        e = tl.exp2(v)  # NaN stays NaN, up to the check at the end
        block_s = tl.sum(e, 1) + tied
        block_s2 = tl.sum(e * e, 1) + tied
        lower_top = tl.minimum(top, block_top)
        new_second = tl.maximum(lower_top, tl.maximum(second, block_second))
        weight_old = _weight(second - new_second, inv_t)
        weight_block = _weight(block_second - new_second, inv_t)
        weight_top = _weight(lower_top - new_second, inv_t)
        if KIND == 3:
            block_f = tl.sum(tl.where(e > 0, e * v, 0.0), 1) * 0.6931471805599453
            da = tl.where(weight_old > 0, (second - new_second) * inv_t, 0.0)
            db = tl.where(weight_block > 0, (block_second - new_second) * inv_t, 0.0)
            dc = tl.where(weight_top > 0, (lower_top - new_second) * inv_t, 0.0)
            f = (
                weight_old * (f + da * s)
                + weight_block * (block_f + db * block_s)
                + weight_top * dc
            )
        s = weight_old * s + weight_block * block_s + weight_top
        s2 = (
            weight_old * weight_old * s2
            + weight_block * weight_block * block_s2
            + weight_top * weight_top
        )
        top = tl.maximum(top, block_top)
        second = new_second
    certain = second == lowest
    u2 = (tl.where(certain, top, second) - top) * inv_t
    e2 = tl.exp(u2)
    total = tl.where(certain, 1.0, s)
    a = tl.where(certain, 0.0, e2 * s)
    if KIND == 5:
        result = -top * inv_t
    elif KIND == 4:
        result = tl.where(certain, lowest, u2)
    elif KIND == 6:
        result = -(top + temperature * tl.log(1.0 + a))
    else:
        inner = total
        entropy_term = tl.zeros([ROWS], tl.float32)
        if KIND == 1:
            inner = total * (2.0 + a - e2 * (s2 / total)) / (1.0 + e2 * e2 * s2)
        if KIND == 2 or KIND == 7:
            inner = total / (1.0 + a)
        if KIND == 3:
            y = 1.0 + a
            d = y - 1.0
            phi = tl.where(d == 0.0, 1.0, tl.log(y) / tl.where(d == 0.0, 1.0, d))
            # The gap may overflow.
            gap = tl.where(u2 > lowest, -u2, 0.0)
            entropy_term = tl.log(phi + (gap - f / total) / y)
        result = u2 + (tl.log(inner) + entropy_term)
        if KIND == 7:
            row_lead = tl.load(lead + row, mask=row_inside, other=0.0)
            result = tl.where(row_lead < float("inf"), -row_lead, result)
        result = tl.where(certain, lowest, result)
    valid = (top > lowest) & (top < float("inf")) & (s == s)
    tl.store(out + row, tl.where(valid, result, float("nan")), mask=row_inside)
