"""The C library: its functions, errors and log, and the handling of Ctrl-C in waiting calls."""
from __future__ import annotations

import _thread
import atexit
import ctypes
import gc
import logging
import os
import struct
import sys
import threading
from ctypes import POINTER, c_char_p, c_double, c_int, c_int32, c_int64, c_uint64, c_void_p
from typing import Any, Callable, Dict, Generator, List, Optional

from cairn.errors import BY_CODE, UnknownError

ABI_VERSION = 1
_FILE = "libcairn_client.so.0"
_logger = logging.getLogger("cairn")


# cairn_item of cairn/c.h: variable, slot, ids, id_count, data, shape, rank, dtype, part, format,
# kept_fraction, residual, residual_count, reserved. Packing takes a fifth of the time that the
# fields of a ctypes.Structure take.
pack_item = struct.Struct("@PPPQPPiiiidPQPP").pack
# The part of an item that differs between calls with equal shapes: ids, id_count, data.
ITEM_MEMORY = slice(16, 40)
pack_memory = struct.Struct("@PQP").pack


class RawCounters(ctypes.Structure):
    """cairn_counters_t of cairn/c.h."""

    _fields_ = (
        ("bytes_pushed", c_int64), ("bytes_pulled", c_int64), ("retries", c_int64),
        ("pushes_dropped", c_int64), ("pushes_late", c_int64), ("retained_bytes", c_int64),
        ("retained_bytes_max", c_int64), ("replayed_pushes", c_int64),
        ("replayed_bytes", c_int64), ("replay_seconds", c_double),
    )


class RawStaleness(ctypes.Structure):
    """cairn_staleness_t of cairn/c.h."""

    _fields_ = (("mean", c_double), ("p99", c_int64), ("max", c_int64))


class RawRecords(ctypes.Structure):
    """cairn_records_t of cairn/c.h."""

    _fields_ = (
        ("count", c_int64), ("bytes", c_void_p), ("offsets", c_void_p), ("epoch", c_int64),
        ("next_record", c_int64),
    )


class RawBatch(ctypes.Structure):
    """cairn_batch_t of cairn/c.h."""

    _fields_ = (
        ("rows", c_int64), ("labels", c_void_p), ("row_offsets", c_void_p), ("columns", c_void_p),
        ("values", c_void_p), ("dense", c_void_p), ("keys", c_void_p), ("sparse_columns", c_int64),
        ("dense_columns", c_int64), ("key_columns", c_int64), ("epoch", c_int64),
        ("next_row", c_int64),
    )


_LOG = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_char_p, c_int, c_char_p)
_INTERRUPT = ctypes.CFUNCTYPE(c_int, c_void_p)
_ITEMS = c_char_p  # items of pack_item, one after the other
_SIGNATURES: Dict[str, List[Any]] = {
    "cairn_free_text": [c_void_p],
    "cairn_set_log": [_LOG, c_void_p, c_int],
    "cairn_set_interrupt_check": [_INTERRUPT, c_void_p, c_int],
    "cairn_connect": [c_char_p, c_double, POINTER(c_void_p)],
    "cairn_close": [c_void_p],
    "cairn_flush": [c_void_p, c_double],
    "cairn_leave": [c_void_p, c_double],
    "cairn_drop_job": [c_void_p, c_double],
    "cairn_server_count": [c_void_p, POINTER(c_int32)],
    "cairn_worker": [c_void_p, POINTER(c_int32)],
    "cairn_position": [c_void_p, c_char_p, c_uint64, POINTER(c_uint64)],
    "cairn_create": [c_void_p, c_char_p, c_double],
    "cairn_describe": [c_void_p, c_double, POINTER(c_void_p)],
    "cairn_pull": [c_void_p, _ITEMS, c_uint64, c_double],
    "cairn_push": [c_void_p, _ITEMS, c_uint64, c_char_p, c_uint64, c_double],
    "cairn_push_pull": [c_void_p, _ITEMS, c_uint64, c_char_p, c_uint64, _ITEMS, c_uint64,
                        c_double],
    "cairn_step": [c_void_p, _ITEMS, c_uint64, c_char_p, c_uint64, _ITEMS, c_uint64, c_int64,
                   c_double],
    "cairn_end_step": [c_void_p, _ITEMS, c_uint64, c_char_p, c_uint64, c_int64, c_double],
    "cairn_end_steps": [c_void_p, c_double],
    "cairn_largest_step_gap": [c_void_p, c_double, POINTER(c_int64)],
    "cairn_assign": [c_void_p, _ITEMS, c_uint64, c_double],
    "cairn_scan_table": [c_void_p, c_char_p, c_double, POINTER(c_void_p)],
    "cairn_scan_rows": [c_void_p, POINTER(c_uint64), POINTER(c_int64), POINTER(c_void_p),
                        POINTER(c_void_p)],
    "cairn_scan_free": [c_void_p],
    "cairn_checkpoint": [c_void_p, c_char_p, c_int64, c_int64, POINTER(c_void_p)],
    "cairn_restore": [c_void_p, c_char_p],
    "cairn_counters": [c_void_p, POINTER(RawCounters)],
    "cairn_staleness": [c_void_p, POINTER(RawStaleness)],
    "cairn_open_reader": [c_char_p, c_char_p, c_int, c_int32, c_int32, c_int64, c_int64,
                          POINTER(c_void_p)],
    "cairn_read_batch": [c_void_p, POINTER(RawBatch)],
    "cairn_close_reader": [c_void_p],
    "cairn_open_records": [POINTER(c_char_p), c_uint64, c_int32, c_int32, c_int64, c_int64,
                           c_int64, POINTER(c_void_p)],
    "cairn_read_records": [c_void_p, c_int64, POINTER(RawRecords)],
    "cairn_close_records": [c_void_p],
    "cairn_launch": [c_char_p, POINTER(c_void_p)],
    "cairn_launched_addresses": [c_void_p, POINTER(c_void_p)],
    "cairn_stop_servers": [c_void_p],
}
_NO_CODE = {"cairn_free_text", "cairn_set_log", "cairn_set_interrupt_check"}


def _candidates() -> List[str]:
    """Returns the places where the library may be: $CAIRN_LIBRARY, else this package, then the
    loader's search path."""
    here = os.path.dirname(os.path.abspath(__file__))
    named = os.environ.get("CAIRN_LIBRARY")
    return [named] if named else [
        path for path in (os.path.join(here, "lib", _FILE), os.path.join(here, _FILE))
        if os.path.exists(path)] + [_FILE]


def _load() -> ctypes.CDLL:
    failures = []
    for path in _candidates():
        try:
            library = ctypes.CDLL(path)
        except OSError as error:
            failures.append(f"{path}: {error}")
            continue
        library.cairn_version.restype = c_char_p
        library.cairn_last_error_message.restype = c_char_p
        library.cairn_code_name.restype = c_char_p
        if library.cairn_abi_version() < ABI_VERSION:
            failures.append(f"{path}: is older than this package")
            continue
        for name, arguments in _SIGNATURES.items():
            function = getattr(library, name)
            function.argtypes = arguments
            function.restype = None if name in _NO_CODE else c_int
        return library
    raise ImportError("cairn: " + "; ".join(failures) +
                      " (set CAIRN_LIBRARY to the path of libcairn_client.so.0)")


lib = _load()


# The exception of a signal handler that ran during a call, on the main thread; empty: none.
parked: List[BaseException] = []


def fail(code: int) -> None:
    """Raises the exception of a signal handler that ran during this thread's call, also if the call
    succeeded; else the exception for `code`, unless it is 0."""
    if parked and _Interrupt.is_mine():
        raise parked.pop()
    if code:
        message = lib.cairn_last_error_message().decode(errors="replace")
        raise BY_CODE.get(code, UnknownError)(message)


def check(code: int) -> None:
    """Raises the exception for `code` unless it is 0, or that of a signal handler."""
    if code or parked:
        fail(code)


def take_text(pointer: Optional[int]) -> str:
    """Returns the text at `pointer`, which the library has allocated, and frees it."""
    if not pointer:
        return ""
    text = ctypes.string_at(pointer).decode(errors="replace")
    lib.cairn_free_text(pointer)
    return text


class _Interrupt:
    """Runs Python's signal handlers while the main thread waits in a call of the library.

    Python runs signal handlers on the main thread, between bytecodes. If the callback were a
    function, KeyboardInterrupt would be raised before its first statement, outside every `try`.
    A generator resumes inside its `try`.

    A handler may call the library too. Nothing interrupts a wait of that call: the library does
    not call the check again while it runs."""

    def __init__(self) -> None:
        self._generator = self._run()
        next(self._generator)
        self._callback: Any = _INTERRUPT(self._generator.send)
        self._is_set = False

    def _run(self) -> Generator[int, Any, None]:
        run_handlers: Callable[[], int] = ctypes.pythonapi.PyErr_CheckSignals
        answer = 0
        while True:
            try:
                yield answer
                answer = 0
                run_handlers()
                answer = int(bool(parked))  # by a handler of log messages
            except GeneratorExit:
                raise
            except BaseException as error:
                parked[:] = [error]
                answer = 1

    @staticmethod
    def is_mine() -> bool:
        return threading.current_thread() is threading.main_thread()

    def set_once(self) -> None:
        """Installs the check, if this is the main thread, which alone handles signals."""
        if not self._is_set and self.is_mine():
            self._is_set = True
            lib.cairn_set_interrupt_check(self._callback, None, 1)

    def clear(self) -> None:
        lib.cairn_set_interrupt_check(_INTERRUPT(0), None, 0)


_interrupt = _Interrupt()
deliver_signals = _interrupt.set_once
_LEVELS = {0: logging.INFO, 1: logging.WARNING, 2: logging.ERROR}


# Of each thread: `now` in the log function, `collecting` in the garbage collector.
_this_thread = threading.local()


def _note_collector(phase: str, _info: Any) -> None:
    _this_thread.collecting = phase == "start"


def _log(_context: Any, level: int, file: bytes, line: int, message: bytes) -> None:
    _this_thread.now = True
    try:
        _logger.log(_LEVELS.get(level, logging.INFO), "%s", message.decode(errors="replace"),
                    extra={"cairn_source": f"{file.decode(errors='replace')}:{line}"})
    except Exception:
        pass  # a handler that fails must not end a thread of the library
    except BaseException as error:  # KeyboardInterrupt, which would be lost here
        parked[:] = [error]
    finally:
        _this_thread.now = False


_earlier_hook = sys.unraisablehook


def _park_lost(lost: Any) -> None:
    """Parks the exception of a signal handler that Python has run at the entry of _log, before its
    `try`. ctypes can only report such an exception as lost."""
    trace = lost.exc_traceback
    if trace is not None and trace.tb_frame.f_code is _log.__code__ and _Interrupt.is_mine():
        parked[:] = [lost.exc_value]
    else:
        _earlier_hook(lost)


def finalize(close: Callable[..., Any], *arguments: Any) -> None:
    """Closes what the program has dropped. Does so in another thread if this one is in the log
    function, which must not call the library, or in the garbage collector: there the program may
    hold a lock that a handler of log messages waits for, and a close waits for such handlers."""
    held = getattr(_this_thread, "now", False) or getattr(_this_thread, "collecting", False)
    if held and not sys.is_finalizing():  # at the end no other thread would run
        try:
            # threading.Thread would wait for the new thread, and that for a lock of `threading`.
            _thread.start_new_thread(close, arguments)
            return
        except RuntimeError:  # the interpreter ends, or the system refuses a thread
            pass
    close(*arguments)


def _at_exit() -> None:
    lib.cairn_set_log(_LOG(0), None, 0)
    _interrupt.clear()
    if _note_collector in gc.callbacks:
        gc.callbacks.remove(_note_collector)
    if sys.unraisablehook is _park_lost:
        sys.unraisablehook = _earlier_hook


_log_callback: Any = _LOG(_log)  # kept: the library calls it until the process ends
# Every message: the logger's level, which may change, decides.
lib.cairn_set_log(_log_callback, None, 0)
sys.unraisablehook = _park_lost
gc.callbacks.append(_note_collector)
deliver_signals()  # where another thread than the main one imports this, its first call does it
atexit.register(_at_exit)
# The library's threads hold no Python state; a forked child's handles are refused by the library.
if sys.platform != "linux":
    raise ImportError("cairn: runs on Linux only")

__all__ = ["RawBatch", "RawCounters", "RawRecords", "RawStaleness", "check",
           "ITEM_MEMORY", "deliver_signals", "finalize", "lib", "pack_item", "pack_memory",
           "take_text"]
