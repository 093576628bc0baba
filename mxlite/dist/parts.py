"""Arrays of which each rank keeps a part: cut from whole ones, and gathered again.

Which part is said in one place, `comm.own_parts`: of each piece of 256 KiB every rank has a stretch, and its
stretches lie one after another.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from ..comm import current, gather_parts, own_parts, PIECE, WIRE
from ..core import cpu
from ..engine import get_engine
from ..graph import Shape
from ..ndarray import NDArray


def keep_parts(whole: NDArray, own: NDArray) -> None:
    """Write this rank's parts of `whole`, which may be on no other rank, to `own`. Returns at once."""
    if own.context.device_type != "cpu":
        there = NDArray.fresh(own.shape, own.storage.dtype, cpu())
        keep_parts(whole.as_in_context(cpu()), there)
        there.copyto(own)
    elif whole.var is not own.var:
        run = partial(_cut, whole.storage.reshape(-1), own.storage)
        get_engine().push(run, (whole.var,), (own.var,), name="parts of a rank")


def gathered(own: NDArray, shape: Shape) -> NDArray:
    """A new array of `shape`, of which every rank has its parts in `own`. All ranks call it. Returns at once.

    It is in host memory: that of a device is the plan's.
    """
    own = own.as_in_context(cpu())
    whole = NDArray.fresh(shape, own.storage.dtype, own.context)
    run = partial(gather_parts, current(), own.storage, whole.storage.reshape(-1))
    get_engine().push(run, (own.var,), (whole.var, WIRE), name="gather over ranks", kind="io")
    return whole


def _cut(whole: Any, own: Any) -> None:
    comm, done = current(), 0
    for part in own_parts(whole.size, PIECE // whole.itemsize, comm.size, comm.rank):
        length = part.stop - part.start
        own[done : done + length] = whole[part]
        done += length
    own[done:] = 0
