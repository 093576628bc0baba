"""mx.random: arrays of random numbers, the same for the same seed on every engine and in every thread timing.

Each call takes the next step number of one process-wide generator when it is pushed, and draws from the
stream of that (seed, step): see `generator.py` and `philox.py`. The seed is 0 until `seed` is called.
"""

from __future__ import annotations

from typing import Any

from ..core import as_dtype, Context, OpAttributeError
from ..core.errors import ArgumentError
from . import generator
from .calls.invoke import call_of, invoke
from .generator import GENERATORS
from .memory.storage import check_shape
from .ndarray import NDArray


def seed(seed_state: int, ctx: Context | str = "all") -> None:
    """Start the random numbers of all devices, or of `ctx` alone, anew from `seed_state`.

    Each device has its own numbers: from one seed for all, no two draw the same.
    """
    if ctx == "all":
        GENERATORS.seed(seed_state)
    else:
        GENERATORS.of(Context(ctx)).seed(seed_state)


def next_step(ctx: Context | None = None) -> tuple[int, int]:
    """(seed, step), unique to this call: the key of the random numbers of one operation, or of one run of a
    program, on a device.
    """
    return generator.next_step(ctx)


def get_state(ctx: Context | None = None) -> tuple[int, int]:
    """The state of a device's generator as plain ints, for a checkpoint."""
    return GENERATORS.of(ctx).get_state()


def set_state(state: tuple[int, int], ctx: Context | None = None) -> None:
    """Continue from a state that `get_state` gave."""
    GENERATORS.of(ctx).set_state(state)


def uniform(
    low: Any = 0, high: Any = 1, shape: Any = None, dtype: Any = None, ctx: Context | None = None,
    out: NDArray | None = None, **kwargs: Any,
) -> NDArray:  # fmt: skip
    """Numbers from [low, high), all equally likely; of `shape`, (1,) if None.

    With arrays as parameters, `shape` numbers for each of their elements.
    """
    return _either("uniform", shape, dtype, ctx, out, kwargs, low=low, high=high)


def normal(
    loc: Any = 0, scale: Any = 1, shape: Any = None, dtype: Any = None, ctx: Context | None = None,
    out: NDArray | None = None, **kwargs: Any,
) -> NDArray:  # fmt: skip
    """Normal numbers of mean `loc` and standard deviation `scale`; of `shape`, (1,) if None.

    With arrays as parameters, `shape` numbers for each of their elements.
    """
    return _either("normal", shape, dtype, ctx, out, kwargs, loc=loc, scale=scale)


def exponential(
    scale: Any = 1, shape: Any = None, dtype: Any = None, ctx: Context | None = None,
    out: NDArray | None = None, **kwargs: Any,
) -> NDArray:  # fmt: skip
    """Exponential numbers of mean `scale`; of `shape`, (1,) if None.

    With arrays as parameters, `shape` numbers for each of their elements.
    """
    return _either("exponential", shape, dtype, ctx, out, kwargs, scale=scale)


def gamma(
    alpha: Any = 1, beta: Any = 1, shape: Any = None, dtype: Any = None, ctx: Context | None = None,
    out: NDArray | None = None, **kwargs: Any,
) -> NDArray:  # fmt: skip
    """Gamma numbers of shape `alpha` and scale `beta`; of `shape`, (1,) if None.

    With arrays as parameters, `shape` numbers for each of their elements.
    """
    return _either("gamma", shape, dtype, ctx, out, kwargs, alpha=alpha, beta=beta)


def poisson(
    lam: Any = 1, shape: Any = None, dtype: Any = None, ctx: Context | None = None,
    out: NDArray | None = None, **kwargs: Any,
) -> NDArray:  # fmt: skip
    """Poisson numbers of mean `lam`, as floating numbers; of `shape`, (1,) if None.

    With arrays as parameters, `shape` numbers for each of their elements.
    """
    return _either("poisson", shape, dtype, ctx, out, kwargs, lam=lam)


def negative_binomial(
    k: Any = 1, p: Any = 1, shape: Any = None, dtype: Any = None, ctx: Context | None = None,
    out: NDArray | None = None, **kwargs: Any,
) -> NDArray:  # fmt: skip
    """Successes before `k` failures of probability `p` each, as floating numbers; of `shape`, (1,) if None.

    With arrays as parameters, `shape` numbers for each of their elements.
    """
    return _either("negative_binomial", shape, dtype, ctx, out, kwargs, k=k, p=p)


def generalized_negative_binomial(
    mu: Any = 1, alpha: Any = 1, shape: Any = None, dtype: Any = None, ctx: Context | None = None,
    out: NDArray | None = None, **kwargs: Any,
) -> NDArray:  # fmt: skip
    """Negative binomial numbers of mean `mu` and variance mu + alpha * mu^2; of `shape`, (1,) if None.

    With arrays as parameters, `shape` numbers for each of their elements.
    """
    return _either("generalized_negative_binomial", shape, dtype, ctx, out, kwargs, mu=mu, alpha=alpha)


def uniform_like(data: NDArray, low: float = 0, high: float = 1, out: NDArray | None = None) -> NDArray:
    """`uniform` of `data`'s shape and dtype."""
    return _like("_random_uniform_like", data, out, low=low, high=high)


def normal_like(data: NDArray, loc: float = 0, scale: float = 1, out: NDArray | None = None) -> NDArray:
    """`normal` of `data`'s shape and dtype."""
    return _like("_random_normal_like", data, out, loc=loc, scale=scale)


def exponential_like(data: NDArray, lam: float = 1, out: NDArray | None = None) -> NDArray:
    """`exponential` of `data`'s shape and dtype and rate `lam`."""
    return _like("_random_exponential_like", data, out, lam=lam)


def gamma_like(data: NDArray, alpha: float = 1, beta: float = 1, out: NDArray | None = None) -> NDArray:
    """`gamma` of `data`'s shape and dtype."""
    return _like("_random_gamma_like", data, out, alpha=alpha, beta=beta)


def poisson_like(data: NDArray, lam: float = 1, out: NDArray | None = None) -> NDArray:
    """`poisson` of `data`'s shape and dtype."""
    return _like("_random_poisson_like", data, out, lam=lam)


def negative_binomial_like(data: NDArray, k: float = 1, p: float = 1, out: NDArray | None = None) -> NDArray:
    """`negative_binomial` of `data`'s shape and dtype."""
    return _like("_random_negative_binomial_like", data, out, k=k, p=p)


def generalized_negative_binomial_like(
    data: NDArray, mu: float = 1, alpha: float = 1, out: NDArray | None = None
) -> NDArray:
    """`generalized_negative_binomial` of `data`'s shape and dtype."""
    return _like("_random_generalized_negative_binomial_like", data, out, mu=mu, alpha=alpha)


def randn(*shape: int, loc: float = 0, scale: float = 1, **kwargs: Any) -> NDArray:
    """`normal` with the shape as arguments."""
    return normal(loc, scale, shape or (1,), **kwargs)


def randint(
    low: int, high: int, shape: Any = None, dtype: Any = None, ctx: Context | None = None,
    out: NDArray | None = None, **kwargs: Any,
) -> NDArray:  # fmt: skip
    """Whole numbers from [low, high), of `shape`, (1,) if None; int32 unless `dtype` says otherwise."""
    _check_numbers("randint", kwargs, low=low, high=high)
    return _draw(
        "_random_randint",
        shape,
        dtype or (None if out is not None else "int32"),
        ctx,
        out,
        low=low,
        high=high,
    )


def multinomial(
    data: NDArray, shape: Any = (), get_prob: bool = False, out: Any = None, dtype: Any = "int32"
) -> Any:
    """Classes, class k with probability data[..., k]; `shape` of them for each row of `data`.

    With `get_prob`, a list of the classes and of the logarithms of their probabilities.
    """
    given = {"shape": shape, "get_prob": get_prob, "dtype": str(as_dtype(dtype))}
    return invoke(call_of("_sample_multinomial", given), (_array("multinomial", data),), out)


def bernoulli(data: NDArray, out: NDArray | None = None) -> NDArray:
    """1 with the probability in each element of `data`, else 0."""
    return _like("bernoulli", data, out)


def shuffle(data: NDArray, out: NDArray | None = None) -> NDArray:
    """The rows of `data` (along its first axis) in random order, every order equally likely."""
    return _like("_shuffle", data, out)


def _either(
    name: str, shape: Any, dtype: Any, ctx: Context | None, out: NDArray | None, unknown: dict[str, Any],
    **parameters: Any,
) -> NDArray:  # fmt: skip
    """By `_random_NAME` if the parameters are numbers, by `_sample_NAME` if they are arrays."""
    if not any(isinstance(p, NDArray) for p in parameters.values()):
        _check_numbers(name, unknown, **parameters)
        if name == "exponential":
            parameters = {"lam": _rate(parameters["scale"])}
        return _draw(f"_random_{name}", shape, dtype, ctx, out, **parameters)
    _check_names(name, unknown)
    for key, value in parameters.items():
        if not isinstance(value, NDArray):
            raise ArgumentError(
                f"{name} needs arrays for all parameters or for none; {key!r} is {type(value).__name__}."
            )
    arrays = tuple(parameters.values())
    if name == "exponential":
        arrays = (1.0 / arrays[0],)
    if dtype is None and out is not None:
        dtype = out.storage.dtype
    given = {"shape": () if shape is None else shape, "dtype": str(as_dtype(dtype))}
    result: NDArray = invoke(call_of(f"_sample_{name}", given), arrays, out)
    return result


def _rate(scale: float) -> float:
    if not scale > 0:
        raise OpAttributeError(f"exponential: scale must be above 0, got {scale}.")
    return 1.0 / scale


def _like(op: str, data: NDArray, out: NDArray | None, **numbers: float) -> NDArray:
    result: NDArray = invoke(call_of(op, numbers), (_array(op, data),), out)
    return result


def _draw(
    op: str, shape: Any, dtype: Any, ctx: Context | None, out: NDArray | None, **numbers: float
) -> NDArray:
    """The numbers of the next step by a random operator; shape and dtype are those of `out` if not given."""
    if out is not None:
        shape = out.shape if shape is None else shape
        dtype = out.storage.dtype if dtype is None else dtype
    size = check_shape((1,) if shape is None else shape)
    given = {**numbers, "shape": size, "dtype": str(as_dtype(dtype))}
    result: NDArray = invoke(call_of(op, given), (), out, ctx, NDArray)
    return result


def _check_names(name: str, unknown: dict[str, Any]) -> None:
    if unknown:
        raise OpAttributeError(f"{name} has no parameter {sorted(unknown)[0]!r}.")


def _check_numbers(name: str, unknown: dict[str, Any], **values: Any) -> None:
    _check_names(name, unknown)
    for key, value in values.items():
        if isinstance(value, NDArray) or not hasattr(value, "__float__"):
            raise ArgumentError(f"{name} needs a number for {key!r}, got {type(value).__name__}.")


def _array(name: str, value: Any) -> NDArray:
    if not isinstance(value, NDArray):
        raise ArgumentError(
            f"{name} needs an NDArray, got {type(value).__name__}; mx.nd.array(...) makes one."
        )
    return value
