"""Reference evaluation of a graph, call by call, with separate arrays: no plan, no reuse of bytes.

It is the oracle for plans, passes and tuned kernels. Operators of a backend (fused
ones, packed weights) run their reference kernels here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from zlib import crc32

import numpy as np

from ...graph import Entry, Graph, Node
from ...ops.random.philox import RandomStream
from ..base import Backend
from ..call import bind_call
from ..control_flow.control import control_kernel
from ..lower import lower_graph

REFERENCE = Backend("reference", np, control=control_kernel)
SEED = 7
MORE = 1 << 17
"""Additional bytes of scratch: for an update with a 16-bit gradient, which passes create only for tuned
kernels, the reference kernel casts the gradient to float32 a chunk at a time."""
Array = np.ndarray


def evaluated(
    graph: Graph, variables: Mapping[str, Array], wanted: Collection[Entry], train: bool
) -> dict[Entry, Array]:
    """The arrays of `wanted`, and the final values of all variables. O(the graph's work).

    `variables` are by name and stay unchanged: a graph that writes its own writes copies. A node that draws
    does so by its name, so that equivalent graphs draw the same numbers.
    """
    storage = {e: ("wanted", i) for i, e in enumerate(wanted) if e.node.op is not None}
    found = lower_graph(graph, storage, REFERENCE, _streams(graph), train)
    number: dict[Entry, int] = {}
    arrays: list[Array | None] = [None] * len(found.values)
    last = {v: t for t, task in enumerate(found.tasks) for v in task.inputs}
    calls = iter(enumerate(found.calls))
    own: dict[Node, dict[str, object]] = {}
    state = np.array([SEED, 1], "uint64")
    at = 0  # values are numbered in the order of nodes
    for node in graph.nodes:
        if node.op is None:
            value = variables[node.name]
            number[Entry(node)] = at
            arrays[at] = REFERENCE.array(value.shape, value.dtype)
            arrays[at][...] = value  # type: ignore[index]
            at += 1
            continue
        t, call = next(calls)
        for i, v in enumerate(call.outputs):
            if v >= 0:
                number[Entry(node, i)] = v
                arrays[v] = _unwritten(found.shape[v], found.dtype[v])
                at += 1
        bind_call(
            call.kernel,
            np,
            node.op,
            node.attrs,
            [arrays[v] if v >= 0 else None for v in call.inputs],
            [arrays[v] if v >= 0 else None for v in call.outputs],
            work=REFERENCE.empty(found.tasks[t].workspace + MORE),
            rng=RandomStream(state, call.stream) if call.stream >= 0 else None,
            train=train,
            shapes=call.shapes,
            state=own.setdefault(node.forward or node, node.op.lone_state(node.attrs)),
        )()
        for v in found.tasks[t].inputs:
            if last[v] == t and found.key[v] is None:
                arrays[v] = None
    kept = (*wanted, *(Entry(n) for n in graph.variables))
    return {e: a for e in kept if (a := arrays[number[e]]) is not None}


def _unwritten(shape: tuple[int, ...], dtype: np.dtype) -> Array:
    """An array in which missing writes show: it is filled with NaN, or the largest bytes."""
    made: Array = REFERENCE.array(shape, dtype)
    made.reshape(-1).view(np.uint8).fill(0xFF)
    return made


def _streams(graph: Graph) -> dict[Node, int]:
    """Random streams of the nodes that draw, by their names and the number of earlier nodes of that name."""
    count: dict[str, int] = {}
    streams: dict[Node, int] = {}
    for node in graph.nodes:
        forward = node.forward or node
        if forward.op is None or forward in streams or not forward.op.has_stream(forward.attrs):
            continue
        count[forward.name] = count.get(forward.name, -1) + 1
        streams[forward] = crc32(f"{forward.name} {count[forward.name]}".encode())
    return streams
