"""The two ends of a transfer: an array of one device's part of a step that another device's part reads.

A transfer is a task on both devices, so that each plan says how long its bytes must last:

    device 0     matmul   send(x) ............ next to lie in the bytes of x
                             |
    device 1              receive -> x'   activation ...

When it runs, both tasks are one operation of the engine, see `executor/run/devices_program.py`. `send` leaves
its array in the state that the two share, and `receive` copies from there. Each end reads a token of the end
that its device had before: so all devices have their transfers in one order, whatever else their plans differ
in, and no device waits for one that waits for it.
"""

from __future__ import annotations

from typing import Any

from ...core import StateError
from ...core.dtype import as_dtype, float32
from ...core.record import record
from ...graph import Op, Shape

TOKEN = ((1,), float32)
"""Shape and type of a token."""


class Transfer(Op):
    """What both ends have in common. `first`: no end comes before it on its device, so it reads no token."""

    abstract = True
    recomputable = False
    phases = 0  # no message to other processes

    @record
    class Attrs:
        number: int
        first: bool
        shape: Shape
        dtype: str

    @classmethod
    def _token(cls, a: Any) -> tuple[str, ...]:
        return () if a.first else ("token",)

    @staticmethod
    def _tokens(a: Any, kind: Any) -> tuple[Any, ...]:
        return () if a.first else (kind,)


class Send(Transfer):
    """The end on the device that has the array.

    data: (...), and the token of the transfer before  ->  moved: the token of this one, (1,) float32.
    """

    op_name = "_send_to_device"
    inputs = ("data", "token")
    outputs = ("moved",)

    @classmethod
    def input_names(cls, a):
        return ("data", *cls._token(a))

    @classmethod
    def exchanged(cls, a: Any) -> tuple[str, ...]:
        return ("data",)

    @staticmethod
    def infer_shape(a, *shapes):
        return (a.shape, *Transfer._tokens(a, TOKEN[0])), (TOKEN[0],)

    @classmethod
    def infer_type(cls, a, *dtypes):
        return (as_dtype(a.dtype), *Transfer._tokens(a, TOKEN[1])), (TOKEN[1],)

    @staticmethod
    def forward(xp, a, data, token=None, *, moved, state):
        state["data"] = data
        moved[...] = 0


class Receive(Transfer):
    """The end on the device that gets the array.

    The token of the transfer before  ->  out: (...), and moved: the token of this one, (1,) float32.
    """

    op_name = "_receive_from_device"
    inputs = ("token",)
    outputs = ("out", "moved")

    @classmethod
    def input_names(cls, a):
        return cls._token(a)

    @classmethod
    def exchanged(cls, a: Any) -> tuple[str, ...]:
        return ("out",)

    @staticmethod
    def infer_shape(a, *shapes):
        return Transfer._tokens(a, TOKEN[0]), (a.shape, TOKEN[0])

    @classmethod
    def infer_type(cls, a, *dtypes):
        return Transfer._tokens(a, TOKEN[1]), (as_dtype(a.dtype), TOKEN[1])

    @classmethod
    def lone_state(cls, a):
        """Any number that differs from that of the next transfer."""
        return {"data": 1 + a.number % 7}

    @staticmethod
    def forward(xp, a, token=None, *, out, moved, state):
        if "data" not in state:
            raise StateError(f"Transfer {a.number}: nothing was sent to the device that receives it.")
        xp.copyto(out, state.pop("data"), casting="unsafe")
        moved[...] = 0
