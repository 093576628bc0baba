"""Costs of plans: described devices, and kernels that are timed."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from itertools import pairwise
from math import inf
from time import sleep
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest
from emulated_driver import emulated_gpus

import mxlite as mx
from mxlite.backends.cpu import CPU
from mxlite.executor.cache_probe import cache_bytes, LOOKS, others_bytes_per_s, PART, WAITS
from mxlite.executor.kernel_thread import where_kernels_run
from mxlite.executor.rehearsal import fill, PATTERN, Rehearsal
from mxlite.executor.timings import Seconds, Timings
from mxlite.executor.trial import Trial
from mxlite.memplan import Device, HostLink, locality, MemoryPlan, plan_memory
from mxlite.memplan.device import DEFAULT, device_of
from mxlite.memplan.plan import make_plan
from mxlite.memplan.problem import Problem, Task, Value
from mxlite.memplan.schedule import OFFLOADED

calibration = sys.modules["mxlite.executor.calibration"]
trials = sys.modules["mxlite.executor.trials"]
Turns, Place, settled = calibration.Turns, calibration.Place, calibration.settled


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MXLITE_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("MXLITE_KERNELS", "reference")
    monkeypatch.setattr("mxlite.executor.timings._made", {})
    monkeypatch.setattr(calibration, "cache_bytes", lambda: 2**20)  # what they do has tests of its own
    monkeypatch.setattr(calibration, "others_bytes_per_s", lambda cache, looks: 1e9)
    return tmp_path


def chain(layers=6, width=32):
    net = mx.sym.Variable("data")
    for i in range(layers):
        net = mx.sym.FullyConnected(net, num_hidden=width, name=f"fc{i}")
        net = mx.sym.Activation(net, act_type="tanh", name=f"act{i}")
    return mx.sym.MakeLoss(mx.sym.sum(mx.sym.square(net)))


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


def test_measuring_once_serves_every_later_plan(own_cache, monkeypatch):
    net, shape = chain(), (16, 32)
    first = net.memory_plan(data=shape, device="measured")
    assert first.problem.costs == "measured" and "(measured)" in first.summary()
    assert all(0 < t.seconds < 10 for t in first.problem.tasks)
    files = list((own_cache / "timings").iterdir())
    assert len(files) == 1

    def fails(*_):
        raise AssertionError("measured again")

    monkeypatch.setattr(calibration, "_time_call", fails)
    assert net.memory_plan(data=shape, device="measured") == first
    monkeypatch.setattr("mxlite.executor.timings._made", {})  # as a new process
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
            chain(n, width).calibrate(data=(batch, width), optimizer=sgd, again=True) for n in (5, 15)
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
    monkeypatch.setattr(calibration, "AGAIN", 4)
    happened, times = [], iter([4.0, 3.0, 9.0, 2.0, 1.0])
    monkeypatch.setattr("mxlite.backends.base.Backend.seconds_of", lambda self, run: run() or next(times))
    backend = replace(CPU, rouse=lambda threads: happened.append(threads))
    lowered = SimpleNamespace(backend=backend, threads=2, tuned=True)
    run, flush = (lambda word=word: happened.append(word) for word in ("run", "flush"))
    monkeypatch.setattr(calibration, "CALL_S", 1e9)
    assert calibration._pair(lowered, run, flush) == (4.0, 1.5, 0.0)  # of the later half the median
    assert happened == ["run", "flush", 2, "run", *[2, "run"] * 4]


def test_warm_runs_are_many_where_they_are_short_and_some_where_they_are_long(monkeypatch):
    monkeypatch.setattr(calibration, "CALL_S", 5.0)
    for seconds, count in ((0.1, calibration.AGAIN), (0.9, 6), (100.0, calibration.LEAST_AGAIN)):
        runs = []
        monkeypatch.setattr(
            "mxlite.backends.base.Backend.seconds_of", lambda self, run, s=seconds: run() or s
        )
        lowered = SimpleNamespace(backend=replace(CPU, rouse=lambda threads: None), threads=1, tuned=True)
        calibration._pair(lowered, lambda runs=runs: runs.append(1), lambda: None)
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
        flush = calibration.Flush(8 * 1001, threads)
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


def test_foreign_files_of_timings_count_for_nothing(own_cache):
    net = chain(1)
    net.calibrate(data=(4, 4))
    (file,) = (own_cache / "timings").iterdir()
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


def test_a_cache_that_cannot_be_written_is_none(own_cache, monkeypatch):
    (own_cache / "file").write_text("")
    monkeypatch.setenv("MXLITE_CACHE_DIR", str(own_cache / "file"))
    with pytest.warns(RuntimeWarning, match="cache folder"):
        assert chain(1).calibrate(data=(4, 4)).measured
    assert chain(1).calibrate(data=(4, 4)).known  # in this process


def test_the_oldest_timings_go(tmp_path, monkeypatch):
    monkeypatch.setattr("mxlite.executor.timings.MOST_CALLS", 3)
    timings = Timings(("a",), str(tmp_path / "t.json"))
    for n in range(5):
        timings.update({f"{n:064x}": Seconds(1.0 + n, 1.0)}, (7, 0.0))
    again = Timings(("a",), str(tmp_path / "t.json"))
    assert sorted(s.cold for s in again.seconds.values()) == [3.0, 4.0, 5.0]
    assert again.cache == (7, 0.0)


# -- what the cache holds -----------------------------------------------------------------------------


@pytest.mark.parametrize("holds, found", ((1, 1), (8, 8), (64, 0)))
def test_the_size_of_the_cache_is_where_bytes_begin_to_cost_more(holds, found):
    assert cache_bytes((1, 2, 4, 8, 16, 64), lambda size: size * (1.0 if size <= holds else 3.0)) == found


def test_the_cache_of_this_machine_is_one_of_the_sizes_tried():
    assert cache_bytes((2**16, 2**20)) in (0, 2**16, 2**20)


def emptied_after(seconds, looks=LOOKS):
    """A pass takes 3 s where `seconds` have gone by since the one before, else 1 s; in but the first `looks`
    nobody else is there.
    """
    seen = []

    def seconds_after(wait):
        seen.append(wait)
        return 3.0 if wait == inf or (wait >= seconds and seen.count(wait) <= looks) else 1.0

    return seconds_after


@pytest.mark.parametrize("rate", (1e9, 4e9, 16e9))
def test_what_others_touch_is_the_rest_of_the_cache_in_the_time_that_a_part_of_it_stays(rate):
    cache = 32 * 2**20
    found = others_bytes_per_s(cache, seconds_after=emptied_after((cache - cache // PART) / rate))
    assert rate / 2**0.5 <= found <= rate * 2**0.5  # waits grow by a factor of 2


def test_others_who_come_and_go_count_in_part():
    often, seldom = (
        others_bytes_per_s(2**25, seconds_after=emptied_after(WAITS[2], looks)) for looks in (LOOKS, 3)
    )
    assert 0 < others_bytes_per_s(2**25, seconds_after=emptied_after(WAITS[-1])) < seldom < often


def test_where_nobody_else_or_no_cache_is_to_be_seen_others_touch_nothing():
    assert others_bytes_per_s(2**25, seconds_after=emptied_after(1.0)) == 0
    assert others_bytes_per_s(2**25, seconds_after=lambda wait: 1.0) == 0 == others_bytes_per_s(0)


def test_others_on_this_machine_touch_some_number_of_bytes(monkeypatch):
    monkeypatch.setattr("mxlite.executor.cache_probe.WAITS", (1e-5, 2e-5))
    monkeypatch.setattr("mxlite.executor.cache_probe.LOOKS", 2)
    assert 0 <= others_bytes_per_s(2**20) < inf


def two_maps(cache, warm=1.0, cold=4.0, others=0.0):
    """Two tasks that pass a map of 1 MiB on, two that read them backwards; 4 s each, `warm` s if cached."""
    size = 2**20
    values = tuple(Value(f"v{i}", size) for i in range(4)) + (Value("data", 64, fixed=True),)
    tasks = (
        Task("a", "op", (4,), (0,), seconds=4.0, warm=warm, cold=cold),
        Task("b", "op", (0,), (1,), seconds=4.0, warm=warm, cold=cold),
        Task("b'", "op", (1, 0), (2,), seconds=4.0, warm=warm, cold=cold),
        Task("a'", "op", (2, 0), (3,), seconds=4.0, warm=warm, cold=cold),
    )
    return Problem(tasks, values, 2, {"inputs": 64}, cache_bytes=cache, others_bytes_per_s=others)


def test_a_step_in_the_cache_takes_its_warm_time():
    assert plan_memory(two_maps(2**40)).predicted_seconds == pytest.approx(4.0, rel=1e-4)
    assert plan_memory(two_maps(2**40)).predicted_extra_time == 0.0


def test_a_step_that_no_cache_holds_takes_its_cold_time():
    assert plan_memory(two_maps(1)).predicted_seconds == 16.0
    assert plan_memory(two_maps(0)).predicted_seconds == 16.0


def test_a_call_takes_longer_by_the_share_of_its_bytes_that_the_cache_has_lost():
    crowded, large = (locality.walk(plan_memory(two_maps(size * 2**20))) for size in (1, 16))
    assert all(0 < b.lost < a.lost < 1 for a, b in zip(crowded, large))
    assert all(c.seconds == 1.0 + 3.0 * c.lost for c in (*crowded, *large))


def test_what_others_touch_pushes_out_what_a_step_touched_long_ago():
    alone, few, crowded = (
        plan_memory(two_maps(2**28, others=r * 2**20)).predicted_seconds for r in (0.0, 100.0, 10_000.0)
    )
    assert alone == pytest.approx(4.0, rel=0.05)
    assert alone < few < crowded
    assert crowded > 15.5  # only of what the call before has just touched some is left


def test_a_slow_call_pushes_out_more_than_a_quick_one():
    values = tuple(Value(n, 2**20) for n in "abc") + (Value("data", 64, fixed=True),)

    def last_call(seconds):
        tasks = (
            Task("first", "op", (3,), (0,), seconds=1e-3),
            Task("between", "op", (3,), (1,), seconds=seconds),
            Task("last", "op", (0, 1), (2,), seconds=2e-3, warm=1e-3, cold=2e-3),
        )
        problem = Problem(tasks, values, 3, {"inputs": 64}, cache_bytes=2**23, others_bytes_per_s=2**30)
        return locality.walk(make_plan(problem))[-1].seconds

    assert 1e-3 < last_call(1e-4) < last_call(6e-3) < last_call(1.0) < 2e-3


def test_problems_with_other_caches_have_other_digests():
    problems = (
        two_maps(0),
        two_maps(2**20),
        two_maps(2**21),
        two_maps(2**20, others=1.0),
        two_maps(2**20, others=2.0),
    )
    assert len({p.digest for p in problems}) == len(problems)


def test_calls_and_step_take_the_same():
    plan = plan_memory(two_maps(3 * 2**19, others=1e5))
    assert sum(c.seconds for c in locality.walk(plan)) == plan.predicted_seconds


def test_running_again_within_the_cache_costs_its_warm_time():
    problem = two_maps(2**40)
    again = make_plan(problem, [1, 0])
    assert again.recomputed == 1 and again.extra_time == pytest.approx(0.25)
    assert again.predicted_extra_time == pytest.approx(0.25, rel=1e-4)
    assert again.predicted_seconds == pytest.approx(5.0, rel=1e-4)


def test_a_step_touches_its_arrays_wherever_they_lie_and_its_workspace():
    values = (Value("x", 100), Value("y", 100), Value("weight", 30, True), Value("mean", 7, True))
    tasks = (
        Task("a", "op", (2,), (0,), workspace=50, seconds=1.0),
        Task("b", "op", (0, 2), (1,), in_place=((1, 0),), mutates=(3,), seconds=1.0),
    )
    plan = make_plan(Problem(tasks, values, 2, {"arguments": 37}))
    first, second = map(sorted, locality.touched(plan))
    assert [high - low for low, high in first[-1:]] == [30] and first[-1][0] >= plan.arena_bytes
    assert sorted(high - low for low, high in first) == [30, 50, 100]
    assert [high - low for low, high in second] == [100, 30, 7] and second[1] == first[-1]
    assert all(a[1] <= b[0] for row in (first, second) for a, b in pairwise(row))


def test_copies_to_host_memory_are_no_calls():
    plan = make_plan(replace(two_maps(2**40), host=HostLink()), [OFFLOADED, 0])
    assert plan.offloaded == 1
    assert plan.predicted_seconds == pytest.approx(4.0 + plan.schedule.waiting_seconds, rel=1e-4)


def test_a_call_of_which_one_time_is_known_takes_that():
    assert plan_memory(two_maps(2**40, warm=0.0, cold=0.0)).predicted_seconds == pytest.approx(16.0)


def test_measured_plans_know_all_times_and_keep_them_in_files():
    plan = chain().memory_plan(data=(64, 64), device="measured")
    assert all(0 < t.warm <= t.cold and t.warm <= t.seconds for t in plan.problem.tasks)
    assert MemoryPlan.from_json(plan.to_json()) == plan


# -- in steps ------------------------------------------------------------------------------------


def rehearsed(monkeypatch, net, **shapes):
    """The step that was lowered for `net`, and what was made of it in steps."""
    found, in_steps = [], calibration.in_steps

    def look(lowered, budget):
        found.append((lowered, budget, in_steps(lowered, budget)))
        return found[-1][2]

    monkeypatch.setattr(calibration, "in_steps", look)
    net.calibrate(**(shapes or {"data": (16, 32)}))
    (one,) = found
    return one


def test_each_call_of_a_step_is_timed_where_it_stands_in_two_plans(monkeypatch):
    made = []

    class Looked(Rehearsal):
        def __init__(self, lowered, plans):
            made.append(list(plans))
            super().__init__(lowered, plans)

    monkeypatch.setattr(calibration, "Rehearsal", Looked)
    lowered, budget, seen = rehearsed(monkeypatch, chain(12))
    keep, least = made[0]
    assert budget is None and keep.recomputed == 0 < least.recomputed
    assert least.arena_bytes < keep.arena_bytes
    assert set(seen) == set(calibration.distinct_calls(lowered))
    assert all(0 < s.warm <= s.usual for s in seen.values())
    problem = chain(12).memory_plan(data=(16, 32), device="measured").problem
    assert {t.seconds for t in problem.tasks} == {s.usual for s in seen.values()}


def test_a_step_is_run_on_the_bytes_of_its_plan_and_gives_the_numbers_of_each_plan(monkeypatch):
    lowered, _, _ = rehearsed(monkeypatch, chain(12))
    keep = plan_memory(lowered.problem)
    least = calibration.frontier_of(lowered.problem).least()
    taken = []
    empty = type(lowered.backend).empty
    monkeypatch.setattr(type(lowered.backend), "empty", lambda self, n: taken.append(n) or empty(self, n))
    rehearsal = Rehearsal(lowered, [keep, least])
    assert sum(taken) <= keep.peak_bytes  # what is padded in a program is not here
    gradients = []
    for p, plan in enumerate((keep, least)):
        times = rehearsal.turn(p)
        assert len(times) == len(plan.schedule.task) and all(t > 0 for t in times)
        assert rehearsal.left_out(p) == []
        gradients.append({k: a.copy() for k, a in rehearsal._arrays.items() if k[0] == "grad"})
    assert gradients[0] and all((gradients[0][k] == gradients[1][k]).all() for k in gradients[0])


def test_no_more_than_the_budget_is_taken_to_run_steps(monkeypatch):
    net, most = chain(12), []
    whole = net.memory_plan(data=(16, 32))
    budget = whole.problem.fixed_total + whole.arena_bytes // 2

    def looked(kind):
        def make(lowered, plans):
            most.append(max(plan.peak_bytes for plan in plans))
            return kind(lowered, plans)

        return make

    monkeypatch.setattr(calibration, "Rehearsal", looked(Rehearsal))
    monkeypatch.setattr(trials, "Trial", looked(Trial))
    assert net.memory_plan(data=(16, 32), device="measured", memory_budget=budget).peak_bytes <= budget
    assert len(most) == 2 and max(most) <= budget  # two plans for their calls, then the plan that was chosen


def test_a_plan_that_is_bound_has_been_tried_once(monkeypatch):
    tried, ask = [], {"data": (16, 32), "device": "measured"}
    found = trials.in_turns

    def look(make, steps, rounds):
        tried.append(sum(len(plans) for _, plans in steps))
        rows, plans = found(make, steps, rounds), [plan for _, plans in steps for plan in plans]
        if make is Rehearsal:
            return rows
        lengths = [len(plan.schedule.task) for plan in plans]
        return [row._replace(turns=[float(n) for _ in row.turns]) for row, n in zip(rows, lengths)]

    monkeypatch.setattr(trials, "MOST_OVER", 1e9)
    monkeypatch.setattr(trials, "in_turns", look)
    monkeypatch.setattr(calibration, "in_turns", look)
    net = chain(12)
    plan = net.memory_plan(**ask)
    assert tried == [2, 1]
    assert plan.predicted_seconds == plan.rehearsed_seconds == len(plan.schedule.task)
    assert plan.predicted_extra_time == 0.0 and plan.modelled_seconds > 0
    assert net.simple_bind(mx.cpu(), **ask).memory_plan.rehearsed_seconds == plan.rehearsed_seconds
    assert tried == [2, 1]
    budget = plan.problem.fixed_total + plan.arena_bytes // 2
    less = net.memory_plan(memory_budget=budget, **ask)
    assert less.predicted_seconds == len(less.schedule.task) and tried == [2, 1, 1]
    assert MemoryPlan.from_json(less.to_json()).predicted_seconds == less.predicted_seconds
    assert net.memory_plan(data=(16, 32)).rehearsed_seconds == 0.0


def test_of_many_steps_of_a_plan_the_median_counts(monkeypatch):
    def in_turns(make, steps, rounds):
        """Some steps are disturbed, and some are lucky."""
        seconds = [9.0, 2.0, 2.0, 0.1, 2.0, 9.0, 0.2]
        return [trials.Tried(seconds, []) for _, plans in steps for _ in plans]

    monkeypatch.setattr(trials, "MOST_OVER", 1e9)
    monkeypatch.setattr(trials, "in_turns", in_turns)
    plan = chain().memory_plan(data=(16, 32), device="measured")
    assert plan.predicted_seconds == 2.0


def test_plans_are_compared_round_by_round():
    """Others leave one half of the machine in most rounds of the first plan, and few of the second."""
    slow = [1.0, 2.0, 2.0, 1.0, 2.0], [1.0, 1.0, 2.0, 1.0, 1.0]
    first, second = ([s * p for s in of] for of, p in zip(slow, (1.0, 1.5)))
    took = trials._seconds([first, second])
    assert took == [2.0, 2.0 * 1.5]


def test_scratch_arrays_hold_fractions_of_a_pattern_whatever_their_size():
    for dtype in (np.float32, np.float16, ml_dtypes.bfloat16, np.float64):
        pattern = np.random.default_rng(1).uniform(0.5, 1.5, PATTERN).astype(dtype)
        for shape in ((), (0, 3), (7,), (PATTERN,), (2, PATTERN), (173, 101)):
            array = CPU.array(shape, np.dtype(dtype))
            fill(CPU, array)
            assert array.tobytes() == np.resize(pattern, shape).tobytes()


@pytest.mark.parametrize("most, disturbed", [(1e-6, True), (1e6, False)])
def test_a_try_far_above_what_the_kernels_say_was_disturbed(monkeypatch, most, disturbed):
    monkeypatch.setattr(trials, "MOST_OVER", most)
    monkeypatch.setattr(trials, "CALL_S", 0.0)
    plan = chain().memory_plan(data=(16, 32), device="measured")
    assert (plan.predicted_seconds == plan.modelled_seconds) == disturbed


def test_plans_that_were_disturbed_together_keep_what_they_took_against_one_another(monkeypatch):
    def in_turns(make, steps, rounds):
        """Others took the cores for ever longer."""
        plans = [plan for _, plans in steps for plan in plans]
        return [trials.Tried([len(p.schedule.task) * 2.0**r for r in range(5)], []) for p in plans]

    net = chain(12)
    monkeypatch.setattr(trials, "in_turns", in_turns)
    whole = net.memory_plan(data=(16, 32), device="measured")
    budget = whole.problem.fixed_total + whole.arena_bytes // 2
    keep, less = net.calibrate(data=(16, 32), budgets=[budget]).plans
    calls = len(keep.schedule.task), len(less.schedule.task)
    assert less.predicted_seconds / keep.predicted_seconds == pytest.approx(calls[1] / calls[0])
    together = keep.modelled_seconds + less.modelled_seconds
    assert keep.predicted_seconds + less.predicted_seconds == pytest.approx(together)


def test_a_plan_whose_calls_cannot_all_be_run_takes_their_modelled_times_for_them(monkeypatch):
    monkeypatch.setattr(
        trials,
        "in_turns",
        lambda make, steps, rounds: [
            trials.Tried([0.0] * 3, list(range(len(p.schedule.task)))) for _, plans in steps for p in plans
        ],
    )
    plan = chain().memory_plan(data=(16, 32), device="measured")
    assert plan.predicted_seconds == pytest.approx(plan.modelled_seconds)


def test_plans_of_budgets_are_tried_in_turns_and_known_when_they_are_bound(monkeypatch):
    ran = []

    class Looked(Trial):
        def turn(self, p):
            ran.append((self, p))
            return 1.0 / (100 + len(ran)) * len(self._programs[p].plan.schedule.task)

    net, ask = chain(12), {"data": (16, 32)}
    whole = net.memory_plan(device="measured", **ask)
    arena, fixed = whole.arena_bytes, whole.problem.fixed_total
    budgets = [fixed + arena * 3 // 4, fixed + arena // 2]
    monkeypatch.setattr(trials, "MOST_OVER", 1e9)
    monkeypatch.setattr(trials, "Trial", Looked)
    done = net.calibrate(budgets=[*budgets, f"{whole.peak_bytes + 1}B"], **ask)
    of = done.plans
    assert [p.budget_bytes for p in of] == [None, *budgets, whole.peak_bytes + 1]
    assert all(p.peak_bytes <= b for p, b in zip(of[1:], budgets))
    turns = ran[-3 * trials.ROUNDS :]  # the last plan is the first again
    assert len(set(turns)) == 3 and turns == turns[:3] * (len(turns) // 3)
    assert of[3].predicted_seconds == of[0].predicted_seconds
    ratio = of[2].predicted_seconds / of[0].predicted_seconds
    assert ratio == pytest.approx(len(of[2].schedule.task) / len(of[0].schedule.task), rel=0.05)
    assert str(done).splitlines()[3].endswith(f"ms, {100 * (ratio - 1):+.1f} %")
    monkeypatch.setattr(trials, "in_turns", None)  # nothing is tried again
    for plan, budget in zip(of, (None, *budgets)):
        bound = net.simple_bind(mx.cpu(), device="measured", memory_budget=budget, **ask).memory_plan
        assert bound.predicted_seconds == plan.predicted_seconds


def test_a_budget_that_is_too_small_is_refused_before_anything_is_tried(monkeypatch):
    monkeypatch.setattr(trials, "tried_in_turns", None)
    with pytest.raises(mx.MemoryBudgetError):
        chain(4).calibrate(budgets=["1GiB", 1], data=(16, 32))


def test_what_is_said_to_work_works_whichever_budget_was_asked_for_first(monkeypatch):
    net, ask, made = chain(12), {"data": (64, 32), "device": "measured"}, []

    class Looked(Rehearsal):
        def __init__(self, lowered, plans):
            made.append([plan.peak_bytes for plan in plans])
            super().__init__(lowered, plans)

    monkeypatch.setattr(calibration, "Rehearsal", Looked)
    with pytest.raises(mx.MemoryBudgetError) as no:
        net.memory_plan(memory_budget=1, **ask)
    least = no.value.least_feasible_bytes
    assert len(made) == 1  # or times would change, and with them the least, when there is a budget that works
    for budget in (least, least + 5000, least):
        assert net.memory_plan(memory_budget=budget, **ask).peak_bytes <= budget
    with pytest.raises(mx.MemoryBudgetError) as again:
        net.memory_plan(memory_budget=1, **ask)
    assert again.value.least_feasible_bytes == least


def test_without_room_for_a_step_calls_alone_count(monkeypatch):
    class Full(Rehearsal):
        def __init__(self, lowered, plans):
            raise mx.OutOfMemoryError("full")

    monkeypatch.setattr(calibration, "Rehearsal", Full)
    tasks = chain().memory_plan(data=(16, 32), device="measured").problem.tasks
    assert all(t.seconds == t.cold for t in tasks)


def test_a_call_that_fails_in_a_step_is_left_out(monkeypatch):
    def fails():
        raise ValueError("refused")

    bound = sys.modules["mxlite.executor.rehearsal"].call_of
    monkeypatch.setattr(
        "mxlite.executor.rehearsal.call_of",
        lambda lowered, plan, s, *rest: fails if s == 2 else bound(lowered, plan, s, *rest),
    )
    _, _, seen = rehearsed(monkeypatch, chain())
    assert seen


ALONE = {"a": Seconds(5.0, 1.0), "b": Seconds(3.0, 2.0)}


def places(share, plans):
    """Calls as (key, lost) whose times are 10 s and `share` of what the cache matters to them alone."""
    matters = {key: share * (s.cold - s.warm) for key, s in ALONE.items()}
    return [[Place(key, lost, 10.0 + lost * matters[key]) for key, lost in plan] for plan in plans]


@pytest.mark.parametrize("share", [0.5, 1.0, 1.5])
def test_times_in_steps_are_found_again_whatever_the_cache_matters_there(share):
    plans = places(
        share, ([("a", 0.9), ("b", 0.5), ("a", 0.7)], [("a", 0.1), ("b", 0.2), ("a", 0.3), ("a", 0.5)])
    )
    found = settled(plans, ALONE)
    assert found["a"].warm == pytest.approx(10.0) and found["a"].cold == pytest.approx(10.0 + 4 * share)
    assert found["b"].warm == pytest.approx(10.0) and found["b"].cold == pytest.approx(10.0 + share)
    for key, s in found.items():
        assert s.usual == pytest.approx(np.mean([p.seconds for plan in plans for p in plan if p.key == key]))


def test_what_the_cache_matters_in_steps_has_bounds():
    wild = [[Place("a", 0.9, 1000.0)], [Place("a", 0.1, 1.0)]]
    assert settled(wild, ALONE)["a"].cold - settled(wild, ALONE)["a"].warm == pytest.approx(6.0)
    equal = [[Place("a", 0.5, 9.0)], [Place("a", 0.5, 8.0)]]
    assert settled(equal, ALONE)["a"] == (8.5 + 2.0, 8.5 - 2.0, 8.5)
    cheap = [[Place("a", 1.0, 1.0)], [Place("a", 1.0, 1.0)]]
    assert settled(cheap, ALONE)["a"] == (1.0, 0.25, 1.0)


def test_kernels_of_a_gpu_are_timed_there():
    with emulated_gpus():
        done = chain().calibrate(mx.gpu(0), data=(16, 32))
        assert done.measured == done.calls
