"""What a backend is: an array module and the kernels it does better than the reference.

A kernel is chosen once per node, when a program is bound or an imperative operation is called;
nothing is chosen while running. An operator without a row in the table runs its reference kernel,
and the plan says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from ctypes import addressof, c_char
from dataclasses import dataclass, field
from functools import partial
from types import ModuleType
from typing import Any

from ..core import Context, DeviceError, host_memory, OutOfMemoryError
from ..graph.ir import Shape
from ..graph.opdef import DType, Op, Shapes, Signature

ALIGN = 64  # bytes; one cache line, and what vector kernels like


@dataclass(frozen=True)
class Kernel:
    """A row of a backend's table: replaces `Op.forward` wherever `fits(attrs, input shapes, dtype)`.

    `run` has the signature of the operator's `forward`. `workspace` is as `Op.workspace`, with the
    shapes of the forward call (for a gradient operator: of the forward it belongs to).
    """

    run: Callable[..., None]
    fits: Callable[[Any, Shapes, DType], bool] = lambda attrs, inputs, dtype: True
    workspace: Callable[[Any, Shapes, Shapes, DType], int] | None = None
    name: str = "fast"


@dataclass(frozen=True)
class ChosenKernel:
    """A kernel for one node: what to run, its scratch in bytes, and what to call it in a plan.

    `link` makes the call from `run` and its arguments. `seconds` is the modelled time of a call, 0.0 where
    flops and bytes tell.
    """

    run: Callable[..., None]
    workspace: int
    name: str
    signature: Signature
    link: type[partial[None]] = partial
    seconds: float = 0.0


@dataclass(frozen=True)
class Backend:
    """An array module `xp` and the table of kernels that are better than `xp`'s reference."""

    name: str
    xp: ModuleType
    kernels: Mapping[type[Op], Sequence[Kernel]] = field(default_factory=dict)
    prepare: Callable[[], None] = lambda: None  # called before a program is bound; cheap when repeated

    def choose(
        self,
        op: type[Op],
        attrs: Any,
        inputs: Shapes,
        outputs: Shapes,
        dtype: DType,
        dtypes: tuple[DType, ...] | None = None,
        used: frozenset[str] | None = None,
    ) -> ChosenKernel:
        """The kernel for one node.

        `inputs` and `outputs` are the shapes of the *forward* call, also for a gradient operator; `dtype` is
        that of its first input, `dtypes` of all of them (all alike, unless given). `used` are the inputs and
        outputs of this call that are there (all, unless given): an operator with subgraphs leaves out what
        only others would need.
        """
        if (op.forward_op or op).subgraphs:
            from .control import control_kernel

            return control_kernel(self, op, attrs, inputs, dtypes or (dtype,) * len(inputs), used)
        for row in self.kernels.get(op, ()):
            if row.fits(attrs, inputs, dtype):
                nbytes = row.workspace(attrs, inputs, outputs, dtype) if row.workspace else 0
                return ChosenKernel(row.run, nbytes, row.name, Signature.of(row.run))
        forward_op = op.forward_op
        ask = forward_op.backward_workspace if forward_op else op.workspace
        return ChosenKernel(op.forward, ask(attrs, inputs, outputs, dtype), "reference", op.signature)

    def memory(self) -> int:
        """Bytes there are. More are not even asked for: the system promises them, and kills who uses them."""
        return host_memory()

    def empty(self, nbytes: int) -> Any:
        """A 1-D uint8 array of `nbytes`, aligned to ALIGN. Raises OutOfMemoryError."""
        if nbytes > self.memory():
            raise OutOfMemoryError(f"An array of {nbytes} bytes: this machine has {self.memory()}.")
        try:
            block = self.xp.empty(nbytes + ALIGN, "uint8")
        except MemoryError:
            raise OutOfMemoryError(f"There is no room for an array of {nbytes} bytes.") from None
        start = -addressof(c_char.from_buffer(block)) % ALIGN
        return block[start : start + nbytes]

    def array(self, shape: Shape, dtype: DType) -> Any:
        """An uninitialised, aligned array in C order."""
        n = dtype.itemsize
        for d in shape:
            n *= d
        return self.empty(n).view(dtype).reshape(shape)


def backend_of(context: Context) -> Backend:
    """The backend that serves a device. Raises DeviceError when there is none."""
    if context.device_type in ("cpu", "cpu_pinned"):
        from .cpu import CPU

        return CPU
    raise DeviceError(
        f"No backend serves {context} in this version of mxlite: only cpu() can hold arrays and run "
        f"programs. "
        f"Memory plans can be made for every device."
    )
