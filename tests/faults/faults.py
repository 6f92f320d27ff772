"""Machine faults for one process: environments that load tests/faults/fault_shim.cc, and
switches."""
import mmap
import os
import struct
import unittest

WELL, FAILS, STALLS, SYNC_FAILS_ONCE, READS_FAIL = range(5)


class Faults:
    """The faults of the processes that are started inside `with faults.over(folder)`."""

    def __init__(self, path):
        if os.environ.get("CAIRN_NO_PRELOAD"):
            raise unittest.SkipTest(os.environ["CAIRN_NO_PRELOAD"])
        self.path = path
        with open(path, "wb") as f:
            f.write(bytes(4096))
        with open(path, "r+b") as f:
            self.memory = mmap.mmap(f.fileno(), 4096)

    def environment(self, folder):
        return {"LD_PRELOAD": os.environ["CAIRN_FAULT_SHIM"], "CAIRN_FAULT_FILE": self.path,
                "CAIRN_FAULT_DIR": os.path.realpath(folder)}

    def _set(self, index, value):
        self.memory[8 * index:8 * index + 8] = struct.pack("<q", value)

    def _get(self, index):
        return struct.unpack("<q", self.memory[8 * index:8 * index + 8])[0]

    def disk(self, state):
        self._set(0, state)

    def clock(self, seconds):
        """Shifts the wall clock by `seconds` from the real time."""
        self._set(1, seconds)

    def count(self):
        """Number of calls that were failed or stalled so far."""
        return self._get(2)


class Environment:
    """os.environ with `more`, for the duration of the context."""

    def __init__(self, more):
        self.more = more

    def __enter__(self):
        os.environ.update(self.more)

    def __exit__(self, *_):
        for name in self.more:
            del os.environ[name]
