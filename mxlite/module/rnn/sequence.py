"""A sequence as one symbol, or as a list of symbols, one for each step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ... import symbol
from ...core import ShapeError
from ...core.errors import OpAttributeError
from ...core.wanted import wanted
from ...symbol import Symbol

Steps = Symbol | Sequence[Symbol]


class Unrolling(NamedTuple):
    """The arguments of a cell's `unroll`."""

    length: int
    inputs: Any
    begin_state: Any = None
    layout: str = "NTC"
    merge_outputs: bool | None = None

    def asked(self, outputs: Any) -> Any:
        """Outputs as one symbol or as a list, as the caller wants them."""
        return as_asked(self.length, outputs, self.layout, self.merge_outputs)


def time_axis(layout: str) -> int:
    """Index of T in a layout such as "NTC". Raises OpAttributeError."""
    axis = layout.find("T")
    if axis < 0:
        raise OpAttributeError(f"layout says with a T which axis is time, as 'NTC' does; got {layout!r}.")
    return axis


def as_list(length: int | None, inputs: Any, layout: str) -> list[Symbol]:
    """A sequence as a list: one symbol is split along its time axis. Raises ShapeError for another length."""
    axis = time_axis(layout)
    if isinstance(inputs, Symbol):
        if len(inputs) != 1:
            raise ShapeError(
                f"unroll takes one symbol or a list of symbols, but {inputs!r} is a group of {len(inputs)}: "
                f"write list(inputs)."
            )
        return list(symbol.split(inputs, axis=axis, num_outputs=length, squeeze_axis=1))
    _check_length(length, inputs)
    return list(inputs)


def as_one(length: int | None, inputs: Any, layout: str) -> Symbol:
    """A sequence as one symbol with a time axis."""
    if isinstance(inputs, Symbol):
        return inputs
    axis = time_axis(layout)
    _check_length(length, inputs)
    steps = [symbol.expand_dims(step, axis=axis) for step in inputs]
    joined: Symbol = symbol.Concat(*steps, dim=axis)
    return joined


def as_asked(length: int | None, inputs: Any, layout: str, merge: bool | None) -> Any:
    """One symbol if `merge`, a list if it is False, unchanged if it is None."""
    if merge is None:
        if not isinstance(inputs, Symbol):
            _check_length(length, inputs)
        return inputs
    return as_one(length, inputs, layout) if merge else as_list(length, inputs, layout)


def _check_length(length: int | None, inputs: Any) -> None:
    if inputs is None:
        raise ShapeError("unroll needs inputs: a symbol with a time axis, or a list with one for each step.")
    wanted("unroll: inputs", inputs, "a Symbol or a list of them", list, tuple)
    if length is not None and len(inputs) != length:
        raise ShapeError(f"unroll over {length} steps needs {length} inputs, got {len(inputs)}.")
