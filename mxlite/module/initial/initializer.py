"""First values of parameters.

`init(InitDesc(name, attrs), array)` fills the array. The variable's own `__init__` attribute decides, if it
has one; else the end of its name does: weights get what the class says; bias, beta, min and moving_mean 0;
gamma, max and moving_var 1. So `One()` given to a whole network sets its weights, not its biases. Random
numbers are `mx.random`'s: `mx.random.seed` makes them repeat.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np

from ... import ndarray as nd
from ...core.errors import (
    ArgumentError,
    MissingMethodError,
    nearest,
    RangeError,
    ShapeError,
    UnknownNameError,
)
from ...core.log import Log
from ...core.wanted import number, wanted
from ...ndarray import NDArray
from ..registry import Registry
from .fused_weights import FusedWeights
from .given_values import Load as Load, Mixed as Mixed

_log = Log(__name__)

Class = TypeVar("Class", bound=type)


class InitDesc(str):
    """A variable's name, with its attributes and the initializer to use if they name none."""

    attrs: Mapping[str, str]
    global_init: Any

    def __new__(cls, name: str, attrs: Mapping[str, str] | None = None, global_init: Any = None) -> InitDesc:
        desc = super().__new__(cls, name)
        desc.attrs = attrs or {}
        desc.global_init = global_init
        return desc


class Initializer:
    """Base of all initializers; a subclass defines `_init_weight(name, array)`.

    Keyword arguments are what `dumps` writes, so that `create(init.dumps())` gives an equal initializer.
    """

    # The end of a name -> the method that fills it; the first that fits.
    _PATTERNS = (
        ("weight", "_init_weight"),
        ("bias", "_init_bias"),
        ("gamma", "_init_gamma"),
        ("beta", "_init_beta"),
        ("min", "_init_zero"),
        ("max", "_init_one"),
        ("moving_mean", "_init_zero"),
        ("moving_var", "_init_one"),
        ("moving_inv_var", "_init_zero"),
        ("moving_avg", "_init_zero"),
    )

    def __init__(self, **kwargs: Any) -> None:
        self._kwargs = kwargs
        self._verbose = False
        self._print_func: Callable[[NDArray], str] = _root_mean_square

    def set_verbosity(
        self, verbose: bool = False, print_func: Callable[[NDArray], str] | None = None
    ) -> Initializer:
        """Log each array that is filled, with `print_func(array)`: the root of its mean square by default."""
        self._verbose = verbose
        self._print_func = print_func or _root_mean_square
        return self

    def dumps(self) -> str:
        """JSON `["name", {arguments}]`, the value of a variable's `__init__` attribute."""
        return json.dumps([type(self).__name__.lower(), self._kwargs])

    def __call__(self, desc: str, arr: NDArray) -> None:
        """Fill `arr`, the variable of that name. UnknownNameError if the name does not tell how."""
        if not isinstance(desc, str):
            raise ArgumentError(f"An initializer takes a name (InitDesc or text) and an array; got {desc!r}.")
        wanted(f"What {type(self).__name__} is to fill", arr, "an NDArray", NDArray)
        own = ""
        if isinstance(desc, InitDesc):
            if desc.global_init is None:
                desc.global_init = self
            own = desc.attrs.get("__init__", "")
        if own:
            create(own)._init_weight(desc, arr)
        else:
            for ending, method in self._PATTERNS:
                if desc.endswith(ending):
                    getattr(self, method)(desc, arr)
                    break
            else:
                self._init_default(desc, arr)
        if self._verbose:
            _log.info("Initialized %s as %s: %s", desc, own or self.dumps(), self._print_func(arr))

    def _init_zero(self, name: str, arr: NDArray) -> None:
        arr[:] = 0.0

    def _init_one(self, name: str, arr: NDArray) -> None:
        arr[:] = 1.0

    def _init_bias(self, name: str, arr: NDArray) -> None:
        arr[:] = 0.0

    def _init_gamma(self, name: str, arr: NDArray) -> None:
        arr[:] = 1.0

    def _init_beta(self, name: str, arr: NDArray) -> None:
        arr[:] = 0.0

    def _init_weight(self, name: str, arr: NDArray) -> None:
        raise MissingMethodError(f"{type(self).__name__} must define _init_weight(name, array).")

    def _init_default(self, name: str, arr: NDArray) -> None:
        raise UnknownNameError(
            f"How to initialize {name!r} does not follow from its name: that works for names that end in "
            f"{', '.join(ending for ending, _ in self._PATTERNS)}. Say it with "
            f"mx.sym.Variable({str(name)!r}, init=mx.init.Zero()); FusedRNN is for the parameters of RNN."
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Initializer):
            return NotImplemented
        return type(self) is type(other) and self._kwargs == other._kwargs

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self._kwargs.items())})"


_registry: Registry[Initializer] = Registry("initializer", Initializer)


def register(cls: Class) -> Class:
    """Class decorator: make an initializer known by its lower-case name."""
    return _registry.register(cls)


def create(name: str | Initializer, *args: Any, **kwargs: Any) -> Initializer:
    """An initializer by name, or from the JSON that `dumps` writes."""
    return _registry.create(name, *args, **kwargs)


@_registry.alias("zeros")
@register
class Zero(Initializer):
    """Weights 0."""

    def __init__(self) -> None:
        super().__init__()

    def _init_weight(self, name: str, arr: NDArray) -> None:
        arr[:] = 0.0


@_registry.alias("ones")
@register
class One(Initializer):
    """Weights 1."""

    def __init__(self) -> None:
        super().__init__()

    def _init_weight(self, name: str, arr: NDArray) -> None:
        arr[:] = 1.0


@register
class Constant(Initializer):
    """Weights of one value: a number, or an array (or nested list) of the weight's shape."""

    def __init__(self, value: Any) -> None:
        if not np.isscalar(value):
            value = (value.asnumpy() if isinstance(value, NDArray) else np.asarray(value)).tolist()
        super().__init__(value=value)
        self.value = value

    def _init_weight(self, name: str, arr: NDArray) -> None:
        value = np.asarray(self.value)
        if value.ndim and value.shape != arr.shape:
            raise ShapeError(
                f"Constant's value for {str(name)!r} must be {arr.shape}, but it is {value.shape}."
            )
        arr[:] = value.astype(arr.dtype) if value.ndim else self.value


@register
class Uniform(Initializer):
    """Weights uniform in [-scale, scale)."""

    def __init__(self, scale: float = 0.07) -> None:
        super().__init__(scale=scale)
        self.scale = number("Uniform: scale", scale)

    def _init_weight(self, name: str, arr: NDArray) -> None:
        nd.random.uniform(-self.scale, self.scale, shape=arr.shape, out=arr)


@register
class Normal(Initializer):
    """Weights normal with mean 0 and standard deviation sigma."""

    def __init__(self, sigma: float = 0.01) -> None:
        super().__init__(sigma=sigma)
        self.sigma = number("Normal: sigma", sigma)

    def _init_weight(self, name: str, arr: NDArray) -> None:
        nd.random.normal(0, self.sigma, shape=arr.shape, out=arr)


@register
class Orthogonal(Initializer):
    """`scale` times a matrix with orthonormal rows or columns, whichever are fewer.

    weight: (M, ...) read as (M, K). From the singular vectors of a random matrix (Saxe, McClelland and
    Ganguli, 2014, Exact solutions to the nonlinear dynamics of learning in deep linear neural networks).
    """

    def __init__(self, scale: float = 1.414, rand_type: str = "uniform") -> None:
        _one_of("rand_type", rand_type, ("uniform", "normal"))
        super().__init__(scale=scale, rand_type=rand_type)
        self.scale = number("Orthogonal: scale", scale)
        self.rand_type = rand_type

    def _init_weight(self, name: str, arr: NDArray) -> None:
        _at_least_2d(self, name, arr)
        shape = (arr.shape[0], math.prod(arr.shape[1:]))
        if self.rand_type == "uniform":
            draw = nd.random.uniform(-1.0, 1.0, shape=shape)
        else:
            draw = nd.random.normal(0.0, 1.0, shape=shape)
        left, _, right = np.linalg.svd(draw.asnumpy(), full_matrices=False)
        basis = left if left.shape == shape else right
        arr[:] = (self.scale * basis).reshape(arr.shape).astype(arr.dtype)


@register
class Xavier(Initializer):
    """Weights whose variance follows from the size of the layer (Glorot and Bengio, 2010).

    weight: (F, C, ...) with A the product of the axes after C; fan_in = C*A, fan_out = F*A; s =
    sqrt(magnitude / n), n being fan_in ("in"), fan_out ("out") or their mean ("avg"). Uniform in [-s, s), or
    normal with standard deviation s ("gaussian").
    """

    def __init__(self, rnd_type: str = "uniform", factor_type: str = "avg", magnitude: float = 3) -> None:
        _one_of("rnd_type", rnd_type, ("uniform", "gaussian"))
        _one_of("factor_type", factor_type, ("avg", "in", "out"))
        super().__init__(rnd_type=rnd_type, factor_type=factor_type, magnitude=magnitude)
        self.rnd_type = rnd_type
        self.factor_type = factor_type
        self.magnitude = number("Xavier: magnitude", magnitude)

    def _init_weight(self, name: str, arr: NDArray) -> None:
        _at_least_2d(self, name, arr)
        area = math.prod(arr.shape[2:])
        fan_in, fan_out = arr.shape[1] * area, arr.shape[0] * area
        count = {"avg": (fan_in + fan_out) / 2.0, "in": fan_in, "out": fan_out}[self.factor_type]
        scale = math.sqrt(self.magnitude / count)
        if self.rnd_type == "uniform":
            nd.random.uniform(-scale, scale, shape=arr.shape, out=arr)
        else:
            nd.random.normal(0, scale, shape=arr.shape, out=arr)


@register
class MSRAPrelu(Xavier):
    """Normal weights for layers followed by (leaky) rectifiers of that slope (He et al., 2015).

    Xavier with "gaussian" and magnitude `2 / (1 + slope**2)`.
    """

    def __init__(self, factor_type: str = "avg", slope: float = 0.25) -> None:
        super().__init__("gaussian", factor_type, 2.0 / (1 + slope**2))
        self._kwargs = {"factor_type": factor_type, "slope": slope}


@register
class Bilinear(Initializer):
    """Weights of a deconvolution that enlarges images by bilinear interpolation. weight: (C, F, H, W)."""

    def __init__(self) -> None:
        super().__init__()

    def _init_weight(self, name: str, arr: NDArray) -> None:
        if len(arr.shape) != 4:
            raise ShapeError(f"Bilinear needs {str(name)!r} to be (C, F, H, W), but it is {arr.shape}.")
        height, width = arr.shape[2:]
        half = math.ceil(width / 2.0)
        centre = (2 * half - 1 - half % 2) / (2.0 * half)
        rows = 1 - np.abs(np.arange(height) / half - centre)
        columns = 1 - np.abs(np.arange(width) / half - centre)
        arr[:] = np.broadcast_to(np.outer(rows, columns), arr.shape).astype(arr.dtype)


@register
class LSTMBias(Initializer):
    """0, with the forget gate's quarter at `forget_bias`. bias: (4*H,), gates in the order i, f, c, o."""

    def __init__(self, forget_bias: float = 1.0) -> None:
        super().__init__(forget_bias=forget_bias)
        self.forget_bias = forget_bias

    def _init_weight(self, name: str, arr: NDArray) -> None:
        arr[:] = 0.0
        hidden = arr.shape[0] // 4
        arr[hidden : 2 * hidden] = self.forget_bias


@register
class FusedRNN(Initializer):
    """Fills the one vector of weights of `mx.rnn.FusedRNNCell`, piece by piece, by `init`.

    `init`: an initializer, its JSON, or None for the one that the whole network has. The biases of an LSTM's
    forget gates become `forget_bias`. The other arguments are those of the cell.
    """

    def __init__(
        self,
        init: Any,
        num_hidden: int,
        num_layers: int,
        mode: str,
        bidirectional: bool = False,
        forget_bias: float = 1.0,
    ) -> None:
        inner = None if init is None else create(init)
        super().__init__(
            init=None if inner is None else inner.dumps(),
            num_hidden=num_hidden,
            num_layers=num_layers,
            mode=mode,
            bidirectional=bidirectional,
            forget_bias=forget_bias,
        )
        self._init = inner
        self._forget_bias = forget_bias
        self._weights = FusedWeights(num_hidden, num_layers, mode, bool(bidirectional))

    def _init_weight(self, name: str, arr: NDArray) -> None:
        inner = self._init if self._init is not None else getattr(name, "global_init", None)
        if inner is None:
            raise UnknownNameError(
                f"FusedRNN has no initializer for the weights in {str(name)!r}: give init."
            )
        for piece, values in self._weights.pieces(arr).items():
            if self._weights.mode == "lstm" and piece.endswith("_f_bias"):
                values[:] = self._forget_bias
            else:
                inner(InitDesc(piece, global_init=inner), values)


def _one_of(what: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise RangeError(f"{what} is one of {choices}, got {value!r}.{nearest(str(value), choices)}")


def _at_least_2d(init: Initializer, name: str, arr: NDArray) -> None:
    if len(arr.shape) < 2:
        raise ShapeError(
            f"{type(init).__name__} needs {str(name)!r} to have at least 2 axes, but it is {arr.shape}. "
            f"Give a vector its own initializer, for example mx.sym.Variable(..., init=mx.init.Zero())."
        )


def _root_mean_square(arr: NDArray) -> str:
    return str(float(np.sqrt(np.mean(np.square(arr.asnumpy().astype("float64"))))))
