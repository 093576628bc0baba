"""The devices of one program: which group of nodes is whose."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...core import BindError, Context, nearest
from ...graph import Graph, Node

GROUP = "__ctx_group__"
"""The annotation that names a node's group."""


@dataclass(frozen=True)
class Devices:
    """`contexts`, that of the program first, and the number of the device of each group.

    `arrays` are the devices of arguments and auxiliary states that lie somewhere already, by name.
    """

    contexts: tuple[Context, ...]
    groups: Mapping[str, int] = field(default_factory=dict)
    arrays: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls, context: Context, groups: Mapping[str, Context] | None, arrays: Mapping[str, Context]
    ) -> Devices:
        """Those of a `group2ctx`, with arrays that lie on one already. Raises BindError."""
        if groups is None:
            return cls((context,))
        if not isinstance(groups, Mapping):
            raise BindError(f"group2ctx must be a dict of groups and devices, got {groups!r}.")
        for name, device in groups.items():
            if not isinstance(device, Context):
                raise BindError(
                    f"group2ctx puts {name!r} on {device!r}, which is no device such as mx.cpu(1)."
                )
        contexts = tuple(dict.fromkeys((context, *groups.values())))
        if len(contexts) == 1:
            return cls(contexts)
        number = {device: i for i, device in enumerate(contexts)}
        for name, device in arrays.items():
            if device not in number:
                raise BindError(
                    f"{name!r} lies on {device}, which is none of the program's devices: "
                    f"{', '.join(map(str, contexts))}. as_in_context brings it to one of them."
                )
        lying = {name: number[device] for name, device in arrays.items() if device in number}
        return cls(contexts, {name: number[device] for name, device in groups.items()}, lying)

    @property
    def are_several(self) -> bool:
        """True if there is more than one."""
        return len(self.contexts) > 1

    def check_runnable(self) -> None:
        """Raise BindError if a program cannot run on these devices: it can on one, or on several CPUs."""
        for name, number in ((n, i) for n, i in self.groups.items() if i):
            devices = self.contexts[0], self.contexts[number]
            if any(c.device_type == "gpu" for c in devices):
                raise BindError(
                    f"group2ctx puts {name!r} on {devices[1]}, and the program is on {devices[0]}: it can "
                    f"run on one device, or on several CPUs such as cpu(0) and cpu(1). memory_plans tells "
                    f"what GPUs would need."
                )

    def of_group(self, node: Node) -> int | None:
        """The device of the group that a node is in, None if it is in none. Raises BindError."""
        name = node.annotations.get(GROUP)
        if name is None or not self.groups:
            return None
        if name not in self.groups:
            what = f"{node.op.op_name} {node.name!r}" if node.op else f"{node.name!r}"
            raise BindError(
                f"{what} is in the group {name!r}, for which group2ctx has no device; it has "
                f"{sorted(self.groups)}.{nearest(name, self.groups)}"
            )
        return self.groups[name]

    def of_nodes(self, graph: Graph) -> dict[Node, int]:
        """The device of each node of a user's graph, by MXNet's rule. O(inputs).

        A node is on its group's device; without a group it is where the first of its inputs is, a variable
        where its array is, or on the program's own device. What a node changes is on the node's device.
        Raises BindError.
        """
        at: dict[Node, int] = {}
        for node in graph.nodes:
            known = self.arrays.get(node.name) if node.op is None else None
            known = self.of_group(node) if known is None else known
            if known is None:
                known = at[node.inputs[0].node] if node.inputs else 0
            at[node] = known
        changed: dict[Node, Node] = {}
        for node in graph.nodes:
            for state in changed_by(node):
                other = changed.setdefault(state, node)
                if at[other] != at[node]:
                    here, there = self.contexts[at[node]], self.contexts[at[other]]
                    raise BindError(
                        f"{state.name!r} is changed by {other.name!r} on {there} and by {node.name!r} on "
                        f"{here}, but lies on one device. Give each a state of its own, or one group to both."
                    )
        return at | {state: at[node] for state, node in changed.items()}


def changed_by(node: Node) -> list[Node]:
    """The variables that a node changes."""
    if node.op is None:
        return []
    names: Any = {*node.op.mutated(node.attrs), *node.op.aux}
    return [e.node for name, e in zip(node.input_names, node.inputs) if name in names and e.node.op is None]
