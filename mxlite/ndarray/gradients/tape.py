"""The tape: the record of calls made under `autograd.record()`, and the arrays that it keeps alive.

There is no list anywhere. A recorded call is a **Step**, an array refers to the step that computed it
(`origin`), and a step refers to the origins of its inputs. So the tape is a graph that hangs on the arrays a
program still holds, and the parts that nothing refers to any more are freed:

    x (Leaf) <---- Step mul <---- y.origin          `del y` frees the step and the two arrays that
    w (Leaf) <------'                               mul's gradient would have read

**A step keeps exactly the arrays that the operator's `backward` reads** (and what `derivative` reads, if it
has one), in `kept`. relu keeps its output, an addition nothing. Each is kept as memory, Var and the number of
writes that the Var had seen: one comparison, made when the gradient is computed, tells if the array was
written since. A call is recorded if it reads an array on the tape. A call that no gradient flows through
(argmax, a comparison), or whose inputs come only from such calls, is a **constant** step, which keeps
nothing: all gradients before it are 0.

A backward pass frees the steps it has been through, unless it is told to retain them. A freed step is a step
without inputs: its outputs are then like any other arrays.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, TYPE_CHECKING

from ...core import StateError
from ...engine import Var
from ..memory.storage import RawArray, Storage

if TYPE_CHECKING:
    from ..calls.plan import Plan


class Mode(threading.local):
    """The modes of this thread: recording, training, capturing.

    `flags` is 0 for inference without recording: the one thing that a call looks at. `captured` is set
    inside `autograd.checkpoint`: it gathers the arrays on the tape that a function reads.
    """

    flags = 0
    recording = False
    training = False
    captured: dict[Origin, Storage] | None = None

    def switch(self, recording: bool | None = None, training: bool | None = None) -> tuple[bool, bool]:
        """Change the modes that are not None; returns the previous modes."""
        before = self.recording, self.training
        if recording is not None:
            self.recording = bool(recording)
        if training is not None:
            self.training = bool(training)
        self.flags = self.recording + 2 * self.training + 4 * (self.captured is not None)
        return before

    def capture(self, into: dict[Origin, Storage] | None) -> dict[Origin, Storage] | None:
        """Gather arrays in `into` from now on; returns the previous target."""
        before, self.captured = self.captured, into
        self.switch()
        return before


MODE = Mode()


class Leaf:
    """An array that asked for its gradient: its `grad`, and how that is written ("write", "add", "null")."""

    __slots__ = ("__weakref__", "fresh", "grad", "req")

    freed = constant = False

    def __init__(self, grad: Any, req: str) -> None:
        self.grad = grad
        self.req = req
        self.fresh = False  # True if a backward pass has written `grad` since this was reset


_numbers = count()


class TapeStep:
    """One recorded call: its plan, the origins of its inputs, and the arrays that its gradient reads.

    constant: True if its gradient is 0 for all inputs.
    inputs: the origin of each, None for one that is not on the tape.
    kept: memory, Var and pushes of that Var, for each of `plan.keeps`.
    stream, state: random stream and node state of the call, if it has them.
    """

    __slots__ = ("__weakref__", "constant", "freed", "inputs", "kept", "number", "plan", "state", "stream")

    def __init__(
        self,
        plan: Plan,
        inputs: tuple[Origin | None, ...],
        kept: Sequence[tuple[RawArray, Var, int]],
        stream: Any = None,
        state: dict[str, Any] | None = None,
        constant: bool = False,
    ) -> None:
        self.plan = plan
        self.constant = constant
        self.inputs = inputs
        self.kept = kept
        self.stream = stream
        self.state = state
        self.freed = False
        self.number = next(_numbers)

    def preserve(self, array: Storage, copied: Callable[[RawArray, Origin | None], Storage]) -> None:
        """Read copies from now on, of what it has kept of `array`; but move the statistics of the array."""
        plan, kept, inputs = self.plan, list(self.kept), list(self.inputs)
        moved = plan.op.grad_op.mutated(plan.attrs) if plan.op.grad_op is not None else ()
        for at, ((name, is_output, i), (raw, var, pushes)) in enumerate(zip(plan.keeps, self.kept)):
            if var is array.var and pushes == var.pushes and name not in moved:
                copy = copied(raw, None if is_output else inputs[i])
                kept[at] = copy.storage, copy.var, copy.var.pushes
                if copy.origin is not None:
                    inputs[i] = copy.origin
        self.kept, self.inputs = kept, tuple(inputs)

    def free(self) -> None:
        """Release everything."""
        self.freed = True
        self.inputs = ()
        self.kept = ()
        self.stream = self.state = None


Origin = tuple[TapeStep | Leaf, int]


def origin_of(array: Storage) -> Origin | None:
    """The origin of an array, None if it is not on the tape (any more)."""
    origin = array.origin
    return None if origin is None or origin[0].freed else origin


def flows(origin: Origin | None) -> bool:
    """True if a gradient flows on from there, which it does not from a constant."""
    return origin is not None and not origin[0].constant


def refuse_write(array: Storage, name: str) -> None:
    """Raise StateError if a write to `array` would change a recorded value. A constant leaves the tape."""
    if not MODE.recording:
        return
    if not flows(origin_of(array)):
        array.origin = None
    else:
        raise StateError(
            f"{name} would write to an array that is being recorded, and its gradient would be wrong. Inside "
            f"autograd.record() give the result a name of its own instead of +=, out= or a[...] =, or write "
            f"under autograd.pause()."
        )


def note(
    plan: Plan,
    origins: tuple[Origin | None, ...],
    inputs: Sequence[Storage],
    versions: Sequence[int],
    outs: Sequence[Storage],
    stream: Any = None,
    state: dict[str, Any] | None = None,
    constant: bool = False,
) -> None:
    """Record a call. `versions` are the pushes of the inputs' Vars before it."""
    kept = []
    for _, is_output, i in plan.keeps:
        if is_output:
            kept.append((outs[i].storage, outs[i].var, outs[i].var.pushes))
        else:
            kept.append((inputs[i].storage, inputs[i].var, versions[i]))
    step = TapeStep(plan, origins, kept, stream, state, constant)
    for _, var, _ in kept:
        if var.keepers is not None:
            var.keepers.add(step)
    for place, out in zip(plan.places, outs):
        out.origin = (step, place)
