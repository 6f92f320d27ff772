"""PyTorch modules whose rows and parameters live on the servers.

    table = cairn.torch.EmbeddingBag(client, "words", 16, optimizer=cairn.optim.Adagrad(0.1))
    model = torch.nn.Sequential(...)              # uses table
    optimizer = cairn.torch.ServerOptimizer(model, client, optimizer=cairn.optim.Adam(1e-3))
    for batch in cairn.torch.prefetch(loader, {table: lambda batch: batch.keys}):
        loss = ...
        optimizer.zero_grad()
        loss.backward()
        optimizer.step(position=str(batch.number))

Modules compute on the device of their keys, and parameters may be on any device. Rows, values and
gradients go through this host's memory, which is page-locked for GPUs.
Requires PyTorch 1.13 or newer. The package itself does not link PyTorch."""
from __future__ import annotations

import math
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

from cairn import _checks, init, optim, variables
from cairn.client import Client
from cairn.errors import (
    DeadlineExceededError,
    FailedPreconditionError,
    InvalidArgumentError,
    UnimplementedError,
)

_READY_SECONDS = 120.0
# Small enough not to matter in a norm that includes it, and a power of two, so that products with
# it are exact.
_SCALE_UNIT = 2.0**-40


def _check_client(client: Any) -> Client:
    if not isinstance(client, Client):
        raise _checks.mistyped("client", client, "the result of cairn.connect")
    return client


def _check_tensor(value: Any, what: str, expected: str) -> Any:
    if not isinstance(value, torch.Tensor):
        raise _checks.mistyped(what, value, expected)
    if value.layout != torch.strided:
        raise InvalidArgumentError(f"{what} is sparse ({value.layout}); expected {expected}, dense")
    return value


class _Scale:
    """What torch's utilities multiply the gradients of an optimizer by, for gradients that they
    cannot see. GradScaler and clip_grad_norm_ scale `parameter.grad` like every other gradient, and
    a GradScaler skips the step if it is not finite."""

    def __init__(self, device: Any) -> None:
        self._device = device  # None: that of the first keys
        self.parameter = torch.nn.Parameter(torch.zeros((), device=device))

    def note(self, gradient: Any, device: Any) -> None:
        """Takes account of one more hidden gradient; `device`: where the model computes it."""
        if self._device is None:
            self._device = device
            self.parameter.data = self.parameter.data.to(device)
        if not bool(torch.isfinite(gradient.sum())):
            self._set(math.inf)
        elif self.parameter.grad is None:
            self.reset()

    def reset(self) -> None:
        """Begins again, at a factor of 1."""
        self._set(_SCALE_UNIT)

    def _set(self, value: float) -> None:
        self.parameter.grad = torch.full_like(self.parameter.data, value)

    def take(self) -> Optional[float]:
        """Returns the factor of the hidden gradients and forgets it. None: they were cleared."""
        gradient, self.parameter.grad = self.parameter.grad, None
        return None if gradient is None else float(gradient) / _SCALE_UNIT


class _Looked(NamedTuple):
    """The rows of a batch's keys."""

    keys: Any  # the tensor that was asked for
    pulled: Any  # [n] int64, without padding; repeats where the table combines them
    places: Any  # Embedding: which of the flat keys have rows, None: all; EmbeddingBag: each row
    rows: Any  # [n, dim]; EmbeddingBag: and one zero row more where there is padding


class _Pulled(torch.autograd.Function):
    """Passes rows on in the graph, and their gradient to the module. `anchor` is a tensor that
    needs a gradient; without one, autograd would not call backward."""

    @staticmethod
    def forward(ctx: Any, anchor: Any, module: _Table, looked: _Looked, rows: Any) -> Any:
        ctx.module, ctx.looked = module, looked
        return rows

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        ctx.module._take(ctx.looked, gradient)
        return None, None, None, None


class _Table(torch.nn.Module):
    """A module that pulls rows by key in forward. Backward pushes their gradients, or keeps them
    for the ServerOptimizer that has adopted the module."""

    _combines_repeats = False

    def __init__(self, client: Client, name: str, dim: int, *, optimizer: optim.OptimizerLike,
                 initializer: init.InitializerLike = "glorot_uniform",
                 padding_idx: Optional[int] = None, **rules: Any) -> None:
        super().__init__()
        if padding_idx is not None:
            padding_idx = _checks.integer(padding_idx, "padding_idx", -_checks.MOST_INT64 - 1)
        self.table: variables.Embedding = _check_client(client).embedding(
            name, dim, optimizer=optimizer, initializer=initializer, **rules)
        self.table.combines_repeats = self._combines_repeats
        self.padding_idx = padding_idx
        self._scale: Optional[_Scale] = None  # of the ServerOptimizer that pushes the gradients
        self._gradients: List[Tuple[Any, Any]] = []
        self._ahead: Optional[_Looked] = None
        self._anchor = torch.zeros((), requires_grad=True)

    @property
    def dim(self) -> int:
        """The number of values in a row."""
        return self.table.dim

    def extra_repr(self) -> str:
        """Returns the part of repr(module) between the parentheses."""
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"'{self.table.name}', {self.table.dim}{padding}"

    def _prepare(self, keys: Any) -> _Looked:
        """Returns the keys to pull, and memory for their rows."""
        raise NotImplementedError

    def _rows(self, count: int, keys: Any) -> Any:
        return torch.empty(count, self.table.dim, pin_memory=keys.is_cuda)

    def _flat(self, keys: Any) -> Any:
        _check_tensor(keys, "keys", "a tensor of integers")
        if keys.dtype.is_floating_point or keys.dtype.is_complex or keys.dtype == torch.bool:
            raise InvalidArgumentError(
                f"keys of '{self.table.name}' are {keys.dtype}; expected integers")
        return keys.detach().cpu().long().reshape(-1)

    def _look_up(self, keys: Any) -> _Looked:
        ahead, self._ahead = self._ahead, None
        _check_tensor(keys, "keys", "a tensor of integers")
        if ahead is not None and (ahead.keys is keys or (
                ahead.keys.shape == keys.shape and
                torch.equal(self._flat(ahead.keys), self._flat(keys)))):
            return ahead._replace(keys=keys)  # the loop may have moved them to another device
        looked = self._prepare(keys)
        self.table.pull(looked.pulled, out=looked.rows[:len(looked.pulled)])
        return looked

    def _differentiable(self, looked: _Looked, rows: Any) -> Any:
        if torch.is_grad_enabled() and len(looked.pulled) > 0:
            rows = _Pulled.apply(self._anchor, self, looked, rows)
        return rows.to(looked.keys.device, non_blocking=True)

    def _gradient(self, looked: _Looked, gradient: Any) -> Any:
        """Returns the gradient of the pulled rows, given that of the rows in the graph."""
        return gradient[:len(looked.pulled)]

    def _take(self, looked: _Looked, gradient: Any) -> None:
        gradient = self._gradient(looked, gradient.detach().cpu()).contiguous()
        if self._scale is None:
            self.table.push(looked.pulled, gradient)
        else:
            self._gradients.append((looked.pulled, gradient))
            self._scale.note(gradient, looked.keys.device)

    def take_gradients(self) -> List[Tuple[variables.Embedding, Any, Any]]:
        """Returns the gradients of all backward passes since the last call, as parts for
        Client.push, and forgets them. The gradients of several passes are joined, because a push
        may name a table only once."""
        kept, self._gradients = self._gradients, []
        if not kept:
            return []
        if len(kept) == 1:
            return [(self.table, *kept[0])]
        keys = torch.cat([pulled for pulled, _ in kept])
        return [(self.table, keys, torch.cat([gradient for _, gradient in kept]))]


    def _sum_repeats(self) -> Any:
        """Sums the kept gradients of each key, as one pass. Returns their norm."""
        parts = self.take_gradients()
        if not parts:
            return torch.zeros(())
        (_, keys, gradient), = parts
        unique, places = torch.unique(keys, return_inverse=True)
        sums = torch.zeros(len(unique), self.table.dim).index_add_(0, places, gradient)
        self._gradients = [(unique, sums)]
        return sums.norm()

    def _multiply(self, factor: float) -> None:
        """Multiplies the kept gradients."""
        self._gradients = [(keys, gradient * factor) for keys, gradient in self._gradients]


class Embedding(_Table):
    """torch.nn.Embedding with rows on the servers. Keys are any 64-bit integers; a key gets its row
    when it is first pushed, so there is no num_embeddings.

    Args:
        client: the connection to the servers.
        name: the table's name within the job.
        dim: the number of values in a row.
        optimizer: the optimizer that applies gradients on the servers.
        initializer: the initial values of rows; by default "glorot_uniform".
        padding_idx: a key whose rows are zero and get no gradient.
        rules: admit_after, expire_after, max_rows and storage, as for Client.embedding.

    The gradients of a backward pass are pushed in `backward`, or by ServerOptimizer.step if the
    module belongs to a ServerOptimizer: the last one that was made with it. What is pushed in
    `backward` has the scale of a GradScaler and is not clipped: such a table needs a
    ServerOptimizer, which may have no parameters (`ServerOptimizer([], client, tables=[table],
    optimizer="sgd")`). `clipvalue` and `clipnorm` of the table's own optimizer work in every
    case."""

    # The client copies rows to repeated keys and sums their gradients, at a tenth of the cost of
    # torch.unique and of the backward pass of torch.nn.functional.embedding.
    _combines_repeats = True

    def _prepare(self, keys: Any) -> _Looked:
        flat, kept = self._flat(keys), None
        if self.padding_idx is not None:
            kept = flat != self.padding_idx
            flat, kept = (flat, None) if bool(kept.all()) else (flat[kept], kept)
        return _Looked(keys, flat, kept, self._rows(len(flat), keys))

    def _gradient(self, looked: _Looked, gradient: Any) -> Any:
        gradient = gradient.reshape(-1, self.table.dim)
        return gradient if looked.places is None else gradient[looked.places]

    def forward(self, keys: Any) -> Any:
        """Looks up rows.

        Args:
            keys: integers of any shape.

        Returns:
            A float32 tensor of shape keys.shape + (dim,), on the device of `keys`."""
        looked = self._look_up(keys)
        rows = looked.rows
        if looked.places is not None:
            rows = torch.zeros(len(looked.places), self.table.dim)
            rows[looked.places] = looked.rows
        return self._differentiable(looked, rows.reshape(*keys.shape, self.table.dim))


class EmbeddingBag(_Table):
    """torch.nn.EmbeddingBag with rows on the servers: sums, means or maxima of bags of rows.

    Args:
        mode: "sum", "mean" or "max".
        include_last_offset: whether `offsets` ends with the number of keys, as in PyTorch.

    The other arguments are those of `Embedding`."""

    def __init__(self, client: Client, name: str, dim: int, *, optimizer: optim.OptimizerLike,
                 mode: str = "mean", include_last_offset: bool = False, **arguments: Any) -> None:
        _checks.choice(mode, "mode", ("sum", "mean", "max"))
        _checks.flag(include_last_offset, "include_last_offset")
        super().__init__(client, name, dim, optimizer=optimizer, **arguments)
        self.mode = mode
        self.include_last_offset = include_last_offset

    def _prepare(self, keys: Any) -> _Looked:
        unique, inverse = torch.unique(self._flat(keys), return_inverse=True)
        inverse = inverse.reshape(keys.shape)
        kept = unique != self.padding_idx if self.padding_idx is not None else None
        if kept is None or bool(kept.all()):
            return _Looked(keys, unique, inverse, self._rows(len(unique), keys))
        # Padding has the last row, which is zero and stays here.
        places = torch.cumsum(kept, 0) - 1
        places[~kept] = kept.sum()
        rows = self._rows(len(unique), keys)
        rows[-1] = 0
        return _Looked(keys, unique[kept], places[inverse], rows)

    def _check_bags(self, keys: Any, offsets: Any, weights: Any) -> None:
        """Raises InvalidArgumentError unless the arguments of `forward` fit each other."""
        _check_tensor(keys, "keys", "a tensor of integers")
        if keys.dim() != (2 if offsets is None else 1):
            raise InvalidArgumentError(
                f"keys has shape {list(keys.shape)} and offsets is "
                f"{'None' if offsets is None else 'given'}; expected keys [bags, size] alone, or "
                "keys [n] with offsets")
        if offsets is None and keys.shape[1] == 0:
            raise InvalidArgumentError(
                f"keys has shape {list(keys.shape)}; expected [bags, size] of size at least 1, as "
                "for torch.nn.EmbeddingBag; keys [0] with offsets give bags without keys")
        if offsets is not None:
            _check_tensor(offsets, "offsets", "a tensor of integers")
            if offsets.dtype not in (torch.int64, torch.int32) or offsets.dim() != 1:
                raise InvalidArgumentError(
                    f"offsets is {offsets.dtype} of shape {list(offsets.shape)}; expected int64 of "
                    "shape [bags]")
        if weights is None:
            return
        _check_tensor(weights, "per_sample_weights", "a tensor of the shape of keys")
        if self.mode != "sum" or weights.shape != keys.shape or weights.dtype != torch.float32:
            raise InvalidArgumentError(
                f"per_sample_weights is {weights.dtype} of shape {list(weights.shape)} with mode "
                f"'{self.mode}'; expected float32 of shape {list(keys.shape)} with mode 'sum'")

    def forward(self, keys: Any, offsets: Any = None, per_sample_weights: Any = None) -> Any:
        """Looks up rows and reduces each bag.

        Args:
            keys: [bags, size], or [n] together with `offsets`.
            offsets: [bags], the position in `keys` at which each bag begins.
            per_sample_weights: weights of the shape of `keys`, for mode "sum".

        Returns:
            A float32 tensor of shape [bags, dim], on the device of `keys`."""
        self._check_bags(keys, offsets, per_sample_weights)
        looked = self._look_up(keys)
        rows = self._differentiable(looked, looked.rows)
        padding = len(looked.pulled) if len(rows) > len(looked.pulled) else None
        return torch.nn.functional.embedding_bag(
            looked.places.to(keys.device), rows, offsets, mode=self.mode,
            per_sample_weights=per_sample_weights, include_last_offset=self.include_last_offset,
            padding_idx=padding)


_PARAMS = "a module, or a list of parameters or of (name, parameter)"


def _named(params: Any) -> List[Tuple[str, Any]]:
    if isinstance(params, torch.nn.Module):
        return list(params.named_parameters())
    if isinstance(params, torch.Tensor):
        raise _checks.mistyped("params", params, _PARAMS)
    named = []
    for i, given in enumerate(_checks.items(params, "params", _PARAMS)):
        if isinstance(given, dict):
            raise _checks.mistyped(f"params[{i}]", given, _PARAMS + "; for groups with different "
                                   "optimizers make a ServerOptimizer each, with different names")
        is_pair = isinstance(given, tuple) and len(given) == 2
        label, parameter = given if is_pair else (str(i), given)
        named.append((_checks.text(label, f"params[{i}][0]"),
                      _check_tensor(parameter, f"params[{i}]", "a parameter")))
    return named


_RATE = ("the servers apply the learning rate, so torch.optim.lr_scheduler has no effect on it: "
         "give ServerOptimizer a schedule, as in optimizer=cairn.optim.Adam("
         "cairn.optim.CosineDecay(1e-3, 10000))")


class _Group(Dict[str, Any]):
    """A parameter group whose learning rate cannot be changed."""

    def __missing__(self, key: str) -> Any:
        raise UnimplementedError(_RATE) if key == "lr" else KeyError(key)

    def __setitem__(self, key: str, value: Any) -> None:
        if key == "initial_lr" or (key == "lr" and value != self.get(key)):
            raise UnimplementedError(_RATE)
        super().__setitem__(key, value)

    def setdefault(self, key: str, default: Any = None) -> Any:
        """As for a dictionary."""
        if key not in self:
            self[key] = default
        return self[key]


def _on_host(tensor: Any) -> bool:
    return bool(tensor.device.type == "cpu")


class _HostCopies:
    """Row-major memory of this host with the shapes of tensors, for their values or their
    gradients. Row-major tensors on the CPU need none."""

    def __init__(self, tensors: Sequence[Any]) -> None:
        self._memory = [None if _on_host(t) and t.is_contiguous() else
                        torch.empty(t.shape, pin_memory=t.is_cuda) for t in tensors]
        self._gpus = {t.device for t in tensors if t.is_cuda}

    def memory(self, number: int, tensor: Any) -> Any:
        """Returns the memory of the number-th tensor: its own, if it needs none here."""
        copy = self._memory[number]
        return tensor if copy is None else copy

    def load(self, number: int, tensor: Any) -> Any:
        """Starts the copy of `tensor` to the host, and returns its memory there."""
        copy = self._memory[number]
        return tensor if copy is None else copy.copy_(tensor, non_blocking=True)

    def store(self, number: int, tensor: Any) -> None:
        """Starts the copy of the memory to `tensor`."""
        copy = self._memory[number]
        if copy is not None:
            tensor.copy_(copy, non_blocking=True)

    def snapshot(self, number: int, tensor: Any) -> Any:
        """Returns what was last stored to `tensor`, in other memory than the tensor's. Valid until
        the memory is written again."""
        copy = self._memory[number]
        return tensor.clone() if copy is None else copy

    def wait(self) -> None:
        """Waits for the copies."""
        for gpu in self._gpus:
            torch.cuda.synchronize(gpu)


_TABLES = "a list of cairn.torch.Embedding and EmbeddingBag"


class ServerOptimizer(torch.optim.Optimizer):
    """Keeps dense parameters on the servers, whose optimizer updates them. `step` pushes the
    gradients and pulls the new values into the parameters.

    A torch.optim.Optimizer with one parameter group. Its "lr" is the constant learning rate, and
    missing with a schedule; it cannot be changed, and a torch.optim.lr_scheduler is refused. The
    state is on the servers: `state_dict` has none, and Client.checkpoint saves it.

    Gradients of tables are in no parameter. torch.nn.utils.clip_grad_norm_(model.parameters()) and
    model.zero_grad() therefore miss them: call `clip_grad_norm_` and `zero_grad` of this object. A
    GradScaler reaches them, through a scalar that follows the parameters in the group.
    torch.nn.utils.clip_grad_value_ reaches none: use `clipvalue` of the tables' optimizers. All
    this concerns tables in `params`, if that is a module, and in `tables`; others push their
    gradients in `backward`, as they are.

    Each step replaces the parameters' values by the servers'. Load values into a model
    (load_state_dict) before making its ServerOptimizer: the first step refuses parameters that
    were changed since, and later changes are lost. Buffers, as BatchNorm's statistics, are not on
    the servers: save them beside a checkpoint.

    Args:
        params: a module (its parameters, and the tables in it), parameters, or named parameters:
            float32, on any device. Tables in a model of which only the parameters are given are
            not found: name them in `tables`.
        client: the connection of a training worker. With consistency "async", a step is one push
            and pull; with "ssp" and "sync" it is Client.step, which waits for other workers.
        optimizer: the optimizer of every parameter, which runs on the servers.
        name: the prefix of the parameters' names on the servers.
        tables: further Embedding and EmbeddingBag modules whose gradients `step` pushes.

    The first worker assigns the parameters' initial values to the servers; the other workers
    wait for that. A restarted job continues from the servers' values, and Client.position says
    after which step."""

    _is_made = False

    def __init__(self, params: Any, client: Client, *, optimizer: optim.OptimizerLike,
                 name: str = "dense", tables: Sequence[_Table] = ()) -> None:
        self._client = _check_client(client)
        named = _named(params)
        self._parameters = [parameter for _, parameter in named]
        modules = list(params.modules()) if isinstance(params, torch.nn.Module) else []
        for i, table in enumerate(_checks.items(tables, "tables", _TABLES)):
            if not isinstance(table, _Table):
                raise _checks.mistyped(f"tables[{i}]", table, _TABLES)
            modules.append(table)
        self._tables = list(dict.fromkeys(m for m in modules if isinstance(m, _Table)))
        for label, parameter in named:
            if parameter.dtype != torch.float32:
                raise InvalidArgumentError(
                    f"parameter '{label}' is {parameter.dtype}; ServerOptimizer keeps float32 "
                    "parameters")
        _checks.text(name, "name")
        described = optim.describe(optimizer)
        rate = described.get("learning_rate") if isinstance(described, dict) else None
        self._scale = _Scale(self._parameters[0].device if self._parameters else None)
        grouped = self._parameters + ([self._scale.parameter] if self._tables else [])
        super().__init__([{"params": grouped}],
                         {"lr": rate} if isinstance(rate, float) else {})
        self.param_groups[:] = map(_Group, self.param_groups)
        self._is_made = True
        self._values = _HostCopies(self._parameters)
        self._gradients = _HostCopies(self._parameters)
        self._variables = [
            client.variable(f"{name}/{label}", tuple(p.shape), optimizer=optimizer)
            for label, p in named]
        self._initialize(f"{name}/ready")
        self._waits = client.consistency != "async"
        pulls = self._pulls()
        if self._waits:
            client.step([], pulls)
        elif pulls:
            client.pull(pulls)
        self._store()
        self._initial = [self._values.snapshot(i, p.data)
                         for i, p in enumerate(self._parameters)]
        for table in self._tables:
            table._scale = self._scale

    def _pulls(self) -> List[Tuple[Any, ...]]:
        return [(v, None, self._values.memory(i, p.data))
                for i, (v, p) in enumerate(zip(self._variables, self._parameters))]

    def _store(self) -> None:
        for i, parameter in enumerate(self._parameters):
            self._values.store(i, parameter.data)

    def _initialize(self, flag_name: str) -> None:
        flag = self._client.variable(flag_name, (), "int32")
        if int(flag[...]) == 1:
            return
        if self._client.worker in (None, 0):
            for variable, parameter in zip(self._variables, self._parameters):
                variable.assign(parameter.data.cpu().contiguous())
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

    def _check_initial(self) -> None:
        """Raises FailedPreconditionError if the program has changed a parameter between the
        optimizer's creation and the first step, which would replace the value by the servers'."""
        for variable, p, pulled in zip(self._variables, self._parameters, self._initial):
            # Bits are compared, because NaN differs from itself.
            if not torch.equal(p.data.cpu().view(torch.int32), pulled.view(torch.int32)):
                raise FailedPreconditionError(
                    f"parameter '{variable.name}' was changed after ServerOptimizer was made, as "
                    "by load_state_dict, and the servers have other values: load values into the "
                    "model before making the ServerOptimizer of a new job; a job that exists "
                    "continues with its own values (Client.restore, Client.drop_job)")
        self._initial = []

    def add_param_group(self, param_group: Dict[str, Any]) -> None:
        """Fails: parameters are named when the optimizer is made."""
        if self._is_made:
            raise UnimplementedError("add_param_group: a ServerOptimizer keeps the parameters that "
                                     "it was made with; make another one, with another name")
        super().add_param_group(param_group)

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Checks that `state_dict` is of such an optimizer, and loads nothing: values and state
        come from the servers, and Client.restore brings back a checkpoint."""
        if not isinstance(state_dict, Mapping):
            raise _checks.mistyped("state_dict", state_dict, "the result of state_dict()")
        groups = state_dict.get("param_groups")
        own = self.state_dict()["param_groups"]
        if state_dict.get("state") or groups is None or (
                [len(g["params"]) for g in groups] != [len(g["params"]) for g in own]):
            raise InvalidArgumentError(
                f"state_dict is not of a ServerOptimizer of {len(self._parameters)} parameters, "
                "whose state is on the servers: Client.restore brings back a checkpoint")

    def __reduce__(self) -> Any:
        raise TypeError("a ServerOptimizer belongs to a connection and cannot be pickled: make it "
                        "again in each process")

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clears the gradients of parameters and tables."""
        _checks.flag(set_to_none, "set_to_none")
        for parameter in self._parameters:
            if set_to_none:
                parameter.grad = None
            elif parameter.grad is not None:
                parameter.grad.zero_()
        self._drop_tables()

    def _own_tables(self) -> List[_Table]:
        """Returns the tables that no later ServerOptimizer has taken over."""
        return [table for table in self._tables if table._scale is self._scale]

    def _drop_tables(self) -> None:
        self._scale.parameter.grad = None
        for table in self._own_tables():
            table.take_gradients()

    def _scale_tables(self) -> None:
        """Multiplies the gradients of tables by what torch has multiplied the others by."""
        factor = self._scale.take()
        if factor is None or factor == 0:
            self._drop_tables()
        elif factor != 1 and math.isfinite(factor):
            for table in self._own_tables():
                table._multiply(factor)

    def clip_grad_norm_(self, max_norm: float) -> Any:
        """Scales all gradients, those of tables too, so that their joint norm is at most max_norm,
        as torch.nn.utils.clip_grad_norm_ does. With a GradScaler, call its unscale_ before.

        Returns:
            The norm of before, a tensor."""
        limit = _checks.number(max_norm, "max_norm", 0, _checks.LARGEST_FLOAT32)
        self._scale_tables()
        tables = self._own_tables()
        gradients = [p.grad for p in self._parameters if p.grad is not None]
        norms = [gradient.norm().cpu() for gradient in gradients]
        norms += [table._sum_repeats() for table in tables]
        total = torch.stack(norms).norm() if norms else torch.zeros(())
        factor = min(1.0, limit / (float(total) + 1e-6))
        for gradient in gradients:
            gradient.mul_(factor)
        for table in tables:
            table._multiply(factor)
        self._scale.reset()
        return total

    def step(self, closure: Optional[Callable[[], Any]] = None, *,
             position: Union[bytes, str] = b"", rows: int = 1) -> Any:
        """Pushes all gradients as one update, and pulls the new values of the parameters.

        Args:
            closure: computes the loss and its gradients before the step, as in PyTorch.
            position: at most 512 bytes, stored with the update (Client.position).
            rows: the number of input rows behind the gradients. With consistency="sync" it is this
                worker's weight in the mean.

        Returns:
            The result of `closure`, or None."""
        if closure is not None and not callable(closure):
            raise _checks.mistyped("closure", closure, "a function without arguments, or None")
        _checks.position(position)
        _checks.integer(rows, "rows", 1)
        self._check_initial()
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        pushes: List[Tuple[Any, ...]] = [
            (v, self._gradients.load(i, p.grad))
            for i, (v, p) in enumerate(zip(self._variables, self._parameters))
            if p.grad is not None]
        self._gradients.wait()  # also for the values of the step before
        self._scale_tables()
        for table in self._own_tables():
            pushes.extend(table.take_gradients())
        if self._waits:
            self._client.step(pushes, self._pulls(), position=position, rows=rows)
        else:
            self._client.push_pull(pushes, self._pulls(), position)
        self._store()
        return loss

    def finish(self) -> None:
        """Announces that this worker takes no more steps, so that other workers do not wait for
        it."""
        if self._waits:
            self._client.end_steps()

    def __repr__(self) -> str:
        return (f"<cairn.torch.ServerOptimizer of {len(self._variables)} parameters and "
                f"{len(self._tables)} tables>")


KeysOf = Callable[[Any], Any]


def _pull_ahead(keys_of: Mapping[_Table, KeysOf], batch: Any) -> Dict[_Table, _Looked]:
    looked = {module: module._prepare(keys_of_batch(batch))
              for module, keys_of_batch in keys_of.items()}
    if looked:
        next(iter(looked)).table.client.pull(
            [(module.table, ahead.pulled, ahead.rows[:len(ahead.pulled)])
             for module, ahead in looked.items()])
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
        """Waits for the rows, gives them to the modules, and returns the batch."""
        self.join()
        if self._error is not None:
            raise self._error
        for module, looked in self._looked.items():
            module._ahead = looked
        return self._batch

    def take_back(self) -> None:
        """Drops the rows that no forward pass has used."""
        for module, looked in self._looked.items():
            if module._ahead is looked:
                module._ahead = None


_KEYS_OF = "a dictionary {module: function that returns the keys of a batch}"


def prefetch(batches: Iterable[Any], keys_of: Mapping[_Table, KeysOf]) -> Iterator[Any]:
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
        if not isinstance(module, _Table) or not callable(function):
            raise _checks.mistyped("keys_of", {module: function}, _KEYS_OF)
    try:
        iterator = iter(batches)
    except TypeError:
        raise _checks.mistyped("batches", batches, "an iterable, as a DataLoader") from None
    return _prefetch(iterator, keys_of)


def _prefetch(batches: Iterator[Any], keys_of: Mapping[_Table, KeysOf]) -> Iterator[Any]:
    ahead: Optional[_Ahead] = None  # pulls the rows of the next batch
    lent: Optional[_Ahead] = None  # its rows are the modules' for the current batch
    try:
        for batch in batches:
            following = _Ahead(keys_of, batch)
            if ahead is None:
                following.start()
                ahead = following
                continue
            ready = ahead.hand_over()
            following.start()
            lent, ahead = ahead, following
            yield ready
            lent.take_back()
        if ahead is not None:
            lent, ahead = ahead, None
            yield lent.hand_over()
    finally:
        if lent is not None:
            lent.take_back()


__all__ = ["Embedding", "EmbeddingBag", "ServerOptimizer", "prefetch"]
