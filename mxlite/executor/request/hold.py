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
from ..plan.step import input_names
from ..run.storage import Allocator
from .infer import infer


def hold(
    graph: Graph, ctx: Context, shapes: Mapping[str, Shape], types: Mapping[str, Any], group: ExecutorGroup
) -> Graph:
    """`graph` with all shapes and types, inferred from those of the inputs; the parameters and auxiliary
    states that `group` lacks are created, all zero. Nothing is lowered or planned.

    Raises what `simple_bind` raises for shapes and types.
    """
    inferred = infer(graph, {n: from_user(s, n) for n, s in shapes.items()}, types)
    backend = backend_of(ctx)
    backend.prepare()
    group.hold(inferred, input_names(inferred, list(shapes)), partial(Allocator, ctx, backend))
    return inferred
