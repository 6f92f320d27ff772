"""Modules whose rows live on the servers."""
from __future__ import annotations

import math
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

import torch

from cairn import _checks, init, optim, variables
from cairn.client import Client
from cairn.errors import InvalidArgumentError

# Small enough not to matter in a norm that includes it, and a power of two, so that products with
# it are exact.
_SCALE_UNIT = 2.0**-40


def check_client(client: Any) -> Client:
    """Returns `client`, or raises InvalidArgumentError if it is no client."""
    if not isinstance(client, Client):
        raise _checks.mistyped("client", client, "the result of cairn.connect")
    return client


def check_tensor(value: Any, what: str, expected: str) -> Any:
    """Returns `value`, or raises InvalidArgumentError, naming `what`, if it is no dense tensor."""
    if not isinstance(value, torch.Tensor):
        raise _checks.mistyped(what, value, expected)
    if value.layout != torch.strided:
        raise InvalidArgumentError(f"{what} is sparse ({value.layout}); expected {expected}, dense")
    return value


def host_memory(shape: Any, tensor: Any) -> Any:
    """Returns float32 memory of this host, whatever torch's defaults are; page-locked if `tensor`,
    from or to which it will be copied, is on a GPU."""
    return torch.empty(shape, dtype=torch.float32, device="cpu", pin_memory=tensor.is_cuda)


def host_zeros(*shape: int) -> Any:
    """As host_memory, set to zero and not page-locked."""
    return torch.zeros(shape, dtype=torch.float32, device="cpu")


def _unshared(tensor: Any, given: Any) -> Any:
    """Returns `tensor`, or a copy if it begins in the memory of `given`, which the program may
    write again."""
    return tensor.clone() if tensor.data_ptr() == given.data_ptr() else tensor


class Scale:
    """What torch's utilities multiply the gradients of an optimizer by, for gradients that they
    cannot see. GradScaler and clip_grad_norm_ scale `parameter.grad` like every other gradient, and
    a GradScaler skips the step if it is not finite."""

    def __init__(self, device: Any) -> None:
        self._device = device  # None: that of the first keys
        self.parameter = torch.nn.Parameter(host_zeros().to(device))

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

    def pop(self) -> Optional[float]:
        """Returns the factor of the hidden gradients and forgets it. None: they were cleared."""
        gradient, self.parameter.grad = self.parameter.grad, None
        return None if gradient is None else float(gradient) / _SCALE_UNIT


class Looked(NamedTuple):
    """The rows of a batch's keys."""

    keys: Any  # the tensor that was asked for
    pulled: Any  # [n] int64, without padding; repeats where the table combines them
    places: Any  # Embedding: which of the flat keys have rows, None: all; EmbeddingBag: each row
    rows: Any  # [n, dim]; EmbeddingBag: and one zero row more where there is padding


class _Pulled(torch.autograd.Function):
    """Passes rows on in the graph, and their gradient to the module. `anchor` is a tensor that
    needs a gradient; without one, autograd would not call backward."""

    @staticmethod
    def forward(ctx: Any, anchor: Any, module: Table, looked: Looked, rows: Any) -> Any:
        ctx.module, ctx.looked = module, looked
        return rows.detach()  # of an input itself, autograd would forbid changes in place

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        ctx.module._collect(ctx.looked, gradient)
        return None, None, None, None


class Table(torch.nn.Module):
    """A module that pulls rows by key in forward. Backward pushes their gradients, or keeps them
    for the ServerOptimizer that has adopted the module."""

    _combines_repeats = False

    def __init__(self, client: Client, name: str, dim: int, *, optimizer: optim.OptimizerLike,
                 initializer: init.InitializerLike = "glorot_uniform",
                 padding_idx: Optional[int] = None, **rules: Any) -> None:
        super().__init__()
        if padding_idx is not None:
            padding_idx = _checks.integer(padding_idx, "padding_idx", -_checks.MOST_INT64 - 1)
        self.table: variables.Embedding = check_client(client).embedding(
            name, dim, optimizer=optimizer, initializer=initializer, **rules)
        self.table.combines_repeats = self._combines_repeats
        self.padding_idx = padding_idx
        self._scale: Optional[Scale] = None  # of the ServerOptimizer that pushes the gradients
        self._gradients: List[Tuple[Any, Any]] = []
        self._ahead: Optional[Looked] = None
        self._anchor = host_zeros().requires_grad_()

    @property
    def dim(self) -> int:
        """The number of values in a row."""
        return self.table.dim

    def requires_grad_(self, requires_grad: bool = True) -> Table:
        """Sets whether the rows that later forward passes look up get gradients. Of a model of
        which the table is a part, torch.nn.Module.requires_grad_ reaches the parameters alone: call
        it for each table, too."""
        self._anchor.requires_grad_(_checks.flag(requires_grad, "requires_grad"))
        return self

    def extra_repr(self) -> str:
        """Returns the part of repr(module) between the parentheses."""
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"'{self.table.name}', {self.table.dim}{padding}"

    def _prepare(self, keys: Any) -> Looked:
        """Returns the keys to pull, and memory for their rows."""
        raise NotImplementedError

    def _flat(self, keys: Any) -> Any:
        check_tensor(keys, "keys", "a tensor of integers")
        if keys.dtype.is_floating_point or keys.dtype.is_complex or keys.dtype == torch.bool:
            raise InvalidArgumentError(
                f"keys of '{self.table.name}' are {keys.dtype}; expected integers")
        return keys.detach().cpu().long().reshape(-1)

    def _look_up(self, keys: Any) -> Looked:
        ahead, self._ahead = self._ahead, None
        check_tensor(keys, "keys", "a tensor of integers")
        if ahead is not None and (ahead.keys is keys or (
                ahead.keys.shape == keys.shape and
                torch.equal(self._flat(ahead.keys), self._flat(keys)))):
            return ahead._replace(keys=keys)  # the loop may have moved them to another device
        looked = self._prepare(keys)
        self.table.pull(looked.pulled, out=looked.rows[:len(looked.pulled)])
        return looked

    def _differentiable(self, looked: Looked, rows: Any) -> Any:
        if torch.is_grad_enabled():
            rows = _Pulled.apply(self._anchor, self, looked, rows)
        return rows.to(looked.keys.device, non_blocking=True)

    def _gradient(self, looked: Looked, gradient: Any) -> Any:
        """Returns the gradient of the pulled rows, given that of the rows in the graph."""
        return gradient[:len(looked.pulled)]

    def _collect(self, looked: Looked, gradient: Any) -> None:
        if len(looked.pulled) == 0:
            return
        of_pulled = self._gradient(looked, gradient.detach().cpu()).contiguous()
        if self._scale is None:
            self.table.push(looked.pulled, of_pulled)
        else:
            self._gradients.append((looked.pulled, _unshared(of_pulled, gradient)))
            self._scale.note(of_pulled, looked.keys.device)

    def take_gradients(self) -> List[Tuple[variables.Embedding, Any, Any]]:
        """Returns the gradients of all backward passes since the last call, as parts for
        Client.push, and forgets them."""
        return joined_gradients([self])

    def _multiply(self, factor: float) -> None:
        """Multiplies the kept gradients."""
        self._gradients = [(keys, gradient * factor) for keys, gradient in self._gradients]


def by_variable(tables: Iterable[Table]) -> List[List[Table]]:
    """Returns the modules in groups that share a variable."""
    groups: Dict[Any, List[Table]] = {}
    for table in tables:
        groups.setdefault((table.table.client, table.table.name), []).append(table)
    return list(groups.values())


def joined_gradients(group: Sequence[Table]) -> List[Tuple[variables.Embedding, Any, Any]]:
    """As Table.take_gradients, of all modules of a group. Gradients of several passes are joined,
    because a push may name a table only once."""
    kept = [pair for table in group for pair in table._gradients]
    for table in group:
        table._gradients = []
    if not kept:
        return []
    stored = max((table.table for table in group), key=lambda one: one.combines_repeats)
    if len(kept) == 1:
        return [(stored, *kept[0])]
    keys = torch.cat([pulled for pulled, _ in kept])
    return [(stored, keys, torch.cat([gradient for _, gradient in kept]))]


def sum_repeats(group: Sequence[Table]) -> Any:
    """Sums the kept gradients of each key of a group, as one pass of its first module.

    Returns:
        Their norm."""
    parts = joined_gradients(group)
    if not parts:
        return host_zeros()
    (_, keys, gradient), = parts
    unique, places = torch.unique(keys, return_inverse=True)
    sums = host_zeros(len(unique), group[0].dim).index_add_(0, places, gradient)
    group[0]._gradients = [(unique, sums)]
    return sums.norm()


class Embedding(Table):
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

    def _prepare(self, keys: Any) -> Looked:
        flat, kept = _unshared(self._flat(keys), keys), None
        if self.padding_idx is not None:
            kept = flat != self.padding_idx
            flat, kept = (flat, None) if bool(kept.all()) else (flat[kept], kept)
        return Looked(keys, flat, kept, host_memory((len(flat), self.dim), keys))

    def _gradient(self, looked: Looked, gradient: Any) -> Any:
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
            rows = host_zeros(len(looked.places), self.dim)
            rows[looked.places] = looked.rows
        return self._differentiable(looked, rows.reshape(*keys.shape, self.table.dim))


class EmbeddingBag(Table):
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

    def _prepare(self, keys: Any) -> Looked:
        unique, inverse = torch.unique(self._flat(keys), return_inverse=True)
        inverse = inverse.reshape(keys.shape)
        kept = unique != self.padding_idx if self.padding_idx is not None else None
        if kept is None or bool(kept.all()):
            return Looked(keys, unique, inverse, host_memory((len(unique), self.dim), keys))
        # Padding has the last row, which is zero and stays here.
        places = torch.cumsum(kept, 0) - 1
        places[~kept] = kept.sum()
        rows = host_memory((len(unique), self.dim), keys)
        rows[-1] = 0
        return Looked(keys, unique[kept], places[inverse], rows)

    def _check_bags(self, keys: Any, offsets: Any, weights: Any) -> None:
        """Raises InvalidArgumentError unless the arguments of `forward` fit each other."""
        check_tensor(keys, "keys", "a tensor of integers")
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
            check_tensor(offsets, "offsets", "a tensor of integers")
            if offsets.dtype not in (torch.int64, torch.int32) or offsets.dim() != 1:
                raise InvalidArgumentError(
                    f"offsets is {offsets.dtype} of shape {list(offsets.shape)}; expected int64 of "
                    "shape [bags]")
            at = offsets.cpu()
            if len(at) > 0 and (at[0] != 0 or at[-1] > len(keys) or bool((at[1:] < at[:-1]).any())):
                raise InvalidArgumentError(
                    f"offsets is {at[:8].tolist()}{', …' if len(at) > 8 else ''} for "
                    f"{len(keys)} keys; expected 0 first, ascending, at most the number of keys")
        if weights is None:
            return
        check_tensor(weights, "per_sample_weights", "a tensor of the shape of keys")
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


__all__ = ["Embedding", "EmbeddingBag", "Looked", "Scale", "Table", "check_client", "check_tensor",
           "host_memory", "host_zeros"]
