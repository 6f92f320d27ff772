"""Views of callers' arrays (numpy arrays and anything with `__dlpack__`) without copies."""
from __future__ import annotations

import ctypes
import operator
import sys
from typing import Any, Dict, Optional, Sequence, Tuple

import numpy as np

from cairn import _checks
from cairn.errors import DTypeError, InvalidArgumentError

Array = np.ndarray[Any, np.dtype[Any]]

# enum cairn_dtype. bfloat16 has no numpy type: its bits are uint16.
DTYPES: Dict[str, Tuple[int, np.dtype[Any]]] = {
    "float32": (1, np.dtype(np.float32)),
    "float64": (2, np.dtype(np.float64)),
    "float16": (3, np.dtype(np.float16)),
    "bfloat16": (4, np.dtype(np.uint16)),
    "int32": (5, np.dtype(np.int32)),
    "int64": (6, np.dtype(np.int64)),
}
_INT64 = np.dtype(np.int64)
_ANY_SIZE = ctypes.c_char * 0
_DLPACK_CPU = (1, 3)  # kDLCPU, kDLCUDAHost
# Packages whose arrays must never change. DLPack did not say so before its version 1.0.
_IMMUTABLE = {"jax", "jaxlib", "pyarrow", "tensorflow"}


def dtype_name(dtype: Any) -> str:
    """Returns "float32" for np.float32, torch.float32 or "float32"."""
    name = dtype
    if not isinstance(dtype, str):
        try:
            # numpy takes None for float64.
            name = "None" if dtype is None else np.dtype(dtype).name
        except (TypeError, ValueError):
            name = _checks.shown(dtype).rsplit(".", 1)[-1]
    if name not in DTYPES:
        raise DTypeError(f"dtype is {str(name)[:60]}; expected one of {', '.join(DTYPES)}")
    return str(name)


def _is_bfloat16(value: Any) -> bool:
    return str(getattr(value, "dtype", "")) == "torch.bfloat16"


def view(value: Any, what: str) -> Tuple[Optional[Array], bool]:
    """Returns `value` as an array over the same memory, and whether it may be written. Returns
    None as the array if `value` is no array (a number, a list). DTypeError: memory of another
    device."""
    if isinstance(value, np.ndarray):
        return value, value.flags.writeable
    if hasattr(value, "__dlpack__"):
        if isinstance(value, type):
            raise _checks.mistyped(what, value, "an array")
        try:
            device = int(value.__dlpack_device__()[0])
        except Exception as error:  # of the array's library
            raise DTypeError(f"{what} cannot be viewed through DLPack: {error}") from error
        if device not in _DLPACK_CPU:
            raise DTypeError(f"{what} is in the memory of another device (DLPack type {device}); "
                             "move it to this host's first, as in tensor.cpu()")
        if getattr(value, "requires_grad", False):
            value = value.detach()
        try:
            if _is_bfloat16(value):  # numpy has no such type
                bits: Array = np.from_dlpack(value.view(sys.modules["torch"].int16))
                return bits.view(np.uint16), True
            return np.from_dlpack(value), type(value).__module__.split(".")[0] not in _IMMUTABLE
        except Exception as error:
            raise DTypeError(f"{what} cannot be viewed through DLPack: {error}") from error
    return None, False


def address(array: Array) -> int:
    """Returns the address of a contiguous array's memory."""
    buffer: Any = array
    try:  # a fifth of the time that __array_interface__ takes
        return ctypes.addressof(_ANY_SIZE.from_buffer(buffer))
    except (TypeError, ValueError):  # read-only memory
        pointer: int = array.__array_interface__["data"][0]
        return pointer


def as_keys(keys: Any, what: str = "keys") -> Array:
    """Returns contiguous int64 keys in the shape of `keys`. Copies only integers of other types."""
    array, _ = view(keys, what)
    if array is None:
        array = _converted(keys, what, "integers")
        if array.size == 0:
            array = array.astype(np.int64)
        elif array.dtype.kind == "f":
            array = _bits_of_integers(keys, array)
    if array.dtype is not _INT64 and array.dtype != _INT64:
        if array.dtype.kind == "O":
            raise _checks.mistyped(what, keys, "integers of at most 64 bits")
        is_bfloat16 = array.dtype == np.uint16 and _is_bfloat16(keys)  # viewed as its bits
        if is_bfloat16 or array.dtype.kind not in "iu":
            raise DTypeError(f"{what} are {'bfloat16' if is_bfloat16 else array.dtype}; expected "
                             "integers of at most 64 bits")
        # Keys of 64 bits without a sign keep their bits.
        array = array.astype(np.int64)
    return _row_major(array)


def _bits_of_integers(values: Any, array: Array) -> Array:
    """Returns `array`, which numpy has made of the list `values`; or the 64 bits of integers, for
    which numpy takes float64 where some are negative and others at least 2^63."""
    try:
        integers = [operator.index(one) for one in np.asarray(values, object).ravel()]
    except TypeError:
        return array
    return np.array([one % 2**64 for one in integers], np.uint64).reshape(array.shape)


def _row_major(array: Array) -> Array:
    """Returns the array, or a copy if it is not contiguous and aligned, as the library reads it."""
    if array.flags.c_contiguous and array.flags.aligned:
        return array
    return np.require(array, requirements=["C", "A"])


def _converted(value: Any, what: str, expected: str) -> Array:
    """Returns an array of numbers and lists, in the dtype that numpy chooses."""
    try:
        return np.asarray(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise DTypeError(
            f"{what} is {_checks.shown(value)}: {error}; expected {expected}") from None


def _exactly(value: Any, wanted: np.dtype[Any], dtype: str, what: str) -> Array:
    """Converts numbers and lists. Refuses values that the dtype cannot hold; rounds real numbers to
    the precision of a floating-point dtype."""
    array = _converted(value, what, f"values of {dtype}")
    is_float = wanted.kind == "f"
    if array.size and array.dtype.kind not in ("iuf" if is_float else "iu"):
        raise _checks.mistyped(what, value, f"values of {dtype}")
    with np.errstate(all="ignore"):
        found = array.astype(wanted)
        is_changed = (np.isfinite(found) != np.isfinite(array)) if is_float else found != array
    if np.any(is_changed):
        raise _checks.unfit(what, value, f"values that {dtype} can hold")
    return found


def as_values(values: Any, dtype: str, shape: Sequence[int], what: str) -> Array:
    """Returns contiguous values to read, of exactly this dtype and shape. Converts numbers and
    lists; refuses arrays of another dtype instead of rounding them."""
    wanted = DTYPES[dtype][1]
    array, _ = view(values, what)
    if array is None:
        if dtype == "bfloat16":
            raise DTypeError(f"{what} is {_checks.shown(values)}; bfloat16 takes a torch.bfloat16 "
                             "tensor, or its bits as a numpy.uint16 array")
        array = _exactly(values, wanted, dtype, what)
    if array.dtype != wanted:
        expected = ("a torch.bfloat16 tensor, or its bits as a numpy.uint16 array"
                    if dtype == "bfloat16" else
                    f"an array of numpy.{wanted.name}, or a tensor of that type")
        raise DTypeError(f"{what}: dtype is {array.dtype}; the variable has {dtype}: give "
                         f"{expected}")
    if array.shape != tuple(shape):
        raise InvalidArgumentError(
            f"{what}: shape is {list(array.shape)}; expected {list(shape)}")
    return _row_major(array)


def as_out(out: Any, dtype: str, shape: Sequence[int]) -> Array:
    """Returns memory to write: contiguous, writable, of exactly this dtype and shape; never a
    copy."""
    wanted = DTYPES[dtype][1]
    array, writable = view(out, "out")
    if array is None:
        raise DTypeError(f"out is a {type(out).__name__}; expected an array of {dtype}")
    if array.dtype != wanted:
        raise DTypeError(f"out: dtype is {array.dtype}; the variable has {dtype}")
    if array.shape != tuple(shape):
        raise InvalidArgumentError(f"out: shape is {list(array.shape)}; expected {list(shape)}")
    if not (array.flags.c_contiguous and array.flags.aligned):
        raise InvalidArgumentError("out is not contiguous or not aligned; expected a row-major "
                                   "array, as from numpy.empty")
    if not writable:
        raise InvalidArgumentError("out is read-only; expected an array that may be written")
    return array
