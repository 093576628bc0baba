"""Costs of plans: described devices, and kernels that are timed."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from time import sleep
from types import SimpleNamespace

import numpy as np
import pytest

import mxlite as mx
from mxlite.backends import timed_call
from mxlite.backends.cpu.backend import CPU
from mxlite.backends.timed_call import cold_and_warm, fill
from mxlite.executor.measure.timings import Seconds, Timings
from mxlite.executor.run.kernel_thread import where_kernels_run
from mxlite.memplan import Device
from mxlite.memplan.cost.device import DEFAULT, device_of
from tests.emulators.emulated_driver import emulated_gpus
from tests.executor.timed import calibration, chain, own_cache, Turns  # noqa: F401

# -- described -----------------------------------------------------------------------------------


def test_a_call_takes_the_longer_of_arithmetic_and_traffic():
    device = Device(flops_per_s=2e12, bytes_per_s=5e11)
    assert device.seconds(4e12, 1) == 2 and device.seconds(1, 1e12) == 2
    assert Device() == DEFAULT == Device(10e12, 600e9)


@pytest.mark.parametrize(
    "text, flops, nbytes",
    [
        ("20TFLOP/s,900GB/s", 20e12, 900e9), (" 67 tflops/s , 4.8 TB/s", 67e12, 4.8e12),
        ("1e9FLOP/s,1bytes/s", 1e9, 1), ("3.5GFLOP/s,2.GB/s", 3.5e9, 2e9),
    ],
)  # fmt: skip
def test_devices_are_read_from_text(text, flops, nbytes):
    device = Device.parse(text)
    assert (device.flops_per_s, device.bytes_per_s) == (pytest.approx(flops), pytest.approx(nbytes))
    assert Device.parse(str(device)) == device


def test_products_have_rates_of_their_own():
    device = Device(1e12, 1e9, tf32_flops_per_s=4e12)
    assert device.seconds(4e12, 1) == device.seconds(4e12, 1, "half") == 4
    assert device.seconds(4e12, 1, "tf32") == 1 and device.seconds(4e12, 2e9, "tf32") == 2
    text = "67 TFLOP/s, 4.8 TB/s, 494.5 TFLOP/s tf32, 989.5 TFLOP/s half"
    found = Device.parse(text)
    assert (found.tf32_flops_per_s, found.half_flops_per_s) == (pytest.approx(494.5e12), 989.5e12)
    assert str(found) == text
    half = Device.parse("67TFLOP/s,4.8TB/s,989TFLOP/s Half")
    assert half == Device(67e12, 4.8e12, half_flops_per_s=989e12)
    with pytest.raises(mx.DeviceError, match="half_flops_per_s must be a finite number above 0"):
        Device(half_flops_per_s=0)


def test_launches_take_time_besides():
    device = Device(1e12, 1e9, launch_s=2e-6)
    assert device.seconds(0, 0) == 2e-6 and device.seconds(0, 0, launches=3) == pytest.approx(6e-6)
    assert device.seconds(4e12, 1, launches=0) == 4 and Device(1e12, 1e9).seconds(0, 0) == 0
    text = "67 TFLOP/s, 4.8 TB/s, 494.5 TFLOP/s tf32, 1.3 us/launch"
    assert str(Device.parse(text)) == text
    assert Device.parse("1TFLOP/s,1GB/s, 2US / launch") == Device(1e12, 1e9, launch_s=2e-6)
    for wrong in (-1e-6, 2.0, float("nan"), "2us", True, None):
        with pytest.raises(mx.DeviceError, match="launch_s must be 0, or seconds from 1e-09 to 1, got"):
            Device(launch_s=wrong)


@pytest.mark.parametrize(
    "text",
    [
        "1TFLOP/s tf32,1GB/s", "1TFLOP/s,1GB/s half", "1TFLOP/s,1GB/s,1TFLOP/s", "1TFLOP/s,1GB/s,1GB/s half",
        "1TFLOP/s,1GB/s,1TFLOP/s half,2TFLOP/s half", "1TFLOP/s,1GB/s,1TFLOP/s fp8",
        "1TFLOP/s half,1TFLOP/s,1GB/s", "1TFLOP/s,1GB/s,", "2us/launch", "1TFLOP/s,2us/launch",
        "1TFLOP/s,2us/launch,1GB/s", "1TFLOP/s,1GB/s,2us/launch,2us/launch", "1TFLOP/s,1GB/s,2ms/launch",
        "", "20TFLOP/s", "900GB/s,20TFLOP/s", "20,900", "20TFLOP,900GB", "-1TFLOP/s,1GB/s",
        "0TFLOP/s,1GB/s",
        "nanFLOP/s,1GB/s", "1e999FLOP/s,1GB/s", "1TFLOP/s,1GB/s,1GB/s", "measure",
        "9" * 5000 + "FLOP/s,1GB/s",
    ],
)  # fmt: skip
def test_other_text_is_no_device(text):
    with pytest.raises(mx.DeviceError, match=r"20TFLOP/s,900GB/s|finite number above 0"):
        Device.parse(text)
    with pytest.raises(mx.DeviceError):
        chain(1).memory_plan(data=(2, 4), device=text)


@pytest.mark.parametrize(
    "rate", [0, -1, float("nan"), float("inf"), True, "1e12", None, 10**400, 1e-300, 1e300]
)
def test_rates_are_finite_numbers_above_0(rate):
    with pytest.raises(mx.DeviceError, match="bytes_per_s must be a finite number above 0"):
        Device(bytes_per_s=rate)
    with pytest.raises(mx.DeviceError):
        device_of(rate if rate is not None else 1.5)


def test_a_described_device_changes_seconds_and_no_task():
    net, shape = chain(), (64, 32)
    plain = net.memory_plan(data=shape)
    slow = net.memory_plan(data=shape, device=Device(10e11, 600e8))
    assert slow.step_seconds == pytest.approx(10 * plain.step_seconds)
    assert plain.problem.costs == "" and slow.problem.costs == "1 TFLOP/s, 60 GB/s"
    assert "predicted step" in slow.summary() and "predicted step" not in plain.summary()
    again = net.memory_plan(data=shape, device="10TFLOP/s,600GB/s")
    assert again.problem.digest == plain.problem.digest and again == plain
    assert plain.predicted_seconds == plain.step_seconds


def test_the_plan_within_a_budget_weighs_the_device():
    net, shape = chain(), (512, 32)
    full = net.memory_plan(data=shape)
    budget = full.problem.fixed_total + int(0.7 * full.arena_bytes)
    devices = Device(1e9, 600e9), Device(10e15, 1e9)  # of weak arithmetic, of slow memory
    plans = [net.memory_plan(data=shape, memory_budget=budget, device=d) for d in devices]
    for own, other in (plans, plans[::-1]):
        assert own.predicted_seconds == pytest.approx(own.step_seconds * (1 + own.extra_time))
        seconds = [t.seconds for t in own.problem.tasks]
        again = [sum(seconds[t] for t, k in zip(p.schedule.task, p.schedule.copy) if k) for p in (own, other)]
        assert again[0] <= again[1]


def test_loops_are_reckoned_for_the_device_too():
    _, last = mx.sym.contrib.foreach(
        lambda x, s: ([], mx.sym.tanh(s * x)), mx.sym.var("data"), mx.sym.var("s")
    )
    slow, fast = (
        last.memory_plan(data=(50, 8), s=(8,), device=d).step_seconds
        for d in (Device(1e9, 1e9), Device(4e9, 4e9))
    )
    assert slow == pytest.approx(4 * fast)


def test_modules_and_executors_keep_their_device():
    data = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=4, name="fc")
    module = mx.mod.Module(mx.sym.SoftmaxOutput(data, name="softmax"), device="1TFLOP/s,60GB/s")
    module.bind([("data", (8, 4))], [("softmax_label", (8,))])
    assert module.memory_plan.problem.costs == "1 TFLOP/s, 60 GB/s"
    executor = data.simple_bind(mx.cpu(), data=(8, 4), device=Device(1e12, 60e9))
    bigger = executor.reshape(allow_up_sizing=True, data=(16, 4))
    assert bigger.memory_plan.problem.costs == "1 TFLOP/s, 60 GB/s"
    with pytest.raises(mx.DeviceError):
        mx.mod.Module(data, label_names=None, device="fast")


# -- measured ------------------------------------------------------------------------------------


def test_measuring_once_serves_every_later_plan(tmp_path, monkeypatch):
    net, shape = chain(), (16, 32)
    first = net.memory_plan(data=shape, device="measured")
    assert first.problem.costs == "measured" and "(measured)" in first.summary()
    assert all(0 < t.seconds < 10 for t in first.problem.tasks)
    files = list((tmp_path / "timings").iterdir())
    assert len(files) == 1

    def fails(*_):
        raise AssertionError("measured again")

    monkeypatch.setattr(calibration, "_time_call", fails)
    assert net.memory_plan(data=shape, device="measured") == first
    monkeypatch.setattr("mxlite.executor.measure.timings._made", {})  # as a new process
    assert net.memory_plan(data=shape, device="measured") == first
    with pytest.raises(AssertionError, match="measured again"):
        net.memory_plan(data=(17, 32), device="measured")
    with pytest.raises(AssertionError, match="measured again"):
        net.calibrate(data=shape, again=True)


def test_equal_calls_are_measured_once():
    done = chain(8).calibrate(data=(16, 32))
    assert done.measured == done.calls < 20 and done.known == done.modelled == 0
    again = chain(8).calibrate(data=(16, 32))
    assert again.known == done.calls and again.measured == 0 and again.step_s == done.step_s
    assert "known from before" in str(again)


@pytest.mark.parametrize("kernels", ["reference", "onednn,compiled"])
def test_updates_of_equal_weights_are_measured_once(kernels, monkeypatch):
    monkeypatch.setenv("MXLITE_KERNELS", kernels)
    sgd = mx.optimizer.SGD(momentum=0.9)
    # Of 512 x 512 a gradient is made inside its update, where there are kernels for it.
    for width, batch in ((32, 16), (512, 8)):
        few, many = (
            chain(n, width).calibrate(data=(batch, width), optimizer=sgd, again=True) for n in (5, 8)
        )
        assert many.calls == few.calls and many.measured == few.calls


def test_larger_work_takes_longer():
    small, large = (chain(2, w).calibrate(data=(256, w)).step_s for w in (8, 256))
    assert large > 3 * small


def test_values_are_neither_denormal_nor_out_of_range():
    for dtype in ("float32", "float16", "float64"):
        array = np.zeros((3, 10007), dtype)
        fill(CPU, array)
        assert array.min() >= 0.5 and array.max() <= 1.5 and len(np.unique(array[0])) > 500
    array = np.full((5, 5), 7, "int32")
    fill(CPU, array)
    assert not array.any()


def test_the_users_arrays_are_left_alone():
    net = chain(2, 4)
    executor = net.simple_bind(mx.cpu(), data=(4, 4), device="measured")
    assert all(not a.asnumpy().any() for a in executor.arg_arrays)


def test_a_users_operator_is_not_run_to_be_measured():
    calls = []

    class Doubling(mx.operator.CustomOp):
        def forward(self, is_train, req, in_data, out_data, aux):
            calls.append(1)
            self.assign(out_data[0], req[0], in_data[0] * 2)

    @mx.operator.register("costs_doubling")
    class DoublingProp(mx.operator.CustomOpProp):
        def create_operator(self, ctx, shapes, dtypes):
            return Doubling()

    net = mx.sym.exp(mx.sym.Custom(mx.sym.Variable("data"), op_type="costs_doubling", name="own"))
    done = net.calibrate(data=(64, 64), grad_req="null")
    plan = net.memory_plan(data=(64, 64), grad_req="null", device="measured")
    assert done.modelled >= 1 and not calls
    assert all(t.seconds > 0 for t in plan.problem.tasks)


def test_what_lasts_too_long_keeps_a_scaled_model(monkeypatch):
    monkeypatch.setattr(calibration, "TOTAL_S", -1.0)
    done = chain().calibrate(data=(16, 32))
    assert done.measured == 0 and done.modelled == done.calls and done.step_s > 0


def test_all_calls_take_turns_and_of_all_rounds_the_median_counts(monkeypatch):
    turns, looks = [], []

    def time_call(lowered, c, flush):
        turns.append(c)
        return Seconds(float(len(turns)), 0.5)

    def others(cache, count):
        looks.append(len(turns))
        return float(10 * len(looks))

    monkeypatch.setattr(calibration, "_time_call", time_call)
    monkeypatch.setattr(calibration, "others_bytes_per_s", others)
    monkeypatch.setattr(calibration, "in_steps", lambda lowered, budget: {})
    problem = chain().memory_plan(data=(16, 32), device="measured").problem
    calls = len(turns) // calibration.ROUNDS
    assert calls > 3 and turns == turns[:calls] * calibration.ROUNDS
    assert len(set(turns)) == calls
    assert problem.tasks[turns[0]].seconds == 1 + calls * (calibration.ROUNDS // 2)
    assert problem.tasks[turns[0]].warm == 0.5
    # What others do is looked at in the same rounds.
    assert looks == [calls * (r + 1) for r in range(calibration.ROUNDS)]
    assert problem.others_bytes_per_s == 10 * (calibration.ROUNDS // 2 + 1)


def test_times_are_there_behind_each_round(monkeypatch):
    (lowered,) = lowered_for_timing(monkeypatch, chain())
    monkeypatch.setattr(calibration, "_time_call", lambda lowered, c, flush: Seconds(2.0 + c, 1.0))
    calls = calibration.distinct_calls(lowered)
    turns = Turns(lowered, calls, 2**20)
    assert turns.seconds() == {}
    for _ in range(2):
        turns.round()
        assert turns.seconds() == {key: (2.0 + c, 1.0, 0.0) for key, c in calls.items()}


@pytest.mark.parametrize("kind", ["compute", "team"])
def test_made_up_values_warn_nobody_on_whichever_thread_kernels_run(kind):
    seen = []
    lowered = SimpleNamespace(backend=CPU, threads=1, tuned=True, kind=kind)
    where_kernels_run(lowered, lambda: seen.append(set(np.geterr().values())))
    assert seen == [{"ignore"}]


def test_a_call_in_the_cache_takes_no_longer_than_out_of_it(monkeypatch):
    monkeypatch.setattr(calibration, "_time_call", lambda lowered, c, flush: Seconds(1.0, 3.0))
    monkeypatch.setattr(calibration, "in_steps", lambda lowered, budget: {})
    tasks = chain().memory_plan(data=(16, 32), device="measured").problem.tasks
    assert {(t.seconds, t.warm, t.cold) for t in tasks} == {(1.0, 1.0, 1.0)}


def test_what_cannot_be_timed_is_tried_once(monkeypatch):
    turns = []
    monkeypatch.setattr(calibration, "_time_call", lambda lowered, c, flush: turns.append(c))
    done = chain().calibrate(data=(16, 32))
    assert len(turns) == done.calls == done.modelled


def test_a_cold_run_finds_empty_caches_and_each_run_threads_awake(monkeypatch):
    monkeypatch.setattr(timed_call, "AGAIN", 4)
    happened, times = [], iter([4.0, 3.0, 9.0, 2.0, 1.0])
    monkeypatch.setattr("mxlite.backends.base.Backend.seconds_of", lambda self, run: run() or next(times))
    backend = replace(CPU, rouse=lambda threads: happened.append(threads))
    run, flush = (lambda word=word: happened.append(word) for word in ("run", "flush"))
    monkeypatch.setattr(timed_call, "CALL_S", 1e9)
    assert cold_and_warm(backend, 2, run, flush) == (4.0, 1.5)  # of the later half the median
    assert happened == ["run", "flush", 2, "run", *[2, "run"] * 4]


def test_warm_runs_are_many_where_they_are_short_and_some_where_they_are_long(monkeypatch):
    monkeypatch.setattr(timed_call, "CALL_S", 5.0)
    for seconds, count in ((0.1, timed_call.AGAIN), (0.9, 6), (100.0, timed_call.LEAST_AGAIN)):
        runs = []
        monkeypatch.setattr(
            "mxlite.backends.base.Backend.seconds_of", lambda self, run, s=seconds: run() or s
        )
        backend = replace(CPU, rouse=lambda threads: None)
        cold_and_warm(backend, 1, lambda runs=runs: runs.append(1), lambda: None)
        assert len(runs) == 2 + count


def test_twice_what_the_cache_holds_is_written_before_a_cold_run(monkeypatch):
    (lowered,) = lowered_for_timing(monkeypatch, chain())
    for cache in (2**25, 2**20, 0):
        turns = Turns(lowered, {}, cache)
        assert sum(part.nbytes for part in turns._flush._parts) >= max(2 * cache, calibration.LEAST_FLUSH)


def test_to_wait_takes_no_seconds_of_a_kernel():
    assert 0 < CPU.seconds_of(lambda: sleep(0.05)) < 0.04


def test_flushing_writes_all_bytes():
    for threads in (1, 2, 3):
        flush = timed_call.Flush(8 * 1001, threads)
        flush()
        assert len(flush._parts) == threads and sum(map(len, flush._parts)) == 1001
        assert all((part == 2).all() for part in flush._parts)


def test_rousing_a_team_does_nothing_else():
    before = CPU.threads()
    with CPU.running(2):
        CPU.rouse(2)
        assert CPU.threads() == 2
    CPU.rouse(1)
    assert CPU.threads() == before


def test_a_timed_call_has_its_temporaries_in_one_block(monkeypatch):
    made = []
    monkeypatch.setattr(calibration, "bind_call", lambda *args, **rest: made.append((args, rest)))
    (lowered,) = lowered_for_timing(monkeypatch, chain())
    for c, call in enumerate(lowered.calls):
        calibration._scratch_call(lowered, c)
        (args, rest), spans = made[-1], []
        for v, array in zip((*call.inputs, *call.outputs), (*args[4], *args[5])):
            if v >= 0:
                assert array.shape == lowered.shape[v] and array.dtype == lowered.dtype[v]
                if lowered.key[v] is None:
                    spans.append((array.ctypes.data, v, array.nbytes))
        spans.append((rest["work"].ctypes.data, -1, rest["work"].nbytes))
        spans = sorted(set(spans))
        assert rest["work"].nbytes == lowered.problem.tasks[c].workspace
        assert all(at % 64 == 0 for at, *_ in spans)
        for (low, _, nbytes), (high, *_) in pairwise(spans):
            assert low + nbytes <= high < low + nbytes + 64


def lowered_for_timing(monkeypatch, net, **shapes):
    found, costed = [], calibration.costed
    monkeypatch.setattr(calibration, "TOTAL_S", -1.0)
    monkeypatch.setattr(
        calibration, "costed", lambda lowered, *_: found.append(lowered) or costed(lowered, *_)
    )
    net.calibrate(**(shapes or {"data": (16, 32)}))
    return found


def test_measuring_needs_the_device():
    with pytest.raises(mx.DeviceError):
        chain(1).memory_plan(mx.gpu(), data=(2, 4), device="measured")


def test_foreign_files_of_timings_count_for_nothing(tmp_path):
    net = chain(1)
    net.calibrate(data=(4, 4))
    (file,) = (tmp_path / "timings").iterdir()
    good = json.loads(file.read_text())
    key = next(iter(good["seconds"]))

    def reads(text):
        file.write_text(text)
        return Timings(tuple(good["facts"]), str(file)).seconds

    assert reads(json.dumps(good)) == {k: tuple(s) for k, s in good["seconds"].items()}
    assert key in reads(json.dumps({**good, "seconds": {key: [1.0, 1.0, 0.0]}}))
    for bad in (
        True, 1, "1", None, 1.0, [1.0], [1.0, 1.0], [1.0] * 4, [1, 1, 1], [1.0, -1.0, 1.0], [0.0, 1.0, 1.0],
        [1.0, 1.0, -1.0], [1.0, 1e400, 1.0], [1.0, 1.0, 1e400],
    ):  # fmt: skip
        assert key not in reads(json.dumps({**good, "seconds": {**good["seconds"], key: bad}}))
    for bad in (
        "", "[]", "[" * 100_000, json.dumps({**good, "mxlite_timings": 1}), json.dumps({**good, "facts": []}),
        json.dumps({**good, "seconds": [1]}), json.dumps(good)[:-5], "9" * 5000,
    ):  # fmt: skip
        assert reads(bad) == {}
    assert reads(json.dumps({**good, "seconds": {"x": [1.0, 1.0, 1.0]}})) == {}
    assert good["cache"] == [2**20, 1e9]
    for bad in (
        True,
        None,
        7,
        [],
        [7],
        [7, 1],
        [7.0, 1.0],
        [-1, 1.0],
        [7, -1.0],
        [2**70, 1.0],
        [7, 1e400],
        [7, None],
    ):
        file.write_text(json.dumps({**good, "cache": bad}))
        assert Timings(tuple(good["facts"]), str(file)).cache is None


def test_a_cache_that_cannot_be_written_is_none(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MXLITE_CACHE_DIR", str(tmp_path / "file"))
    with pytest.warns(RuntimeWarning, match="cache folder"):
        assert chain(1).calibrate(data=(4, 4)).measured
    assert chain(1).calibrate(data=(4, 4)).known  # in this process


def test_the_oldest_timings_go(tmp_path, monkeypatch):
    monkeypatch.setattr("mxlite.executor.measure.timings.MOST_CALLS", 3)
    timings = Timings(("a",), str(tmp_path / "t.json"))
    for n in range(5):
        timings.update({f"{n:064x}": Seconds(1.0 + n, 1.0)}, (7, 0.0))
    again = Timings(("a",), str(tmp_path / "t.json"))
    assert sorted(s.cold for s in again.seconds.values()) == [3.0, 4.0, 5.0]
    assert again.cache == (7, 0.0)


def test_kernels_of_a_gpu_are_timed_there():
    with emulated_gpus():
        done = chain().calibrate(mx.gpu(0), data=(16, 32))
        assert done.measured == done.calls
