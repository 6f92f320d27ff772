"""PyTorch modules whose rows and parameters live on the servers.

    table = cairn.torch.EmbeddingBag(client, "words", 16, optimizer=cairn.optim.Adagrad(0.1))
    model = torch.nn.Sequential(...)              # uses table
    optimizer = cairn.torch.ServerOptimizer(model, client, optimizer=cairn.optim.Adam(1e-3))
    for batch in cairn.torch.prefetch(loader, {table: lambda batch: batch.keys}):
        loss = ...
        optimizer.zero_grad()
        loss.backward()
        optimizer.step(position=str(batch.number))

Modules compute on the CPU or on the device of their keys; rows travel through this host's memory.
Needs PyTorch 1.13 or newer; this package links nothing of it."""
from __future__ import annotations

import threading
import time
from typing import (
    Any,
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
    Union,
)

import numpy as np
import torch

from cairn import init, optim, variables
from cairn.client import Client
from cairn.errors import DeadlineExceededError, InvalidArgumentError

_READY_SECONDS = 120.0


class _Looked(NamedTuple):
    """The rows of a batch's keys."""

    keys: Any  # the tensor that was asked for
    unique: Any  # [n] int64, without padding
    inverse: Any  # shape of keys: index of each key's row
    rows: Any  # [n, dim], and one zero row more where there is padding


class _Table(torch.nn.Module):
    """Rows by key: pulled in forward; their gradients are pushed in backward, or kept for the
    ServerOptimizer that has adopted the module."""

    def __init__(self, client: Client, name: str, dim: int, *, optimizer: optim.OptimizerLike,
                 initializer: init.InitializerLike = "glorot_uniform",
                 padding_idx: Optional[int] = None, **rules: Any) -> None:
        super().__init__()
        self.table: variables.Embedding = client.embedding(
            name, dim, optimizer=optimizer, initializer=initializer, **rules)
        self.padding_idx = padding_idx
        self._deferred = False
        self._gradients: List[Tuple[Any, Any]] = []
        self._ahead: Optional[_Looked] = None

    @property
    def dim(self) -> int:
        """Values of a row."""
        return self.table.dim

    def extra_repr(self) -> str:
        """For repr(module)."""
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"'{self.table.name}', {self.table.dim}{padding}"

    def _index(self, keys: Any) -> Tuple[Any, Any]:
        """Distinct keys without padding, and for each key the index of its row."""
        if keys.dtype.is_floating_point or keys.dtype.is_complex or keys.dtype == torch.bool:
            raise InvalidArgumentError(
                f"keys of '{self.table.name}' are {keys.dtype}; expected integers")
        unique, inverse = torch.unique(keys.detach().cpu().long(), return_inverse=True)
        if self.padding_idx is None:
            return unique, inverse
        kept = unique != self.padding_idx
        if bool(kept.all()):
            return unique, inverse
        # Padding has the last row, which is zero and stays here.
        places = torch.cumsum(kept, 0) - 1
        places[~kept] = kept.sum()
        return unique[kept], places[inverse]

    def _memory(self, unique: Any, inverse: Any) -> Any:
        has_padding = bool(inverse.numel()) and int(inverse.max()) == len(unique)
        rows = torch.empty(len(unique) + int(has_padding), self.table.dim)
        if has_padding:
            rows[-1] = 0
        return rows

    def _look_up(self, keys: Any) -> _Looked:
        ahead, self._ahead = self._ahead, None
        if ahead is not None and (ahead.keys is keys or (
                ahead.keys.shape == keys.shape and torch.equal(ahead.keys, keys))):
            return ahead
        unique, inverse = self._index(keys)
        rows = self._memory(unique, inverse)
        self.table.pull(unique, out=rows[:len(unique)])
        return _Looked(keys, unique, inverse, rows)

    def _differentiable(self, looked: _Looked) -> Any:
        rows, unique = looked.rows, looked.unique
        if torch.is_grad_enabled() and len(unique) > 0:
            rows = rows.detach().requires_grad_()
            rows.register_hook(lambda gradient: self._take(unique, gradient[:len(unique)]))
        return rows.to(looked.keys.device)

    def _take(self, unique: Any, gradient: Any) -> None:
        gradient = gradient.detach().cpu().contiguous()
        if self._deferred:
            self._gradients.append((unique, gradient))
        else:
            self.table.push(unique, gradient)

    def take_gradients(self) -> List[Tuple[variables.Embedding, Any, Any]]:
        """The gradients of the backward passes since the last call, as a part of Client.push. A
        push takes a variable once, so those of several passes are joined."""
        kept, self._gradients = self._gradients, []
        if not kept:
            return []
        keys = torch.cat([unique for unique, _ in kept])
        return [(self.table, keys, torch.cat([gradient for _, gradient in kept]))]


class Embedding(_Table):
    """torch.nn.Embedding with rows on the servers, by any 64-bit keys.

    Rows of `padding_idx` are zero and get no gradient. Further arguments are those of
    Client.embedding: initializer, admit_after, expire_after, max_rows, storage."""

    def forward(self, keys: Any) -> Any:
        """keys: integers of any shape. Returns keys.shape + (dim,) float32."""
        looked = self._look_up(keys)
        rows = self._differentiable(looked)
        return torch.nn.functional.embedding(looked.inverse.to(keys.device), rows)


class EmbeddingBag(_Table):
    """torch.nn.EmbeddingBag with rows on the servers: sums or means of rows without the rows."""

    def __init__(self, client: Client, name: str, dim: int, *, optimizer: optim.OptimizerLike,
                 mode: str = "mean", include_last_offset: bool = False, **arguments: Any) -> None:
        if mode not in ("sum", "mean"):
            raise InvalidArgumentError(f"mode is {mode!r}; expected sum or mean")
        super().__init__(client, name, dim, optimizer=optimizer, **arguments)
        self.mode = mode
        self.include_last_offset = include_last_offset

    def forward(self, keys: Any, offsets: Any = None, per_sample_weights: Any = None) -> Any:
        """keys: [bags, size], or [n] with `offsets` [bags], where each bag begins.
        per_sample_weights: shape of keys, for mode sum. Returns [bags, dim] float32."""
        looked = self._look_up(keys)
        rows = self._differentiable(looked)
        padding = len(looked.unique) if len(rows) > len(looked.unique) else None
        return torch.nn.functional.embedding_bag(
            looked.inverse.to(keys.device), rows, offsets, mode=self.mode,
            per_sample_weights=per_sample_weights, include_last_offset=self.include_last_offset,
            padding_idx=padding)


def _named(params: Any) -> List[Tuple[str, Any]]:
    if isinstance(params, torch.nn.Module):
        return list(params.named_parameters())
    return [(str(p[0]), p[1]) if isinstance(p, tuple) else (str(i), p)
            for i, p in enumerate(params)]


class ServerOptimizer:
    """Dense parameters on the servers: their optimizer runs there, and step() brings the values.

    params: a module (its parameters, and the tables in it), parameters, or named parameters.
    client: of a training worker. With consistency async a step is one push and pull; with ssp and
        sync it is Client.step, which waits for the other workers.
    optimizer: of every parameter. name: precedes the parameters' names on the servers.
    tables: further Embedding and EmbeddingBag modules whose gradients step() pushes.

    The first worker's initial values are the parameters' values; the others wait for them. A
    restarted job continues from the servers' values; Client.position says after which step."""

    def __init__(self, params: Any, client: Client, *, optimizer: optim.OptimizerLike,
                 name: str = "dense", tables: Sequence[_Table] = ()) -> None:
        self._client = client
        self._parameters = [p for _, p in _named(params)]
        modules = list(params.modules()) if isinstance(params, torch.nn.Module) else []
        self._tables = [m for m in [*modules, *tables] if isinstance(m, _Table)]
        for table in self._tables:
            table._deferred = True
        for label, parameter in _named(params):
            if parameter.dtype != torch.float32 or parameter.device.type != "cpu":
                raise InvalidArgumentError(
                    f"parameter '{label}' is {parameter.dtype} on {parameter.device}; "
                    "ServerOptimizer keeps float32 parameters of the CPU")
        self._variables = [
            client.variable(f"{name}/{label}", tuple(p.shape), optimizer=optimizer)
            for label, p in _named(params)]
        self._initialize(f"{name}/ready")
        self._waits = client.consistency != "async"
        pulls = self._pulls()
        if self._waits:
            client.step([], pulls)
        elif pulls:
            client.pull(pulls)

    def _pulls(self) -> List[Tuple[Any, ...]]:
        return [(v, None, p.data) for v, p in zip(self._variables, self._parameters)]

    def _initialize(self, flag_name: str) -> None:
        flag = self._client.variable(flag_name, (), "int32")
        if int(flag[...]) == 1:
            return
        if self._client.worker in (None, 0):
            for variable, parameter in zip(self._variables, self._parameters):
                variable.assign(parameter.data.contiguous())
            flag.assign(np.int32(1))
            return
        deadline = time.monotonic() + _READY_SECONDS
        pause = threading.Event()
        while int(flag[...]) != 1:
            if time.monotonic() > deadline:
                raise DeadlineExceededError(
                    f"worker {self._client.worker} of job '{self._client.job}' waited "
                    f"{_READY_SECONDS:.0f} s for worker 0 to assign initial values")
            pause.wait(0.02)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets the gradients of parameters and tables."""
        for parameter in self._parameters:
            if set_to_none:
                parameter.grad = None
            elif parameter.grad is not None:
                parameter.grad.zero_()
        for table in self._tables:
            table.take_gradients()

    def step(self, *, position: Union[bytes, str] = b"", rows: int = 1) -> None:
        """Pushes all gradients as one update and pulls the parameters. `position` is stored with
        the update; `rows` of input weigh this worker's part of a synchronous mean."""
        pushes: List[Tuple[Any, ...]] = [
            (v, p.grad) for v, p in zip(self._variables, self._parameters) if p.grad is not None]
        for table in self._tables:
            pushes.extend(table.take_gradients())
        if self._waits:
            self._client.step(pushes, self._pulls(), position=position, rows=rows)
        else:
            self._client.push_pull(pushes, self._pulls(), position)

    def finish(self) -> None:
        """Takes no more steps, so that other workers do not wait for this one."""
        if self._waits:
            self._client.end_steps()

    def __repr__(self) -> str:
        return (f"<cairn.torch.ServerOptimizer of {len(self._variables)} parameters and "
                f"{len(self._tables)} tables>")


KeysOf = Callable[[Any], Any]


def _pull_ahead(keys_of: Mapping[_Table, KeysOf], batch: Any) -> Dict[_Table, _Looked]:
    looked, pulls = {}, []
    for module, keys_of_batch in keys_of.items():
        keys = keys_of_batch(batch)
        unique, inverse = module._index(keys)
        rows = module._memory(unique, inverse)
        pulls.append((module.table, unique, rows[:len(unique)]))
        looked[module] = _Looked(keys, unique, inverse, rows)
    if pulls:
        next(iter(keys_of)).table.client.pull(pulls)
    return looked


class _Ahead(threading.Thread):
    """Pulls the rows of one batch."""

    def __init__(self, keys_of: Mapping[_Table, KeysOf], batch: Any) -> None:
        super().__init__(name="cairn prefetch", daemon=True)
        self._keys_of, self._batch = keys_of, batch
        self._looked: Dict[_Table, _Looked] = {}
        self._error: Optional[BaseException] = None

    def run(self) -> None:
        try:
            self._looked = _pull_ahead(self._keys_of, self._batch)
        except BaseException as error:
            self._error = error

    def hand_over(self) -> Any:
        """The batch, after its rows are in its modules."""
        self.join()
        if self._error is not None:
            raise self._error
        for module, looked in self._looked.items():
            module._ahead = looked
        return self._batch


def prefetch(batches: Iterable[Any], keys_of: Mapping[_Table, KeysOf]) -> Iterator[Any]:
    """Yields `batches`; while the program computes one, a thread pulls the next one's rows, all
    tables in one call.

    keys_of: for each module a function from a batch to the keys that forward will get. Rows miss
    the updates of the step during which they were pulled, as with pull_ahead_steps: 1."""
    ahead: Optional[_Ahead] = None
    for batch in batches:
        following = _Ahead(keys_of, batch)
        if ahead is None:
            following.start()
            ahead = following
            continue
        ready = ahead.hand_over()
        following.start()
        ahead = following
        yield ready
    if ahead is not None:
        yield ahead.hand_over()


__all__ = ["Embedding", "EmbeddingBag", "ServerOptimizer", "prefetch"]
