"""Declarations that the normalizations of a sample by itself share; `normalize.py` has the arithmetic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ...core.errors import DTypeError
from ...graph.ir import Shape
from ...graph.opdef import DType, Op, require_kind, Types
from ..declared import Declared
from ..scratch import accumulator
from .normalize import Rule, TensorNorm


class SelfNorm(Declared):
    """Base: data normalized by its own statistics, with parameters of data's dtype or of float32."""

    abstract = True
    inputs: ClassVar[tuple[str, ...]] = ("data", "gamma", "beta")
    inferred: ClassVar[tuple[str, ...]] = ("gamma", "beta")
    accepts = "float"
    typed_by_data = True
    in_place = {"out": "data"}
    backward_in_place = {"d_data": ("d_out", "data")}
    cheap = True
    flops_per_input = 8
    backward_reads: ClassVar[tuple[str, ...]] = ("d_out", "data", "gamma")
    gradients: ClassVar[tuple[str, ...]] = ("data", "gamma", "beta")

    @classmethod
    def rule(cls, a: Any, data: Shape, gamma: Shape) -> Rule:
        """The axes and formula for data and gamma of these shapes."""
        raise NotImplementedError

    @classmethod
    def compute(cls, t: Any, a: Any, data: Any, gamma: Any, beta: Any = None) -> Mapping[str, Any]:
        made = TensorNorm(t, cls.rule(a, data.shape, gamma.shape), data, gamma, beta)
        return dict(zip(cls.outputs, (made.out, made.mean, made.spread)))

    @classmethod
    def compute_gradient(
        cls, t: Any, a: Any, heads: Mapping[str, Any], arrays: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        data, gamma = arrays["data"], arrays["gamma"]
        return TensorNorm(t, cls.rule(a, data.shape, gamma.shape), data, gamma).gradients(heads)

    @classmethod
    def infer_type(cls, a: Any, *dtypes: DType | None) -> tuple[Types, Types]:
        data, affine = _affine_types(cls, *dtypes)
        return (data, *(affine for _ in cls.inputs[1:])), (data, *(affine for _ in cls.outputs[1:]))


class SelfNormWithStatistics(SelfNorm):
    """Base: `mean` and `std` are outputs of gamma's dtype, visible with `output_mean_var`."""

    abstract = True
    outputs = ("out", "mean", "std")
    hidden = 2
    backward_reads = ("d_out", "d_mean", "d_std", "data", "gamma")

    @classmethod
    def num_visible_outputs(cls, a: Any) -> int:
        return 3 if a.output_mean_var else 1

    @classmethod
    def unneeded(cls, a: Any) -> frozenset[str]:
        return frozenset() if a.output_mean_var else frozenset(["d_mean", "d_std"])


def _affine_types(
    op: type[Op], data: DType | None, *affine: DType | None
) -> tuple[DType | None, DType | None]:
    """Types of data and of gamma and beta: one for all, or float32 parameters beside 16-bit data.

    Parameters of unknown type are as data. Raises DTypeError.
    """
    require_kind(op, data)
    known = [d for d in affine if d is not None]
    if data is None:
        return None, known[0] if known else None
    wanted = known[0] if known and known[0] == accumulator(data) else data
    for name, dtype in zip(op.inputs[1:], affine):
        if dtype is not None and dtype != wanted:
            either = f"{data} or {accumulator(data)}" if accumulator(data) != data else f"{data}"
            raise DTypeError(f"{name} must be {either} for data of {data}, and as the others; got {dtype}.")
    return data, wanted
