"""Chunked linear cross-entropy: a classifier and its loss as one operator, a chunk of rows at a time.

A language model has a score for each word of its vocabulary at each position. As a whole these scores are
often the largest array of a step, and in backward there is a gradient as large. A loss that is a sum over
rows needs neither: once a chunk of scores is there, its loss is known and so is its gradient, and both
products that read the gradient can be computed before the next chunk:

    for rows [a, b)    scores = data[a:b] @ weight.T + bias      a chunk, in the same bytes each time
                       loss += cross entropy of scores
                       scores = d_out * (softmax(scores) - one at each label)
                       d_weight += scores.T @ data[a:b]     d_bias += sum of their rows
                       d_data[a:b] = scores @ weight

No product is computed twice. The factor of the loss's gradient, d_out, has to be known beforehand, as it is
if the loss is an output of the network.

In 16 bits scores and their gradient are rounded once, as they are as a whole; the loss and sums over
chunks are float32.

The pass `passes/tiling/chunked_cross_entropy.py` inserts the operator into a step; no user and no file ever
sees it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ...graph import NoAttrs
from ...graph.grouped import grouped
from ...graph.ir import Shape
from ...graph.opdef import DType, Op, Shapes
from ...ops.linalg.product import product, product_bytes
from ...ops.loss.cross_entropy import softmax_cross_entropy
from ...ops.scratch import accumulator, carve, Piece, scratch_bytes
from .tile_sizes import score_tiles

_STRIP = 512  # rows of the weight's gradient that the reference adds a chunk's part to at a time

_byte = np.dtype("uint8")
_double = np.dtype("float64")


@dataclass(frozen=True)
class DenseLossAttrs:
    """`no_bias` as in FullyConnected. gradients: True if they are computed too; then there is d_out."""

    no_bias: bool
    gradients: bool


class LossInputs(NamedTuple):
    """Inputs of the operators; bias and d_out are None where there are none."""

    data: Any
    weight: Any
    bias: Any
    label: Any
    d_out: Any


class LossGradients(NamedTuple):
    """Gradients of the loss; None for those that are not requested."""

    d_data: Any
    d_weight: Any
    d_bias: Any


class DenseCrossEntropy(Op):
    """``out = softmax_cross_entropy(data @ weight.T + bias, label)``, and with `gradients` d_out times its
    gradients.

    data: (N, ...) read as (N, K);  weight: (M, K);  bias: (M,);  label: (N,), class numbers;  d_out: (1,)  ->
    out: (1,), d_data, d_weight, d_bias. For data of 16 bits all but d_data, and d_out, are float32. The
    weight may be: a kernel reads it so, or casts some rows of it at a time. Cost: 2 * N * M * K flops,
    three times as many with gradients. A label out of range adds nothing to any of them.
    """

    op_name = "_dense_cross_entropy"
    inputs = ("data", "weight", "bias", "label", "d_out")
    outputs = ("out", "d_data", "d_weight", "d_bias")
    in_place = {"d_data": "data"}
    recomputable = False
    Attrs = DenseLossAttrs

    @classmethod
    def input_names(cls, a: Any) -> tuple[str, ...]:
        absent = {"bias"} if a.no_bias else set()
        absent |= set() if a.gradients else {"d_out"}
        return tuple(n for n in cls.inputs if n not in absent)

    @classmethod
    def output_names(cls, a: Any) -> tuple[str, ...]:
        if not a.gradients:
            return cls.outputs[:1]
        return cls.outputs[:3] if a.no_bias else cls.outputs

    @classmethod
    def in_place_options(cls, a: Any) -> Mapping[str, tuple[str, ...]]:
        return super().in_place_options(a) if a.gradients else {}

    @classmethod
    def infer_shape(cls, a: Any, *shapes: Shape | None) -> tuple[Any, Shapes]:
        named = dict(zip(cls.input_names(a), shapes))
        made = {"out": (1,)} | {f"d_{n}": named.get(n) for n in ("data", "weight", "bias")}
        return shapes, tuple(made[n] for n in cls.output_names(a))  # type: ignore[misc]

    @classmethod
    def infer_type(cls, a: Any, *dtypes: DType | None) -> Any:
        data = dtypes[0]
        wide = None if data is None else accumulator(data)
        return dtypes, tuple(data if n == "d_data" else wide for n in cls.output_names(a))

    @staticmethod
    def flops(a: Any, inputs: Shapes, outputs: Shapes) -> int:
        scores = inputs[0][0] * inputs[1][0]
        return scores * (2 * inputs[1][1] + 4) * (3 if a.gradients else 1)

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return scratch_bytes(reference_pieces(inputs, dtype, a.gradients))

    @staticmethod
    @grouped
    def forward(xp: Any, a: Any, given: LossInputs, *, out: Any, made: LossGradients, work: Any) -> None:
        pieces = reference_pieces((given.data.shape, given.weight.shape), given.data.dtype, a.gradients)
        if made.d_weight is not None:
            made.d_weight.fill(0)
        run_chunks(xp, given, out, made, carve(work, pieces))


def run_chunks(
    xp: Any, given: LossInputs, out: Any, gradients: LossGradients, scratch: Any, factor: float = 1.0
) -> None:
    """All chunks, by the reference. The weight gradient, times `factor`, is accumulated. scratch: arrays of
    `reference_pieces`.
    """
    data, weight, bias, label, d_out = given
    d_data, d_weight, d_bias = gradients
    count, (classes, width) = len(data), weight.shape
    x = data.reshape(count, width)
    scores, total, term, more, row, rest = scratch
    if d_bias is not None:
        d_bias.fill(0)
    total.fill(0)
    for begin in range(0, count, len(scores)):
        part = slice(begin, min(begin + len(scores), count))
        made, labels = scores[: part.stop - begin], label[part]
        product(xp, x[part], weight.T, made, rest)
        if bias is not None:
            xp.add(made, bias, out=made)
        own = {"work": rest, "shapes": ((made.shape, labels.shape), (term.shape,))}
        softmax_cross_entropy.forward(xp, NoAttrs(), made, labels, out=term, **own)
        xp.add(total, term, out=total)
        if d_out is None:
            continue
        assert softmax_cross_entropy.backward is not None
        softmax_cross_entropy.backward(xp, NoAttrs(), d_out, made, labels, d_data=made, **own)
        if d_weight is not None:
            for i in range(0, classes, _STRIP):
                target = d_weight[i : i + _STRIP]
                parts = more[: len(target)]
                product(xp, made[:, i : i + _STRIP].T, x[part], parts, rest)
                if factor != 1:
                    xp.multiply(parts, factor, out=parts)
                xp.add(target, parts, out=target)
        if d_bias is not None:
            xp.add.reduce(made, axis=0, dtype=row.dtype, out=row)
            xp.add(d_bias, row, out=d_bias)
        if d_data is not None:
            product(xp, made, weight, d_data.reshape(count, width)[part], rest)
    if out is not None:
        xp.copyto(out, total, casting="unsafe")


def reference_pieces(inputs: Shapes, dtype: DType, gradients: bool) -> list[Piece]:
    """Scratch: a chunk of scores, losses and their partial sum, partial gradients, scratch of the loss.

    inputs: shapes of data and weight, first.
    """
    rows, (classes, width) = inputs[0][0], inputs[1]
    chunk = (score_tiles(rows, classes, dtype).each, classes)
    ask = softmax_cross_entropy.workspace, softmax_cross_entropy.backward_workspace
    own = (f(NoAttrs(), (chunk, chunk[:1]), ((1,),), dtype) for f in ask)
    sizes = (chunk[0], width, classes), (min(classes, _STRIP), chunk[0], width), (*chunk, width)
    nbytes = max(*own, *(product_bytes(*size, dtype) for size in sizes))
    wide = accumulator(dtype)
    return [
        (chunk, dtype),
        ((1,), _double),
        ((1,), _double),
        ((min(classes, _STRIP) if gradients else 0, width), wide),
        ((classes if gradients else 0,), wide),
        ((nbytes,), _byte),
    ]
