"""Lowering of a graph to calls: a kernel for each node, a number for each array.

After lowering every byte is known: shapes, dtypes, workspaces, in-place options.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..core.dtype import float32
from ..graph import Entry, Graph, Node, Shape, Shapes
from ..graph.mixed_precision import NARROW_COPY
from ..memplan import Device, Task, Value
from .base import Backend, ChosenKernel
from .call import flops_of
from .crews import Crews
from .tune.records import Records

Key = tuple[str, Any]
"""The name of storage outside the arena."""


@dataclass(frozen=True)
class Call:
    """A kernel call without its arrays.

    `inputs` and `outputs` have one value number for each name the operator knows, -1 if absent.
    `flops` is the operator's own count, `nbytes` that of all arrays that the call reads and writes, as
    often as it does. `forms` are kernels for the same call with fewer threads than `kernel`, by their number.
    `request` is what the kernel was chosen for, as the arguments of `Backend.choose`.
    """

    node: Node
    kernel: ChosenKernel
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    shapes: tuple[Shapes, Shapes]
    stream: int
    flops: float
    nbytes: int
    forms: Mapping[int, ChosenKernel] = field(default_factory=dict)
    request: tuple[Any, ...] = ()

    def with_threads(self, threads: int) -> ChosenKernel:
        """The kernel with so many threads, as recorded in a plan; see `memplan.Task`."""
        return self.forms.get(threads, self.kernel)

    def seconds(self, device: Device) -> float:
        """Modelled time on `device`: the kernel's own estimate, else that of flops and bytes."""
        if self.kernel.seconds is not None:
            return self.kernel.seconds(device)
        return device.seconds(self.flops, self.nbytes, self.kernel.precision, self.kernel.launches)


@dataclass(frozen=True)
class LoweredGraph:
    """A graph as calls. Value v is stored at `key[v]`, or in the arena if that is None.

    `streams` numbers the forward nodes that draw random numbers.
    """

    tasks: tuple[Task, ...]
    values: tuple[Value, ...]
    calls: tuple[Call, ...]
    shape: tuple[Shape, ...]
    dtype: tuple[np.dtype[Any], ...]
    key: tuple[Key | None, ...]
    streams: Mapping[Node, int]

    def in_order(self, order: Sequence[int]) -> LoweredGraph:
        """The same calls with `order[i]` as the i-th. Values and streams keep their numbers."""
        if all(t == i for i, t in enumerate(order)):
            return self
        return replace(
            self,
            tasks=tuple(self.tasks[t] for t in order),
            calls=tuple(self.calls[t] for t in order),
        )


def lower_graph(
    graph: Graph,
    storage: Mapping[Entry, Key],
    backend: Backend,
    streams: Mapping[Node, int] | None = None,
    train: bool = True,
    device: Device | None = None,
    num_forward: int = 0,
    records: Records | None = None,
) -> LoweredGraph:
    """Choose kernels and number everything. O(nodes).

    `storage` maps entries to their storage; a variable without an entry there is ("var", its name).
    `streams` are numbers that nodes have already; `train`: True for a step of training.
    `device` is the one that the tasks' seconds are modelled for, by the backend's rates if None. The first
    `num_forward` operator nodes are the forward pass: a plan may move updates that read none of its results.
    `records` say which schedules kernels have.
    """
    device = device or backend.rates
    number: dict[Entry, int] = {}
    values: list[Value] = []
    shape: list[Shape] = []
    dtype: list[np.dtype[Any]] = []
    key: list[Key | None] = []

    def add(entry: Entry, name: str, where: Key | None) -> int:
        number[entry] = len(values)
        values.append(Value(name, graph.nbytes(entry), fixed=where is not None))
        shape.append(graph.shapes[entry])
        dtype.append(graph.dtypes[entry])
        key.append(where)
        return number[entry]

    # Equal nodes get one kernel; nothing else that a choice depends on changes meanwhile.
    crews = Crews(backend, records)
    read = {e for n in graph.nodes for e in n.inputs}
    tasks: list[Task] = []
    calls: list[Call] = []
    numbers = dict(streams or {})
    of_forward: set[int] = set()  # arena values that the forward pass writes
    for node in graph.nodes:
        if node.op is None:
            add(Entry(node), node.name, storage.get(Entry(node), ("var", node.name)))
            continue
        outs = []
        names = node.output_names
        for i, out_name in enumerate(names):
            entry = Entry(node, i)
            where_made = storage.get(entry)
            if where_made is None and entry not in read:
                outs.append(-1)
                continue
            name = node.name if len(names) == 1 else f"{node.name}.{out_name}"
            outs.append(add(entry, name, where_made))
            if where_made is None and len(tasks) < num_forward:
                of_forward.add(outs[-1])
        ins = dict(zip(node.input_names, (number[e] for e in node.inputs)))
        op = node.op
        forward = node.forward or node
        assert forward.op is not None
        if forward.op.has_stream(node.attrs):
            numbers.setdefault(forward, len(numbers))
        shapes = _shapes(graph, forward)
        dtypes = tuple(graph.dtypes[e] for e in forward.inputs)
        first = dtypes[0] if dtypes else next((dtype[v] for v in ins.values()), float32)
        wanted = [n for n, o in zip(names, outs) if o >= 0]
        flops = flops_of(op, node.attrs, shapes, wanted)
        request = (op, node.attrs, shapes[0], shapes[1], first, dtypes, frozenset((*ins, *wanted)), train)
        crew = crews.of(
            request,
            flops,
            sum(values[v].nbytes for v in (*ins.values(), *outs) if v >= 0),
        )
        kernel = crew.kernel
        twice = [ins[n] for n in kernel.twice if n in ins]
        call = Call(
            node,
            kernel,
            tuple(ins.get(n, -1) for n in op.input_names(node.attrs)),
            tuple(outs),
            shapes,
            numbers.get(forward, -1),
            flops,
            sum(values[v].nbytes for v in (*ins.values(), *outs, *twice) if v >= 0),
            crew.fewer,
            request,
        )
        calls.append(call)
        mutated = op.mutated(node.attrs)
        arrays = {n: values[v] for n, v in (*ins.items(), *zip(names, outs)) if v >= 0}
        is_update = bool(mutated) and not names and of_forward.isdisjoint(ins.values())
        tasks.append(
            Task(
                name=node.name,
                op=op.op_name,
                inputs=(*ins.values(), *(number[e] for e in node.after)),
                outputs=tuple(outs),
                in_place=_in_place(call, ins, outs, dtype),
                mutates=tuple(ins[m] for m in mutated if m in ins),
                workspace=kernel.workspace if "work" in kernel.signature.services else 0,
                seconds=call.seconds(device),
                recomputable=op.recomputable,
                cheap=op.cheap,
                update=is_update,
                mirror=node.forward is None and _is_mirrored(node, backend),
                stage=node.forward is None and _is_stage(node.annotations.get("__mirror_stage__")),
                kernel=kernel.name,
                always=tuple(o for n, o in zip(names, outs) if o >= 0 and n in kernel.always),
                threads=crew.threads if crew.threads != crews.most else 0,
                forms=crew.forms if "work" in kernel.signature.services else (),
                exchanges=sum(arrays[n].nbytes for n in op.exchanged(node.attrs)),
                phases=op.phases,
            )
        )
    return LoweredGraph(
        tuple(tasks), tuple(values), tuple(calls), tuple(shape), tuple(dtype), tuple(key), numbers
    )


def _is_mirrored(node: Node, backend: Backend) -> bool:
    """True if no plan holds the node's results: marked by the user, or a copy cheap to recompute."""
    if backend.copies_again and NARROW_COPY in node.annotations:
        return True
    return _is_true(node.annotations.get("__force_mirroring__"))


def _shapes(graph: Graph, forward: Node) -> tuple[Shapes, Shapes]:
    """Input and output shapes of a forward call."""
    return (
        tuple(graph.shapes[e] for e in forward.inputs),
        tuple(graph.shapes[e] for e in forward.outputs),
    )


def _in_place(
    call: Call, ins: Mapping[str, int], outs: list[int], dtype: list[np.dtype[Any]]
) -> tuple[tuple[int, int], ...]:
    pairs = []
    node, op = call.node, call.node.op
    assert op is not None
    made = dict(zip(node.output_names, outs))
    for out_name, donors in call.kernel.in_place_options(op, node.attrs).items():
        out = made.get(out_name, -1)
        for donor in donors:
            names = [n for n in ins if n.startswith("arg")] if donor == op.variadic and donor else [donor]
            for name in names:
                v = ins.get(name, -1)
                if out >= 0 and v >= 0 and dtype[out] == dtype[v]:
                    pairs.append((out, v))
    return tuple(pairs)


def _is_stage(text: str | None) -> bool:
    """Marks are "True", or numbers: memonger's recurrent example numbers its time steps from 0."""
    return text is not None and text.strip().lower() != "false"


def _is_true(text: str | None) -> bool:
    return text is not None and text.strip().lower() in ("true", "1")
