"""Code generated from reference kernels' formulas, against these formulas computed by numpy."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mxlite import ops
from mxlite.backends.cpu.compiled import call, load, Module, storable
from mxlite.backends.cpu.compiled.codegen.doubles import Doubles
from mxlite.backends.cpu.compiled.codegen.ir import ConstantValue
from mxlite.backends.cpu.compiled.codegen.traced import Tracer
from mxlite.backends.cpu.compiled.random import samplers
from mxlite.backends.cpu.compiled.random.parameters import PIECE
from mxlite.backends.cpu.compiled.random.streams import FastStream
from mxlite.backends.cpu.kernels.generated import compiled_densities, compiled_random, compiled_special
from mxlite.backends.cpu.runtime import threads
from mxlite.core.dtype import as_dtype
from mxlite.core.machine_code import native
from mxlite.ops.random import distributions
from mxlite.ops.random.philox import RandomStream
from tests.backends.cpu import fast_kernels
from tests.conformance.case import Case
from tests.conformance.conformance import Call

pytestmark = pytest.mark.skipif(not native.available(), reason="llvmlite is not there")

KINDS = ("float32", "float64", "bfloat16", "float16")
NEARLY = {"float64": 1e-10}  # relative; others are equal, but where float64 lies between two of them


def traced(formula, x):
    """formula(xp, x) by generated code."""
    module = Module()
    f = module.function("formula")
    d = Doubles(f)
    xp = Tracer(d)
    source, target = f.pointer(0), f.pointer(1)

    def body(index, mask):
        d.store(formula(xp, xp.real(d.load(source, index, mask))).value, target, index, mask)

    f.sweep(*f.share(f.integer(2)), body)
    f.done()
    f.prune()
    out = np.empty_like(x)
    call(load(module), "formula", [x.ctypes.data, out.ctypes.data, x.size], 1)()
    return out


def spread(low, high, count=4001):
    return np.random.default_rng(7).uniform(low, high, count)


@pytest.mark.parametrize(
    "name, arguments, ulps",
    [
        ("exp", np.concatenate([spread(-744, 709), spread(-1, 1)]), 2),
        ("log", np.concatenate([np.exp(spread(-740, 700)), spread(0.4, 3)]), 2),
        ("log1p", np.concatenate([spread(-0.99, 9), spread(-1e-9, 1e-9)]), 3),
        ("sin", np.concatenate([spread(-1000, 1000), spread(-1e-5, 1e-5)]), 3),
        ("cos", spread(-1000, 1000), 3),
        ("tan", spread(-1.57, 1.57), 5),
    ],
)
def test_functions_of_float64_are_right_to_the_last_places(name, arguments, ulps):
    want = getattr(np, name)(arguments)
    got = traced(lambda xp, x: getattr(xp, name)(x), arguments)
    normal = np.abs(want) > 1e-300
    assert np.max(np.abs(got - want)[normal] / np.spacing(np.abs(want))[normal]) <= ulps
    np.testing.assert_allclose(got[~normal], want[~normal], rtol=1e-15, atol=1e-320)


@pytest.mark.parametrize("name", ["exp", "log", "log1p"])
def test_functions_of_float64_know_special_numbers(name):
    x = np.array([0, -0.0, np.inf, -np.inf, np.nan, -1, 5e-324, 1e-310, 710, -746, 1.7e308, -1e308])
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(traced(lambda xp, v: getattr(xp, name)(v), x), getattr(np, name)(x), 1e-15)


def test_powers():
    x = spread(1e-3, 200)
    got = traced(lambda xp, v: xp.power(v, 0.5 * v - 0.25), x)
    np.testing.assert_allclose(got, x ** (0.5 * x - 0.25), rtol=1e-13)


def test_what_numpy_changes_in_place_is_changed_for_all_who_hold_it():
    def formula(xp, x):
        y = x + 0.0
        again = y
        for _ in range(3):
            y += y < 0.5
        return again + xp.where((x > 0.25) & ~(x > 0.75), 10.0, 0.0)

    x = np.linspace(-2, 1, 53)
    np.testing.assert_array_equal(traced(formula, x), formula(np, x.copy()))


def test_what_a_loop_takes_from_before_it_is_made_anew_behind_it():
    f = Module().function("ahead")
    with f.ahead(lambda: f.binary("add", 1, 2)):
        assert f.binary("add", 1, 2) is f.binary("add", 1, 2)
        assert f.binary("add", 1, 2).name == "%v1"
        assert f.binary("add", 1, 3) is not f.binary("add", 1, 3)
        assert f.binary("sub", 1, 2).name != "%v1" and f.is_("slt", 1, 2) is not f.is_("sgt", 1, 2)
    assert f.binary("add", 1, 2).name != "%v1"


def test_values_of_two_types_do_not_meet():
    f = Module().function("typed")
    with pytest.raises(AssertionError, match=r"float.*and i64 5"):
        f.binary("fadd", f.const(2.0), f.value(5))
    with pytest.raises(AssertionError):
        f.either(f.is_("eq", f.thread, 0), f.thread, f.arg("args"))


def test_numbers_are_constants_of_the_type_they_meet():
    f = Module().function("constants")
    assert f.const(2.0) is f.const(2.0) and isinstance(f.const(2.0), ConstantValue)
    assert f.binary("and", f.as_int(f.const(2.0)), 16).type is f.ints
    assert f"and {f.ints} %v1, splat (i32 16)" in f.text()
    assert f.plus(f.thread, 0) is f.thread and f.times(3, 4) == 12 and f.times(f.thread, 0) == 0


def test_what_nobody_uses_is_left_out():
    f = Module().function("pruned")
    kept = f.binary("add", 1, 2)
    f.binary("add", f.binary("add", 1, 3), 4)
    with f.loop(0, kept, carried=[5]) as loop:
        loop.again(f.plus(loop.values[0], 6))
    f.done()
    f.prune()
    text = f.text()
    assert all(f", {k}" in text for k in (2, 6)) and not any(f", {k}\n" in text for k in (3, 4))


def test_tables_are_read():
    table = np.array([3.0, 1.0, 4.0, 1.5])
    x = np.array([0.0, 3, 2, 1, 1, 2, 0] * 5)
    got = traced(lambda xp, v: xp.take(table, v.astype("int64")), x)
    np.testing.assert_array_equal(got, table[x.astype(int)])


def test_float16_is_rounded_once():
    """Between two float16 numbers, and beside the middle by less than a float32 shows."""
    middle = 1 + 2.0**-11
    x = np.array([middle, middle + 2.0**-40, middle - 2.0**-40, -middle - 2.0**-40, 0, 65519.99999999, 1e-9])
    if "float16" not in storable():
        return
    module = Module()
    f = module.function("narrow")
    d = Doubles(f)
    source, target = f.pointer(0), f.pointer(1)
    f.sweep(
        *f.share(f.integer(2)),
        lambda i, mask: d.store_as(d.load(source, i, mask), target, i, "float16", mask),
    )
    f.done()
    out = np.empty(x.size, np.float16)
    call(load(module), "narrow", [x.ctypes.data, out.ctypes.data, x.size], 1)()
    np.testing.assert_array_equal(out, x.astype(np.float16))


# -- kernels ---------------------------------------------------------------------------------------------


def equal(got, want):
    for name, x in want.items():
        if x is None:
            continue
        a, b = np.asarray(got[name], np.float64), np.asarray(x, np.float64)
        np.testing.assert_allclose(a, b, rtol=NEARLY.get(str(x.dtype), 0), atol=0, err_msg=name)


def by_code(case, dtype, arrays, heads, kernel):
    """Outputs and gradients on one thread, which are the same on three."""
    found = []
    for count in (1, 3):
        before = threads.set_num_threads(count)
        try:
            assert fast_kernels.kernel_name(Call.of(case, dtype=dtype), "compiled") == kernel
            found.append(fast_kernels.run(case, dtype, "compiled", arrays, heads))
        finally:
            threads.set_num_threads(before)
    for name, x in found[0].items():
        np.testing.assert_array_equal(x.astype("float64"), found[1][name].astype("float64"))
    return found[0]


EDGES = [0, -0.0, 1, 2, -1, -2, -7, 0.5, -0.25, 1e-30, -1e-30, 30, -30.5, np.inf, -np.inf, np.nan]
INVERSES = [0, -0.0, 1, -1, 1.5, 1 - 2.0**-24, -1 + 2.0**-24, 1e-30, np.nan]
SPECIAL = {
    **{op.__name__: (op, {}, (-8, 12), EDGES) for op in (ops.gamma, ops.gammaln, ops.digamma)},
    **{f"polygamma-{n}": (ops.polygamma, {"n": n}, (-6, 9), [1, 2, np.nan]) for n in (0, 1, 3)},
    "erfinv": (ops.erfinv, {}, (-1, 1), INVERSES),
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("name", SPECIAL)
def test_special_functions_are_the_references(name, dtype):
    if dtype == "float16" and dtype not in storable():
        return
    op, attrs, (low, high), edges = SPECIAL[name]
    count = compiled_special.LEAST + 27
    case = Case(op, attrs, [(count,)])
    x = spread(low, high, count)
    x[: len(edges)] = edges
    arrays = [x.astype(as_dtype(dtype))]
    heads = fast_kernels.heads_of(case, dtype)
    got = by_code(case, dtype, arrays, heads, "compiled formula")
    want = fast_kernels.run(case, dtype, "reference", arrays, heads)
    if name == "erfinv" and dtype != "float64":  # the reference's gradient is computed in that type
        slope = np.exp(np.asarray(want["out"], np.float64) ** 2) * (math.sqrt(math.pi) / 2)
        want["d_data"] = (heads["out"].astype("float64") * slope).astype(as_dtype(dtype))
    if name == "polygamma-3" and dtype == "float64":
        want = {n: np.where(np.abs(x) < 1e250, x, got[n]) for n, x in want.items()}  # powers near infinity
    equal(got, want)


LAWS = {
    op.__name__.removeprefix("_random_pdf_"): op for op in compiled_densities.ROWS if op.forward_op is None
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    "few, many, is_log, dtype",
    [
        ((7, 5), (7, 5, 19), False, "float32"),
        ((6,), (6, 97), True, "bfloat16"),
        ((), (PIECE + 37,), False, "float64"),
        ((667,), (667,), True, "float32"),
        ((667,), (667, 1), False, "float16"),
    ],
)
@pytest.mark.parametrize("law", LAWS)
def test_densities_are_the_references(law, few, many, is_log, dtype):
    if dtype == "float16" and dtype not in storable():
        return
    op = LAWS[law]
    count = len(op.inputs) - 1
    parameters = [np.random.default_rng(k).uniform(0.2, 0.8, few) for k in range(count)]
    if law == "uniform":
        parameters[1] += 0.5
    sample = spread(0, 1.5, math.prod(many)).reshape(many)
    if "poisson" in law or "binomial" in law:
        sample = np.floor(sample * 9)
    sample.reshape(-1)[:2] = 0, np.nan
    case = Case(op, {"is_log": is_log}, [many, *[few] * count])
    arrays = [np.asarray(x).astype(as_dtype(dtype)) for x in (sample, *parameters)]
    heads = fast_kernels.heads_of(case, dtype)
    got = by_code(case, dtype, arrays, heads, "compiled density")
    want = fast_kernels.run(case, dtype, "reference", arrays, heads)
    for name, x in want.items():
        a, b = np.asarray(got[name], np.float64), np.asarray(x, np.float64)
        near = NEARLY.get(dtype, 0)
        if name.startswith("d_"):  # sums are added up in another order
            near = {"float32": 2e-7, "float64": 1e-9}.get(dtype, 8e-3)
        np.testing.assert_allclose(a, b, rtol=near, err_msg=name)


def test_gradients_of_a_density_that_nobody_wants_are_not_made():
    op = ops._random_pdf_gamma
    case = Case(op, {}, [(9, 100), (9,), (9,)])
    arrays = [np.full(s, 0.5, np.float32) for s in case.shapes]
    with fast_kernels.only("compiled"):
        c = Call.of(case, dtype="float32")
        kernel = c.kernel(op.grad_op)
        made = np.empty(9, np.float32)
        kernel.run(
            np, c.attrs, arrays[0], *arrays, d_sample=None, d_alpha=None, d_beta=made,
            work=np.empty(kernel.workspace, np.uint8),
        )  # fmt: skip
        kernel.run(
            np, c.attrs, arrays[0], *arrays, d_sample=None, d_alpha=None, d_beta=None,
            work=np.empty(kernel.workspace, np.uint8),
        )  # fmt: skip
    heads = {"out": arrays[0]}
    np.testing.assert_allclose(
        made, fast_kernels.run(case, "float32", "reference", arrays, heads)["d_beta"], 2e-7
    )


# -- random numbers ----------------------------------------------------------------------------------------


def drawn(law, out, *parameters, threads=1):
    """`out` by code and by numpy."""
    state = np.array([2**63 + 5, 2**33 + 1], np.uint64)
    other = out.copy()
    assert FastStream(state, 9, threads).draw(law, out, *parameters)
    work = np.empty(distributions.WORK_BYTES, np.uint8)
    with np.errstate(all="ignore"):
        distributions.draw(np, law, other, RandomStream(state, 9), work, *parameters)
    return out, other


NUMBERS = {
    "uniform": [(-1, 3)],
    "normal": [(1, 2)],
    "exponential": [(4,)],
    "bernoulli": [(0.3,)],
    "gamma": [(0.3, 2.5), (1, 1), (7, 2.5)],
    "poisson": [(0,), (0.2,), (9.9,), (10,), (60,), (1e7,)],
    "negative_binomial": [(3, 0.25), (40, 0.6)],
    "generalized_negative_binomial": [(3, 0.5), (20, 0.1), (5, 0)],
}


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_are_the_references_to_the_bit(name, dtype):
    if dtype == "float16" and dtype not in storable():
        return
    for parameters in NUMBERS[name]:
        got, want = drawn(getattr(distributions, name), np.zeros(2003, as_dtype(dtype)), *parameters)
        rtol = 1e-13 if dtype == "float64" else 0
        np.testing.assert_allclose(
            got.astype("float64"), want.astype("float64"), rtol=rtol, atol=1e-14 * (rtol > 0)
        )


@pytest.mark.parametrize("each", [1, 37, 9001])
@pytest.mark.parametrize("name", ["gamma", "poisson", "negative_binomial", "generalized_negative_binomial"])
def test_numbers_of_many_distributions_are_the_references(name, each):
    count = max(5, 2003 // each)
    law = getattr(distributions, name)
    r = np.random.default_rng(3)
    first, second = r.uniform(-1, 30, count).astype("float32"), r.uniform(-0.2, 1.2, count).astype("float32")
    first[:3] = 0, np.nan, np.inf
    parameters = (first,) if name == "poisson" else (first, second)
    for number in (1, 2):
        got, want = drawn(law, np.zeros((count, each), np.float32), *parameters, threads=number)
        np.testing.assert_array_equal(got, want)
    assert np.isnan(got).any() and np.isfinite(got).any()


@pytest.mark.parametrize("op", compiled_random._LAWS, ids=lambda op: op.op_name)
def test_operators_that_draw_take_generated_code(op):
    count = samplers.LEAST
    inputs = [(count,)] * len(op.inputs)
    case = Case(op, {} if inputs else {"shape": (count,)}, inputs)
    arrays = [np.full(count, 0.5, np.float32) for _ in inputs]
    kernel = "compiled random numbers"
    with fast_kernels.only("compiled"):
        assert Call.of(case, dtype="float32").kernel(op).name == kernel
    made = samplers.code.cache_info().misses
    got = fast_kernels.run(case, "float32", "compiled", arrays)
    assert samplers.code.cache_info().misses == made  # what is run was compiled when the kernel was chosen
    np.testing.assert_array_equal(got["out"], fast_kernels.run(case, "float32", "reference", arrays)["out"])


def test_few_numbers_and_whole_parameters_are_left_to_numpy():
    state = np.zeros(2, np.uint64)
    stream = FastStream(state, 0, 1)
    assert not stream.draw(distributions.poisson, np.empty(3), 4.0)
    assert not stream.draw(distributions.poisson, np.empty(3000), np.full(3000, 4))
