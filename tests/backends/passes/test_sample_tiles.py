"""Operators that take some samples at a time: which do, and that they make the same, in fewer bytes."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mxlite as mx
from mxlite.backends.base import Backend
from mxlite.backends.call import bind_call
from mxlite.backends.cpu.backend import CPU
from mxlite.backends.cpu.compiled import usable
from mxlite.backends.fused import tile_sizes
from mxlite.backends.fused.tile_program import reference_kernels, TileProgram
from mxlite.backends.fused.tiled import (
    _in_place,
    TileArray,
    TileAttrs,
    TileCall,
    Tiled,
    TiledGradient,
    TileLoop,
)
from mxlite.graph import NoAttrs
from mxlite.memplan import check
from mxlite.ops import find_op
from tests.backends.passes.pass_lists import left_out

pytestmark = pytest.mark.skipif(not usable(), reason="there is no compiler (llvmlite)")

PASS = importlib.import_module("mxlite.backends.passes.tiling.sample_tiles")
SGD = mx.optimizer.SGD(momentum=0.5)
SAMPLES, ROWS, WIDTH = 7, 48, 40
TILED = {"_tiled", "_tiled_gradient"}


@pytest.fixture(autouse=True)
def small(monkeypatch: Any) -> None:
    """Arrays of small networks count; two samples to a tile, and a last one of one."""
    monkeypatch.setattr(PASS, "LEAST_BYTES", 4 * SAMPLES * ROWS * WIDTH // 2)
    monkeypatch.setattr(tile_sizes, "SAMPLES_BYTES", 2 * 4 * ROWS * WIDTH)
    monkeypatch.setattr(tile_sizes, "PRODUCT_ROWS", 1)


def dense(x: Any, name: str, units: int = WIDTH) -> Any:
    return mx.sym.FullyConnected(x, num_hidden=units, flatten=False, name=name)


def norm(x: Any, name: str, **more: Any) -> Any:
    return mx.sym.LayerNorm(x, name=name, **more)


def loss(x: Any) -> Any:
    return mx.sym.SoftmaxOutput(dense(x, "score", 5), name="softmax")


def block(x: Any, units: int = 3 * WIDTH) -> Any:
    """A feed-forward part of a transformer."""
    return x + dense(mx.sym.gelu(dense(norm(x, "n"), "wide", units), name="gelu"), "narrow")


def network(head: Callable[[Any], Any] | None = None, units: int = 3 * WIDTH) -> Any:
    x = block(dense(mx.sym.var("data"), "first"), units)
    return loss(mx.sym.mean(norm(x, "last"), axis=1, name="mean") if head is None else head(x))


def rectified() -> Any:
    x = mx.sym.Activation(dense(mx.sym.var("data"), "first"), act_type="tanh", name="tanh")
    return loss(dense(x, "second", 2 * WIDTH))


def bound(symbol: Any, **how: Any) -> Any:
    exe = symbol.simple_bind(mx.cpu(), data=(SAMPLES, ROWS, WIDTH), **how)
    rng = np.random.default_rng(0)
    for name, x in exe.arg_dict.items():
        x[:] = rng.integers(0, 5, x.shape) if "label" in name else rng.standard_normal(x.shape) / 4
    return exe


def trained(symbol: Any, **how: Any) -> tuple[Any, dict[str, np.ndarray]]:
    """A step of training, and the parameters behind it."""
    exe = bound(symbol, optimizer=SGD, **how)
    exe.step([[0.1, 0.0]] * len(exe.updated))
    assert exe.measured_bytes == exe.memory_plan.peak_bytes
    check(exe.memory_plan)
    made = {n: x.asnumpy() for n, x in exe.arg_dict.items()}
    return exe, made | {"out": exe.outputs[0].asnumpy()}


def joined(exe: Any) -> list[str]:
    return [t.name for t in exe._planned.train.problem.tasks if t.op in TILED]


def without(monkeypatch: Any) -> None:
    left_out(monkeypatch, "sample_tiles")


LAYER = "wide_backward_data+n_backward+first_grad_sum"
ALL = ["narrow_backward_data+gelu_backward", LAYER]


def test_gradients_of_layers_join_what_reads_them():
    exe = bound(network(), optimizer=SGD)
    assert joined(exe) == ALL
    assert "2 samples at a time" in exe.debug_str()
    assert not TILED & {t.op for t in exe._planned.infer.problem.tasks}


@pytest.mark.parametrize("amp", [None, "bfloat16"])
def test_a_step_makes_the_same(amp, monkeypatch):
    left_out(monkeypatch, "reductions")  # which round less in 16 bits where operators are not apart
    exe, got = trained(network(), amp=amp)
    assert joined(exe)
    without(monkeypatch)
    plain, want = trained(network(), amp=amp)
    assert not joined(plain)
    for name, x in want.items():
        np.testing.assert_allclose(got[name], x, rtol=2e-5, atol=2e-6, err_msg=name)


def test_a_step_has_fewer_bytes(monkeypatch):
    """The gradient that the rectifier's reads is never there as a whole."""

    def bytes_of() -> int:
        nbytes: int = bound(rectified(), optimizer=SGD).memory_plan.arena_bytes
        return nbytes

    fewer = bytes_of()
    without(monkeypatch)
    assert bytes_of() - fewer > 4 * SAMPLES * ROWS * WIDTH // 2


def test_every_budget_makes_the_same_bits():
    exe, want = trained(network())
    least = exe.memory_plan.lower_bound_bytes
    for budget in (exe.memory_plan.peak_bytes, (exe.memory_plan.peak_bytes + least) // 2, least):
        try:
            _, got = trained(network(), memory_budget=budget)
        except mx.MemoryBudgetError as error:
            _, got = trained(network(), memory_budget=error.least_feasible_bytes)
        for name, x in want.items():
            np.testing.assert_array_equal(got[name], x, err_msg=name)


def test_a_layers_gradient_goes_through_the_rectifier_that_it_reads():
    exe, _ = trained(rectified())
    assert joined(exe) == ["second_backward_data+tanh_backward"]
    plan = exe.memory_plan
    ranges = [
        [plan.problem.values[plan.schedule.value_of[m]].name for m in r.members] for r in plan.liveness.ranges
    ]
    (place,) = (r for r in ranges if "second_backward_data+tanh_backward" in " ".join(r))
    assert "tanh" in place, "the gradient lies where the activation lay"


def test_operators_stay_apart_where():
    def shown(x: Any) -> Any:
        return mx.sym.Group([loss(mx.sym.mean(y := norm(x, "last"), axis=1)), mx.sym.BlockGrad(y)])

    cases = {
        "somebody else reads what lies between": lambda x: (
            mx.sym.mean(y := norm(x, "last"), axis=1) + mx.sym.max(y, axis=1)
        ),
        "the reduction goes over the samples": lambda x: mx.sym.mean(
            norm(x, "last"), axis=(0, 1), keepdims=True
        ),
        "the norm goes over the samples": lambda x: mx.sym.mean(norm(x, "last", axis=0), axis=1),
        "it ends a stage": lambda x: mx.sym.mean(
            norm(x, "last", attr={"__mirror_stage__": "True"}), axis=1, name="mean"
        ),
    }
    for why, head in cases.items():
        assert not any(n.startswith("last+") for n in joined(bound(network(head), optimizer=SGD))), why
    exe = shown(block(dense(mx.sym.var("data"), "first")))
    assert not any(n.startswith("last+") for n in joined(bound(exe, optimizer=SGD))), "it is an output"


def test_what_backward_can_make_again_stays_apart():
    """A norm and its cast to 16 bits are made again backwards; as one operator they would be kept."""
    exe, _ = trained(network(), amp="bfloat16")
    assert not any("n+n_" in name for name in joined(exe))


def test_small_arrays_stay_whole(monkeypatch):
    monkeypatch.setattr(PASS, "LEAST_BYTES", 2**20)
    assert not joined(bound(network(), optimizer=SGD))


def test_a_weight_is_read_before_its_update_changes_it(monkeypatch):
    """The weight has more bytes than its data: its update stands between the operators that join."""
    for name in ("LEAST_UPDATE", "LEAST_DEEP_UPDATE"):
        monkeypatch.setattr(tile_sizes, name, 1)
    symbol = network(units=9 * WIDTH)
    exe, got = trained(symbol)
    tasks = {t.name: t.op for t in exe._planned.train.problem.tasks}
    assert tasks["wide_weight_update"] == "_tiled_update" and LAYER in tasks
    without(monkeypatch)
    _, want = trained(symbol)
    for name, x in want.items():
        np.testing.assert_allclose(got[name], x, rtol=2e-5, atol=2e-6, err_msg=name)


def test_a_16_bit_copy_of_a_weight_is_read_before_the_update(monkeypatch):
    """Else the copy would be there besides while the weight is updated."""
    for name in ("LEAST_UPDATE", "LEAST_DEEP_UPDATE"):
        monkeypatch.setattr(tile_sizes, name, 1)
    monkeypatch.setattr("mxlite.backends.cpu.products.SMALL", 1)
    exe, _ = trained(network(units=9 * WIDTH), amp="bfloat16")
    names = [t.name for t in exe._planned.train.listed.tasks]
    assert names.index(LAYER) < names.index("wide_weight_update")


def tiled_calls(exe: Any) -> list[Any]:
    return [c for c in exe._planned.train.calls if c.node.op in (Tiled, TiledGradient)]


def test_kernels_make_what_the_references_make_and_no_output_is_touched_twice():
    rng = np.random.default_rng(1)
    for call in tiled_calls(bound(network(), optimizer=SGD)):
        a, op = call.node.attrs, call.node.op
        arrays = [rng.standard_normal(x.shape).astype(x.dtype) for x in a.arrays[: a.num_inputs]]
        shapes = tuple(x.shape for x in arrays), tuple(a.arrays[i].shape for i in a.made)
        found = []
        for kernel in (call.kernel, Backend.reference(op, a, *shapes, arrays[0].dtype)):
            outs = [np.full(a.arrays[i].shape, np.nan, a.arrays[i].dtype) for i in a.made]
            work = CPU.empty(kernel.workspace)
            before = [x.copy() for x in arrays]
            bind_call(kernel, np, op, a, arrays, outs, work=work, train=True)()
            for x, y in zip(arrays, before):
                np.testing.assert_array_equal(x, y)
            found.append(outs)
        for got, want in zip(*found):
            np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


def test_an_output_lies_over_nothing_that_is_still_read():
    """y = relu(x), z = x + y; and a gradient of tanh, which may lie over the one that arrives alone."""
    x, kind = TileArray((4, 3), np.dtype("f")), (np.dtype("f"),)
    shapes, first, loops = ((4, 3),), ((0,),), (TileLoop(4, 2),)
    calls = (
        TileCall(find_op("relu"), NoAttrs(), (0,), (1,), (shapes, shapes), kind, (first, first)),
        TileCall(
            find_op("elemwise_add"), NoAttrs(), (0, 1), (2,),
            (2 * shapes, shapes), 2 * kind, (2 * first, first),
        ),
    )  # fmt: skip
    over = _in_place(TileAttrs((x, x, x), 1, calls, (1, 2), loops))
    assert over == {"output0": (), "output1": ("arg0",)}
    tanh = find_op("tanh")
    names = tanh.grad_op.input_names(NoAttrs())
    call = TileCall(tanh.grad_op, NoAttrs(), (0, 1), (2,), (shapes, shapes), kind, (first, first))
    over = _in_place(TileAttrs((x, x, x), 2, (call,), (2,), loops))
    assert over == {"output0": (f"arg{names.index('d_out')}",)}
    # What is whole in a loop is read again in its next tile.
    whole = TileArray((4, 3), np.dtype("f"), (None,))
    call = TileCall(
        find_op("negative"), NoAttrs(), (0,), (1,), (shapes, shapes), kind, (((None,),), ((None,),))
    )
    assert _in_place(TileAttrs((whole, whole), 1, (call,), (1,), loops)) == {"output0": ()}


def test_one_output_may_be_wanted_alone_and_lie_over_what_it_may():
    rng = np.random.default_rng(2)
    calls = [c for symbol in (network(), rectified()) for c in tiled_calls(bound(symbol, optimizer=SGD))]
    for call in calls:
        a, op, kernel = call.node.attrs, call.node.op, call.kernel
        arrays = [rng.standard_normal(x.shape).astype(x.dtype) for x in a.arrays[: a.num_inputs]]
        work = CPU.empty(kernel.workspace)
        whole = [np.empty(a.arrays[i].shape, a.arrays[i].dtype) for i in a.made]
        bind_call(kernel, np, op, a, arrays, whole, work=work, train=True)()
        for o, want in enumerate(whole):
            alone = [np.empty_like(x) if i == o else None for i, x in enumerate(whole)]
            bind_call(kernel, np, op, a, arrays, alone, work=work, train=True)()
            np.testing.assert_array_equal(alone[o], want)
            for donor in kernel.in_place_options(op, a)[f"output{o}"]:
                own = [x.copy() for x in arrays]
                over = [own[int(donor[3:])] if i == o else x.copy() for i, x in enumerate(whole)]
                bind_call(kernel, np, op, a, own, over, work=work, train=True)()
                np.testing.assert_array_equal(over[o], want, err_msg=f"{call.node.name} over {donor}")
    assert any(c.kernel.in_place_options(c.node.op, c.node.attrs)["output0"] for c in calls)


@pytest.mark.parametrize("name", ["tanh", "gelu", "square"])
def test_generated_gradients_may_lie_over_whatever_they_read(name):
    """So the gradient of tanh takes the place of what tanh has made, where nobody else reads that."""
    op = find_op(name)
    grad, attrs, shape = op.grad_op, op.Attrs(), (3, 1000)
    rng = np.random.default_rng(3)
    names = grad.input_names(attrs)
    wanted = grad.output_names(attrs)[0]
    kernel = CPU.choose(grad, attrs, (shape,), (shape,), np.dtype("f"), used=frozenset((*names, wanted)))
    options = kernel.in_place_options(grad, attrs)[wanted]
    assert set(options) == set(names)
    arrays = [rng.standard_normal(shape).astype("f") for _ in names]
    want = np.empty(shape, "f")
    bind_call(kernel, np, grad, attrs, arrays, [want])()
    for donor in options:
        own = [x.copy() for x in arrays]
        over = own[names.index(donor)]
        bind_call(kernel, np, grad, attrs, own, [over])()
        np.testing.assert_array_equal(over, want, err_msg=donor)


@pytest.mark.parametrize("count", [0, 2, 6, 7])
def test_sizes_of_tiles_are_those_of_the_list(count: int) -> None:
    loop = TileLoop(count, 2)
    assert loop.num_tiles == len(loop.tiles)
    assert loop.sizes == list(dict.fromkeys(b.stop - b.start for b in loop.tiles))


def test_planning_lists_no_tiles(monkeypatch: Any) -> None:
    """A batch that no memory holds has too many, and is planned all the same."""
    monkeypatch.setattr(TileLoop, "tiles", property(lambda a: pytest.fail("all tiles were listed")))
    x, kind, loop = TileArray((2**60 + 1, 3), np.dtype("f")), (np.dtype("f"),), TileLoop(2**60 + 1, 2)
    shapes, first = (x.shape,), ((0,),)
    call = TileCall(find_op("relu"), NoAttrs(), (0,), (1,), (shapes, shapes), kind, (first, first))
    program = TileProgram(TileAttrs((x, x), 1, (call,), (1,), (loop,)), reference_kernels)
    assert [lengths for _, lengths, *_ in program.kernels] == [(2,), (1,)]
