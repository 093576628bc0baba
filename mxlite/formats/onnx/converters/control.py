"""Control flow whose course is known when the model is imported: branches are chosen, loops unrolled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....core import FormatError
from ...building.errors import NotSupportedError
from ...building.value import GraphValue
from ..node import OnnxNode, tensor, Value

MOST_STEPS = 10_000


def branch(n: OnnxNode) -> list[Value]:
    chosen = "then_branch" if n.known_number(0, "cond") else "else_branch"
    n.ignore("then_branch", "else_branch")  # but for the chosen one
    return n.reader.subgraph(n.graph(chosen), n.scope, [])


def loop(n: OnnxNode) -> list[Value]:
    """`body(i, cond, carried...) -> cond, carried..., scanned...`; scanned values are stacked."""
    b, body = n.builder, n.graph("body")
    limit = n.known_number(0, "M", None)
    going = bool(n.known_number(1, "cond", True))
    carried = n.values_from(2)
    scanned: list[list[GraphValue]] = [[] for _ in range(len(body.output) - 1 - len(carried))]
    step = 0
    while going and (limit is None or step < limit):
        if step >= MOST_STEPS:
            raise NotSupportedError(f"it takes more than {MOST_STEPS} steps")
        inputs = [b.constant(np.int64(step)), b.constant(np.bool_(True)), *carried]
        condition, *results = n.reader.subgraph(body, n.scope, inputs)
        carried = results[: len(carried)]
        for parts, value in zip(scanned, results[len(carried) :]):
            parts.append(tensor(value))
        step += 1
        if step < (limit if limit is not None else MOST_STEPS + 1):
            going = bool(b.numbers(tensor(condition), "the loop's condition").reshape(()))
    if not step and scanned:
        raise NotSupportedError("it takes no step, so the shape of what it scans is not known")
    return carried + [_stacked(parts, 0) for parts in scanned]


def _stacked(parts: list[GraphValue], axis: int) -> GraphValue:
    b = parts[0].builder
    shape = parts[0].shape
    return b.concat([b.reshape(p, (*shape[:axis], 1, *shape[axis:])) for p in parts], axis)


def scan(n: OnnxNode) -> list[GraphValue]:
    """`body(states..., elements...) -> states..., scanned...` for each element along the scanned axes."""
    b, body = n.builder, n.graph("body")
    if n.version < 9:
        return _batched_scan(n)
    count = n.whole("num_scan_inputs")
    values = n.present()
    return _scanned(n, body, values[: len(values) - count], values[len(values) - count :], b)


def _scanned(
    n: OnnxNode, body: Any, states: list[GraphValue], sources: list[GraphValue], b: Any
) -> list[GraphValue]:
    count, results = len(sources), len(body.output) - len(states)
    in_axes = n.wholes("scan_input_axes", None) or (0,) * count
    out_axes = n.wholes("scan_output_axes", None) or (0,) * results
    in_back = n.wholes("scan_input_directions", None) or (0,) * count
    out_back = n.wholes("scan_output_directions", None) or (0,) * results
    axes = [b.axis(axis, v.rank) for axis, v in zip(in_axes, sources, strict=True)]
    lengths = {v.shape[axis] for v, axis in zip(sources, axes)}
    if len(lengths) != 1:
        raise FormatError(f"the scanned inputs are of different lengths {sorted(lengths)}.")
    (steps,) = lengths
    if not 0 < steps <= MOST_STEPS:
        raise NotSupportedError(f"it takes {steps} steps")
    scanned: list[list[GraphValue]] = [[] for _ in range(results)]
    for step in range(steps):
        elements = []
        for v, axis, back in zip(sources, axes, in_back):
            place = steps - 1 - step if back else step
            part = b.slice(v, axis, place, place + 1)
            elements.append(b.reshape(part, (*v.shape[:axis], *v.shape[axis + 1 :])))
        made = [tensor(v) for v in n.reader.subgraph(body, n.scope, states + elements)]
        states = made[: len(states)]
        for parts, value in zip(scanned, made[len(states) :]):
            parts.append(value)
    out = list(states)
    for parts, axis, back in zip(scanned, out_axes, out_back):
        parts = parts[::-1] if back else parts
        out.append(_stacked(parts, b.axis(axis, parts[0].rank + 1)))
    return out


def _batched_scan(n: OnnxNode) -> list[GraphValue]:
    """Opset 8: a leading batch axis on everything, and optional lengths, which must not be given."""
    b, body = n.builder, n.graph("body")
    if n.get(0) is not None:
        raise NotSupportedError("sequence_lens")
    count = n.whole("num_scan_inputs")
    values = n.present_from(1)
    samples = []
    for i in range(values[0].shape[0]):
        own = [b.reshape(b.slice(v, 0, i, i + 1), v.shape[1:]) for v in values]
        samples.append(_scanned(n, body, own[: len(own) - count], own[len(own) - count :], b))
    return [_stacked(list(parts), 0) for parts in zip(*samples)]


CONVERTERS: dict[str, Callable[[OnnxNode], Any]] = {"If": branch, "Loop": loop, "Scan": scan}
