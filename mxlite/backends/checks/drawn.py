"""Random values for the variables of a graph, valid for its operators.

a label, an index, a length       0 or 1: looked-up axes have a first and mostly a second position; else 0
statistics, states of optimizers  [0.5, 1.5): divisors, or arguments of roots
everything else                   normal
"""

from __future__ import annotations

from collections.abc import Mapping
from zlib import crc32

import numpy as np

from ...core.dtype import is_floating
from ...graph import Entry, Graph, LOSS_SCALE, Node
from ...graph.update import HISTORY, HYPER

COUNT, POSITIVE, NUMBER = "count", "positive", "number"

_SAME_NUMBERS = frozenset(
    ("Cast", "Reshape", "Flatten", "expand_dims", "squeeze", "transpose", "SwapAxis", "slice", "slice_axis",
     "SliceChannel", "split_v2", "Concat", "stack", "BlockGrad", "_copy", "broadcast_to", "reshape_like")
)  # fmt: skip
"""Operators whose results are elements of their inputs."""


def kinds_of(graph: Graph) -> dict[str, str]:
    """COUNT, POSITIVE or NUMBER for each variable. O(inputs)."""
    counts: set[Entry] = set()
    states: set[Entry] = {Entry(n) for n in graph.auxiliary}
    for node in reversed(graph.nodes):
        if node.op is None or node.forward is not None:
            continue
        if node.op.mutated(node.attrs) and not node.op.aux:
            states.update(node.inputs[2:])  # of an update, after weight and gradient
        passes_on = node.op.op_name in _SAME_NUMBERS and any(e in counts for e in node.outputs)
        for name, e in zip(node.input_names, node.inputs):
            if name.endswith("var"):
                states.add(e)  # of a norm folded by a pass
            elif passes_on or _is_count(node, name):
                counts.add(e)
    kinds = {}
    for node in graph.variables:
        e = Entry(node)
        kinds[node.name] = POSITIVE if e in states else COUNT if e in counts else NUMBER
    return kinds


def _is_count(node: Node, name: str) -> bool:
    """True for an input without a gradient while others have one: a label, an index, a length."""
    op = node.op
    assert op is not None
    if name in op.aux or name in op.mutated(node.attrs):
        return False
    made = set() if op.grad_op is None else set(op.grad_op.output_names(node.attrs))
    if op.is_loss and name != node.input_names[0]:
        return True
    is_number = name in op.gradient_is or bool(op.variadic) or f"d_{name}" in made
    return not is_number and bool(made or op.gradient_is)


def drawn(
    graph: Graph, kinds: Mapping[str, str], sway: float = 0.0, positions: int = 2
) -> dict[str, np.ndarray]:
    """A value for each variable by its name, always the same; each number that is not a count is multiplied
    by up to 1 + `sway`. Counts are below `positions`.
    """
    return {n.name: _value(graph, n, kinds[n.name], sway, positions) for n in graph.variables}


def _value(graph: Graph, node: Node, kind: str, sway: float, positions: int) -> np.ndarray:
    shape, dtype = graph.shapes[Entry(node)], graph.dtypes[Entry(node)]
    rng = np.random.default_rng(crc32(node.name.encode()))
    if node.name == LOSS_SCALE:
        return np.array([8, 1 / 8], dtype)
    if node.name == HISTORY:
        return np.zeros(shape, dtype)
    if node.name == HYPER:
        return np.broadcast_to(np.array([0.1, 0.01, 2.0, 2.0])[: shape[-1]], shape).astype(dtype)
    if kind == COUNT or not is_floating(dtype):
        return rng.integers(0, positions, shape).astype(dtype)
    numbers = rng.uniform(0.5, 1.5, shape) if kind == POSITIVE else rng.standard_normal(shape)
    if sway:
        numbers = numbers * (1 + sway * rng.uniform(-1, 1, shape))
    return numbers.astype(dtype)
