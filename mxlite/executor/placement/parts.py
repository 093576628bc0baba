"""The parts of a step that several devices run: what each computes, stores, sends and receives.

    the step     a    b    copy(b)    c    d         b is on device 0, c on device 1
                           /      \\
    device 0     a    b   send     \\                 d
    device 1                     receive    c

All parts are cut from one order of the step, so the transfers of a device are numbered in the order in which
it has them, and each is placed where the first of its readers is. Variables that only backward reads, such as
the rates of updates, come at its beginning: an update may then run as soon as its gradient is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ...graph import Entry, NoAttrs, Node, Rewriter
from ...ops import find_op
from ..plan.lower import drawing
from ..plan.step import Copied, Key, PlannedStep
from .devices import changed_by, Devices
from .transfer import Receive, Send, TOKEN, Transfer


def parts_of(step: PlannedStep, devices: Devices, variables: Mapping[str, int]) -> tuple[PlannedStep, ...]:
    """What each device runs of `step`; `variables` are the devices of the user's. O(devices * nodes).

    A part says of the whole step what its arrays do not tell: the parameters that are updated, the head
    gradients. Its random numbers are those of the whole step.
    """
    at = _places(step, variables)
    numbers = {node: i for i, node in enumerate(drawing(step.graph))}
    parts = [_DeviceStep(Rewriter(step.graph), str(context)) for context in devices.contexts]
    cut = _Cut(step, at, parts)
    for node in step.graph.nodes:
        if cut.seen == step.num_forward and node.op is not None:
            cut.end_forward()
        cut.take(node)
    cut.end_forward()
    place = {("grad", name): d for name, d in variables.items()}  # also where there is none
    place |= {("var", name): d for name, d in variables.items()}
    place |= {("var", n.name): at[n] for n in step.graph.variables}
    place |= {key: at[e.node] for e, key in step.storage.items()}
    return tuple(part.step(step, d, at, place, numbers) for d, part in enumerate(parts))


def _places(step: PlannedStep, variables: Mapping[str, int]) -> dict[Node, int]:
    """The device of each node of a step whose forward graph has copies."""
    at: dict[Node, int] = {}
    copy = find_op("_cross_device_copy")
    rest: list[Node] = []
    for node in step.graph.nodes:
        stored = step.storage.get(Entry(node), ("var", node.name))
        known: int | None = None
        if node.op is None:
            name = str(stored[1])
            owner = name.rpartition(":")[0] if step.category.get(stored) == "optimizer" else name
            known = variables.get(owner, variables.get(name))
            if known is None and name not in step.head_names:
                known = 0
        elif node.op is copy:
            known = node.attrs.target
        elif node.forward is not None:
            known = at.get(node.forward)
        else:
            sources = (*changed_by(node), *(e.node for e in node.inputs))
            known = next((at[n] for n in sources if n in at), None)
            if known is None and stored[0] == "grad":
                known = variables[stored[1]]
        if known is None:
            rest.append(node)
        else:
            at[node] = known
    for node in reversed(step.graph.nodes) if rest else ():
        there = node.attrs.source if node.op is copy else at.setdefault(node, 0)
        for e in node.inputs:
            at.setdefault(e.node, there)
    return at


@dataclass
class _DeviceStep:
    """One device's part as it grows; `token` is that of its last transfer."""

    made: Rewriter
    context: str
    token: Entry | None = None
    num_forward: int = 0
    arrived: dict[Entry, Entry] = field(default_factory=dict)  # what is here of other devices' entries
    storage: dict[Entry, Key] = field(default_factory=dict)
    sends: list[Node] = field(default_factory=list)
    tokens: list[Entry] = field(default_factory=list)

    def end(self, op: type[Transfer], number: int, e: Entry, inputs: tuple[Entry, ...], name: str) -> Node:
        """Add one end of a transfer of `e`, behind the one before."""
        shape, dtype = self.made.shapes[e], self.made.dtypes[e]
        attrs = op.Attrs(number, self.token is None, shape, dtype.name)
        before = () if self.token is None else (self.token,)
        node = self.made.add(op, attrs, (*inputs, *before), name)
        self.token = Entry(node, node.num_outputs - 1)
        self.tokens.append(self.token)
        return node

    def step(
        self,
        whole: PlannedStep,
        device: int,
        at: Mapping[Node, int],
        place: Mapping[Key, int],
        numbers: Mapping[Node, int],
    ) -> PlannedStep:
        """The finished part of `whole`; `place` has the devices of its storage, `numbers` its streams."""
        made, graph = self.made, whole.graph
        owned = {key: kind for key, kind in whole.owned.items() if place.get(key, 0) == device}
        category = {key: whole.category[key] for key in owned}
        for number, token in enumerate(self.tokens):
            self.storage[token] = ("token", (device, number))
            owned[self.storage[token]], category[self.storage[token]] = TOKEN, "staging"
        part = replace(
            graph,
            outputs=made.all_of([e for e in graph.outputs if at[e.node] == device]),
            effects=(*(made.node_of.get(n, n) for n in graph.effects if at[n] == device), *self.sends),
            order=tuple(made.order),
            shapes=made.shapes,
            dtypes=made.dtypes,
        )
        drawn = dict.fromkeys(
            numbers[f] for n in graph.nodes if at[n] == device and (f := n.forward or n) in numbers
        )
        return replace(
            whole,
            graph=part,
            num_forward=self.num_forward,
            storage=self.storage,
            owned=owned,
            category=category,
            streams=tuple(drawn),
        )


class _Cut:
    """The walk over a step that gives each node to its device's part; `seen` operators have been given."""

    def __init__(self, step: PlannedStep, at: Mapping[Node, int], parts: list[_DeviceStep]) -> None:
        self.copy = find_op("_cross_device_copy")
        self.step = step
        self.at = at
        self.parts = parts
        self.seen = 0
        self.taken: set[Node] = set()
        self.transfers = 0
        self.is_forward = True
        operators = [n for n in step.graph.nodes if n.op is not None]
        self.later = [n for n in operators[step.num_forward :] if n.op is not self.copy]

    def end_forward(self) -> None:
        """What comes now is no longer of the forward pass."""
        if not self.is_forward:
            return
        self.is_forward = False
        for part in self.parts:
            part.num_forward = sum(n.op is not None for n in part.made.order)
        for node in self.later:
            for e in node.inputs:
                variable = self._source(e).node
                if variable.op is None and self.at[variable] != self.at[node]:
                    self.take(variable)
                    self._here(e, self.at[node])

    def take(self, node: Node) -> None:
        """Give the next node to its part, behind what that has to receive for it."""
        if node in self.taken:  # a variable that was sent before its turn
            return
        self.taken.add(node)
        self.seen += node.op is not None
        device, part = self.at[node], self.parts[self.at[node]]
        if node.op is self.copy:
            if Entry(node) in self.step.storage:
                self._store(node, device)
            return
        inputs = tuple(self._here(e, device) for e in node.inputs)
        forward = node.forward and part.made.node_of.get(node.forward, node.forward)
        after = tuple(self._here(e, device) for e in node.after)
        if (inputs, forward, after) == (node.inputs, node.forward, node.after):
            part.made.order.append(node)
        else:
            part.made.replace(node, replace(node, inputs=inputs, forward=forward, after=after))
        for e in node.outputs:
            if e in self.step.storage:
                part.storage[part.made.of(e)] = self.step.storage[e]

    def _source(self, e: Entry) -> Entry:
        """What an entry is a copy of."""
        while e.node.op is self.copy:
            e = e.node.inputs[0]
        return e

    def _here(self, e: Entry, device: int) -> Entry:
        """The entry of a device's part that stands for `e`, received now if it was not there."""
        part = self.parts[device]
        if e in part.arrived:  # a copy that is stored
            return part.arrived[e]
        source = self._source(e)
        if self.at[source.node] == device:
            return part.made.of(source)
        if source not in part.arrived:
            part.arrived[source] = self._moved(source, device)
        return part.arrived[source]

    def _store(self, node: Node, device: int) -> None:
        """A copy that somebody sees: it arrives where it is stored."""
        part, e = self.parts[device], self._source(Entry(node))
        if self.at[e.node] == device or e in part.arrived:
            here = part.arrived.get(e, part.made.of(e))
            made = Entry(part.made.add(Copied, NoAttrs(), (here,), node.name))
        else:
            made = self._moved(e, device)
        part.made.put(Entry(node), made)
        part.arrived[Entry(node)] = made
        part.arrived.setdefault(e, made)
        part.storage[made] = self.step.storage[Entry(node)]

    def _moved(self, e: Entry, device: int) -> Entry:
        """A transfer of an entry of another device, and what `device` receives."""
        number, self.transfers = self.transfers, self.transfers + 1
        here, there = self.parts[device], self.parts[self.at[e.node]]
        sent = there.end(Send, number, e, (there.made.of(e),), f"{e.node.name}_to_{here.context}")
        there.sends.append(sent)
        return Entry(here.end(Receive, number, e, (), f"{e.node.name}_from_{there.context}"))
