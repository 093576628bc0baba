"""Sequences of tensors, and values that may be absent: both are resolved while importing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....core import FormatError
from ...building.value import GraphValue
from ..node import OnnxNode
from ..sequence import SequenceValue


def construct(n: OnnxNode) -> SequenceValue:
    return SequenceValue(tuple(n.present()))


def _place(n: OnnxNode, place: int, length: int) -> int:
    """The position that an input names, counted from the front."""
    position = int(n.known_number(place, "position"))
    if not -length <= position < length:
        raise FormatError(f"position {position} is not in a sequence of {length}.")
    return position % length


def at(n: OnnxNode) -> GraphValue:
    elements = n.sequence(0).elements
    return elements[_place(n, 1, len(elements))]


def insert(n: OnnxNode) -> SequenceValue:
    """The tensor before the position, by default behind all."""
    elements = n.sequence(0).elements
    place = len(elements) if n.get(2) is None else _place(n, 2, len(elements) + 1)
    if n.get(2) is not None and int(n.known_number(2, "position")) < 0:
        place -= 1  # a negative position counts from the length before
    return SequenceValue((*elements[:place], n[1], *elements[place:]))


def erase(n: OnnxNode) -> SequenceValue:
    elements = n.sequence(0).elements
    place = len(elements) - 1 if n.get(1) is None else _place(n, 1, len(elements))
    return SequenceValue(elements[:place] + elements[place + 1 :])


def length_of(n: OnnxNode) -> GraphValue:
    return n.builder.constant(len(n.sequence(0).elements), np.int64)


def joined(n: OnnxNode) -> GraphValue:
    b, elements, axis = n.builder, list(n.sequence(0).elements), n.whole("axis")
    if not elements:
        raise FormatError("the sequence is empty, so there is nothing to join.")
    if n.flag("new_axis"):
        axis = b.axis(axis, elements[0].rank + 1)
        elements = [b.reshape(v, (*v.shape[:axis], 1, *v.shape[axis:])) for v in elements]
    return b.concat(elements, b.axis(axis, elements[0].rank))


def empty(n: OnnxNode) -> SequenceValue:
    n.ignore("dtype")  # of tensors that are not there yet
    return SequenceValue()


def split(n: OnnxNode) -> SequenceValue:
    """Parts along an axis: of the lengths given, or all of one length, or single places without that axis."""
    b, x = n.builder, n[0]
    axis = b.axis(n.whole("axis", 0), x.rank)
    length = x.shape[axis]
    single = n.get(1) is None
    if n.get(1) is not None and n[1].rank:
        sizes = list(n.known_ints(1, "split") or ())
    else:
        size = 1 if single else int(n.known_number(1, "split"))
        if size < 1:
            raise FormatError(f"the length of parts must be at least 1, got {size}.")
        sizes = [min(size, length - start) for start in range(0, length, size)]
    if sum(sizes) != length or min(sizes, default=0) < 0:
        raise FormatError(f"axis {axis} of length {length} does not split into {sizes}.")
    parts = b.split(x, sizes, axis)
    if single and not n.flag("keepdims", True):
        parts = [b.reshape(v, (*x.shape[:axis], *x.shape[axis + 1 :])) for v in parts]
    return SequenceValue(tuple(parts))


def optional(n: OnnxNode) -> Any:
    return n.value(0)


def has_element(n: OnnxNode) -> GraphValue:
    return n.builder.constant(n.value(0) is not None, np.bool_)


def element(n: OnnxNode) -> Any:
    value = n.value(0)
    if value is None:
        raise FormatError("the optional value is absent, so it has no element.")
    return value


CONVERTERS: dict[str, Callable[[OnnxNode], Any]] = {
    "ConcatFromSequence": joined,
    "Optional": optional,
    "OptionalGetElement": element,
    "OptionalHasElement": has_element,
    "SequenceAt": at,
    "SequenceConstruct": construct,
    "SequenceEmpty": empty,
    "SequenceErase": erase,
    "SequenceInsert": insert,
    "SequenceLength": length_of,
    "SplitToSequence": split,
}
