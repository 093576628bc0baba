"""Free axes: lengths of a network's inputs that a written file leaves open.

Which other lengths follow from them is found by trying: shapes are inferred for several lengths of the free
axes. A length that is the same each time is a number. Others are told apart by their values, and are computed
from shapes when the file runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ....core.errors import ArgumentError, OpAttributeError, ShapeError
from ....graph import Entry, Shape

Axis = tuple[str, int]
"""The name of an input, and the number of one of its axes."""

_UNFIT = (OpAttributeError, ShapeError)
"""What inference raises for shapes that do not fit."""

Infer = Callable[[Mapping[str, Shape]], Mapping[Entry, Shape]]
"""Shapes of all entries for those of the inputs; raises ShapeError where they do not fit."""


@dataclass(frozen=True)
class FreeLength:
    """A length that follows from free axes: its value for each choice of their lengths that was tried."""

    values: tuple[int, ...]


Length = int | FreeLength
Lengths = tuple[Length, ...]


def free_axes(known: Mapping[str, Shape], given: Mapping[str, Any] | None, infer: Infer) -> dict[Axis, str]:
    """The free axes and their names; axes of one name have one length.

    known: shapes of the inputs.  given: by input, a number, a name or None for each axis; without it every
    axis is free whose length nothing in the network fixes. An axis without a name is one with the same axis
    of the other inputs that have the same length there, if they can be free together.

    Raises ShapeError that names the node by which an axis is fixed, ArgumentError for what fits no input.
    """
    if given is not None:
        for own, shape in known.items():
            _require_fit(own, given[own], shape)
    asked: dict[Axis, str | None] = {
        (name, axis): None if given is None else given[name][axis]
        for name, shape in known.items()
        for axis in range(len(shape))
        if given is None or not isinstance(given[name][axis], int)
    }
    found: dict[Axis, str] = {}
    for axis, name in asked.items():
        if axis in found:
            continue
        length = known[axis[0]][axis[1]]
        if name is None:
            like = [(n, axis[1]) for n, s in known.items() if s[axis[1] : axis[1] + 1] == (length,)]
            group = [a for a in like if a in asked and asked[a] is None and a not in found]
        else:
            group = [a for a, other in asked.items() if other == name]
        for axes in [group] if name or len(group) == 1 else [group, [axis]]:
            wider = {**found, **dict.fromkeys(axes, name or f"{axis[0]}_axis{axis[1]}")}
            try:
                infer(_grown(known, wider, 0))
            except _UNFIT as error:
                why = f"with another length for {length}, {error}"
            else:
                found = wider
                break
        else:
            if given is not None:
                raise ShapeError(f"Axis {axis[1]} of {axis[0]!r} cannot be free: {why}")
    return found


def lengths_of(known: Mapping[str, Shape], axes: Mapping[Axis, str], infer: Infer) -> Mapping[Entry, Lengths]:
    """The shape of every entry, with a FreeLength where it follows from free axes."""
    if not axes:
        return infer(known)
    tried = [infer(known), *(infer(_grown(known, axes, turn)) for turn in (0, 1))]
    return {entry: tuple(map(_length, zip(*(shapes[entry] for shapes in tried)))) for entry in tried[0]}


def _length(values: tuple[int, ...]) -> Length:
    return values[0] if len(set(values)) == 1 else FreeLength(values)


def _require_fit(name: str, axes: Any, shape: Shape) -> None:
    if len(axes) != len(shape) or any(isinstance(a, int) and a != d for a, d in zip(axes, shape)):
        raise ArgumentError(
            f"dynamic_input_shapes has {tuple(axes)} for {name!r}, in_shapes has {shape}; they must have the "
            f"same numbers, and names or None stand for free axes."
        )


def _grown(known: Mapping[str, Shape], axes: Mapping[Axis, str], turn: int) -> dict[str, Shape]:
    """The shapes with free lengths multiplied, those of each name by a factor of its own."""
    names = list(dict.fromkeys(axes.values()))
    factors = {axis: 2 * names.index(name) + 2 + turn for axis, name in axes.items()}
    return {n: tuple(d * factors.get((n, i), 1) for i, d in enumerate(s)) for n, s in known.items()}
