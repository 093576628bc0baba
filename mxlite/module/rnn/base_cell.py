"""Base of all cells: parameters, initial states, unrolling, and weights gate by gate."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ... import symbol
from ...core import StateError
from ...core.errors import nearest, UnknownNameError
from ...ndarray import concatenate, NDArray
from ...symbol import Symbol
from .params import RNNParams
from .sequence import as_list, Unrolling

StateInfo = dict[str, Any]


class BaseRNNCell:
    """One step of a recurrent network: `output, states = cell(inputs, states)`.

    `prefix` goes before the names of the nodes, and of the parameters where `params` is None. A subclass has
    `state_info` and `__call__`, and `_gate_names` if its parameters hold several gates one below the other.
    """

    _gate_names: Sequence[str] = ()

    def __init__(self, prefix: str = "", params: RNNParams | None = None) -> None:
        self._own_params = params is None
        self._prefix = prefix
        self._params = params if params is not None else RNNParams(prefix)
        self._modified = False
        self._counter = -1
        self._init_counter = -1

    def reset(self) -> None:
        """Restart the numbering of steps and initial states: the cell may be used for another graph."""
        self._counter = -1
        self._init_counter = -1

    def __call__(self, inputs: Symbol, states: Sequence[Symbol]) -> tuple[Symbol, list[Symbol]]:
        """One step: inputs (N, C) and the states before it -> output, and the states after it."""
        raise StateError(f"A {type(self).__name__} cannot go one step; use its unroll.")

    @property
    def params(self) -> RNNParams:
        """The parameters, to be given to another cell."""
        self._own_params = False
        return self._params

    @property
    def state_info(self) -> list[StateInfo]:
        """Shape (0 for the batch) and `__layout__` of each state."""
        raise StateError(f"{type(self).__name__} does not say what its states are.")

    @property
    def state_shape(self) -> list[tuple[int, ...]]:
        """The shapes of the states."""
        return [info["shape"] for info in self.state_info]

    def begin_state(self, func: Callable[..., Any] = symbol.zeros, **kwargs: Any) -> list[Any]:
        """The states before the first step: `func(name=..., shape=..., **kwargs)` for each, zeros by default.

        With func=mx.sym.Variable they are inputs of the network.
        """
        self._must_be_free()
        states = []
        for info in self.state_info:
            self._init_counter += 1
            name = f"{self._prefix}begin_state_{self._init_counter}"
            states.append(func(name=name, **{**kwargs, **info}))
        return states

    def _must_be_free(self) -> None:
        """Raise StateError if a modifier cell owns this cell."""
        if self._modified:
            raise StateError(
                f"This {type(self).__name__} is inside a modifier cell, as ZoneoutCell: call that."
            )

    # -- weights -------------------------------------------------------------------------------

    def unpack_weights(self, args: Mapping[str, NDArray]) -> dict[str, NDArray]:
        """`args` with the cell's weights gate by gate: PREFIXi2h_i_weight and so on; the rest as it is."""
        args = dict(args)
        for group in self._groups:
            for kind in ("weight", "bias"):
                whole = _taken(args, f"{self._prefix}{group}_{kind}", "unpack_weights")
                rows = whole.shape[0] // len(self._gate_names)
                for j, gate in enumerate(self._gate_names):
                    args[f"{self._prefix}{group}{gate}_{kind}"] = whole[j * rows : (j + 1) * rows].copy()
        return args

    def pack_weights(self, args: Mapping[str, NDArray]) -> dict[str, NDArray]:
        """The inverse of `unpack_weights`."""
        args = dict(args)
        for group in self._groups:
            for kind in ("weight", "bias"):
                names = [f"{self._prefix}{group}{gate}_{kind}" for gate in self._gate_names]
                parts = [_taken(args, n, "pack_weights") for n in names]
                args[f"{self._prefix}{group}_{kind}"] = concatenate(parts)
        return args

    @property
    def _groups(self) -> Sequence[str]:
        return ("i2h", "h2h") if self._gate_names else ()

    # -- unrolling -----------------------------------------------------------------------------

    def unroll(
        self,
        length: int,
        inputs: Any,
        begin_state: Any = None,
        layout: str = "NTC",
        merge_outputs: bool | None = None,
    ) -> tuple[Any, Any]:
        """`length` steps, one after another: (outputs, states after the last).

        inputs: a symbol with the axes that `layout` names, or a list of one (N, C) for each step. Outputs are
        one such symbol with `merge_outputs`, a list if that is False, whichever is available if it is None.
        """
        self.reset()
        return self._unrolled(Unrolling(length, inputs, begin_state, layout, merge_outputs))

    def _unrolled(self, u: Unrolling) -> tuple[Any, Any]:
        """`unroll` of a cell that has been reset."""
        steps, states, outputs = as_list(u.length, u.inputs, u.layout), self._first_states(u), []
        for step in steps:
            output, states = self(step, states)
            outputs.append(output)
        return u.asked(outputs), states

    def _first_states(self, u: Unrolling) -> Any:
        return u.begin_state if u.begin_state is not None else self.begin_state()

    def _get_activation(self, inputs: Symbol, activation: Any, **kwargs: Any) -> Symbol:
        """An activation by name, or by a function that creates one; users' cells call it, too."""
        if isinstance(activation, str):
            found: Symbol = symbol.Activation(inputs, act_type=activation, **kwargs)
            return found
        made: Symbol = activation(inputs, **kwargs)
        return made


def _taken(args: dict[str, NDArray], name: str, what: str) -> NDArray:
    if name not in args:
        raise UnknownNameError(f"{what}: there is no {name!r}.{nearest(name, args)}")
    return args.pop(name)
