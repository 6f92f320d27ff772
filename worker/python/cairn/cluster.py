"""Servers that a program starts itself."""
from __future__ import annotations

import ctypes
import json
import os
import select
import shutil
import subprocess
import sysconfig
import tempfile
import time
import weakref
from typing import Any, List, Optional, Sequence, Union

from cairn import _checks
from cairn._library import check, deliver_signals, finalize, lib, take_text
from cairn.client import Client, connect
from cairn.errors import InternalError, NotFoundError, UnavailableError

_START_SECONDS = 60.0
_STOP_SECONDS = 60.0
_FLAGS = 'a list of texts, as in ["--memory_budget_bytes=1000000000"]'


def program(name: str) -> str:
    """Finds cairn-ps, cairn-worker or cairnctl.

    Looks in the directories of $CAIRN_BIN (separated by ":") or, without it, where pip installs
    scripts; then on the PATH.

    Raises:
        NotFoundError: the program is in none of these places."""
    _checks.choice(name, "name", ("cairn-ps", "cairn-worker", "cairnctl"))
    named = os.environ.get("CAIRN_BIN")
    places = named.split(os.pathsep) if named else [
        sysconfig.get_path("scripts"), os.path.join(sysconfig.get_config_var("userbase") or "",
                                                    "bin")]
    for place in places:
        path = os.path.join(place, name)
        if os.access(path, os.X_OK):
            return path
    found = shutil.which(name)
    if found is None:
        raise NotFoundError(f"{name} is neither in {', '.join(places)} nor on the PATH: install "
                            "the package with its programs, or set CAIRN_BIN")
    return found


class Cluster:
    """Parameter servers that this program runs on free ports of 127.0.0.1, made by `cairn.launch`.

    As a context manager it stops the servers at the end. Otherwise they run until `stop`, or until
    the program has neither this object nor an open client made by `connect`."""

    def __init__(self, servers: int, directory: Optional[str], durability: str,
                 in_process: bool, flags: Sequence[str] = (),
                 memory_budget_bytes: Optional[int] = None, keep_all_rows: bool = False) -> None:
        self._is_scratch = directory is None
        self._directory = os.path.abspath(
            tempfile.mkdtemp(prefix="cairn-") if directory is None else directory)
        self._durability = durability
        self._count = servers
        self._processes: List[subprocess.Popen[bytes]] = []
        self._handle: Optional[int] = None
        self._addresses: List[str] = []
        self._clients: weakref.WeakSet[Client] = weakref.WeakSet()
        self._pid = os.getpid()
        try:
            if in_process:
                self._start_here(memory_budget_bytes or 0, keep_all_rows)
            else:
                budget = [] if memory_budget_bytes is None else [
                    f"--memory_budget_bytes={memory_budget_bytes}"]
                self._start_processes([*budget, *flags])
        except BaseException:
            self.stop()
            raise

    def _start_here(self, memory_budget_bytes: int, keep_all_rows: bool) -> None:
        deliver_signals()
        handle, text = ctypes.c_void_p(), ctypes.c_void_p()
        description = {"servers": self._count, "directory": self._directory,
                       "durability": self._durability,
                       "memory_budget_bytes": memory_budget_bytes, "keep_all_rows": keep_all_rows}
        code = lib.cairn_launch(_checks.as_json(description), ctypes.byref(handle))
        self._handle = handle.value
        check(code)
        check(lib.cairn_launched_addresses(handle, ctypes.byref(text)))
        self._addresses = take_text(text.value).split(",")

    def _start_processes(self, flags: List[str]) -> None:
        path = program("cairn-ps")
        os.makedirs(self._directory, exist_ok=True)
        cluster_file = os.path.join(self._directory, "servers.yaml")
        with open(cluster_file, "w", encoding="ascii") as file:
            json.dump({"cluster": {"ps": ["127.0.0.1:0"] * self._count}}, file)
        for index in range(self._count):
            base = os.path.join(self._directory, f"ps-{index}")
            if os.path.exists(base + ".port"):
                os.unlink(base + ".port")
            with open(base + ".log", "ab") as log:
                self._processes.append(subprocess.Popen(
                    [path, "--cluster", cluster_file, "--task_index", str(index), "--data_dir",
                     base, "--durability", self._durability, "--port_file", base + ".port",
                     "--parent_pid", str(self._pid), *flags],
                    # Of its own session: Ctrl-C is this program's, which stops the servers.
                    stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True))
        deadline = time.monotonic() + _START_SECONDS
        for index in range(self._count):
            self._addresses.append(self._await_port(index, deadline))

    def _await_port(self, index: int, deadline: float) -> str:
        base = os.path.join(self._directory, f"ps-{index}")
        while True:
            if self._processes[index].poll() is not None:
                raise InternalError(f"cairn-ps {index} ended while it started:\n{self.log(index)}")
            if os.path.exists(base + ".port"):
                with open(base + ".port", encoding="ascii") as file:
                    text = file.read().strip()
                if text:
                    return text if ":" in text else f"127.0.0.1:{text}"
            if time.monotonic() > deadline:
                raise UnavailableError(f"cairn-ps {index} did not listen within "
                                       f"{_START_SECONDS:.0f} s:\n{self.log(index)}")
            select.select([], [], [], 0.005)

    @property
    def addresses(self) -> List[str]:
        """The "host:port" of each server."""
        return list(self._addresses)

    @property
    def directory(self) -> str:
        """The directory of the servers' state and logs."""
        return self._directory

    @property
    def processes(self) -> List[subprocess.Popen[bytes]]:
        """The cairn-ps processes. Empty if the servers run in this process."""
        return list(self._processes)

    def log(self, index: int) -> str:
        """Returns what server `index` has logged. Empty if the servers run in this process."""
        _checks.integer(index, "index", 0, self._count - 1)
        path = os.path.join(self._directory, f"ps-{index}.log")
        if not os.path.exists(path):
            return ""
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()

    def connect(self, **arguments: Any) -> Client:
        """Connects to these servers, as `cairn.connect` does. `stop` closes the client."""
        client = connect(self._addresses, **arguments)
        client._servers = self
        self._clients.add(client)
        return client

    def stop(self) -> None:
        """Closes the clients made by `connect`, writes the servers' state, and stops the
        servers. A second call does nothing."""
        if os.getpid() != self._pid:
            return
        for client in list(self._clients):
            client.close()
        processes, self._processes = self._processes, []
        for process in processes:
            if process.poll() is None:
                process.terminate()
        deadline = time.monotonic() + _STOP_SECONDS
        for process in processes:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        handle, self._handle = self._handle, None
        try:
            if handle is not None:
                check(lib.cairn_stop_servers(handle))
        finally:
            if self._is_scratch:
                shutil.rmtree(self._directory, ignore_errors=True)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: Any) -> None:
        self.stop()

    def __del__(self) -> None:
        if getattr(self, "_clients", None) is not None:
            finalize(self.stop)

    def __repr__(self) -> str:
        state = ", ".join(self._addresses) if self._processes or self._handle else "stopped"
        return f"<cairn.Cluster of {self._count} servers: {state}>"


def launch(servers: int = 1, *, directory: Union[str, os.PathLike[str], None] = None,
           durability: str = "snapshot", in_process: bool = False,
           flags: Optional[List[str]] = None,
           memory_budget_bytes: Optional[int] = None) -> Cluster:
    """Starts servers on this machine. Returns when they accept connections. The servers end with
    this process, however it ends; one that is killed leaves its temporary directory behind.

    Args:
        servers: the number of servers.
        directory: where their state is kept, from which a later launch continues. None: a temporary
            directory, which `Cluster.stop` deletes.
        durability: "off", "snapshot", "log" or "log_sync".
        in_process: run the servers in this process instead of cairn-ps processes.
        flags: more flags for cairn-ps; not with in_process.
        memory_budget_bytes: the memory of each server for variables and messages. None: 4 GiB, or
            three quarters of the memory of the machine or container if that is less.

    Raises:
        NotFoundError: cairn-ps is not installed.
        InternalError: a server ended while it started; the text has its log.
        UnavailableError: a server does not listen after 60 s.
        OSError: the directory cannot be made."""
    folder = None if directory is None else _checks.path(directory, "directory")
    more = [] if flags is None else _checks.items(flags, "flags", _FLAGS)
    is_here = _checks.flag(in_process, "in_process")
    if more and is_here:
        raise _checks.unfit("flags", flags, "no flags with in_process, where no cairn-ps runs")
    return Cluster(_checks.integer(servers, "servers", 1, _checks.MOST_SERVERS), folder,
                   _checks.choice(durability, "durability", ("off", "snapshot", "log", "log_sync")),
                   is_here, [_checks.text(f, f"flags[{i}]", _FLAGS) for i, f in enumerate(more)],
                   None if memory_budget_bytes is None else
                   _checks.integer(memory_budget_bytes, "memory_budget_bytes", 1))


__all__ = ["Cluster", "launch", "program"]
