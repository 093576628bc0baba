"""Dense layers that apply a function to what they read: which do, and that nothing else changes."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import mxlite as mx
from mxlite import ops
from mxlite.backends import bind_call
from mxlite.backends.cpu import passes
from mxlite.backends.cpu.backend import CPU
from mxlite.backends.cpu.compiled import usable
from mxlite.backends.cpu.kernels.products import dense_loaded
from mxlite.backends.cpu.onednn import library
from mxlite.backends.fused.loaded_dense import (
    LoadedAttrs,
    LoadedDense,
    LoadedDenseGradient,
    LoadedDenseUpdate,
    LoadedUpdateAttrs,
)
from mxlite.backends.passes import named
from mxlite.graph import NoAttrs
from mxlite.graph.attrs import parse_attrs
from mxlite.memplan import check
from mxlite.memplan.problem import padded
from mxlite.memplan.remat.split import kept_bytes
from mxlite.ops.elementwise.activation import gelu, silu
from tests.backends.passes.pass_lists import asking, left_out, Willing

pytestmark = pytest.mark.skipif(library() is None or not usable(), reason="oneDNN or llvmlite is not there")

ROWS, WIDTH, HIDDEN = 259, 24, 540
"""The hidden array is just large enough, and its columns are no whole bands."""

FUNCTIONS = {
    "gelu": lambda x: mx.sym.gelu(x, name="act"),
    "gelu_tanh": lambda x: mx.sym.gelu(x, approximate="tanh", name="act"),
    "leaky gelu": lambda x: mx.sym.LeakyReLU(x, act_type="gelu", name="act"),
    "silu": lambda x: mx.sym.silu(x, name="act"),
}
LOADED = {"_loaded_dense", "_loaded_dense_gradient", "_loaded_dense_update"}


def dense(x: Any, units: int, name: str, **more: Any) -> Any:
    return mx.sym.FullyConnected(x, num_hidden=units, name=name, **more)


def up(**more: Any) -> Any:
    return dense(mx.sym.var("data"), HIDDEN, "up", **more)


def network(function: str = "gelu", **more: Any) -> Any:
    return loss(dense(FUNCTIONS[function](up()), WIDTH, "down", **more))


def loss(x: Any) -> Any:
    return mx.sym.SoftmaxOutput(x, name="softmax")


def bound(symbol: Any, rows: int = ROWS, **how: Any) -> Any:
    exe = symbol.simple_bind(mx.cpu(), data=(rows, WIDTH), softmax_label=(rows,), **how)
    rng = np.random.default_rng(0)
    for name, x in exe.arg_dict.items():
        x[:] = rng.integers(0, WIDTH, x.shape) if "label" in name else rng.standard_normal(x.shape) / 4
    return exe


def step(exe: Any) -> dict[str, np.ndarray]:
    made = {"out": exe.forward(is_train=True)[0].asnumpy()}
    exe.backward()
    return made | {n: g.asnumpy() for n, g in exe.grad_dict.items() if g is not None}


def operators(exe: Any) -> list[str]:
    return [t.op for t in exe._planned.train.problem.tasks]


def without(monkeypatch: Any) -> None:
    left_out(monkeypatch, "loaded_dense")


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_layer_behind_a_function_applies_it(function, monkeypatch):
    monkeypatch.setenv("MXLITE_CHECK_REWRITES", "1")  # the reference kernel of the new node says the same
    exe = bound(network(function))
    found = operators(exe)
    assert found.count("_loaded_dense") == found.count("_loaded_dense_gradient") == 1
    assert not {"gelu", "silu", "LeakyReLU"} & set(found)
    assert "_loaded_dense" in exe.debug_str() and "columns at a time" in exe.debug_str()
    fused = operators(bound(network(function), optimizer=mx.optimizer.SGD(momentum=0.9)))
    assert fused.count("_loaded_dense_update") == 1 and "_loaded_dense_gradient" not in fused


def test_the_function_stays_where():
    act = FUNCTIONS["gelu"](up())
    down = dense(act, WIDTH, "down")
    cases = {
        "its gradient needs but what it makes": loss(dense(mx.sym.relu(up()), WIDTH, "down")),
        "another layer reads it": loss(down + dense(act, WIDTH, "other")),
        "it is an output": mx.sym.Group([loss(down), mx.sym.BlockGrad(act)]),
        "it is the end of a stage": loss(
            dense(mx.sym.gelu(up(), attr={"__mirror_stage__": "True"}), WIDTH, "down")
        ),
        "it is the weight": loss(
            mx.sym.FullyConnected(
                mx.sym.var("x", shape=(ROWS, HIDDEN)), mx.sym.gelu(up()), num_hidden=ROWS, no_bias=True
            )
        ),
    }
    for why, symbol in cases.items():
        assert not set(operators(bound(symbol))) & LOADED, why
    assert not set(operators(bound(network(), rows=100))) & LOADED, "it is small"
    assert not set(operators(bound(network(), type_dict={"data": "float64"}))) & LOADED
    assert not set(operators(bound(network(), grad_req={"up_weight": "write"}))) & LOADED
    assert not {t.op for t in bound(network())._planned.infer.problem.tasks} & LOADED


def test_without_a_compiler_nothing_changes(monkeypatch):
    monkeypatch.setenv("MXLITE_KERNELS", "onednn")
    assert not set(operators(bound(network()))) & LOADED


@pytest.mark.parametrize("more", [{}, {"no_bias": True}, {"flatten": False}])
def test_a_step_makes_the_same_with_and_without_and_under_any_budget(more, monkeypatch):
    exe = bound(network(**more))
    got = step(exe)
    plan = exe.memory_plan
    check(plan)
    assert exe.measured_bytes == plan.peak_bytes
    for share in (plan.lower_bound_bytes, (plan.peak_bytes + plan.lower_bound_bytes) // 2):
        try:
            tight = bound(network(**more), memory_budget=share)
        except mx.MemoryBudgetError as error:
            tight = bound(network(**more), memory_budget=error.least_feasible_bytes)
        for name, x in step(tight).items():
            np.testing.assert_array_equal(x, got[name], err_msg=name)
    added = bound(network(**more), grad_req="add")
    for g in added.grad_dict.values():
        g[:] = 0
    for name, x in step(added).items():
        np.testing.assert_array_equal(x, got[name], err_msg=name)
    without(monkeypatch)
    plain = bound(network(**more))
    assert not set(operators(plain)) & LOADED
    for name, x in step(plain).items():
        np.testing.assert_allclose(x, got[name], rtol=0, atol=2e-6 * np.abs(x).max(), err_msg=name)
    assert kept_bytes(plain.memory_plan.problem) - kept_bytes(plan.problem) == padded(4 * ROWS * HIDDEN)
    assert plan.arena_bytes < plain.memory_plan.arena_bytes


@pytest.mark.parametrize("optimizer", ["SGD", "Adam"])
def test_weights_are_those_of_whole_gradients(optimizer, monkeypatch):
    made = partial(getattr(mx.optimizer, optimizer), **({"momentum": 0.9} if optimizer == "SGD" else {}))

    def trained() -> tuple[dict[str, np.ndarray], Any]:
        exe = bound(network(), optimizer=made())
        for t in range(3):
            exe.step([[0.1 / (t + 1), 0.01 * (i % 2)] for i in range(len(exe.updated))])
        check(exe.memory_plan)
        assert exe.measured_bytes == exe.memory_plan.peak_bytes
        return {n: a.asnumpy() for n, a in {**exe.arg_dict, **exe.optimizer_states}.items()}, exe

    got, exe = trained()
    assert "_loaded_dense_update" in operators(exe)
    problem = exe.memory_plan.problem
    assert not any(
        v.nbytes == 4 * HIDDEN * WIDTH and "down_backward" in v.name for v in problem.values if not v.fixed
    )
    without(monkeypatch)
    for name, x in trained()[0].items():
        np.testing.assert_allclose(got[name], x, rtol=1e-4, atol=1e-5 * np.abs(x).max(), err_msg=name)


@pytest.mark.parametrize("fused", [True, False], ids=["update", "gradients"])
def test_mixed_precision_does_the_same(fused, monkeypatch):
    """Weights stay float32; one behind the function is rounded inside the update and not before it."""

    def trained() -> tuple[dict[str, np.ndarray], Any]:
        optimizer = mx.optimizer.SGD(momentum=0.9) if fused else None
        exe = bound(network(), rows=2 * ROWS, amp="bfloat16", optimizer=optimizer)
        check(exe.memory_plan)
        if not fused:
            return step(exe), exe
        for _ in range(3):
            exe.step([[0.01, 0.0] for _ in exe.updated])
        mx.nd.waitall()
        assert exe.measured_bytes == exe.memory_plan.peak_bytes
        return {n: a.asnumpy() for n, a in {**exe.arg_dict, **exe.optimizer_states}.items()}, exe

    got, exe = trained()
    found = operators(exe)
    assert "_loaded_dense" in found and "gelu" not in found
    assert ("_loaded_dense_update" if fused else "_loaded_dense_gradient") in found
    without(monkeypatch)
    plain, other = trained()
    assert not set(operators(other)) & LOADED
    kept = [kept_bytes(e.memory_plan.problem) for e in (other, exe)]
    assert kept[0] - kept[1] == padded(2 * 2 * ROWS * HIDDEN)
    for name, x in plain.items():
        np.testing.assert_allclose(got[name], x, rtol=0, atol=2e-2 * np.abs(x).max(), err_msg=name)


def test_a_weight_that_is_read_later_is_updated_later():
    """An earlier layer has the same weight; its gradient in data comes after that of the later layer."""
    for blocked in (False, True):
        shared = mx.sym.var("w_weight", shape=(WIDTH, HIDDEN))
        before = mx.sym.BlockGrad(shared) if blocked else shared
        x = mx.sym.FullyConnected(dense(mx.sym.var("data"), HIDDEN, "first"), before, num_hidden=WIDTH)
        x = FUNCTIONS["gelu"](dense(x, HIDDEN, "up"))
        x = mx.sym.FullyConnected(x, shared, num_hidden=WIDTH, name="down")
        found = operators(bound(loss(x), optimizer=mx.optimizer.SGD()))
        assert "_loaded_dense_gradient" in found and "_loaded_dense_update" not in found


def test_gradients_are_those_of_finite_differences(monkeypatch):
    """In float64, by the reference kernels."""
    work = (*named("split_gradients"), asking("loaded_dense", Willing()))
    monkeypatch.setattr(passes, "PASSES", work)
    exe = bound(network("silu"), rows=5, type_dict={"data": "float64"})
    assert {"_loaded_dense", "_loaded_dense_gradient"} < set(operators(exe))
    found = step(exe)
    labels = exe.arg_dict["softmax_label"].asnumpy().astype(int)

    def value() -> float:
        out = exe.forward(is_train=True)[0].asnumpy()
        return float(-np.log(out[np.arange(len(labels)), labels]).sum())

    rng = np.random.default_rng(1)
    for name in ("data", "up_weight", "up_bias", "down_weight", "down_bias"):
        at, way = exe.arg_dict[name], rng.standard_normal(found[name].shape)
        x, both = at.asnumpy(), []
        for sign in (1, -1):
            at[:] = x + sign * 1e-5 * way
            both.append(value())
        at[:] = x
        want = float((found[name] * way).sum())
        assert (both[0] - both[1]) / 2e-5 == pytest.approx(want, rel=1e-5, abs=1e-7), name


def run(kernel: Any, op: Any, attrs: Any, ins: list[Any], outs: list[Any], shapes: Any) -> None:
    """The call, and that it keeps to its scratch."""
    block = np.full(64 + kernel.workspace + 64, 0xFF, np.uint8)
    work = block[64 : 64 + kernel.workspace]
    with CPU.running(CPU.threads()):
        bind_call(kernel, np, op, attrs, ins, outs, work=work, shapes=shapes)()
    assert (block[:64] == 0xFF).all() and (block[-64:] == 0xFF).all()


LAST = {"float32": 3e-6, "float16": 2e-3, "bfloat16": 2**-7}
"""About the last digit, of the largest number: in 16 bits a sum that is nearly half way goes up or down."""


def near(x: np.ndarray, y: np.ndarray, dtype: str) -> None:
    x, y = x.astype("d"), y.astype("d")
    np.testing.assert_allclose(x, y, rtol=0, atol=LAST[dtype] * np.abs(y).max())


SIZES = [(2 * ROWS, WIDTH, HIDDEN), (70, 9, 4101), (600, 40, 1024)]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("function", [(gelu, gelu.Attrs("tanh")), (silu, NoAttrs())], ids=["gelu", "silu"])
def test_kernels_make_what_the_references_make(size, function, dtype, two_threads):
    n, m, k = size
    rng = np.random.default_rng(2)
    data, weight, bias, d_out = (rng.standard_normal(s).astype(dtype) for s in ((n, k), (m, k), (m,), (n, m)))
    master, states = rng.standard_normal((m, k)).astype("f"), rng.standard_normal((m, k)).astype("f")
    layer = LoadedAttrs(m, function=function[0], given=function[1])
    sgd = LoadedUpdateAttrs(
        layer, ops._fused_sgd_mom, parse_attrs(ops._fused_sgd_mom, {"momentum": 0.5, "row": 0})
    )
    hyper = np.array([[0.5, 0.25]])
    calls = (
        (LoadedDense, layer, [data, weight, bias], [(n, m)]),
        (LoadedDenseGradient, layer, [d_out, weight, data], [(n, k), (m, k)]),
        (LoadedDenseUpdate, sgd, [d_out, data, master, states, hyper], [(n, k)]),
    )
    for op, attrs, ins, outs in calls:
        shapes = tuple(x.shape for x in ins), tuple(outs)
        types = tuple(x.dtype for x in ins)
        chosen = CPU.choose(op, attrs, *shapes, types[0], types)
        assert "columns at a time" in chosen.name
        results = []
        for kernel in (chosen, CPU.reference(op, attrs, *shapes, types[0])):
            mine = [x.copy() for x in ins]
            made = [np.full(s, np.nan, dtype) for s in outs]
            run(kernel, op, attrs, mine, made, shapes)
            results.append([*mine, *made])
        for x, y in zip(*results):
            near(x, y, dtype)
        if op is LoadedDense:
            continue
        mine = [x.copy() for x in ins]  # the gradient in data over data
        place = op.input_names(attrs).index("data")
        run(chosen, op, attrs, mine, [mine[place], *(np.empty(s, dtype) for s in outs[1:])], shapes)
        np.testing.assert_array_equal(mine[place], results[0][len(ins)])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_sums_in_float32_are_rounded_once(dtype, two_threads):
    """Gradients over blocks of rows whose parts cancel: rounded parts would leave their errors."""
    n, m, k = 1024, 16, 512
    rng = np.random.default_rng(4)
    half = rng.standard_normal((n // 2, m))
    d_out = np.concatenate([half, -half + 2**-9 * rng.standard_normal(half.shape)]).astype(dtype)
    data = np.tile(rng.standard_normal((n // 2, k)), (2, 1)).astype(dtype)
    weight = np.zeros((m, k), "f")
    layer = LoadedAttrs(m, function=silu, given=NoAttrs())
    sgd = LoadedUpdateAttrs(layer, ops._fused_sgd, parse_attrs(ops._fused_sgd, {"row": 0}))
    ins, outs = [d_out, data, weight, np.array([[1.0, 0.0]])], [np.empty((n, k), dtype)]
    shapes = tuple(x.shape for x in ins), ((n, k),)
    types = tuple(x.dtype for x in ins)
    chosen = CPU.choose(LoadedDenseUpdate, sgd, *shapes, types[0], types)
    assert "columns at a time" in chosen.name
    run(chosen, LoadedDenseUpdate, sgd, ins, outs, shapes)
    x = data.astype("d")
    made = (x / (1 + np.exp(-x))).astype(dtype).astype("d")
    want = -d_out.astype("d").T @ made
    assert np.abs(weight - want).max() < 1e-4 * np.abs(want).max() + 1e-5 * np.abs(d_out.astype("d")).max()


def test_blocks_cover_everything():
    kinds = [dense_loaded.FORWARD, dense_loaded.BACKWARD, dense_loaded.NARROW_FORWARD]
    for k in (512, 513, 540, 1000, 2048, 2816, 3072, 4097):
        for block in (*kinds, dense_loaded.NARROW_BACKWARD):
            for n in (1 << 10, 1500, 70_001):
                s = dense_loaded._sizes((np.dtype("f"),), (n, k), (8, k), block)
                assert s is not None
                for parts, count in ((s.bands, k), (s.chunks, n)):
                    assert [p.start for p in parts[1:]] == [p.stop for p in parts[:-1]]
                    assert (parts[0].start, parts[-1].stop) == (0, count)
                assert (
                    s.height <= 1.5 * (block.rows or n) + 16 and s.width <= 1.5 * (block.columns or k) + 256
                )


def test_scratch_does_not_grow_with_the_rows(two_threads):
    layer = LoadedAttrs(64, function=silu, given=NoAttrs())
    sgd = LoadedUpdateAttrs(layer, ops._fused_sgd, parse_attrs(ops._fused_sgd, {"row": 0}))
    for dtype in ("float32", "bfloat16"):
        kind, found = np.dtype(dtype), []
        for n in (4096, 16384):
            shapes = ((n, 64), (n, 1024), (64, 1024), (1, 2))
            types = (kind, kind, np.dtype("f"), np.dtype("d"))
            update = CPU.choose(LoadedDenseUpdate, sgd, shapes, ((n, 1024),), kind, types)
            made = CPU.choose(LoadedDense, layer, ((n, 1024), (64, 1024), (64,)), ((n, 64),), kind)
            found.append((made.workspace, update.workspace))
        assert found[0] == found[1], dtype


@pytest.fixture
def two_threads():
    from mxlite.backends.cpu.runtime.threads import set_num_threads

    before = set_num_threads(2)
    yield
    set_num_threads(before)


@pytest.mark.parametrize("rows", [1, 8, 15, 17])
def test_few_rows_of_a_very_wide_layer_are_one_block(rows):
    """Blocks are of 16 rows or more, and there need not be so many."""
    net = loss(dense(mx.sym.gelu(dense(mx.sym.var("data"), 2**17 // rows, "up")), 2, "down"))
    plan = net.memory_plan(mx.cpu(), data=(rows, 3), softmax_label=(rows,))
    assert plan.peak_bytes > 0
