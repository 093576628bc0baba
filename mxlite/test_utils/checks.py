"""A symbol's values and gradients against expected ones and against finite differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..core import BindError
from ..core.errors import RangeError
from ..executor import Executor
from ..ndarray import array, NDArray
from ..symbol import make_loss, Symbol, Variable
from .comparison import assert_almost_equal
from .tolerances import default_context, default_numeric_eps, get_tolerance, Tolerance

Arrays = Sequence[Any] | Mapping[str, Any]
_PROJECTION = "__random_proj"
_SMALLEST_STEP = 1e-5


def simple_forward(sym: Symbol, ctx: Any = None, is_train: bool = False, **inputs: Any) -> Any:
    """The outputs of a symbol as numpy arrays, a list if there are several. `inputs`: all its arguments."""
    exe = sym.bind(ctx or default_context(), {k: _placed(v, ctx, "asnumpy") for k, v in inputs.items()})
    outputs = [o.asnumpy() for o in exe.forward(is_train=is_train)]
    return outputs[0] if len(outputs) == 1 else outputs


def _placed(value: Any, ctx: Any, dtype: Any) -> NDArray:
    """An NDArray of `dtype`; of the value's own if that is "asnumpy". NDArrays stay as they are."""
    if isinstance(value, NDArray):
        return value
    value = np.asarray(value)
    return array(value, ctx=ctx, dtype=value.dtype if isinstance(dtype, str) else dtype)


def _by_name(what: str, names: Sequence[str], values: Arrays, ctx: Any, dtype: Any) -> dict[str, NDArray]:
    """Values in order or by name, all of them, as NDArrays by name."""
    if isinstance(dtype, str):
        if dtype != "asnumpy":
            raise RangeError(f"dtype is a float type or 'asnumpy', got {dtype!r}.")
    elif np.dtype(dtype).kind != "f":
        raise RangeError(f"dtype is a float type or 'asnumpy', got {dtype!r}.")
    given = dict(values) if isinstance(values, Mapping) else dict(zip(names, values))
    if set(given) != set(names) or len(values) != len(names):
        raise BindError(f"The symbol has the {what} {list(names)}, but {list(given)} are given.")
    return {k: _placed(v, ctx, dtype) for k, v in given.items()}


def _bound(sym: Symbol, location: Arrays, aux_states: Arrays | None, ctx: Any, dtype: Any) -> tuple[Any, Any]:
    """Arguments and auxiliary states (None without) by name."""
    args = _by_name("arguments", sym.list_arguments(), location, ctx, dtype)
    if aux_states is None:
        return args, None
    return args, _by_name("auxiliary states", sym.list_auxiliary_states(), aux_states, ctx, dtype)


def check_symbolic_forward(
    sym: Symbol,
    location: Arrays,
    expected: Arrays,
    rtol: Tolerance = None,
    atol: Tolerance = None,
    aux_states: Arrays | None = None,
    ctx: Any = None,
    equal_nan: bool = False,
    dtype: Any = np.float32,
) -> list[NDArray]:
    """AssertionError unless inference at `location` gives `expected`; returns the outputs."""
    ctx = ctx or default_context()
    args, aux = _bound(sym, location, aux_states, ctx, dtype)
    names = sym.list_outputs()
    wanted = [expected[n] for n in names] if isinstance(expected, Mapping) else list(expected)
    outputs = sym.bind(ctx, args, grad_req="null", aux_states=aux).forward(is_train=False)
    for name, want, output in zip(names, wanted, outputs):
        assert_almost_equal(
            want, output, rtol, atol, (f"EXPECTED_{name}", f"FORWARD_{name}"), equal_nan=equal_nan
        )
    return outputs


def check_symbolic_backward(
    sym: Symbol,
    location: Arrays,
    out_grads: Arrays | None,
    expected: Arrays,
    rtol: Tolerance = None,
    atol: Tolerance = None,
    aux_states: Arrays | None = None,
    grad_req: Any = "write",
    ctx: Any = None,
    grad_stypes: Mapping[str, str] | None = None,
    equal_nan: bool = False,
    dtype: Any = np.float32,
) -> dict[str, NDArray]:
    """AssertionError unless backward at `location` gives `expected`; returns the gradients by name.

    Gradients hold garbage before: with grad_req "add" it is subtracted again, with "null" it must stay.
    grad_stypes: the storage types of gradients that are sparse arrays.
    """
    ctx = ctx or default_context()
    args, aux = _bound(sym, location, aux_states, ctx, dtype)
    names = sym.list_arguments()
    wanted = dict(expected) if isinstance(expected, Mapping) else dict(zip(names, expected))
    requests = _requests(names, grad_req)
    garbage = {k: np.random.normal(size=np.shape(wanted[k])) for k in sorted(wanted)}  # noqa: NPY002
    stypes = grad_stypes or {}
    grads = {
        k: array(v, ctx=ctx, dtype=args[k].dtype).tostype(stypes.get(k) or "default")
        for k, v in garbage.items()
    }
    before = {k: v.asnumpy() for k, v in grads.items()}
    exe = sym.bind(ctx, args, grads, requests, aux)
    exe.forward(is_train=True)
    heads: Any = out_grads
    if isinstance(out_grads, Mapping):
        heads = [_placed(out_grads[n], ctx, dtype) for n in sym.list_outputs()]
    elif out_grads is not None:
        heads = [_placed(g, ctx, dtype) for g in out_grads]
    exe.backward(heads)
    for name, want in wanted.items():
        _compare(requests[name], name, want, grads[name], before[name], rtol, atol, equal_nan, "EXPECTED")
    return grads


def _requests(names: Sequence[str], grad_req: Any) -> dict[str, str]:
    if isinstance(grad_req, str):
        return dict.fromkeys(names, grad_req)
    given = dict(grad_req) if isinstance(grad_req, Mapping) else dict(zip(names, grad_req))
    return {n: given.get(n, "null") for n in names}


def _compare(
    request: str,
    name: str,
    want: Any,
    found: NDArray,
    before: np.ndarray,
    rtol: Tolerance,
    atol: Tolerance,
    equal_nan: bool,
    what: str,
) -> None:
    """Compare a gradient with its expected value, as its request says."""
    if request not in ("write", "add", "null"):
        raise BindError(f"grad_req of {name!r} is 'write', 'add' or 'null', got {request!r}.")
    if request == "null":
        want = before
    got = found.asnumpy() - before if request == "add" else found
    assert_almost_equal(want, got, rtol, atol, (f"{what}_{name}", f"BACKWARD_{name}"), equal_nan=equal_nan)


def numeric_grad(
    executor: Executor,
    location: Mapping[str, np.ndarray],
    aux_states: Mapping[str, Any] | None = None,
    eps: float = 1e-4,
    use_forward_train: bool = True,
    dtype: Any = np.float32,
) -> dict[str, np.ndarray]:
    """Gradient of the sum of the first output, by central differences: (f(x + eps/2) - f(x - eps/2)) / eps.

    location: name -> values; integers get zeros. Two forwards for each element.
    """
    values = {k: np.array(v, order="C") for k, v in location.items()}
    for name, value in values.items():
        executor.arg_dict[name][:] = value.astype(dtype)

    def total(name: str) -> np.ndarray:
        executor.arg_dict[name][:] = values[name].astype(dtype)
        for key, value in (aux_states or {}).items():
            executor.aux_dict[key][:] = value
        return executor.forward(is_train=use_forward_train)[0].asnumpy()

    grads = {k: np.zeros(v.shape, dtype) for k, v in values.items()}
    for name, value in values.items():
        if value.dtype.kind != "f":
            continue
        flat, grad = value.reshape(-1), grads[name].reshape(-1)
        for i, x in enumerate(flat.copy()):
            flat[i] = x + eps / 2
            above = total(name)
            flat[i] = x - eps / 2
            grad[i] = (above - total(name)).sum() / eps
            flat[i] = x
        executor.arg_dict[name][:] = value.astype(dtype)
    return grads


def check_numeric_gradient(
    sym: Symbol,
    location: Arrays,
    aux_states: Arrays | None = None,
    numeric_eps: Tolerance = None,
    rtol: Tolerance = None,
    atol: Tolerance = None,
    grad_nodes: Sequence[str] | Mapping[str, str] | None = None,
    use_forward_train: bool = True,
    ctx: Any = None,
    grad_stype_dict: Mapping[str, str] | None = None,
    dtype: Any = np.float32,
) -> None:
    """AssertionError unless backward agrees with finite differences, for the output times random weights.

    grad_nodes: the arguments to check, all by default, or a dict of their grad_req. dtype: float16, float32
    or float64, which allows the closest look. numeric_eps: the step, 1/512 for float32.
    """
    ctx = ctx or default_context()
    args, aux = _bound(sym, location, aux_states, ctx, dtype)
    aux_values = None if aux is None else {k: v.asnumpy() for k, v in aux.items()}
    if isinstance(grad_nodes, Mapping):
        requests = dict(grad_nodes)
    else:
        requests = dict.fromkeys(sym.list_arguments() if grad_nodes is None else grad_nodes, "write")
    _, out_shapes, _ = sym.infer_shape(**{k: v.shape for k, v in args.items()})
    if out_shapes is None:
        raise BindError("The shapes of the arguments leave that of the output open.")
    # Not near zero: small weights would hide gradients that are wrong.
    weights = np.random.rand(*out_shapes[0]) + 0.1  # noqa: NPY002
    out = make_loss(sym * Variable(_PROJECTION))
    args[_PROJECTION] = array(weights, ctx=ctx, dtype=dtype)
    stypes = grad_stype_dict or {}
    grads = {
        k: array(np.random.normal(0, 0.01, size=args[k].shape), ctx=ctx, dtype=dtype).tostype(  # noqa: NPY002
            stypes.get(k) or "default"
        )
        for k in requests
    }
    before = {k: v.asnumpy() for k, v in grads.items()}
    exe = out.bind(ctx, args, grads, requests, aux)
    exe.forward(is_train=True)
    eps = get_tolerance(exe.outputs[0], numeric_eps, default_numeric_eps())
    if np.dtype(dtype).itemsize < 8 and eps < _SMALLEST_STEP:
        raise RangeError(f"Steps of {eps:g} are lost in {np.dtype(dtype)}; take float64, or at least 1e-5.")
    exe.backward()
    gradients = {k: v.copy() for k, v in grads.items()}
    values = {k: v.asnumpy() for k, v in args.items()}
    differences = numeric_grad(
        exe, {k: values[k] for k in requests}, aux_values, eps, use_forward_train, dtype
    )
    for name, request in requests.items():
        _compare(
            request, name, differences[name], gradients[name], before[name], rtol, atol, False, "NUMERICAL"
        )
