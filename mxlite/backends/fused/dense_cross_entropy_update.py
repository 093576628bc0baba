"""Operator of a classifier, its cross-entropy, and its weight's update, without a whole gradient.

See `dense_cross_entropy.py`. The weight gradient is a sum over chunks of rows, so it cannot be computed a
part of the weight at a time as in `passes/tiling/gradient_updates.py`. But momentum accumulates gradients as
well, and each chunk's term may be added right there. The weight stays unchanged until the last chunk has read
it:

    momentum *= its factor
    for rows [a, b)    scores = ...                                     as there
                       momentum -= lr * (scores.T @ data[a:b])
    weight += momentum

A forward pass alone must not change a weight. So the operator is in the backward pass, and computes the loss
there; see `passes/tiling/cross_entropy_updates.py` for how the loss is shown before.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ...graph import Node
from ...graph.grouped import grouped
from ...graph.ir import Shape
from ...graph.opdef import DType, Op, Shapes
from ...ops.optim.recording import Rates
from ...ops.optim.update import rest_of
from ...ops.scratch import accumulator, carve, scratch_bytes
from .dense_cross_entropy import (
    DenseCrossEntropy,
    DenseLossAttrs,
    LossGradients,
    LossInputs,
    reference_pieces,
    run_chunks,
)
from .tile_program import cast_bytes


@dataclass(frozen=True)
class DenseLossUpdateAttrs:
    """`no_bias` as in FullyConnected. `op` is the fused form of a step that accumulates the gradient in its
    one state, `attrs` its parameters.
    """

    no_bias: bool
    op: type[Op]
    attrs: Any

    @property
    def loss(self) -> DenseLossAttrs:
        """Attributes of the operator with a whole gradient."""
        return DenseLossAttrs(self.no_bias, True)

    @property
    def growth(self) -> tuple[float, float]:
        """Factors of the accumulation; see `Update`."""
        found: tuple[float, float] = self.op.step_of.growth(self.attrs)  # type: ignore[attr-defined]
        return found


class LossAndGradients(NamedTuple):
    """Outputs of the operator."""

    out: Any
    d_data: Any
    d_bias: Any


class DenseCrossEntropyUpdate(Op):
    """``out, d_data, d_weight, d_bias = _dense_cross_entropy(...)`` and the step on the weight with d_weight.

    data, weight, bias, label, d_out and outputs: as there;  state: as weight;  hyper: as in the step. Weight
    and state are updated, and float32 if data is of 16 bits. Cost: 6 * N * M * K flops and the step's.
    """

    op_name = "_dense_cross_entropy_update"
    inputs = ("data", "weight", "bias", "label", "d_out", "state", "hyper")
    outputs = ("out", "d_data", "d_bias")
    mutates = ("weight", "state")
    in_place = {"d_data": "data"}
    recomputable = False
    Attrs = DenseLossUpdateAttrs

    @classmethod
    def input_names(cls, a: Any) -> tuple[str, ...]:
        return tuple(n for n in cls.inputs if n != "bias" or not a.no_bias)

    @classmethod
    def output_names(cls, a: Any) -> tuple[str, ...]:
        return cls.outputs[:2] if a.no_bias else cls.outputs

    @classmethod
    def timed_as(cls, a: Any) -> Any:
        return replace(a, attrs=a.op.timed_as(a.attrs))

    @classmethod
    def preview(cls, node: Node) -> Node:
        a = DenseLossAttrs(node.attrs.no_bias, False)
        named = node.named_inputs
        inputs = tuple(named[n] for n in DenseCrossEntropy.input_names(a))
        return replace(node, op=DenseCrossEntropy, attrs=a, inputs=inputs)

    @classmethod
    def infer_shape(cls, a: Any, *shapes: Shape | None) -> tuple[Any, Shapes]:
        return shapes, _without_weight(a, DenseCrossEntropy.infer_shape(a.loss, *shapes[:-2])[1])

    @classmethod
    def infer_type(cls, a: Any, *dtypes: DType | None) -> Any:
        return dtypes, _without_weight(a, DenseCrossEntropy.infer_type(a.loss, *dtypes[:-2])[1])

    @staticmethod
    def flops(a: Any, inputs: Shapes, outputs: Shapes) -> int:
        weight, state, hyper = inputs[1], *inputs[-2:]
        step: int = a.op.flops(a.attrs, (weight, weight, state, hyper), ())
        return DenseCrossEntropy.flops(a.loss, inputs, outputs) + step

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        step: int = a.op.workspace(a.attrs, inputs[1:2], (), accumulator(dtype))
        step += cast_bytes(inputs[1], dtype)
        return max(scratch_bytes(reference_pieces(inputs, dtype, True)), step)

    @staticmethod
    @grouped
    def forward(
        xp: Any, a: Any, given: LossInputs, state: Any, hyper: Any, *, made: LossAndGradients, work: Any
    ) -> None:
        data, weight, *_ = given
        rates = Rates(*hyper[a.attrs.row])
        keeps, grows = a.growth
        scratch = carve(work, reference_pieces((data.shape, weight.shape), data.dtype, True))
        xp.multiply(state, keeps, out=state)
        factor = weight.dtype.type(rates.lr * grows)
        gradients = LossGradients(made.d_data, state, made.d_bias)
        run_chunks(xp, given, made.out, gradients, scratch, factor)
        rest_of(a.op.step_of, xp, a.attrs, rates, weight, state, work)


def _without_weight(a: DenseLossUpdateAttrs, made: Any) -> Any:
    """Values of `made`, given for the outputs of `_dense_cross_entropy`, for the outputs of the update."""
    named = dict(zip(DenseCrossEntropy.output_names(a.loss), made))
    return tuple(named[n] for n in DenseCrossEntropyUpdate.output_names(a))
