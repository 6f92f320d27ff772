"""Positions of readers, which programs store with their pushes, and lists of input files."""
from __future__ import annotations

import glob
import os
from typing import Any, Dict, List, Mapping, Sequence, Tuple, Union

from cairn import _checks
from cairn.errors import InvalidArgumentError, NotFoundError

Path = _checks.PathLike
Pair = Mapping[str, Path]  # {"images": PATH, "labels": PATH} of format idx
_MOST_BATCH_ROWS = 1 << 31
_EXPECTED_FILES = "a path or a list of paths"
_EXPECTED_PAIRS = 'an idx pair or a list of them, as in {"images": "a.gz", "labels": "b.gz"}'


def read_position(position: Union[bytes, str]) -> Tuple[int, int]:
    """Returns the epoch, and the row or record in it, of a position; zeros if it is empty."""
    text = _checks.position(position).decode(errors="replace")
    if not text:
        return 0, 0
    parts = text.split()
    if len(parts) != 2 or not all(part.isdecimal() and part.isascii() for part in parts):
        raise _checks.unfit("position", position, "the position of a batch, as in b'0 4096'")
    epoch, place = int(parts[0]), int(parts[1])
    if max(epoch, place) > _checks.MOST_INT64:
        raise _checks.unfit("position", position, "numbers of at most 64 bits")
    return epoch, place


def write_position(epoch: int, place: int) -> bytes:
    """Returns the position that read_position reads."""
    return f"{epoch} {place}".encode()


def check_files(files: Union[Path, Sequence[Path]]) -> List[str]:
    """Returns one path, or the paths of a list that is not empty, as texts."""
    if isinstance(files, (str, os.PathLike)):
        return [_checks.path(files, "files", _EXPECTED_FILES)]
    paths = [_checks.path(file, f"files[{i}]", _EXPECTED_FILES)
             for i, file in enumerate(_checks.items(files, "files", _EXPECTED_FILES))]
    if not paths:
        raise _checks.unfit("files", files, "at least one path")
    return paths


def check_pairs(pairs: Union[Pair, Sequence[Pair]]) -> List[Dict[str, str]]:
    """Returns one pair of idx files, or the pairs of a list that is not empty, as texts."""
    if isinstance(pairs, Mapping):
        return [_pair(pairs, "files")]
    found = [_pair(pair, f"files[{i}]")
             for i, pair in enumerate(_checks.items(pairs, "files", _EXPECTED_PAIRS))]
    if not found:
        raise _checks.unfit("files", pairs, "at least one idx pair")
    return found


def _pair(pair: Any, what: str) -> Dict[str, str]:
    if not isinstance(pair, Mapping):
        raise _checks.mistyped(what, pair, _EXPECTED_PAIRS)
    if set(pair) != {"images", "labels"}:
        raise _checks.unfit(what, dict(pair), _EXPECTED_PAIRS)
    return {key: _checks.path(pair[key], f"{what}['{key}']") for key in ("images", "labels")}


def list_files(files: Union[Path, Sequence[Path]]) -> List[str]:
    """Returns the files that paths and globs name; those of a glob are sorted by name."""
    found: List[str] = []
    for text in check_files(files):
        matches = [text] if os.path.exists(text) else sorted(glob.glob(text))
        if not matches:
            raise NotFoundError(f"{text}: names no file")
        found += matches
    return found


def check_share(worker: Any, workers: Any) -> Tuple[int, int]:
    """Returns `worker` and `workers`: integers, of which `worker` is below `workers`."""
    count = _checks.integer(workers, "workers", 1, _checks.MOST_WORKERS)
    index = _checks.integer(worker, "worker", 0, _checks.MOST_WORKERS)
    if index >= count:
        raise InvalidArgumentError(f"worker is {index} of {count}; expected worker below workers")
    return index, count


def check_amounts(batch_size: Any, epochs: Any) -> Tuple[int, int]:
    """Returns the rows of a batch and the number of epochs."""
    return (_checks.integer(batch_size, "batch_size", 1, _MOST_BATCH_ROWS),
            _checks.integer(epochs, "epochs", 1))


__all__ = ["Pair", "Path", "check_amounts", "check_files", "check_pairs", "check_share",
           "list_files", "read_position", "write_position"]
