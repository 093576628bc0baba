"""Mixed precision of a program: the options `amp=` and `loss_scale=`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import as_dtype, bfloat16, BindError, DTypeError
from ...core.dtype import float32
from ...graph import Entry, Graph, mixed_precision, Policy, Scaling, Shape
from ...ops.elementwise.cast import Cast, Shore
from ...ops.elementwise.finite import multi_all_finite
from ...ops.optim.scaled_update import ScaledUpdate
from ...ops.precision import precision_of, wide_inputs
from ..plan.step import input_names
from .infer import infer, shapes_of_variables

FIRST = 2.0**16  # a dynamic loss scale
LARGEST = 2.0**24
WINDOW = 2000  # steps

SHORT_NAMES = {"bf16": "bfloat16", "fp16": "float16"}


def amp_dtype(kind: Any) -> np.dtype[Any] | None:
    """The 16-bit type that `amp=` names, None for none. Raises DTypeError."""
    if kind is None:
        return None
    try:
        dtype = as_dtype(SHORT_NAMES.get(kind, kind) if isinstance(kind, str) else kind)
    except DTypeError:
        dtype = None
    if dtype is None or dtype not in (bfloat16, np.dtype("float16")):
        raise DTypeError(f"amp must be 'bfloat16' ('bf16'), 'float16' ('fp16') or None, got {kind!r}.")
    return dtype


def checked_scale(scale: Any, amp: Any) -> float | None:
    """`scale` as a finite number to multiply gradients with, None for none. Raises BindError."""
    if scale is None:
        return None
    if amp is None:
        raise BindError(f"loss_scale={scale!r} is for mixed precision; give amp='float16' as well.")
    if isinstance(scale, str) or not 0 < float(scale) < float("inf"):
        raise BindError(f"loss_scale must be a number above 0, or None, got {scale!r}.")
    return float(scale)


@dataclass(frozen=True)
class LossScale:
    """Request of `loss_scale=`: an initial value, and True if it is adjusted automatically.

    It is adjusted only if the update is part of the step: halved after an overflow, doubled after `window`
    good steps, to `largest` at most.
    """

    value: float
    dynamic: bool = False
    window: int = WINDOW
    largest: float = LARGEST

    @classmethod
    def of(cls, scale: Any, amp: Any, fused: bool) -> LossScale | None:
        """From "dynamic", a number or None. Raises BindError."""
        if isinstance(scale, cls):
            checked_scale(scale.value, amp)
            return scale
        if scale == "dynamic":
            if not fused:
                raise BindError(
                    "loss_scale must be a number above 0 where the update is no part of the step: "
                    "'dynamic' needs optimizer=."
                )
            return cls(checked_scale(FIRST, amp) or FIRST, True)
        value = checked_scale(scale, amp)
        return None if value is None else cls(value)

    def in_step(self) -> Scaling:
        """Test of gradients and decision inside the step."""
        attrs = {"dynamic": self.dynamic, "window": self.window, "largest": self.largest}
        return Scaling(multi_all_finite, ScaledUpdate, attrs)


def mixed(graph: Graph, amp: Any, data: Collection[str], scaled: bool, stored: Collection[str] = ()) -> Graph:
    """`graph`, with shapes and dtypes, in mixed precision; itself if `amp` is None. `stored`: variables that
    are 16-bit themselves.
    """
    dtype = amp_dtype(amp)
    if dtype is None:
        return graph
    policy = Policy(dtype, precision_of, wide_inputs, Cast, Shore if scaled else None)
    return mixed_precision(graph, policy, data, stored)


def typed(
    graph: Graph,
    shapes: Mapping[str, Shape],
    types: Mapping[str, Any] | None,
    amp: Any,
    given: Mapping[str, Shape] | None = None,
) -> tuple[Graph, frozenset[str]]:
    """`graph` with all shapes and types but those that `amp` changes, and the arguments that are stored in 16
    bits: those whose type in `types` is that of `amp`, which implies nothing for others then. `given` is for
    `infer`.
    """
    types, dtype = types or {}, amp_dtype(amp)
    if dtype is None or not isinstance(types, Mapping):
        return infer(graph, shapes, types, given), frozenset()
    stored = {n.name for n in graph.arguments if n.name in types and as_dtype(types[n.name]) == dtype}
    others = {n: t for n, t in types.items() if n not in stored}
    return infer(graph, shapes, others, given), frozenset(stored)


def amp_types(
    graph: Graph, shapes: Mapping[str, Shape], types: Mapping[str, Any] | None, amp: Any
) -> dict[str, np.dtype[Any]]:
    """Types of the arguments that mixed precision reads only in 16 bits: they may be stored so. O(nodes)."""
    dtype = amp_dtype(amp)
    if dtype is None:
        return {}
    shapes = shapes_of_variables(graph, shapes)
    inferred, stored = typed(graph, shapes, types, dtype)
    made = mixed(inferred, dtype, input_names(inferred, list(shapes)), False, stored)
    wide, narrow = set(made.outputs), set[Entry]()
    for node in made.nodes:
        is_narrowing = node.op is Cast and made.dtypes[Entry(node)] == dtype
        (narrow if is_narrowing else wide).update(node.inputs)
    return {
        n.name: dtype
        for n in made.arguments
        if (Entry(n) in narrow and Entry(n) not in wide and made.dtypes[Entry(n)] == float32)
    }
