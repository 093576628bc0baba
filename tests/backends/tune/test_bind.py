"""Binding reads records: the same ones give the same kernels, plans and bits; broken ones change nothing."""

import os
import warnings

import numpy as np
import pytest

import mxlite as mx
from mxlite.backends.cpu.product_part import GENERATED
from mxlite.backends.tune import Records
from mxlite.backends.tune.records import RecordFile
from mxlite.backends.tune.space import Schedule
from mxlite.core import BindError
from mxlite.core.machine_code import native
from mxlite.executor.measure.calibration import call_key, recorded, Turns, with_measured_costs
from mxlite.executor.plan.tasks import tasks_of_step
from mxlite.executor.request.bind_request import BindRequest
from tests.backends.tune.tasks import BACKEND, record_of

pytestmark = pytest.mark.skipif(not native.available(), reason="llvmlite is not there")

SHAPES = {"data": (64, 300)}


def network():
    data = mx.sym.Variable("data")
    gamma, beta = mx.sym.Variable("gamma"), mx.sym.Variable("beta")
    normed = mx.sym.LayerNorm(data, gamma, beta, name="norm")
    return mx.sym.FullyConnected(normed, num_hidden=64, name="fc")


def tasks():
    found, _ = tasks_of_step(BindRequest(network().graph, mx.cpu(), SHAPES, records=Records()))
    return {task.request.op.op_name: task for task in found}


@pytest.fixture
def path(tmp_path):
    os.chmod(tmp_path, 0o700)
    return str(tmp_path / "records.sqlite")


@pytest.fixture
def tuned(path):
    """Records of another schedule of the norm's gradient, and of numpy's product."""
    found = tasks()
    norm, dense = found["_backward_LayerNorm"], found["FullyConnected"]
    default = norm.space(BACKEND).default
    other = next(
        s for s in norm.space(BACKEND).legal if s.kernel == default.kernel and s.knobs[0] != default.knobs[0]
    )
    reference = Schedule("reference", dense.threads)
    with RecordFile(path) as file:
        file.put([record_of(norm, other), record_of(dense, reference)])
    return path, other


def run(**options):
    exe = network().simple_bind(mx.cpu(), **options, **SHAPES)
    rng = np.random.default_rng(3)
    for name in sorted(exe.arg_dict):
        exe.arg_dict[name][:] = rng.standard_normal(exe.arg_dict[name].shape).astype("float32")
    out = exe.forward(is_train=True)[0].asnumpy()
    exe.backward([mx.nd.ones(out.shape)])
    grads = {n: g.asnumpy() for n, g in sorted(exe.grad_dict.items()) if g is not None}
    return exe, out, grads


def kernels(exe):
    return {task.name: task.kernel for task in exe.memory_plan.problem.tasks}


def test_bind_takes_what_records_say_and_the_same_each_time(tuned):
    path, other = tuned
    usual, out, grads = run()
    first, out_1, grads_1 = run(records=path)
    again, out_2, grads_2 = run(records=path)
    assert kernels(first)["fc"] == "reference" != kernels(usual)["fc"]
    spelled = "-".join(map(str, other.knobs))
    assert kernels(first)["norm_backward"] == f"{other.kernel} {spelled}"
    assert kernels(first) == kernels(again)
    assert first.memory_plan.problem.digest == again.memory_plan.problem.digest
    assert first.memory_plan.problem.digest != usual.memory_plan.problem.digest  # plans are kept by it
    np.testing.assert_array_equal(out_1, out_2)
    np.testing.assert_allclose(out_1, out, rtol=1e-4, atol=1e-4)
    for name in grads:
        np.testing.assert_array_equal(grads_1[name], grads_2[name])
        np.testing.assert_allclose(grads_1[name], grads[name], rtol=1e-3, atol=1e-3)


def test_the_environment_names_records_and_a_module_takes_them(tuned, monkeypatch):
    path, _ = tuned
    module = mx.mod.Module(network(), label_names=None, context=mx.cpu(), records=path)
    module.bind(data_shapes=[("data", SHAPES["data"])], for_training=True)
    assert "reference" in str(module._binding.executor.debug_str())
    monkeypatch.setenv("MXLITE_RECORDS", path)
    assert kernels(run()[0])["fc"] == "reference"


def test_recorded_times_are_not_measured_again(tuned):
    path, _ = tuned
    _, step = tasks_of_step(BindRequest(network().graph, mx.cpu(), SHAPES, records=path))
    times = {call.node.name: recorded(call) for call in step.calls}
    assert (times["fc"].cold, times["fc"].warm) == (2e-3, 1e-3)
    assert times["norm"] is None


def test_the_planner_times_only_what_records_do_not_know(tuned, tmp_path, monkeypatch):
    monkeypatch.setenv("MXLITE_CACHE_DIR", str(tmp_path / "cache"))
    path, _ = tuned
    timed = []
    monkeypatch.setattr(Turns, "round", lambda turns: timed.append(set(turns._calls)))
    _, step = tasks_of_step(BindRequest(network().graph, mx.cpu(), SHAPES, records=path))
    keys = {call.node.name: call_key(step, c) for c, call in enumerate(step.calls)}
    _, calibration = with_measured_costs(step)
    assert calibration.known == 2 and {keys["norm"], keys["fc_backward"]} <= timed[0]
    assert not {keys["fc"], keys["norm_backward"]} & timed[0]
    plan = network().memory_plan(mx.cpu(), device="measured", records=path, **SHAPES)
    assert plan.problem.costs == "measured" and plan.predicted_seconds > 0


def test_records_choose_a_generated_product_with_its_schedule(path):
    dense = tasks()["FullyConnected"]
    space = dense.space(BACKEND)
    generated = next(s for s in space.legal if s.knobs[:1] == (GENERATED,))
    with RecordFile(path) as file:
        file.put([record_of(dense, generated)])
    usual, out, _ = run()
    exe, out_1, _ = run(records=path)
    assert kernels(exe)["fc"].startswith("compiled product ") and "compiled" not in kernels(usual)["fc"]
    np.testing.assert_allclose(out_1, out, rtol=1e-4, atol=1e-4)


def test_a_broken_file_and_schedules_that_are_gone_leave_the_defaults(path, tuned):
    usual = kernels(run()[0])
    found = tasks()
    with RecordFile(path) as file:
        rows = [
            record_of(
                found["FullyConnected"], Schedule("a library of somebody", found["FullyConnected"].threads)
            )
        ]
        rows += [
            record_of(found["_backward_LayerNorm"], Schedule("compiled 2 loop nests", 1, (3, 3, 3)), 1e-9)
        ]
        file._file.execute("DELETE FROM records")
        file.put(rows)
    assert kernels(run(records=path)[0]) == usual
    with open(path, "r+b") as raw:
        raw.truncate(5000)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert kernels(run(records=path)[0]) == kernels(run(records=path)[0]) == usual
    assert sum("Records of schedules" in str(w.message) for w in told) == 1
    with pytest.raises(BindError, match="records must name a file"):
        run(records=7)
