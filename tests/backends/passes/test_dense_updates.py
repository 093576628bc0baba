"""Updates fused into their gradient, tile by tile: the bits of whole gradients, in fewer bytes."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
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
from mxlite.backends.fused.tile_sizes import DEEP_UPDATE_BYTES, FEWEST_UPDATES, UPDATE_BYTES, update_tiles
from mxlite.backends.fused.tiled import TiledUpdate
from mxlite.backends.passes.entries import output
from mxlite.backends.passes.tiling.gradient_updates import dense_region, gradient_updates, last_readers
from mxlite.backends.rewrite import Step
from mxlite.graph import Entry, NoAttrs, Node
from mxlite.graph.attrs import parse_attrs
from mxlite.memplan import check
from mxlite.ops.elementwise.unary import Copy
from mxlite.ops.nn.dense import FullyConnected
from tests.backends.cpu.fast_kernels import only
from tests.backends.passes.pass_lists import as_pass, left_out
from tests.backends.passes.regions import variables

WIDTH, HIDDEN, ROWS = 48, 150, 32
LEAST_BYTES = tile_sizes.LEAST_UPDATE


@pytest.fixture
def tiles(monkeypatch):
    """Programs bound here fuse gradients of any size, in tiles of 48 rows at most, unless told not to."""
    for name in ("UPDATE_BYTES", "DEEP_UPDATE_BYTES"):
        monkeypatch.setattr(tile_sizes, name, 48 * 4 * WIDTH)
    monkeypatch.setattr(tile_sizes, "FEWEST_UPDATES", 1)

    def use(least_bytes=0):
        for name in ("LEAST_UPDATE", "LEAST_DEEP_UPDATE"):
            monkeypatch.setattr(tile_sizes, name, least_bytes)

    use()
    return use


def network(shared=False):
    x, one = mx.sym.var("data"), mx.sym.var("w_weight")
    for i in range(3):
        weight = one if shared and i else mx.sym.var(f"fc{i}_weight")
        x = mx.sym.FullyConnected(x, weight, num_hidden=HIDDEN, no_bias=i == 1, name=f"fc{i}")
        x = mx.sym.Activation(x, act_type="relu", name=f"relu{i}")
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(x, num_hidden=10, name="score"), name="softmax")


def bound(optimizer=None, net=None, **how):
    optimizer = mx.optimizer.SGD(momentum=0.9) if optimizer is None else optimizer
    net = network() if net is None else net
    shapes = dict(data=(ROWS, WIDTH), softmax_label=(ROWS,))
    return net.simple_bind(mx.cpu(), optimizer=optimizer, **shapes, **how)


def trained(*args, steps=3, **how):
    """Weights and states after some steps, as bytes, and the plan."""
    exe = bound(*args, **how)
    rng = np.random.default_rng(0)
    for name, array in exe.arg_dict.items():
        shape = array.shape
        array[:] = rng.integers(0, 10, shape) if "label" in name else rng.standard_normal(shape) / 8
    if how.get("type_dict"):
        for name, array in exe.optimizer_states.items():
            if name.endswith("weight32"):
                array[:] = exe.arg_dict[name.partition(":")[0]].astype("float32")
    for t in range(steps):
        exe.step([[0.1 / (t + 1), 0.01 * (i % 2)] for i in range(len(exe.updated))])
    check(exe.memory_plan)
    assert exe.measured_bytes == exe.memory_plan.peak_bytes
    arrays = exe.arg_dict | exe.optimizer_states
    return {n: a.asnumpy().tobytes() for n, a in arrays.items()}, exe.memory_plan


def fused(plan):
    """Names of the weights whose updates are fused into their gradients."""
    return [t.name.removesuffix("_update") for t in plan.problem.tasks if t.op == "_tiled_update"]


WEIGHTS = ["fc0_weight", "fc1_weight", "fc2_weight"]
NETS = {
    "sgd": dict(optimizer=mx.optimizer.SGD()),
    "momentum": dict(optimizer=mx.optimizer.SGD(momentum=0.9, rescale_grad=0.5, clip_gradient=0.01)),
    "adam": dict(optimizer=mx.optimizer.Adam()),
    "bfloat16": dict(amp="bfloat16"),
    "masters": dict(
        optimizer=mx.optimizer.SGD(momentum=0.9, multi_precision=True),
        type_dict={"data": "bfloat16"},
    ),
}


@pytest.mark.parametrize("how", NETS.values(), ids=NETS)
def test_the_bits_are_those_of_whole_gradients_in_fewer_bytes(tiles, how):
    together, plan = trained(**how)
    assert set(WEIGHTS) <= set(fused(plan))
    tiles(1 << 30)
    apart, before = trained(**how)
    assert not fused(before)
    assert [n for n in apart if apart[n] != together[n]] == []
    assert plan.arena_bytes < before.arena_bytes


def test_no_array_of_the_plan_is_a_gradient(tiles):
    problem = bound().memory_plan.problem
    assert not any(v.nbytes >= 4 * HIDDEN * WIDTH for v in problem.values if not v.fixed)
    for task in problem.tasks:
        if task.op == "_tiled_update":
            assert "rows at a time" in task.kernel
            assert 4 * 48 * WIDTH <= task.workspace


def test_gradients_that_somebody_needs_as_a_whole_stay(tiles):
    assert not fused(bound(mx.optimizer.LAMB()).memory_plan)
    assert not fused(bound(amp="fp16", loss_scale=64.0).memory_plan)
    assert fused(bound(net=network(shared=True)).memory_plan) == ["fc0_weight"]
    tiles(4 * HIDDEN * HIDDEN)
    assert sorted(fused(bound().memory_plan)) == ["fc1_weight", "fc2_weight"]
    tiles(LEAST_BYTES)
    assert not fused(bound().memory_plan)


def test_a_gradient_with_another_reader_or_a_place_of_its_own_stays(tiles, monkeypatch):
    found = []

    def look(step):
        graph, kept = step.graph, step.kept
        gradients = [n.inputs[1] for n in graph.effects if n.name == "fc1_weight_update"]
        if not gradients:  # the inference pass
            return step
        (gradient,) = gradients
        copy = Entry(Node(Copy, NoAttrs(), (gradient,), "copy"))
        more = replace(graph, order=(*graph.nodes, copy.node))
        for g, k in ((graph, kept), (graph, kept | {gradient}), (more, kept)):
            made = gradient_updates.run(Step.of(g, k, step.num_forward), None).graph
            found.append(sorted(n.name for n in made.effects if n.op is TiledUpdate))
        return step

    left_out(monkeypatch, "gradient_updates")
    monkeypatch.setattr(passes, "PASSES", (*passes.PASSES, as_pass(look)))
    bound()
    others = ["fc0_weight_update", "fc2_weight_update"]
    assert found == [sorted([*others, "fc1_weight_update"]), others, others]


def of_parameters():
    """A loss of one dense layer, whose data are a parameter."""
    made = mx.sym.FullyConnected(mx.sym.var("table", shape=(ROWS, WIDTH)), num_hidden=HIDDEN, name="fc")
    return mx.sym.MakeLoss(mx.sym.sum(mx.sym.square(made)))


def test_data_that_are_a_parameter_are_read_before_they_change(tiles):
    """Both gradients are of the weights before the step, as where each is made as a whole."""
    found = []
    for least_bytes in (0, 1 << 30):
        tiles(least_bytes)
        sgd = mx.optimizer.SGD(momentum=0.9)
        exe = of_parameters().simple_bind(mx.cpu(), optimizer=sgd)
        assert sorted(exe.updated) == ["fc_bias", "fc_weight", "table"]
        assert fused(exe.memory_plan) == ([] if least_bytes else ["fc_weight"])
        rng = np.random.default_rng(0)
        for array in exe.arg_dict.values():
            array[:] = rng.standard_normal(array.shape) / 8
        for _ in range(2):
            exe.step([[0.1, 0.01]] * 3)
        found.append({n: a.asnumpy().tobytes() for n, a in exe.arg_dict.items()})
    assert found[0] == found[1]


def test_an_update_that_makes_its_gradient_reads_its_data(tiles, monkeypatch):
    """So that no later pass puts the update of these data before it."""
    found = []

    def look(step):
        readers = last_readers(step.graph)
        found.extend(readers[e].name for e in readers if e.node.name == "table" and step.graph.effects)
        return step

    monkeypatch.setattr(passes, "PASSES", (*passes.PASSES, as_pass(look)))
    of_parameters().simple_bind(mx.cpu(), optimizer=mx.optimizer.SGD())
    assert found == ["fc_weight_update"]


def test_data_is_not_kept_waiting(tiles):
    """Where data is larger than the weight, the gradient in the weight comes first, and data is dead."""
    shapes = dict(data=(8 * HIDDEN, WIDTH), softmax_label=(8 * HIDDEN,))
    plan = network().memory_plan(mx.cpu(), optimizer=mx.optimizer.SGD(momentum=0.9), **shapes)
    assert fused(plan) == ["fc0_weight"]


def test_a_step_within_a_budget_gives_the_same_bits(tiles):
    free, plan = trained(amp="bfloat16")
    with pytest.raises(mx.MemoryBudgetError) as refused:
        bound(amp="bfloat16", memory_budget=1)
    least = refused.value.least_feasible_bytes
    assert least < plan.peak_bytes
    tight, small = trained(amp="bfloat16", memory_budget=least)
    assert small.peak_bytes <= least
    assert tight == free


def test_the_reference_makes_bands_too(tiles):
    with only("reference"):
        assert usable() or not fused(bound().memory_plan) == []
        together, plan = trained()
        assert fused(plan)
        assert all("reference, " in t.kernel for t in plan.problem.tasks if t.op == "_tiled_update")
        tiles(1 << 30)
        apart, _ = trained()
    for name, value in together.items():
        np.testing.assert_allclose(
            np.frombuffer(value, "f"), np.frombuffer(apart[name], "f"), rtol=1e-4, atol=1e-6
        )


@pytest.mark.parametrize("rows", [48, 150, 192])
@pytest.mark.parametrize("kinds", [("float32", "float32"), ("bfloat16", "float32"), ("bfloat16", "bfloat16")])
def test_every_row_is_updated_once_and_nothing_else_is_written(monkeypatch, kinds, rows):
    """Of whole numbers, which are added up exactly in any order; the last tile is a part of one."""
    if library() is None or not usable():
        pytest.skip("oneDNN or llvmlite is not there")
    monkeypatch.setattr(tile_sizes, "DEEP_UPDATE_BYTES", 48 * 4 * WIDTH)
    factor, weight = (np.dtype(getattr(ml_dtypes, k, k)) for k in kinds)
    op = ops._fused_mp_sgd_mom if weight != np.float32 else ops._fused_sgd_mom
    count, columns = 1024, WIDTH
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-2, 3, (count, n)).astype(factor) for n in (rows, columns))
    own = [rng.integers(-9, 9, (rows, columns)).astype(t) for t in (weight, "f", "f")[: 2 + op.has_master]]
    hyper = np.array([[9.0, 9.0], [0.5, 0.25]])
    arrays = [x, y, *own, hyper]
    shapes, types = tuple(a.shape for a in arrays), tuple(a.dtype for a in arrays)
    names = ["d_out", "data", "weight", "state", *["master"] * op.has_master, "hyper"]
    graph, known = variables(dict(zip(names, arrays, strict=True)))
    gradient = Node(
        FullyConnected.grad_op, FullyConnected.Attrs(rows), (known["d_out"], known["data"]), "gradient",
        absent=frozenset({"weight"}),
    )  # fmt: skip
    rest = [known[n] for n in ("state", "master", "hyper") if n in known]
    step = parse_attrs(op, {"momentum": 0.5, "row": 1})
    update = Node(op, step, (known["weight"], output(gradient, "d_weight"), *rest), "update")
    attrs = dense_region(graph, update).attrs([])
    chosen = CPU.choose(TiledUpdate, attrs, shapes, (), factor, types)
    assert "rows at a time" in chosen.name
    results = []
    for kernel in (chosen, CPU.reference(TiledUpdate, attrs, shapes, (), factor)):
        block = np.full(64 + kernel.workspace + 64, 0xFF, np.uint8)
        mine = [a.copy() for a in arrays]
        work = block[64 : 64 + kernel.workspace]
        run = bind_call(kernel, np, TiledUpdate, attrs, mine, [], work=work, shapes=(shapes, ()))
        with CPU.running(CPU.threads()):
            run()
            run()
        assert (block[:64] == 0xFF).all() and (block[-64:] == 0xFF).all()
        results.append([a.tobytes() for a in mine])
    assert results[0] == results[1]
    assert results[0][2] != arrays[2].tobytes()


def test_tiles_are_even_and_of_whole_vectors():
    float32 = np.dtype("f")
    for rows in (1, 15, 16, 100, 1024, 4096, 10_000):
        for columns in (1, 10, 512, 784, 25_088):
            for depth, nbytes in ((8, UPDATE_BYTES), (1120, DEEP_UPDATE_BYTES)):
                each = update_tiles(rows, columns, depth, float32).each
                assert 1 <= each <= rows and (each % 16 == 0 or each == rows)
                assert each <= 16 or 4 * each * columns <= 1.5 * nbytes + 64 * columns
                assert each <= -(-rows // FEWEST_UPDATES) + 15
