"""`mx.nd.contrib.foreach`, `while_loop` and `cond`: Python's loops over arrays, recorded like other code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...core.errors import OpAttributeError, ShapeError
from ...core.nested import describe, flatten, pair, restore
from ..ndarray import NDArray
from .functions import FUNCTIONS


def foreach(body: Callable[..., Any], data: Any, init_states: Any) -> tuple[Any, Any]:
    """A loop over the rows of `data`: ``out, states = body(row, states)``.

    data, init_states: an NDArray, or nested lists of them; data have one length along axis 0.
    Returns (outputs stacked along axis 0, last states), in the body's form; outputs are [] if there are no
    rows.
    """
    arrays, form = _arrays(data, "foreach: data")
    _, state_form = _arrays(init_states, "foreach: init_states")
    if not arrays:
        raise OpAttributeError("foreach: data must be one array or more, got an empty list.")
    lengths = [a.shape[0] if a.shape else -1 for a in arrays]
    if len(set(lengths)) > 1 or lengths[0] < 0:
        raise ShapeError(
            f"foreach goes through arrays of one length, got shapes {[a.shape for a in arrays]}."
        )
    states, steps = init_states, _Steps("foreach: an output of body")
    for t in range(lengths[0]):
        outs, states = pair(body(restore((a[t] for a in arrays), form), states), "foreach: body")
        if _arrays(states, "foreach: a state from body")[1] != state_form:
            raise OpAttributeError(
                f"foreach: body must return states in the form they came in, got {describe(states)}."
            )
        steps.add(outs)
    return steps.stacked(lengths[0]), states


def while_loop(
    cond: Callable[..., Any], func: Callable[..., Any], loop_vars: Any, max_iterations: int | None = None
) -> tuple[Any, Any]:
    """A loop as long as ``cond(*loop_vars)`` is not 0: ``out, loop_vars = func(*loop_vars)``.

    loop_vars: a list of arrays, nested lists, or one array. Returns (outputs stacked along axis 0, last
    loop_vars). Outputs have `max_iterations` rows, those not made are 0 (MXNet leaves them undefined); [] if
    none was made.
    """
    if max_iterations is None:
        raise OpAttributeError("while_loop needs max_iterations: outputs are as long as that.")
    most = int(max_iterations.asscalar() if isinstance(max_iterations, NDArray) else max_iterations)
    variables, form = _arrays(loop_vars, "while_loop: loop_vars")
    if not variables:
        raise OpAttributeError("while_loop: loop_vars must be one array or more, got an empty list.")
    alone = isinstance(loop_vars, NDArray)
    states = [loop_vars] if alone else list(loop_vars)
    steps = _Steps("while_loop: an output of func")
    while steps.count < most and _is_true(cond(*states), "while_loop: what cond returns"):
        outs, new = pair(func(*states), "while_loop: func")
        new = [] if new is None else [new] if isinstance(new, NDArray) else list(new)
        if _arrays(new, "while_loop: a loop_var from func")[1] != ([None] if alone else form):
            raise OpAttributeError(
                f"while_loop: func must return loop_vars in the form they came in, "
                f"{len(states)} of them; got {len(new)}."
            )
        states = new
        steps.add([] if outs is None else outs)
    return steps.stacked(most), states[0] if alone else states


def cond(pred: Any, then_func: Callable[[], Any], else_func: Callable[[], Any]) -> Any:
    """`then_func()` if `pred`, an array of one number, is not 0, else `else_func()`. Waits for `pred`."""
    return then_func() if _is_true(pred, "cond: pred") else else_func()


class _Steps:
    """Outputs of iterations, to be stacked."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.count = 0
        self.form: Any = []
        self.columns: list[list[NDArray]] = []

    def add(self, outs: Any) -> None:
        items, form = _arrays(outs, self.what)
        if self.count == 0:
            self.form, self.columns = form, [[] for _ in items]
        elif form != self.form:
            raise OpAttributeError(
                f"{self.what} must have the same form in each iteration, got {describe(outs)}."
            )
        for column, item in zip(self.columns, items):
            if column and (item.shape, item.dtype) != (column[0].shape, column[0].dtype):
                raise ShapeError(
                    f"{self.what} must stay as it is: {column[0].shape} {column[0].dtype} first, "
                    f"{item.shape} {item.dtype} in iteration {self.count}."
                )
            column.append(item)
        self.count += 1

    def stacked(self, rows: int) -> Any:
        outputs = []
        for column in self.columns:
            parts = [FUNCTIONS["stack"](*column, axis=0)]
            if rows > self.count:
                first = column[0]
                parts.append(
                    FUNCTIONS["_zeros"](
                        shape=(rows - self.count, *first.shape),
                        dtype=str(parts[0].storage.dtype),
                        ctx=first.context,
                    )
                )
            outputs.append(FUNCTIONS["concat"](*parts, dim=0) if len(parts) > 1 else parts[0])
        return restore(iter(outputs), self.form)


def _arrays(value: Any, what: str) -> tuple[list[Any], Any]:
    return flatten(value, lambda x: isinstance(x, NDArray), what)


def _is_true(value: Any, what: str) -> bool:
    if isinstance(value, NDArray):
        if value.size != 1:
            raise ShapeError(f"{what} must be one number, but it is of shape {value.shape}.")
        return bool(value.asscalar())
    return bool(value)
