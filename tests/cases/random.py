"""Rows of `conformance.py` for random numbers. See `cases.py`.

What the numbers are is tested in `test_distributions.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mxlite import ops
from tests.conformance.case import Case, integers, positive, unit

_DRAWS = "other numbers than MXNet's"

_NUMBERS: dict[str, dict[str, Any]] = {
    "exponential": {"lam": 2.5},
    "gamma": {"alpha": 0.7, "beta": 3},
    "poisson": {"lam": 30},
    "negative_binomial": {"k": 3, "p": 0.4},
    "generalized_negative_binomial": {"mu": 12, "alpha": 0.3},
}
_SIMPLE: dict[str, dict[str, Any]] = {"uniform": {"low": -1, "high": 2}, "normal": {"loc": 1, "scale": 2}}


def _number(name: str, attrs: dict[str, Any]) -> dict[str, Case]:
    op = ops.find_op(f"_random_{name}")
    # Several of the pieces in which numbers are drawn, and for the allocation check many.
    small, large = {"shape": (50, 47)}, {"shape": (500, 220)}
    return {f"_random_{name}": Case(op, attrs | small, [], mxnet=_DRAWS, large_attrs=large)}


def _sample(name: str, count: int) -> dict[str, Case]:
    op = ops.find_op(f"_sample_{name}")
    fill = {n: unit if n == "p" else positive for n in op.inputs}
    one, many = [(4, 3)] * count, [(3,)] * count
    return {
        f"_sample_{name}": Case(op, {}, one, make=fill, mxnet=_DRAWS, large=[(60_000,)] * count),
        f"_sample_{name}-many": Case(
            op,
            {"shape": (2, 5), "dtype": "float64"},
            many,
            make=fill,
            mxnet=_DRAWS,
            large=[(6_000,)] * count,
        ),
    }


def _torch_density(name: str) -> Any:
    """log p, or p, by torch.distributions."""

    def call(a: Any, sample: Any, *parameters: Any) -> Any:
        import torch.distributions as law

        wide = [p.reshape(p.shape + (1,) * (sample.ndim - p.ndim)) for p in parameters]
        if name == "generalized_negative_binomial":
            wide = [1 / wide[1], 1 / (1 + wide[0] * wide[1])]
        if name.endswith("negative_binomial"):
            made = law.NegativeBinomial(wide[0], probs=1 - wide[1], validate_args=False)
        else:
            made = getattr(law, name.capitalize())(*wide, validate_args=False)
        value = made.log_prob(sample)
        return value if a.is_log else value.exp()

    return call


def _density(name: str, count: int, make: Any) -> dict[str, Case]:
    op = ops.find_op(f"_random_pdf_{name}")
    whole = name.endswith(("poisson", "binomial"))
    fill: dict[str, Any] = dict.fromkeys(op.inputs[1:], positive) | {
        "sample": integers(0, 6) if whole else positive
    }
    fill |= make
    inputs = op.inputs[1:] if whole or name == "uniform" else None
    return {
        f"_random_pdf_{name}{mark}": Case(
            op,
            {"is_log": is_log},
            [sample, *[given] * count],
            make=fill,
            grad_inputs=inputs,
            tolerance=1e-5,
            torch=_torch_density(name),
            large=[(6_000, *([10] * (len(sample) - 1))), *[(6_000,)] * count]
            if mark
            else [(60_000,)] * (1 + count),
        )
        for is_log, mark, sample, given in ((False, "", (5,), (5,)), (True, "-many", (3, 4), (3,)))
    }


def _torch_dirichlet(a: Any, sample: Any, alpha: Any) -> Any:
    # PyTorch's own wants samples whose sum is 1.
    wide = alpha.reshape(*alpha.shape[:-1], *(1,) * (sample.ndim - alpha.ndim), alpha.shape[-1])
    value = ((wide - 1) * sample.log() - wide.lgamma()).sum(-1) + wide.sum(-1).lgamma()
    return value if a.is_log else value.exp()


def _classes(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Probabilities along the last axis."""
    p = rng.uniform(0.1, 1, shape)
    return p / p.sum(-1, keepdims=True)


def _multinomial(data: tuple[int, ...], large: tuple[int, ...], **attrs: Any) -> Case:
    made = {"data": _classes}
    return Case(ops.SampleMultinomial, attrs, [data], make=made, mxnet=_DRAWS, large=[large])


ROWS: dict[str, Case] = {
    **{
        f"_random_pdf_dirichlet{mark}": Case(
            ops._random_pdf_dirichlet,
            {"is_log": is_log},
            [sample, alpha],
            make={"sample": _classes, "alpha": positive},
            tolerance=1e-5,
            torch=_torch_dirichlet,
            large=[(20_000, *sample[1:]), (20_000, *alpha[1:])],
        )
        for is_log, mark, sample, alpha in ((False, "", (5, 3), (5, 3)), (True, "-many", (3, 2, 4), (3, 4)))
    },
    **{k: row for name, attrs in _NUMBERS.items() for k, row in _number(name, attrs).items()},
    **{
        f"_random_{name}_like": Case(
            ops.find_op(f"_random_{name}_like"), attrs, [(3, 4)], mxnet=_DRAWS, large=[(60_000,)]
        )
        for name, attrs in (_NUMBERS | _SIMPLE).items()
    },
    **{
        k: row for name, attrs in (_NUMBERS | _SIMPLE).items() for k, row in _sample(name, len(attrs)).items()
    },
    **_density(
        "uniform",
        2,
        {"low": lambda rng, shape: -rng.uniform(1, 2, shape), "high": lambda r, s: r.uniform(3, 4, s)},
    ),
    **_density("normal", 2, {}),
    **_density("gamma", 2, {}),
    **_density("exponential", 1, {}),
    **_density("poisson", 1, {}),
    **_density("negative_binomial", 2, {"p": unit}),
    **_density("generalized_negative_binomial", 2, {}),
    "_random_randint": Case(ops.RandomRandint, {"low": -3, "high": 9, "shape": (500, 220)}, [], mxnet=_DRAWS),
    "_random_randint-wide": Case(
        ops.RandomRandint,
        {"low": -(2**40), "high": 2**50, "shape": (165_001,), "dtype": "int64"},
        [],
        mxnet=_DRAWS,
    ),
    "bernoulli": Case(ops.bernoulli, {}, [(3, 4)], make={"data": unit}, mxnet=_DRAWS),
    "_sample_multinomial": _multinomial((4, 5), (40_000, 5)),
    "_sample_multinomial-one": _multinomial((5,), (230_000,)),
    "_sample_multinomial-many": _multinomial((2, 3, 4), (2, 30, 4000), shape=(2, 7), dtype="float64"),
    "_sample_multinomial-log": _multinomial((4, 5), (40_000, 5), get_prob=True, dtype="float64", shape=(3,)),
    "_sample_multinomial-log-bytes": _multinomial((4, 5), (40_000, 5), get_prob=True, dtype="uint8"),
    "_shuffle": Case(ops.Shuffle, {}, [(7, 3)], mxnet=_DRAWS),
    "_shuffle-vector": Case(
        ops.Shuffle, {}, [(9,)], dtype="int32", make={"data": integers(0, 9)}, mxnet=_DRAWS
    ),
    "_shuffle-one": Case(ops.Shuffle, {}, [(1, 2, 2)], mxnet=_DRAWS),
}
