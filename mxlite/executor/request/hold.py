"""Parameters before there is a program: when shapes are known, but not yet the step to be planned."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from ...backends import backend_of
from ...core import Context
from ...core.compat.npshape import from_user
from ...graph import Graph, Shape
from ..group import ExecutorGroup
from ..placement.devices import Devices
from ..plan.step import input_names
from ..run.storage import Allocator
from .infer import infer


def hold(
    graph: Graph,
    ctx: Context,
    shapes: Mapping[str, Shape],
    types: Mapping[str, Any],
    group: ExecutorGroup,
    group2ctx: Mapping[str, Context] | None = None,
) -> Graph:
    """`graph` with all shapes and types, inferred from those of the inputs; the parameters and auxiliary
    states that `group` lacks are created, all zero, on the devices of `group2ctx`. Nothing is lowered or
    planned.

    Raises what `simple_bind` raises for shapes and types.
    """
    inferred = infer(graph, {n: from_user(s, n) for n, s in shapes.items()}, types)
    devices, inputs = Devices.of(ctx, group2ctx, {}), input_names(inferred, list(shapes))
    at = devices.of_nodes(inferred)
    for d, (one, context) in enumerate(zip(group.on(devices.contexts), devices.contexts)):
        backend = backend_of(context)
        backend.prepare()
        elsewhere = {n.name for n in inferred.variables if at[n] != d}
        one.hold(inferred, inputs | elsewhere, partial(Allocator, context, backend))
    return inferred
