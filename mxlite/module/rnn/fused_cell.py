"""All layers and steps of a recurrent network as one node, the operator RNN."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from ... import symbol
from ...core import ShapeError
from ...core.errors import nearest, OpAttributeError, UnknownNameError
from ...ndarray import NDArray, zeros
from ..initial.fused_weights import FusedWeights, GATES
from ..initial.initializer import FusedRNN
from .base_cell import BaseRNNCell, StateInfo
from .bidirectional_cell import BidirectionalCell
from .dropout_cell import DropoutCell
from .params import RNNParams
from .sequence import as_one, time_axis, Unrolling
from .sequential_cell import SequentialRNNCell
from .step_cell import GRUCell, LSTMCell, RNNCell


class FusedRNNCell(BaseRNNCell):
    """`num_layers` layers of 'rnn_relu', 'rnn_tanh', 'lstm' or 'gru' over a whole sequence, as one node.

    All weights are one vector, PREFIXparameters; `unpack_weights` gives them gate by gate under the names of
    the cells that `unfuse` creates. `dropout` is applied between the layers. `get_next_state`: True if
    `unroll` returns the states after the last step; its layout TNC avoids two transpositions. `forget_bias`
    is the initial bias of LSTM forget gates.
    """

    def __init__(
        self,
        num_hidden: int,
        num_layers: int = 1,
        mode: str = "lstm",
        bidirectional: bool = False,
        dropout: float = 0.0,
        get_next_state: bool = False,
        forget_bias: float = 1.0,
        prefix: str | None = None,
        params: RNNParams | None = None,
    ) -> None:
        if mode not in GATES:
            raise OpAttributeError(
                f"FusedRNNCell: mode is one of {tuple(GATES)}, got {mode!r}.{nearest(str(mode), GATES)}"
            )
        super().__init__(f"{mode}_" if prefix is None else prefix, params)
        self._num_hidden = num_hidden
        self._num_layers = num_layers
        self._mode = mode
        self._gate_names = GATES[mode]
        self._bidirectional = bidirectional
        self._dropout = dropout
        self._get_next_state = get_next_state
        self._weights = FusedWeights(num_hidden, num_layers, mode, bool(bidirectional), self._prefix)
        first = FusedRNN(None, num_hidden, num_layers, mode, bidirectional, forget_bias)
        self._parameter = self._params.get("parameters", init=first)

    @property
    def state_info(self) -> list[StateInfo]:
        passes = self._num_layers * (1 + bool(self._bidirectional))
        info = {"shape": (passes, 0, self._num_hidden), "__layout__": "LNC"}
        return [dict(info) for _ in range(2 if self._mode == "lstm" else 1)]

    def unpack_weights(self, args: Mapping[str, NDArray]) -> dict[str, NDArray]:
        """`args` with the vector in pieces: PREFIXl0_i2h_i_weight (H, C) and so on; r: reverse direction."""
        args = dict(args)
        name = str(self._parameter.name)
        if name not in args:
            raise UnknownNameError(f"unpack_weights: there is no {name!r}.{nearest(name, args)}")
        vector = args.pop(name)
        return args | {n: piece.copy() for n, piece in self._weights.pieces(vector).items()}

    def pack_weights(self, args: Mapping[str, NDArray]) -> dict[str, NDArray]:
        """The inverse of `unpack_weights`."""
        args = dict(args)
        first = self._weights.first
        if first not in args:
            raise UnknownNameError(f"pack_weights: there is no {first!r}.{nearest(first, args)}")
        like = args[first]
        vector = zeros((self._weights.size(like.shape[1]),), ctx=like.context, dtype=like.dtype)
        for name, piece in self._weights.pieces(vector).items():
            if name not in args:
                raise UnknownNameError(f"pack_weights: there is no {name!r}.{nearest(name, args)}")
            found = args.pop(name)
            if found.shape != piece.shape:
                raise ShapeError(f"pack_weights: {name!r} must be {piece.shape}, but it is {found.shape}.")
            piece[:] = found
        return args | {str(self._parameter.name): vector}

    def _unrolled(self, u: Unrolling) -> tuple[Any, Any]:
        """One RNN node."""
        axis = time_axis(u.layout)
        if axis > 1:
            raise OpAttributeError(f"FusedRNNCell: layout is 'TNC' or 'NTC', got {u.layout!r}.")
        inputs = as_one(u.length, u.inputs, u.layout)
        if axis == 1:
            warnings.warn(
                "FusedRNNCell transposes a sequence of layout NTC; TNC is what it computes on.", stacklevel=3
            )
            inputs = symbol.swapaxes(inputs, dim1=0, dim2=1)
        states = self._first_states(u)
        rnn = symbol.RNN(
            data=inputs,
            parameters=self._parameter,
            state_size=self._num_hidden,
            num_layers=self._num_layers,
            bidirectional=self._bidirectional,
            p=self._dropout,
            state_outputs=self._get_next_state,
            mode=self._mode,
            name=f"{self._prefix}rnn",
            **dict(zip(("state", "state_cell"), states)),
        )
        outputs, after = rnn, []
        if self._get_next_state:
            rnn[0]._set_attr(__layout__="LNC")
            outputs, after = rnn[0], list(rnn)[1:]
        if axis == 1:
            outputs = symbol.swapaxes(outputs, dim1=0, dim2=1)
        return u.asked(outputs), after

    def unfuse(self) -> SequentialRNNCell:
        """The same network as a stack of cells that go step by step, with weights of the same names."""
        stack = SequentialRNNCell()
        for layer in range(self._num_layers):
            left = self._step_cell(f"{self._prefix}l{layer}_")
            if self._bidirectional:
                right = self._step_cell(f"{self._prefix}r{layer}_")
                stack.add(BidirectionalCell(left, right, output_prefix=f"{self._prefix}bi_l{layer}_"))
            else:
                stack.add(left)
            if self._dropout > 0 and layer != self._num_layers - 1:
                stack.add(DropoutCell(self._dropout, prefix=f"{self._prefix}_dropout{layer}_"))
        return stack

    def _step_cell(self, prefix: str) -> BaseRNNCell:
        if self._mode == "lstm":
            return LSTMCell(self._num_hidden, prefix=prefix)
        if self._mode == "gru":
            return GRUCell(self._num_hidden, prefix=prefix)
        return RNNCell(self._num_hidden, activation=self._mode.removeprefix("rnn_"), prefix=prefix)
