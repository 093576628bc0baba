"""Weights that inference keeps in its kernels' order, in the bytes of the user's arrays."""

from __future__ import annotations

import gc
import threading
import weakref
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import mxlite as mx
from mxlite.backends.cpu.onednn import library
from mxlite.engine import get_engine

pytestmark = pytest.mark.skipif(library() is None, reason="oneDNN is not there")

ODD = np.array([0.0, -0.0, np.inf, np.nan, 1e-40, -1.5], np.float32)
"""Numbers that arithmetic would not leave as they are."""


def network() -> Any:
    x = mx.sym.var("data")
    for name, kernel in (("a", 1), ("b", 1), ("c", 3)):
        stride = (2, 2) if name == "c" else (1, 1)
        x = mx.sym.Convolution(
            x,
            kernel=(kernel,) * 2,
            stride=stride,
            pad=(kernel // 2,) * 2,
            num_filter=64,
            no_bias=True,
            name=name,
        )
        x = mx.sym.relu(mx.sym.BatchNorm(x, fix_gamma=False, name=f"{name}_bn"))
    return x


SHAPE = (1, 64, 7, 7)


def bound(**more: Any) -> tuple[Any, dict[str, np.ndarray]]:
    exe = network().simple_bind(mx.cpu(), data=SHAPE, grad_req="null", **more)
    rng = np.random.default_rng(0)
    values = {}
    for name, x in sorted({**exe.arg_dict, **exe.aux_dict}.items()):
        values[name] = rng.uniform(0.5, 1, x.shape).astype(np.float32)
        if name.endswith("weight"):
            values[name] = rng.standard_normal(x.shape).astype(np.float32) / 8
        x[:] = values[name]
    return exe, values


def out(exe: Any) -> np.ndarray:
    return exe.forward(is_train=False)[0].asnumpy()


def is_away(array: Any) -> bool:
    return array.away.form is not None


@pytest.fixture
def pair(engine):
    """An executor, what it computes, and the values of its arrays."""
    exe, values = bound()
    assert {"a_weight", "b_weight", "c_weight"} == {k[1] for k in exe._planned.infer.step.forms}
    return exe, out(exe), values


@pytest.fixture(params=["threaded", "naive"])
def engine(request):
    with mx.engine.use_engine(request.param):
        yield


def test_weights_take_no_second_place_and_results_are_those_of_a_budget(pair):
    exe, got, values = pair
    plan = exe.memory_plan
    assert exe.measured_bytes == plan.peak_bytes
    fixed = sum(x.nbytes for n, x in values.items()) + 2 * 3 * 64 * 4 + got.nbytes
    assert plan.problem.fixed_total == fixed  # arrays, data, factors and shifts, output: nothing twice
    other, _ = bound(memory_budget=2 * plan.peak_bytes)
    np.testing.assert_allclose(got, out(other), rtol=0, atol=1e-5 * np.abs(got).max())
    assert all(is_away(exe.arg_dict[n]) for n in ("a_weight", "b_weight", "c_weight"))


@pytest.mark.parametrize("gone", ["view", "executor"])
def test_a_copy_is_there_as_long_as_a_call_that_was_pushed_reads_it(gone):
    with mx.engine.use_engine("threaded") as engine:
        exe, _ = bound()
        view = exe.arg_dict["a_weight"][0]
        want = out(exe)
        (copy,) = (k._copy for k in exe._infer.kept if k._copy is not None)
        copy = weakref.ref(copy)
        gate = threading.Event()
        engine.push(lambda: gate.wait(10), (), (exe.arg_dict["data"].var,), kind="io")
        try:
            got = exe.forward()[0]
            del view
            if gone == "view":
                exe.forward()
            else:
                del exe
            gc.collect()
            assert copy() is not None
        finally:
            gate.set()
        np.testing.assert_array_equal(got.asnumpy(), want)
        engine.wait_all()
        gc.collect()
        assert copy() is None


def test_an_interrupt_of_a_push_leaves_a_weight_as_it_is_noted(monkeypatch):
    """Ctrl-C while weights are on their way to their kernel's order: what was pushed is so, no more."""
    with mx.engine.use_engine("threaded"):
        exe, values = bound()
        want = out(exe)
        for pushed in (0, 1):
            for name in ("a_weight", "b_weight"):
                exe.arg_dict[name].asnumpy()
            left = iter([get_engine().push] * pushed)

            def push(*args, left=left, **keywords):
                for go_on in left:
                    return go_on(*args, **keywords)
                raise KeyboardInterrupt

            with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
                engine = SimpleNamespace(push=push, wait_to_write=get_engine().wait_to_write)
                patched.setattr("mxlite.executor.run.away.get_engine", lambda engine=engine: engine)
                exe.forward()
            for name in ("a_weight", "b_weight", "c_weight"):
                np.testing.assert_array_equal(exe.arg_dict[name].asnumpy(), values[name])
            np.testing.assert_array_equal(out(exe), want)


@pytest.mark.skipif(library() is None or not library().has_bf16, reason="bfloat16 is widened on this machine")
def test_weights_of_16_bits_go_away_too(engine):
    """Loaded as bfloat16, a network's parameters take half the bytes, and no second place either."""
    exe, values = bound(type_dict={"data": "bfloat16"})
    weights = {n: x for n, x in exe.arg_dict.items() if n.endswith("weight")}
    assert {np.dtype(x.dtype) for x in weights.values()} == {np.dtype("bfloat16")}
    got = out(exe)
    plan = exe.memory_plan
    assert all(map(is_away, weights.values()))
    assert exe.measured_bytes == plan.peak_bytes
    wide = bound()[0].memory_plan.problem.fixed_total
    assert wide - plan.problem.fixed_total >= sum(2 * x.size for x in weights.values())
    odd = np.resize(ODD, 64 * 64).astype("bfloat16").reshape(64, 64, 1, 1)
    exe.arg_dict["a_weight"][:] = odd
    out(exe)
    assert exe.arg_dict["a_weight"].asnumpy().tobytes() == odd.tobytes()
    rounded = values["a_weight"].astype("bfloat16")
    exe.arg_dict["a_weight"][:] = rounded
    np.testing.assert_array_equal(out(exe), got)
    held = exe.arg_dict["b_weight"].asnumpy().copy()
    np.testing.assert_array_equal(held, values["b_weight"].astype("bfloat16"))
    other, _ = bound(type_dict={"data": "bfloat16"}, memory_budget=2 * plan.peak_bytes)
    near = np.abs(got.astype("f")).max() / 50
    np.testing.assert_allclose(got.astype("f"), out(other).astype("f"), rtol=0, atol=near)


def test_who_asks_gets_every_bit_back(pair):
    exe, got, values = pair
    for _ in range(2):
        for name in ("a_weight", "c_weight"):
            array = exe.arg_dict[name]
            assert is_away(array) and array.shape == values[name].shape and array.dtype == np.float32
            assert is_away(array)  # shape and type can be had without
            np.testing.assert_array_equal(array.asnumpy(), values[name])
            assert not is_away(array)
        np.testing.assert_array_equal(out(exe), got)
    odd = np.resize(ODD, values["b_weight"].shape)
    exe.arg_dict["b_weight"][:] = odd
    out(exe)
    assert is_away(exe.arg_dict["b_weight"])
    found = exe.arg_dict["b_weight"].asnumpy()
    np.testing.assert_array_equal(found.view(np.uint32), odd.view(np.uint32))


@pytest.mark.parametrize("how", ["whole", "part", "view", "operator"])
def test_what_is_written_counts(pair, how):
    exe, before, values = pair
    array, new = exe.arg_dict["b_weight"], values["b_weight"].copy()
    if how == "whole":
        new *= 2
        array[:] = new
    elif how == "part":
        new[3] = 0.25
        array[3] = 0.25
    elif how == "view":
        new[5:9] = 1.0
        view = array[5:9]
        view[:] = 1.0
    else:
        new = new * np.float32(3)
        array *= 3
    got = out(exe)
    other, _ = bound()
    other.arg_dict["b_weight"][:] = new
    np.testing.assert_array_equal(got, out(other))
    assert np.abs(got - before).max() > 0
    np.testing.assert_array_equal(array.asnumpy(), new)


@pytest.mark.parametrize("hold", ["view", "numpy"])
def test_nothing_changes_order_under_the_eyes_of_somebody_who_looks(pair, hold):
    exe, got, values = pair
    planned, arguments = exe.memory_plan.peak_bytes, exe.memory_plan.breakdown["arguments"]
    array = exe.arg_dict["a_weight"]
    held = array[2:4] if hold == "view" else np.from_dlpack(array)
    want = values["a_weight"][2:4] if hold == "view" else values["a_weight"]
    for _ in range(2):
        np.testing.assert_array_equal(out(exe), got)
        assert not is_away(array)
        np.testing.assert_array_equal(held.asnumpy() if hold == "view" else held, want)
    assert exe.copied_bytes == values["a_weight"].nbytes  # besides
    assert exe.measured_bytes == exe.memory_plan.peak_bytes == planned + exe.copied_bytes
    assert exe.memory_plan.breakdown["arguments"] == arguments + exe.copied_bytes
    array[:] = 2 * values["a_weight"]
    other, _ = bound()
    other.arg_dict["a_weight"][:] = 2 * values["a_weight"]
    doubled = out(other)
    np.testing.assert_array_equal(out(exe), doubled)
    del held
    np.testing.assert_array_equal(out(exe), doubled)
    assert is_away(array) and exe.measured_bytes == exe.memory_plan.peak_bytes == planned


def test_training_mode_and_other_shapes_share_the_weights(pair):
    exe, got, values = pair
    larger = exe.reshape(data=(2, *SHAPE[1:]), allow_up_sizing=True)
    twice = larger.forward(is_train=False, data=np.repeat(values["data"], 2, 0))[0].asnumpy()
    np.testing.assert_allclose(twice, np.repeat(got, 2, 0), rtol=0, atol=1e-5 * np.abs(got).max())
    exe.arg_dict["data"][:] = values["data"]
    np.testing.assert_array_equal(out(exe), got)
    exe.forward(is_train=True)[0].asnumpy()
    np.testing.assert_array_equal(exe.arg_dict["c_weight"].asnumpy(), values["c_weight"])


def test_a_failed_weight_fails_what_reads_it_until_it_is_written():
    exe, values = bound()
    want = out(exe)
    array = exe.arg_dict["b_weight"]
    array.wait_to_read()
    mx.engine.get_engine().push(lambda: 1 / 0, (), (array.var,), name="trouble")
    with pytest.raises(mx.OperatorError, match="trouble"):
        out(exe)
    array[:] = values["b_weight"]
    np.testing.assert_array_equal(out(exe), want)
    np.testing.assert_array_equal(array.asnumpy(), values["b_weight"])


def test_a_module_keeps_its_weights_once():
    module = mx.mod.Module(network(), ["data"], None)
    module.bind([("data", SHAPE)], for_training=False)
    _, values = bound()
    args = {n: mx.nd.array(v) for n, v in values.items() if n.endswith(("weight", "gamma", "beta"))}
    aux = {n: mx.nd.array(v) for n, v in values.items() if "moving" in n}
    module.init_params(arg_params=args, aux_params=aux)
    batch = mx.io.DataBatch([mx.nd.array(values["data"])])
    module.forward(batch, is_train=False)
    got = module.get_outputs()[0].asnumpy()
    nbytes = module.measured_bytes
    assert nbytes == module.memory_plan.peak_bytes
    np.testing.assert_array_equal(module.get_params()[0]["a_weight"].asnumpy(), values["a_weight"])
    module.forward(batch, is_train=False)
    np.testing.assert_array_equal(module.get_outputs()[0].asnumpy(), got)
    held = module._executor.arg_dict["b_weight"][:2]
    module.forward(batch, is_train=False)
    assert module.planned_bytes == module.measured_bytes == module.memory_plan.peak_bytes
    assert module.measured_bytes > nbytes
    del held
    module.forward(batch, is_train=False)
    assert module.planned_bytes == module.measured_bytes == module.memory_plan.peak_bytes == nbytes


def test_what_waits_for_its_optimizer_makes_no_room_for_forms():
    """Of three channels a kernel makes sixteen, say; a step within a budget has no bytes for them."""
    x = mx.sym.Convolution(mx.sym.var("data"), kernel=(7, 7), stride=(2, 2), num_filter=20, name="a")
    net = mx.sym.LinearRegressionOutput(mx.sym.Flatten(x), mx.sym.var("label"))
    shapes = [("data", (2, 3, 15, 15))], [("label", (2, 20 * 25))]
    module = mx.mod.Module(net, ["data"], ["label"], fused_update=True)
    module.bind(*shapes)
    module.init_params()
    module.init_optimizer()
    batch = mx.io.DataBatch(*([mx.nd.ones(shape) for _, shape in part] for part in shapes))
    for work in (module.forward_backward, lambda b: module.update(), lambda b: module.forward(b, False)):
        work(batch)
    mx.nd.waitall()
    assert module.measured_bytes == module.planned_bytes == module.memory_plan.peak_bytes
