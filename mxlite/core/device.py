"""Devices, called contexts in MXNet: `cpu(0)`, `gpu(1)`."""

from __future__ import annotations

import functools
import os
import threading
from types import TracebackType
from typing import ClassVar

from .errors import DeviceError, nearest

_TYPES = {"cpu": 1, "gpu": 2, "cpu_pinned": 3, "cpu_shared": 5}


class _Devices(type):
    """`mx.Context.default_ctx`, which MXNet's older programs read and set."""

    @property
    def default_ctx(cls) -> Context:
        """The device this thread uses: that of the innermost `with` block, as in MXNet, else the one set."""
        stack = getattr(Context._stack, "contexts", None)
        context: Context = stack[-1] if stack else getattr(Context._stack, "default", _CPU0)
        return context

    @default_ctx.setter
    def default_ctx(cls, ctx: Context) -> None:
        Context._stack.default = Context(ctx)


class Context(metaclass=_Devices):
    """A device. Equal by kind and number; hashable; a `with` block makes it the default for new arrays."""

    devtype2str: ClassVar[dict[int, str]] = {v: k for k, v in _TYPES.items()}
    devstr2type: ClassVar[dict[str, int]] = _TYPES
    _stack: ClassVar[threading.local] = threading.local()
    __slots__ = ("device_id", "device_type")
    device_type: str
    device_id: int

    def __init__(self, device_type: str | Context, device_id: int = 0) -> None:
        if isinstance(device_type, Context):
            device_id = device_type.device_id
            device_type = device_type.device_type
        if not isinstance(device_type, str) or device_type not in _TYPES:
            raise DeviceError(f"There is no device {device_type!r}.{nearest(str(device_type), _TYPES)}")
        if isinstance(device_id, bool) or not isinstance(device_id, int) or device_id < 0:
            raise DeviceError(f"A device number is 0 or more, got {device_id!r}.")
        self.device_type = device_type
        self.device_id = device_id

    @property
    def device_typeid(self) -> int:
        """MXNet's number of `device_type`."""
        return _TYPES[self.device_type]

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Context)
            and self.device_type == other.device_type
            and self.device_id == other.device_id
        )

    def __hash__(self) -> int:
        return hash((self.device_type, self.device_id))

    def __repr__(self) -> str:
        return f"{self.device_type}({self.device_id})"

    __str__ = __repr__

    def __enter__(self) -> Context:
        stack = getattr(Context._stack, "contexts", None)
        if stack is None:
            stack = Context._stack.contexts = []
        stack.append(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        Context._stack.contexts.pop()


_CPU0 = Context("cpu", 0)


def cpu_pinned(device_id: int = 0) -> Context:
    """Memory of the CPU that MXNet's GPUs read faster; here the CPU's like any other."""
    return Context("cpu_pinned", device_id)


def cpu(device_id: int = 0) -> Context:
    """The CPU. All numbers name the same memory; they differ only as labels, as in MXNet."""
    return Context("cpu", device_id)


def gpu(device_id: int = 0) -> Context:
    """A GPU."""
    return Context("gpu", device_id)


def current_context() -> Context:
    """The innermost `with` context of this thread, else its default, which is `cpu(0)` at first."""
    return Context.default_ctx


def set_default_context(ctx: Context) -> None:
    """Make `ctx` the device that this thread uses outside of all `with` blocks."""
    Context.default_ctx = ctx


@functools.cache
def host_memory() -> int:
    """Bytes of memory that this machine has; 2**63 - 1 where it does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not on every system, and under no common name
        return 2**63 - 1
