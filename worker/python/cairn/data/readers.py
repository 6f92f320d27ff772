"""Batches of rows, which Cairn's readers read and parse in a separate thread."""
from __future__ import annotations

import ctypes
import os
from typing import Any, Dict, Iterator, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np

from cairn import _checks
from cairn._arrays import Array
from cairn._library import RawBatch, check, deliver_signals, lib
from cairn.data._open_reader import OpenReader
from cairn.data.positions import (
    Pair,
    Path,
    check_amounts,
    check_files,
    check_pairs,
    check_share,
    read_position,
    write_position,
)

# The model that a format is for, where none is given: it says how labels and keys read.
_MODELS: Dict[str, Dict[str, Any]] = {
    "libsvm": {"type": "linear"}, "csv": {"type": "linear"},
    "criteo_tsv": {"type": "dlrm"}, "criteo_csv": {"type": "dlrm"},
    "idx": {"type": "mlp", "classes": 10}, "movielens": {"type": "matrix_factorization"},
}


class Sparse(NamedTuple):
    """Rows in CSR form: row r has entries offsets[r] to offsets[r + 1] - 1.

    Attributes:
        offsets: [rows + 1] int64.
        columns: [entries] int32, counted from 0.
        values: [entries] float32."""

    offsets: Array
    columns: Array
    values: Array


class Batch(NamedTuple):
    """Rows of input. A part that the format does not have is None.

    Attributes:
        labels: [rows] float32.
        sparse: the sparse columns.
        dense: [rows, columns] float32.
        keys: [rows, columns] int64.
        position: pass it to `read` to continue after this batch."""

    labels: Array
    sparse: Optional[Sparse]
    dense: Optional[Array]
    keys: Optional[Array]
    position: bytes

    def __len__(self) -> int:
        return len(self.labels)


def _copy(pointer: Optional[int], dtype: Any, *shape: int) -> Array:
    array: Array = np.empty(shape, dtype)
    if array.size:
        ctypes.memmove(array.ctypes.data, pointer or 0, array.nbytes)
    return array


class Reader(OpenReader, Iterator[Batch]):
    """An iterator over batches, made by `cairn.data.read`. A context manager. Ctrl-C ends a wait
    for a batch; the next call continues. Several threads may read it, one after the other."""

    def __init__(self, job: Dict[str, Any], evaluate: bool, worker: int, workers: int,
                 start: Tuple[int, int]) -> None:
        deliver_signals()
        super().__init__("cairn.data.read", lib.cairn_close_reader)
        handle = ctypes.c_void_p()
        code = lib.cairn_open_reader(_checks.as_json(job), os.fsencode(os.getcwd()), int(evaluate),
                                     worker, workers, *start, ctypes.byref(handle))
        self._handle = handle.value
        check(code)

    def __next__(self) -> Batch:
        with self._reading() as handle:
            raw = RawBatch()
            check(lib.cairn_read_batch(handle, ctypes.byref(raw)))
            rows = raw.rows
            if rows == 0:
                raise StopIteration
            sparse = None
            if raw.row_offsets:
                offsets = _copy(raw.row_offsets, np.int64, rows + 1)
                entries = int(offsets[-1])
                sparse = Sparse(offsets, _copy(raw.columns, np.int32, entries),
                                _copy(raw.values, np.float32, entries))
            return Batch(
                _copy(raw.labels, np.float32, rows), sparse,
                _copy(raw.dense, np.float32, rows, raw.dense_columns) if raw.dense else None,
                _copy(raw.keys, np.int64, rows, raw.key_columns) if raw.keys else None,
                write_position(raw.epoch, raw.next_row))


def read(files: Union[Path, Pair, Sequence[Union[Path, Pair]]], file_format: str, *,
         batch_size: int = 128, epochs: int = 1, evaluate: bool = False, worker: int = 0,
         workers: int = 1, position: Union[bytes, str] = b"",
         model: Optional[Dict[str, Any]] = None, **data: Any) -> Reader:
    """Opens input files as an iterator of batches.

    Args:
        files: a path or glob, or a list of them, relative to the working directory; files may be
            gzipped. For idx, pairs of files: {"images": "a.gz", "labels": "b.gz"}.
        file_format: libsvm (needs features=N), csv, criteo_tsv, criteo_csv, idx or movielens.
        batch_size: rows in a batch.
        epochs: how often the files are read, at least once.
        evaluate: read once, in order, without shuffling; `epochs` must be 1.
        worker: the index of this reader.
        workers: the number of readers, which share the rows.
        position: the position of a batch, after which to continue.
        model: the section `model` of a job file, which decides how labels and keys are read. None:
            that of a usual model for the format.
        data: further keys of the section `data`, for example shuffle={"buffer_rows": 10000}.

    Raises:
        InvalidArgumentError: a row is malformed; the text names file, line and column."""
    if model is None:
        _checks.choice(file_format, "file_format", list(_MODELS))
    size, passes = check_amounts(batch_size, epochs)
    section: Dict[str, Any] = {"format": _checks.text(file_format, "file_format"),
                               "batch_size": size, **_checks.mapping(data, "data")}
    in_order = _checks.flag(evaluate, "evaluate")
    given: Any = files
    section["eval" if in_order else "train"] = (
        check_pairs(given) if file_format == "idx" else check_files(given))
    if not in_order:
        section["epochs"] = passes
    elif passes != 1:
        raise _checks.unfit("epochs", epochs, "1 with evaluate, which reads the files once")
    job = {"model": _MODELS[file_format] if model is None else _checks.mapping(model, "model"),
           "data": section}
    return Reader(job, in_order, *check_share(worker, workers), read_position(position))


__all__ = ["Batch", "Reader", "Sparse", "read"]
