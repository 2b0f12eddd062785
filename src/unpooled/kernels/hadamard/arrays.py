"""Arrays that the transform reads and writes: their types, their layout in memory, and what is refused."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from unpooled.errors import UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray


def zeros(size: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Zeros that begin at a cache line: half of all 64-byte loads would touch two lines otherwise."""
    raw = np.zeros(size * dtype.itemsize + 64, dtype=np.uint8)
    skip = -raw.ctypes.data % 64
    return raw[skip : skip + size * dtype.itemsize].view(dtype)


def integer(value: object, name: str, least: int) -> int:
    """Return an integer that is at least ``least``; numpy's integers are welcome, floats and booleans are not."""
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None or isinstance(value, (bool, np.bool_)) or number < least:
        msg = f"{name} must be an integer of at least {least}"
        raise UsageError(msg)
    return number


def output(X: NDArray[Any], out: NDArray[Any] | None, shape: tuple[int, int], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the caller's array if it will do, or a new one."""
    if out is None:
        return np.empty(shape, dtype=dtype)
    if out.shape != shape or out.dtype != dtype or not (out.flags.carray and out.dtype.isnative):
        msg = f"out must be a writeable C-contiguous array of shape {shape} and type {dtype}"
        raise UsageError(msg)
    if np.may_share_memory(X, out):
        raise UsageError("out must not overlap X: rows of X would be overwritten before they are read")
    return out


def flat_rows(X: NDArray[Any]) -> tuple[NDArray[Any], int]:
    """Return the rows as one read-only vector and the distance between their beginnings; copied only if entries are not adjacent."""
    n, tau = X.shape
    item = X.itemsize
    fits = X.strides[1] == item and (n == 1 or (X.strides[0] >= 0 and X.strides[0] % item == 0))
    if not (fits and X.flags.aligned and X.dtype.isnative):
        X = np.array(X, dtype=X.dtype.newbyteorder("="), order="C", subok=False)
    stride = tau if n == 1 else X.strides[0] // item
    return as_strided(X, shape=((n - 1) * stride + tau,), strides=(item,), writeable=False), stride


def output_type(dtype: np.dtype[Any], bound: int | None, tau: int) -> np.dtype[Any]:
    """Float types stay; for integers the smallest allowed type that holds bound * tau, or a refusal."""
    if dtype.kind == "f" and dtype.itemsize in {4, 8}:
        if bound is not None:
            raise UsageError("bound is for integer input: leave it out for floats")
        return dtype.newbyteorder("=")
    if dtype.kind != "i":
        msg = f"X has type {dtype}: convert it to float32, float64 or a signed integer type first"
        raise UsageError(msg)
    bits = 8 * dtype.itemsize
    largest = 1 << (bits - 1)
    if bound is not None:
        largest = min(largest, integer(bound, "bound", 0))
    if largest * tau < 1 << 31 and bits <= 32:  # noqa: PLR2004
        return np.dtype(np.int32)
    if largest * tau < 1 << 63:
        return np.dtype(np.int64)
    msg = f"{tau} entries of up to {largest} may sum to 2^63 or more: state a bound of at most {((1 << 63) - 1) // tau}"
    raise UsageError(msg)
