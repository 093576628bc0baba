"""A Python function as one step of the tape: what `autograd.Function` and `autograd.checkpoint` record.

Its gradient is Python too. It runs when the backward pass reaches it, on the thread that asked for the
backward pass, and may push any operations; nothing of it runs inside the engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Protocol

from ...backends import backend_of
from ...core import Context
from ...core.record import record
from ...graph.opdef import Op
from ..calls.plan import Plan
from ..memory.storage import form_of, Storage
from .tape import note, Origin

Kinds = tuple[tuple[Any, Any], ...]
"""Shapes and dtypes."""


class PythonCall(Op):
    """An operator whose outputs a Python function computed from its arguments."""

    variadic = "args"
    variadic_outputs = "outs"

    @record
    class Attrs:
        num_args: int
        num_outputs: int

    @classmethod
    def num_outputs_of(cls, a: Any) -> int:
        count: int = a.num_outputs
        return count

    @staticmethod
    def forward(xp, a, *args, outs):
        raise AssertionError("the function ran when it was called")

    @staticmethod
    def backward(xp, a, d_outs, *, d_args):
        raise AssertionError("the backward pass runs this itself")


class Differentiable(Protocol):
    """Protocol of calls that can be differentiated."""

    def differentiate(
        self, heads: Sequence[Any], wanted: Sequence[bool], places: Sequence[Any]
    ) -> Sequence[Any]:
        """The gradient of each argument from the gradients of all outputs; None if it is not wanted.

        One with a place may be written there, and is then that very array; the others are copied.
        """


def note_python(
    name: str,
    call: Differentiable,
    origins: Sequence[Origin | None],
    inputs: Sequence[Storage],
    outs: Sequence[Storage],
) -> None:
    """Record that `call` computed `outs` from `inputs`."""
    kinds, made = tuple(map(form_of, inputs)), tuple(map(form_of, outs))
    plan = _plan(name, kinds, made, outs[0].context)
    note(plan, tuple(origins), inputs, (), outs, state={"call": call})


@lru_cache(maxsize=512)
def _plan(name: str, kinds: Kinds, made: Kinds, context: Context) -> Plan:
    """What the tape knows of calls with arguments and outputs of these shapes and types."""
    attrs = PythonCall.Attrs(len(kinds), len(made))
    plan = Plan(
        PythonCall,
        attrs,
        PythonCall.input_names(attrs),
        kinds,
        made,
        (tuple(k[0] for k in kinds), tuple(m[0] for m in made)),
        made[0][1],
        backend_of(context),
        True,
        tuple(k[1] for k in kinds),
    )
    plan.name = name
    plan.outputs = made
    return plan
