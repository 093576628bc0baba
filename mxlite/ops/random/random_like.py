"""Arrays of random numbers, of the shape and type of another array."""

from __future__ import annotations

from typing import ClassVar

from ...core.record import record
from ...graph.opdef import Op
from . import distributions
from .distributions import draw, Sampler, WORK_BYTES
from .random import RandomNormal, RandomUniform, require


class _Like(Op):
    """Base: `data` gives the shape and the dtype."""

    abstract = True
    inputs = ("data",)
    same_shape = True
    accepts = "float"
    in_place = {"out": "data"}
    random = True


class _LawLike(_Like):
    """Base: numbers of `law`, a sampler; its parameters are the attributes `parameters`, in their order."""

    abstract = True
    law: ClassVar[Sampler]
    parameters: ClassVar[tuple[str, ...]]

    @staticmethod
    def workspace(a, inputs, outputs, dtype):
        return WORK_BYTES

    @classmethod
    def forward(cls, xp, a, data, *, out, rng, work):
        draw(xp, cls.law, out, rng, work, *(getattr(a, n) for n in cls.parameters))


class RandomUniformLike(_Like):
    """Uniform random numbers in [`low`, `high`); the same as `_random_uniform` gives.

    data: (...), whose values do not matter  ->  out: (...), same shape and dtype.
    """

    op_name = "_random_uniform_like"

    @record
    class Attrs:
        low: float = 0.0
        high: float = 1.0

    workspace = RandomUniform.workspace

    @staticmethod
    def forward(xp, a, data, *, out, rng, work):
        RandomUniform.forward(xp, a, out=out, rng=rng, work=work)


class RandomNormalLike(_Like):
    """Normal random numbers of mean `loc` and standard deviation `scale`; those of `_random_normal`.

    data: (...), whose values do not matter  ->  out: (...), same shape and dtype.
    """

    op_name = "_random_normal_like"

    @record
    class Attrs:
        loc: float = 0.0
        scale: float = 1.0

    workspace = RandomNormal.workspace

    @staticmethod
    def forward(xp, a, data, *, out, rng, work):
        RandomNormal.forward(xp, a, out=out, rng=rng, work=work)


class RandomExponentialLike(_LawLike):
    """Exponential random numbers of rate `lam`, density lam * exp(-lam * x).

    data: (...), whose values do not matter  ->  out: (...), same shape and dtype.
    """

    op_name = "_random_exponential_like"
    law = staticmethod(distributions.exponential)
    parameters = ("lam",)

    @record
    class Attrs:
        lam: float = 1.0

        def __post_init__(self):
            require(self.lam > 0, "lam", "above 0", self.lam)


class _random_gamma_like(_LawLike):
    """Gamma random numbers, density x^(alpha-1) * exp(-x/beta): shape `alpha`, scale `beta`.

    data: (...), whose values do not matter  ->  out: (...), same shape and dtype.
    """

    law = staticmethod(distributions.gamma)
    parameters = ("alpha", "beta")

    @record
    class Attrs:
        alpha: float = 1.0
        beta: float = 1.0

        def __post_init__(self):
            require(self.alpha > 0, "alpha", "above 0", self.alpha)
            require(self.beta > 0, "beta", "above 0", self.beta)


class _random_poisson_like(_LawLike):
    """Poisson random numbers of mean `lam`, as floating numbers.

    data: (...), whose values do not matter  ->  out: (...), same shape and dtype.
    """

    law = staticmethod(distributions.poisson)
    parameters = ("lam",)

    @record
    class Attrs:
        lam: float = 1.0

        def __post_init__(self):
            require(self.lam >= 0, "lam", "at least 0", self.lam)


class _random_negative_binomial_like(_LawLike):
    """Negative binomial random numbers: successes before `k` failures, a failure having probability `p`.

    data: (...), whose values do not matter  ->  out: (...), same shape and dtype.
    """

    law = staticmethod(distributions.negative_binomial)
    parameters = ("k", "p")

    @record
    class Attrs:
        k: int = 1
        p: float = 1.0

        def __post_init__(self):
            require(self.k >= 0, "k", "at least 0", self.k)
            require(0 < self.p <= 1, "p", "in (0, 1]", self.p)


class _random_generalized_negative_binomial_like(_LawLike):
    """Negative binomial random numbers of mean `mu` and variance mu + alpha * mu^2.

    data: (...), whose values do not matter  ->  out: (...), same shape and dtype.
    """

    law = staticmethod(distributions.generalized_negative_binomial)
    parameters = ("mu", "alpha")

    @record
    class Attrs:
        mu: float = 1.0
        alpha: float = 1.0

        def __post_init__(self):
            require(self.mu >= 0, "mu", "at least 0", self.mu)
            require(self.alpha >= 0, "alpha", "at least 0", self.alpha)
