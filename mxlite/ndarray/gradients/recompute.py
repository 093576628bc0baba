"""checkpoint: a function whose intermediate arrays are recomputed for the gradient instead of kept.

Forward runs without recording, and one step goes on the tape. Backward runs the function a second time, now
recording, differentiates that, and discards it: at no time does more than one checkpointed function have its
intermediates alive. The planner does the same for bound symbols by itself (T. Chen et al., 2016,
"Training deep nets with sublinear memory cost").

The second run draws the same random numbers: forward notes the steps that it took from the generator, and
these are replayed. Arrays on the tape that the function reads without having them as arguments, such as
weights, are found while it runs (`tape.Mode.captured`) and get their gradients too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...core import StateError
from ...core.errors import ArgumentError
from ..generator import noting_draws, replaying_draws
from ..memory.storage import Storage
from .differentiate import run_backward, scope
from .host import note_python
from .tape import flows, MODE, Origin, origin_of


def checkpoint(function: Callable[..., Any], *arrays: Any) -> Any:
    """`function(*arrays)`, of which the tape keeps only the arrays it reads, not those it computes.

    `function` returns one NDArray or a tuple. It is called twice if a gradient is computed, so it must do the
    same both times; BatchNorm and Dropout inside do. Gradients are bitwise those without checkpoint; if
    an array is read several times they are added in another order, those of the function first.
    """
    if not MODE.recording:
        return function(*arrays)
    captured: dict[Origin, Storage] = {}
    before = MODE.capture(captured)
    try:
        with scope(recording=False), noting_draws() as draws:
            outputs = function(*arrays)
    finally:
        MODE.capture(before)
    outs = list(outputs) if isinstance(outputs, (tuple, list)) else [outputs]
    arguments = [_same(a) for a in arrays]
    inputs: dict[Origin, Storage] = {}
    for a in (*arguments, *captured.values()):
        origin = origin_of(a) if isinstance(a, Storage) else None
        if origin is not None and flows(origin):
            inputs.setdefault(origin, a)
    for i, out in enumerate(outs):
        if not isinstance(out, Storage):
            raise ArgumentError(f"a checkpointed function must return NDArrays, got {type(out).__name__}.")
        if out.origin is not None or any(out is a for a in arrays):
            outs[i] = out.alias(out.storage)
    if inputs:
        call = _Again(function, arguments, list(inputs.values()), draws)
        note_python("checkpoint", call, list(inputs), list(inputs.values()), outs)
    return tuple(outs) if isinstance(outputs, (tuple, list)) else outs[0]


def _same(a: Any) -> Any:
    """Another handle on an argument, on the tape if the argument is."""
    if not isinstance(a, Storage):
        return a
    view = a.alias(a.storage)
    view.origin = origin_of(a)
    return view


class _Again:
    """A recorded function call that can run a second time."""

    def __init__(
        self,
        function: Callable[..., Any],
        arguments: list[Any],
        inputs: list[Storage],
        draws: list[tuple[int, int]],
    ) -> None:
        self.function = function
        self.arguments = arguments
        self.inputs = inputs
        self.draws = draws
        self.training = MODE.training
        self.watched = [*inputs, *(a for a in arguments if isinstance(a, Storage))]
        self.versions = [a.var.pushes for a in self.watched]

    def differentiate(self, heads: Sequence[Any], wanted: Sequence[bool], places: Sequence[Any]) -> list[Any]:
        """Run the function again, recording, and return the gradients of `inputs`."""
        if any(a.var.pushes != v for a, v in zip(self.watched, self.versions)):
            raise StateError(
                "an array that a checkpointed function reads was written after it ran, so it cannot run "
                "again. Write to it after backward."
            )
        create = MODE.recording
        origins = [a.origin for a in self.inputs]
        assert None not in origins
        with scope(recording=True, training=self.training), replaying_draws(self.draws):
            outputs = self.function(*self.arguments)
        outs = list(outputs) if isinstance(outputs, (tuple, list)) else [outputs]
        pairs = [(o, h) for o, h in zip(outs, heads) if o.origin is not None]
        gradients: list[Storage | None] = [None] * len(origins)
        if pairs:
            gradients = run_backward(
                [o for o, _ in pairs],
                [h for _, h in pairs],
                origins,  # type: ignore[arg-type]
                retain=create,
                create=create,
                stop=origins,  # type: ignore[arg-type]
            )
        for i, (grad, want) in enumerate(zip(gradients, wanted)):
            if grad is None and want:
                like = self.inputs[i]
                zeros: Any = like.fresh(like.storage.shape, like.storage.dtype, like.context)
                zeros[:] = 0
                gradients[i] = zeros
        return gradients
