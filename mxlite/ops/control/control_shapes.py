"""Shape and type inference through subgraphs, between arguments, states and results."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import prod
from typing import Any, TYPE_CHECKING

from ...core.compat.npshape import is_np_shape, UNKNOWN
from ...core.errors import ShapeError
from ...graph.infer import infer_shapes, infer_types
from ...graph.ir import Entry, Graph, Shape
from ...graph.opdef import DType, Op, Shapes
from .subgraph import Subgraph

if TYPE_CHECKING:
    from .control import Control


def subgraphs(op: type[Op], a: Any) -> tuple[Subgraph, ...]:
    """The subgraphs in the order of a file."""
    return tuple(getattr(a, f) for f in op.subgraphs)


def row_shape(shape: Shape, np_shape: bool) -> Shape:
    """Shape of one row. A row of a vector is (1,) in MXNet, and () where 0-d arrays are allowed."""
    return shape[1:] or (() if np_shape else (1,))


def typed_subgraphs(
    op: type[Control], a: Any, shapes: Shapes, dtypes: tuple[DType, ...]
) -> tuple[Graph, ...]:
    """The subgraphs with all shapes and dtypes, from those of the arguments."""
    graphs = []
    known = types_through(op, a, dtypes)[2]
    for shaped, typed in zip(infer_through(op, a, tuple(shapes), is_np_shape())[1], known):
        assert shaped is not None and typed is not None
        types = {n.name: typed.dtypes[Entry(n)] for n in shaped.variables if Entry(n) in typed.dtypes}
        graphs.append(infer_types(shaped, types, default="float32"))
    return tuple(graphs)


def _inferred(op: type[Control], a: Any, shapes: tuple[Any, ...], np_shape: bool) -> Any:
    """((argument shapes, output shapes), the subgraphs with shapes); None for unknown shapes."""
    args, data, count = list(shapes), op.data_args(a), None
    for i in data:
        if args[i] is not None:
            if not args[i]:
                raise ShapeError(f"{op.op_name} needs rows to go through, but argument {i} is of shape ().")
            rows = args[i][0]
            if count not in (None, UNKNOWN) and rows not in (count, UNKNOWN):
                raise ShapeError(
                    f"{op.op_name} goes through arrays of {count} rows, but argument {i} has {rows}."
                )
            count = rows if count in (None, UNKNOWN) else count
    if not data:
        count = op.iterations(a, ())

    def fed(kind: str, i: int, states: list[Any]) -> Shape | None:
        if kind == "state":
            return states[i]
        return args[i] if kind == "outer" or args[i] is None else row_shape(args[i], np_shape)

    states = [args[i] for i in op.state_args(a)]
    graphs = _settle(op, a, args, states, fed, lambda g, known: infer_shapes(g, known), "shapes")
    for i, s in zip(op.state_args(a), states):
        args[i] = s
    for sub, g in list(zip(op.subgraphs, graphs))[: op.num_deciding()]:
        shape = g.shapes.get(g.outputs[0])
        if shape is not None and UNKNOWN not in shape and prod(shape) != 1:
            raise ShapeError(f"{op.op_name} needs {sub!r} to be one number, but it is of shape {shape}.")
    given = agreed(op, a, [[g.shapes.get(e) for e in g.outputs] for g in graphs], "of shape", ShapeError)
    rows = a.num_outputs - len(states)
    for k, (old, new) in enumerate(zip(states, given[rows:])):
        if old is not None and new is not None and UNKNOWN not in (*old, *new) and old != new:
            raise ShapeError(
                f"{state_name(op, a, k)} is of shape {old} before an iteration and {new} "
                f"after it; it must stay."
            )

    def stacked(s: Shape | None) -> Shape | None:
        return None if s is None or count is None else (count, *s)

    outs = [stacked(s) if op.is_loop else s for s in given[:rows]]
    outs += [old if new is None else new for old, new in zip(states, given[rows:])]
    outs += [stacked(s) for s in states] + [(1,)] * ("count" in op.hidden_names(a))
    return (tuple(args), tuple(outs)), graphs


infer_through: Callable[..., Any] = lru_cache(maxsize=1024)(_inferred)


def types_through(
    op: type[Control], a: Any, dtypes: tuple[Any, ...]
) -> tuple[list[Any], list[Any], list[Any]]:
    """(argument dtypes, state dtypes, the subgraphs with dtypes)."""
    args = list(dtypes)
    states = [args[i] for i in op.state_args(a)]

    def fed(kind: str, i: int, states: list[Any]) -> Any:
        return states[i] if kind == "state" else args[i]

    graphs = _settle(op, a, args, states, fed, lambda g, known: infer_types(g, known), "dtypes")
    for i, d in zip(op.state_args(a), states):
        args[i] = d
    return args, states, graphs


def _settle(
    op: type[Control],
    a: Any,
    args: list[Any],
    states: list[Any],
    fed: Callable[[str, int, list[Any]], Any],
    infer: Callable[[Graph, dict[str, Any]], Graph],
    field: str,
) -> list[Graph]:
    """Infer all subgraphs until nothing more is learned of `args` and `states`, which are completed."""
    while True:
        before = (*args, *states)
        graphs = []
        for sub, plugs in zip(subgraphs(op, a), op.plugs(a)):
            known = {n.name: x for n, p in zip(sub.inputs, plugs) if (x := fed(*p, states)) is not None}
            inferred = infer(sub.graph, known)
            graphs.append(inferred)
            facts = getattr(inferred, field)
            for node, (kind, i) in zip(sub.inputs, plugs):
                into, fact = (states if kind == "state" else args), facts.get(Entry(node))
                if fact is not None and (kind != "data" or field == "dtypes") and _open(into[i]):
                    into[i] = fact
        facts = getattr(graphs[-1], field)
        last = graphs[-1].outputs[len(graphs[-1].outputs) - len(states) :]
        for k, e in enumerate(last):
            if e in facts and _open(states[k]):
                states[k] = facts[e]
        if (*args, *states) == before:
            return graphs


def _open(fact: Any) -> bool:
    return fact is None or (isinstance(fact, tuple) and UNKNOWN in fact)


def agreed(op: type[Control], a: Any, outs: list[Any], what: str, error: type[Exception]) -> list[Any]:
    """Shapes or types of the outputs, on which all computing subgraphs must agree."""
    rows = outs[op.num_deciding() :]
    for i, facts in enumerate(zip(*rows)):
        known = [f for f in facts if not _open(f)]
        if any(f != known[0] for f in known):
            raise error(
                f"{op.op_name} gives output {i} {what} {known[0]} from {op.subgraphs[-2]!r}, "
                f"but {known[1]} from {op.subgraphs[-1]!r}; both must agree."
            )
    return [next((f for f in facts if not _open(f)), facts[0]) for facts in zip(*rows)]


def state_name(op: type[Control], a: Any, k: int) -> str:
    sub, plugs = subgraphs(op, a)[-1], op.plugs(a)[-1]
    return f"{op.op_name}: state {k} ({sub.inputs[plugs.index(('state', k))].name!r})"


def graph_flops(graph: Graph) -> int:
    total = 0
    for node in graph.nodes:
        if node.op is not None:
            outs = node.outputs
            total += node.op.flops(
                node.attrs, tuple(graph.shapes[e] for e in node.inputs), tuple(graph.shapes[e] for e in outs)
            )
    return total
