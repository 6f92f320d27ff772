"""What the readers share: a handle of the library, which one thread at a time reads."""
from __future__ import annotations

import contextlib
import os
import threading
from typing import Any, Callable, Iterator, Optional, TypeVar

from cairn._library import finalize
from cairn.errors import ClosedError, FailedPreconditionError

Self = TypeVar("Self", bound="OpenReader")


class OpenReader:
    """A context manager. Several threads may read and close it; they read one after the other. If
    a thread closes it while another one reads, that read still ends with its batch."""

    def __init__(self, opened_by: str, close: Callable[[int], Any]) -> None:
        self._opened_by = opened_by
        self._close = close
        self._handle: Optional[int] = None
        self._abandoned: Optional[int] = None  # closed during a read, which closes it at its end
        self._make_locks()

    def _make_locks(self) -> None:
        self._process = os.getpid()
        self._turn = threading.RLock()  # held by the thread that reads
        self._state = threading.RLock()  # of the other members; reentrant for signal handlers
        self._is_read = False

    def _renew_after_fork(self) -> None:
        """Makes new locks in a child: a thread of the parent may hold the old ones for ever."""
        if self._process != os.getpid():
            self._make_locks()

    @contextlib.contextmanager
    def _reading(self) -> Iterator[int]:
        """Yields the handle, whose last batch stays valid in the block."""
        self._renew_after_fork()
        with self._turn:
            with self._state:
                if self._handle is None:
                    raise ClosedError(
                        f"the reader is closed: open another one by {self._opened_by}")
                if self._is_read:
                    raise FailedPreconditionError(
                        "a signal handler reads the reader that it has interrupted")
                handle, self._is_read = self._handle, True
            try:
                yield handle
            finally:
                with self._state:
                    self._is_read = False
                    abandoned, self._abandoned = self._abandoned, None
                if abandoned is not None:
                    self._close(abandoned)

    def close(self) -> None:
        """Closes the files. A second call does nothing."""
        self._renew_after_fork()
        with self._state:
            handle, self._handle = self._handle, None
            if self._is_read:
                self._abandoned, handle = handle or self._abandoned, None
        if handle is not None:
            self._close(handle)

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None:
            finalize(self.close)
