"""Optimizer states: one tree of arrays for each parameter, wherever the update runs.

An imperative update keeps them in its Updater. A fused step owns them as variables of its graph; the
Updater then holds those very arrays, so that both save and load alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from ...core import FormatError
from ...core.wanted import found as told
from ...executor import Executor
from ...graph import state_name
from ...graph.update import MASTER
from ...ndarray import NDArray
from ...ndarray.files.stored import StoredArray

_ARRAYS = (NDArray, StoredArray)


def of_fused_step(executor: Executor, optimizer: Any, number: Mapping[str, int]) -> dict[int, Any]:
    """Index of a parameter -> its state, in the form that the optimizer's `create_state` has.

    `number` gives the indices.
    """
    names = optimizer.update_rule().states
    have = executor.optimizer_states
    result: dict[int, Any] = {}
    for parameter in executor.updated:
        arrays = tuple(have[state_name(parameter, s)] for s in names)
        state = optimizer.state_of(arrays)
        master = have.get(state_name(parameter, MASTER))
        result[number[parameter]] = state if master is None else optimizer.with_master(master, state)
    return result


def create(
    optimizer: Any, parameters: Sequence[str], trained: Sequence[str], weights: Mapping[str, NDArray]
) -> dict[int, Any]:
    """Index of a parameter -> a new state, for trained ones; created early, so that they count."""
    chosen = set(trained)
    return {
        i: optimizer.create_state_multi_precision(i, weights[name])
        for i, name in enumerate(parameters)
        if name in chosen
    }


def nbytes(state: Any) -> int:
    """Bytes of all arrays in a tree of lists and tuples."""
    if isinstance(state, NDArray):
        return state.size * np.dtype(state.dtype).itemsize
    return sum(nbytes(s) for s in state) if isinstance(state, (tuple, list)) else 0


def check(source: Any, target: Any, name: Any) -> None:
    """Raise FormatError unless `source` has the form, shapes and types of `target`."""
    if isinstance(target, NDArray):
        if not isinstance(source, NDArray) or (source.shape, source.dtype) != (target.shape, target.dtype):
            _refuse(name, target, source)
    elif isinstance(target, (tuple, list)):
        if not isinstance(source, (tuple, list)) or len(source) != len(target):
            _refuse(name, target, source)
        for s, t in zip(source, target):
            check(s, t, name)
    elif isinstance(source, (NDArray, tuple, list)) or (source is None) != (target is None):
        _refuse(name, target, source)


def _refuse(name: Any, target: Any, source: Any) -> NoReturn:
    must, found = (
        f"{x.shape} of {np.dtype(x.dtype)}"
        if isinstance(x, NDArray)
        else f"a tuple of {len(x)}"
        if isinstance(x, (tuple, list))
        else told(x)
        for x in (target, source)
    )
    raise FormatError(f"The optimizer state of {name!r} must be {must}, but it is {found}.")


def pairs(source: Any, target: Any, name: str) -> Iterator[tuple[Any, NDArray]]:
    """(source, target) of the arrays of two trees of equal form. Raises FormatError if they differ."""
    if isinstance(target, NDArray):
        if not isinstance(source, _ARRAYS) or source.shape != target.shape:
            found = source.shape if isinstance(source, _ARRAYS) else told(source)
            raise FormatError(f"The optimizer state of {name!r} must be {target.shape}, but it is {found}.")
        yield source, target
    elif isinstance(target, tuple):
        if not isinstance(source, tuple) or len(source) != len(target):
            raise FormatError(
                f"The optimizer state of {name!r} must be {len(target)} arrays, got {told(source)}."
            )
        for s, t in zip(source, target):
            yield from pairs(s, t, name)
