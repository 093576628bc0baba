"""Arrays of random numbers: distributions whose parameters are numbers.

Each has an operator whose shape and type are attributes, `_random_NAME`, and one that takes them from another
array, `_random_NAME_like`.
"""

from __future__ import annotations

import inspect
from math import pi
from typing import Any, ClassVar

from ...core.dtype import as_dtype, is_floating
from ...core.errors import DTypeError, OpAttributeError
from ...core.record import record
from ...graph.opdef import Op
from . import distributions
from .distributions import draw, LAWS, Sampler, WORK_BYTES
from .philox import RandomStream

_PAIRS = 4096  # normal numbers formed at a time


def require(holds: bool, name: str, wanted: str, found: float) -> None:
    """Raise OpAttributeError unless a parameter is in its range."""
    if not holds:
        raise OpAttributeError(f"{name} must be {wanted}, got {found}.")


class _Draw(Op):
    """No input; the shape and the dtype are attributes."""

    random = True

    @staticmethod
    def infer_shape(a):
        return (), (a.shape or (1,),)

    @classmethod
    def infer_type(cls, a, *dtypes):
        dtype = as_dtype(None if a.dtype == "None" else a.dtype)
        if not is_floating(dtype):
            raise DTypeError(f"dtype must be floating, got {dtype}.")
        return (), (dtype,)


class _Like(Op):
    """Base: the numbers of the operator `of`; `data` gives the shape and the dtype."""

    abstract = True
    inputs = ("data",)
    same_shape = True
    accepts = "float"
    in_place = {"out": "data"}
    random = True
    of: ClassVar[type[_Draw]]

    @classmethod
    def workspace(cls, a, inputs, outputs, dtype):
        return cls.of.workspace(a, (), outputs, dtype)

    @classmethod
    def forward(cls, xp, a, data, *, out, rng, work):
        cls.of.forward(xp, a, out=out, rng=rng, work=work)


@record
class _Limits:
    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        require(self.low <= self.high, "low", f"at most high, {self.high}", self.low)


@record
class _MeanAndDeviation:
    loc: float = 0.0
    scale: float = 1.0

    def __post_init__(self) -> None:
        require(self.scale >= 0, "scale", "at least 0", self.scale)


class RandomUniform(_Draw):
    """Independent uniform random numbers in [`low`, `high`).

    ->  out: `shape`, (1,) if it is empty, of `dtype`, float32 if None. `ctx` is where the array will live.
    """

    op_name = "_random_uniform"
    aliases = ("uniform", "random_uniform")

    @record
    class Attrs(_Limits):
        shape: tuple[int, ...] | None = None
        ctx: str = ""
        dtype: str | None = None

    @staticmethod
    def workspace(a, inputs, outputs, dtype):
        return RandomStream.WORK_BYTES

    @staticmethod
    def forward(xp, a, *, out, rng, work):
        rng.fill_uniform(xp, out, work)
        if a.high - a.low != 1:
            xp.multiply(out, a.high - a.low, out=out)
        if a.low != 0:
            xp.add(out, a.low, out=out)


class RandomNormal(_Draw):
    """Independent normal random numbers of mean `loc` and standard deviation `scale`.

    ->  out: `shape`, (1,) if it is empty, of `dtype`, float32 if None. `ctx` is where the array will live.

    By G. E. P. Box and M. E. Muller, 1958, "A note on the generation of random normal deviates": number i is
    computed from the uniform numbers 2*i and 2*i + 1. Only one of the pair's two results is used, so that an
    element depends on its own two numbers alone. With 24 bits, no number is further than 5.8 `scale` from
    `loc`.
    """

    op_name = "_random_normal"
    aliases = ("normal", "random_normal")

    @record
    class Attrs(_MeanAndDeviation):
        shape: tuple[int, ...] | None = None
        ctx: str = ""
        dtype: str | None = None

    @staticmethod
    def workspace(a, inputs, outputs, dtype):
        return RandomStream.WORK_BYTES + 2 * 8 * _PAIRS

    @staticmethod
    def forward(xp, a, *, out, rng, work):
        flat = out.reshape(-1)
        scratch = work[RandomStream.WORK_BYTES :].view("float64")
        for begin in range(0, flat.size, _PAIRS):
            part = flat[begin : begin + _PAIRS]
            uniform = scratch[: 2 * part.size]
            rng.fill_uniform(xp, uniform, work, 2 * begin)
            radius, angle = uniform[0::2], uniform[1::2]
            xp.subtract(1.0, radius, out=radius)  # (0, 1]: its logarithm is finite
            xp.log(radius, out=radius)
            xp.multiply(radius, -2.0 * a.scale * a.scale, out=radius)
            xp.sqrt(radius, out=radius)
            xp.multiply(angle, 2 * pi, out=angle)
            xp.cos(angle, out=angle)
            xp.multiply(radius, angle, out=radius)
            xp.add(radius, a.loc, out=radius)
            xp.copyto(part, radius, casting="unsafe")


class RandomUniformLike(_Like):
    """Uniform random numbers in [`low`, `high`); the same as `_random_uniform` gives.

    data: (...), whose values do not matter  ->  out: (...), same shape and dtype.
    """

    op_name = "_random_uniform_like"
    of = RandomUniform
    Attrs = _Limits


class RandomNormalLike(_Like):
    """Normal random numbers of mean `loc` and standard deviation `scale`; those of `_random_normal`.

    data: (...), whose values do not matter  ->  out: (...), same shape and dtype.
    """

    op_name = "_random_normal_like"
    of = RandomNormal
    Attrs = _MeanAndDeviation


class RandomRandint(_Draw):
    """Whole random numbers in [`low`, `high`), all equally likely.

    ->  out: `shape`, (1,) if it is empty, of `dtype`, int32 if None. `ctx` is where the array will live.

    With n different ones, some are more likely than others by a factor of up to 1 + n / 2**32, and if n is
    above 2**32, 1 + n / 2**64.
    """

    op_name = "_random_randint"
    aliases = ("random_randint",)

    @record
    class Attrs:
        low: int
        high: int
        shape: tuple[int, ...] | None = None
        ctx: str = ""
        dtype: str | None = None

        def __post_init__(self):
            require(self.low < self.high, "low", f"below high, {self.high}", self.low)

    @classmethod
    def infer_type(cls, a, *dtypes):
        dtype = as_dtype("int32" if a.dtype in (None, "None") else a.dtype)
        if dtype.kind not in "iu":
            raise DTypeError(f"dtype must be a whole-number type, got {dtype}.")
        return (), (dtype,)

    @staticmethod
    def workspace(a, inputs, outputs, dtype):
        return RandomStream.WORK_BYTES + 8 * _PAIRS

    @staticmethod
    def forward(xp, a, *, out, rng, work):
        flat, span = out.reshape(-1), a.high - a.low
        words = 1 if span <= 2**32 else 2
        room = work[RandomStream.WORK_BYTES :].view("uint32")
        for begin in range(0, flat.size, _PAIRS):
            part = flat[begin : begin + _PAIRS]
            bits = room[: words * part.size]
            rng.fill_bits(xp, bits, work, words * begin)
            if words == 1:  # the upper half of bits * span is a number in [0, span)
                wide = bits.astype("uint64")
                xp.multiply(wide, xp.uint64(span), out=wide)
                xp.right_shift(wide, xp.uint64(32), out=wide)
            else:
                wide = bits.view("uint64") % xp.uint64(span)
            # Both wrap around, so that low + wide is right whatever their signs.
            xp.add(wide, xp.uint64(a.low % 2**64), out=wide)
            xp.copyto(part, wide, casting="unsafe")


@record
class _Rate:
    lam: float = 1.0

    def __post_init__(self):
        require(self.lam > 0, "lam", "above 0", self.lam)


@record
class _ShapeAndScale:
    alpha: float = 1.0
    beta: float = 1.0

    def __post_init__(self):
        require(self.alpha > 0, "alpha", "above 0", self.alpha)
        require(self.beta > 0, "beta", "above 0", self.beta)


@record
class _Mean:
    lam: float = 1.0

    def __post_init__(self):
        require(self.lam >= 0, "lam", "at least 0", self.lam)


@record
class _FailuresAndProbability:
    k: int = 1
    p: float = 1.0

    def __post_init__(self):
        require(self.k >= 0, "k", "at least 0", self.k)
        require(0 < self.p <= 1, "p", "in (0, 1]", self.p)


@record
class _MeanAndDispersion:
    mu: float = 1.0
    alpha: float = 1.0

    def __post_init__(self):
        require(self.mu >= 0, "mu", "at least 0", self.mu)
        require(self.alpha >= 0, "alpha", "at least 0", self.alpha)


def _operators(law: Sampler, parameters: type) -> dict[str, type[Op]]:
    """The two operators of a sampler; its parameters are those attributes, in their order."""
    names = tuple(inspect.get_annotations(parameters))

    @record
    class Sized(parameters):
        shape: tuple[int, ...] | None = None
        ctx: str = ""
        dtype: str | None = None

    def forward(xp, a, *, out, rng, work):
        draw(xp, law, out, rng, work, *(getattr(a, n) for n in names))

    def declared(name: str, base: type[Op], text: str, **members: Any) -> type[Op]:
        members |= dict(law=staticmethod(law), parameters=names)
        doc = f"{LAWS[law]}\n\n    {text}\n    "
        return type(name, (base,), members | {"__doc__": doc, "__module__": __name__})

    name = f"_random_{law.__name__}"
    own = dict(forward=staticmethod(forward), workspace=staticmethod(_workspace), aliases=(name[1:],))
    sized = declared(name, _Draw, _SIZED, Attrs=Sized, **own)
    made = sized, declared(f"{name}_like", _Like, _LIKE, Attrs=parameters, of=sized)
    return {op.op_name: op for op in made}


def _workspace(a, inputs, outputs, dtype):
    return WORK_BYTES


_SIZED = (
    "->  out: `shape`, (1,) if it is empty, of `dtype`, float32 if None. `ctx` is where the array will live."
)
_LIKE = "data: (...), whose values do not matter  ->  out: (...), same shape and dtype."

for _law, _parameters in (
    (distributions.exponential, _Rate),
    (distributions.gamma, _ShapeAndScale),
    (distributions.poisson, _Mean),
    (distributions.negative_binomial, _FailuresAndProbability),
    (distributions.generalized_negative_binomial, _MeanAndDispersion),
):
    globals().update(_operators(_law, _parameters))
del _law, _parameters
