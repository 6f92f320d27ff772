"""Rows of the next batch, pulled while the program computes the current one."""
from __future__ import annotations

import threading
from typing import Any, Callable, Dict, Iterable, Iterator, Mapping, Optional

from cairn import _checks
from cairn.torch._tables import Looked, Table

KeysOf = Callable[[Any], Any]


def _pull_ahead(keys_of: Mapping[Table, KeysOf], batch: Any) -> Dict[Table, Looked]:
    looked = {module: module._prepare(keys_of_batch(batch))
              for module, keys_of_batch in keys_of.items()}
    if looked:
        next(iter(looked)).table.client.pull(
            [(module.table, ahead.pulled, ahead.rows[:len(ahead.pulled)])
             for module, ahead in looked.items()])
    return looked


class _Ahead(threading.Thread):
    """Pulls the rows of one batch."""

    def __init__(self, keys_of: Mapping[Table, KeysOf], batch: Any) -> None:
        super().__init__(name="cairn prefetch", daemon=True)
        self._keys_of, self._batch = keys_of, batch
        self._looked: Dict[Table, Looked] = {}
        self._error: Optional[BaseException] = None

    def run(self) -> None:
        try:
            self._looked = _pull_ahead(self._keys_of, self._batch)
        except BaseException as error:
            self._error = error

    def install(self) -> Any:
        """Waits for the rows, gives them to the modules, and returns the batch."""
        self.join()
        if self._error is not None:
            raise self._error
        for module, looked in self._looked.items():
            module._ahead = looked
        return self._batch

    def remove(self) -> None:
        """Drops the rows that no forward pass has used."""
        for module, looked in self._looked.items():
            if module._ahead is looked:
                module._ahead = None


_KEYS_OF = "a dictionary {module: function that returns the keys of a batch}"


def prefetch(batches: Iterable[Any], keys_of: Mapping[Table, KeysOf]) -> Iterator[Any]:
    """Yields `batches`. While the program computes one batch, a thread pulls the rows of the next
    one, for all tables in one call.

    Args:
        batches: the batches, for example a DataLoader.
        keys_of: for each module, a function that returns the keys of a batch, exactly those that
            `forward` will get.

    The prefetched rows lack the updates of the step during which they were pulled, as with
    pull_ahead_steps: 1 in a job file. Rows that no forward pass has used when the next batch is
    asked for, or when the loop ends, are dropped."""
    if not isinstance(keys_of, Mapping):
        raise _checks.mistyped("keys_of", keys_of, _KEYS_OF)
    for module, function in keys_of.items():
        if not isinstance(module, Table) or not callable(function):
            raise _checks.mistyped("keys_of", {module: function}, _KEYS_OF)
    try:
        iterator = iter(batches)
    except TypeError:
        raise _checks.mistyped("batches", batches, "an iterable, as a DataLoader") from None
    return _prefetch(iterator, keys_of)


def _prefetch(batches: Iterator[Any], keys_of: Mapping[Table, KeysOf]) -> Iterator[Any]:
    ahead: Optional[_Ahead] = None  # pulls the rows of the next batch
    installed: Optional[_Ahead] = None  # its rows are the modules' for the current batch
    try:
        for batch in batches:
            following = _Ahead(keys_of, batch)
            if ahead is None:
                following.start()
                ahead = following
                continue
            ready = ahead.install()
            following.start()
            installed, ahead = ahead, following
            yield ready
            installed.remove()
        if ahead is not None:
            installed, ahead = ahead, None
            yield installed.install()
    finally:
        if installed is not None:
            installed.remove()


__all__ = ["prefetch"]
