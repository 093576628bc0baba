"""`mx.sym.random`: arrays of random numbers, drawn anew at every run."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from ..core.errors import OpAttributeError
from ..ndarray import random as arrays
from ..ops import find_op
from .functions import apply
from .symbol import Symbol


def _drawing(function: Callable[..., Any]) -> Callable[..., Symbol]:
    """The function of symbols that draws as `function` of `mx.nd.random` does: with its parameters, but for
    device and result, and with those of a node.
    """
    told = [p for p in inspect.signature(function).parameters.values() if p.name not in ("ctx", "out")]
    if told[-1].kind is not inspect.Parameter.VAR_KEYWORD:
        told.append(inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD, annotation="Any"))
    told = [p.replace(annotation="Symbol") if p.name == "data" else p for p in told]
    signature, name = inspect.Signature(told, return_annotation="Symbol"), function.__name__

    def drawing(*args: Any, **kwargs: Any) -> Symbol:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        given = dict(bound.arguments)
        more = given.pop("kwargs")
        if "data" in given:
            return _call(f"_random_{name}", (given.pop("data"),), given, more)
        return _either(name, given.pop("shape"), given.pop("dtype"), more, **given)

    drawing.__name__ = drawing.__qualname__ = name
    drawing.__signature__ = signature  # type: ignore[attr-defined]
    drawing.__doc__ = (function.__doc__ or "").replace("With arrays", "With symbols")
    return drawing


uniform, uniform_like = _drawing(arrays.uniform), _drawing(arrays.uniform_like)
normal, normal_like = _drawing(arrays.normal), _drawing(arrays.normal_like)
exponential, exponential_like = _drawing(arrays.exponential), _drawing(arrays.exponential_like)
gamma, gamma_like = _drawing(arrays.gamma), _drawing(arrays.gamma_like)
poisson, poisson_like = _drawing(arrays.poisson), _drawing(arrays.poisson_like)
negative_binomial = _drawing(arrays.negative_binomial)
negative_binomial_like = _drawing(arrays.negative_binomial_like)
generalized_negative_binomial = _drawing(arrays.generalized_negative_binomial)
generalized_negative_binomial_like = _drawing(arrays.generalized_negative_binomial_like)


def randn(*shape: int, loc: float = 0, scale: float = 1, **kwargs: Any) -> Symbol:
    """`normal` with the shape as arguments."""
    return normal(loc, scale, shape or (1,), **kwargs)


def randint(low: int, high: int, shape: Any = (1,), dtype: Any = None, **kwargs: Any) -> Symbol:
    """Whole numbers from [low, high), of `shape`; int32 unless `dtype` says otherwise."""
    return _call("_random_randint", (), {"low": low, "high": high, "shape": shape, "dtype": dtype}, kwargs)


def multinomial(
    data: Symbol, shape: Any = (), get_prob: bool = True, dtype: Any = "int32", **kwargs: Any
) -> Symbol:
    """Classes, class k with probability data[..., k]; `shape` of them for each row of `data`.

    With `get_prob`, which is the default here as in MXNet, a second output has their log probabilities.
    """
    return _call(
        "_sample_multinomial", (data,), {"shape": shape, "get_prob": get_prob, "dtype": dtype}, kwargs
    )


def bernoulli(data: Symbol, **kwargs: Any) -> Symbol:
    """1 with the probability that each element of `data` says, else 0."""
    return _call("bernoulli", (data,), {}, kwargs)


def shuffle(data: Symbol, **kwargs: Any) -> Symbol:
    """The rows of `data` (along its first axis) in random order, every order equally likely."""
    return _call("_shuffle", (data,), {}, kwargs)


def _either(name: str, shape: Any, dtype: Any, kwargs: dict[str, Any], **parameters: Any) -> Symbol:
    """By `_random_NAME` if the parameters are numbers, by `_sample_NAME` if they are symbols."""
    symbols = [isinstance(p, Symbol) for p in parameters.values()]
    if any(symbols) and not all(symbols):
        raise OpAttributeError(f"{name} needs symbols for all parameters or for none, got {parameters}.")
    if name == "exponential":
        scale = parameters["scale"]
        if not symbols[0] and not scale > 0:
            raise OpAttributeError(f"exponential: scale must be above 0, got {scale}.")
        parameters = {"lam": 1.0 / scale}
    if any(symbols):
        given = {"shape": () if shape is None else shape, "dtype": dtype}
        return _call(f"_sample_{name}", tuple(parameters.values()), given, kwargs)
    given = parameters | {"shape": (1,) if shape is None else shape, "dtype": dtype}
    return _call(f"_random_{name}", (), given, kwargs)


def _call(op: str, inputs: tuple[Symbol, ...], parameters: dict[str, Any], kwargs: dict[str, Any]) -> Symbol:
    given = {k: v for k, v in parameters.items() if v is not None}
    return apply(find_op(op), op, inputs, {**given, **kwargs})
