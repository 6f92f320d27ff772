"""Reads columns of Parquet files with pyarrow, which is optional."""
from __future__ import annotations

from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

from cairn import _checks
from cairn._arrays import Array
from cairn.data.positions import (
    Path,
    check_amounts,
    check_files,
    check_share,
    list_files,
    read_position,
    write_position,
)
from cairn.errors import DataLossError, InvalidArgumentError, NotFoundError, UnimplementedError


class Columns(NamedTuple):
    """A batch of rows.

    Attributes:
        columns: each column by name, [rows, …].
        position: pass it to read_parquet to continue after this batch."""

    columns: Dict[str, Array]
    position: bytes

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))


def _pyarrow() -> Tuple[Any, Any]:
    try:
        import pyarrow  # noqa: PLC0415 (optional)
        import pyarrow.compute  # noqa: PLC0415
        import pyarrow.parquet  # noqa: PLC0415
    except ImportError as error:
        raise UnimplementedError("read_parquet needs pyarrow: pip install pyarrow") from error
    return pyarrow, pyarrow.parquet


def _array(column: Any, name: str) -> Array:
    """Returns a column as an array. Lists of one length become [rows, length]."""
    pyarrow, _ = _pyarrow()
    kinds = pyarrow.types
    if column.null_count:
        raise InvalidArgumentError(f"column '{name}' has {column.null_count} empty cells; fill or "
                                   "leave them out, as in columns=[…]")
    if not (kinds.is_list(column.type) or kinds.is_large_list(column.type) or
            kinds.is_fixed_size_list(column.type)):
        plain: Array = column.to_numpy(zero_copy_only=False)
        return plain
    inner = column.flatten()
    if inner.null_count:  # to_numpy would make numbers with NaN of integers
        raise InvalidArgumentError(f"column '{name}' has lists with {inner.null_count} empty "
                                   "values; fill them, or leave the column out by columns=[…]")
    values: Array = inner.to_numpy(zero_copy_only=False)
    rows = len(column)
    lengths = set(pyarrow.compute.list_value_length(column).to_pylist())
    if len(lengths) > 1:
        raise InvalidArgumentError(
            f"column '{name}' has lists of {min(lengths)} to {max(lengths)} values; "
            "expected one length")
    return values.reshape(rows, -1)


class ParquetReader(Iterator[Columns]):
    """An iterator over batches of rows, made by `cairn.data.read_parquet`. A context manager."""

    def __init__(self, files: Sequence[str], columns: Optional[Sequence[str]], batch_size: int,
                 epochs: int, share: Tuple[int, int], start: Tuple[int, int]) -> None:
        self._files, self._columns = list(files), columns
        self._batch_size, self._epochs = batch_size, epochs
        self._worker, self._workers = share
        self._epoch, self._skip = start
        self._open: List[Any] = []
        self._batches = self._all()

    def _row_groups(self) -> Iterator[Tuple[Any, int]]:
        """Yields this worker's row groups: every workers-th one, counted over all files."""
        pyarrow, parquet = _pyarrow()
        index = 0
        for path in self._files:
            try:
                file = parquet.ParquetFile(path)
            except pyarrow.ArrowInvalid as error:
                raise DataLossError(f"{path}: is no Parquet file: {error}") from error
            self._open.append(file)
            missing = sorted(set(self._columns or ()) - set(file.schema_arrow.names))
            if missing:
                raise NotFoundError(f"{path}: has no column '{missing[0]}'; it has "
                                    f"{', '.join(file.schema_arrow.names)}")
            for group in range(file.num_row_groups):
                if index % self._workers == self._worker:
                    yield file, group
                index += 1
            self._close_file()

    def _all(self) -> Iterator[Columns]:
        for epoch in range(self._epoch, self._epochs):
            done, begin = 0, self._skip if epoch == self._epoch else 0
            for file, group in self._row_groups():
                rows = file.metadata.row_group(group).num_rows
                if done + rows <= begin:
                    done += rows
                    continue
                for batch in file.iter_batches(self._batch_size, row_groups=[group],
                                               columns=self._columns):
                    done += batch.num_rows
                    if done <= begin:
                        continue
                    kept = batch.slice(max(0, begin - (done - batch.num_rows)))
                    yield Columns({name: _array(kept.column(i), name)
                                   for i, name in enumerate(kept.schema.names)},
                                  write_position(epoch, done))
            if done == 0:  # the further epochs have no rows for this worker either
                return

    def __next__(self) -> Columns:
        return next(self._batches)

    def _close_file(self) -> None:
        while self._open:
            self._open.pop().close()

    def close(self) -> None:
        """Closes the files; no batches follow. A second call does nothing."""
        self._batches = iter(())
        self._close_file()

    def __enter__(self) -> ParquetReader:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def read_parquet(files: Union[Path, Sequence[Path]], *, columns: Optional[Sequence[str]] = None,
                 batch_size: int = 1024, epochs: int = 1, worker: int = 0, workers: int = 1,
                 position: Union[bytes, str] = b"") -> ParquetReader:
    """Opens Parquet files as an iterator of batches.

    Args:
        files: paths or globs.
        columns: the names of the columns to read; None: all.
        batch_size: rows in a batch. A batch does not extend over two row groups.
        epochs: how often the files are read, at least once.
        worker: the index of this reader.
        workers: the number of readers. Each reads every workers-th row group, counted over all
            files, so there should be at least as many row groups as workers.
        position: the position of a batch, after which to continue.

    Raises:
        UnimplementedError: pyarrow is not installed.
        NotFoundError: a file or a column does not exist.
        InvalidArgumentError: a cell, or a value in a list, is empty, or lists differ in length.
        DataLossError: a file is not a Parquet file."""
    share = check_share(worker, workers)
    names = None if columns is None else [
        _checks.text(name, f"columns[{i}]") for i, name in enumerate(
            _checks.items(columns, "columns", "a list of names"))]
    amounts, start = check_amounts(batch_size, epochs), read_position(position)
    paths = check_files(files)
    _pyarrow()
    return ParquetReader(list_files(paths), names, *amounts, share, start)


__all__ = ["Columns", "ParquetReader", "read_parquet"]
