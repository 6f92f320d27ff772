"""Records of TFRecord files, read by Cairn's reader, which verifies their checksums."""
from __future__ import annotations

import ctypes
import os
from typing import Iterator, List, NamedTuple, Sequence, Tuple, Union

from cairn._library import RawRecords, check, lib
from cairn.data._open_reader import OpenReader
from cairn.data.positions import (
    Path,
    check_amounts,
    check_share,
    list_files,
    read_position,
    write_position,
)


class Records(NamedTuple):
    """A batch of records, in the order of the files.

    Attributes:
        records: the records' bytes.
        position: pass it to read_records to continue after this batch."""

    records: List[bytes]
    position: bytes

    def __len__(self) -> int:
        return len(self.records)


def _pieces(address: int, offsets: Sequence[int]) -> List[bytes]:
    """Copies the bytes between consecutive offsets. ctypes.string_at ends at 2 GiB."""
    whole = memoryview((ctypes.c_ubyte * offsets[-1]).from_address(address))
    return [bytes(whole[begin:end]) for begin, end in zip(offsets, offsets[1:])]


class RecordReader(OpenReader, Iterator[Records]):
    """An iterator over batches of records, made by `cairn.data.read_records`. A context manager.
    Several threads may read it, one after the other."""

    def __init__(self, files: Sequence[str], batch_size: int, epochs: int, worker: int,
                 workers: int, start: Tuple[int, int]) -> None:
        super().__init__("cairn.data.read_records", lib.cairn_close_records)
        self._batch_size = batch_size
        handle = ctypes.c_void_p()
        names = (ctypes.c_char_p * len(files))(*[os.fsencode(file) for file in files])
        code = lib.cairn_open_records(names, len(files), worker, workers, epochs, *start,
                                      ctypes.byref(handle))
        self._handle = handle.value
        check(code)

    def __next__(self) -> Records:
        with self._reading() as handle:
            raw = RawRecords()
            check(lib.cairn_read_records(handle, self._batch_size, ctypes.byref(raw)))
            if raw.count == 0:
                raise StopIteration
            offsets = ctypes.cast(raw.offsets, ctypes.POINTER(ctypes.c_int64))[:raw.count + 1]
            return Records(_pieces(raw.bytes, offsets), write_position(raw.epoch, raw.next_record))


def read_records(files: Union[Path, Sequence[Path]], *, batch_size: int = 128, epochs: int = 1,
                 worker: int = 0, workers: int = 1,
                 position: Union[bytes, str] = b"") -> RecordReader:
    """Opens TFRecord files as an iterator of batches of records.

    Args:
        files: paths or globs; a name that ends in ".gz" is gzip.
        batch_size: records in a batch.
        epochs: how often the files are read, at least once.
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
