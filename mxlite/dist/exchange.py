"""Arrays that all ranks exchange. Every rank makes the same calls in the same order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from ..comm import Communicator, current, WIRE
from ..core import cpu
from ..core.errors import RangeError
from ..core.wanted import wanted
from ..engine import get_engine, Var
from ..ndarray import NDArray
from .sums import Sums


def allreduce(tensor: NDArray, average: bool = True, name: str | None = None) -> NDArray:
    """A new array with the mean of all ranks' arrays, or their sum without `average`.

    It is added up in the order of the ranks, so that all ranks get the same bits. `name` has no effect.
    """
    result = wanted("allreduce: tensor", tensor, "an NDArray", NDArray).copy()
    Sums([result]).push()
    if average and current().size > 1:
        result /= current().size
    return result


def broadcast(tensor: NDArray, root_rank: int = 0, name: str | None = None) -> NDArray:
    """A new array with what `tensor` holds on rank `root_rank`; shapes and types are the same on all ranks."""
    result = wanted("broadcast: tensor", tensor, "an NDArray", NDArray).copy()
    broadcast_into(result, root_rank)
    return result


def broadcast_parameters(params: Mapping[str, Any], root_rank: int = 0) -> None:
    """Give every rank the parameters of rank `root_rank`, in place.

    params: names to NDArrays, as `get_params` gives them, or a ParameterDict of Gluon. Parameters whose shapes
    are not known yet are left out.
    """
    for key in sorted(params):
        value = params[key]
        if hasattr(value, "list_data"):
            if value.is_initialized:
                for array in value.list_data():
                    broadcast_into(array, root_rank)
        else:
            broadcast_into(wanted(f"broadcast_parameters: {key!r}", value, "an NDArray", NDArray), root_rank)


def broadcast_into(array: NDArray, root_rank: int = 0) -> None:
    """Overwrite `array` by what it holds on rank `root_rank`. Returns at once."""
    comm = current()
    if not 0 <= root_rank < comm.size:
        raise RangeError(f"root_rank must be one of 0 to {comm.size - 1}, got {root_rank}.")
    if comm.size == 1:
        return
    if array.context.device_type != "cpu":  # by the host: this is how a training begins, not how it goes on
        there = array.as_in_context(cpu())
        broadcast_into(there, root_rank)
        there.copyto(array)
        return
    raw = array.storage.reshape(-1).view(np.uint8)
    _push(comm, lambda: comm.broadcast(raw, root_rank), array.var, name="broadcast to ranks")


def barrier() -> None:
    """Wait until everything pushed before is done, and every rank is here."""
    comm, engine = current(), get_engine()
    done = Var("barrier")
    if comm.size > 1:
        _push(comm, comm.barrier, done, name="barrier of ranks")
    engine.wait_all()


def meet(what: str) -> None:
    """Wait until everything pushed before is done, and every rank has called this for `what`, a call in
    words. Raises StateError if one goes on with something else.
    """
    if current().size > 1:
        get_engine().wait_all()
        current().meet(what)


def _push(comm: Communicator, start: Callable[[], Any], *writes: Var, name: str) -> None:
    """Push an operation that starts a request and waits until it is complete."""
    get_engine().push(partial(_run, comm, start), (), (*writes, WIRE), name=name, kind="io")


def _run(comm: Communicator, start: Callable[[], Any]) -> None:
    comm.wait(start())
