"""Mixed precision as a graph pass: a float32 network computes in 16 bits where that is harmless.

P. Micikevicius, S. Narang, J. Alben, G. Diamos, E. Elsen et al. 2018, "Mixed precision training". Variables
stay float32: a parameter is its own master copy, and its gradient reaches the optimizer as float32. What
changes is the part between them. A forward graph, with shapes and dtypes, gets a Cast wherever an operator is
to read another type than its input has; differentiation then casts the gradients back by itself.

    data ----- Cast --+                                     f32    float32
     f32              +-- Convolution -- BatchNorm -- relu -- ... -- FullyConnected -- Cast -- SoftmaxOutput
    weight --- Cast --+       16              16        16                 16           f32         f32
     f32                   gamma, beta ---+ f32

`Policy.precision` classifies an operator; `ops/precision.py` has the lists. `narrow` ones have their
floating inputs cast to 16 bits, `wide` ones get float32. The others follow their data: they compute in 16
bits if every **activation** that they read is 16-bit, otherwise in float32. Parameters and constants are no
activations: `x + bias` is of x's type and the bias is cast. Data and labels are, so that
`prediction - label` is float32.

Inputs that have no gradient are indices, labels, lengths or statistics: they keep their type, for a cast to
16 bits would round token 257 to 256. Entries that are not float32 in the graph given (float64, or 16-bit
types that the user chose) are left alone, and so is every operator that computes with one.

A variable may be **stored** in 16 bits: 16-bit operators then read it as it is, and others a float32 copy.

There is one cast for each (entry, dtype), right before its first user. Casts of variables are marked, since
the 16-bit copies of all weights take, for a large network and a small batch, more than the activations save:
a device may have them dropped after forward and recomputed before backward (`Backend.copies_again`).

**Loss scaling** (float16 cannot hold gradients below 6e-8) needs no knowledge of the loss. The 16-bit part of
the graph is an island: gradients are multiplied by the scale S on their way in and divided by it on their way
out, inside the casts at its shores (`Policy.shore`). A float32 input of an operator on the island, such as
batch norm's gamma, has a shore too, from float32 to float32. So every gradient in float32 is the true one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from ..core.dtype import float32, is_floating
from ..core.errors import DTypeError
from ..core.record import record
from .ir import Entry, Graph, Node, variable
from .opdef import DType, Op

LOSS_SCALE = "_loss_scale"
"""Variable of shape (2,), float32: the scale S of gradients on the island, and 1 / S."""


NARROW_COPY = "__narrow_copy__"
"""Marks a node that makes a 16-bit copy of a variable: the device keeps or recomputes the copy."""


@record
class Policy:
    """The choices that the pass follows.

    dtype: the 16-bit type.  precision, wide_inputs: the class of an operator, and the inputs that it takes in
    float32 beside 16-bit data; see `ops/precision.py`.  cast: the operator with `dtype`.  shore: (data, loss
    scale) -> data in `dtype`, for loss scaling; the gradient is divided by the scale if `enters`, else
    multiplied with it.
    """

    dtype: DType
    precision: Callable[[type[Op]], str]
    wide_inputs: Callable[[type[Op]], tuple[str, ...]]
    cast: type[Op]
    shore: type[Op] | None = None


@record
class _Made:
    """An entry of the new graph.

    `liked`: the type in which operators that follow their data read it. `island`: its gradient is scaled.
    `weak`: computed from parameters and constants alone, it has no influence on the types of others.
    """

    entry: Entry
    dtype: DType
    liked: DType
    island: bool = False
    weak: bool = False


def mixed_precision(
    graph: Graph, policy: Policy, data: Collection[str], stored: Collection[str] = ()
) -> Graph:
    """`graph`, with all shapes and dtypes, computed in `policy.dtype` where that is harmless; O(nodes).

    Variables and the types of the outputs stay, but for the float32 variables in `stored`, which become
    `policy.dtype`. `data` names the variables that are no parameters.
    """
    return _Pass(graph, policy, data, stored).run()


class _Pass:
    def __init__(self, graph: Graph, policy: Policy, data: Collection[str], stored: Collection[str]) -> None:
        self.graph, self.policy, self.data, self.stored = graph, policy, data, stored
        self.shapes, self.dtypes = dict(graph.shapes), dict(graph.dtypes)
        self.made: dict[Entry, _Made] = {}
        self.node: dict[Node, Node] = {}  # node of the old graph -> node of the new one
        self.island: set[Node] = set()  # operators of the new graph
        self.casts: dict[tuple[Entry, DType, bool], Entry] = {}
        self.order: list[Node] = []
        self.narrow_only = _narrow_only(graph, policy)
        self.scale: Entry | None = None
        if policy.shore is not None:
            self.scale = variable(LOSS_SCALE)
            self.shapes[self.scale], self.dtypes[self.scale] = (2,), float32
            self.order.append(self.scale.node)

    def run(self) -> Graph:
        for node in self.graph.nodes:
            if node.op is None:
                e = Entry(node)
                kind = self.graph.dtypes[e]
                if kind == float32 and node.name in self.stored:
                    kind = self.dtypes[e] = self.policy.dtype
                self.made[e] = _Made(e, kind, kind, weak=node.name not in self.data)
                self.node[node] = node
                self.order.append(node)
            elif node.forward is None:
                self._operator(node)
            else:
                self._gradient(node)
        outputs = tuple(self._fetch(e, self.graph.dtypes[e], False) for e in self.graph.outputs)
        return replace(
            self.graph,
            outputs=outputs,
            effects=tuple(self.node[n] for n in self.graph.effects),
            order=None if self.graph.order is None else tuple(self.order),
            shapes=self.shapes,
            dtypes=self.dtypes,
        )

    def _operator(self, node: Node) -> None:
        assert node.op is not None
        known = tuple(self.graph.dtypes[e] for e in node.inputs)
        outs = tuple(self.graph.dtypes[e] for e in node.outputs)
        types = self._narrow_types(node, known, outs)
        ins, outs = types or (known, outs)
        ins = self._unread_as_they_are(node, ins, outs)
        inputs = []
        for name, e, kind in zip(node.input_names, node.inputs, ins):
            island = types is not None if _has_gradient(node, name) else self.made[e].island
            inputs.append(self._fetch(e, kind, island))
        new = self._add(node, tuple(inputs))
        if types is not None:
            self.island.add(new)
        unread = node.op.shape_only_names(node.attrs)
        weak = all(self.made[e].weak for name, e in zip(node.input_names, node.inputs) if name not in unread)
        result = self.policy.precision(node.op) == "result"
        for i, kind in enumerate(outs):
            liked = self.policy.dtype if result and kind == float32 else kind
            self._learn(node, new, i, kind, liked, weak)

    def _gradient(self, node: Node) -> None:
        """Give a gradient node of the graph (Symbol.gradient) the types of the operator it belongs to."""
        old = node.forward
        assert old is not None
        new = self.node.get(old)
        if new is None:  # the forward node is not in the graph, as nobody reads it: so nothing was cast
            ins = [self.graph.dtypes[e] for e in node.inputs]
            outs = [self.graph.dtypes[e] for e in node.outputs]
        else:
            kinds = {n: self.dtypes[e] for n, e in zip(new.input_names, new.inputs)}
            kinds |= {n: self.dtypes[Entry(new, i)] for i, n in enumerate(new.output_names)}
            ins = [kinds[n.removeprefix("d_")] for n in node.input_names]
            outs = [kinds[n.removeprefix("d_")] for n in node.output_names]
        island = new in self.island
        inputs = tuple(self._fetch(e, kind, island) for e, kind in zip(node.inputs, ins))
        replacement = self._add(node, inputs, new or old)
        if island:
            self.island.add(replacement)
        for i, kind in enumerate(outs):
            self._learn(node, replacement, i, kind, kind)

    def _add(self, node: Node, inputs: tuple[Entry, ...], forward: Node | None = None) -> Node:
        new = node
        if inputs != node.inputs or forward is not node.forward:
            new = replace(node, inputs=inputs, forward=forward)
        self.node[node] = new
        self.order.append(new)
        return new

    def _learn(self, old: Node, new: Node, i: int, kind: DType, liked: DType, weak: bool = False) -> None:
        e = Entry(new, i)
        self.shapes[e], self.dtypes[e] = self.graph.shapes[Entry(old, i)], kind
        self.made[Entry(old, i)] = _Made(e, kind, liked, new in self.island, weak)

    def _narrow_types(
        self, node: Node, known: tuple[DType, ...], outs: tuple[DType, ...]
    ) -> tuple[tuple[DType, ...], tuple[DType, ...]] | None:
        """Types of inputs and outputs if `node` is to compute in 16 bits, else None."""
        op, attrs, small = node.op, node.attrs, self.policy.dtype
        assert op is not None
        kind = self.policy.precision(op)
        if kind == "users":
            kind = "data" if node in self.narrow_only else "wide"
        if kind in ("wide", "result"):
            return None
        numbers = [
            i
            for i, name in enumerate(node.input_names)
            if is_floating(known[i]) and (kind == "every" or _has_gradient(node, name))
        ]
        if not numbers or any(known[i] != float32 for i in numbers):
            return None
        if kind != "narrow":
            activations = [m for i in numbers if not (m := self.made[node.inputs[i]]).weak]
            if not activations or any(m.liked != small for m in activations):
                return None
        wide = self.policy.wide_inputs(op)
        asked = list(known)
        for i in numbers:
            if node.input_names[i] not in wide:
                asked[i] = small
        try:
            ins, results = op.infer_type(attrs, *asked)
        except DTypeError:
            return None  # an operator that knows no 16-bit types
        if tuple(ins) != tuple(asked) or any(
            new is None or (new != old and (old, new) != (float32, small)) for old, new in zip(outs, results)
        ):
            return None
        return tuple(asked), tuple(kind for kind in results if kind is not None)

    def _unread_as_they_are(
        self, node: Node, ins: tuple[DType, ...], outs: tuple[DType, ...]
    ) -> tuple[DType, ...]:
        """`ins` without casts of inputs that are read only for their shape, if that changes no result."""
        assert node.op is not None
        unread = node.op.shape_only_names(node.attrs)
        if not unread:
            return ins
        names, asked = node.input_names, list(ins)
        for i, e in enumerate(node.inputs):
            if names[i] in unread and not _has_gradient(node, names[i]):
                asked[i] = self.made[e].dtype
        try:
            inferred = node.op.infer_type(node.attrs, *asked)
        except DTypeError:
            return ins
        return tuple(asked) if inferred == (tuple(asked), outs) else ins

    def _fetch(self, old: Entry, kind: DType, island: bool) -> Entry:
        """`old` in the new graph, as `kind`, on the island or not."""
        have = self.made[old]
        crosses = self.scale is not None and island != have.island
        if have.dtype == kind and not crosses:
            return have.entry
        key = have.entry, kind, island
        if key not in self.casts:
            source = have.entry
            op, inputs, more = self.policy.cast, [source], {}
            if crosses:
                assert self.policy.shore is not None and self.scale is not None
                op, inputs, more = self.policy.shore, [source, self.scale], {"enters": island}
            node = Node(
                op,
                op.Attrs(dtype=str(kind), **more),
                tuple(inputs),
                f"{_entry_name(source)}_{kind}",
                annotations={} if source.node.op is not None else {NARROW_COPY: "True"},
            )
            self.order.append(node)
            self.casts[key] = Entry(node)
            self.shapes[Entry(node)], self.dtypes[Entry(node)] = self.shapes[source], kind
        return self.casts[key]


def _narrow_only(graph: Graph, policy: Policy) -> set[Node]:
    """Nodes whose results are all read in 16 bits, by `narrow` operators or through following ones."""
    seen: set[Entry] = set(graph.outputs)  # entries read in float32
    nodes: set[Node] = set()
    for node in reversed(graph.nodes):
        if node.op is None:
            continue
        if not any(e in seen for e in node.outputs):
            nodes.add(node)
        kind = policy.precision(node.op)
        follows = kind == "narrow" or (kind in ("data", "every", "users") and node in nodes)
        for name, e in zip(node.input_names, node.inputs):
            if node.forward is not None or not follows or not (kind == "every" or _has_gradient(node, name)):
                seen.add(e)
    return nodes


def _has_gradient(node: Node, name: str) -> bool:
    """True if the operator computes a gradient for its input `name`, and so treats it as a number."""
    op = node.op
    assert op is not None
    if name in op.gradient_is or (op.variadic and op.variadic in op.gradient_is):
        return True
    return op.grad_op is not None and f"d_{name}" in op.grad_op.output_names(node.attrs)


def _entry_name(entry: Entry) -> str:
    node = entry.node
    if node.num_outputs == 1 or node.num_visible_outputs == 1:
        return node.name
    return f"{node.name}_{node.output_names[entry.index]}"
