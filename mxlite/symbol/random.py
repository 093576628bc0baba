"""`mx.sym.random`: arrays of random numbers, drawn anew at every run."""

from __future__ import annotations

from typing import Any

from ..core.errors import OpAttributeError
from ..ops import find_op
from .functions import apply
from .symbol import Symbol


def uniform(low: Any = 0, high: Any = 1, shape: Any = None, dtype: Any = None, **kwargs: Any) -> Symbol:
    """Numbers from [low, high), all equally likely; of `shape`, (1,) if None.

    With symbols as parameters, `shape` numbers for each of their elements.
    """
    return _either("uniform", shape, dtype, kwargs, low=low, high=high)


def normal(loc: Any = 0, scale: Any = 1, shape: Any = None, dtype: Any = None, **kwargs: Any) -> Symbol:
    """Normal numbers of mean `loc` and standard deviation `scale`; of `shape`, (1,) if None.

    With symbols as parameters, `shape` numbers for each of their elements.
    """
    return _either("normal", shape, dtype, kwargs, loc=loc, scale=scale)


def exponential(scale: Any = 1, shape: Any = None, dtype: Any = None, **kwargs: Any) -> Symbol:
    """Exponential numbers of mean `scale`; of `shape`, (1,) if None.

    With symbols as parameters, `shape` numbers for each of their elements.
    """
    return _either("exponential", shape, dtype, kwargs, scale=scale)


def gamma(alpha: Any = 1, beta: Any = 1, shape: Any = None, dtype: Any = None, **kwargs: Any) -> Symbol:
    """Gamma numbers of shape `alpha` and scale `beta`; of `shape`, (1,) if None.

    With symbols as parameters, `shape` numbers for each of their elements.
    """
    return _either("gamma", shape, dtype, kwargs, alpha=alpha, beta=beta)


def poisson(lam: Any = 1, shape: Any = None, dtype: Any = None, **kwargs: Any) -> Symbol:
    """Poisson numbers of mean `lam`, as floating numbers; of `shape`, (1,) if None.

    With symbols as parameters, `shape` numbers for each of their elements.
    """
    return _either("poisson", shape, dtype, kwargs, lam=lam)


def negative_binomial(k: Any = 1, p: Any = 1, shape: Any = None, dtype: Any = None, **kwargs: Any) -> Symbol:
    """Successes before `k` failures of probability `p` each, as floating numbers; of `shape`, (1,) if None.

    With symbols as parameters, `shape` numbers for each of their elements.
    """
    return _either("negative_binomial", shape, dtype, kwargs, k=k, p=p)


def generalized_negative_binomial(
    mu: Any = 1, alpha: Any = 1, shape: Any = None, dtype: Any = None, **kwargs: Any
) -> Symbol:
    """Negative binomial numbers of mean `mu` and variance mu + alpha * mu^2; of `shape`, (1,) if None.

    With symbols as parameters, `shape` numbers for each of their elements.
    """
    return _either("generalized_negative_binomial", shape, dtype, kwargs, mu=mu, alpha=alpha)


def uniform_like(data: Symbol, low: float = 0, high: float = 1, **kwargs: Any) -> Symbol:
    """`uniform` of `data`'s shape and dtype."""
    return _call("_random_uniform_like", (data,), {"low": low, "high": high}, kwargs)


def normal_like(data: Symbol, loc: float = 0, scale: float = 1, **kwargs: Any) -> Symbol:
    """`normal` of `data`'s shape and dtype."""
    return _call("_random_normal_like", (data,), {"loc": loc, "scale": scale}, kwargs)


def exponential_like(data: Symbol, lam: float = 1, **kwargs: Any) -> Symbol:
    """`exponential` of `data`'s shape and dtype and rate `lam`."""
    return _call("_random_exponential_like", (data,), {"lam": lam}, kwargs)


def gamma_like(data: Symbol, alpha: float = 1, beta: float = 1, **kwargs: Any) -> Symbol:
    """`gamma` of `data`'s shape and dtype."""
    return _call("_random_gamma_like", (data,), {"alpha": alpha, "beta": beta}, kwargs)


def poisson_like(data: Symbol, lam: float = 1, **kwargs: Any) -> Symbol:
    """`poisson` of `data`'s shape and dtype."""
    return _call("_random_poisson_like", (data,), {"lam": lam}, kwargs)


def negative_binomial_like(data: Symbol, k: float = 1, p: float = 1, **kwargs: Any) -> Symbol:
    """`negative_binomial` of `data`'s shape and dtype."""
    return _call("_random_negative_binomial_like", (data,), {"k": k, "p": p}, kwargs)


def generalized_negative_binomial_like(
    data: Symbol, mu: float = 1, alpha: float = 1, **kwargs: Any
) -> Symbol:
    """`generalized_negative_binomial` of `data`'s shape and dtype."""
    return _call("_random_generalized_negative_binomial_like", (data,), {"mu": mu, "alpha": alpha}, kwargs)


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
