"""The arrays that a program owns outside the arena, created at bind."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from math import prod
from typing import Any, TYPE_CHECKING

import numpy as np

from ...backends import Backend, Remote
from ...backends.remote import Staging
from ...core import Context, OutOfMemoryError
from ...core.bytesize import format_bytes
from ...engine import get_engine, Var
from ...graph import Shape
from ...memplan import MemoryPlan
from ...ndarray import NDArray
from ..plan.lower import Lowered, staged, STAGING
from ..plan.step import Key

if TYPE_CHECKING:
    from ..plan.candidates import Planned

# Kinds of arrays that have one Var for all of a program: on the CPU those that are not written one by one.
_TOGETHER = ("optimizer",)
_TOGETHER_ON_REMOTE = ("arguments", "auxiliary", "optimizer", "gradients", "metrics")


Wanted = Iterable[tuple[str, Shape, "np.dtype[Any]"]]
"""Category, shape and type of arrays that are to be created."""


def shared_blocks(wanted: Wanted, remote: Remote) -> dict[str, int]:
    """Bytes of one block for each kind of arrays that share one on a GPU.

    A driver allocates in pieces of 2 MiB: with some hundred weights and their momentum, each on its own, a
    third could be padding that no plan counts.
    """
    blocks: dict[str, int] = {}
    for kind, shape, dtype in wanted:
        if kind in _TOGETHER_ON_REMOTE:
            blocks[kind] = blocks.get(kind, 0) + _padded(shape, dtype, remote.unit)
    return blocks


def unmade(planned: Planned, there: Collection[Key]) -> list[tuple[str, Shape, np.dtype[Any]]]:
    """Arrays that the programs of a plan own and that do not exist yet."""
    steps = planned.train.step, planned.infer.step
    owned = {key: (step, *kind) for step in steps for key, kind in step.owned.items()}
    return [(s.category.get(k, ""), shape, d) for k, (s, shape, d) in owned.items() if k not in there]


def _padded(shape: Shape, dtype: np.dtype[Any], unit: int) -> int:
    return -(-prod(shape) * dtype.itemsize // unit) * unit


class Allocator:
    """Creates arrays of zeros on one device.

    `wanted` are those that will be requested, so that on a GPU arrays of one kind can lie in one block.

    The states of the optimizer have one Var in one program: the engine's cost of a step grows with the Vars
    of its operations. On a GPU, where a step is one operation, so have the parameters, and the gradients.
    Operations on two of them are ordered then, as they are on the device anyway; clearing the failure of one
    of them clears all.
    """

    def __init__(self, ctx: Context, backend: Backend, wanted: Wanted = ()) -> None:
        self._ctx = ctx
        self._backend = backend
        self._vars: dict[str, Var] = {}
        self._remote = backend.remote
        self._sizes = {} if self._remote is None else shared_blocks(wanted, self._remote)
        self._rest: dict[str, Any] = {}  # what is left of the blocks

    def make(self, key: Key, shape: Shape, dtype: np.dtype[Any], category: Mapping[Key, str]) -> NDArray:
        """The array for `key`. Raises OutOfMemoryError."""
        kind = category.get(key, "")
        array = self._placed(kind, shape, dtype)
        if kind in (_TOGETHER if self._remote is None else _TOGETHER_ON_REMOTE):
            array.var = self._vars.setdefault(kind, Var(kind))
        self.clear(array)
        return array

    def _placed(self, kind: str, shape: Shape, dtype: np.dtype[Any]) -> NDArray:
        if self._remote is None:
            return NDArray.fresh(shape, dtype, self._ctx)
        nbytes, padded = prod(shape) * dtype.itemsize, _padded(shape, dtype, self._remote.unit)
        if kind in self._sizes:
            self._rest[kind] = self._backend.array((self._sizes.pop(kind),), np.dtype(np.uint8))
        rest = self._rest.get(kind)
        if rest is None or rest.size < padded:
            return NDArray.fresh(shape, dtype, self._ctx)
        self._rest[kind] = rest[padded:]
        return NDArray.adopt(rest[:nbytes].view(dtype).reshape(shape), self._ctx)

    def clear(self, array: NDArray) -> None:
        """Push: all of `array` becomes 0."""
        backend, storage = self._backend, array.storage
        if storage.size:
            run = backend.issue(lambda: backend.fill(storage, 0), (array.var,))
            get_engine().push(run, (), (array.var,), name="zeros", device=backend.lane)


def staging_of(arrays: Mapping[Key, NDArray], lowered: Lowered) -> Staging:
    """The way of batches to the inputs of a program on a device of its own memory."""
    remote = lowered.backend.remote
    assert remote is not None
    block: Any = arrays[STAGING].storage
    inputs: dict[str, Any] = {n: arrays["var", n].storage for n in staged(lowered.step)}
    return remote.staging(block, arrays[STAGING].var, inputs)


@contextmanager
def plan_in_errors(plan: MemoryPlan, backend: Backend) -> Iterator[None]:
    """Context in which an OutOfMemoryError shows what the plan needs the memory for, and what is free."""
    try:
        yield
    except OutOfMemoryError as error:
        lines = [str(error), plan.summary()]
        if backend.remote is not None:
            free, total = backend.remote.memory()
            lines.append(
                f"{format_bytes(free)} of {format_bytes(total)} are free on {backend.place} now, arrays of "
                f"this process not counted."
            )
            if plan.budget_bytes is None:
                lines.append("With memory_budget= a plan is made that takes no more than that many bytes.")
            elif plan.budget_bytes > free:
                lines.append(f"memory_budget={plan.budget_bytes} is more than is free: a smaller one helps.")
        raise OutOfMemoryError("\n".join(lines)) from None
