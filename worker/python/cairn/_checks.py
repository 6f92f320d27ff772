"""Checks of arguments. A failed check raises InvalidArgumentError, whose text names the argument,
the value found and the allowed values. A value of the wrong type raises ArgumentTypeError, a
subclass that is also a TypeError."""
from __future__ import annotations

import json
import math
import numbers
import operator
import os
import re
import reprlib
from typing import Any, Dict, List, Mapping, Optional, Sequence, Union

import numpy as np

from cairn.errors import ArgumentTypeError, InvalidArgumentError

Description = Dict[str, Any]
PathLike = Union[str, "os.PathLike[str]"]
MOST_INT64 = 2**63 - 1
MOST_WORKERS = 1 << 20
MOST_SERVERS = 1024  # kMaxServers of thrift/limits.h
LONGEST_SECONDS = 1e9
LARGEST_FLOAT32 = 3.4028234663852886e38
_MOST_POSITION_BYTES = 512
_SECONDS = "seconds above 0 and at most 1e9, or None for the client's own timeout"


class Described:
    """The base of objects that describe something by a type and its arguments, as in job files."""

    def __init__(self, type_name: str, **arguments: Any) -> None:
        self._description: Description = {"type": type_name, **arguments}

    def describe(self) -> Description:
        """Returns the description, with the keys of a job file."""
        return dict(self._description)

    def __repr__(self) -> str:
        arguments = ", ".join(f"{k}={v!r}" for k, v in self._description.items() if k != "type")
        return f"{type(self).__module__}.{type(self).__name__}({arguments})"


def shown(value: Any) -> str:
    """Returns a short text for `value`. Never fails; reads only the beginning of long values."""
    if isinstance(value, np.ndarray) and value.ndim:
        return f"an array of shape {list(value.shape)}, {value.dtype}"
    try:
        text = reprlib.repr(value)
    except Exception:  # an integer with too many digits, or a class with a faulty __repr__
        return f"a {type(value).__name__}"
    return text if len(text) <= 80 else text[:77] + "..."


def unfit(what: str, value: Any, expected: str) -> InvalidArgumentError:
    """Returns the exception for a value that is not allowed."""
    return InvalidArgumentError(f"{what} is {shown(value)}; expected {expected}")


def mistyped(what: str, value: Any, expected: str) -> ArgumentTypeError:
    """Returns the exception for a value of the wrong type."""
    return ArgumentTypeError(
        f"{what} is {shown(value)} ({type(value).__name__}); expected {expected}")


def text(value: Any, what: str, expected: str = "a text that is not empty") -> str:
    """Returns a text that is not empty, valid UTF-8 and free of NUL."""
    if not isinstance(value, str):
        raise mistyped(what, value, expected)
    if not value:
        raise unfit(what, value, expected)
    if "\0" in value:
        raise unfit(what, value, f"{expected}, without NUL characters")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise unfit(what, value, f"{expected}, in characters that UTF-8 can encode") from None
    return value


def choice(value: Any, what: str, allowed: Sequence[str]) -> str:
    """Returns one of the allowed texts."""
    expected = "one of " + ", ".join(allowed)
    if not isinstance(value, str):
        raise mistyped(what, value, expected)
    if value not in allowed:
        raise unfit(what, value, expected)
    return value


def flag(value: Any, what: str) -> bool:
    """Returns True or False."""
    if not isinstance(value, (bool, np.bool_)):
        raise mistyped(what, value, "True or False")
    return bool(value)


def integer(value: Any, what: str, low: int, high: int = MOST_INT64, expected: str = "") -> int:
    """Returns an integer from `low` to `high`. Accepts numpy's integers; refuses bool and float."""
    expected = expected or (f"an integer of at least {low}" if high == MOST_INT64 else
                            f"an integer from {low} to {high}")
    if isinstance(value, (bool, np.bool_)):
        raise mistyped(what, value, expected)
    try:
        found = operator.index(value)
    except TypeError:
        raise mistyped(what, value, expected) from None
    if not low <= found <= high:
        raise unfit(what, value, expected)
    return found


def number(value: Any, what: str, low: float = -math.inf, high: float = math.inf, *,
           above: float = -math.inf, expected: str = "") -> float:
    """Returns a finite number from `low` to `high` and above `above`. Refuses bool."""
    if not expected:
        expected = "a finite number"
        if above != -math.inf:
            expected = f"a number above {above:g}" + (
                "" if high == math.inf else f", at most {high:g}")
        elif low != -math.inf:
            expected = (f"a number of at least {low:g}" if high == math.inf else
                        f"a number from {low:g} to {high:g}")
        elif high != math.inf:
            expected = f"a number of at most {high:g}"
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise mistyped(what, value, expected)
    try:
        found = float(value)
    except OverflowError:
        raise unfit(what, value, expected) from None
    if not math.isfinite(found) or not low <= found <= high or not found > above:
        raise unfit(what, value, expected)
    return found


def seconds(timeout: Optional[float]) -> float:
    """Returns the timeout of a call as the library takes it: 0 means the client's own."""
    if timeout is None:
        return 0.0
    return number(timeout, "timeout", high=LONGEST_SECONDS, above=0, expected=_SECONDS)


def position(value: Any) -> bytes:
    """Returns a position to store with a push."""
    expected = f"a text or bytes of at most {_MOST_POSITION_BYTES} bytes"
    if isinstance(value, str):
        try:
            found = value.encode()
        except UnicodeEncodeError:
            raise unfit("position", value, "a text that UTF-8 can encode, or bytes") from None
    elif isinstance(value, bytes):
        found = value
    else:
        raise mistyped("position", value, expected)
    if len(found) > _MOST_POSITION_BYTES:
        raise InvalidArgumentError(f"position has {len(found)} bytes; expected {expected}")
    return found


def path(value: Any, what: str, expected: str = "a path that is not empty") -> str:
    """Returns a path as a text."""
    found = value
    if isinstance(value, os.PathLike):
        try:
            found = os.fspath(value)
        except TypeError:
            raise mistyped(what, value, expected) from None
    return text(found, what, expected)


def items(value: Any, what: str, expected: str) -> List[Any]:
    """Returns the items of a list or of another iterable that is no text and no mapping."""
    if isinstance(value, (str, bytes, Mapping)):
        raise mistyped(what, value, expected)
    try:
        return list(value)
    except TypeError:
        raise mistyped(what, value, expected) from None


def mapping(value: Any, what: str, expected: str = "a dictionary") -> Dict[str, Any]:
    """Returns a dictionary that JSON can express. Numbers of numpy become Python's."""
    if not isinstance(value, Mapping):
        raise mistyped(what, value, expected)
    try:
        plain = json.dumps(dict(value), allow_nan=False, default=_plain)
    except (TypeError, ValueError, RecursionError) as error:
        raise ArgumentTypeError(f"{what} is {shown(value)}: {error}; expected {expected} of texts, "
                                "finite numbers, True, False, None and lists") from None
    found: Dict[str, Any] = json.loads(plain)
    return found


# An escape of JSON: a character beyond U+FFFF as its two surrogates, or another one.
_ESCAPE = re.compile(r"\\(?:u(d[89ab]..)\\u(d[c-f]..)|.)")


def as_json(value: Any) -> bytes:
    """Returns what the library reads as YAML, where JSON's pairs of surrogates are no character."""
    def of_pair(escape: re.Match[str]) -> str:
        if escape[1] is None:
            return escape[0]
        high, low = int(escape[1], 16) - 0xd800, int(escape[2], 16) - 0xdc00
        return f"\\U{0x10000 + high * 0x400 + low:08x}"
    return _ESCAPE.sub(of_pair, json.dumps(value)).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, (np.integer, np.floating, np.bool_)):
        return value.item()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(f"a {type(value).__name__} has no place in it")


__all__ = [
    "LARGEST_FLOAT32", "LONGEST_SECONDS", "MOST_INT64", "MOST_SERVERS", "MOST_WORKERS",
    "Described", "Description", "PathLike", "as_json", "choice", "flag", "integer", "items",
    "mapping", "mistyped", "number", "path", "position", "seconds", "shown", "text", "unfit",
]
