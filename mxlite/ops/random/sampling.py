"""Arrays of random numbers from many distributions at once: parameters are arrays."""

from __future__ import annotations

from typing import ClassVar

from ...core.dtype import as_dtype, is_floating
from ...core.errors import DTypeError, ShapeError
from ...core.record import record
from ...graph.opdef import Op, with_parameters
from . import distributions
from .distributions import draw, Sampler, WORK_BYTES


class _Sample(Op):
    """Base: one distribution for each element of the parameters, which are of one shape.

    A parameter outside its range gives nan. Parameters have no gradient.
    """

    abstract = True
    random = True
    law: ClassVar[Sampler]

    def __init_subclass__(cls):
        def forward(xp, a, *parameters, out, rng, work):
            draw(xp, cls.law, out, rng, work, *parameters)

        cls.forward = staticmethod(with_parameters(forward, cls.inputs, ("out",), ("rng", "work")))
        super().__init_subclass__()

    @record
    class Attrs:
        shape: tuple[int, ...] = ()
        dtype: str | None = None

    @staticmethod
    def infer_shape(a, *shapes):
        if len(set(shapes)) > 1:
            raise ShapeError(f"parameters must be of one shape, got {shapes}.")
        return shapes, ((*shapes[0], *a.shape),)

    @classmethod
    def infer_type(cls, a, *dtypes):
        """Types: parameters may be of any type; float32 if nothing is known."""
        dtype = as_dtype(None if a.dtype == "None" else a.dtype)
        if not is_floating(dtype):
            raise DTypeError(f"dtype must be floating, got {dtype}.")
        return tuple(d or dtype for d in dtypes), (dtype,)

    @staticmethod
    def workspace(a, inputs, outputs, dtype):
        return WORK_BYTES


class _sample_uniform(_Sample):
    """Uniform random numbers in [`low`, `high`), for arrays of bounds.

    low, high: (s...)  ->  out: (s..., t...), where (t...) = `shape`: that many numbers of each distribution.
    """

    aliases = ("sample_uniform",)
    inputs = ("low", "high")
    law = staticmethod(distributions.uniform)


class _sample_normal(_Sample):
    """Normal random numbers, for arrays of means `mu` and standard deviations `sigma`.

    mu, sigma: (s...)  ->  out: (s..., t...), where (t...) = `shape`: that many numbers of each distribution.
    """

    aliases = ("sample_normal",)
    inputs = ("mu", "sigma")
    law = staticmethod(distributions.normal)


class _sample_exponential(_Sample):
    """Exponential random numbers of rate `lam`, density lam * exp(-lam * x); parameters are arrays.

    lam: (s...)  ->  out: (s..., t...), where (t...) = `shape`: that many numbers of each distribution.
    """

    aliases = ("sample_exponential",)
    inputs = ("lam",)
    law = staticmethod(distributions.exponential)


class _sample_gamma(_Sample):
    """Gamma random numbers, density x^(alpha-1) * exp(-x/beta): shape `alpha`, scale `beta`.

    alpha, beta: (s...)  ->  out: (s..., t...), where (t...) = `shape`: that many numbers of each
    distribution.
    """

    aliases = ("sample_gamma",)
    inputs = ("alpha", "beta")
    law = staticmethod(distributions.gamma)


class _sample_poisson(_Sample):
    """Poisson random numbers of mean `lam`, as floating numbers; parameters are arrays.

    lam: (s...)  ->  out: (s..., t...), where (t...) = `shape`: that many numbers of each distribution.
    """

    aliases = ("sample_poisson",)
    inputs = ("lam",)
    law = staticmethod(distributions.poisson)


class _sample_negative_binomial(_Sample):
    """Negative binomial random numbers: successes before `k` failures, a failure having probability `p`.

    k, p: (s...)  ->  out: (s..., t...), where (t...) = `shape`: that many numbers of each distribution.
    """

    aliases = ("sample_negative_binomial",)
    inputs = ("k", "p")
    law = staticmethod(distributions.negative_binomial)


class _sample_generalized_negative_binomial(_Sample):
    """Negative binomial random numbers of mean `mu` and variance mu + alpha * mu^2; parameters are arrays.

    mu, alpha: (s...)  ->  out: (s..., t...), where (t...) = `shape`: that many numbers of each distribution.
    """

    aliases = ("sample_generalized_negative_binomial",)
    inputs = ("mu", "alpha")
    law = staticmethod(distributions.generalized_negative_binomial)


class bernoulli(Op):
    """1 with the probability in `data`, else 0; each element independently.

    data: (...), in [0, 1]  ->  out: (...), same shape and dtype. No gradient. (torch.bernoulli, ONNX
    Bernoulli.)
    """

    inputs = ("data",)
    same_shape = True
    accepts = "float"
    random = True
    in_place = {"out": "data"}

    @staticmethod
    def workspace(a, inputs, outputs, dtype):
        return WORK_BYTES

    law = staticmethod(distributions.bernoulli)

    @classmethod
    def forward(cls, xp, a, data, *, out, rng, work):
        draw(xp, cls.law, out, rng, work, data)
