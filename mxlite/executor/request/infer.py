"""Inference of every shape and type of a symbol's graph, from those of its inputs."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from ...core import BindError, nearest, ShapeError, UnknownNameError
from ...core.compat.npshape import from_user
from ...core.errors import refuse_misspelt
from ...graph import Entry, Graph, infer_shapes, infer_types, Shape
from ...graph.opdef import known_shape

MOST_BYTES = 2**62  # of all results together; beyond, sums no longer fit in 64 bits


_log = logging.getLogger(__name__)

OPTIONS = (
    "grad_req", "type_dict", "memory_budget", "optimizer", "amp", "loss_scale", "device", "plan", "offload",
    "streams", "ranks", "records",
)  # fmt: skip
"""Names of options that may stand among the shapes of inputs in a call of `simple_bind`."""


def shapes_of_variables(graph: Graph, shapes: Mapping[str, Shape]) -> Mapping[str, Shape]:
    """The shapes that a user gave. Names of no variable are ignored, as in MXNet; logged if no shape.

    Raises UnknownNameError for an option that is misspelt: no shape, and nearly one of `OPTIONS`; and for a
    name similar to that of a variable that has no shape yet.
    """
    names = {n.name for n in graph.variables}
    for name, shape in shapes.items():
        if name in names or isinstance(shape, (tuple, list)):
            continue
        said = (
            f"{name!r} is neither an input of the network nor an option, and {str(shape)[:80]!r} is no shape."
        )
        if meant := nearest(name, OPTIONS):
            raise UnknownNameError(said + meant)
        _log.warning("%s It is left out. The options are %s.", said, ", ".join(OPTIONS))
    refuse_misspelt("What gives shapes to inputs", shapes, names)
    return known_shapes(graph, shapes)


def known_shapes(graph: Graph, shapes: Mapping[str, Shape]) -> Mapping[str, Shape]:
    """Shapes of variables only."""
    names = {n.name for n in graph.variables}
    return {n: from_user(s, n) for n, s in shapes.items() if n in names}


def infer(
    graph: Graph,
    shapes: Mapping[str, Shape],
    types: Mapping[str, Any],
    given: Mapping[str, Shape] | None = None,
) -> Graph:
    """`graph` with every shape and dtype known. Raises ShapeError naming what is missing, or too large.

    `given` are the shapes as the user wrote them, including names that do not exist.
    """
    names = [n.name for n in graph.variables]
    known = set(names)
    if len(known) < len(names):
        double = next(n for n, c in Counter(names).items() if c > 1)
        raise BindError(
            f"{double!r} names {names.count(double)} different variables; a bound array needs a "
            f"name of its own: give each operator another name=, or both the same variable to share it."
        )
    if not isinstance(types, Mapping):
        raise BindError(f"type_dict must be a dict of names and dtypes, got {types!r}.")
    for name in types:
        if name not in known:
            raise UnknownNameError(f"type_dict names {name!r}, which is no argument.{nearest(name, names)}")
    graph = infer_types(infer_shapes(graph, shapes), types, default="float32")
    unknown = [n.name for n in graph.variables if not known_shape(graph.shapes.get(Entry(n)))]
    if unknown:
        said = ", ".join(f"{k}={_written(v)}" for k, v in shapes.items()) or "nothing"
        if any(min(s, default=0) < 0 for s in shapes.values()):
            said += ", where ? is 0 or below and leaves an axis open"
        raise ShapeError(
            f"The shapes of {unknown[:8]} do not follow from {said}; give them as well."
            f"{_near_given(unknown, given or {}, names)}"
        )
    for entry in graph.entries():
        if not known_shape(graph.shapes.get(entry)):
            found = graph.shapes.get(entry)
            raise ShapeError(
                f"The shape of {entry.node.name!r} does not follow from what is known"
                f"{'' if found is None else f': only {found}, where -1 is open'}. Say how large it is."
            )
    _check_sizes(graph)
    return graph


def _written(shape: Shape) -> str:
    """A shape with ? for its open axes."""
    return f"({', '.join('?' if d < 0 else str(d) for d in shape)}{',' * (len(shape) == 1)})"


def _near_given(unknown: Sequence[str], shapes: Mapping[str, Shape], names: Sequence[str]) -> str:
    for name in shapes:
        if name not in names:
            return f" {name!r} is no input.{nearest(name, unknown)}"
    return ""


def _check_sizes(inferred: Graph) -> None:
    """Raise ShapeError if offsets and sums of bytes would not fit in 64 bits. O(arrays)."""
    total = 0
    for entry, shape in inferred.shapes.items():
        nbytes = prod(shape) * inferred.dtypes[entry].itemsize
        total += nbytes
        if total >= MOST_BYTES:
            raise ShapeError(
                f"{entry.node.name!r} of shape {shape} has {nbytes} bytes, and all arrays up to it {total}; "
                f"a plan holds less than 2**62 bytes. Is a shape wrong?"
            )
