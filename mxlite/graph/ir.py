"""The graph: immutable nodes joined by entries (one output of one node).

A graph is held by its outputs. Everything else is reached from them through `Node.inputs`, so
two graphs share the nodes they have in common and nothing is ever copied to extend one. No
function here recurses: a chain of 20,000 nodes is an ordinary graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TYPE_CHECKING

import numpy as np

from ..core.cached import cached_property

if TYPE_CHECKING:
    from .opdef import Op

Shape = tuple[int, ...]


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Node:
    """One call of an operator, or a variable when `op` is None.

    `attrs` are the operator's typed parameters; `given` is the text of those the user wrote, as it
    goes into a file. `annotations` are attributes *about* the node (`__lr_mult__`,
    `__mirror_stage__`, `__shape__`, ...); they are the one part a user may change afterwards.
    """

    op: type[Op] | None
    attrs: Any
    inputs: tuple[Entry, ...]
    name: str
    given: Mapping[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    forward: Node | None = None  # on a backward node: the node it differentiates
    absent: frozenset[str] = frozenset()  # inputs the operator knows and this call does without
    after: tuple[
        Entry, ...
    ] = ()  # entries that it waits for without reading them: see passes/remat/cheap_remat.py

    @property
    def output_names(self) -> tuple[str, ...]:
        """One name for each output, the hidden ones included."""
        return self.op.output_names(self.attrs) if self.op else ("out",)

    @property
    def num_outputs(self) -> int:
        """All outputs, the hidden ones included."""
        return len(self.op.output_names(self.attrs)) if self.op else 1

    @property
    def outputs(self) -> tuple[Entry, ...]:
        """Its outputs, the hidden ones included."""
        count = self.num_outputs
        return (Entry(self, 0),) if count == 1 else tuple([Entry(self, i) for i in range(count)])

    @property
    def num_visible_outputs(self) -> int:
        """Number of outputs that a user sees."""
        return self.op.num_visible_outputs(self.attrs) if self.op else 1

    @property
    def input_names(self) -> tuple[str, ...]:
        """One name for each of `inputs`."""
        if self.op is None:
            return ()
        names = self.op.input_names(self.attrs)
        return tuple(n for n in names if n not in self.absent) if self.absent else names

    @property
    def named_inputs(self) -> dict[str, Entry]:
        """`inputs` by their names."""
        return dict(zip(self.input_names, self.inputs))

    def __repr__(self) -> str:
        return f"<{self.op.op_name if self.op else 'variable'} {self.name!r}>"


class Entry(NamedTuple):
    """Output `index` of `node`: the thing that has a shape and owns memory."""

    node: Node
    index: int = 0  # type: ignore[assignment]  # hides tuple.index, which nobody needs of an entry


def output_name(entry: Entry) -> str:
    """The name of an entry in `list_outputs`: NODE_output, NODE_mean and the like; a variable's own name."""
    node = entry.node
    if node.op is None:
        return node.name
    if node.op.variadic_outputs and node.num_visible_outputs == 1:
        return f"{node.name}_output"
    name = node.output_names[entry.index]
    return f"{node.name}_{'output' if name == 'out' else name}"


def variable(name: str, **annotations: str) -> Entry:
    """A new free input of a graph."""
    return Entry(Node(None, None, (), name, annotations=annotations))


@dataclass(frozen=True)
class Graph:
    """Outputs plus what passes have learned about their entries.

    `effects` are nodes that are run for what they write (an optimizer update), not for an output.
    `order` is an execution order of all nodes, where a pass has a reason to prefer one.
    A pass takes a Graph and returns a new one (see `dataclasses.replace`); it never
    writes to the one it was given.
    """

    outputs: tuple[Entry, ...]
    effects: tuple[Node, ...] = ()
    order: tuple[Node, ...] | None = None
    shapes: dict[Entry, Shape] = field(default_factory=dict)
    dtypes: dict[Entry, np.dtype[Any]] = field(default_factory=dict)

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes, inputs before users; equal graphs give equal orders.

        Depth first from the outputs, inputs in order: the order of `list_arguments` and of
        the nodes in a saved file. A graph that has an `order` is walked in that.
        """
        if self.order is not None:
            return self.order
        order: dict[Node, None] = {}
        roots = [*(e.node for e in self.outputs), *self.effects]
        stack: list[tuple[Node, bool]] = [(n, False) for n in reversed(roots)]
        while stack:
            node, ready = stack.pop()
            if node in order:
                continue
            if ready:
                order[node] = None
            else:
                stack.append((node, True))
                stack += [(e.node, False) for e in reversed(node.inputs) if e.node not in order]
        return tuple(order)

    @cached_property
    def variables(self) -> tuple[Node, ...]:
        """The free inputs in order of first use, auxiliary states included."""
        return tuple(n for n in self.nodes if n.op is None)

    @cached_property
    def auxiliary(self) -> tuple[Node, ...]:
        """The variables that some operator uses as auxiliary state."""
        states = {
            e.node
            for n in self.nodes
            if n.op is not None and n.op.aux
            for name, e in zip(n.input_names, n.inputs)
            if name in n.op.aux
        }
        return tuple(n for n in self.variables if n in states)

    @cached_property
    def arguments(self) -> tuple[Node, ...]:
        """The variables that are not auxiliary states."""
        states = set(self.auxiliary)
        return tuple(n for n in self.variables if n not in states)

    def entries(self) -> Iterator[Entry]:
        """Every entry in the order of `nodes`."""
        return (e for n in self.nodes for e in n.outputs)

    def uses(self) -> dict[Entry, int]:
        """How often each entry is read by a node or asked for as an output."""
        count: dict[Entry, int] = {}
        for e in _reads(self):
            count[e] = count.get(e, 0) + 1
        return count

    def readers(self) -> dict[Entry, list[Node]]:
        """The nodes that read each entry, in the order of `nodes`, as often as they read it."""
        by_entry: dict[Entry, list[Node]] = {}
        for node in self.nodes:
            for e in node.inputs:
                by_entry.setdefault(e, []).append(node)
        return by_entry

    def nbytes(self, entry: Entry) -> int:
        """Bytes of an entry's array."""
        n = int(self.dtypes[entry].itemsize)
        for d in self.shapes[entry]:
            n *= d
        return n


def _reads(graph: Graph) -> Iterable[Entry]:
    for node in graph.nodes:
        yield from node.inputs
    yield from graph.outputs
