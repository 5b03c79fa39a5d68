"""The reductions of rows of logits from which every score is computed.

One formula per score, written over `Reductions`, serves numpy, torch (differentiable,
on any device) and every other library of the array API. For numpy the common scores
also exist in C (`_native`); both are tested against mpmath. `normalise` divides rows by
the p-norm of their centred logits (Cattelan and Silva, UAI 2024).
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
from trustdoctor.kernels.threads import map_threads

# Elements that a thread scores at a time: small enough for its cache, large enough that
# starting costs nothing. numpy makes copies of a chunk and C does not.
_NUMPY_CHUNK = 1 << 18
_NATIVE_CHUNK = 1 << 20

_FEW_CLASSES = 128  # up to here numpy sums faster down columns than along rows


Formula = Callable[["Reductions"], Any]


class Reductions:
    """The reductions of logits z (..., C), computed when first needed.

    With m = argmax z (or the class `predicted`, which the doubt is then about), z2 the
    largest other logit and e_j = exp((z_j - z2) / T) for j != m:

        u2 = (z2 - z_m) / T      s  = sum e_j       a = exp(u2) s    = exp(B)
        s2 = sum e_j^2           f  = sum e_j log(e_j)
                                                    q = exp(2 u2) s2 = exp(B2)

    where B = log((1 - p_m) / p_m). The offset is z2 and not the maximum, as in a
    log-sum-exp: s is then at least 1, and a row with a gap of 1000 does not underflow.
    A row whose other logits are all -inf is fully certain: u2 = -inf there, s = 1, and
    no gradient flows. A gap beyond the largest float counts as infinite, too. With `p`
    the centred row is divided by its p-norm first and by the temperature then; `lead`
    is how far the top logit lies above the mean, and `classes` is the number of logits
    above -inf.
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
        self.predicted = xp.argmax(logits, axis=-1) if predicted is None else predicted
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
        # Not max: at a tie, torch would split its gradient among the tied entries.
        top = xp.sum(xp.where(self.other_classes, 0.0, logits), axis=-1)
        masked = xp.where(self.other_classes, logits, -math.inf)
        second = _detached(xp.max(masked, axis=-1))
        offset = xp.where(second == -math.inf, _detached(top), second)
        shifted = (logits - offset[..., None]) / self.temperature
        return top, offset, xp.where(self.other_classes, shifted, -math.inf)

    @cached_property
    def other_classes(self) -> Any:
        """Mask (..., C) of the entries other than the predicted class's."""
        classes = self.xp.arange(self.logits.shape[-1], **_same_device(self.logits))
        return classes != self.predicted[..., None]

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
    """The same for a chunk (n, C) of a numpy array, with a single copy of it.

    Of few classes the copy is in column order, so that sums over classes add whole
    columns: numpy's loop over a short last axis costs more than the additions.
    """

    def _shift(self) -> tuple[Any, Any, Any]:
        predicted_entries = np.arange(len(self.logits)), self.predicted
        top = self.logits[predicted_entries]
        few_classes = self.logits.shape[1] <= _FEW_CLASSES
        log_e = self.logits.copy(order="F" if few_classes else "C")
        log_e[predicted_entries] = -math.inf
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

    `native` names the C kernel of the same formula. `predicted` (...) is the class that
    each row's doubt is about, where that is not the largest logit's. With `p`, rows are
    centred and divided by their p-norms first. The result for a row does not depend on
    the batch that it came in.
    """
    check_temperature(temperature)
    if not _is_foreign(logits):
        array = to_numpy(logits)
        scores = _score_numpy(array, formula, temperature, native, p)
        if predicted is not None:
            _score_decided(scores, array, to_numpy(predicted), formula, temperature, p)
        return scores
    _check_logits(logits)
    if native is not None and predicted is None and getattr(logits, "is_cuda", False):
        gpu = _gpu_kernels()
        if gpu is not None and gpu.can_score(logits):
            return gpu.score(logits, native, temperature=float(temperature), p=p)
    xp = array_namespace(logits)
    if logits.dtype.itemsize < 4:
        logits = xp.astype(logits, xp.float32)
    rows = Reductions(logits, float(temperature), predicted, p)
    # Raising an error here would make the host wait for the device. Invalid rows get
    # NaN instead, which every gate and metric refuses.
    valid = xp.isfinite(xp.max(logits, axis=-1))
    return xp.where(valid, formula(rows), math.nan)


@cache
def _gpu_kernels() -> Any:
    """Return the CUDA kernels; None if Triton is not installed or not usable."""
    try:
        from trustdoctor.kernels import gpu
    except (ImportError, RuntimeError):
        return None
    return gpu


def _score_decided(  # noqa: PLR0913 - the arguments of a score
    scores: NDArray[Any],
    logits: NDArray[Any],
    predicted: NDArray[Any],
    formula: Formula,
    temperature: float,
    p: float | None,
) -> None:
    """Score again, in place, the rows whose decision is not the largest logit's."""
    differs = logits.argmax(-1) != predicted
    if differs.any():
        logits64 = logits[differs].astype(np.float64)
        with np.errstate(all="ignore"):
            rows = Reductions(logits64, float(temperature), predicted[differs], p)
            scores[differs] = formula(rows)


def argmax(logits: NDArray[Any]) -> NDArray[np.int64]:
    """Return the index of the first largest entry of each row (n, C)."""
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

    The sums over a row are shared, and each score equals, to the bit, what that score
    alone gives. With `p`, rows are divided by their p-norms first.
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
        # numpy sums a single row in another order than one of many: two rows then.
        chunk = np.repeat(chunk, 2, axis=0) if n == 1 else chunk
        if p is not None:  # an error of the mean is an error of every centred logit
            chunk = chunk.astype(np.float64)
        with np.errstate(all="ignore"):
            reductions = _ChunkReductions(chunk, float(temperature), p=p)
            out[0] = formula(reductions)[:n]
        invalid = ~np.isfinite(reductions.top)  # after NaN, +inf, or nothing but -inf
        return int(invalid.argmax()) if invalid.any() else -1

    scores = _score_chunks(rows, 1, score_chunk, _NUMPY_CHUNK)[0]
    return scores.reshape(logits.shape[:-1])


def _score_chunks(
    rows: NDArray[Any],
    kinds: int,
    score_chunk: Callable[[NDArray[Any], NDArray[Any]], int],
    size: int,
) -> NDArray[Any]:
    """Score chunks of rows in threads; refuse rows that have no score."""
    kept_type = rows.dtype if rows.dtype in (np.float32, np.float64) else None
    dtype = kept_type or (np.float32 if rows.dtype == np.float16 else np.float64)
    out = np.empty((kinds, len(rows)), dtype)

    def score_slice(block: slice) -> int:
        chunk = np.ascontiguousarray(rows[block], dtype)
        target = out[:, block]
        scores = target if target.flags.c_contiguous else np.empty(target.shape, dtype)
        invalid = score_chunk(chunk, scores)
        if scores is not target:
            target[...] = scores
        return -1 if invalid < 0 else block.start + invalid

    blocks = list(_slices(len(rows), rows.shape[1], size))
    invalid = [row for row in map_threads(score_slice, blocks) if row >= 0]
    if invalid:
        message = (
            "expected logits that are finite or -inf, at least one of them finite, got "
            "NaN, +inf or nothing but -inf at row {row}. Fix or remove that row."
        )
        raise RowError(message, invalid[0])
    return out


def _slices(rows: int, classes: int, elements: int) -> Iterator[slice]:
    rows_each = max(1, elements // classes)
    for start in range(0, max(rows, 1), rows_each):
        yield slice(start, min(start + rows_each, rows))


def _is_foreign(logits: Any) -> bool:
    if isinstance(logits, (list, tuple, float, int)) or is_numpy_array(logits):
        return False
    return is_torch_array(logits) or hasattr(logits, "__array_namespace__")


def _check_logits(logits: Any) -> None:
    dtype = str(logits.dtype)
    numeric = dtype.removeprefix("torch.").startswith(
        ("float", "bfloat", "int", "uint")
    )
    if logits.ndim < 1 or logits.shape[-1] < 2 or not numeric:
        message = (
            f"expected logits of shape (n, C) with C >= 2, got {dtype} of shape "
            f"{tuple(logits.shape)}. Give one column per class."
        )
        raise InputError(message)


def check_temperature(temperature: float) -> None:
    """Refuse a temperature that logits cannot be divided by."""
    # Within these limits z / T overflows or underflows only where z itself is extreme.
    if not (isinstance(temperature, Real) and 1e-20 < temperature < 1e20):
        message = (
            "expected a temperature above 0 (1e-20 to 1e20), got "
            f"{shown_number(temperature)}. 1 leaves the logits as they are."
        )
        raise InputError(message)


def _detached(array: Any) -> Any:
    return array.detach() if hasattr(array, "detach") else array


def _same_device(array: Any) -> dict[str, Any]:
    return {"device": array.device} if is_torch_array(array) else {}


def normalise(logits: Any, p: float) -> tuple[Any, Any, Any]:
    r"""Return normalised rows, their leads, and their numbers of finite logits.

    Logits are divided by :math:`\|z - \bar z\|_p`, and the top one is moved to 0, so
    that gaps are exact. The lead is how far it was above the mean, in the same unit.
    Logits of -inf do not count as classes. Rows of two classes are not normalised:
    every one of them would become the same row.

    Examples
    --------
    >>> import numpy as np
    >>> logits, lead, _ = normalise(np.array([[5.0, 2.0, 2.0]]), 2.0)
    >>> logits.round(3), lead.round(3)
    (array([[ 0.   , -1.225, -1.225]]), array([0.816]))
    """
    xp = array_namespace(logits)
    finite = logits > -xp.inf
    zero = xp.zeros_like(logits)
    count = xp.sum(xp.where(finite, zero + 1, zero), axis=-1)
    top = xp.max(logits, axis=-1, keepdims=True)
    below = _below(xp, xp.where(finite, logits, top), top)
    mean = xp.sum(below, axis=-1) / count
    centred = xp.where(finite, below - mean[..., None], zero)
    scale, flat = _scale(xp, xp.abs(centred))
    total = xp.sum(_raise(xp, centred / scale[..., None], p), axis=-1)
    total = xp.where(flat, xp.ones_like(total), total)  # a root at 0 has no gradient
    length = scale * total ** (1 / p)
    scaled = xp.where((count == 2)[..., None], logits, below / length[..., None])
    return xp.where(finite, scaled, logits), -mean / length, count


def _raise(xp: Any, centred: Any, p: float) -> Any:
    """Return terms that add up to sum |centred|^p; products are faster than powers."""
    if p == 1:  # the sum above the mean equals the sum below it
        return 2 * xp.where(centred > 0, centred, xp.zeros_like(centred))
    sizes = xp.abs(centred)
    if p not in (2, 3, 4, 5, 6):
        return sizes**p
    out = sizes
    for _ in range(int(p) - 1):
        out = out * sizes
    return out


def _below(xp: Any, logits: Any, top: Any) -> Any:
    """Return logits relative to the top, scaled so that the lowest is -1."""
    # The difference of large numbers may overflow, or have a reciprocal that is flushed
    # to 0, so these are divided by 16; small ones are not, as that would make them
    # subnormal.
    large = xp.max(xp.abs(logits), axis=-1, keepdims=True) > 1
    below = xp.where(large, logits / 16 - top / 16, logits - top)
    scale, _ = _scale(xp, xp.abs(below))
    return below / scale[..., None]


def _scale(xp: Any, sizes: Any) -> tuple[Any, Any]:
    """Return the largest size of each row (1 instead of 0), and where it is 0."""
    largest = xp.max(sizes, axis=-1)
    flat = largest == 0
    return xp.where(flat, xp.ones_like(largest), largest), flat
