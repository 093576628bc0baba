"""Arrays of random numbers, of the shape and type of another array."""

from __future__ import annotations

from ..core.record import record
from ..graph.opdef import Op
from . import distributions
from .distributions import draw, WORK_BYTES
from .random import _random_normal, _random_uniform, require


class _Like(Op):
    """Family: `data` gives the shape and the dtype."""

    abstract = True
    inputs = ("data",)
    same_shape = True
    accepts = "float"
    in_place = {"out": "data"}
    random = True

    @staticmethod
    def workspace(a, inputs, outputs, dtype):
        return WORK_BYTES


class _random_uniform_like(_Like):
    """Uniform random numbers in [`low`, `high`); those that `_random_uniform` gives.

    data: (...)  ->  out: (...), same shape and dtype; what `data` holds does not matter.
    """

    @record
    class Attrs:
        low: float = 0.0
        high: float = 1.0

    workspace = _random_uniform.workspace

    @staticmethod
    def forward(xp, a, data, *, out, rng, work):
        _random_uniform.forward(xp, a, out=out, rng=rng, work=work)


class _random_normal_like(_Like):
    """Normal random numbers of mean `loc` and standard deviation `scale`; those that `_random_normal` gives.

    data: (...)  ->  out: (...), same shape and dtype; what `data` holds does not matter.
    """

    @record
    class Attrs:
        loc: float = 0.0
        scale: float = 1.0

    workspace = _random_normal.workspace

    @staticmethod
    def forward(xp, a, data, *, out, rng, work):
        _random_normal.forward(xp, a, out=out, rng=rng, work=work)


class _random_exponential_like(_Like):
    """Exponential random numbers of rate `lam`, density lam * exp(-lam * x).

    data: (...)  ->  out: (...), same shape and dtype; what `data` holds does not matter.
    """

    @record
    class Attrs:
        lam: float = 1.0

        def __post_init__(self):
            require(self.lam > 0, "lam", "above 0", self.lam)

    @staticmethod
    def forward(xp, a, data, *, out, rng, work):
        draw(xp, distributions.exponential, out, rng, work, a.lam)


class _random_gamma_like(_Like):
    """Gamma random numbers, density x^(alpha-1) * exp(-x/beta): shape `alpha`, scale `beta`.

    data: (...)  ->  out: (...), same shape and dtype; what `data` holds does not matter.
    """

    @record
    class Attrs:
        alpha: float = 1.0
        beta: float = 1.0

        def __post_init__(self):
            require(self.alpha > 0, "alpha", "above 0", self.alpha)
            require(self.beta > 0, "beta", "above 0", self.beta)

    @staticmethod
    def forward(xp, a, data, *, out, rng, work):
        draw(xp, distributions.gamma, out, rng, work, a.alpha, a.beta)


class _random_poisson_like(_Like):
    """Poisson random numbers of mean `lam`, as floating numbers.

    data: (...)  ->  out: (...), same shape and dtype; what `data` holds does not matter.
    """

    @record
    class Attrs:
        lam: float = 1.0

        def __post_init__(self):
            require(self.lam >= 0, "lam", "at least 0", self.lam)

    @staticmethod
    def forward(xp, a, data, *, out, rng, work):
        draw(xp, distributions.poisson, out, rng, work, a.lam)


class _random_negative_binomial_like(_Like):
    """Negative binomial random numbers: successes before `k` failures, a failure having probability `p`.

    data: (...)  ->  out: (...), same shape and dtype; what `data` holds does not matter.
    """

    @record
    class Attrs:
        k: int = 1
        p: float = 1.0

        def __post_init__(self):
            require(self.k >= 0, "k", "at least 0", self.k)
            require(0 < self.p <= 1, "p", "in (0, 1]", self.p)

    @staticmethod
    def forward(xp, a, data, *, out, rng, work):
        draw(xp, distributions.negative_binomial, out, rng, work, a.k, a.p)


class _random_generalized_negative_binomial_like(_Like):
    """Negative binomial random numbers of mean `mu` and variance mu + alpha * mu^2.

    data: (...)  ->  out: (...), same shape and dtype; what `data` holds does not matter.
    """

    @record
    class Attrs:
        mu: float = 1.0
        alpha: float = 1.0

        def __post_init__(self):
            require(self.mu >= 0, "mu", "at least 0", self.mu)
            require(self.alpha >= 0, "alpha", "at least 0", self.alpha)

    @staticmethod
    def forward(xp, a, data, *, out, rng, work):
        draw(xp, distributions.generalized_negative_binomial, out, rng, work, a.mu, a.alpha)
