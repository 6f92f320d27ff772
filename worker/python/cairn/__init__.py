"""Cairn: parameter servers for models with large embedding tables.

    import cairn
    with cairn.launch(servers=2) as cluster, cluster.connect(job="demo", worker=0) as client:
        table = client.embedding("users", 16, optimizer=cairn.optim.Adagrad(0.1))
        rows = table[[3, 5, 3]]              # [3, 16] float32
        table.push([3, 5, 3], 0.1 * rows)    # gradients; the two of key 3 are summed"""
from cairn import data, errors, init, optim
from cairn._library import lib as _lib
from cairn.client import Client, Counters, Staleness, connect
from cairn.cluster import Cluster, launch, program
from cairn.errors import (
    AbortedError,
    AlreadyExistsError,
    ArgumentTypeError,
    CancelledError,
    ClosedError,
    DataLossError,
    DeadlineExceededError,
    DTypeError,
    Error,
    FailedPreconditionError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    OutOfRangeError,
    PermissionDeniedError,
    ResourceExhaustedError,
    UnauthenticatedError,
    UnavailableError,
    UnimplementedError,
    UnknownError,
)
from cairn.loading import load
from cairn.training import Report, train
from cairn.variables import Embedding, Variable

__version__: str = _lib.cairn_version().decode()

__all__ = [
    "AbortedError", "AlreadyExistsError", "ArgumentTypeError", "CancelledError", "Client",
    "ClosedError", "Cluster", "Counters", "DTypeError", "DataLossError", "DeadlineExceededError",
    "Embedding", "Error", "FailedPreconditionError", "InternalError", "InvalidArgumentError",
    "NotFoundError", "OutOfRangeError", "PermissionDeniedError", "Report",
    "ResourceExhaustedError", "Staleness", "UnauthenticatedError", "UnavailableError",
    "UnimplementedError", "UnknownError", "Variable", "connect", "data", "errors", "init",
    "launch", "load", "optim", "program", "train",
]
