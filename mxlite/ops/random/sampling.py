"""Arrays of random numbers from many distributions at once: parameters are arrays."""

from __future__ import annotations

from typing import ClassVar

from ...core.dtype import as_dtype, is_floating
from ...core.errors import DTypeError, ShapeError
from ...core.record import record
from ...graph.opdef import Op, with_parameters
from . import distributions
from .distributions import draw, LAWS, Sampler, WORK_BYTES


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


for _law, _names in (
    (distributions.uniform, ("low", "high")),
    (distributions.normal, ("mu", "sigma")),
    (distributions.exponential, ("lam",)),
    (distributions.gamma, ("alpha", "beta")),
    (distributions.poisson, ("lam",)),
    (distributions.negative_binomial, ("k", "p")),
    (distributions.generalized_negative_binomial, ("mu", "alpha")),
):
    _name = f"_sample_{_law.__name__}"
    _doc = f"""{LAWS[_law]}

    {", ".join(_names)}: (s...)  ->  out: (s..., t...), where (t...) = `shape`: that many numbers of each
    distribution.
    """
    _members = dict(aliases=(_name[1:],), inputs=_names, law=staticmethod(_law))
    globals()[_name] = type(_name, (_Sample,), _members | {"__doc__": _doc, "__module__": __name__})
del _law, _names, _name, _doc, _members
