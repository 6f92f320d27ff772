"""A tqdm bar for a training run, updated from the progress lines that the workers print."""
from __future__ import annotations

import re
import sys
from typing import Any, Dict, Optional, Type

from cairn.errors import InvalidArgumentError

_LINE = re.compile(r"worker:(\d+): step (\d+), (\d+) % done, (\d+) rows/s, loss ([^\s,]+)")


def _tqdm() -> Optional[Type[Any]]:
    try:
        from tqdm.auto import tqdm  # noqa: PLC0415 (optional)
    except ImportError:
        return None
    kind: Type[Any] = tqdm
    return kind


class ProgressBar:
    """Shows how much of the run is done, as the mean over the workers. A context manager.

    Args:
        wanted: None: show a bar if tqdm is installed and stderr is a terminal. True: always show
            one; InvalidArgumentError if tqdm is not installed. False: show none.
        name: the text before the bar.
        workers: the number of workers.

    Thread safety: none."""

    def __init__(self, wanted: Optional[bool], name: str, workers: int) -> None:
        self._bar: Any = None
        self._workers = workers
        self._percent: Dict[str, int] = {}
        if wanted is False or (wanted is None and not sys.stderr.isatty()):
            return
        tqdm = _tqdm()
        if tqdm is not None:
            self._bar = tqdm(total=100, desc=name, bar_format="{desc}: {percentage:3.0f}%|{bar}| "
                             "[{elapsed}<{remaining}{postfix}]")
        elif wanted:
            raise InvalidArgumentError("train: progress=True needs tqdm: pip install tqdm")

    @property
    def shown(self) -> bool:
        """Whether there is a bar."""
        return self._bar is not None

    def take(self, line: str) -> bool:
        """Updates the bar if `line` reports progress. Returns whether the bar shows it."""
        found = _LINE.search(line)
        if self._bar is None or found is None:
            return False
        worker, step, percent, rows, loss = found.groups()
        self._percent[worker] = int(percent)
        self._bar.set_postfix_str(f"step {step}, {rows} rows/s, loss {loss}", refresh=False)
        self._bar.update(sum(self._percent.values()) / self._workers - self._bar.n)
        return True

    def finish(self) -> None:
        """Moves the bar to 100 %."""
        if self._bar is not None:
            self._bar.update(100 - self._bar.n)

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, *_: Any) -> None:
        if self._bar is not None:
            self._bar.close()


__all__ = ["ProgressBar"]
