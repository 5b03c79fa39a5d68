"""The row reductions that every score stands on.

One formula per score, written over `Reductions`, serves numpy, torch (differentiable,
on any device) and every other array library of the array API. For numpy the common
scores also exist in C (`_native`); both are tested against mpmath.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache, cached_property
from numbers import Real
from typing import Any

import numpy as np
from array_api_compat import array_namespace, is_numpy_array, is_torch_array
from numpy.typing import NDArray

from trustdoctor.arrays import shown_number, to_numpy
from trustdoctor.errors import InputError, RowError
from trustdoctor.kernels import _native
from trustdoctor.kernels.lengths import normalise
from trustdoctor.kernels.threads import map_threads

_NUMPY_CHUNK = 1 << 18  # elements; fewer would leave threads waiting for each other


_FEW_CLASSES = 128  # up to here numpy is faster along rows than along classes


_NATIVE_CHUNK = 1 << 20  # elements handed to a thread at a time


Formula = Callable[["Reductions"], Any]


class Reductions:
    """The reductions of logits z (..., C), computed when first asked for.

    With m = argmax z (or the class `predicted`, which the doubt is then about), z2 the
    largest other logit and e_j = exp((z_j - z2) / T) for j != m:

        u2 = (z2 - z_m) / T      s  = sum e_j       a = exp(u2) s    = exp(B)
        s2 = sum e_j^2           f  = sum e_j log(e_j)
                                                    q = exp(2 u2) s2 = exp(B2)

    where B = log((1 - p_m) / p_m). The offset z2 keeps a row with a gap of 1000
    from underflowing. A row whose other logits are all -inf is fully certain:
    u2 = -inf there, s = 1, and no gradient flows. A gap beyond the largest number
    counts as infinite, too. With `p` the p-norm of the centred row is taken out first,
    and the temperature divides what is left; `lead` is how far the top is then above
    the mean, and `classes` are those that are not at -inf.
    """

    def __init__(
        self,
        logits: Any,
        temperature: float,
        predicted: Any = None,
        p: float | None = None,
    ) -> None:
        self.xp = xp = array_namespace(logits)
        self.lead: Any = None
        self.classes: Any = None
        if p is not None:
            logits, self.lead, self.classes = normalise(logits, p)
        self.logits = logits
        self.temperature = temperature
        self.judged = xp.argmax(logits, axis=-1) if predicted is None else predicted
        self.top, offset, self.log_e = self._shift()
        self.e = xp.exp(self.log_e)
        total = xp.sum(self.e, axis=-1)
        self.certain = total == 0
        self.s = xp.where(self.certain, 1.0, total)
        gap = (offset - self.top) / temperature
        self.u2 = xp.where(self.certain, -math.inf, gap)
        self._exp_u2 = xp.exp(self.u2)
        self.a = self._exp_u2 * self.s

    def _shift(self) -> tuple[Any, Any, Any]:
        """Return the top logit, the offset and log(e), which is -inf at the top."""
        xp, logits = self.xp, self.logits
        # A sum over the one kept entry: at a tie, max would split its gradient.
        top = xp.sum(xp.where(self.others, 0.0, logits), axis=-1)
        masked = xp.where(self.others, logits, -math.inf)
        second = _constant(xp.max(masked, axis=-1))
        offset = xp.where(second == -math.inf, _constant(top), second)
        shifted = (logits - offset[..., None]) / self.temperature
        return top, offset, xp.where(self.others, shifted, -math.inf)

    @cached_property
    def others(self) -> Any:
        """Which entries are not the judged class's."""
        classes = self.xp.arange(self.logits.shape[-1], **_same_device(self.logits))
        return classes != self.judged[..., None]

    @cached_property
    def s2(self) -> Any:
        """Sum of e_j^2."""
        return self.xp.sum(self.e * self.e, axis=-1)

    @cached_property
    def f(self) -> Any:
        """Sum of e_j log(e_j)."""
        finite = self.xp.where(self.e > 0, self.log_e, 0.0)
        return self.xp.sum(self.e * finite, axis=-1)

    @property
    def q(self) -> Any:
        """exp(B2)."""
        return self._exp_u2 * self._exp_u2 * self.s2

    @property
    def exp_b2_minus_b(self) -> Any:
        """exp(B2 - B)."""
        return self._exp_u2 * (self.s2 / self.s)


class _ChunkReductions(Reductions):
    """The same of a chunk (n, C) of a numpy array, with one copy of it.

    Few classes are stored one after another, so that sums over them run along rows.
    """

    def _shift(self) -> tuple[Any, Any, Any]:
        at = np.arange(len(self.logits)), self.judged
        top = self.logits[at]
        few = self.logits.shape[1] <= _FEW_CLASSES
        log_e = self.logits.copy(order="F" if few else "C")
        log_e[at] = -math.inf
        second = log_e.max(-1)
        offset = np.where(second == -math.inf, top, second)
        log_e -= offset[:, None]
        if self.temperature != 1:
            log_e /= self.temperature
        return top, offset, log_e


def score_rows(  # noqa: PLR0913 - options, by keyword only
    logits: Any,
    formula: Formula,
    *,
    temperature: float,
    native: str | None = None,
    predicted: Any = None,
    p: float | None = None,
) -> Any:
    """Apply `formula` to every row of `logits` (..., C).

    `native` names the C form of the same formula. `predicted` (...) names the class
    that each row's doubt is about, where that is not the largest logit's. With `p`,
    rows are centred and their p-norms taken out first. A row's result does not depend
    on the batch that it came in.
    """
    check_temperature(temperature)
    if not _is_foreign(logits):
        array = to_numpy(logits)
        scores = _score_numpy(array, formula, temperature, native, p)
        if predicted is not None:
            _score_as(scores, array, to_numpy(predicted), formula, temperature, p)
        return scores
    _check_logits(logits)
    if native is not None and predicted is None and getattr(logits, "is_cuda", False):
        fused = _fused()
        if fused is not None and fused.can_score(logits):
            return fused.score(logits, native, temperature=float(temperature), p=p)
    xp = array_namespace(logits)
    if logits.dtype.itemsize < 4:
        logits = xp.astype(logits, xp.float32)
    rows = Reductions(logits, float(temperature), predicted, p)
    # Elsewhere than in numpy a check would make a device wait: bad rows get NaN,
    # which every gate and metric refuses.
    fine = xp.isfinite(xp.max(logits, axis=-1))
    return xp.where(fine, formula(rows), math.nan)


@cache
def _fused() -> Any:
    """Return the CUDA kernels, None where Triton is not there or cannot be used."""
    try:
        from trustdoctor.kernels import fused
    except (ImportError, RuntimeError):
        return None
    return fused


def _score_as(  # noqa: PLR0913 - what a score is made of
    scores: NDArray[Any],
    logits: NDArray[Any],
    predicted: NDArray[Any],
    formula: Formula,
    temperature: float,
    p: float | None,
) -> None:
    """Score again, in place, the rows whose doubt is about another class."""
    other = logits.argmax(-1) != predicted
    if other.any():
        wide = logits[other].astype(np.float64)
        with np.errstate(all="ignore"):
            rows = Reductions(wide, float(temperature), predicted[other], p)
            scores[other] = formula(rows)


def argmax(logits: NDArray[Any]) -> NDArray[np.int64]:
    """Return the first largest entry of each row (n, C)."""
    if not (_native.available and logits.dtype in (np.float32, np.float64)):
        return logits.argmax(1)
    out = np.empty(len(logits), np.int64)
    _native.argmax(np.ascontiguousarray(logits), out)
    return out


def score_kinds(
    logits: NDArray[Any],
    kinds: Sequence[str],
    *,
    temperature: float,
    p: float | None = None,
) -> NDArray[Any]:
    """Score rows (n, C) by several native formulas at once, (kinds, n).

    The sum over a row is taken once for all, and each score is the very number that
    the score alone gives. With `p`, lengths are taken out first.
    """
    check_temperature(temperature)
    _check_logits(logits)
    return _score_chunks(
        logits,
        len(kinds),
        lambda chunk, out: _native.score(
            chunk, kinds, temperature=temperature, out=out, p=p or 0.0
        ),
        _NATIVE_CHUNK,
    )


def _score_numpy(
    logits: NDArray[Any],
    formula: Formula,
    temperature: float,
    native: str | None,
    p: float | None,
) -> NDArray[Any]:
    _check_logits(logits)
    rows = logits.reshape(-1, logits.shape[-1])
    if native is not None and _native.available:
        scores = score_kinds(rows, [native], temperature=temperature, p=p)[0]
        return scores.reshape(logits.shape[:-1])

    def score_chunk(chunk: NDArray[Any], out: NDArray[Any]) -> int:
        n = len(chunk)
        # One row alone numpy would add up in another order than one of many.
        chunk = np.repeat(chunk, 2, axis=0) if n == 1 else chunk
        if p is not None:  # a mean that is rounded shows in every class
            chunk = chunk.astype(np.float64)
        with np.errstate(all="ignore"):
            reductions = _ChunkReductions(chunk, float(temperature), p=p)
            out[0] = formula(reductions)[:n]
        wrong = ~np.isfinite(reductions.top)  # NaN, +inf and all -inf all show here
        return int(wrong.argmax()) if wrong.any() else -1

    scores = _score_chunks(rows, 1, score_chunk, _NUMPY_CHUNK)[0]
    return scores.reshape(logits.shape[:-1])


def _score_chunks(
    rows: NDArray[Any],
    kinds: int,
    score_chunk: Callable[[NDArray[Any], NDArray[Any]], int],
    size: int,
) -> NDArray[Any]:
    """Score in chunks, side by side; refuse rows that no score is for."""
    wide = rows.dtype if rows.dtype in (np.float32, np.float64) else None
    dtype = wide or (np.float32 if rows.dtype == np.float16 else np.float64)
    out = np.empty((kinds, len(rows)), dtype)

    def score_part(part: slice) -> int:
        chunk = np.ascontiguousarray(rows[part], dtype)
        own = out[:, part]
        scores = own if own.flags.c_contiguous else np.empty(own.shape, dtype)
        bad = score_chunk(chunk, scores)
        if scores is not own:
            own[...] = scores
        return -1 if bad < 0 else part.start + bad

    parts = list(_chunks(len(rows), rows.shape[1], size))
    bad = [at for at in map_threads(score_part, parts) if at >= 0]
    if bad:
        message = (
            "expected logits without NaN or +inf and with a finite largest entry, "
            "got otherwise at row {row}. Fix or remove that row."
        )
        raise RowError(message, bad[0])
    return out


def _chunks(rows: int, classes: int, elements: int) -> Iterator[slice]:
    step = max(1, elements // classes)
    for start in range(0, max(rows, 1), step):
        yield slice(start, min(start + step, rows))


def _is_foreign(logits: Any) -> bool:
    if isinstance(logits, (list, tuple, float, int)) or is_numpy_array(logits):
        return False
    return is_torch_array(logits) or hasattr(logits, "__array_namespace__")


def _check_logits(logits: Any) -> None:
    kind = str(logits.dtype)
    number = kind.removeprefix("torch.").startswith(("float", "bfloat", "int", "uint"))
    if logits.ndim < 1 or logits.shape[-1] < 2 or not number:
        message = (
            f"expected logits of shape (n, C) with C >= 2, got {kind} of shape "
            f"{tuple(logits.shape)}. Give one column per class."
        )
        raise InputError(message)


def check_temperature(temperature: float) -> None:
    """Refuse what cannot divide logits."""
    if not (isinstance(temperature, Real) and 1e-20 < temperature < 1e20):
        message = (
            "expected a temperature above 0 (1e-20 to 1e20), got "
            f"{shown_number(temperature)}. 1 leaves the logits as they are."
        )
        raise InputError(message)


def _constant(array: Any) -> Any:
    return array.detach() if hasattr(array, "detach") else array


def _same_device(array: Any) -> dict[str, Any]:
    return {"device": array.device} if is_torch_array(array) else {}
