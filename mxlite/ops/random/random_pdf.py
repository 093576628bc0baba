"""Densities of random numbers, and their gradients.

`sample` is (s..., t...), the parameters are (s...): each parameter belongs to a block of neighbouring
samples. A law is written once, as log p and its slopes; the density is exp of that. Computed in float64, a
piece at a time. From each law follows its operator.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from math import log, pi, prod
from typing import Any, ClassVar

import numpy as np

from ...core.errors import ShapeError
from ...core.record import record
from ...graph.opdef import Op, with_parameters
from ..elementwise.gamma_function import digamma_values, gammaln_values
from ..scratch import carve, scratch_bytes

_PIECE = 512


class _Density(Op):
    """Base: `law` gives log p, then its slopes by the sample and by each parameter. It has no control flow
    on values, so that code can be generated from it."""

    abstract = True
    law: ClassVar[Callable[..., Any]]
    accepts = "float"
    flops_per_input = 60

    def __init_subclass__(cls):
        def forward(xp, a, sample, *parameters, out):
            _density(xp, cls.law, a, sample, parameters, out)

        def backward(xp, a, d_out, sample, *parameters, work, **made):
            d_sample, *d_parameters = (made[d] for d in gradients)
            _gradients(xp, cls.law, a, d_out, sample, parameters, d_sample, d_parameters, work)

        gradients = [f"d_{name}" for name in cls.inputs]
        cls.forward = staticmethod(with_parameters(forward, cls.inputs, ("out",), ()))
        cls.backward = staticmethod(with_parameters(backward, ("d_out", *cls.inputs), gradients, ("work",)))
        super().__init_subclass__()

    @record
    class Attrs:
        is_log: bool = False

    @staticmethod
    def infer_shape(a, *shapes):
        sample, first = shapes[0], shapes[1]
        if len(set(shapes[1:])) > 1:
            raise ShapeError(f"parameters must be of one shape, got {shapes[1:]}.")
        if sample[: len(first)] != first:
            raise ShapeError(f"sample must begin with the shape of the parameters, {first}, got {sample}.")
        return shapes, (sample,)

    @staticmethod
    def backward_workspace(a, inputs, outputs, dtype):
        return scratch_bytes(_totals(len(inputs) - 1, prod(inputs[1])))


def _totals(count, size):
    return [((size,), np.dtype("float64"))] * count


def _pieces(xp, sample, parameters):
    """(slice of samples, slice of parameters, samples, parameters), in float64."""
    flat = sample.reshape(-1)
    each = flat.size // parameters[0].size if parameters[0].size else 1
    for begin in range(0, flat.size, _PIECE):
        part = slice(begin, min(begin + _PIECE, flat.size))
        row = xp.arange(part.start, part.stop) // each
        yield (
            part,
            row,
            flat[part].astype("float64"),
            [p.reshape(-1)[row].astype("float64") for p in parameters],
        )


def _density(xp, law, a, sample, parameters, out):
    if out is None:
        return
    for part, _, x, given in _pieces(xp, sample, parameters):
        value = law(xp, x, *given)[0]
        xp.copyto(out.reshape(-1)[part], value if a.is_log else xp.exp(value), casting="unsafe")


def _gradients(xp, law, a, d_out, sample, parameters, d_sample, d_parameters, work):
    totals = carve(work, _totals(len(parameters), parameters[0].size))
    for total in totals:
        total.fill(0)
    for part, row, x, given in _pieces(xp, sample, parameters):
        value, *slopes = law(xp, x, *given)
        head = d_out.reshape(-1)[part].astype("float64")
        if not a.is_log:
            head = head * xp.exp(value)
        if d_sample is not None:
            xp.copyto(d_sample.reshape(-1)[part], head * slopes[0], casting="unsafe")
        for total, wanted, slope in zip(totals, d_parameters, slopes[1:]):
            if wanted is not None:
                xp.add.at(total, row, head * slope)
    for total, wanted in zip(totals, d_parameters):
        if wanted is not None:
            xp.copyto(wanted.reshape(-1), total, casting="unsafe")


def _uniform(xp, x, low, high):
    """Density of uniform numbers in [`low`, `high`], ``1 / (high - low)``; 0 outside.

    The sample has no gradient.
    """

    def inside(value, outside):
        below = xp.where(xp.less_equal(x, high), value, outside)
        return xp.where(xp.greater_equal(x, low), below, outside)

    width = high - low
    slope = inside(1 / width, 0.0)
    return inside(-xp.log(width), -xp.inf), xp.zeros_like(x), slope, -slope


def _normal(xp, x, mu, sigma):
    """Density of normal numbers, ``exp(-(x - mu)^2 / (2 sigma^2)) / sqrt(2 pi sigma^2)``."""
    z = (x - mu) / sigma
    value = -0.5 * z * z - xp.log(sigma) - 0.5 * log(2 * pi)
    return value, -z / sigma, z / sigma, (z * z - 1) / sigma


def _gamma(xp, x, alpha, beta):
    """Density of gamma numbers, ``beta^alpha x^(alpha-1) exp(-beta x) / Gamma(alpha)``.

    `beta` is a rate here, as in MXNet; `random_gamma` takes a scale.
    """
    value = alpha * xp.log(beta) + (alpha - 1) * xp.log(x) - beta * x - gammaln_values(xp, alpha)
    by_alpha = xp.log(beta) + xp.log(x) - digamma_values(xp, alpha)
    return value, (alpha - 1) / x - beta, by_alpha, alpha / beta - x


def _exponential(xp, x, lam):
    """Density of exponential numbers, ``lam * exp(-lam * x)``."""
    return xp.log(lam) - lam * x, -lam, 1 / lam - x


def _poisson(xp, x, lam):
    """Density of Poisson numbers, ``lam^x exp(-lam) / x!``. The sample has no gradient."""
    return x * xp.log(lam) - lam - gammaln_values(xp, x + 1), xp.zeros_like(x), x / lam - 1


def _negative_binomial(xp, x, k, p):
    """Density of negative binomial numbers, ``Gamma(x+k) / (x! Gamma(k)) p^k (1-p)^x``.

    The sample has no gradient.
    """
    value = gammaln_values(xp, x + k) - gammaln_values(xp, x + 1) - gammaln_values(xp, k)
    value += k * xp.log(p) + x * xp.log1p(-p)
    by_k = digamma_values(xp, x + k) - digamma_values(xp, k) + xp.log(p)
    return value, xp.zeros_like(x), by_k, k / p - x / (1 - p)


def _generalized_negative_binomial(xp, x, mu, alpha):
    """Density of negative binomial numbers of mean mu and variance mu + alpha * mu^2.

    k = 1 / alpha and p = 1 / (1 + mu * alpha); the sample has no gradient.
    """
    k, p = 1 / alpha, 1 / (1 + mu * alpha)
    value, none, by_k, by_p = _negative_binomial(xp, x, k, p)
    return value, none, by_p * -alpha * p * p, by_k * -k * k + by_p * -mu * p * p


class _random_pdf_dirichlet(Op):
    """Density of Dirichlet numbers, ``Gamma(sum alpha) * prod(x^(alpha-1) / Gamma(alpha))``.

    sample: (s..., t..., K);  alpha: (s..., K)  ->  out: (s..., t...); its logarithm with `is_log`. A sample
    is K numbers above 0 whose sum is 1, which is not checked; its gradient is that of the formula.
    """

    aliases = ("random_pdf_dirichlet",)
    inputs = ("sample", "alpha")
    accepts = "float"
    Attrs = _Density.Attrs
    flops_per_input = 60

    @staticmethod
    def infer_shape(a, sample, alpha):
        fits = alpha and len(sample) >= len(alpha) and sample[-1] == alpha[-1]
        if not fits or sample[: len(alpha) - 1] != alpha[:-1]:
            raise ShapeError(f"sample must begin and end as alpha, {alpha}, got {sample}.")
        return (sample, alpha), (sample[:-1],)

    @staticmethod
    def backward_workspace(a, inputs, outputs, dtype):
        return scratch_bytes(_totals(1, prod(inputs[1])))

    @staticmethod
    def forward(xp, a, sample, alpha, *, out):
        if out is None:
            return
        for part, _, x, given in _vectors(xp, sample, alpha):
            value = _dirichlet(xp, x, given)
            xp.copyto(out.reshape(-1)[part], value if a.is_log else xp.exp(value), casting="unsafe")

    @staticmethod
    def backward(xp, a, d_out, sample, alpha, *, d_sample, d_alpha, work):
        (total,) = carve(work, _totals(1, alpha.size))
        total.fill(0)
        for part, row, x, given in _vectors(xp, sample, alpha):
            head = d_out.reshape(-1)[part].astype("float64")[:, None]
            if not a.is_log:
                head = head * xp.exp(_dirichlet(xp, x, given))[:, None]
            if d_sample is not None:
                xp.copyto(d_sample.reshape(-1, x.shape[1])[part], head * (given - 1) / x, casting="unsafe")
            if d_alpha is not None:
                whole = digamma_values(xp, given.sum(axis=1, keepdims=True))
                xp.add.at(
                    total.reshape(alpha.shape).reshape(-1, x.shape[1]),
                    row,
                    head * (xp.log(x) + whole - digamma_values(xp, given)),
                )
        if d_alpha is not None:
            xp.copyto(d_alpha.reshape(-1), total, casting="unsafe")


def _vectors(xp, sample, alpha):
    """(slice of samples, slice of rows of alpha, samples, alpha), in float64, some samples at a time."""
    classes = sample.shape[-1]
    count, rows = prod(sample.shape[:-1]), prod(alpha.shape[:-1])
    flat, parameters = sample.reshape(count, classes), alpha.reshape(rows, classes)
    step = max(1, _PIECE // max(1, classes))
    for begin in range(0, count, step):
        part = slice(begin, min(begin + step, count))
        row = xp.arange(part.start, part.stop) // (count // rows)
        yield part, row, flat[part].astype("float64"), parameters[row].astype("float64")


def _dirichlet(xp, x, alpha):
    value = ((alpha - 1) * xp.log(x) - gammaln_values(xp, alpha)).sum(axis=1)
    return value + gammaln_values(xp, alpha.sum(axis=1))


def _declared(law: Callable[..., Any]) -> type[Op]:
    """The operator `_random_pdf_LAW`; its inputs are the sample and the parameters of `law`."""
    parameters = list(inspect.signature(law).parameters)[2:]
    name = f"_random_pdf{law.__name__}"
    arrays = f"sample: (s..., t...);  {', '.join(parameters)}: (s...)  ->  out: as sample"
    doc = f"{inspect.getdoc(law)}\n\n{arrays}; its logarithm with `is_log`."
    members = dict(aliases=(name[1:],), inputs=("sample", *parameters), law=staticmethod(law))
    return type(name, (_Density,), members | {"__doc__": doc, "__module__": __name__})


for _law in (
    _uniform, _normal, _gamma, _exponential, _poisson, _negative_binomial, _generalized_negative_binomial
):  # fmt: skip
    globals()[f"_random_pdf{_law.__name__}"] = _declared(_law)
del _law
