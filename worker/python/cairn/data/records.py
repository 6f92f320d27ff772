"""Records of TFRecord files, read by Cairn's reader, which verifies their checksums."""
from __future__ import annotations

import ctypes
import os
from typing import Any, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

from cairn._library import RawRecords, check, lib
from cairn.data.positions import (
    Path,
    check_amounts,
    check_share,
    list_files,
    read_position,
    write_position,
)
from cairn.errors import ClosedError


class Records(NamedTuple):
    """A batch of records, in the order of the files.

    Attributes:
        records: the records' bytes.
        position: pass it to read_records to continue after this batch."""

    records: List[bytes]
    position: bytes

    def __len__(self) -> int:
        return len(self.records)


class RecordReader(Iterator[Records]):
    """An iterator over batches of records, made by `cairn.data.read_records`. A context manager."""

    def __init__(self, files: Sequence[str], batch_size: int, epochs: int, worker: int,
                 workers: int, start: Tuple[int, int]) -> None:
        self._handle: Optional[int] = None
        self._batch_size = batch_size
        handle = ctypes.c_void_p()
        names = (ctypes.c_char_p * len(files))(*[os.fsencode(file) for file in files])
        code = lib.cairn_open_records(names, len(files), worker, workers, epochs, *start,
                                      ctypes.byref(handle))
        self._handle = handle.value
        check(code)

    def __next__(self) -> Records:
        if self._handle is None:
            raise ClosedError("the reader is closed: open another one by cairn.data.read_records")
        raw = RawRecords()
        check(lib.cairn_read_records(self._handle, self._batch_size, ctypes.byref(raw)))
        count = raw.count
        if count == 0:
            raise StopIteration
        offsets = ctypes.cast(raw.offsets, ctypes.POINTER(ctypes.c_int64))[:count + 1]
        data = ctypes.string_at(raw.bytes, offsets[-1])
        return Records([data[begin:end] for begin, end in zip(offsets, offsets[1:])],
                       write_position(raw.epoch, raw.next_record))

    def close(self) -> None:
        """Closes the files. A second call does nothing."""
        handle, self._handle = self._handle, None
        if handle is not None:
            lib.cairn_close_records(handle)

    def __enter__(self) -> RecordReader:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None:
            self.close()


def read_records(files: Union[Path, Sequence[Path]], *, batch_size: int = 128, epochs: int = 1,
                 worker: int = 0, workers: int = 1,
                 position: Union[bytes, str] = b"") -> RecordReader:
    """Opens TFRecord files as an iterator of batches of records.

    Args:
        files: paths or globs; a name that ends in ".gz" is gzip.
        batch_size: records in a batch.
        epochs: how often the files are read.
        worker: the index of this reader.
        workers: the number of readers. Each reads every workers-th file or, if there are fewer
            files, every workers-th record.
        position: the position of a batch, after which to continue.

    Raises:
        NotFoundError: no such file.
        DataLossError: a record is corrupt; the text names the file and the offset."""
    share = check_share(worker, workers)
    return RecordReader(list_files(files), *check_amounts(batch_size, epochs), *share,
                        read_position(position))


__all__ = ["RecordReader", "Records", "read_records"]
