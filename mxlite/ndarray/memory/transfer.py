"""Fills and copies of elements, also between devices.

A copy within a device is an operation of its lane. One between host and device, or between two devices, is an
operation of kind "copy" on the device's lane: its worker waits until the copy is complete.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...backends import Backend
from ...engine import get_engine, Var
from .storage import RawArray, Storage


def push_on(
    backend: Backend,
    run: Callable[[], object],
    reads: Sequence[Var],
    writes: Sequence[Var],
    *,
    name: str,
    kind: str = "compute",
    others: Sequence[Var] = (),
) -> None:
    """Push a closure on a device's lane. `others` are also read: Vars of arrays on another device."""
    if backend.is_remote:
        run = backend.issue(run, (*reads, *writes))
        kind = "compute"
    get_engine().push(run, (*reads, *others), writes, name=name, device=backend.lane, kind=kind)


def push_fill(
    into: Storage, value: float, *, name: str, place: Any = None, reads: Sequence[Var] = ()
) -> None:
    """Push a fill: every element of `into`, or of a part of it, becomes `value`."""
    backend = into.backend
    target = into.storage if place is None else place
    if into.partial:
        reads = (*reads, into.var)
    push_on(backend, partial(_fill, backend, target, value), reads, (into.var,), name=name)


def _fill(backend: Backend, target: RawArray, value: float) -> None:
    with np.errstate(all="ignore"):
        backend.fill(target, value)


def push_copy(
    source: Storage,
    into: Storage,
    *,
    name: str,
    values: Any = None,
    place: Any = None,
    reads: Sequence[Var] = (),
    kind: str = "copy",
) -> None:
    """Push a copy: elements of `source`, converted and broadcast, to `into`.

    `values` is the array of `source` if that is seen with other axes, `place` the part of `into` that is
    written; `read` are other Vars that are read.
    """
    backend, sender = into.backend, source.backend
    given = source.storage if values is None else values
    target = into.storage if place is None else place
    if into.partial:
        reads = (*reads, into.var)
    if backend is sender:
        run = partial(backend.assign, target, given)
        push_on(backend, run, (source.var, *reads), (into.var,), name=name, kind=kind)
        return
    device = backend if backend.is_remote else sender
    run = partial(backend.receive, target, given, sender, into.var, source.var)
    get_engine().push(run, (source.var, *reads), (into.var,), name=name, device=device.lane, kind="copy")


def push_values(
    values: RawArray, into: Storage, *, name: str, place: Any = None, reads: Sequence[Var] = ()
) -> None:
    """Push a copy of a numpy array, which must not change any more, to `into`, or to a part of it."""
    backend = into.backend
    target = into.storage if place is None else place
    if into.partial:
        reads = (*reads, into.var)
    run = partial(backend.from_host, target, values, into.var)
    get_engine().push(
        run,
        reads,
        (into.var,),
        name=name,
        device=backend.lane,
        kind="copy" if backend.is_remote else "compute",
    )


def put(values: Any, into: Storage, *, name: str) -> None:
    """Push a copy of an array-like to all of a new array. The source may change afterwards."""
    if into.backend.is_remote:
        with np.errstate(all="ignore"):
            copied = np.array(values, dtype=into.storage.dtype, order="C")
        push_values(copied, into, name=name)
    else:
        into.backend.from_host(into.storage, values)
