"""Comparison of one symbol on several devices and in several dtypes; and its speed."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..core import BindError
from ..core.errors import RangeError
from ..core.log import Log
from ..ndarray import array, waitall
from ..symbol import Symbol
from .comparison import assert_almost_equal
from .tolerances import default_context, get_tols, Tolerance

_log = Log(__name__)


def check_consistency(
    sym: Symbol | Sequence[Symbol],
    ctx_list: Sequence[Mapping[str, Any]],
    scale: float = 1.0,
    grad_req: Any = "write",
    arg_params: dict[str, Any] | None = None,
    aux_params: dict[str, Any] | None = None,
    rtol: Tolerance = None,
    atol: Tolerance = None,
    raise_on_err: bool = True,
    ground_truth: Mapping[str, Any] | None = None,
    equal_nan: bool = False,
    use_uniform: bool = False,
    rand_type: Any = np.float64,
) -> Mapping[str, Any]:
    """AssertionError unless outputs and gradients agree in every entry of `ctx_list`; returns the truth.

    An entry has the arguments of `simple_bind`: {"ctx": mx.cpu(), "data": (2, 3), "type_dict": {"data":
    "float16"}}. The truth is `ground_truth`, or the result of the most precise dtype's first entry. Arguments
    not in `arg_params` are random. Tolerances are those of the less precise side. Without `raise_on_err`
    disagreements are logged.
    """
    if len(ctx_list) < 2:
        raise RangeError(f"check_consistency compares at least two entries, got {len(ctx_list)}.")
    symbols = [sym] * len(ctx_list) if isinstance(sym, Symbol) else list(sym)
    if len(symbols) != len(ctx_list):
        raise RangeError(f"{len(ctx_list)} entries need as many symbols or one, got {len(symbols)}.")
    outputs, arguments = symbols[0].list_outputs(), symbols[0].list_arguments()
    for s in symbols:
        if (s.list_outputs(), s.list_arguments()) != (outputs, arguments):
            raise BindError("The symbols must have the same arguments and outputs, by name.")
    executors = [s.simple_bind(grad_req=grad_req, **entry) for s, entry in zip(symbols, ctx_list)]
    _fill(executors, scale, arg_params, aux_params, use_uniform, rand_type)
    dtypes = [np.dtype(e.outputs[0].dtype) for e in executors]
    truth_at = max(range(len(dtypes)), key=lambda i: (dtypes[i].itemsize, -i))

    def compare(part: str, values: Sequence[Mapping[str, Any]], truth: Mapping[str, Any]) -> None:
        for i, value in enumerate(values):
            for name in value if i != truth_at or ground_truth is not None else ():
                _agree(
                    f"{part} {name!r} of entry {i} (truth: {truth_at})",
                    value[name],
                    truth.get(name),
                    dtypes[i],
                )

    def _agree(what: str, found: Any, truth: Any, dtype: np.dtype[Any]) -> None:
        if found is None or truth is None:
            return
        # An expected array that is more precise than the result is compared at the result's precision.
        least = min((np.dtype(found.dtype), dtype, dtypes[truth_at]), key=lambda d: d.itemsize)
        tolerances = get_tols(np.empty(0, least), truth, rtol, atol)
        try:
            assert_almost_equal(found, truth, *tolerances, equal_nan=equal_nan)
        except AssertionError as error:
            if raise_on_err:
                raise AssertionError(f"{what}: {error}") from None
            _log.error("%s: %s", what, error)

    def copied(values: Mapping[str, Any]) -> dict[str, Any]:
        return {k: None if v is None else v.asnumpy() for k, v in values.items()}

    for e in executors:
        e.forward(is_train=False)
    inferred = [copied(e.output_dict) for e in executors]
    compare("inference", inferred, inferred[truth_at] if ground_truth is None else ground_truth)
    if grad_req == "null":
        return inferred[truth_at] if ground_truth is None else ground_truth
    for e in executors:
        e.forward(is_train=True)
    least = [
        min((np.dtype(e.outputs[k].dtype) for e in executors), key=lambda d: d.itemsize)
        for k in range(len(outputs))
    ]
    heads = [o.asnumpy().astype(d) for o, d in zip(executors[0].outputs, least)]
    for e in executors:
        e.backward([array(h, ctx=e.context, dtype=o.dtype) for h, o in zip(heads, e.outputs)])
    trained = [copied(e.output_dict) | copied(e.grad_dict) for e in executors]
    truth = trained[truth_at] if ground_truth is None else ground_truth
    compare("training", trained, truth)
    return truth


def _fill(
    executors: Sequence[Any],
    scale: float,
    arg_params: dict[str, Any] | None,
    aux_params: dict[str, Any] | None,
    use_uniform: bool,
    rand_type: Any,
) -> None:
    """Give all executors the same arguments and states, in the order of their names."""
    args = {} if arg_params is None else arg_params
    aux = {} if aux_params is None else aux_params
    for name, like in sorted(executors[0].arg_dict.items()):
        if name not in args:
            if use_uniform:
                drawn = np.random.uniform(-0.92 * scale, 0.92 * scale, size=like.shape)  # noqa: NPY002
            else:
                drawn = np.random.normal(size=like.shape, scale=scale)  # noqa: NPY002
            args[name] = drawn.astype(rand_type)
    for exe in executors:
        for name, target in exe.arg_dict.items():
            target[:] = np.asarray(args[name]).astype(target.dtype)
        for name, target in exe.aux_dict.items():
            target[:] = aux.get(name, 0)
        for grad in exe.grad_dict.values():
            if grad is not None:
                grad[:] = 0


def check_speed(
    sym: Symbol,
    location: Mapping[str, np.ndarray] | None = None,
    ctx: Any = None,
    N: int = 20,
    grad_req: Any = None,
    typ: str = "whole",
    **kwargs: Any,
) -> float:
    """Seconds of one forward and backward (`typ` "whole") or one inference ("forward"), the mean of N.

    `location`: all arguments by name; without it they are random, and `kwargs` are shapes.
    """
    if typ not in ("whole", "forward"):
        raise RangeError(f"typ is 'whole' or 'forward', got {typ!r}.")
    ctx = ctx or default_context()
    shapes = kwargs if location is None else {k: v.shape for k, v in location.items()}
    exe = sym.simple_bind(ctx, grad_req=grad_req or "write", **shapes)
    if location is None:
        location = {k: np.random.normal(size=a.shape) for k, a in exe.arg_dict.items()}  # noqa: NPY002
    for name, value in location.items():
        exe.arg_dict[name][:] = np.asarray(value).astype(exe.arg_dict[name].dtype)
    heads = [o.copy() for o in exe.forward(is_train=False)]

    def run() -> None:
        exe.forward(is_train=typ == "whole")
        if typ == "whole":
            exe.backward(heads)

    run()
    waitall()
    began = time.perf_counter()
    for _ in range(N):
        run()
    waitall()
    return (time.perf_counter() - began) / N
