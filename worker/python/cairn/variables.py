"""Variables and embedding tables on the servers."""
from __future__ import annotations

import ctypes
import threading
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Sequence, Tuple, Union

import numpy as np

from cairn import _arrays, _checks
from cairn._arrays import Array
from cairn._library import ITEM_MEMORY, check, fail, lib, pack_item, pack_memory, parked
from cairn.errors import InvalidArgumentError

if TYPE_CHECKING:
    from cairn.client import Client

_WHOLE, _ROWS, _KEYS, _REPEATED_KEYS = 0, 1, 2, 3
FORMATS = {"plain": 0, "float16": 1, "bfloat16": 2, "int8": 3, "top_k": 4}
# A packed item, and what it points to, which must outlive the call.
Prepared = Tuple[bytes, Tuple[Any, ...]]
# An item's part and ids, the shape of the values, and their shape in the item.
_Selection = Tuple[int, Optional[Array], Tuple[int, ...], Tuple[int, ...]]
_MOST_SHAPES = 64  # kept for later calls
# Names of this module are found faster than attributes.
_addressof = ctypes.addressof
_bytes_of: Any = (ctypes.c_char * 0).from_buffer
_cairn_pull = lib.cairn_pull
_empty, _FLOAT32, _INT64 = np.empty, np.dtype(np.float32), np.dtype(np.int64)


def _format(name: Any) -> int:
    return FORMATS[_checks.choice(name, "format", list(FORMATS))]


class Stored:
    """The base of `Variable` and `Embedding`. Made by Client.variable, Client.embedding and
    Client.variables.

    Thread safety: every method may be called from several threads at once."""

    def __init__(self, client: Client, description: Dict[str, Any]) -> None:
        self._client = client
        self._description = description
        self._name: str = description["name"]
        self._encoded = self._name.encode()
        self._name_buffer = ctypes.create_string_buffer(self._encoded)
        self._name_address = ctypes.addressof(self._name_buffer)
        self._shapes: Dict[Tuple[int, ...], Any] = {}
        self._dtype: str = description.get("dtype", "float32")
        self._code, self._numpy = _arrays.DTYPES[self._dtype]

    @property
    def name(self) -> str:
        """The variable's name within the job."""
        return self._name

    @property
    def client(self) -> Client:
        """The client through which this object was made."""
        return self._client

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type. bfloat16 values are torch.bfloat16 tensors, or their bits, uint16."""
        return self._numpy

    @property
    def description(self) -> Dict[str, Any]:
        """A copy of the description, with the keys of a job file: `admit_after_pushes`,
        `expire_after_seconds` and `row_storage` are `admit_after`, `expire_after` and `storage` of
        Client.embedding."""
        return dict(self._description)

    def _item(self, part: int, ids: Optional[Array], data: Array, slot: Optional[str],
              wire: str, kept_fraction: float = 0.0, residual: Optional[Array] = None) -> Prepared:
        shape = self._shapes.get(data.shape)
        if shape is None:
            if len(self._shapes) >= _MOST_SHAPES:
                self._shapes = {}
            shape = (ctypes.c_int64 * data.ndim)(*data.shape)
            self._shapes[data.shape] = shape
        slot_buffer = (None if slot is None else
                       ctypes.create_string_buffer(_checks.text(slot, "slot").encode()))
        item = pack_item(
            self._name_address, 0 if slot_buffer is None else ctypes.addressof(slot_buffer),
            0 if ids is None else _arrays.address(ids), 0 if ids is None else ids.size,
            _arrays.address(data), ctypes.addressof(shape), data.ndim, self._code, part,
            _format(wire), kept_fraction, 0 if residual is None else _arrays.address(residual),
            0 if residual is None else residual.size, 0, 0)
        return item, (ids, data, shape, slot_buffer, residual)

    def _select(self, ids: Any) -> _Selection:
        """Returns what rows or keys select."""
        raise NotImplementedError

    def _prepare_pull(self, ids: Any, out: Any, slot: Optional[str],
                      wire: str) -> Tuple[Prepared, Array]:
        part, rows, shape, flat = self._select(ids)
        data = (np.empty(shape, self._numpy) if out is None else
                _arrays.as_out(out, self._dtype, shape))
        return self._item(part, rows, data if data.shape == flat else data.reshape(flat), slot,
                          wire), data

    def _prepare_push(self, ids: Any, values: Any, slot: Optional[str], wire: str,
                      what: str) -> Prepared:
        part, rows, shape, flat = self._select(ids)
        data = _arrays.as_values(values, self._dtype, shape, what)
        return self._item(part, rows, data if data.shape == flat else data.reshape(flat), slot,
                          wire)

    def _pull(self, ids: Any, out: Any, slot: Optional[str], wire: str,
              timeout: Optional[float]) -> Array:
        prepared, result = self._prepare_pull(ids, out, slot, wire)
        check(lib.cairn_pull(self._client.handle, prepared[0], 1, _checks.seconds(timeout)))
        return result

    def _push(self, ids: Any, gradients: Any, position: Union[bytes, str], wire: str,
              timeout: Optional[float]) -> None:
        prepared = self._prepare_push(ids, gradients, None, wire, "gradients")
        stored = _checks.position(position)
        check(lib.cairn_push(self._client.handle, prepared[0], 1, stored, len(stored),
                             _checks.seconds(timeout)))

    def _assign(self, ids: Any, values: Any, slot: Optional[str],
                timeout: Optional[float]) -> None:
        prepared = self._prepare_push(ids, values, slot, "plain", "values")
        check(lib.cairn_assign(self._client.handle, prepared[0], 1, _checks.seconds(timeout)))

    # Without these, Python would iterate by __getitem__, over keys without end.
    __iter__ = None
    __contains__ = None

    def __reduce__(self) -> Any:
        raise TypeError(f"{type(self).__name__} '{self._name}' belongs to a connection and cannot "
                        "be pickled: connect in each process and create it there again")


class Variable(Stored):
    """A dense variable. Rows run along axis 0."""

    def __init__(self, client: Client, description: Dict[str, Any]) -> None:
        super().__init__(client, description)
        self._shape: Tuple[int, ...] = tuple(description["shape"])
        # What pushes of the whole variable in compact formats have rounded off or left out. The
        # lock is held while a call uses it.
        self._residual: Optional[Array] = None
        self._residual_lock = threading.Lock()

    @property
    def shape(self) -> Tuple[int, ...]:
        """The shape of the whole variable."""
        return self._shape

    def _select(self, ids: Any) -> _Selection:
        if ids is None:
            return _WHOLE, None, self._shape, self._shape
        rows = _arrays.as_keys(ids, "rows")
        return _ROWS, rows, rows.shape + self._shape[1:], (rows.size, *self._shape[1:])

    def pull(self, out: Any = None, *, rows: Any = None, slot: Optional[str] = None,
             format: str = "plain",
             timeout: Optional[float] = None) -> Array:
        """Pulls the current values.

        Args:
            out: contiguous, writable memory of the result's shape and the variable's dtype: a numpy
                array, or an array with `__dlpack__` of a library whose arrays may change (not JAX,
                pyarrow or TensorFlow). None: a new array.
            rows: row numbers along axis 0, of any shape, repeats allowed. None: every row.
            slot: an optimizer slot by its Keras name ("momentum"). None: the value.
            format: how values are sent: "plain", or rounded as "float16", "bfloat16" or "int8".
            timeout: seconds; None: the client's own.

        Returns:
            An array of shape `shape`, or rows.shape + shape[1:]. With `out`, a numpy view of it."""
        return self._pull(rows, out, slot, format, timeout)

    def _push_compact(self, gradients: Any, position: Union[bytes, str], wire: str,
                      kept_fraction: float, timeout: Optional[float]) -> None:
        data = _arrays.as_values(gradients, self._dtype, self._shape, "gradients")
        stored = _checks.position(position)
        with self._residual_lock:
            if self._residual is None and self._numpy == _FLOAT32:
                self._residual = np.zeros(self._shape, np.float32)
            item, _kept = self._item(_WHOLE, None, data, None, wire, kept_fraction, self._residual)
            check(lib.cairn_push(self._client.handle, item, 1, stored, len(stored),
                                 _checks.seconds(timeout)))

    def push(self, gradients: Any, *, rows: Any = None, position: Union[bytes, str] = b"",
             format: str = "plain", kept_fraction: float = 0.01,
             timeout: Optional[float] = None) -> None:
        """Applies a gradient with the variable's optimizer.

        What a compact format rounds off or leaves out of a gradient of the whole variable is kept,
        one float32 per value, and added to the next one that this object pushes in such a format.

        Args:
            gradients: of shape `shape`, or rows.shape + shape[1:], and the variable's dtype.
            rows: row numbers along axis 0; the gradients of repeated rows are summed. None: every
                row.
            position: at most 512 bytes, stored with a worker's push (Client.position).
            format: how gradients are sent: as for `pull`, or "top_k", the largest values of a
                gradient of the whole variable.
            kept_fraction: for "top_k", the fraction of values that are sent, above 0.
            timeout: seconds; None: the client's own.

        After UnavailableError, DeadlineExceededError or an interruption, see Client.push: close
        the client, connect again, and resume at `Client.position`."""
        fraction = _checks.number(kept_fraction, "kept_fraction", high=1, above=0)
        if rows is not None or _format(format) == FORMATS["plain"]:
            self._push(rows, gradients, position, format, timeout)
        else:
            self._push_compact(gradients, position, format, fraction, timeout)

    def assign(self, values: Any, *, rows: Any = None, slot: Optional[str] = None,
               timeout: Optional[float] = None) -> None:
        """Overwrites the value, or an optimizer slot. `rows` must not repeat."""
        self._assign(rows, values, slot, timeout)

    def __getitem__(self, rows: Any) -> Array:
        """variable[...] pulls every row, variable[rows] the given rows; rows may be a slice."""
        if rows is None or isinstance(rows, tuple):
            raise _checks.mistyped("rows", rows, "row numbers in a list or an array, as in "
                                   "variable[[1, 2]], or one slice; index the result for more")
        if isinstance(rows, slice) and self._shape:
            try:
                rows = np.arange(*rows.indices(self._shape[0]))
            except (TypeError, ValueError) as error:
                raise _checks.mistyped("rows", rows, f"a slice of integers: {error}") from None
        return self.pull(rows=None if rows is Ellipsis else rows)

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> Array:
        """numpy.asarray(variable) pulls every row."""
        if copy is False:
            raise InvalidArgumentError("copy is False; expected None or True: a pull makes a copy")
        return self.pull().astype(self._numpy if dtype is None else dtype, copy=False)

    def __repr__(self) -> str:
        return f"<cairn.Variable '{self._name}' {list(self._shape)} {self._dtype}>"


class Embedding(Stored):
    """An embedding table: one row of `dim` float32 values for each 64-bit key. A key gets its
    row when it is first pushed."""

    def __init__(self, client: Client, description: Dict[str, Any]) -> None:
        super().__init__(client, description)
        self._dim: int = description["dim"]
        self._part = _KEYS
        # By the shape of keys: the result's shape, an item before and after ITEM_MEMORY, and what
        # it points to.
        self._usual: Dict[Tuple[int, ...], Tuple[Tuple[int, int], bytes, bytes, Any]] = {}

    @property
    def dim(self) -> int:
        """The number of values in a row."""
        return self._dim

    @property
    def combines_repeats(self) -> bool:
        """Whether calls of this object send each distinct key once, and sum the gradients of
        repeated keys before they are sent. Set it to True if many keys of a call repeat."""
        return self._part == _REPEATED_KEYS

    @combines_repeats.setter
    def combines_repeats(self, combines: bool) -> None:
        """Sets it for later calls."""
        self._part = _REPEATED_KEYS if _checks.flag(combines, "combines_repeats") else _KEYS
        self._usual = {}

    def _select(self, ids: Any) -> _Selection:
        keys = _arrays.as_keys(ids)
        return self._part, keys, (*keys.shape, self._dim), (keys.size, self._dim)

    def pull(self, keys: Any, out: Any = None, *, slot: Optional[str] = None,
             format: str = "plain",
             timeout: Optional[float] = None) -> Array:
        """Pulls rows by key. A key without a row gives its initial value and stores nothing.

        Args:
            keys: integers of any shape, repeats allowed.
            out: memory for the result, as for Variable.pull. None: a new array.
            slot: an optimizer slot by its Keras name. None: the value.
            format: how values are sent, as for Variable.pull.
            timeout: seconds; None: the client's own.

        Returns:
            An array of shape keys.shape + (dim,), float32."""
        is_usual = (out is None and slot is None and format.__class__ is str and
                    format == "plain" and type(keys) is np.ndarray)
        if not is_usual or keys.ndim != 1:
            return self._pull(keys, out, slot, format, timeout)
        # The usual call takes the items of an earlier one: half of the work.
        usual = self._usual.get(keys.shape)
        if usual is None or keys.dtype is not _INT64 or not keys.flags.carray:
            return self._pull_unusual(keys, timeout)
        data: Array = _empty(usual[0], _FLOAT32)
        memory = pack_memory(_addressof(_bytes_of(keys)), usual[0][0], _addressof(_bytes_of(data)))
        code = _cairn_pull(self._client._handle or self._client.handle,
                           usual[1] + memory + usual[2], 1,
                           0.0 if timeout is None else _checks.seconds(timeout))
        if code or parked:
            fail(code)
        return data

    def _pull_unusual(self, keys: Array, timeout: Optional[float]) -> Array:
        (item, kept), data = self._prepare_pull(keys, None, None, "plain")
        check(lib.cairn_pull(self._client.handle, item, 1, _checks.seconds(timeout)))
        if data.size:
            if len(self._usual) >= _MOST_SHAPES:
                self._usual = {}
            self._usual[keys.shape] = (
                (len(keys), self._dim), item[:ITEM_MEMORY.start], item[ITEM_MEMORY.stop:], kept[2])
        return data

    def push(self, keys: Any, gradients: Any, *, position: Union[bytes, str] = b"",
             format: str = "plain",
             timeout: Optional[float] = None) -> None:
        """Applies gradients with the table's optimizer.

        Args:
            keys: integers of any shape. The gradients of repeated keys are summed.
            gradients: of shape keys.shape + (dim,), float32.
            position: at most 512 bytes, stored with a worker's push (Client.position).
            format: how gradients are sent: "plain", "float16", "bfloat16" or "int8".
            timeout: seconds; None: the client's own.

        After UnavailableError, DeadlineExceededError or an interruption, see Client.push: close
        the client, connect again, and resume at `Client.position`."""
        self._push(keys, gradients, position, format, timeout)

    def assign(self, keys: Any, values: Any, *, slot: Optional[str] = None,
               timeout: Optional[float] = None) -> None:
        """Overwrites rows, or an optimizer slot of them. `keys` must not repeat."""
        self._assign(keys, values, slot, timeout)

    def scan(self, timeout: Optional[float] = None) -> Tuple[Array, Array]:
        """Reads every stored row.

        Returns:
            (keys, values): keys [n] int64 and values [n, dim] float32, in no particular order.

        Raises:
            AbortedError: rows moved between servers meanwhile; call it again."""
        scan = ctypes.c_void_p()
        try:
            check(lib.cairn_scan_table(self._client.handle, self._encoded,
                                       _checks.seconds(timeout), ctypes.byref(scan)))
            rows, dim = ctypes.c_uint64(), ctypes.c_int64()
            keys, values = ctypes.c_void_p(), ctypes.c_void_p()
            check(lib.cairn_scan_rows(scan, ctypes.byref(rows), ctypes.byref(dim),
                                      ctypes.byref(keys), ctypes.byref(values)))
            count = rows.value
            found = np.empty(count, np.int64)
            read = np.empty((count, self._dim), np.float32)
            if count:
                ctypes.memmove(_arrays.address(found), keys.value or 0, found.nbytes)
                ctypes.memmove(_arrays.address(read), values.value or 0, read.nbytes)
            return found, read
        finally:
            lib.cairn_scan_free(scan)

    def __getitem__(self, keys: Any) -> Array:
        """Pulls the rows of `keys`."""
        if isinstance(keys, slice) or keys is Ellipsis:
            raise _checks.mistyped("keys", keys, "integers in a list or an array, as in "
                                   "table[[3, 5]]; table.scan() reads every stored row")
        return self.pull(keys)

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> Array:
        """Fails: a table has rows by key, and no order."""
        raise _checks.mistyped("table", self, "an array: read table[keys], or the keys and values "
                               "of table.scan()")

    def __repr__(self) -> str:
        return f"<cairn.Embedding '{self._name}' dim {self._dim}>"


# One part of a call over several variables: the variable alone (all of it), (variable, rows) or
# (table, keys) for pulls; (variable, gradient) or (variable or table, rows or keys, gradients).
Pull = Union[Stored, Tuple[Any, ...]]
Push = Tuple[Any, ...]


_PULL = ("a variable, (variable, rows), (table, keys), or either with memory for the result as a "
         "third element")
_PUSH = "(variable, gradient), (variable, rows, gradients) or (table, keys, gradients)"


def _check_client(client: Client, stored: Stored, what: str) -> None:
    if stored.client is not client:
        raise InvalidArgumentError(f"{what}: {stored!r} belongs to another client, "
                                   f"{stored.client!r}; expected one of {client!r}")


def prepare_pulls(client: Client, pulls: Sequence[Pull]) -> Tuple[bytes, List[Prepared],
                                                                  List[Array]]:
    """Returns the array of items, the objects that it points to, and the results."""
    prepared: List[Prepared] = []
    results: List[Array] = []
    for i, pull in enumerate(_checks.items(pulls, "pulls", "a list of " + _PULL)):
        parts = pull if isinstance(pull, tuple) else (pull,)
        if not 1 <= len(parts) <= 3 or not isinstance(parts[0], Stored):
            raise _checks.mistyped(f"pulls[{i}]", pull, _PULL)
        _check_client(client, parts[0], f"pulls[{i}]")
        ids = parts[1] if len(parts) > 1 else None
        if ids is None and isinstance(parts[0], Embedding):
            raise InvalidArgumentError(f"pulls[{i}]: {parts[0]!r} needs keys: (table, keys)")
        out = parts[2] if len(parts) > 2 else None

        item, result = parts[0]._prepare_pull(ids, out, None, "plain")
        prepared.append(item)
        results.append(result)
    return b"".join([p[0] for p in prepared]), prepared, results


def prepare_pushes(client: Client, pushes: Sequence[Push]) -> Tuple[bytes, List[Prepared]]:
    """Returns the array of items, and the objects that it points to."""
    prepared: List[Prepared] = []
    for i, push in enumerate(_checks.items(pushes, "pushes", "a list of " + _PUSH)):
        valid = (isinstance(push, tuple) and len(push) in (2, 3) and isinstance(push[0], Stored) and
                 (len(push) == 3 or isinstance(push[0], Variable)))
        if not valid:
            raise _checks.mistyped(f"pushes[{i}]", push, _PUSH)
        _check_client(client, push[0], f"pushes[{i}]")
        ids = push[1] if len(push) == 3 else None

        prepared.append(push[0]._prepare_push(ids, push[-1], None, "plain",
                                               f"pushes[{i}]"))
    return b"".join([p[0] for p in prepared]), prepared


__all__ = ["Embedding", "Pull", "Push", "Stored", "Variable"]
