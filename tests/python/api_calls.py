"""Every public function and method of `cairn` with a healthy call, what each of its parameters accepts
of a list of absurd values, and a check that the table is complete."""
import inspect
import itertools
import os

import numpy as np
import torch

import cairn
import cairn.torch

MODULES = {"cairn": cairn, "data": cairn.data, "optim": cairn.optim, "init": cairn.init,
           "torch": cairn.torch}
# Programs do not call the constructors of these classes.
MADE_BY_CALLS = {"Client", "Cluster", "Embedding", "Variable", "data.ParquetReader", "data.Reader",
                 "data.RecordReader", "init.Initializer", "optim.Optimizer", "optim.Schedule"}


class Opaque:
    def __repr__(self):
        raise RuntimeError("a value whose repr fails")


ABSURD = {
    "none": None, "empty text": "", "text": "absurd", "NUL": "a\0b", "surrogate": "\ud800",
    "long text": "x" * 100_000, "bytes": b"\xff", "true": True, "zero": 0, "minus one": -1,
    "huge": 10**30, "beyond float32": 1e300, "endless": 10**5000, "fraction": 2.5, "nan": float("nan"),
    "infinity": float("inf"), "empty list": [], "uneven list": [[1], [2, 3]], "dict": {},
    "odd dict": {"a": Opaque()}, "object": Opaque(), "type": torch.Tensor,
    "array": np.ones((5, 7)), "complex": 1j,
}

# Which absurd values the parameters of a kind accept. The call may still fail for another reason.
FLAG, TEXT, COUNT = {"true"}, {"text", "long text"}, {"zero"}
NUMBER, POSITIVE = {"zero", "fraction", "huge"}, {"fraction", "huge"}
STEPS = POSITIVE | {"beyond float32"}
KINDS = {
    "timeout": {"none", "fraction"}, "position": {"empty text", "text", "NUL", "bytes"},
    "name": TEXT, "job": TEXT, "directory": TEXT | {"none"}, "path": TEXT,
    "files": TEXT, "file_format": set(), "records": {"empty list"},
    "keys": {"zero", "minus one", "true"} - {"true"} | {"empty list"},
    "rows": {"none", "zero", "minus one", "empty list"},
    "gradients": set(), "values": set(), "out": {"none"}, "slot": TEXT | {"none"},
    "format": set(), "shape": {"empty list"}, "dtype": set(), "dim": set(), "copy": {"none", "true"},
    "optimizer": {"dict"} | TEXT, "initializer": {"dict"} | TEXT, "touched_rows": {"none"},
    "shards": {"none"}, "admit_after": set(), "expire_after": COUNT, "max_rows": COUNT,
    "storage": {"none", "dict"}, "pulls": {"empty list"}, "pushes": {"empty list"}, "step": COUNT,
    "keep": COUNT, "index": COUNT, "servers": set(), "durability": set(), "in_process": FLAG,
    "flags": {"none", "empty list"}, "memory_budget_bytes": {"none"}, "cluster": TEXT | {"none", "dict"},
    "worker": COUNT, "workers": set(), "consistency": set(), "staleness_bound_steps": COUNT | {"none"},
    "replicas_to_aggregate": COUNT | {"none"}, "sync_mean": {"none"}, "on_worker_loss": {"none"},
    "ps_wait_seconds": {"none", "fraction"}, "partitioner": {"none", "dict"} | TEXT,
    "not_finite": set(), "tls": {"none"}, "token_file": TEXT | {"none"}, "allow_plaintext": FLAG,
    "rpc_timeout_seconds": {"none", "fraction"}, "retained_bytes": COUNT | {"none"},
    "local_transport": {"none"}, "data_root": TEXT | {"none"}, "overrides": {"none", "dict"},
    "progress": {"none", "true"}, "batch_size": set(), "epochs": set(), "evaluate": FLAG,
    "model": {"none", "dict"}, "columns": {"none", "empty list"},
    "learning_rate": NUMBER, "momentum": {"zero"}, "rho": {"zero"}, "beta_1": {"zero"},
    "beta_2": {"zero"}, "beta": NUMBER, "epsilon": NUMBER, "weight_decay": NUMBER | {"none"},
    "nesterov": FLAG, "centered": FLAG, "amsgrad": FLAG | {"none"}, "staircase": FLAG, "cycle": FLAG,
    "initial_accumulator_value": NUMBER, "learning_rate_power": {"zero", "minus one"},
    "l1_regularization_strength": NUMBER, "l2_regularization_strength": NUMBER,
    "l2_shrinkage_regularization_strength": NUMBER, "clipvalue": POSITIVE | {"none"},
    "clipnorm": POSITIVE | {"none"}, "initial_learning_rate": NUMBER, "decay_steps": STEPS,
    "decay_rate": NUMBER, "end_learning_rate": NUMBER, "power": NUMBER, "boundaries": {"empty list"},
    "alpha": NUMBER, "warmup_target": NUMBER | {"none"}, "warmup_steps": STEPS | {"zero"},
    "first_decay_steps": STEPS, "t_mul": POSITIVE, "m_mul": NUMBER,
    "value": NUMBER | {"minus one"}, "minval": {"zero", "minus one"}, "maxval": NUMBER,
    "seed": COUNT, "mean": NUMBER | {"minus one"}, "stddev": NUMBER,
    "client": set(), "padding_idx": {"none", "zero", "minus one"}, "mode": set(),
    "include_last_offset": FLAG, "offsets": set(), "per_sample_weights": {"none"},
    "params": {"empty list"}, "param_group": set(), "tables": {"empty list"},
    "kept_fraction": {"fraction"}, "max_norm": NUMBER,
    "closure": {"none", "type"}, "set_to_none": FLAG, "requires_grad": FLAG,
    "state_dict": set(), "batches": {"empty list", "empty text", "text", "NUL",
    "surrogate", "long text", "bytes", "uneven list", "dict", "odd dict", "array"},
    "keys_of": {"dict"},
}
# Where a parameter accepts other values than those of the same name elsewhere.
EXCEPTIONS = {
    "Client.step.rows": set(), "Client.end_step.rows": set(), "torch.ServerOptimizer.step.rows": set(),
    "Variable.pull.keys": set(), "Variable.__getitem__.rows": {"zero", "minus one", "empty list"},
    "Variable.push.gradients": set(), "connect.worker": COUNT | {"none"}, "connect.workers": {"none"},
    "program.name": set(), "Client.checkpoint.directory": TEXT, "Client.restore.directory": TEXT,
    "train.job": TEXT | {"dict"},
    "train.servers": COUNT, "train.name": TEXT | {"none"}, "data.read.file_format": set(),
    "optim.PiecewiseConstantDecay.values": set(), "Variable.assign.rows": {"none", "zero", "minus one",
    "empty list"}, "torch.Embedding.forward.keys": set(), "torch.EmbeddingBag.forward.keys": set(),
    "Cluster.log.index": COUNT,     "torch.EmbeddingBag.forward.offsets": {"none"},
}
# Calls that exist because a base class has them.
UNSUPPORTED = {"torch.ServerOptimizer.add_param_group"}
# The word by which an error names the parameter, where it is another one.
MENTIONS = {"directory": "directory|absurd|xxx"}


class Fixture:
    """One launched server, and clients, a variable and a table on it."""

    def __init__(self, folder):
        self.folder = folder
        self.cluster = cairn.launch(servers=1, directory=os.path.join(folder, "servers"))
        self.count = itertools.count()
        self.client = self.connect(worker=0)
        self.reader = self.connect()
        self.renew(self.client)
        self.libsvm = os.path.join(folder, "rows.libsvm")
        with open(self.libsvm, "w", encoding="ascii") as file:
            file.write("1 1:1\n0 2:1\n")
        self.npz = os.path.join(folder, "values.npz")
        np.savez(self.npz, w=np.ones(2))
        self.records = os.path.join(folder, "none.tfrecord")
        with open(self.records, "wb"):
            pass

    def renew(self, client):
        self.w = client.variable("w", (3, 2), optimizer="sgd")
        self.t = client.embedding("t", 2, optimizer="sgd")

    def connect(self, **arguments):
        arguments.setdefault("job", f"job{next(self.count)}")
        return self.cluster.connect(ps_wait_seconds=5, **arguments)

    def name(self):
        return f"v{next(self.count)}"

    def close(self):
        self.cluster.stop()


def _layer():
    return torch.nn.Linear(2, 1)


def _optimizer(f):
    return cairn.torch.ServerOptimizer(_layer(), f.client, optimizer="sgd", name=f.name())


def _module(f, kind=cairn.torch.Embedding, **arguments):
    return kind(f.client, f.name(), 2, optimizer="sgd", **arguments)


GRADIENT, ROW = np.ones((3, 2), np.float32), np.ones((1, 2), np.float32)
BAGS = torch.tensor([1, 2, 3])

# Name: the callable, and healthy values of the parameters that have no default.
CALLS = {
    "connect": lambda f: (cairn.connect, {"cluster": f.cluster.addresses, "ps_wait_seconds": 5}),
    "launch": lambda f: (cairn.launch, {}),
    "load": lambda f: (cairn.load, {"path": f.npz}),
    "program": lambda f: (cairn.program, {"name": "cairn-ps"}),
    "train": lambda f: (cairn.train, {"job": os.path.join(f.folder, "absent.yaml")}),
    "Client.leave": lambda f: (f.connect().leave, {}),
    "Client.flush": lambda f: (f.client.flush, {}),
    "Client.drop_job": lambda f: (f.connect().drop_job, {}),
    "Client.variable": lambda f: (f.client.variable, {"name": f.name(), "shape": (2,)}),
    "Client.embedding": lambda f: (f.client.embedding,
                                   {"name": f.name(), "dim": 2, "optimizer": "sgd"}),
    "Client.variables": lambda f: (f.client.variables, {}),
    "Client.pull": lambda f: (f.client.pull, {"pulls": [f.w]}),
    "Client.push": lambda f: (f.client.push, {"pushes": [(f.w, GRADIENT)]}),
    "Client.push_pull": lambda f: (f.client.push_pull, {"pushes": [(f.w, GRADIENT)], "pulls": [f.w]}),
    "Client.assign": lambda f: (f.client.assign, {"pushes": [(f.w, GRADIENT)]}),
    "Client.step": lambda f: (f.client.step, {"pushes": [], "pulls": [f.w]}),
    "Client.end_step": lambda f: (f.client.end_step, {"pushes": [(f.w, GRADIENT)]}),
    "Client.end_steps": lambda f: (f.client.end_steps, {}),
    "Client.largest_step_gap": lambda f: (f.client.largest_step_gap, {}),
    "Client.checkpoint": lambda f: (f.client.checkpoint,
                                    {"directory": os.path.join(f.folder, "checkpoints")}),
    "Client.restore": lambda f: (f.reader.restore,
                                 {"directory": os.path.join(f.folder, "absent")}),
    "Cluster.log": lambda f: (f.cluster.log, {"index": 0}),
    "Variable.pull": lambda f: (f.w.pull, {}),
    "Variable.push": lambda f: (f.w.push, {"gradients": GRADIENT}),
    "Variable.assign": lambda f: (f.w.assign, {"values": GRADIENT}),
    "Variable.__getitem__": lambda f: (f.w.__getitem__, {"rows": [1]}),
    "Embedding.pull": lambda f: (f.t.pull, {"keys": [1]}),
    "Embedding.push": lambda f: (f.t.push, {"keys": [1], "gradients": ROW}),
    "Embedding.assign": lambda f: (f.t.assign, {"keys": [1], "values": ROW}),
    "Embedding.scan": lambda f: (f.t.scan, {}),
    "Embedding.__getitem__": lambda f: (f.t.__getitem__, {"keys": [1]}),
    "data.read": lambda f: (cairn.data.read, {"files": f.libsvm, "file_format": "libsvm"}),
    "data.read_records": lambda f: (cairn.data.read_records, {"files": f.records}),
    "data.read_parquet": lambda f: (cairn.data.read_parquet, {"files": f.records}),
    "data.parse_examples": lambda f: (cairn.data.parse_examples, {"records": [b""]}),
    "torch.Embedding": lambda f: (cairn.torch.Embedding, {
        "client": f.client, "name": f.name(), "dim": 2, "optimizer": "sgd"}),
    "torch.Embedding.forward": lambda f: (_module(f).forward, {"keys": BAGS}),
    "torch.Embedding.requires_grad_": lambda f: (_module(f).requires_grad_,
                                                 {"requires_grad": False}),
    "torch.EmbeddingBag": lambda f: (cairn.torch.EmbeddingBag, {
        "client": f.client, "name": f.name(), "dim": 2, "optimizer": "sgd"}),
    "torch.EmbeddingBag.forward": lambda f: (
        _module(f, cairn.torch.EmbeddingBag, mode="sum").forward,
        {"keys": BAGS, "offsets": torch.tensor([0])}),
    "torch.EmbeddingBag.requires_grad_": lambda f: (
        _module(f, cairn.torch.EmbeddingBag).requires_grad_, {"requires_grad": False}),
    "torch.ServerOptimizer": lambda f: (cairn.torch.ServerOptimizer, {
        "params": _layer(), "client": f.client, "optimizer": "sgd", "name": f.name()}),
    "torch.ServerOptimizer.step": lambda f: (_optimizer(f).step, {}),
    "torch.ServerOptimizer.clip_grad_norm_": lambda f: (
        _optimizer(f).clip_grad_norm_, {"max_norm": 1.0}),
    "torch.ServerOptimizer.zero_grad": lambda f: (_optimizer(f).zero_grad, {}),
    "torch.ServerOptimizer.add_param_group": lambda f: (
        _optimizer(f).add_param_group, {"param_group": {"params": []}}),
    "torch.ServerOptimizer.load_state_dict": lambda f: (
        lambda o: (o.load_state_dict, {"state_dict": o.state_dict()}))(_optimizer(f)),
    "torch.prefetch": lambda f: (cairn.torch.prefetch, {"batches": [], "keys_of": {}}),
    "optim.ExponentialDecay": lambda f: (cairn.optim.ExponentialDecay, {
        "initial_learning_rate": 0.1, "decay_steps": 10, "decay_rate": 0.5}),
    "optim.InverseTimeDecay": lambda f: (cairn.optim.InverseTimeDecay, {
        "initial_learning_rate": 0.1, "decay_steps": 10, "decay_rate": 0.5}),
    "optim.PolynomialDecay": lambda f: (cairn.optim.PolynomialDecay, {
        "initial_learning_rate": 0.1, "decay_steps": 10}),
    "optim.PiecewiseConstantDecay": lambda f: (cairn.optim.PiecewiseConstantDecay, {
        "boundaries": [10], "values": [0.1, 0.2]}),
    "optim.CosineDecay": lambda f: (cairn.optim.CosineDecay, {
        "initial_learning_rate": 0.1, "decay_steps": 10}),
    "optim.CosineDecayRestarts": lambda f: (cairn.optim.CosineDecayRestarts, {
        "initial_learning_rate": 0.1, "first_decay_steps": 10}),
    "init.Constant": lambda f: (cairn.init.Constant, {"value": 1}),
}


def shown(value):
    """Returns the text of a value for a report."""
    try:
        return repr(value)[:200]
    except Exception:
        return f"a {type(value).__name__}"


def _is_of_package(function):
    return (getattr(function, "__module__", None) or "").startswith("cairn")


def public_calls():
    """Yields the names of all public functions, constructors and methods that have parameters."""
    for prefix, module in MODULES.items():
        for name in module.__all__:
            thing, full = getattr(module, name), name if prefix == "cairn" else f"{prefix}.{name}"
            if inspect.isfunction(thing):
                yield full, thing
            if not inspect.isclass(thing) or issubclass(thing, (BaseException, tuple)):
                continue
            if full not in MADE_BY_CALLS:
                yield full, thing
            for method, function in inspect.getmembers(thing, inspect.isfunction):
                if (method.startswith("_") and method != "__getitem__") or not _is_of_package(function):
                    continue
                if len(inspect.signature(function).parameters) > 1:
                    yield f"{full}.{method}", function


def parameters_of(function):
    """Returns the names of a callable's parameters, without self and keywords of other calls."""
    return [p.name for p in inspect.signature(function).parameters.values()
            if p.name != "self" and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]


def accepted(call, parameter):
    """Returns the names of the absurd values that a parameter accepts; KeyError: not in the table."""
    return EXCEPTIONS.get(f"{call}.{parameter}", KINDS.get(parameter))


def prepare(fixture, call, function):
    """Returns the callable of `call` and its healthy arguments. Calls that are not in the table need
    none."""
    return CALLS[call](fixture) if call in CALLS else (function, {})
