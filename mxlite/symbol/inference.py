"""Shapes and types of a symbol's arguments, outputs and auxiliary states, in MXNet's return forms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..core.compat.npshape import from_user, is_np_shape, to_user, UNKNOWN
from ..core.errors import MXLiteError, nearest, ShapeError, UnknownNameError
from ..graph import Entry, Graph, infer_shapes, infer_types, Shape

ShapeLists = tuple[list[Shape] | None, list[Shape] | None, list[Shape] | None]
TypeLists = tuple[list[Any] | None, list[Any] | None, list[Any] | None]


def known_by_name(
    graph: Graph, positional: Sequence[Any], named: Mapping[str, Any], what: str
) -> dict[str, Any]:
    """Argument name -> known shape or type; values of None are left out."""
    if positional and named:
        raise MXLiteError(f"infer_{what} takes its arguments all by position or all by name, not mixed.")
    names = [n.name for n in graph.arguments]
    if len(positional) > len(names):
        raise MXLiteError(
            f"infer_{what}: the symbol has {len(names)} arguments; {len(positional)} were given."
        )
    known = dict(zip(names, positional)) if positional else dict(named)
    variables = {n.name for n in graph.variables}
    for key in known:
        if key not in variables:
            listed = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
            raise UnknownNameError(
                f"infer_{what}: the symbol has no argument {key!r}; it has {listed}.{nearest(key, variables)}"
            )
    return {k: v for k, v in known.items() if v is not None}


def shapes(graph: Graph, known: Mapping[str, Any], partial: bool) -> ShapeLists:
    """(arguments, outputs, auxiliary states).

    With `partial`, () stands for an unknown rank and 0 for an unknown dimension (None and -1 inside
    `np_shape`, where () and 0 are shapes like others); without it, all three are None if anything is unknown.
    """
    given = {k: checked_shape(k, v) for k, v in known.items()}
    wanted = {k: from_user(s) for k, s in given.items() if s or is_np_shape()}
    inferred = infer_shapes(graph, wanted).shapes
    unknown: Any = None if is_np_shape() else ()
    lists = [[to_user(inferred[e]) if e in inferred else unknown for e in part] for part in _parts(graph)]
    if not partial and any(
        e not in inferred or UNKNOWN in inferred[e] for part in _parts(graph) for e in part
    ):
        return None, None, None
    return lists[0], lists[1], lists[2]


def types(graph: Graph, known: Mapping[str, Any], partial: bool) -> TypeLists:
    """(arguments, outputs, auxiliary states) as numpy types; None where unknown, as in `shapes`."""
    inferred = infer_types(graph, known).dtypes
    lists = [[inferred[e].type if e in inferred else None for e in part] for part in _parts(graph)]
    if not partial and any(t is None for part in lists for t in part):
        return None, None, None
    return lists[0], lists[1], lists[2]


def _parts(graph: Graph) -> tuple[list[Entry], Sequence[Entry], list[Entry]]:
    return [Entry(n) for n in graph.arguments], graph.outputs, [Entry(n) for n in graph.auxiliary]


def checked_shape(name: str, value: Any) -> Shape:
    """`value` as a shape, -1 for a length that is not known. Raises ShapeError, which names `name`."""
    if not isinstance(value, Iterable) or isinstance(value, (str, bytes)):
        raise ShapeError(f"The shape of {name!r} must be a tuple of whole numbers, got {value!r}.")
    dims = tuple(value)
    least = -1 if is_np_shape() else 0
    for d in dims:
        if isinstance(d, bool) or not hasattr(d, "__index__") or d < least:
            raise ShapeError(
                f"The shape of {name!r} must be whole numbers, {0 if least == 0 else -1} for unknown ones, "
                f"got {value!r}."
            )
    return tuple(int(d) for d in dims)
