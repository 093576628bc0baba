"""Elementwise operators and their gradients at 0, -0, infinity, nan, subnormal and huge numbers.

Reference kernels against the functions of numpy and C that they are named after; the CPU's generated code
and the GPU's kernels, on the emulated device, against reference kernels. What may differ: results below TINY,
which some kernels flush to 0; and the sign of a zero that is the larger or the smaller of 0.0 and -0.0
(EITHER_ZERO), since instructions for maxima differ there.
"""

from __future__ import annotations

import dataclasses

import ml_dtypes
import numpy as np
import pytest

import mxlite as mx
from mxlite import ops
from mxlite.backends import Backend
from mxlite.backends.cpu.backend import CPU
from mxlite.backends.cpu.compiled import storable, usable
from mxlite.backends.elementwise.formula import elementwise_operators
from mxlite.core.errors import MXLiteError
from tests.backends.gpu.gpu_case import BACKEND as GPU
from tests.conformance.case import Case
from tests.conformance.conformance import Call, gradient_inputs, kernels_of, operators
from tests.emulators.emulated_device import compiler

REFERENCE = Backend("reference", np, {})
TOLERANCE = {"float64": 1e-13, "float32": 3e-6, "float16": 2e-3, "bfloat16": 1.6e-2}
TINY = {"float64": 1e-300, "float32": 1e-36, "float16": 1e-6, "bfloat16": 1e-36}
VALUES = {
    "scalar": (2.0, 0.5, -1.0, 3.25, 0.0, -0.0, np.inf, np.nan),
    "act_type": ("relu", "sigmoid", "tanh", "softrelu", "softsign", "leaky", "elu", "selu", "gelu"),
    "n": (0, 1, 2),
}
"""Values that a parameter takes in turn. Others stay at their defaults, or at those of FIXED."""
FIXED = {"alpha": 0.25, "a_min": -1.0, "a_max": 2.0, "dtype": "float32"}
EITHER_ZERO = ("relu", "Activation", "LeakyReLU", "clip", "_maximum_scalar", "_minimum_scalar",
               "broadcast_maximum", "broadcast_minimum")  # fmt: skip


def dtype_of(kind):
    return np.dtype(getattr(ml_dtypes, kind, kind))


def special(kind):
    """Numbers of every kind in a type, both signs of each."""
    info = ml_dtypes.finfo(dtype_of(kind))
    edges = [float(x) for x in (info.max, info.tiny, info.smallest_subnormal)]
    below_half = 0.5 - float(info.epsneg) / 2
    plain = [0.0, 1.0, 0.5, 1.5, 2.5, below_half, 3.0, 0.5 / float(info.eps) - 0.5, 1e-3, 10.0, 88.8, np.inf]
    found = [*plain, *edges, edges[0] / 2, edges[1] / 2]
    return np.array([*found, *(-x for x in found), np.nan]).astype(dtype_of(kind))


def inputs_of(count, kind):
    """Each number, or each pair: so many that code is generated for them, at all places of a vector."""
    x = special(kind)
    return [np.tile(x, 41)] if count == 1 else [np.repeat(x, len(x)), np.tile(x, len(x))]


def calls(kind):
    """A call for each elementwise operator of one or two inputs, and each value of its parameters."""
    for op in ops.ALL:
        if not op.__module__.startswith("mxlite.ops.elementwise."):
            continue
        named = [f.name for f in dataclasses.fields(op.Attrs)] if op.Attrs else []
        fixed = {n: FIXED[n] for n in named if n in FIXED}
        varied = next((n for n in named if n in VALUES), None)
        for given in [{varied: v} for v in VALUES[varied]] if varied else [{}]:
            try:
                case = Case(op, given | fixed)
                names = op.input_names(case.parsed)
                arrays = inputs_of(len(names), kind)
                kinds = dict.fromkeys(names, kind)
                call = Call.of(Case(op, given | fixed, [x.shape for x in arrays], dtypes=kinds))
            except (MXLiteError, ValueError):
                continue  # of whole numbers, of many inputs, of other activations
            yield call, arrays


def stages(call, arrays):
    """The operator and its gradient, with inputs; the gradient of all ones."""
    heads = {f"d_{n}": np.ones(s, d) for n, s, d in zip(call.names()[1], call.shapes[1], call.dtypes[1])}
    for op in operators(call):
        with kernels_of(REFERENCE):
            ins = (
                dict(zip(call.names()[0], arrays)) if op is call.op else gradient_inputs(call, arrays, heads)
            )
        yield op, ins


def expected(call, op, ins, kind):
    """The reference kernel's outputs; those of 16 bits computed in float32, as generated code does."""
    if kind in ("float64", "float32"):
        with kernels_of(REFERENCE):
            return call.execute(op, ins)[0]
    wide = dataclasses.replace(call, dtypes=tuple(tuple(map(_widened, ds)) for ds in call.dtypes))
    with kernels_of(REFERENCE):
        made, _ = wide.execute(op, {n: x.astype(_widened(x.dtype)) for n, x in ins.items()})
    layout = call.layout()
    with np.errstate(all="ignore"):
        return {n: y.astype(layout[n][1]) for n, y in made.items()}


def _widened(dtype):
    return np.dtype("float32") if dtype.itemsize == 2 else dtype


def differences(got, want, kind, zeros):
    """The places where two results differ beyond what may differ."""
    a, b = got.reshape(-1).astype("d"), want.reshape(-1).astype("d")
    with np.errstate(all="ignore"):
        near = np.abs(a - b) <= TOLERANCE[kind] * np.maximum(np.abs(a), np.abs(b))
        vanish = (np.abs(a) < TINY[kind]) & (np.abs(b) < TINY[kind])
    equal = (a == b) | (np.isnan(a) & np.isnan(b)) | (np.isfinite(a) & np.isfinite(b) & (near | vanish))
    if not zeros:
        equal &= ~((a == 0) & (b == 0) & (np.signbit(a) != np.signbit(b)))
    return np.flatnonzero(~equal)


def compared(backend, kind):
    """Names of the operators that have kernels of their own. Fails with all that differs."""
    found, failed = set(), []
    for call, arrays in calls(kind):
        for op, ins in stages(call, arrays):
            with kernels_of(backend):
                if call.kernel(op).is_reference:
                    continue
                made, _ = call.execute(op, ins)
            found.add(op.op_name)
            for n, want in expected(call, op, ins, kind).items():
                either = (op.forward_op or op).op_name in EITHER_ZERO
                for i in differences(made[n], want, kind, either)[:2]:
                    at = {m: x.flat[i] for m, x in ins.items() if x.size == want.size}
                    failed.append(
                        f"{op.op_name} {call.attrs} {n}: {want.flat[i]}, not {made[n].flat[i]}, of {at}"
                    )
    assert not failed, "\n".join(failed)
    return found


def _away(x):
    """The nearest whole number, halves away from zero."""
    with np.errstate(all="ignore"):
        return np.copysign(np.floor(np.abs(x) + 0.5), x)


def _down(x):
    """The nearest whole number, halves down."""
    with np.errstate(all="ignore"):
        return np.where(np.isfinite(x), np.copysign(np.ceil(x - 0.5), x), x)


SAME = """sin cos tan arcsin arccos arctan sinh cosh tanh arcsinh arccosh arctanh exp expm1 log log1p log2
    log10 sqrt cbrt floor ceil trunc sign negative square reciprocal degrees radians isnan isinf isfinite
    logical_not"""  # those that numpy calls by the same name
FUNCTIONS = {n: getattr(np, n) for n in SAME.split()} | {
    "abs": np.abs, "fix": np.trunc, "round": _away, "rint": _down, "rsqrt": lambda x: 1 / np.sqrt(x),
    "rcbrt": lambda x: 1 / np.cbrt(x), "broadcast_add": np.add, "broadcast_sub": np.subtract,
    "broadcast_mul": np.multiply, "broadcast_div": np.divide, "broadcast_maximum": np.maximum,
    "broadcast_minimum": np.minimum, "broadcast_hypot": np.hypot, "arctan2": np.arctan2,
    "broadcast_power": np.power, "fmod": np.fmod,
    "broadcast_mod": lambda x, y: np.where(y == 0, 0, np.remainder(x, y)),
    **{f"broadcast_{n}": getattr(np, f) for n, f in (("equal", "equal"), ("not_equal", "not_equal"),
       ("greater", "greater"), ("greater_equal", "greater_equal"), ("lesser", "less"),
       ("lesser_equal", "less_equal"), ("logical_and", "logical_and"), ("logical_or", "logical_or"),
       ("logical_xor", "logical_xor"))},
}  # fmt: skip


@pytest.mark.parametrize("kind", ["float32", "float16"])
def test_reference_kernels_are_the_functions_that_they_are_named_after(kind):
    """In float64, and rounded. The round of infinity was nan, and rint of the number above -0.5 was -1."""
    failed = []
    for name, function in FUNCTIONS.items():
        op = ops.find_op(name)
        count = len(op.input_names(Case(op, {}).parsed))
        arrays = inputs_of(count, kind)
        names = op.input_names(Case(op, {}).parsed)
        call = Call.of(Case(op, {}, [x.shape for x in arrays], dtypes=dict.fromkeys(names, kind)))
        with kernels_of(REFERENCE):
            (made,) = call.execute(op, dict(zip(names, arrays)))[0].values()
        with np.errstate(all="ignore"):
            want = np.asarray(function(*(x.astype("d") for x in arrays))).astype(made.dtype)
        for i in differences(made, want, kind, name in EITHER_ZERO)[:2]:
            failed.append(f"{name}: {want[i]}, not {made[i]}, of {[x[i] for x in arrays]}")
    assert not failed, "\n".join(failed)


def test_a_power_of_one_half_is_no_root():
    """Whatever numpy makes of it: pow of C gives 0.0 of -0.0, and inf of -inf."""
    for kind in ("float64", "float32", "float16", "bfloat16"):
        x = special(kind)
        call = Call.of(Case(ops.find_op("_power_scalar"), {"scalar": 0.5}, [x.shape], dtypes={"data": kind}))
        with kernels_of(REFERENCE):
            made = call.execute(call.op, {"data": x})[0]["out"].astype("d")
        x = x.astype("d")
        assert not np.signbit(made[x == 0]).any() and (made[np.isinf(x)] == np.inf).all()
        assert np.isnan(made[(x < 0) & np.isfinite(x)]).all()


@pytest.mark.skipif(not usable(), reason="llvmlite is not installed")
@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16"])
def test_generated_code_of_the_cpu_agrees(kind):
    if kind not in storable():
        pytest.skip(f"this machine does not load {kind}")
    found = compared(CPU, kind)
    elementwise = {
        o.op_name
        for o in elementwise_operators()
        if (o.forward_op or o).__module__.startswith("mxlite.ops.element")
    }
    assert len(found & elementwise) > 0.8 * len(elementwise), sorted(elementwise - found)


@pytest.mark.skipif(compiler is None, reason="g++ is not installed")
@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_kernels_of_the_gpu_agree(kind):
    """Those of 16 bits compute in float32: what is different about them is how they are read and written."""
    assert {"round", "rint", "polygamma", "_backward_digamma", "sign", "tanh"} <= compared(GPU, kind)


@pytest.mark.parametrize("size", [2, 2000])
def test_constants_of_both_zeros_in_one_graph_keep_their_signs(size):
    """Their attributes are equal, so that one kernel would do for both."""
    x = mx.sym.Variable("x")
    bound = mx.sym.Group([x * 0.0, x * -0.0]).bind(mx.cpu(), {"x": mx.nd.ones((size,))})
    assert [np.signbit(y.asnumpy()).tolist() for y in bound.forward()] == [[False] * size, [True] * size]
