"""Regions of tiles as tests want them: what a pass makes of a small graph, run by a backend's kernels."""

from __future__ import annotations

from typing import Any

import numpy as np

from mxlite.backends import bind_call
from mxlite.backends.cpu.backend import CPU
from mxlite.graph import Entry, Graph, Node
from tests.backends.cpu.fast_kernels import only


def operators_of(node: Node) -> list[str]:
    """The names of the operators in a region, of one that is none its own."""
    assert node.op is not None
    calls = getattr(node.attrs, "calls", None)
    return [node.op.op_name] if calls is None else [c.op.op_name for c in calls]


def inner_operators(exe: Any) -> list[tuple[str, list[str]]]:
    """The nodes of a training step with the operators that run: those in a region, or its own."""
    return [(c.node.name, operators_of(c.node)) for c in exe._planned.train.calls]


def run_region(node: Node, arrays: list[Any], kinds: str) -> tuple[list[Any], str]:
    """The outputs of a region's kernel on these arrays, and the kernel's name. Nothing beyond its scratch is
    written.
    """
    op, a = node.op, node.attrs
    assert op is not None
    shapes, types = tuple(x.shape for x in arrays), tuple(x.dtype for x in arrays)
    _, outs = op.infer_shape(a, *shapes)
    _, made_types = op.infer_type(a, *types)
    made = [np.full(s, 1, t) for s, t in zip(outs, made_types)]  # type: ignore[type-var]
    with only(kinds):
        kernel = CPU.choose(op, a, shapes, outs, types[0], types)
        block = CPU.empty(kernel.workspace + 64)
        block[:] = 0xFF
        bind_call(kernel, np, op, a, arrays, made, work=block[: kernel.workspace], train=True)()
    assert (block[kernel.workspace :] == 0xFF).all()
    return made, kernel.name


def variables(arrays: dict[str, Any]) -> tuple[Graph, dict[str, Entry]]:
    """A graph of variables with the shapes and types of these arrays, and its entries by name."""
    entries = {name: Entry(Node(None, None, (), name)) for name in arrays}
    shapes = {entries[n]: x.shape for n, x in arrays.items()}
    return Graph(
        tuple(entries.values()), shapes=shapes, dtypes={entries[n]: x.dtype for n, x in arrays.items()}
    ), entries
