"""Threads of each kernel as the plan's choice: budgets hold on many cores, results the same to the bit."""

import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest

import mxlite as mx
from mxlite.backends.cpu.backend import CPU
from mxlite.backends.cpu.runtime import threads
from mxlite.backends.crews import Crews
from mxlite.core import config
from mxlite.memplan import check
from mxlite.memplan.problem import Problem, Task, Value
from mxlite.memplan.remat.search import plan_memory
from tests.networks.crew_networks import NETWORKS, trained

MANY = (2, 8, 128)

needs_kernels = pytest.mark.skipif(
    not {"onednn", "compiled"} <= config.kernel_kinds(), reason="there are no kernels with threads"
)


@pytest.fixture(autouse=True)
def number(monkeypatch):
    """Afterwards the number of threads is what it was."""
    monkeypatch.setattr(threads, "_threads", threads._threads)


def planned(name, budget, optimizer=None):
    net, shapes = NETWORKS[name]()
    sgd = optimizer or mx.optimizer.SGD(learning_rate=0.1, momentum=0.9)
    return net.memory_plan(mx.cpu(), memory_budget=budget, optimizer=sgd, **shapes)


def least(name):
    with pytest.raises(mx.MemoryBudgetError) as refused:
        planned(name, 1)
    return refused.value.least_feasible_bytes


# -- budgets -----------------------------------------------------------------------------------------------


@needs_kernels
@pytest.mark.parametrize("name", NETWORKS)
def test_the_least_budget_never_falls_with_threads_and_that_of_one_fits_any_number(name):
    mx.set_num_threads(1)
    budget = least(name)
    for count in MANY:
        mx.set_num_threads(count)
        plan = planned(name, budget)
        assert plan.peak_bytes <= budget
        check(plan, plan.predecessors)
        if count <= 8:
            assert least(name) >= budget


@needs_kernels
def test_the_order_of_tasks_does_not_depend_on_threads():
    found = set()
    for count in (1, 2, 8):
        mx.set_num_threads(count)
        found.add(tuple((t.op, t.outputs) for t in planned("conv", None).problem.tasks))
    assert len(found) == 1


@needs_kernels
def test_the_order_that_needs_least_is_there_below_what_keeping_all_takes():
    """Of small passes the order with the lowest peak may be dear below it: then there is another."""
    mx.set_num_threads(2)
    whole, chosen = planned("conv", None), planned("conv", least("conv"))
    names = [[re.sub(r"\d+", "", t.name) for t in plan.problem.tasks] for plan in (whole, chosen)]
    assert names[0] != names[1] and sorted(names[0]) == sorted(names[1])
    assert "in another order" in chosen.how and "in another order" not in whole.how


@needs_kernels
def test_a_larger_budget_never_gets_a_slower_plan_where_threads_are_chosen():
    mx.set_num_threads(16)
    first, most = least("conv"), planned("conv", None).peak_bytes
    times = [planned("conv", first + (most - first) * i // 6).extra_time for i in range(7)]
    assert times == sorted(times, reverse=True)


def task(name, inputs, outputs, **more):
    return Task(name, "op", inputs, outputs, seconds=1.0, **more)


def of_forms(host=None):
    """A step whose second task takes 4096, 2048 or 1024 bytes of scratch with 4, 2 or 1 threads."""
    values = tuple(Value(f"v{i}", 1024) for i in range(3))
    forms = ((4, 4096), (2, 2048), (1, 1024))
    tasks = (task("a", (), (0,)), task("b", (0,), (1,), workspace=4096, forms=forms), task("c", (1,), (2,)))
    return Problem(tasks, values, 2)


@pytest.mark.parametrize(
    ("budget", "count", "seconds"), [(6144, 0, 3), (6143, 2, 4), (4120, 2, 4), (4095, 1, 6)]
)
def test_a_kernel_has_the_most_threads_that_fit_and_takes_the_longer(budget, count, seconds):
    plan = plan_memory(of_forms(), budget)
    assert plan.problem.tasks[1].threads == count
    assert plan.problem.tasks[1].workspace == {0: 4096, 2: 2048, 1: 1024}[count]
    assert plan.step_seconds == seconds and plan.extra_time == pytest.approx(seconds / 3 - 1)
    assert plan.peak_bytes <= budget


def test_the_least_budget_and_the_lower_bound_are_those_of_one_thread():
    with pytest.raises(mx.MemoryBudgetError) as refused:
        plan_memory(of_forms(), 3071)
    assert refused.value.least_feasible_bytes == refused.value.lower_bound_bytes == 3072


def test_the_plan_and_its_file_say_which_kernels_have_fewer_threads():
    plan = plan_memory(of_forms(), 3072)
    assert "fewer threads for 1 kernel" in plan.how and "fewer threads for 1 kernel" in plan.summary()
    data = json.loads(plan.to_json())
    assert [t.get("threads") for t in data["problem"]["tasks"]] == [None, 1, None]
    again = mx.memplan.MemoryPlan.from_json(plan.to_json())
    assert again == plan and again.problem.threads == (0, 1, 0)


# -- which threads a kernel is worth ------------------------------------------------------------------------


@needs_kernels
def test_threads_beyond_the_useful_ones_take_no_scratch():
    mx.set_num_threads(128)
    for tasked in planned("conv", None).problem.tasks:
        for count, _ in tasked.forms:
            assert count <= 64


def test_with_one_thread_there_is_nothing_to_choose():
    mx.set_num_threads(1)
    assert not planned("dense", "1GiB").problem.has_forms
    assert Crews(CPU).most == 1


# -- runs ---------------------------------------------------------------------------------------------------


@needs_kernels
@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.parametrize("name", ["conv", "attention"])
def test_results_are_equal_at_every_budget_and_bytes_are_as_planned(name, count):
    mx.set_num_threads(count)
    whole, chosen = trained(name, None), trained(name, least(name))
    assert "fewer threads" in chosen.plan.how or chosen.plan.recomputed
    assert chosen.plan.peak_bytes < whole.plan.peak_bytes and chosen.measured == chosen.plan.peak_bytes
    assert chosen.bits == whole.bits


@needs_kernels
@pytest.mark.parametrize("name", ["attention", "conv"])
def test_a_plan_out_of_a_file_runs_with_its_threads(name):
    mx.set_num_threads(4)
    plan = planned(name, least(name))
    again = mx.memplan.MemoryPlan.from_json(plan.to_json())
    net, shapes = NETWORKS[name]()
    sgd = mx.optimizer.SGD(learning_rate=0.1, momentum=0.9)
    executor = net.simple_bind(mx.cpu(), optimizer=sgd, plan=again, **shapes)
    found = executor.memory_plan
    assert found.peak_bytes == plan.peak_bytes
    assert found.problem.threads == plan.problem.threads and found.offsets == plan.offsets


@needs_kernels
def test_a_kernel_runs_with_as_many_threads_as_the_plan_says(monkeypatch):
    from mxlite.backends.cpu.compiled.calls import team

    asked, caller = [], team.caller

    def noted(code, name, count=None):
        asked.append((name, threads.num_threads() if count is None else count, threads.num_threads()))
        return caller(code, name, count)

    monkeypatch.setattr(team, "caller", noted)
    mx.set_num_threads(4)
    found = trained("attention", least("attention"))
    few = {t.threads for t in found.plan.problem.tasks if t.kernel == "compiled attention"}
    assert few == {n for name, n, _ in asked if name == "attention"} and max(few) < 4
    assert all(n in (1, most) for _, n, most in asked)


# -- deterministic ------------------------------------------------------------------------------------------

SCRIPT = """
import sys
sys.path.insert(0, {root!r})
from tests.networks.crew_networks import trained
for name in ("dense", "rnn", "attention", "norm"):
    print(name, trained(name, None).bits)
"""


def ran(count, seed):
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    env = dict(os.environ, MXLITE_NUM_THREADS=str(count), PYTHONHASHSEED=str(seed), PYTHONPATH=root)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(root=root)], env=env, capture_output=True, text=True, check=True
    )
    return done.stdout


@needs_kernels
def test_runs_hash_seeds_and_numbers_of_threads_give_the_same_bits():
    first = ran(1, 0)
    assert len(first.split()) == 8
    assert ran(1, 7) == first
    assert ran(3, 1) == first


@needs_kernels
def test_sums_of_generated_kernels_are_the_same_on_any_number_of_threads():
    rng = np.random.default_rng(0)
    arrays = {"data": rng.standard_normal((1024, 96)), "weight": rng.standard_normal((64, 96))}
    data = mx.sym.Variable("data")
    normed = mx.sym.BatchNorm(mx.sym.LayerNorm(data, name="l"), fix_gamma=False, name="b")
    net = mx.sym.FullyConnected(normed, weight=mx.sym.Variable("weight"), num_hidden=64, name="f")
    found = set()
    for count in (1, 2, 3, 5):
        mx.set_num_threads(count)
        executor = net.simple_bind(mx.cpu(), grad_req="write", data=(1024, 96))
        for name, array in executor.arg_dict.items():
            array[:] = arrays[name] if name in arrays else 1.0
        executor.forward(is_train=True)
        executor.backward([mx.nd.array(rng.standard_normal((1024, 64)) * 0 + 0.3)])
        kept = ("l_gamma", "l_beta", "b_gamma", "b_beta", "f_bias", "data")
        found.add(b"".join(executor.grad_dict[n].asnumpy().tobytes() for n in kept))
    assert len(found) == 1
