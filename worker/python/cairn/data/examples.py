"""Parses tf.train.Example, the message that TFRecord files usually hold, into arrays.

The wire format is that of https://protobuf.dev/programming-guides/encoding. The message is
    Example {Features features = 1}, Features {map<string, Feature> feature = 1},
    Feature {BytesList bytes_list = 1 | FloatList float_list = 2 | Int64List int64_list = 3},
where each list is `repeated value = 1`."""
from __future__ import annotations

import struct
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Sequence, Tuple, Union

import numpy as np

from cairn import _checks
from cairn._arrays import Array
from cairn.errors import DataLossError, InvalidArgumentError

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_BYTES_LIST, _FLOAT_LIST, _INT64_LIST = 1, 2, 3
_LONGEST_VARINT_BITS = 70
_EXPECTED_RECORDS = "a list of bytes, one serialized tf.train.Example each"
_Field = Tuple[int, int, Union[int, bytes]]  # number, wire type, value


class Ragged(NamedTuple):
    """One feature of n examples. Example i has the values values[offsets[i]:offsets[i + 1]].

    Attributes:
        offsets: [n + 1] int64.
        values: int64, float32, or bytes objects (dtype object)."""

    offsets: Array
    values: Array

    def dense(self) -> Array:
        """Returns the values as an array [n, width].

        Raises:
            InvalidArgumentError: the examples have different numbers of values."""
        widths = np.diff(self.offsets)
        if widths.size and not (widths == widths[0]).all():
            raise InvalidArgumentError(
                f"examples have {widths.min()} to {widths.max()} values; dense() needs one width, "
                "use offsets and values")
        return self.values.reshape(len(widths), int(widths[0]) if widths.size else 0)


def _varint(data: bytes, at: int) -> Tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift >= _LONGEST_VARINT_BITS:
            raise DataLossError("a number has more than 10 bytes")


def _fields(data: bytes) -> Iterator[_Field]:
    at, size = 0, len(data)
    while at < size:
        tag, at = _varint(data, at)
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            value, at = _varint(data, at)
            yield number, kind, value
            continue
        if kind == _LENGTH:
            length, at = _varint(data, at)
        elif kind in (_FIXED64, _FIXED32):
            length = 8 if kind == _FIXED64 else 4
        else:
            raise DataLossError(f"a field has the unknown wire type {kind}")
        if at + length > size:
            raise DataLossError(f"ends {at + length - size} bytes too early")
        yield number, kind, data[at:at + length]
        at += length


def _int64(number: int) -> int:
    number &= (1 << 64) - 1
    return number - (1 << 64) if number >> 63 else number


def _int64_list(data: bytes) -> List[int]:
    values: List[int] = []
    for number, _, value in _fields(data):
        if number != 1:
            continue
        if isinstance(value, int):
            values.append(_int64(value))
            continue
        at = 0
        while at < len(value):
            item, at = _varint(value, at)
            values.append(_int64(item))
    return values


def _float_list(data: bytes) -> List[float]:
    values: List[float] = []
    for number, _, value in _fields(data):
        if number == 1 and isinstance(value, bytes):
            values.extend(struct.unpack(f"<{len(value) // 4}f", value))
    return values


def _bytes_list(data: bytes) -> List[bytes]:
    return [v for number, _, v in _fields(data) if number == 1 and isinstance(v, bytes)]


_LISTS: Dict[int, Tuple[Callable[[bytes], List[Any]], Any]] = {
    _BYTES_LIST: (_bytes_list, object), _FLOAT_LIST: (_float_list, np.float32),
    _INT64_LIST: (_int64_list, np.int64)}


def _parts(data: bytes, number: int) -> Iterator[bytes]:
    return (v for n, _, v in _fields(data) if n == number and isinstance(v, bytes))


def _features(record: bytes) -> Dict[str, Tuple[int, List[Any]]]:
    """Returns the kind and the values of each feature."""
    features: Dict[str, Tuple[int, List[Any]]] = {}
    for entry in (e for part in _parts(record, 1) for e in _parts(part, 1)):
        name, feature = b"", b""
        for number, _, value in _fields(entry):
            if isinstance(value, bytes) and number in (1, 2):
                name, feature = (value, feature) if number == 1 else (name, value)
        for kind, _, value in _fields(feature):
            if kind in _LISTS and isinstance(value, bytes):
                features[name.decode(errors="replace")] = kind, _LISTS[kind][0](value)
    return features


def parse_examples(records: Sequence[bytes]) -> Dict[str, Ragged]:
    """Parses serialized tf.train.Example messages.

    Args:
        records: the serialized messages.

    Returns:
        Every feature by name. An example without a feature has no values of it.

    Raises:
        DataLossError: a record is not an Example.
        InvalidArgumentError: a feature has different types in different examples."""
    parsed: List[Dict[str, Tuple[int, List[Any]]]] = []
    for index, record in enumerate(_checks.items(records, "records", _EXPECTED_RECORDS)):
        if not isinstance(record, bytes):
            raise _checks.mistyped(f"records[{index}]", record, _EXPECTED_RECORDS)
        try:
            parsed.append(_features(record))
        except (DataLossError, IndexError, struct.error) as error:
            raise DataLossError(f"record {index} of {len(record)} bytes is no tf.train.Example: "
                                f"{error}") from error
    kinds: Dict[str, int] = {}
    for index, example in enumerate(parsed):
        for name, (kind, _) in example.items():
            if kinds.setdefault(name, kind) != kind:
                raise InvalidArgumentError(
                    f"record {index}: feature '{name}' has another type than before it")
    result = {}
    for name, kind in kinds.items():
        lists = [example[name][1] if name in example else [] for example in parsed]
        offsets = np.cumsum([0, *map(len, lists)], dtype=np.int64)
        values: Array = np.empty(int(offsets[-1]), _LISTS[kind][1])
        values[:] = [value for values_of_one in lists for value in values_of_one]
        result[name] = Ragged(offsets, values)
    return result


__all__ = ["Ragged", "parse_examples"]
