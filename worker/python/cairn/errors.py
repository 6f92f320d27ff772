"""Exceptions: one class for each status code of the library. The text is the library's message."""
from __future__ import annotations

from typing import Dict, Type

__all__ = [
    "AbortedError", "AlreadyExistsError", "ArgumentTypeError", "CancelledError", "ClosedError",
    "DataLossError", "DeadlineExceededError", "DTypeError", "Error", "FailedPreconditionError",
    "InternalError", "InvalidArgumentError", "NotFoundError", "OutOfRangeError",
    "PermissionDeniedError", "ResourceExhaustedError", "UnauthenticatedError", "UnavailableError",
    "UnimplementedError", "UnknownError",
]


class Error(Exception):
    """The base of all exceptions of this package.

    Attributes:
        code: the status code, with the numbers of gRPC."""

    code = 2


class CancelledError(Error):
    """A wait was interrupted. After an interrupted push, close the client and connect again."""

    code = 1


class UnknownError(Error):
    """An error that fits no other class."""

    code = 2


class InvalidArgumentError(Error, ValueError):
    """An argument is wrong. The text names it, the value found, and the allowed values."""

    code = 3


class ArgumentTypeError(InvalidArgumentError, TypeError):
    """An argument has the wrong type."""


class DTypeError(ArgumentTypeError):
    """An array has the wrong element type, or is not in this host's memory."""


class DeadlineExceededError(Error, TimeoutError):
    """The call did not finish within its timeout. The text names the servers or workers that it
    waited for."""

    code = 4


class NotFoundError(Error, LookupError):
    """A variable, file or checkpoint does not exist."""

    code = 5


class AlreadyExistsError(Error):
    """The variable exists with another description."""

    code = 6


class PermissionDeniedError(Error):
    """The caller's role does not allow the call."""

    code = 7


class ResourceExhaustedError(Error):
    """Memory, a disk, or a limit of the servers is exhausted."""

    code = 8


class FailedPreconditionError(Error):
    """The call is not possible in this state, for example because a newer run of the same
    worker has replaced this client."""

    code = 9


class ClosedError(FailedPreconditionError):
    """The client, or the reader, is closed."""


class AbortedError(Error):
    """The call must be repeated, or a worker was lost and the job must stop."""

    code = 10


class OutOfRangeError(Error, IndexError):
    """A number is outside its range."""

    code = 11


class UnimplementedError(Error, NotImplementedError):
    """This version does not support the request."""

    code = 12


class InternalError(Error):
    """A fault of Cairn itself."""

    code = 13


class UnavailableError(Error):
    """A server could not be reached for as long as the client waits."""

    code = 14


class DataLossError(Error):
    """A file is corrupt, or the servers do not hold a consistent state of the job."""

    code = 15


class UnauthenticatedError(Error):
    """The servers do not accept the certificate or the token."""

    code = 16


BY_CODE: Dict[int, Type[Error]] = {
    cls.code: cls
    for cls in (CancelledError, UnknownError, InvalidArgumentError, DeadlineExceededError,
                NotFoundError, AlreadyExistsError, PermissionDeniedError, ResourceExhaustedError,
                FailedPreconditionError, AbortedError, OutOfRangeError, UnimplementedError,
                InternalError, UnavailableError, DataLossError, UnauthenticatedError)
}
