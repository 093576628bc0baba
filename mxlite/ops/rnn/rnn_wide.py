"""RNN with inlined casts of its parameters: a backend's operator for RNN in mixed precision."""

from __future__ import annotations

from typing import Any

from ...core.errors import DTypeError
from ...graph.opdef import DType, Shapes, Types
from ..scratch import accumulator, scratch_bytes
from .rnn import RNN
from .rnn_gradient import backward_pieces
from .rnn_layout import Sizes
from .rnn_run import forward_pieces


class RnnWide(RNN):
    """Recurrent layers as `RNN`, of 16-bit data and float32 parameters, whose gradient is float32, too.

    RNN of 16 bits computes in float32 and makes float32 copies of its parameters for that, in forward and
    backward, and of their gradient. Here there are none. For other data this is RNN.
    """

    op_name = "_rnn_wide"

    @classmethod
    def infer_type(cls, a: Any, *dtypes: DType | None) -> tuple[Types, Types]:
        data, parameters, *rest = dtypes
        ins, outs = RNN.infer_type(a, data, data, *rest)
        wide = None if ins[0] is None else accumulator(ins[0])
        if parameters is not None and wide is not None and parameters != wide:
            raise DTypeError(f"parameters must be {wide} for data of {ins[0]}, got {parameters}.")
        return (ins[0], wide, *ins[2:]), outs

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return scratch_bytes(forward_pieces(a, Sizes.of(a, inputs[0]), dtype, accumulator(dtype)).values())

    @staticmethod
    def backward_workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return scratch_bytes(backward_pieces(a, Sizes.of(a, inputs[0]), dtype, accumulator(dtype)).values())
