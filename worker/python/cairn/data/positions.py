"""Positions of readers, which programs store with their pushes, and lists of input files."""
from __future__ import annotations

import glob
import os
from typing import List, Sequence, Tuple, Union

from cairn.errors import InvalidArgumentError, NotFoundError

Path = Union[str, "os.PathLike[str]"]


def read_position(position: Union[bytes, str]) -> Tuple[int, int]:
    """Returns the epoch, and the row or record in it, of a position; zeros if it is empty."""
    text = position.decode(errors="replace") if isinstance(position, bytes) else position
    if not text:
        return 0, 0
    parts = text.split()
    if len(parts) != 2 or not all(part.isdigit() for part in parts):
        raise InvalidArgumentError(f"position is {text!r}; expected that of a batch")
    return int(parts[0]), int(parts[1])


def write_position(epoch: int, place: int) -> bytes:
    """Returns the position that read_position reads."""
    return f"{epoch} {place}".encode()


def list_files(files: Union[Path, Sequence[Path]]) -> List[str]:
    """Returns the files that paths and globs name; those of a glob are sorted by name."""
    found: List[str] = []
    for path in [files] if isinstance(files, (str, os.PathLike)) else files:
        text = os.fspath(path)
        matches = [text] if os.path.exists(text) else sorted(glob.glob(text))
        if not matches:
            raise NotFoundError(f"{text}: names no file")
        found += matches
    return found


def check_share(worker: int, workers: int) -> None:
    """Raises InvalidArgumentError if `worker` is outside [0, workers)."""
    if not 0 <= worker < workers:
        raise InvalidArgumentError(
            f"worker is {worker} of {workers}; expected worker below workers, and none below 0")


__all__ = ["Path", "check_share", "list_files", "read_position", "write_position"]
