"""Plans that are tried are real programs: their numbers, their bytes, and what they leave behind."""

from __future__ import annotations

import gc
import weakref
from collections import Counter

import numpy as np
import pytest

import mxlite as mx
from mxlite.backends.base import ALIGN, MANY_PAGES, PAGE
from mxlite.backends.cpu.backend import CPU
from mxlite.executor.measure import trials
from mxlite.executor.measure.calibration import frontier_of
from mxlite.executor.measure.trial import Trial
from mxlite.executor.run import program
from mxlite.memplan import plan_memory


def net_of(layers=8):
    x = mx.sym.Variable("data")
    for n in range(layers):
        x = mx.sym.FullyConnected(x, num_hidden=64, name=f"fc{n}")
        x = mx.sym.Activation(x, act_type="tanh")
    return mx.sym.MakeLoss(mx.sym.sum(x * x))


class Looked(Trial):
    """Trials, and who made them."""

    made: list = []

    def __init__(self, lowered, plans):
        super().__init__(lowered, plans)
        self.lowered, self.plans = lowered, list(plans)
        self.made.append(self)


def trial_of(monkeypatch, net, shape=(32, 64)):
    """A trial of the plan of `net`."""
    monkeypatch.setattr(Looked, "made", [])
    monkeypatch.setattr(trials, "Trial", Looked)
    net.calibrate(data=shape, budgets=["1GiB"])
    return Looked.made[-1]


def test_each_plan_takes_the_bytes_of_the_largest_and_gives_the_numbers_of_a_program(monkeypatch):
    net, taken = net_of(), []
    lowered = trial_of(monkeypatch, net).lowered
    keep, small = plan_memory(lowered.problem), frontier_of(lowered.problem).least()
    assert keep.recomputed == 0 < small.recomputed and small.arena_bytes < keep.arena_bytes
    for name in ("empty", "arena"):
        find = getattr(type(CPU), name)
        monkeypatch.setattr(type(CPU), name, lambda self, n, find=find: taken.append(n) or find(self, n))
    trial = Trial(lowered, [keep, small])
    assert sum(taken) <= keep.peak_bytes
    found = []
    for p in range(2):
        assert trial.turn(p) > 0 and trial.left_out(p) == []
        found.append({key: a.asnumpy() for key, a in trial._arrays.items() if key[0] == "grad"})
    bound = net.simple_bind(mx.cpu(), data=(32, 64))
    for key, array in trial._arrays.items():
        if key[0] == "arg":
            bound.arg_dict[key[1]][:] = array
    bound.forward_backward()
    for key, value in found[0].items():
        assert value.tobytes() == found[1][key].tobytes() == bound.grad_dict[key[1]].asnumpy().tobytes()


def test_a_trial_lets_go_of_its_memory_at_once(monkeypatch):
    net = net_of()
    gc.collect()
    gc.disable()
    try:
        kept = trial_of(monkeypatch, net)
        block = weakref.ref(kept._arena.block)
        del kept
        Looked.made.clear()
        assert block() is None
    finally:
        gc.enable()


def test_no_profiler_sees_the_calls_of_a_trial(monkeypatch):
    net = net_of(3)
    trial = trial_of(monkeypatch, net, (8, 64))
    seen = []

    def watcher(fn, name, device, kind):
        seen.append(name)
        return fn

    mx.engine.watch(watcher)
    try:
        mx.nd.ones(3).wait_to_read()
        alone = list(seen)
        assert trial.turn(0) > 0
        mx.nd.ones(3).wait_to_read()
    finally:
        mx.engine.watch(None)
    assert alone and seen == alone * 2


def test_a_call_that_fails_is_left_out_and_the_others_are_run(monkeypatch):
    def fails():
        ran.append("fails")
        raise ValueError("refused")

    def there(bound):
        def call():
            ran.append("runs")
            bound()

        return call

    ran, bound = [], program.call_of
    net = net_of(3)
    trial = trial_of(monkeypatch, net, (8, 64))
    monkeypatch.setattr(
        program,
        "call_of",
        lambda lowered, plan, s, *rest: fails if s == 2 else there(bound(lowered, plan, s, *rest)),
    )
    picky = Trial(trial.lowered, trial.plans)
    calls = len(trial.plans[0].schedule.task)
    assert picky.left_out(0) == [2] and Counter(ran) == {"runs": calls - 1, "fails": 1}
    assert picky.turn(0) > 0
    assert Counter(ran) == {"runs": 3 * (calls - 1), "fails": 1}


@pytest.mark.parametrize("nbytes", [1, 63, 4096, MANY_PAGES - 1, MANY_PAGES, MANY_PAGES + 1, 2**21 + 5])
def test_large_arrays_begin_at_a_page_and_arenas_behind_one(nbytes):
    for _ in range(3):
        array, arena = CPU.array((nbytes,), np.dtype("uint8")), CPU.arena(nbytes)
        large = nbytes >= MANY_PAGES
        assert array.nbytes == arena.nbytes == nbytes
        assert array.ctypes.data % (PAGE if large else ALIGN) == 0
        assert arena.ctypes.data % (PAGE if large else ALIGN) == (ALIGN if large else 0)
