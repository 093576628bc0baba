"""Reverse-mode differentiation as a graph-to-graph pass.

Every forward node meets its `grad_op`, which is given exactly the arrays that the operator's
`backward` names, so nothing else is kept alive by the backward pass. Three rules keep memory low:

* A gradient that *is* another one (`Op.gradient_is`: both inputs of an addition) makes no node.
* Gradients that meet at an entry are added as they arrive, not at the end: a weight shared by
  64 time steps holds one running sum, not 64 terms.

          d_a ---+
                 +--> sum1 --+
          d_b ---+           +--> sum2 --> ...        (each may be written in place)
                       d_c --+

* The result carries the order in which the nodes were made: backward visits the forward nodes in reverse,
  each sum right behind its second term. Depth-first order from the gradients would instead finish one
  parameter at a time and keep everything else waiting.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..core.errors import DerivativeError, MXLiteError
from .derivative import FindOp, Writer
from .ir import Entry, Graph, Node
from .opdef import Op


class _ones_like(Op):
    """``out = 1``, in the shape and type of `data`: where differentiation starts."""

    inputs = ("data",)
    same_shape = True
    shape_only = ("data",)
    in_place = {"out": "data"}
    cheap = True

    @staticmethod
    def forward(xp, a, data, *, out):  # type: ignore[no-untyped-def]
        out[...] = 1


class _grad_add(Op):
    """Sum of two gradients that meet at one entry, ``out = lhs + rhs``."""

    inputs = ("lhs", "rhs")
    same_shape = True
    in_place = {"out": ("lhs", "rhs")}
    gradient_is = {"lhs": "d_out", "rhs": "d_out"}
    cheap = True

    @staticmethod
    def forward(xp, a, lhs, rhs, *, out):  # type: ignore[no-untyped-def]
        xp.add(lhs, rhs, out=out)


def gradient(graph: Graph, wrt: Sequence[Entry]) -> Graph:
    """A graph whose outputs are those of `graph`, then d(sum of them)/d(wrt), one for each of `wrt`.

    Losses define their own gradient; every other output starts with ones.
    Raises MXLiteError for an entry on which no output depends.
    """
    ones = {
        i: Entry(Node(_ones_like, _ones_like.Attrs(), (e,), f"{e.node.name}_ones"))
        for i, e in enumerate(graph.outputs)
        if needs_head_gradient(e.node)
    }
    result, grads = backward(graph, wrt, ones)
    if missing := [x.node.name for x, g in zip(wrt, grads) if g is None]:
        raise MXLiteError(f"The outputs do not depend on {missing}; they have no gradient.")
    return replace(result, outputs=(*graph.outputs, *(g for g in grads if g is not None)))


def needs_head_gradient(node: Node) -> bool:
    """Whether backward from this output must be told a gradient: not so for losses."""
    if node.op is None or not node.op.is_loss:
        return True
    assert node.op.grad_op is not None
    return any(n.startswith("d_") for n in node.op.grad_op.input_names(node.attrs))


def backward(
    graph: Graph,
    wrt: Sequence[Entry],
    head_gradients: Mapping[int, Entry],
    again: FindOp | None = None,
    starts: int | None = None,
) -> tuple[Graph, list[Entry | None]]:
    """The training graph of `graph` and the gradient of each of `wrt`, None where there is none.

    `head_gradients` maps the index of an output to the entry that holds its gradient; an output that is
    not in it starts no gradient unless it is a loss, and among the first `starts` outputs (None: all). The
    returned graph has the outputs of `graph` and then the gradients that exist, and an explicit `order`:
    forward nodes, then backward nodes as made.

    With `again` (names to operators) the gradients can be differentiated themselves: they are written with
    operators (`Op.derivative`) wherever an operator says how. An operator that does not gets its usual
    gradient node, and differentiating through that one raises DerivativeError.
    """
    wanted = carries_gradient(graph, wrt)
    parts: dict[Entry, Entry] = {}
    made: list[Node] = []

    def arrive(at: Entry, term: Entry) -> None:
        if at not in parts:
            parts[at] = term
            return
        name = f"{at.node.name}_grad_sum"
        made.append(Node(_grad_add, _grad_add.Attrs(), (parts[at], term), name))
        parts[at] = Entry(made[-1])

    heads = {e.node for e in graph.outputs[:starts]}
    for i, e in enumerate(graph.outputs):
        if i in head_gradients and e in wanted:
            head = head_gradients[i].node
            if head.op is not None and head not in made:
                made.append(head)
            arrive(e, head_gradients[i])

    for node in reversed(graph.nodes):
        op = node.op
        if op is None or not any(e in wanted for e in node.inputs):
            continue
        names = node.output_names
        arrived = {f"d_{y}": parts.get(Entry(node, i)) for i, y in enumerate(names)}
        has_gradient = any(e is not None for e in arrived.values())
        starts_here = op.is_loss and node in heads and not needs_head_gradient(node)
        if not has_gradient and not starts_here:
            continue
        ins = node.input_names
        for name, x in zip(ins, node.inputs):
            key = _gradient_is(op, name)
            same = arrived.get(key) if key is not None else None
            if same is not None and x in wanted:
                arrive(x, same)
        if again is not None and op.derivative is not None:
            heads_by_name = {y: g for y in names if (g := arrived[f"d_{y}"]) is not None}
            writer = Writer(again, node.name)
            outs = {y: Entry(node, i) for i, y in enumerate(names)}
            found = op.derivative(writer, node.attrs, dict(zip(ins, node.inputs)), outs, heads_by_name)
            made += writer.made
            for name, x in zip(ins, node.inputs):
                if name in found and x in wanted:
                    arrive(x, found[name])
            continue
        if node.forward is not None:
            raise DerivativeError(
                f"The gradient of {node.forward.op.op_name} {node.forward.name!r} cannot be differentiated "  # type: ignore[union-attr]
                f"again: docs/operators.md lists the operators whose gradients can."
            )
        grad_op = op.grad_op
        if grad_op is None:
            continue
        makes = grad_op.output_names(node.attrs)
        if not any(f"d_{n}" in makes and x in wanted for n, x in zip(ins, node.inputs)):
            continue
        have: dict[str, Entry | None] = dict(zip(ins, node.inputs))
        have |= {y: Entry(node, i) for i, y in enumerate(names)}
        have |= arrived
        needs = grad_op.input_names(node.attrs)
        absent = frozenset(n for n in needs if have.get(n) is None)
        back = Node(
            grad_op,
            node.attrs,
            tuple(need for n in needs if (need := have.get(n)) is not None),
            f"{node.name}_backward",
            annotations=node.annotations,
            forward=node,
            absent=absent,
        )
        made.append(back)
        for name, x in zip(ins, node.inputs):
            if f"d_{name}" in makes and x in wanted:
                arrive(x, Entry(back, makes.index(f"d_{name}")))

    grads = [parts.get(x) for x in wrt]
    outputs = (*graph.outputs, *(g for g in grads if g is not None))
    order = _ordered(graph, outputs, made)
    return replace(graph, outputs=outputs, order=order), grads


def _gradient_is(op: type[Op], name: str) -> str | None:
    """The `d_<output>` that is the gradient of input `name`; variadic inputs share one rule."""
    if op.variadic and op.variadic in op.gradient_is:
        return op.gradient_is[op.variadic]
    return op.gradient_is.get(name)


def carries_gradient(graph: Graph, wrt: Sequence[Entry]) -> set[Entry]:
    """Entries through which a gradient flows to one of `wrt`."""
    wanted = set(wrt)
    for node in graph.nodes:
        op = node.op
        if op is None:
            continue
        makes = op.grad_op.output_names(node.attrs) if op.grad_op else ()
        for name, e in zip(node.input_names, node.inputs):
            passes = f"d_{name}" in makes or _gradient_is(op, name) is not None or node.forward is not None
            if e in wanted and passes:
                wanted.update(Entry(node, i) for i in range(node.num_outputs))
                break
    return wanted


def _ordered(graph: Graph, outputs: tuple[Entry, ...], made: list[Node]) -> tuple[Node, ...]:
    """Forward nodes, then backward nodes in the order they were made; variables where first used."""
    reachable = set(Graph(outputs, graph.effects).nodes)
    order: dict[Node, None] = {n: None for n in graph.nodes if n in reachable}
    for node in made:
        if node in reachable:
            for e in node.inputs:  # variables that only backward reads: head gradients
                order.setdefault(e.node)
            order.setdefault(node)
    for e in outputs:  # a gradient may be a head gradient itself, as of `a + b`
        order.setdefault(e.node)
    return tuple(order)
