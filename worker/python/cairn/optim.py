"""Optimizers with Keras' formulas, arguments and defaults. They run on the servers.

Each class describes an optimizer, for example `cairn.optim.Adam(1e-3, beta_2=0.99)`.
`learning_rate` is a number or a schedule of this module. Every optimizer takes at most one of
`clipvalue` (of each element) and `clipnorm` (of a variable's gradient in a push). The norm of all
variables together is the program's to clip, as `cairn.torch.ServerOptimizer.clip_grad_norm_` does.
With `epsilon=0`, a first gradient of 0 makes a value NaN, as in Keras.
Wherever an optimizer is expected, a dictionary with the keys of a job file's `optimizer` section is
accepted too."""
from __future__ import annotations

import math
from typing import Any, List, Mapping, Optional, Sequence, Union

from cairn import _checks
from cairn.errors import InvalidArgumentError

Description = _checks.Description
# What the arguments of optimizers and schedules may be, besides numbers of at least 0. The servers
# check the narrower ranges of single optimizers.
_FLAGS = ("nesterov", "centered", "amsgrad", "staircase", "cycle")
_LISTS = ("boundaries", "values")
_STEPS = ("decay_steps", "first_decay_steps", "warmup_steps")
_UP_TO_ONE = ("momentum", "rho", "beta_1", "beta_2")
_POSITIVE = ("decay_steps", "first_decay_steps", "clipvalue", "clipnorm")
_OPTIONAL = ("weight_decay", "clipvalue", "clipnorm", "amsgrad", "warmup_target")


def _numbers(values: Any, what: str) -> List[float]:
    return [_checks.number(value, f"{what}[{i}]", 0, _checks.LARGEST_FLOAT32)
            for i, value in enumerate(_checks.items(values, what, "a list of numbers"))]


def _argument(name: str, value: Any) -> Any:
    if name in _FLAGS:
        return _checks.flag(value, name)
    if name in _LISTS:
        return _numbers(value, name)
    if name == "learning_rate_power":
        return _checks.number(value, name, -_checks.LARGEST_FLOAT32, 0)
    high = (1 if name in _UP_TO_ONE else math.inf if name in _STEPS else _checks.LARGEST_FLOAT32)
    if name in _POSITIVE:
        return _checks.number(value, name, high=high, above=0)
    return _checks.number(value, name, 1 if name == "t_mul" else 0, high)


def _given(arguments: Mapping[str, Any]) -> Description:
    return {name: _argument(name, value) for name, value in arguments.items()
            if value is not None or name not in _OPTIONAL}


class Schedule(_checks.Described):
    """A learning rate that depends on the number of updates of a variable, called `step` below."""

    def __init__(self, type_name: str, **arguments: Any) -> None:
        super().__init__(type_name, **_given(arguments))


class ExponentialDecay(Schedule):
    """initial_learning_rate * decay_rate^(step / decay_steps)."""

    def __init__(self, initial_learning_rate: float, decay_steps: float, decay_rate: float,
                 staircase: bool = False) -> None:
        super().__init__("exponential_decay", initial_learning_rate=initial_learning_rate,
                         decay_steps=decay_steps, decay_rate=decay_rate, staircase=staircase)


class InverseTimeDecay(Schedule):
    """initial_learning_rate / (1 + decay_rate * step / decay_steps)."""

    def __init__(self, initial_learning_rate: float, decay_steps: float, decay_rate: float,
                 staircase: bool = False) -> None:
        super().__init__("inverse_time_decay", initial_learning_rate=initial_learning_rate,
                         decay_steps=decay_steps, decay_rate=decay_rate, staircase=staircase)


class PolynomialDecay(Schedule):
    """Falls from initial_learning_rate to end_learning_rate in decay_steps, as a power of the
    remaining share of the steps."""

    def __init__(self, initial_learning_rate: float, decay_steps: float,
                 end_learning_rate: float = 0.0001, power: float = 1.0,
                 cycle: bool = False) -> None:
        super().__init__("polynomial_decay", initial_learning_rate=initial_learning_rate,
                         decay_steps=decay_steps, end_learning_rate=end_learning_rate,
                         power=power, cycle=cycle)


class PiecewiseConstantDecay(Schedule):
    """values[i] up to and including update boundaries[i]; the last value after all boundaries."""

    def __init__(self, boundaries: Sequence[float], values: Sequence[float]) -> None:
        super().__init__("piecewise_constant_decay", boundaries=boundaries, values=values)
        limits, rates = self._description["boundaries"], self._description["values"]
        if len(rates) != len(limits) + 1:
            raise InvalidArgumentError(
                f"values has {len(rates)} numbers and boundaries {len(limits)}; expected one more "
                "value than boundaries")
        if limits != sorted(set(limits)):
            raise _checks.unfit("boundaries", boundaries, "numbers in ascending order")


class CosineDecay(Schedule):
    """Falls along half a cosine to alpha * initial_learning_rate, after an optional warm-up to
    warmup_target."""

    def __init__(self, initial_learning_rate: float, decay_steps: float, alpha: float = 0.0,
                 warmup_target: Optional[float] = None, warmup_steps: int = 0) -> None:
        super().__init__("cosine_decay", initial_learning_rate=initial_learning_rate,
                         decay_steps=decay_steps, alpha=alpha, warmup_target=warmup_target,
                         warmup_steps=warmup_steps)


class CosineDecayRestarts(Schedule):
    """Repeats a cosine decay in periods. Each period is t_mul times as long as the previous one,
    and begins at m_mul times its initial rate."""

    def __init__(self, initial_learning_rate: float, first_decay_steps: float, t_mul: float = 2.0,
                 m_mul: float = 1.0, alpha: float = 0.0) -> None:
        super().__init__("cosine_decay_restarts", initial_learning_rate=initial_learning_rate,
                         first_decay_steps=first_decay_steps, t_mul=t_mul, m_mul=m_mul,
                         alpha=alpha)


Rate = Union[float, Schedule]


class Optimizer(_checks.Described):
    """Describes an optimizer."""

    def __init__(self, type_name: str, learning_rate: Rate, clipvalue: Optional[float] = None,
                 clipnorm: Optional[float] = None, **arguments: Any) -> None:
        rate: Any = (learning_rate.describe() if isinstance(learning_rate, Schedule) else
                     _checks.number(learning_rate, "learning_rate", 0, _checks.LARGEST_FLOAT32,
                                    expected="a float32 of at least 0, or a schedule, as in "
                                    "cairn.optim.CosineDecay(0.01, 10000)"))
        arguments.update(clipvalue=clipvalue, clipnorm=clipnorm)
        super().__init__(type_name, learning_rate=rate, **_given(arguments))
        if clipvalue is not None and clipnorm is not None:
            raise InvalidArgumentError(f"clipvalue is {clipvalue} and clipnorm {clipnorm}; "
                                       "expected at most one of them")


class SGD(Optimizer):
    """Gradient descent, optionally with momentum."""

    def __init__(self, learning_rate: Rate = 0.01, momentum: float = 0.0, nesterov: bool = False,
                 weight_decay: Optional[float] = None,
                 clipvalue: Optional[float] = None, clipnorm: Optional[float] = None) -> None:
        super().__init__("sgd", learning_rate, momentum=momentum, nesterov=nesterov,
                         weight_decay=weight_decay, clipvalue=clipvalue, clipnorm=clipnorm)


class Adagrad(Optimizer):
    """Divides the rate of each value by the root of the sum of its squared gradients."""

    def __init__(self, learning_rate: Rate = 0.001, initial_accumulator_value: float = 0.1,
                 epsilon: float = 1e-7, weight_decay: Optional[float] = None,
                 clipvalue: Optional[float] = None, clipnorm: Optional[float] = None) -> None:
        super().__init__("adagrad", learning_rate, epsilon=epsilon, weight_decay=weight_decay,
                         initial_accumulator_value=initial_accumulator_value,
                         clipvalue=clipvalue, clipnorm=clipnorm)


class Adadelta(Optimizer):
    """Scales updates by moving averages of squared gradients and squared updates."""

    def __init__(self, learning_rate: Rate = 0.001, rho: float = 0.95, epsilon: float = 1e-7,
                 weight_decay: Optional[float] = None,
                 clipvalue: Optional[float] = None, clipnorm: Optional[float] = None) -> None:
        super().__init__("adadelta", learning_rate, rho=rho, epsilon=epsilon,
                         weight_decay=weight_decay, clipvalue=clipvalue, clipnorm=clipnorm)


class RMSprop(Optimizer):
    """Divides the rate of each value by the root of a moving average of its squared gradients."""

    def __init__(self, learning_rate: Rate = 0.001, rho: float = 0.9, momentum: float = 0.0,
                 epsilon: float = 1e-7, centered: bool = False,
                 weight_decay: Optional[float] = None,
                 clipvalue: Optional[float] = None, clipnorm: Optional[float] = None) -> None:
        super().__init__("rmsprop", learning_rate, rho=rho, momentum=momentum, epsilon=epsilon,
                         centered=centered, weight_decay=weight_decay,
                         clipvalue=clipvalue, clipnorm=clipnorm)


class Adam(Optimizer):
    """Uses moving averages of the gradient and its square. A push of some rows of a dense variable
    also updates its other rows, as in Keras; of a table it updates only the pushed rows."""

    _type = "adam"

    def __init__(self, learning_rate: Rate = 0.001, beta_1: float = 0.9, beta_2: float = 0.999,
                 epsilon: float = 1e-7, amsgrad: Optional[bool] = None,
                 weight_decay: Optional[float] = None,
                 clipvalue: Optional[float] = None, clipnorm: Optional[float] = None) -> None:
        super().__init__(self._type, learning_rate, beta_1=beta_1, beta_2=beta_2, epsilon=epsilon,
                         amsgrad=amsgrad, weight_decay=weight_decay,
                         clipvalue=clipvalue, clipnorm=clipnorm)


class AdamW(Adam):
    """Adam with decoupled weight decay."""

    _type = "adamw"

    def __init__(self, learning_rate: Rate = 0.001, weight_decay: float = 0.004,
                 **arguments: Any) -> None:
        super().__init__(learning_rate, weight_decay=weight_decay, **arguments)


class Adamax(Adam):
    """Adam with the infinity norm."""

    _type = "adamax"


class Nadam(Adam):
    """Adam with Nesterov momentum."""

    _type = "nadam"


class LazyAdam(Adam):
    """Adam that updates only the pushed rows, also of dense variables."""

    _type = "lazy_adam"


class Ftrl(Optimizer):
    """Follow the regularized leader, for sparse linear models."""

    def __init__(self, learning_rate: Rate = 0.001, learning_rate_power: float = -0.5,
                 initial_accumulator_value: float = 0.1, l1_regularization_strength: float = 0.0,
                 l2_regularization_strength: float = 0.0,
                 l2_shrinkage_regularization_strength: float = 0.0, beta: float = 0.0,
                 weight_decay: Optional[float] = None,
                 clipvalue: Optional[float] = None, clipnorm: Optional[float] = None) -> None:
        super().__init__(
            "ftrl", learning_rate, learning_rate_power=learning_rate_power, beta=beta,
            initial_accumulator_value=initial_accumulator_value,
            l1_regularization_strength=l1_regularization_strength,
            l2_regularization_strength=l2_regularization_strength,
            l2_shrinkage_regularization_strength=l2_shrinkage_regularization_strength,
            weight_decay=weight_decay, clipvalue=clipvalue, clipnorm=clipnorm)


class Lion(Optimizer):
    """Moves each value by the sign of an interpolated momentum."""

    def __init__(self, learning_rate: Rate = 0.001, beta_1: float = 0.9, beta_2: float = 0.99,
                 weight_decay: Optional[float] = None,
                 clipvalue: Optional[float] = None, clipnorm: Optional[float] = None) -> None:
        super().__init__("lion", learning_rate, beta_1=beta_1, beta_2=beta_2,
                         weight_decay=weight_decay, clipvalue=clipvalue, clipnorm=clipnorm)


OptimizerLike = Union[Optimizer, Mapping[str, Any], str]


def describe(optimizer: OptimizerLike) -> Union[str, Description]:
    """Returns an optimizer in the form that descriptions of variables take."""
    if isinstance(optimizer, Optimizer):
        return optimizer.describe()
    expected = 'an optimizer, as in cairn.optim.Adam(1e-3), or its type, as in "adam"'
    if isinstance(optimizer, str):
        return _checks.text(optimizer, "optimizer", expected)
    return _checks.mapping(optimizer, "optimizer", expected)


__all__: List[str] = [
    "Adadelta", "Adagrad", "Adam", "Adamax", "AdamW", "CosineDecay", "CosineDecayRestarts",
    "ExponentialDecay", "Ftrl", "InverseTimeDecay", "LazyAdam", "Lion", "Nadam", "Optimizer",
    "PiecewiseConstantDecay", "PolynomialDecay", "RMSprop", "Schedule", "SGD",
]
