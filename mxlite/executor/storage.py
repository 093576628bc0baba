"""The arrays that a program owns outside the arena, made at bind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..backends import Backend
from ..backends.gpu.graph_inputs import Staging
from ..core import Context, OutOfMemoryError
from ..core.bytesize import format_bytes
from ..engine import get_engine, Var
from ..graph import Shape
from ..memplan import MemoryPlan
from ..ndarray import NDArray
from .lower import is_gpu, Lowered, staged, STAGING
from .step import Key

# Kinds of arrays that have one Var for all of a program: on the CPU what nobody writes one by one.
_TOGETHER = ("optimizer",)
_TOGETHER_ON_GPU = ("arguments", "auxiliary", "optimizer", "gradients", "metrics")


class Allocator:
    """Makes arrays of zeros on one device.

    The states of the optimizer have one Var in one program: a step costs the engine as much as its operations
    have Vars. On a GPU, where a step is one operation, so have the parameters, and the gradients. Operations
    on two of them are in one order then, as they are on the device anyway; what heals one of them after a
    failure heals all.
    """

    def __init__(self, ctx: Context, backend: Backend) -> None:
        self._ctx = ctx
        self._backend = backend
        self._vars: dict[str, Var] = {}

    def make(self, key: Key, shape: Shape, dtype: np.dtype[Any], category: Mapping[Key, str]) -> NDArray:
        """The array for `key`. Raises OutOfMemoryError."""
        kind = category.get(key, "")
        array = NDArray.fresh(shape, dtype, self._ctx)
        if kind in (_TOGETHER_ON_GPU if is_gpu(self._backend) else _TOGETHER):
            array.var = self._vars.setdefault(kind, Var(kind))
        self.clear(array)
        return array

    def clear(self, array: NDArray) -> None:
        """Push: all of `array` becomes 0."""
        if not is_gpu(self._backend):
            array[...] = 0
            return
        backend, storage = self._backend, array.storage
        if storage.size:
            run = backend.issue(lambda: backend.fill(storage, 0), (array.var,))
            get_engine().push(run, (), (array.var,), name="zeros", device=backend.lane)


def staging_of(arrays: Mapping[Key, NDArray], lowered: Lowered) -> Staging:
    """The way of batches to a GPU program's inputs."""
    block: Any = arrays[STAGING].storage
    inputs: dict[str, Any] = {n: arrays["var", n].storage for n in staged(lowered.step)}
    return Staging(block, arrays[STAGING].var, inputs)


@contextmanager
def plan_in_errors(plan: MemoryPlan, backend: Backend) -> Iterator[None]:
    """Inside, an OutOfMemoryError shows what the plan wanted the memory for, and what is free."""
    try:
        yield
    except OutOfMemoryError as error:
        lines = [str(error), plan.summary()]
        if is_gpu(backend):
            free, total = backend.place.memory()
            lines.append(
                f"{format_bytes(free)} of {format_bytes(total)} are free on {backend.place} now, arrays of "
                f"this process not counted."
            )
            if plan.budget_bytes is None:
                lines.append("With memory_budget= a plan is made that takes no more than that many bytes.")
            elif plan.budget_bytes > free:
                lines.append(f"memory_budget={plan.budget_bytes} is more than is free: a smaller one helps.")
        raise OutOfMemoryError("\n".join(lines)) from None
