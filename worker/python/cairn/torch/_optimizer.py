"""The optimizer of dense parameters and tables."""
from __future__ import annotations

import math
import threading
import time
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np
import torch

from cairn import _checks, optim
from cairn.client import Client
from cairn.errors import (
    DeadlineExceededError,
    FailedPreconditionError,
    InvalidArgumentError,
    UnimplementedError,
)
from cairn.torch._tables import (
    Scale,
    Table,
    by_variable,
    check_client,
    check_tensor,
    host_memory,
    host_zeros,
    joined_gradients,
    sum_repeats,
)
from cairn.variables import Variable

_READY_SECONDS = 120.0
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
                      check_tensor(parameter, f"params[{i}]", "a parameter")))
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
                        host_memory(t.shape, t) for t in tensors]
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


def _is_set(flag: Variable) -> bool:
    return bool(np.all(flag[...] == 1))


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
        name: the prefix of the parameters' names on the servers. Each ServerOptimizer of a job
            needs another one: equal names with equal labels and shapes are the same variables.
        tables: further Embedding and EmbeddingBag modules whose gradients `step` pushes.

    The first worker assigns the parameters' initial values to the servers; the other workers
    wait for that. A restarted job continues from the servers' values, and Client.position says
    after which step. Parameters that are new to a job need a ServerOptimizer with a new name.

    Raises:
        FailedPreconditionError: the job has a ServerOptimizer of this name, without one of these
            parameters."""

    _is_made = False

    def __init__(self, params: Any, client: Client, *, optimizer: optim.OptimizerLike,
                 name: str = "dense", tables: Sequence[Table] = ()) -> None:
        self._client = check_client(client)
        named = _named(params)
        self._parameters = [parameter for _, parameter in named]
        modules = list(params.modules()) if isinstance(params, torch.nn.Module) else []
        for i, table in enumerate(_checks.items(tables, "tables", _TABLES)):
            if not isinstance(table, Table):
                raise _checks.mistyped(f"tables[{i}]", table, _TABLES)
            modules.append(table)
        self._tables = list(dict.fromkeys(m for m in modules if isinstance(m, Table)))
        for label, parameter in named:
            if parameter.dtype != torch.float32:
                raise InvalidArgumentError(
                    f"parameter '{label}' is {parameter.dtype}; ServerOptimizer keeps float32 "
                    "parameters")
        _checks.text(name, "name")
        described = optim.describe(optimizer)
        rate = described.get("learning_rate") if isinstance(described, dict) else None
        self._scale = Scale(self._parameters[0].device if self._parameters else None)
        grouped = self._parameters + ([self._scale.parameter] if self._tables else [])
        super().__init__([{"params": grouped}],
                         {"lr": rate} if isinstance(rate, float) else {})
        self.param_groups[:] = map(_Group, self.param_groups)
        self._is_made = True
        self._values = _HostCopies(self._parameters)
        self._gradients = _HostCopies(self._parameters)
        flag = self._find_flag(name, [label for label, _ in named])
        self._variables = [
            client.variable(f"{name}/{label}", tuple(p.shape), optimizer=optimizer)
            for label, p in named]
        if flag is None:
            count = client.server_count
            flag = client.variable(f"{name}/ready", (count,), "int32", shards=count)
        self._initialize(flag)
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

    def _find_flag(self, name: str, labels: Sequence[str]) -> Optional[Variable]:
        """Returns the flag that says whether the servers have the initial values, if it exists.
        Raises FailedPreconditionError if the job lacks a variable although the flag is set: it
        belongs to another model, and nobody would assign it."""
        flag = self._client.variables().get(f"{name}/ready")
        if not isinstance(flag, Variable):
            return None
        if not _is_set(flag):
            return flag
        # Variables of a new job appear one by one, and the flag is set after all of them: those
        # that were listed before the flag was read do not count.
        known = self._client.variables()
        for label in labels:
            if f"{name}/{label}" not in known:
                raise FailedPreconditionError(
                    f"job '{self._client.job}' has a ServerOptimizer named '{name}' without "
                    f"'{name}/{label}', of which the servers therefore have no initial value: make "
                    f"a ServerOptimizer of another model, or of parameters that are new to the "
                    f"job, with another name, as in name='{name}2'")
        return flag

    def _initialize(self, flag: Variable) -> None:
        if _is_set(flag):
            return
        if self._client.worker in (None, 0):
            for variable, parameter in zip(self._variables, self._parameters):
                variable.assign(parameter.data.cpu().contiguous())
            # Durable in this order: if this worker and a server are killed, the flag does not
            # outlive the values. The flag has a part on every server, so that a new start, which
            # does not repeat the assignments, resumes after them on every server.
            self._client.flush()
            flag.assign(np.ones(flag.shape, np.int32))
            self._client.flush()
            return
        deadline = time.monotonic() + _READY_SECONDS
        pause = threading.Event()
        while not _is_set(flag):
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

    def _own_tables(self) -> List[Table]:
        """Returns the tables that no later ServerOptimizer has taken over."""
        return [table for table in self._tables if table._scale is self._scale]

    def _drop_tables(self) -> None:
        self._scale.parameter.grad = None
        for table in self._own_tables():
            table.take_gradients()

    def _scale_tables(self) -> None:
        """Multiplies the gradients of tables by what torch has multiplied the others by."""
        factor = self._scale.pop()
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
        norms += [sum_repeats(group) for group in by_variable(tables)]
        total = torch.stack([host_zeros(), *norms]).norm()
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
        for group in by_variable(self._own_tables()):
            pushes.extend(joined_gradients(group))
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


__all__ = ["ServerOptimizer"]
