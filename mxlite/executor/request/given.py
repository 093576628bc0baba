"""Arrays from outside: a user's, or those of another executor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count as counter
from typing import Any

from ...core import BindError, nearest
from ...core.errors import refuse_misspelt
from ...core.wanted import wanted
from ...graph import Graph
from ...graph.rewrite import Rewriter
from ...ndarray import NDArray
from ..executor import Executor
from ..plan.candidates import Planned
from ..plan.step import Key


def check_apart(
    grads: Mapping[str, NDArray], requests: Mapping[str, str], others: Mapping[str, NDArray]
) -> None:
    """Raise BindError if a gradient would overwrite another, or one of the `others`, arguments
    and auxiliary states: both would be wrong."""
    by_var: dict[Any, list[str]] = {}
    read: dict[Any, list[str]] = {}
    for name, array in others.items():
        read.setdefault(array.var, []).append(name)
    for name, grad in grads.items():
        if requests[name] == "null":
            continue
        for other in read.get(grad.var, ()):
            if grad.backend.overlap(grad.storage, others[other].storage):
                raise BindError(
                    f"args_grad: the gradient of {name!r} has memory in common with {other!r} itself, and "
                    f"would be written over it. Give it an array of its own."
                )
        for other in by_var.setdefault(grad.var, []):
            overlap = grad.backend.overlap(grad.storage, grads[other].storage)
            if overlap and "write" in (requests[name], requests[other]):
                raise BindError(
                    f"args_grad: the gradients of {other!r} and {name!r} have memory in common, and "
                    f"grad_req is {requests[other]!r} and {requests[name]!r}: one would be written over the "
                    f"other. Give each an array of its own, or grad_req='add' to both for their sum."
                )
        by_var[grad.var].append(name)


def told_apart(graph: Graph) -> Graph:
    """`graph` with another name for each of several arguments of one name: `data[0]`, `data[1]`.

    Lists give arrays to them by position. Neither keeps the old name, by which somebody may mean any of them.
    """
    count = Counter(n.name for n in graph.arguments)
    if len(count) == sum(count.values()):
        return graph
    numbers = {n: counter() for n, c in count.items() if c > 1}
    rewriter = Rewriter(graph)
    arguments = set(graph.arguments)
    for node in graph.nodes:
        if node in arguments and node.name in numbers:
            rewriter.replace(node, replace(node, name=f"{node.name}[{next(numbers[node.name])}]"))
        else:
            rewriter.keep(node)
    return rewriter.graph(ordered=graph.order is not None)


def plain(arrays: Mapping[str, NDArray]) -> dict[str, NDArray]:
    """The arrays themselves; dense copies of sparse ones, because a program has no others."""
    return {n: a.plain() for n, a in arrays.items()}


def shared_arrays(shared_exec: Executor, planned: Planned, inputs: set[str]) -> dict[Key, NDArray]:
    """Parameters, gradients and states of another executor that have the same shape and type here.

    Raises BindError if one lies on another of several devices.
    """
    found = {
        k: a
        for k, a in shared_exec._arrays.items()
        if k[0] in ("var", "grad")
        and k[1] not in inputs
        and k in planned.train.step.owned
        and planned.train.step.owned[k] == (a.shape, a.storage.dtype)
    }
    asked = planned.asked
    for (_, name), array in found.items() if asked.devices.are_several else ():
        if array.context != asked.context:
            raise BindError(
                f"shared_exec has {name!r} on {array.context}, but here it would be on {asked.context}: "
                f"bind both with one group2ctx."
            )
    return found


def by_name(arrays: Any, names: Sequence[str], what: str, complete: bool) -> dict[str, NDArray]:
    """A dict from a list in order or a dict, in which other names are ignored, as in MXNet.

    Errors name missing arrays, and values that are no arrays.
    """
    if arrays is None:
        arrays = {}
    if isinstance(arrays, Mapping):
        result = {n: arrays[n] for n in names if n in arrays}
        if not complete:
            refuse_misspelt(what, arrays, names)
    else:
        wanted(what, arrays, "a list or a dict of NDArrays", list, tuple)
        if len(arrays) != len(names):
            raise BindError(
                f"{what} has {len(arrays)} arrays, but the symbol lists {len(names)}: {list(names)}."
            )
        result = dict(zip(names, arrays))
    if complete and (missing := [n for n in names if n not in result]):
        other = [n for n in arrays if n not in names] if isinstance(arrays, Mapping) else ()
        raise BindError(f"{what} lacks {missing}.{nearest(missing[0], other)}")
    for name, a in result.items():
        if (complete or a is not None) and not isinstance(a, NDArray):
            raise BindError(f"{what}: {name!r} must be an NDArray, got {type(a).__name__}.")
    return result
