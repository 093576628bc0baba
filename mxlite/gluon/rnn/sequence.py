"""Sequences as one array or as a list of places."""

from __future__ import annotations

from typing import Any

from ... import ndarray as nd, symbol as sym
from ...core.errors import ShapeError
from ...ndarray import NDArray
from ...symbol import Symbol


def module_of(value: Any) -> Any:
    """mx.nd for arrays, mx.sym for symbols."""
    first = value[0] if isinstance(value, (list, tuple)) else value
    return sym if isinstance(first, Symbol) else nd


def places(length: int, inputs: Any, layout: str) -> list[Any]:
    """The `length` places of a sequence, each (N, ...). ShapeError if it has another length."""
    axis = layout.index("T")
    if isinstance(inputs, (list, tuple)):
        if len(inputs) != length:
            raise ShapeError(f"unroll: length is {length}, but there are {len(inputs)} inputs.")
        return list(inputs)
    if isinstance(inputs, NDArray) and inputs.shape[axis] != length:
        raise ShapeError(
            f"unroll: length is {length}, but the inputs are {inputs.shape} in layout {layout!r}."
        )
    found = module_of(inputs).SliceChannel(inputs, axis=axis, num_outputs=length, squeeze_axis=1)
    return list(found) if length > 1 else [found]


def merged(outputs: list[Any], layout: str) -> Any:
    """Places as one array."""
    return module_of(outputs).stack(*outputs, axis=layout.index("T"))


def masked(F: Any, outputs: list[Any], valid_length: Any) -> list[Any]:
    """Places with zeros from a sample's `valid_length` on."""
    whole = F.SequenceMask(F.stack(*outputs, axis=0), valid_length, use_sequence_length=True)
    return places(len(outputs), whole, "TNC")


def reversed_places(F: Any, inputs: list[Any], valid_length: Any) -> list[Any]:
    """Places in reverse order; each sample's first `valid_length` ones, if these are given."""
    if valid_length is None:
        return inputs[::-1]
    whole = F.SequenceReverse(F.stack(*inputs, axis=0), valid_length, use_sequence_length=True)
    return places(len(inputs), whole, "TNC")
