"""Losses of 16-bit data with float32 results: mixed precision inlines the cast before them.

The cast's array, twice the size of the data, exists neither in forward nor in backward. Results have the same
bits: numbers are cast where they are read, gradients are computed in float32 and rounded once.
"""

from __future__ import annotations

from typing import Any

from ...graph.opdef import DType, Op, require_kind, Types
from ..scratch import accumulator
from .cross_entropy import cross_entropy, softmax_cross_entropy
from .loss import SoftmaxOutput


class _Wide(Op):
    """Base beside a loss: its results are float32 for data of 16 bits, and so are weights of classes."""

    abstract = True

    @classmethod
    def infer_type(cls, a: Any, *dtypes: DType | None) -> tuple[Types, Types]:
        """Labels may be of any type, by default the result's."""
        data, label, *weights = dtypes
        require_kind(cls, data)
        wide = None if data is None else accumulator(data)
        return (data, label or wide, *(wide for _ in weights)), (wide,)


class WideSoftmaxOutput(_Wide, SoftmaxOutput):
    """SoftmaxOutput with an inlined cast: probabilities in float32 for data of 16 bits.

    data: (N, K);  label: (N,)  ->  out: (N, K), float32 (float64 for that). See SoftmaxOutput.
    """

    op_name = "_wide_softmax_output"
    aliases = ()
    in_place = {}
    backward_in_place = {}


class WideSoftmaxCrossEntropy(_Wide, softmax_cross_entropy):
    """softmax_cross_entropy with an inlined cast: a float32 sum for data of 16 bits.

    data: (N, K);  label: (N,), class numbers  ->  out: (1,), float32 (float64 for that).
    """

    op_name = "_wide_softmax_cross_entropy"


class WideCrossEntropy(_Wide, cross_entropy):
    """cross_entropy with an inlined cast: float32 losses for data of 16 bits.

    data: (N, C, ...);  label: (N, ...);  weight: (C,), float32, with `use_weight`  ->  out: float32 (float64
    for that), as label or (1,).
    """

    op_name = "_wide_cross_entropy"
