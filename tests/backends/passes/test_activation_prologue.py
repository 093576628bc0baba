"""Dense layers with an activation prologue: which have one, and that nothing else changes."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import pytest

import mxlite as mx
from mxlite import ops
from mxlite.backends import bind_call
from mxlite.backends.cpu import passes
from mxlite.backends.cpu.backend import CPU
from mxlite.backends.cpu.compiled import usable
from mxlite.backends.cpu.onednn import library
from mxlite.backends.fused import tile_sizes
from mxlite.backends.fused.tiled import Tiled, TiledGradient, TiledUpdate
from mxlite.backends.passes import named
from mxlite.graph import Entry, NoAttrs, Node
from mxlite.graph.attrs import parse_attrs
from mxlite.memplan import check
from mxlite.memplan.problem import padded
from mxlite.memplan.remat.split import kept_bytes
from mxlite.ops.elementwise.activation import gelu, silu
from mxlite.ops.nn.dense import FullyConnected
from tests.backends.passes.pass_lists import asking, left_out, Willing
from tests.backends.passes.regions import inner_operators, variables

pytestmark = pytest.mark.skipif(library() is None or not usable(), reason="oneDNN or llvmlite is not there")

rule = import_module("mxlite.backends.passes.tiling.activation_prologue")
ROWS, WIDTH, HIDDEN = 259, 24, 540
"""The hidden array is just large enough, and its columns are no whole tiles."""

FUNCTIONS = {
    "gelu": lambda x: mx.sym.gelu(x, name="act"),
    "gelu_tanh": lambda x: mx.sym.gelu(x, approximate="tanh", name="act"),
    "leaky gelu": lambda x: mx.sym.LeakyReLU(x, act_type="gelu", name="act"),
    "silu": lambda x: mx.sym.silu(x, name="act"),
}
REGIONS = {"layer", "gradients", "gradients and update"}


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
    """The operators of a step, a region with a prologue by what it is of the layer."""
    found = []
    for _, inner in inner_operators(exe):
        last = [n for n in inner if n != "_fused_computation"]
        if inner[:3] == [
            "_backward_FullyConnected",
            "_fused_computation_gradient",
            "_backward_FullyConnected",
        ]:
            found.append("gradients" if len(inner) == 3 else "gradients and update")
        elif inner[:4] == [
            "Cast",
            "_backward_FullyConnected",
            "_fused_computation_gradient",
            "_backward_FullyConnected",
        ]:
            found.append("gradients and update")
        elif len(last) == 2 and last[1] == "FullyConnected" and last[0] != "Cast":
            found.append("layer")
        else:
            found.append(inner[0])
    return found


def without(monkeypatch: Any) -> None:
    left_out(monkeypatch, "activation_prologue")


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_layer_behind_a_function_applies_it(function, monkeypatch):
    monkeypatch.setenv("MXLITE_CHECK_REWRITES", "1")  # the reference kernel of the new node says the same
    exe = bound(network(function))
    found = operators(exe)
    assert found.count("layer") == found.count("gradients") == 1
    assert not {"gelu", "silu", "LeakyReLU"} & set(found)
    assert "_tiled" in exe.debug_str() and "columns at a time" in exe.debug_str()
    fused = operators(bound(network(function), optimizer=mx.optimizer.SGD(momentum=0.9)))
    assert fused.count("gradients and update") == 1 and "gradients" not in fused


def test_a_narrow_layer_applies_it_too():
    narrow = dense(mx.sym.gelu(dense(mx.sym.var("data"), 128, "up")), WIDTH, "down")
    assert operators(bound(loss(narrow), rows=1024)).count("layer") == 1


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
        assert not set(operators(bound(symbol))) & REGIONS, why
    assert not set(operators(bound(network(), rows=100))) & REGIONS, "it is small"
    assert not set(operators(bound(network(), type_dict={"data": "float64"}))) & REGIONS
    assert not set(operators(bound(network(), grad_req={"up_weight": "write"}))) & REGIONS
    assert not {t.op for t in bound(network())._planned.infer.problem.tasks} & {"_tiled"}


def test_without_a_compiler_nothing_changes(monkeypatch):
    monkeypatch.setenv("MXLITE_KERNELS", "onednn")
    assert not set(operators(bound(network()))) & REGIONS


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
    assert not set(operators(plain)) & REGIONS
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
    assert "gradients and update" in operators(exe)
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
    assert "layer" in found and "gelu" not in found
    assert ("gradients and update" if fused else "gradients") in found
    without(monkeypatch)
    plain, other = trained()
    assert not set(operators(other)) & REGIONS
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
        assert "gradients" in found and "gradients and update" not in found


def test_gradients_are_those_of_finite_differences(monkeypatch):
    """In float64, by the reference kernels."""
    work = (*named("split_gradients"), asking("activation_prologue", Willing()))
    monkeypatch.setattr(passes, "PASSES", work)
    for name in ("LEAST_BYTES", "LEAST_COLUMNS"):
        monkeypatch.setattr(rule, name, 1)
    exe = bound(network("silu"), rows=5, type_dict={"data": "float64"})
    assert {"layer", "gradients"} < set(operators(exe))
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


def regions(arrays: dict[str, Any], function: Any, update: Any = None) -> dict[str, tuple[type[Any], Any]]:
    """The regions of a layer with this prologue on these arrays, with their operators and inputs by name."""
    graph, known = variables(arrays)
    act = Node(function[0], function[1], (known["data"],), "act")
    m = len(arrays["weight"])
    layer = Node(
        FullyConnected, FullyConnected.Attrs(m), (Entry(act), known["weight"], known["bias"]), "layer"
    )
    made = {Entry(act): arrays["data"], Entry(layer): arrays["d_out"]}
    shapes = dict(graph.shapes) | {e: x.shape for e, x in made.items()}
    graph = replace(graph, shapes=shapes, dtypes=dict(graph.dtypes) | {e: x.dtype for e, x in made.items()})
    entries = known["d_out"], known["weight"], known["data"]
    both = rule._with_slope(graph, act, arrays["data"].shape[-1])
    forward = rule._forward(graph, rule._PrologueMatch(act, layer, act, act, act))
    backward = rule.gradient_region(graph, entries, both)
    found = {"layer": (Tiled, forward), "gradients": (TiledGradient, backward)}
    if update is not None:
        names = [known[n] for n in ("states", "hyper") if n in known]
        step = Node(*update, (known["master"], known["d_out"], *names), "update")
        entries = known["d_out"], known["master"], known["data"]
        found["update"] = TiledUpdate, rule.gradient_region(graph, entries, both, step)
    return {
        n: (op, region.attrs(results), [e.node.name for e in region.entries])
        for n, (op, (region, results)) in found.items()
    }


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("function", [(gelu, gelu.Attrs("tanh")), (silu, NoAttrs())], ids=["gelu", "silu"])
def test_kernels_make_what_the_references_make(size, function, dtype, two_threads):
    n, m, k = size
    rng = np.random.default_rng(2)
    shapes = dict(data=(n, k), weight=(m, k), bias=(m,), d_out=(n, m))
    arrays = {name: rng.standard_normal(s).astype(dtype) for name, s in shapes.items()}
    arrays |= {name: rng.standard_normal((m, k)).astype("f") for name in ("master", "states")}
    arrays["hyper"] = np.array([[0.5, 0.25]])
    sgd = ops._fused_sgd_mom, parse_attrs(ops._fused_sgd_mom, {"momentum": 0.5, "row": 0})
    for op, attrs, names in regions(arrays, function, sgd).values():
        ins = [arrays[name] for name in names]
        outs = tuple(attrs.arrays[i].outside for i in attrs.made)
        shapes, types = (tuple(x.shape for x in ins), outs), tuple(x.dtype for x in ins)
        chosen = CPU.choose(op, attrs, *shapes, types[0], types)
        assert "column" in chosen.name and "reference" not in chosen.name
        results = []
        for kernel in (chosen, CPU.reference(op, attrs, *shapes, types[0])):
            mine = [x.copy() for x in ins]
            made = [np.full(s, np.nan, dtype) for s in outs]
            run(kernel, op, attrs, mine, made, shapes)
            results.append([*mine, *made])
        for x, y in zip(*results):
            near(x, y, dtype)
        if op is Tiled:
            continue
        mine = [x.copy() for x in ins]  # the gradient in data over data
        place = names.index("data")
        assert chosen.in_place_options(op, attrs)["output0"] == (f"arg{place}",)
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
    narrow = {n: np.zeros(s, dtype) for n, s in (("weight", (m, k)), ("bias", (m,)))}
    arrays = dict(data=data, d_out=d_out, master=weight, hyper=np.array([[1.0, 0.0]]), **narrow)
    sgd = ops._fused_sgd, parse_attrs(ops._fused_sgd, {"row": 0})
    op, attrs, names = regions(arrays, (silu, NoAttrs()), sgd)["update"]
    ins, outs = [arrays[name] for name in names], [np.empty((n, k), dtype)]
    shapes, types = (tuple(x.shape for x in ins), ((n, k),)), tuple(x.dtype for x in ins)
    chosen = CPU.choose(op, attrs, *shapes, types[0], types)
    assert "columns, " in chosen.name
    run(chosen, op, attrs, ins, outs, shapes)
    x = data.astype("d")
    made = (x / (1 + np.exp(-x))).astype(dtype).astype("d")
    want = -d_out.astype("d").T @ made
    assert np.abs(weight - want).max() < 1e-4 * np.abs(want).max() + 1e-5 * np.abs(d_out.astype("d")).max()


def test_blocks_cover_everything():
    sizes = tile_sizes
    kinds = [
        sizes.FORWARD_BLOCK,
        sizes.BACKWARD_BLOCK,
        sizes.NARROW_FORWARD_BLOCK,
        sizes.NARROW_BACKWARD_BLOCK,
    ]
    for k in (512, 513, 540, 1000, 2048, 2816, 3072, 4097):
        for block in kinds:
            for n in (1 << 10, 1500, 70_001):
                rows, columns = rule._blocks((n, k), block)
                for loop, count in ((columns, k), (rows, n)):
                    parts = loop.tiles
                    assert [p.start for p in parts[1:]] == [p.stop for p in parts[:-1]]
                    assert (parts[0].start, parts[-1].stop) == (0, count)
                assert rows.each <= 1.5 * (block[0] or n) + 16 and columns.each <= 1.5 * (block[1] or k) + 256


def test_scratch_does_not_grow_with_the_rows(two_threads):
    sgd = ops._fused_sgd, parse_attrs(ops._fused_sgd, {"row": 0})
    for dtype in ("float32", "bfloat16"):
        found = []
        for n in (4096, 16384):
            shapes = dict(data=(n, 1024), d_out=(n, 64), weight=(64, 1024), bias=(64,))
            arrays = {name: np.empty(s, dtype) for name, s in shapes.items()}
            arrays |= dict(master=np.empty((64, 1024), "f"), hyper=np.empty((1, 2)))
            made = regions(arrays, (silu, NoAttrs()), sgd)
            nbytes = []
            for name in ("layer", "update"):
                op, attrs, names = made[name]
                ins = [arrays[n] for n in names]
                of = tuple(x.shape for x in ins), tuple(attrs.arrays[i].outside for i in attrs.made)
                types = tuple(x.dtype for x in ins)
                nbytes.append(CPU.choose(op, attrs, *of, types[0], types).workspace)
            found.append(nbytes)
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
