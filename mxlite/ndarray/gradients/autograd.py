"""Gradients of imperative code.

    x.attach_grad()
    with mx.autograd.record():          training mode, and calls go on the tape
        y = (x * x).sum()
    y.backward()
    x.grad                              2 * x

Modes belong to a thread. `tape.py` says what is recorded, `differentiate.py` how backward uses it.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from ...core import DTypeError, ShapeError, StateError
from ...core.wanted import wanted
from ...graph import Graph
from ..calls.invoke import call_of, invoke
from ..ndarray import NDArray
from .attachment import check_req
from .differentiate import run_backward, scope, trace
from .function import Function as Function
from .recompute import checkpoint as checkpoint
from .tape import Leaf, MODE, origin_of


def record(train_mode: bool = True) -> AbstractContextManager[None]:
    """`with record():` calls are recorded, and run as for training unless `train_mode` is False."""
    return scope(True, train_mode)


def pause(train_mode: bool = False) -> AbstractContextManager[None]:
    """`with pause():` inside `record()`: calls are not recorded, and run as for inference."""
    return scope(False, train_mode)


def train_mode() -> AbstractContextManager[None]:
    """`with train_mode():` calls run as for training (Dropout drops); recording stays as it is."""
    return scope(None, True)


def predict_mode() -> AbstractContextManager[None]:
    """`with predict_mode():` calls run as for inference; recording stays as it is."""
    return scope(None, False)


def is_recording() -> bool:
    """True if this thread records."""
    return MODE.recording


def is_training() -> bool:
    """True if this thread's calls run as for training."""
    return MODE.training


def set_recording(is_recording: bool) -> bool:
    """Turn recording on or off; returns the previous setting."""
    return MODE.switch(recording=is_recording)[0]


def set_training(train_mode: bool) -> bool:
    """Turn training mode on or off; returns the previous setting."""
    return MODE.switch(training=train_mode)[1]


def mark_variables(variables: Any, gradients: Any, grad_reqs: Any = "write") -> None:
    """Ask for the gradients of arrays, to be written ('write') or added ('add') to given ones."""
    arrays, grads = _listed(variables), _listed(gradients)
    reqs = [grad_reqs] * len(arrays) if isinstance(grad_reqs, str) else list(grad_reqs)
    if not len(arrays) == len(grads) == len(reqs):
        raise ShapeError(
            f"mark_variables got {len(arrays)} variables, {len(grads)} gradients and {len(reqs)} requests."
        )
    for array, grad, req in zip(arrays, grads, reqs):
        check_req(array, req)
        if grad.shape != array.shape:
            raise ShapeError(f"a variable of shape {array.shape} has a gradient of shape {grad.shape}.")
        if grad.dtype != array.dtype:
            raise DTypeError(f"a variable of {array.storage.dtype} has a gradient of {grad.storage.dtype}.")
    for array, grad, req in zip(arrays, grads, reqs):
        array.origin = (Leaf(grad, req), 0)


def backward(heads: Any, head_grads: Any = None, retain_graph: bool = False, train_mode: bool = True) -> None:
    """Gradients of the sum of `heads` for all arrays that asked for theirs, into their `.grad`.

    `head_grads`: factors of each head's gradient, None for ones. The graph is freed unless
    `retain_graph`. Calls that ran as for training are differentiated as such, whatever `train_mode` says.
    """
    arrays, grads = _heads(heads, head_grads)
    run_backward(arrays, grads, None, retain=retain_graph)


def grad(
    heads: Any,
    variables: Any,
    head_grads: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    train_mode: bool = True,
) -> Any:
    """New arrays with the gradients of the sum of `heads` for `variables`; `.grad` stays as it is.

    A list, for one variable as well: as MXNet 1.9.1 returns it, contrary to its description. With
    `create_graph` the gradients are on the tape themselves, if this thread records: they can be
    differentiated, as far as the operators' derivatives are written with operators (DerivativeError where
    not); that of a gradient which does not depend on its variable, as relu's, is 0. `retain_graph` is as
    `create_graph` unless given.
    """
    arrays, grads = _heads(heads, head_grads)
    asked = _listed(variables)
    origins = []
    for i, v in enumerate(asked):
        origin = origin_of(v)
        if origin is None:
            raise StateError(f"variable {i} is not on the tape: it needs attach_grad() before it is used.")
        origins.append(origin)
    retain = create_graph if retain_graph is None else retain_graph
    gradients = run_backward(arrays, grads, origins, retain=retain, create=create_graph)
    seen: set[int] = {id(g) for g in grads}
    result: list[Any] = []
    for i, g in enumerate(gradients):
        if g is None:
            raise StateError(f"the heads do not depend on variable {i}; it has no gradient.")
        if id(g) in seen:  # a gradient that is the same array as another one, or a head gradient
            with scope(recording=create_graph):
                g = g.copy()  # type: ignore[attr-defined]
        leaf = origins[i][0]
        if isinstance(leaf, Leaf) and g.stype != leaf.grad.stype and not create_graph:
            g = g.tostype(leaf.grad.stype)  # type: ignore[union-attr]
        if create_graph and MODE.recording and origin_of(g) is None:
            g = _constant_in(asked[i], g)
        seen.add(id(g))
        result.append(g)
    return result


def _constant_in(variable: NDArray, value: Any) -> Any:
    """`value` on the tape, as a function of `variable` whose derivative is 0."""
    nowhere = invoke(call_of("zeros_like", {}), (variable,))
    return invoke(call_of("where", {}), (nowhere, variable, value))


def recorded_graph(x: NDArray) -> Graph:
    """The graph that computed an array. Raises StateError if the tape has none."""
    origin = origin_of(x)
    if origin is None:
        raise StateError("this array was not recorded, or its graph is freed.")
    return trace([origin], distinct=True).graph


def _heads(heads: Any, head_grads: Any) -> tuple[list[NDArray], list[NDArray | None]]:
    arrays = _listed(heads)
    for head in arrays:
        wanted("A head", head, "an NDArray", NDArray)
    grads: list[Any] = [None] * len(arrays) if head_grads is None else _listed(head_grads)
    if not arrays or len(grads) != len(arrays):
        raise ShapeError(f"{len(arrays)} heads need as many gradients, got {len(grads)}.")
    return arrays, grads


def _listed(arrays: Any) -> list[Any]:
    listed = [arrays] if isinstance(arrays, NDArray) else arrays
    wanted("What autograd works with", listed, "an NDArray or a list of them", list, tuple)
    for a in listed:
        if a is not None:
            wanted("What autograd works with", a, "an NDArray or a list of them", NDArray)
    return list(listed)
