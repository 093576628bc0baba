"""Generated code: every function of it against numpy in float64, loops against loops."""

from __future__ import annotations

from math import erf

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, HealthCheck, settings, strategies as st

import mxlite as mx
from mxlite import ops
from mxlite.backends.base import Request, TileView
from mxlite.backends.cpu import compiled
from mxlite.backends.cpu.backend import CPU
from mxlite.backends.cpu.compiled.calls import team
from mxlite.backends.cpu.compiled.codegen import functions
from mxlite.backends.cpu.compiled.nests import loops
from mxlite.backends.cpu.kernels.generated import computed as rows
from mxlite.backends.elementwise.formula import elementwise_operators
from mxlite.backends.fused.computation import ComputationAttrs, FusedComputation
from mxlite.backends.nests.program import Arrays, is_chain, nests_for
from mxlite.core.machine_code import native
from mxlite.ndarray.calls.plan import Plan
from mxlite.te.computation import Computation, pruned
from mxlite.te.expression import evaluate, Expression, expression_of
from tests.conformance.cases import CASES
from tests.conformance.conformance import Call, stages
from tests.te.formulas import expression, in_order, nests_of_expression, writer

pytestmark = pytest.mark.skipif(not native.available(), reason="llvmlite is not installed")

DTYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
SIZES = (0, 1, 3, 15, 16, 17, 63, 64, 65, 127, 1000, 1023)


def address(x):
    return x.__array_interface__["data"][0]


def compiled_map(emit, dtype="float32", unroll=1, count=1):
    """y = emit(f, *x), element by element, as a function of `count` arrays."""
    module = compiled.Module()
    f = module.function("map")
    *x, y = (f.pointer(k) for k in range(count + 1))
    first, last = f.share(f.integer(count + 1), f.width)
    f.sweep(
        first,
        last,
        lambda i, mask: f.store(emit(f, *(f.load(p, i, dtype, mask) for p in x)), y, i, dtype, mask),
        unroll=unroll,
    )
    f.done()
    code = compiled.load(module)

    def run(*x, threads=1):
        y = np.full_like(x[0], 77)
        compiled.call(code, "map", [*map(address, x), address(y), y.size], threads)()
        return y

    return run


def every_float():
    """A float32 of every kind: each 1499th bit pattern, and the special ones."""
    some = np.arange(0, 2**32, 1499, dtype=np.uint64).astype(np.uint32).view(np.float32)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 1e-45, -1e-45, 3.4028235e38, -3.4028235e38]
    near = np.linspace(-120, 120, 400_001)
    return np.concatenate([some, np.array(special, np.float32), near.astype(np.float32)])


def ulps(found, wanted):
    """The largest distance in units of the last place; what is infinite or NaN must be so in both."""
    with np.errstate(all="ignore"):
        rounded = wanted.astype(np.float32)
    ordinary = np.isfinite(rounded)
    # Just below the largest number it may already be infinite, and the other way round.
    edge = np.abs(wanted) > 3.4028e38
    np.testing.assert_array_equal(found[~ordinary & ~edge], rounded[~ordinary & ~edge])
    at = ordinary & ~edge
    assert np.isfinite(found[at]).all()
    spacing = np.spacing(np.abs(rounded[at])).astype(np.float64)
    return float(np.max(np.abs(found[at] - wanted[at]) / spacing))


def log1p_of(x):
    return np.where(x < 0, np.nan, np.log1p(np.maximum(x, 0)))


def erf_of(x):
    return np.vectorize(erf, otypes=[np.float64])(x)


_CPUS = {  # what code is made for -> what that CPU has
    "this": frozenset(),
    "haswell": frozenset({"avx2", "f16c", "fma"}),
    "x86-64": frozenset({"sse2"}),
}


@pytest.fixture(params=_CPUS)
def cpu(request, monkeypatch):
    """Code for this CPU, and for older ones whose code it runs."""
    name, at = request.param, native.target()
    caches = (compiled.width, compiled.storable, loops._code)
    if name != "this":
        if not at.triple.startswith("x86_64") or not _CPUS[name] <= at.features:
            pytest.skip(f"this CPU is no {name}")
        older = at._replace(cpu=name, features=_CPUS[name], text="")
        monkeypatch.setattr(native, "target", lambda: older)
    for cache in caches:
        cache.cache_clear()
    yield name
    for cache in caches:
        cache.cache_clear()


def test_vectors_are_as_wide_as_registers(cpu):
    assert compiled.width() == {"haswell": 8, "x86-64": 4}.get(cpu, compiled.width())
    assert ("float16" in compiled.storable()) == (cpu != "x86-64" and "float16" in compiled.storable())


@pytest.mark.parametrize(
    "name, oracle, most",
    [
        ("exp", np.exp, 1.2),
        ("expm1", np.expm1, 2.0),
        ("log", np.log, 1.2),
        ("log1p", np.log1p, 2.5),
        ("tanh", np.tanh, 2.5),
        ("sigmoid", lambda x: np.where(x < 0, np.exp(x), 1.0) / (1 + np.exp(-np.abs(x))), 2.5),
        ("softplus", lambda x: np.logaddexp(0, x), 2.5),
        ("erf", erf_of, 2.5),
        ("sqrt", np.sqrt, 0.5),
        ("rsqrt", lambda x: 1 / np.sqrt(x), 1.5),
    ],
)
def test_function_is_within_its_stated_error(name, oracle, most, cpu):
    x = every_float()
    if cpu != "this":
        x = np.ascontiguousarray(x[::5])
    if name == "erf":
        x = np.ascontiguousarray(x[::7])
    with np.errstate(all="ignore"):
        wanted = oracle(x.astype(np.float64))
    found = compiled_map(getattr(functions, name))(x)
    if name == "sigmoid":  # results below the ordinary numbers are 0
        tiny = wanted < 2e-38
        assert (np.abs(found[tiny] - wanted[tiny]) < 1.2e-38).all()
        found, wanted = found[~tiny], wanted[~tiny]
    assert ulps(found, wanted) <= most


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("unroll", [1, 4])
@pytest.mark.parametrize("threads", [1, 2])
def test_sweep_writes_every_element_once_and_none_beside(dtype, unroll, threads, monkeypatch):
    monkeypatch.setenv("MXLITE_NUM_THREADS", str(threads))
    if dtype not in compiled.storable():
        pytest.skip(f"this CPU does not convert {dtype}")
    module = compiled.Module()
    f = module.function("twice")
    x, y = f.pointer(0), f.pointer(1)
    first, last = f.share(f.integer(2), f.width)
    f.sweep(
        first,
        last,
        lambda i, mask: f.store(f.mul(f.load(x, i, dtype, mask), f.const(2.0)), y, i, dtype, mask),
        unroll=unroll,
    )
    f.done()
    code = compiled.load(module)
    rng = np.random.default_rng(0)
    for n in SIZES:
        x = rng.normal(size=n + 3).astype(DTYPES[dtype])
        y = np.full(n + 3, 7, DTYPES[dtype])
        compiled.call(code, "twice", [address(x), address(y), n], threads)()
        np.testing.assert_array_equal(y[:n], x[:n] * DTYPES[dtype](2))
        np.testing.assert_array_equal(y[n:], 7)


# -- expressions


def looped(made, views, dtypes, shape, results):
    """What makes the call of an expression's loop for inputs and outputs."""
    nests = nests_of_expression(made, views, dtypes, shape, results)
    code = loops.Loops(nests)

    def call(*arrays):
        given = in_order(nests, arrays[: len(views)], arrays[len(views) :])
        return code.call([address(x) for x in given], keep=given)

    return call


@st.composite
def expressions(draw):
    """A random expression of three inputs; arguments stay where functions are tame."""
    w, inputs = writer(3)
    values = [*inputs]
    values.append(w.constant(draw(st.sampled_from([0.5, -1.25, 3.0]))))
    for _ in range(draw(st.integers(1, 9))):
        x, y, z = (values[draw(st.integers(0, len(values) - 1))] for _ in range(3))
        kind = draw(st.integers(0, 5))
        if kind == 0:
            made = w(draw(st.sampled_from(["add", "sub", "mul", "max", "min"])), x, y)
        elif kind == 1:
            made = w(draw(st.sampled_from(["tanh", "sigmoid", "erf", "normal", "bell"])), x)
        elif kind == 2:
            made = w(draw(st.sampled_from(["exp", "expm1", "softplus"])), w("min", x, 3.0))
        elif kind == 3:
            how = draw(st.sampled_from(["gt", "ge", "lt", "le", "eq", "ne"]))
            made = w("select", w(how, x, draw(st.sampled_from([0.0, 0.5]))), y, z)
        elif kind == 4:
            made = x / (w("abs", y) + 1)
        else:
            made = w(draw(st.sampled_from(["log", "sqrt", "rsqrt"])), w("abs", x) + 0.5)
        values.append(w("tanh", made) if draw(st.booleans()) else made)
    return expression_of(inputs, [values[-1], values[draw(st.integers(3, len(values) - 1))]])


@st.composite
def shapes(draw):
    """A shape and three that broadcast to it."""
    whole = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 5, 16, 33]), min_size=0, max_size=4)))
    views = [
        tuple(1 if draw(st.integers(0, 2)) == 0 else n for n in whole)[draw(st.integers(0, len(whole))) :]
        for _ in range(3)
    ]
    return whole, views


def agree(found, wanted, rounding):
    """Equal but for rounding in steps of `rounding`; a step function may turn where rounding decides."""
    scale = np.maximum(1, np.abs(wanted))
    wrong = ~(np.abs(found.astype(np.float64) - wanted) <= rounding * scale)
    assert wrong.mean() <= 0.02, (found[wrong][:5], wanted[wrong][:5])


@pytest.mark.parametrize("name", ["floor", "ceil", "trunc", "sign"])
def test_roundings(name, cpu):
    x = np.concatenate([np.linspace(-3, 3, 241), [np.inf, -np.inf, np.nan, -0.0, 1e20, 8388609.0]])
    x = x.astype(np.float32)
    made = expression(1, lambda w, x: [w(name, x)])
    y = np.empty_like(x)
    looped(made, [x.shape], [x.dtype], x.shape, [x.dtype])(x, y)()
    np.testing.assert_array_equal(y, getattr(np, name)(x))


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(expressions(), shapes(), st.sampled_from(list(DTYPES)), st.integers(0, 2**32))
def test_random_expression_of_random_shapes(cpu, made, extents, dtype, seed):
    if dtype not in compiled.storable():
        return
    whole, views = extents
    rng = np.random.default_rng(seed)
    inputs = [np.asarray(rng.normal(size=v)).astype(DTYPES[dtype]) for v in views]
    dtypes = [x.dtype for x in inputs]
    outputs = [np.full(whole, 99, DTYPES[dtype]) for _ in range(2)]
    looped(made, views, dtypes, whole, dtypes[:2])(*inputs, *outputs)()
    wanted = evaluate(*made, inputs, np.float64)
    for found, want in zip(outputs, wanted):
        agree(
            found, np.broadcast_to(want, whole), {"float32": 1e-4, "float16": 4e-3, "bfloat16": 3e-2}[dtype]
        )


def test_what_is_written_twice_is_computed_once():
    made = expression(2, lambda w, x, y: [(x + y) * w.constant(2.0), w("exp", y + x)])
    assert made == (Expression(2, 1, (("add", 0, 1), ("mul", 2, 3), ("exp", 3)), (4, 5)), (2.0,))


def test_numbers_of_both_signs_stay_apart():
    """0.0 and -0.0 are equal, and not the same literal."""
    made, _ = expression(1, lambda w, x: [w("copysign", x, 0.0), w("copysign", x, -0.0)])
    assert [str(step[1]) for step in made.steps if step[0] == "number"] == ["0.0", "-0.0"]


def test_constants_are_no_part_of_the_code(monkeypatch):
    texts, load = [], team.load
    monkeypatch.setattr(team, "load", lambda module: texts.append(module.text()) or load(module))
    loops._code.cache_clear()
    x = np.ones(50, np.float32)
    f32 = np.dtype(np.float32)
    for c in (0.5, 7.0, float("inf"), 1e300):
        made = expression(1, lambda w, x, c=c: [x * w.constant(c)])
        looped(made, [(50,)], [f32], (50,), [f32])(x, x)
    assert len(texts) == 1


@pytest.mark.parametrize("columns", [16, 37])
def test_matrices_may_be_parts_of_wider_ones(columns):
    f32, shape, leads = np.dtype(np.float32), (5, columns), [columns + k for k in (3, 0, 1, 40)]
    t = Computation()
    x, y = (t.input(f"arg{i}", shape) for i in range(2))
    nodes, numbers = pruned(t, [(x * y).number, (x - y).number])
    attrs = ComputationAttrs(nodes, numbers, (shape,) * 2, (f32,) * 2, (f32,) * 2)
    names = ("arg0", "arg1", "output0", "output1")
    tile = TileView(strides=tuple((n, (lead, 1)) for n, lead in zip(names, leads) if lead != columns))
    request = Request(FusedComputation, attrs, (shape,) * 2, (shape,) * 2, f32, (f32,) * 2, tile=tile)
    whole = [np.arange(5 * lead, dtype=f32).reshape(5, lead) for lead in leads]
    a, b, product, difference = (m[:, :columns] for m in whole)
    kernel = CPU.kernel(request)
    assert kernel.name == "compiled 2 steps"
    kernel.link(kernel.run, np, attrs, a, b, outs=(product, difference))()
    np.testing.assert_array_equal(product, a * b)
    np.testing.assert_array_equal(difference, a - b)
    for made, lead in zip(whole[2:], leads[2:]):  # what lies beside is left
        was = np.arange(5 * lead, dtype=f32).reshape(5, lead)
        np.testing.assert_array_equal(made[:, columns:], was[:, columns:])


@pytest.mark.parametrize("over", [0, 1])
@pytest.mark.parametrize("threads", [1, 2])
def test_output_may_lie_over_any_input(over, threads, monkeypatch):
    monkeypatch.setenv("MXLITE_NUM_THREADS", str(threads))
    made = expression(3, lambda w, x, y, row: [x * y + row, x - y])
    rng = np.random.default_rng(0)
    shape = (60, 1003)
    inputs = [rng.normal(size=s).astype(np.float32) for s in (shape, shape, (1003,))]
    f32 = inputs[0].dtype
    wanted = evaluate(*made, inputs)
    outputs = [np.empty(shape, np.float32), np.empty(shape, np.float32)]
    outputs[0] = inputs[over]
    outputs[1] = inputs[1 - over]
    looped(made, [x.shape for x in inputs], [f32] * 3, shape, [f32] * 2)(*inputs, *outputs)()
    for found, want in zip(outputs, wanted):
        np.testing.assert_allclose(found, want, atol=1e-6)


@pytest.mark.parametrize(
    "shape, views, lengths",
    [
        ((2, 3, 4), [(2, 3, 4), (2, 3, 4)], (24,)),
        ((2, 3, 4), [(2, 3, 4), (1, 3, 1)], (2, 3, 4)),
        ((2, 3, 4), [(2, 3, 4), (4,)], (6, 4)),
        ((2, 3, 4), [(2, 3, 4), (2, 3, 1)], (6, 4)),
        ((2, 3, 4), [(1,), ()], (24,)),
        ((1, 3, 1), [(1, 3, 1), (3, 1)], (3,)),
        ((), [(), ()], (1,)),
        ((5, 3, 4), [(5, 1, 4), (1, 3, 4)], (5, 3, 4)),
    ],
)
def test_shapes_become_as_few_axes_as_they_can(shape, views, lengths):
    made = expression(2, lambda w, x, y: [x + y])
    (placed,) = nests_of_expression(made, views, ["float32"] * 2, shape, ["float32"]).nests
    assert placed.lengths == lengths and all(placed.nest.kept)


# -- rows of the table

_ELEMENTWISE = frozenset(elementwise_operators())
_CASES = sorted(n for n, c in CASES.items() if c.op in _ELEMENTWISE or c.op.grad_op in _ELEMENTWISE)


def has_loop(request):
    """True for an elementwise request that is one loop."""
    nests = nests_for(request, Arrays(compiled.storable())) if request.op in _ELEMENTWISE else None
    return nests is not None and is_chain(request, nests)


def compiled_and_reference(case, dtype):
    """For a row and its gradient: (name, outputs of generated code, of the reference kernel), in pairs."""
    call = Call.of(case, dtype=dtype)
    layout = call.layout()
    for op, ins in stages(call, case.inputs(dtype=dtype)):
        names = frozenset((*ins, *op.output_names(call.attrs)))
        first = call.dtypes[0][0]
        wanted = op.output_names(call.attrs)
        request = Request(op, call.attrs, *call.shapes, first, call.dtypes[0], names)
        if not has_loop(request):
            continue
        for kind in ("ordinary", "special"):
            given = {n: x.copy() for n, x in ins.items()}
            if kind == "special":
                for i, (n, x) in enumerate(given.items()):
                    if n == "gamma":
                        continue  # where data is positive, the reference multiplies it by 0
                    special = [np.nan, 0, np.inf, -np.inf, -0.0, 1, -1]
                    x.reshape(-1)[:7] = np.roll(special, i)[: x.size] if x.dtype.kind != "b" else True
            answers = []
            for kernel in (rows._row(request), CPU.reference(op, call.attrs, *call.shapes, first)):
                arrays = given
                outs = [np.full(layout[n][0], 77).astype(layout[n][1]) for n in wanted]
                if answers and kind == "ordinary" and op.op_name not in ("Cast", "amp_cast"):
                    # What rounding does to the reference itself is none of our business.
                    wide = np.dtype(np.float64)
                    kernel = CPU.reference(op, call.attrs, *call.shapes, wide)
                    arrays = {n: x.astype(wide) for n, x in given.items()}
                    outs = [x.astype(wide) for x in outs]
                run = compiled_call(kernel, op, call, arrays, outs)
                with np.errstate(all="ignore"):
                    run()
                answers.append(outs)
            yield kind, *answers


def compiled_call(kernel, op, call, given, outs):
    from mxlite.backends import bind_call

    return bind_call(
        kernel, np, op, call.attrs, list(given.values()), outs, work=CPU.empty(max(1, kernel.workspace)),
        train=True, shapes=call.shapes,
    )  # fmt: skip


@pytest.mark.parametrize("name", _CASES)
def test_generated_row_computes_what_the_reference_does(name, monkeypatch):
    case = CASES[name]
    if case.dtype != "float64":
        pytest.skip(f"a row of {case.dtype}")
    dtypes = ("float32", ("float16", "bfloat16")[_CASES.index(name) % 2])
    for dtype in dtypes:
        if dtype not in compiled.storable():
            continue
        step = {"float32": 4e-6, "float16": 4e-3, "bfloat16": 3e-2}[dtype]
        for kind, found, wanted in compiled_and_reference(case, dtype):
            for x, y in zip(found, wanted):
                x, y = x.astype(np.float64), y.astype(np.float64)
                np.testing.assert_array_equal(np.isnan(x), np.isnan(y), err_msg=kind)
                where = np.isfinite(y)
                np.testing.assert_array_equal(x[~where], y[~where], err_msg=kind)
                most = step if kind == "ordinary" else 5 * step  # of a reference that is rounded itself
                np.testing.assert_allclose(x[where], y[where], rtol=most, atol=most, err_msg=kind)


def test_rules_are_reached():
    """Every operator with an expression has a row of cases that gets one."""
    reached = set()
    for name in _CASES:
        case = CASES[name]
        if case.dtype not in ("float64", "float32"):
            continue
        call = Call.of(case, dtype="float32")
        for op in (call.op, call.op.grad_op):
            if op in _ELEMENTWISE:
                names = frozenset((*op.input_names(call.attrs), *op.output_names(call.attrs)))
                request = Request(op, call.attrs, *call.shapes, call.dtypes[0][0], call.dtypes[0], names)
                if has_loop(request):
                    reached.add(op)
    missing = {op.op_name for op in _ELEMENTWISE if op not in reached}
    # Gradients whose operands are always sums, or that read an array of numbers.
    assert missing <= {"_ones_like", "_grad_add", "_backward_broadcast_axis", "_backward__shore"}, missing


@pytest.mark.parametrize("dtype", ["float64", "int32"])
def test_other_types_have_no_expression(dtype):
    call = Call.of(CASES["elemwise_add"], dtype=dtype)
    assert rows._row(Request(call.op, call.attrs, *call.shapes, call.dtypes[0][0], call.dtypes[0])) is None


def test_unwanted_output_is_left_out(monkeypatch):
    call = Call.of(CASES["elemwise_mul"], dtype="float32")
    op = call.op.grad_op
    kernel = rows._row(Request(op, call.attrs, *call.shapes, call.dtypes[0][0], call.dtypes[0]))
    x = [np.full((3, 4), v, np.float32) for v in (2, 3, 5)]
    given = dict(zip(op.input_names(call.attrs), x))
    for wanted in ([True, False], [False, True], [False, False]):
        outs = [np.zeros((3, 4), np.float32) if w else None for w in wanted]
        compiled_call(kernel, op, call, given, outs)()
        for i, y in enumerate(outs):
            assert y is None or (y == 2 * (5, 3)[i]).all()


def test_a_program_runs_generated_code_at_any_size_and_a_small_imperative_call_the_reference():
    net = mx.sym.Activation(mx.sym.var("data"), act_type="relu")
    exe = net.simple_bind(mx.cpu(), data=(1, 7), grad_req="null")
    assert "[compiled elementwise]" in exe.debug_str()
    x = np.array([[-1, 2, np.nan, -np.inf, 0, 5, -0.5]], np.float32)
    np.testing.assert_array_equal(exe.forward(data=x)[0].asnumpy(), np.maximum(x, 0))
    float32, attrs = np.dtype("float32"), ops.relu.Attrs()
    for size, name in ((7, "reference"), (5000, "compiled elementwise")):
        kinds = (((size,), float32),)
        shapes = ((size,),), ((size,),)
        plan = Plan(ops.relu, attrs, ("data",), kinds, kinds, shapes, float32, CPU, False, (float32,))
        assert plan.kernel == name


def test_without_a_compiler_the_reference_runs(monkeypatch):
    call = Call.of(CASES["relu"], shapes=[(100, 100)], dtype="float32")
    choice = lambda: CPU.choose(call.op, call.attrs, *call.shapes, call.dtypes[0][0]).name  # noqa: E731
    assert choice() == "compiled elementwise"
    monkeypatch.setattr(native, "available", lambda: False)
    assert choice() == "reference"
    monkeypatch.undo()
    monkeypatch.setenv("MXLITE_KERNELS", "onednn")
    assert choice() == "reference"
