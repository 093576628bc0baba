"""One kernel call to be tuned: the request that a kernel is chosen for, and the arrays that it works on."""

from __future__ import annotations

import functools
import hashlib
import io
import pickle
import sys
from dataclasses import dataclass
from typing import Any

from ...core.machine_code import native
from ...graph.ir import Shape
from ...graph.opdef import DType, Op
from ..base import Backend, Request
from .space import TaskSpace

Kind = tuple[Shape, DType] | None
"""An array's shape and type; None: the call has no such array."""


def task_key(r: Request, threads: int) -> str:
    """Digest of all that a kernel is chosen by: operator, attributes, shapes, types, use, threads."""
    used = None if r.used is None else sorted(r.used)
    kinds = [d.name for d in r.dtypes]
    text = repr(
        (
            r.op.op_name,
            repr(r.op.timed_as(r.attrs)),
            r.inputs,
            r.outputs,
            r.dtype.name,
            kinds,
            used,
            r.train,
            threads,
        )
    )
    return hashlib.sha256(text.encode()).hexdigest()


def device_key(backend: Backend) -> str:
    """Digest of a backend and the facts of this machine on which times depend."""
    return hashlib.sha256("\0".join((backend.name, *backend.identity())).encode()).hexdigest()


@functools.cache
def versions() -> str:
    """Versions of what writes the code: records of others are not read."""
    package = sys.modules[__name__.partition(".")[0]]  # which imports this one, and not the other way round
    return f"mxlite {getattr(package, '__version__', '')}, code {native.VERSION}"


@dataclass(frozen=True)
class Task:
    """A request with at most `threads` threads, and the arrays of its inputs and outputs, which follow the
    operator's names. `name` is that of its first node, `count` how often a step has it.
    """

    request: Request
    inputs: tuple[Kind, ...]
    outputs: tuple[Kind, ...]
    threads: int
    name: str = ""
    count: int = 1
    draws: bool = False

    @property
    def key(self) -> str:
        return task_key(self.request, self.threads)

    def space(self, backend: Backend) -> TaskSpace:
        return TaskSpace(backend, self.request, self.threads)

    def packed(self) -> bytes | None:
        """The task for a worker process of ours; None if it holds what no other process can have."""
        out = io.BytesIO()
        try:
            _Packer(out, 5).dump(self)
        except (pickle.PicklingError, AttributeError, TypeError):
            return None
        return out.getvalue()

    @staticmethod
    def unpacked(data: bytes) -> Task:
        """From `packed()`: only of bytes that a process of ours has just sent."""
        found: Task = _Unpacker(io.BytesIO(data)).load()
        return found


class _Packer(pickle.Pickler):
    """Gradient operators are made from others, and have no place in a module."""

    def persistent_id(self, found: Any) -> Any:
        is_op = isinstance(found, type) and issubclass(found, Op)
        return found.forward_op if is_op and found.forward_op is not None else None


class _Unpacker(pickle.Unpickler):
    def persistent_load(self, forward: Any) -> Any:
        return forward.grad_op
