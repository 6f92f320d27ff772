"""The connection of a program to the parameter servers."""
from __future__ import annotations

import ctypes
import json
import os
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from cairn import _arrays, _checks, init, optim
from cairn._arrays import Array
from cairn._library import (
    RawCounters,
    RawStaleness,
    check,
    deliver_signals,
    finalize,
    lib,
    take_text,
)
from cairn.errors import ClosedError, InvalidArgumentError
from cairn.variables import Embedding, Pull, Push, Stored, Variable, prepare_pulls, prepare_pushes


class Counters(NamedTuple):
    """What a client has sent and received since it connected.

    Attributes:
        bytes_pushed: payload bytes sent by pushes.
        bytes_pulled: payload bytes received by pulls.
        retries: calls that were sent again.
        pushes_dropped: pushes dropped because of NaN or infinity, with not_finite="skip".
        pushes_late: with consistency="sync", pushes whose step had closed without them.
        retained_bytes: bytes of pushes kept until they are durable, now.
        retained_bytes_max: the maximum of retained_bytes.
        replayed_pushes: pushes sent again to restarted servers.
        replayed_bytes: payload bytes of these pushes.
        replay_seconds: the time that replays took."""

    bytes_pushed: int
    bytes_pulled: int
    retries: int
    pushes_dropped: int
    pushes_late: int
    retained_bytes: int
    retained_bytes_max: int
    replayed_pushes: int
    replayed_bytes: int
    replay_seconds: float


class Staleness(NamedTuple):
    """How many updates other workers made to a shard between a pull and the push computed from it.

    Attributes:
        mean: the mean over all pushed shards.
        p99: the 99th percentile.
        max: the maximum."""

    mean: float
    p99: int
    max: int


# Limits of the servers (common/config/variable_config.cc).
_MOST_SHARDS = 65536
_LARGEST_DIM = 1 << 20
_LARGEST_EXTENT = 1 << 40
_LONGEST_LIFE = 100 * 366 * 86400  # seconds
_EXPECTED_CLUSTER = ('a cluster file, the text of a TF_CONFIG, a list of "host:port", or a '
                     "dictionary")


def _shape(shape: Any) -> List[int]:
    extents = _checks.items(shape, "shape", "a list of integers, as in (1000, 16)")
    return [_checks.integer(extent, f"shape[{i}]", 0, _LARGEST_EXTENT)
            for i, extent in enumerate(extents)]


class Client:
    """A connection to the parameter servers, made by `cairn.connect` or
    `cairn.launch(...).connect`.

    As a context manager it calls `leave` at the end (after an exception only `close`).

    Thread safety: every method may be called from several threads at once, except that only one
    thread at a time may call `step`, `end_step` and `end_steps`.

    Every `timeout` is in seconds above 0; None means the client's own timeout: ps_wait_seconds and
    two attempts of a call, by default 120 s in all."""

    def __init__(self, description: Mapping[str, Any], timeout: Optional[float] = None) -> None:
        deliver_signals()
        handle = ctypes.c_void_p()
        self._handle: Optional[int] = None
        self._servers: Any = None  # the Cluster that made the client, which it keeps running
        self._job = str(description["job"])
        self._consistency: str = description.get("strategy", {}).get("consistency", "async")
        self._pid = os.getpid()
        code = lib.cairn_connect(_checks.as_json(description), _checks.seconds(timeout),
                                 ctypes.byref(handle))
        self._handle = handle.value  # before check, which may raise though the call succeeded
        check(code)
        worker = ctypes.c_int32()
        check(lib.cairn_worker(self._handle, ctypes.byref(worker)))
        self._worker: Optional[int] = worker.value if worker.value >= 0 else None

    # -- the connection --

    @property
    def handle(self) -> int:
        """The handle for functions of the C library.

        Raises:
            ClosedError: the client is closed."""
        if self._handle is None:
            raise ClosedError(f"client of job '{self._job}' is closed: connect again")
        return self._handle

    @property
    def job(self) -> str:
        """The name under which the servers keep the variables."""
        return self._job

    @property
    def worker(self) -> Optional[int]:
        """The ordinal of this training worker, as `worker` of `cairn.connect`, or None if the
        client is not one."""
        return self._worker

    @property
    def consistency(self) -> str:
        """"async", "ssp" or "sync"."""
        return self._consistency

    @property
    def closed(self) -> bool:
        """Whether the client is closed."""
        return self._handle is None

    @property
    def server_count(self) -> int:
        """The current number of servers."""
        count = ctypes.c_int32()
        check(lib.cairn_server_count(self.handle, ctypes.byref(count)))
        return count.value

    @property
    def position(self) -> bytes:
        """The position stored with this worker's last push that every server had when the client
        connected; empty if there is none. Training resumes exactly after that push."""
        buffer = ctypes.create_string_buffer(1024)
        size = ctypes.c_uint64()
        check(lib.cairn_position(self.handle, buffer, len(buffer), ctypes.byref(size)))
        return buffer.raw[:size.value]

    def close(self) -> None:
        """Closes the connection without waiting for durability. A second call does nothing."""
        handle, self._handle = self._handle, None
        _servers, self._servers = self._servers, None  # may end them, after the connection
        if handle is not None and os.getpid() == self._pid:
            check(lib.cairn_close(handle))

    def leave(self, timeout: Optional[float] = None) -> None:
        """Waits until everything pushed is durable, gives up this worker's lease, and closes."""
        check(lib.cairn_leave(self.handle, _checks.seconds(timeout)))
        self.close()

    def flush(self, timeout: Optional[float] = None) -> None:
        """Waits until everything pushed so far is durable."""
        check(lib.cairn_flush(self.handle, _checks.seconds(timeout)))

    def drop_job(self, timeout: Optional[float] = None) -> None:
        """Deletes the job on every server. No other call of the client may run at the same time."""
        check(lib.cairn_drop_job(self.handle, _checks.seconds(timeout)))

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        if self._handle is None:
            return
        try:
            if kind is None:
                self.leave()
        finally:
            self.close()

    def __del__(self) -> None:
        handle = getattr(self, "_handle", None)
        if handle is not None and os.getpid() == self._pid:
            finalize(lib.cairn_close, handle)

    def __reduce__(self) -> Any:
        raise TypeError(f"client of job '{self._job}' holds connections and cannot be pickled: "
                        "connect in each process")

    def __repr__(self) -> str:
        state = "closed" if self._handle is None else "connected"
        worker = "no worker" if self._worker is None else f"worker {self._worker}"
        return f"<cairn.Client job '{self._job}', {worker}, {state}>"

    # -- variables --

    def variable(self, name: str, shape: Sequence[int], dtype: Any = "float32", *,
                 optimizer: optim.OptimizerLike = "none",
                 initializer: init.InitializerLike = "zeros",
                 touched_rows: Optional[str] = None, shards: Optional[int] = None,
                 timeout: Optional[float] = None) -> Variable:
        """Creates a dense variable, or finds it if it exists with the same description.

        Args:
            name: the variable's name within the job.
            shape: rows run along axis 0; () is a scalar.
            dtype: float32, float64, float16, bfloat16, int32 or int64.
            optimizer: the optimizer that applies pushed gradients; "none" allows no pushes.
            initializer: the initial values.
            touched_rows: "all": a push of some rows gives the other rows a zero gradient, as in
                Keras; "pushed": the other rows do not change. None: "all".
            shards: the number of parts, which are placed on the servers in turn. None: those of
                the variable if it exists; else the client's partitioner decides.
            timeout: seconds; None: the client's own.

        Raises:
            AlreadyExistsError: the variable exists with another description."""
        description: Dict[str, Any] = {
            "name": _checks.text(name, "name"), "shape": _shape(shape),
            "dtype": _arrays.dtype_name(dtype), "optimizer": optim.describe(optimizer),
            "initializer": init.describe(initializer)}
        if touched_rows is not None:
            description["touched_rows"] = _checks.choice(touched_rows, "touched_rows",
                                                         ("all", "pushed"))
        if shards is not None:
            description["shards"] = _checks.integer(shards, "shards", 1, _MOST_SHARDS)
        check(lib.cairn_create(self.handle, _checks.as_json(description),
                               _checks.seconds(timeout)))
        return Variable(self, description)

    def embedding(self, name: str, dim: int, *, optimizer: optim.OptimizerLike,
                  initializer: init.InitializerLike = "zeros", admit_after: int = 1,
                  expire_after: int = 0, max_rows: int = 0,
                  storage: Optional[Mapping[str, str]] = None,
                  timeout: Optional[float] = None) -> Embedding:
        """Creates an embedding table, or finds it if it exists with the same description.

        Args:
            name: the table's name within the job.
            dim: the number of float32 values in a row.
            optimizer: the optimizer that applies pushed gradients.
            initializer: the initial values of rows.
            admit_after: a key gets its row at its n-th push (1 … 255); earlier pushes of the key
                are not applied.
            expire_after: rows that were not pushed for this many seconds are deleted; 0: never.
            max_rows: the largest number of rows in the table; beyond it, rows that were not pushed
                for the longest time are deleted. 0: no limit.
            storage: the formats in which servers store rows, for example {"values": "float16",
                "slots": "bfloat16"}.
            timeout: seconds; None: the client's own.

        Raises:
            AlreadyExistsError: the table exists with another description."""
        description: Dict[str, Any] = {
            "name": _checks.text(name, "name"), "dim": _checks.integer(dim, "dim", 1, _LARGEST_DIM),
            "optimizer": optim.describe(optimizer), "initializer": init.describe(initializer),
            "admit_after_pushes": _checks.integer(admit_after, "admit_after", 1, 255),
            "expire_after_seconds": _checks.integer(expire_after, "expire_after", 0, _LONGEST_LIFE),
            "max_rows": _checks.integer(max_rows, "max_rows", 0)}
        if storage is not None:
            description["row_storage"] = _checks.mapping(storage, "storage")
        check(lib.cairn_create(self.handle, _checks.as_json(description),
                               _checks.seconds(timeout)))
        return Embedding(self, description)

    def variables(self, timeout: Optional[float] = None) -> Dict[str, Union[Variable, Embedding]]:
        """Returns every variable and table of the job by name, including those of other clients."""
        text = ctypes.c_void_p()
        check(lib.cairn_describe(self.handle, _checks.seconds(timeout), ctypes.byref(text)))
        return {d["name"]: Embedding(self, d) if d["kind"] == "embedding" else Variable(self, d)
                for d in json.loads(take_text(text.value))}

    # -- data of several variables in one call --

    def pull(self, pulls: Sequence[Pull], timeout: Optional[float] = None) -> List[Array]:
        """Pulls several variables and tables in one round trip to each server.

        Args:
            pulls: the parts to pull. A part is a variable, (variable, rows) or (table, keys). A
                third element is the memory for the result: (variable, rows or None, out) or (table,
                keys, out).
            timeout: seconds; None: the client's own.

        Returns:
            One array for each part, in order."""
        items, kept, results = prepare_pulls(self, pulls)
        check(lib.cairn_pull(self.handle, items, len(kept), _checks.seconds(timeout)))
        return results

    def push(self, pushes: Sequence[Push], position: Union[bytes, str] = b"",
             timeout: Optional[float] = None) -> None:
        """Applies gradients of several variables and tables as one update.

        Args:
            pushes: the parts of the update. A part is (variable, gradient), (variable, rows,
                gradients) or (table, keys, gradients). Each variable or table may be in one part.
            position: at most 512 bytes that the servers store with a worker's push, so that a
                restart can resume after it. Without one the stored position stays, and a restart
                repeats this update. An empty update stores none.
            timeout: seconds; None: the client's own.

        After UnavailableError, DeadlineExceededError or an interruption, a worker may not know
        which servers have the push; its later pushes, steps and assigns then fail with
        FailedPreconditionError. Close the client, connect again as the same worker, and resume at
        `Client.position`: servers skip the repeated pushes that they have applied.

        Pushes of a client with worker=None have no sequence numbers and are not applied exactly
        once: a server may have applied a push that failed, and loses a push that was not yet
        durable when it was killed."""
        items, kept = prepare_pushes(self, pushes)
        stored = _checks.position(position)
        check(lib.cairn_push(self.handle, items, len(kept), stored,
                             len(stored), _checks.seconds(timeout)))

    def push_pull(self, pushes: Sequence[Push], pulls: Sequence[Pull],
                  position: Union[bytes, str] = b"",
                  timeout: Optional[float] = None) -> List[Array]:
        """Pushes and then pulls, in one round trip to each server. The pull sees the push.

        Arguments as for `push` and `pull`. After an error, as after `push`."""
        sources, kept = prepare_pushes(self, pushes)
        targets, held, results = prepare_pulls(self, pulls)
        stored = _checks.position(position)
        check(lib.cairn_push_pull(self.handle, sources, len(kept), stored,
                                  len(stored), targets, len(held),
                                  _checks.seconds(timeout)))
        return results

    def assign(self, pushes: Sequence[Push], timeout: Optional[float] = None) -> None:
        """Overwrites values instead of applying gradients.

        Args:
            pushes: parts as for `push`, with values in place of gradients, and without repeated
                rows or keys.
            timeout: seconds; None: the client's own."""
        items, kept = prepare_pushes(self, pushes)
        check(lib.cairn_assign(self.handle, items, len(kept), _checks.seconds(timeout)))

    def step(self, pushes: Sequence[Push], pulls: Sequence[Pull], *,
             position: Union[bytes, str] = b"", rows: int = 1,
             timeout: Optional[float] = None) -> List[Array]:
        """Takes a worker's next training step: pushes the gradients of the previous step, waits for
        other workers as far as the consistency requires, and pulls the values of the next step.

        Args:
            pushes: the gradients of the previous step, as for `push`; [] in the first step.
            pulls: the values to pull, as for `pull`.
            position: stored with the push, as for `push`.
            rows: the number of input rows behind the gradients. With consistency="sync" it is this
                worker's weight in the mean.
            timeout: seconds; None: the client's own.

        Returns:
            One array for each part of `pulls`, in order.

        After UnavailableError, DeadlineExceededError or an interruption, as after `push`."""
        sources, kept = prepare_pushes(self, pushes)
        targets, held, results = prepare_pulls(self, pulls)
        stored = _checks.position(position)
        check(lib.cairn_step(self.handle, sources, len(kept), stored,
                             len(stored), targets, len(held), _checks.integer(rows, "rows", 1),
                             _checks.seconds(timeout)))
        return results

    def end_step(self, pushes: Sequence[Push], *, position: Union[bytes, str] = b"",
                 rows: int = 1, timeout: Optional[float] = None) -> None:
        """Pushes the gradients of the last step, after which no `step` follows. Arguments as
        `step`."""
        items, kept = prepare_pushes(self, pushes)
        stored = _checks.position(position)
        check(lib.cairn_end_step(self.handle, items, len(kept), stored,
                                 len(stored), _checks.integer(rows, "rows", 1),
                                 _checks.seconds(timeout)))

    def end_steps(self, timeout: Optional[float] = None) -> None:
        """Announces that this worker takes no more steps, so that other workers do not wait for
        it."""
        check(lib.cairn_end_steps(self.handle, _checks.seconds(timeout)))

    def largest_step_gap(self, timeout: Optional[float] = None) -> int:
        """Returns the largest number of steps by which this worker was ahead of the slowest
        other worker."""
        steps = ctypes.c_int64()
        check(lib.cairn_largest_step_gap(self.handle, _checks.seconds(timeout),
                                         ctypes.byref(steps)))
        return steps.value

    # -- checkpoints and statistics --

    def checkpoint(self, directory: Union[str, os.PathLike[str]], *, step: int = 0,
                   keep: int = 0) -> str:
        """Makes a checkpoint of the job. Takes at most 10 minutes.

        Args:
            directory: a path that is valid on every server's host. The checkpoint becomes a new
                directory in it.
            step: becomes part of the new directory's name.
            keep: how many of the job's checkpoints to keep in `directory`; older ones are deleted.
                0: all.

        Returns:
            The checkpoint's directory. `cairn.load`, `cairnctl` and `cairn-worker` can read it."""
        made = ctypes.c_void_p()
        path = os.path.abspath(_checks.path(directory, "directory"))
        check(lib.cairn_checkpoint(self.handle, os.fsencode(path), _checks.integer(step, "step", 0),
                                   _checks.integer(keep, "keep", 0), ctypes.byref(made)))
        return take_text(made.value)

    def restore(self, directory: Union[str, os.PathLike[str]]) -> None:
        """Replaces the job's state by a checkpoint. The client must not be a training worker.

        Args:
            directory: the checkpoint's directory."""
        path = os.path.abspath(_checks.path(directory, "directory"))
        check(lib.cairn_restore(self.handle, os.fsencode(path)))

    def counters(self) -> Counters:
        """Returns what the client has sent and received since it connected."""
        raw = RawCounters()
        check(lib.cairn_counters(self.handle, ctypes.byref(raw)))
        return Counters(*[getattr(raw, name) for name in Counters._fields])

    def staleness(self) -> Staleness:
        """Returns how stale this client's pushes were."""
        raw = RawStaleness()
        check(lib.cairn_staleness(self.handle, ctypes.byref(raw)))
        return Staleness(raw.mean, raw.p99, raw.max)


ClusterLike = Union[str, "os.PathLike[str]", Sequence[str], Mapping[str, Any], None]


def _servers(cluster: ClusterLike) -> Dict[str, Any]:
    if cluster is None:
        if not os.environ.get("TF_CONFIG"):
            raise InvalidArgumentError("cluster is None and the environment variable TF_CONFIG is "
                                       f"not set; expected {_EXPECTED_CLUSTER}")
        return {}
    if isinstance(cluster, Mapping):
        found = _checks.mapping(cluster, "cluster")
        if "cluster" in found or "task" in found:
            return {k: found[k] for k in ("cluster", "task") if k in found}
        return {"cluster": found}
    if isinstance(cluster, (str, os.PathLike)):
        text = _checks.path(cluster, "cluster", _EXPECTED_CLUSTER)
        if text.lstrip().startswith("{"):
            try:
                return _servers(json.loads(text))
            except (ValueError, RecursionError) as error:
                raise InvalidArgumentError(f"cluster is {_checks.shown(text)}, which is no JSON: "
                                           f"{error}; expected {_EXPECTED_CLUSTER}") from None
        return {"cluster_file": os.path.abspath(text)}
    servers = _checks.items(cluster, "cluster", _EXPECTED_CLUSTER)
    if not servers:
        raise _checks.unfit("cluster", cluster, 'at least one "host:port"')
    return {"servers": [_checks.text(server, f"cluster[{i}]", 'a text "host:port"')
                        for i, server in enumerate(servers)]}


def _security(tls: Any, token_file: Any, allow_plaintext: Any) -> Dict[str, Any]:
    security: Dict[str, Any] = {}
    if tls is not None:
        names = ("tls_certificate", "tls_key", "tls_ca")
        expected = "three paths: the certificate, its private key and the CA"
        files = _checks.items(tls, "tls", expected)
        if len(files) != len(names):
            raise _checks.unfit("tls", tls, expected)
        security = {name: _checks.path(file, f"tls[{i}]")
                    for i, (name, file) in enumerate(zip(names, files))}
    if token_file is not None:
        security["token_file"] = _checks.path(token_file, "token_file")
    if _checks.flag(allow_plaintext, "allow_plaintext"):
        security["allow_plaintext"] = True
    return security


def connect(cluster: ClusterLike = None, *, job: str = "default",
            worker: Union[int, str, None] = None, workers: Optional[int] = None,
            consistency: str = "async", staleness_bound_steps: Optional[int] = None,
            replicas_to_aggregate: Optional[int] = None, sync_mean: Optional[str] = None,
            on_worker_loss: Optional[str] = None, ps_wait_seconds: Optional[float] = None,
            partitioner: Union[str, Mapping[str, Any], None] = None, not_finite: str = "reject",
            tls: Optional[Tuple[str, str, str]] = None, token_file: Optional[str] = None,
            allow_plaintext: bool = False, rpc_timeout_seconds: Optional[float] = None,
            retained_bytes: Optional[int] = None, local_transport: Optional[str] = None,
            timeout: Optional[float] = None) -> Client:
    """Connects to the parameter servers of a cluster.

    Args:
        cluster: a cluster file ("cluster.yaml"), the text of a TF_CONFIG, a list of "host:port", or
            a dictionary {"ps": [...], "worker": [...]}. None: the environment variable TF_CONFIG.
        job: the name under which the servers keep the variables.
        worker: None: not a training worker; its pushes are not numbered, so they may fail after a
            lost connection. A number: the ordinal of this training worker, whose pushes are applied
            exactly once: the chief, if the cluster has one, is 0, and the workers follow. "auto":
            the ordinal of the task of the cluster file or TF_CONFIG.
        workers: the number of workers with which the job starts; "sync" waits for all of them.
            None: the training tasks of the cluster. "sync" with a list of addresses needs it, or
            replicas_to_aggregate.
        consistency: "async", "ssp" (at most staleness_bound_steps apart) or "sync"; see
            Client.step. "ssp" and "sync" need `worker`.
        staleness_bound_steps: for "ssp", how many steps a worker may be ahead of the slowest one.
        replicas_to_aggregate: for "sync", how many contributions a step needs; None: all workers'.
        sync_mean: for "sync", what weights a contribution, as in a job file's strategy.sync_mean.
        on_worker_loss: "continue" without a lost worker, or "fail".
        ps_wait_seconds: how long calls wait for a server that is gone; None: 60.
        partitioner: how dense variables are split, as in a job file's strategy.partitioner.
        not_finite: "reject" pushes with NaN or infinity, or "skip" them.
        tls: the files of the certificate, its private key and the CA.
        token_file: the file of the token.
        allow_plaintext: send the token to other hosts without TLS.
        rpc_timeout_seconds: how long one attempt of a call may take; None: 30.
        retained_bytes: how many bytes of pushes a worker keeps until they are durable; pushes wait
            beyond that. None: 1 GiB.
        local_transport: "auto": shared memory with servers on this host that run as the same user;
            "any_user": also as other users; "off": TCP. None: "auto".
        timeout: seconds for this call.

    Raises:
        InvalidArgumentError: an argument is wrong, or no cluster is given.
        UnavailableError: a server cannot be reached."""
    strategy: Dict[str, Any] = {
        "consistency": _checks.choice(consistency, "consistency", ("async", "ssp", "sync"))}
    description: Dict[str, Any] = {
        **_servers(cluster), "job": _checks.text(job, "job"), "strategy": strategy,
        "not_finite": _checks.choice(not_finite, "not_finite", ("reject", "skip"))}
    if worker is not None:
        description["worker"] = worker if isinstance(worker, str) and worker == "auto" else (
            _checks.integer(worker, "worker", 0, _checks.MOST_WORKERS,
                            'the index of a worker, "auto", or None'))

    def put(section: Dict[str, Any], check_argument: Any, name: str, value: Any,
            *allowed: Any, **named: Any) -> None:
        if value is not None:
            section[name] = check_argument(value, name, *allowed, **named)

    seconds = {"high": _checks.LONGEST_SECONDS, "above": 0}
    put(description, _checks.integer, "workers", workers, 1, _checks.MOST_WORKERS)
    put(strategy, _checks.integer, "staleness_bound_steps", staleness_bound_steps, 0)
    put(strategy, _checks.integer, "replicas_to_aggregate", replicas_to_aggregate, 0,
        _checks.MOST_WORKERS)
    put(strategy, _checks.choice, "sync_mean", sync_mean, ("rows", "contributors"))
    put(strategy, _checks.choice, "on_worker_loss", on_worker_loss, ("continue", "fail"))
    put(strategy, _checks.number, "ps_wait_seconds", ps_wait_seconds, **seconds)
    put(strategy, _checks.text if isinstance(partitioner, str) else _checks.mapping,
        "partitioner", partitioner)
    put(description, _checks.number, "rpc_timeout_seconds", rpc_timeout_seconds, **seconds)
    put(description, _checks.integer, "retained_bytes", retained_bytes, 0)
    put(description, _checks.choice, "local_transport", local_transport,
        ("auto", "any_user", "off"))
    security = _security(tls, token_file, allow_plaintext)
    if security:
        description["security"] = security
    return Client(description, timeout)


__all__ = ["Client", "Counters", "Staleness", "Stored", "connect"]
