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
  each sum directly after its second term. Depth-first order from the gradients would instead finish one
  parameter at a time and keep everything else waiting.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..core.errors import DerivativeError, MXLiteError
from .derivative import FindOp, Writer
from .ir import Entry, Graph, Node
from .opdef import Op


class OnesLike(Op):
    """``out = 1``, in the shape and type of `data`: where differentiation starts."""

    op_name = "_ones_like"
    inputs = ("data",)
    same_shape = True
    shape_only = ("data",)
    in_place = {"out": "data"}
    cheap = True
    elementwise = True

    @staticmethod
    def compute(w: Any, a: Any, data: Any) -> Mapping[str, Any]:
        return {"out": w.number(1.0)}

    @staticmethod
    def forward(xp, a, data, *, out):  # type: ignore[no-untyped-def]
        out[...] = 1


class GradAdd(Op):
    """Sum of two gradients that meet at one entry, ``out = lhs + rhs``."""

    op_name = "_grad_add"
    inputs = ("lhs", "rhs")
    same_shape = True
    in_place = {"out": ("lhs", "rhs")}
    gradient_is = {"lhs": "d_out", "rhs": "d_out"}
    cheap = True
    elementwise = True

    @staticmethod
    def compute(w: Any, a: Any, lhs: Any, rhs: Any) -> Mapping[str, Any]:
        return {"out": lhs + rhs}

    @staticmethod
    def forward(xp, a, lhs, rhs, *, out):  # type: ignore[no-untyped-def]
        xp.add(lhs, rhs, out=out)


def gradient(graph: Graph, wrt: Sequence[Entry]) -> Graph:
    """A graph whose outputs are those of `graph`, then d(sum of them)/d(wrt), one for each of `wrt`.

    Losses define their own gradient; every other output starts with ones.
    Raises MXLiteError for an entry on which no output depends.
    """
    ones = {
        i: Entry(Node(OnesLike, OnesLike.Attrs(), (e,), f"{e.node.name}_ones"))
        for i, e in enumerate(graph.outputs)
        if needs_head_gradient(e.node)
    }
    result, grads = backward(graph, wrt, ones)
    if missing := [x.node.name for x, g in zip(wrt, grads) if g is None]:
        raise MXLiteError(f"The outputs do not depend on {missing}; they have no gradient.")
    return replace(result, outputs=(*graph.outputs, *(g for g in grads if g is not None)))


def needs_head_gradient(node: Node) -> bool:
    """True if backward from this output must be given a head gradient, which losses do not need."""
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
    find_op: FindOp | None = None,
) -> tuple[Graph, list[Entry | None]]:
    """The training graph of `graph` and the gradient of each of `wrt`, None where there is none.

    `head_gradients` maps the index of an output to the entry that holds its gradient; an output that is
    not in it starts no gradient unless it is a loss, and among the first `starts` outputs (None: all). The
    returned graph has the outputs of `graph` and then the gradients that exist, and an explicit `order`:
    forward nodes, then backward nodes as made.

    With `again` (names to operators) the gradients can be differentiated themselves: they are written with
    operators (`Op.derivative`) if an operator has such a rule. An operator without one gets its usual
    gradient node, and differentiating through that one raises DerivativeError. `find_op` is needed for
    operators that have only such a rule, and no gradient node.
    """
    wanted = carries_gradient(graph, wrt)
    walk = _ReversePass(wanted, again, find_op)
    for i, e in enumerate(graph.outputs):
        if i in head_gradients and e in wanted:
            walk.begin(e, head_gradients[i])
    heads = {e.node for e in graph.outputs[:starts]}
    for node in reversed(graph.nodes):
        if node.op is not None and any(e in wanted for e in node.inputs):
            walk.visit(node, node in heads)
    grads = [walk.parts.get(x) for x in wrt]
    outputs = (*graph.outputs, *(g for g in grads if g is not None))
    order = _ordered(graph, outputs, walk.made)
    return replace(graph, outputs=outputs, order=order), grads


class _ReversePass:
    """One reverse pass over the nodes: the gradient accumulated so far at each entry, `parts`, and the nodes
    created for it, `made`. `wanted` are the entries that gradients may flow to."""

    def __init__(self, wanted: Container[Entry], again: FindOp | None, find_op: FindOp | None) -> None:
        self.wanted = wanted
        self.again = again
        self.find_op = find_op
        self.parts: dict[Entry, Entry] = {}
        self.made: list[Node] = []

    def begin(self, at: Entry, head: Entry) -> None:
        """Start from the given gradient of an output."""
        if head.node.op is not None and head.node not in self.made:
            self.made.append(head.node)
        self.arrive(at, head)

    def arrive(self, at: Entry, term: Entry) -> None:
        """Accumulate one more term of a gradient, or hand it on at once where the operator says so."""
        op, find_op = at.node.op, self.again or self.find_op
        if op is not None and op.relays and find_op is not None:
            self.write(at.node, {f"d_{at.node.output_names[at.index]}": term}, find_op)
            return
        if at not in self.parts:
            self.parts[at] = term
            return
        name = f"{at.node.name}_grad_sum"
        self.made.append(Node(GradAdd, GradAdd.Attrs(), (self.parts[at], term), name))
        self.parts[at] = Entry(self.made[-1])

    def visit(self, node: Node, is_head: bool) -> None:
        """Send the gradients of a node's outputs on to its inputs. A loss that is a head starts by itself."""
        op = node.op
        assert op is not None
        names = node.output_names
        arrived = {f"d_{y}": self.parts.get(Entry(node, i)) for i, y in enumerate(names)}
        has_gradient = any(e is not None for e in arrived.values())
        if not has_gradient and not (op.is_loss and is_head and not needs_head_gradient(node)):
            return
        for name, x in zip(node.input_names, node.inputs):
            key = _gradient_is(op, name)
            same = arrived.get(key) if key is not None else None
            if same is not None and x in self.wanted:
                self.arrive(x, same)
        if self.again is not None and op.derivative is not None:
            self.write(node, arrived, self.again)
        elif node.forward is not None:
            raise DerivativeError(
                f"The gradient of {node.forward.op.op_name} {node.forward.name!r} cannot be differentiated "  # type: ignore[union-attr]
                f"again: docs/operators.md lists the operators whose gradients can."
            )
        elif op.grad_op is not None:
            self.call(node, arrived, op.grad_op)
        elif op.derivative is not None and self.find_op is not None:
            self.write(node, arrived, self.find_op)

    def write(self, node: Node, arrived: Mapping[str, Entry | None], again: FindOp) -> None:
        """Write the gradients with operators, as `Op.derivative` says."""
        op, names, ins = node.op, node.output_names, node.input_names
        assert op is not None and op.derivative is not None
        heads = {y: g for y in names if (g := arrived.get(f"d_{y}")) is not None}
        outs = {y: Entry(node, i) for i, y in enumerate(names)}
        writer = Writer(again, node.name)
        gradients = op.derivative(writer, node.attrs, dict(zip(ins, node.inputs)), outs, heads)
        self.made += writer.made
        for name, x in zip(ins, node.inputs):
            if name in gradients and x in self.wanted:
                self.arrive(x, gradients[name])

    def call(self, node: Node, arrived: Mapping[str, Entry | None], grad_op: type[Op]) -> None:
        """Compute the gradients by a call of the gradient operator, which is given no more than it reads."""
        ins = node.input_names
        makes = grad_op.output_names(node.attrs)
        if not any(f"d_{n}" in makes and x in self.wanted for n, x in zip(ins, node.inputs)):
            return
        have: dict[str, Entry | None] = dict(zip(ins, node.inputs))
        have |= {y: Entry(node, i) for i, y in enumerate(node.output_names)}
        have |= arrived
        needs = grad_op.input_names(node.attrs)
        back = Node(
            grad_op,
            node.attrs,
            tuple(need for n in needs if (need := have.get(n)) is not None),
            f"{node.name}_backward",
            annotations=node.annotations,
            forward=node,
            absent=frozenset(n for n in needs if have.get(n) is None),
        )
        self.made.append(back)
        for name, x in zip(ins, node.inputs):
            if f"d_{name}" in makes and x in self.wanted:
                self.arrive(x, Entry(back, makes.index(f"d_{name}")))


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
        written = op.derivative is not None and op.grad_op is None
        for name, e in zip(node.input_names, node.inputs):
            passes = f"d_{name}" in makes or _gradient_is(op, name) is not None or node.forward is not None
            if e in wanted and (passes or written):
                wanted.update(node.outputs)
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
