"""Initializers: values that depend only on the seed, the variable's name and the position."""
from __future__ import annotations

from typing import Any, List, Mapping, Union

from cairn import _checks
from cairn.errors import InvalidArgumentError

Description = _checks.Description


class Initializer(_checks.Described):
    """Describes the initial values of a variable."""

    def __init__(self, type_name: str, **arguments: float) -> None:
        super().__init__(type_name)
        for name, value in arguments.items():
            if name == "seed":
                self._description[name] = _checks.integer(value, name, 0)
            else:
                low = 0 if name == "stddev" else -_checks.LARGEST_FLOAT32
                self._description[name] = _checks.number(value, name, low,
                                                         _checks.LARGEST_FLOAT32)


class Zeros(Initializer):
    """Every value is 0. The default."""

    def __init__(self) -> None:
        super().__init__("zeros")


class Ones(Initializer):
    """Every value is 1."""

    def __init__(self) -> None:
        super().__init__("ones")


class Constant(Initializer):
    """Every value is `value`."""

    def __init__(self, value: float) -> None:
        super().__init__("constant", value=value)


class Uniform(Initializer):
    """Values from the uniform distribution on [minval, maxval)."""

    def __init__(self, minval: float = -0.05, maxval: float = 0.05, seed: int = 0) -> None:
        super().__init__("uniform", minval=minval, maxval=maxval, seed=seed)
        if minval > maxval:
            raise InvalidArgumentError(f"minval is {minval} and maxval {maxval}; expected minval "
                                       "of at most maxval")


class Normal(Initializer):
    """Values from the normal distribution."""

    def __init__(self, mean: float = 0.0, stddev: float = 0.05, seed: int = 0) -> None:
        super().__init__("normal", mean=mean, stddev=stddev, seed=seed)


class GlorotUniform(Initializer):
    """Values from the uniform distribution on [-limit, limit), where limit is sqrt(6 / (fan_in +
    fan_out)), or sqrt(6 / (1 + d)) for a table's rows of width d."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__("glorot_uniform", seed=seed)


InitializerLike = Union[Initializer, Mapping[str, Any], str]


def describe(initializer: InitializerLike) -> Union[str, Description]:
    """Returns an initializer in the form that descriptions of variables take."""
    if isinstance(initializer, Initializer):
        return initializer.describe()
    expected = 'an initializer, as in cairn.init.Normal(stddev=0.1), or its type, as in "zeros"'
    if isinstance(initializer, str):
        return _checks.text(initializer, "initializer", expected)
    return _checks.mapping(initializer, "initializer", expected)


__all__: List[str] = ["Constant", "GlorotUniform", "Initializer", "Normal", "Ones", "Uniform",
                      "Zeros"]
