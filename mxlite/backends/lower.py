"""Lowering of a graph to calls: a kernel for each node, a number for each array.

After lowering every byte is known: shapes, dtypes, workspaces, in-place options.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..core.dtype import float32
from ..graph import Entry, Graph, Node, Shape, Shapes
from ..graph.mixed_precision import NARROW_COPY
from ..memplan import Device, Task, Value
from .base import Backend, ChosenKernel
from .call import flops_of
from .crews import Crew, Crews
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
    kinds: dict[Any, _CallKind] = {}
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
        inputs = [number[e] for e in node.inputs]
        op, forward = node.op, node.forward or node
        shapes = _shapes(graph, forward)
        dtypes = tuple([graph.dtypes[e] for e in forward.inputs])
        wanted = tuple([n for n, o in zip(names, outs) if o >= 0])
        # By their text attributes of 0.0 and -0.0 differ, which are equal.
        alike = op, repr(node.attrs), node.attrs, shapes, dtypes, node.absent, len(inputs), wanted
        kind = kinds.get(alike)
        if kind is None:
            first = dtypes[0] if dtypes else next((dtype[v] for v in inputs), float32)
            arrays = dict(zip((*node.input_names, *wanted), (*inputs, *(v for v in outs if v >= 0))))
            nbytes = {n: values[v].nbytes for n, v in arrays.items()}
            of = {n: dtype[v] for n, v in arrays.items()}
            kind = kinds[alike] = _kind(node, shapes, dtypes, first, wanted, nbytes, of, train, crews)
        if kind.has_stream:
            numbers.setdefault(forward, len(numbers))
        ins = dict(zip(kind.names, inputs))
        crew, kernel = kind.crew, kind.crew.kernel
        call = Call(
            node,
            kernel,
            tuple([ins.get(n, -1) for n in kind.all_names]),
            tuple(outs),
            shapes,
            numbers.get(forward, -1),
            kind.flops,
            kind.nbytes,
            crew.fewer,
            kind.request,
        )
        calls.append(call)
        tasks.append(
            Task(
                name=node.name,
                op=op.op_name,
                inputs=(*inputs, *[number[e] for e in node.after]),
                outputs=call.outputs,
                in_place=tuple([(outs[i], ins[n]) for i, n in kind.in_place]),
                mutates=tuple([ins[m] for m in kind.mutated]),
                workspace=kind.workspace,
                seconds=call.seconds(device),
                recomputable=op.recomputable,
                cheap=op.cheap,
                update=kind.changes_alone and of_forward.isdisjoint(inputs),
                mirror=node.forward is None and _is_mirrored(node, backend),
                stage=node.forward is None and _is_stage(node.annotations.get("__mirror_stage__")),
                kernel=kernel.name,
                always=tuple([o for n, o in zip(names, outs) if o >= 0 and n in kernel.always]),
                threads=crew.threads if crew.threads != crews.most else 0,
                forms=kind.forms,
                exchanges=kind.exchanges,
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
    of = graph.shapes
    return tuple([of[e] for e in forward.inputs]), tuple([of[e] for e in forward.outputs])


@dataclass(frozen=True, slots=True)
class _CallKind:
    """The facts that calls share which are equal but for their arrays.

    `request` is that of `Backend.choose`; `names` are those of a node's inputs, `all_names` those that the
    operator knows; `in_place` are pairs of an output's index and the name of an input that it may overwrite.
    """

    request: tuple[Any, ...]
    crew: Crew
    names: tuple[str, ...]
    all_names: tuple[str, ...]
    in_place: tuple[tuple[int, str], ...]
    mutated: tuple[str, ...]
    flops: float
    nbytes: int
    workspace: int
    forms: tuple[tuple[int, int], ...]
    exchanges: int
    has_stream: bool
    changes_alone: bool  # it changes an input and makes nothing


def _kind(
    node: Node,
    shapes: tuple[Shapes, Shapes],
    dtypes: tuple[np.dtype[Any], ...],
    first: np.dtype[Any],
    wanted: tuple[str, ...],
    nbytes: Mapping[str, int],
    of: Mapping[str, np.dtype[Any]],
    train: bool,
    crews: Crews,
) -> _CallKind:
    """The kind of a node's call, whose arrays have these bytes and types."""
    op, a, names = node.op, node.attrs, node.input_names
    forward = node.forward or node
    assert op is not None and forward.op is not None
    flops = flops_of(op, a, shapes, wanted)
    total = sum(nbytes[n] for n in (*names, *wanted))
    request = op, a, *shapes, first, dtypes, frozenset((*names, *wanted)), train
    crew = crews.of(request, flops, total)
    kernel = crew.kernel
    has_work = "work" in kernel.signature.services
    mutated = op.mutated(a)
    return _CallKind(
        request,
        crew,
        names,
        op.input_names(a),
        tuple(_in_place(kernel, node, names, wanted, of)),
        tuple(m for m in mutated if m in names),
        flops,
        total + sum(nbytes[n] for n in kernel.twice if n in names),
        kernel.workspace if has_work else 0,
        crew.forms if has_work else (),
        sum(nbytes[n] for n in op.exchanged(a)),
        forward.op.has_stream(a),
        bool(mutated) and not node.output_names,
    )


def _in_place(
    kernel: ChosenKernel,
    node: Node,
    names: Sequence[str],
    wanted: Sequence[str],
    of: Mapping[str, np.dtype[Any]],
) -> Iterator[tuple[int, str]]:
    """Indices of outputs, each with the name of an input that it may overwrite."""
    op = node.op
    assert op is not None
    index = {n: i for i, n in enumerate(node.output_names)}
    for made, donors in kernel.in_place_options(op, node.attrs).items():
        if made not in wanted:
            continue
        for donor in donors:
            every = [n for n in names if n.startswith("arg")] if donor == op.variadic and donor else [donor]
            yield from ((index[made], n) for n in every if n in names and of[made] == of[n])


def _is_stage(text: str | None) -> bool:
    """Marks are "True", or numbers: memonger's recurrent example numbers its time steps from 0."""
    return text is not None and text.strip().lower() != "false"


def _is_true(text: str | None) -> bool:
    return text is not None and text.strip().lower() in ("true", "1")
