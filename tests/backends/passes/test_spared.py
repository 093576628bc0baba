"""Where no plan of the step fits, recurrent layers leave their gates to backward."""

from __future__ import annotations

import json
import pickle
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from time import sleep

import numpy as np
import pytest

import mxlite as mx
from mxlite.backends.cpu.compiled import usable
from mxlite.backends.cpu.onednn import library
from mxlite.backends.fused import tile_sizes
from mxlite.cli import main
from mxlite.cli.frontier import frontier
from mxlite.cli.request import Request
from mxlite.cli.source import ModelSource
from mxlite.core.bytesize import format_bytes
from mxlite.executor.plan.lazy_steps import LazySteps
from mxlite.memplan import check, make_plan, MemoryPlan, plan_memory
from mxlite.memplan.report import along_budgets
from tests.memplan.problems import residual

STEPS, BATCH, HIDDEN = 48, 8, 32
SHAPES = {"data": (STEPS, BATCH, HIDDEN), "softmax_label": (STEPS * BATCH,)}

pytestmark = pytest.mark.skipif(
    not usable() or library() is None, reason="gates are kept where there is generated code for the steps"
)


def network(mode="lstm", both=False):
    data, weights = mx.sym.var("data"), mx.sym.var("rnn_weight")
    made = mx.sym.RNN(
        data, weights, mode=mode, num_layers=2, state_size=HIDDEN, name="rnn",
        bidirectional=both,
    )  # fmt: skip
    rows = mx.sym.Reshape(made[0], shape=(-1, HIDDEN * (1 + both)))
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(rows, num_hidden=10, name="fc"), name="softmax")


def refused(**how):
    with pytest.raises(mx.MemoryBudgetError) as found:
        network(**how).memory_plan(mx.cpu(), optimizer=mx.optimizer.SGD(), memory_budget=1, **SHAPES)
    return found.value


def plan(budget=None, mode="lstm"):
    return network(mode).memory_plan(mx.cpu(), optimizer=mx.optimizer.SGD(), memory_budget=budget, **SHAPES)


def keeps_gates(found):
    return any(v.name == "rnn.gates" for v in found.problem.values)


@pytest.mark.parametrize("mode", ["lstm", "gru"])
def test_the_least_budget_is_that_of_a_step_without_gates(mode):
    free, error = plan(mode=mode), refused(mode=mode)
    assert keeps_gates(free)
    least = plan(error.least_feasible_bytes, mode)
    assert not keeps_gates(least) and least.peak_bytes <= error.least_feasible_bytes
    gates = next(v.nbytes for v in free.problem.values if v.name == "rnn.gates")
    assert error.least_feasible_bytes < free.peak_bytes - gates // 2
    assert f"{error.least_feasible_bytes} bytes" in str(error)
    with pytest.raises(mx.MemoryBudgetError):
        plan(error.least_feasible_bytes - 1, mode)


def test_gates_are_kept_as_long_as_a_plan_with_them_fits_and_no_budget_is_slower_than_a_smaller_one():
    free, least = plan(), refused().least_feasible_bytes
    found = [plan(int(least + (free.peak_bytes - least) * i / 8)) for i in range(9)]
    assert keeps_gates(found[-1]) and not keeps_gates(found[0])
    extra = [p.extra_time for p in found]
    assert extra == sorted(extra, reverse=True)
    assert extra[0] > 0.1 and extra[-1] == 0  # the gates are computed again
    assert f"{100 * extra[0]:.1f} %" in str(found[0])


@pytest.mark.parametrize("joined", [False, True], ids=["a whole gradient", "updates in bands"])
@pytest.mark.parametrize("both", [False, True], ids=["one direction", "both"])
@pytest.mark.parametrize("mode", ["lstm", "gru"])
def test_bits_are_the_same_and_planned_bytes_are_measured(mode, both, joined, monkeypatch):
    if joined:
        monkeypatch.setattr(tile_sizes, "LEAST_UPDATE", 0)
    results = []
    for budget in (None, refused(mode=mode, both=both).least_feasible_bytes):
        exe = network(mode, both).simple_bind(
            mx.cpu(), optimizer=mx.optimizer.SGD(), memory_budget=budget, **SHAPES
        )
        rng = np.random.default_rng(0)
        for name, array in exe.arg_dict.items():
            array[:] = (
                rng.integers(0, 10, array.shape) if "label" in name else rng.standard_normal(array.shape) / 4
            )
        for _ in range(3):
            exe.step([[0.1, 0.0] for _ in exe.updated])
        check(exe.memory_plan)
        assert exe.measured_bytes == exe.memory_plan.peak_bytes
        assert keeps_gates(exe.memory_plan) == (budget is None)
        results.append({n: a.asnumpy() for n, a in exe.arg_dict.items()})
    assert [n for n, x in results[0].items() if x.tobytes() != results[1][n].tobytes()] == []


def test_a_module_and_a_plan_from_a_file_do_so_too():
    least = refused().least_feasible_bytes
    again = MemoryPlan.from_json(plan(least).to_json())
    how = dict(optimizer=mx.optimizer.SGD(), memory_budget=least, **SHAPES)
    exe = network().simple_bind(mx.cpu(), plan=again, **how)
    assert not keeps_gates(exe.memory_plan) and exe.memory_plan.extra_time == again.extra_time
    module = mx.mod.Module(network(), memory_budget=least, fused_update=True)
    module.bind([("data", SHAPES["data"])], [("softmax_label", SHAPES["softmax_label"])])
    module.init_params()
    module.init_optimizer(optimizer="sgd")
    assert not keeps_gates(module.memory_plan) and module.memory_plan.peak_bytes <= least


def test_mixed_precision_keeps_its_gates_where_they_fit_and_says_what_fits():
    how = dict(optimizer=mx.optimizer.SGD(), amp="bfloat16", **SHAPES)
    assert keeps_gates(network().memory_plan(mx.cpu(), **how))
    with pytest.raises(mx.MemoryBudgetError) as error:
        network().memory_plan(mx.cpu(), memory_budget=1, **how)
    least = error.value.least_feasible_bytes
    plan = network().memory_plan(mx.cpu(), memory_budget=least, **how)
    assert not keeps_gates(plan) and plan.peak_bytes <= least


# -- every tool plans over both steps ------------------------------------------------------------------------


@pytest.fixture
def request_of_file(tmp_path):
    """What the command line asks for the network in a file."""
    path = tmp_path / "lstm.json"
    network().save(str(path))
    shapes = {"data": (STEPS, "N", HIDDEN)}
    return Request(ModelSource(str(path), shapes), BATCH, optimizer="sgd")


@pytest.fixture
def ask(request_of_file, capsys):
    """Runs a command on the network in a file; (exit code, what it printed)."""

    def run(command, *more, batch=True):
        model = request_of_file.source.text
        shape = ["--shape", f"data:{STEPS},N,{HIDDEN}", *(["--batch", str(BATCH)] if batch else [])]
        code = main([command, model, *shape, "--optimizer", "sgd", *more])
        return code, capsys.readouterr().out

    return run


def test_a_budgets_plan_is_the_fastest_of_all_steps():
    first = residual(3, 2)
    slower = tuple(replace(t, seconds=1.05 * t.seconds) for t in first.tasks)
    smaller = tuple(replace(v, nbytes=v.nbytes // 2) for v in first.values)
    second = replace(first, tasks=slower, values=smaller, base_seconds=first.step_seconds)
    steps, full = LazySteps(lambda: first, lambda: (first, second)), make_plan(first).peak_bytes
    with pytest.raises(mx.MemoryBudgetError) as error:
        steps.plan(1)
    extra, better = [], set()
    for budget in range(error.value.least_feasible_bytes, full + 256, 256):
        found, each = steps.plan(budget), []
        for problem in steps:
            with suppress(mx.MemoryBudgetError):
                each.append(plan_memory(problem, budget).extra_time)
        assert found.extra_time == min(each) and found.peak_bytes <= budget
        extra.append(found.extra_time)
        better |= {each.index(min(each))} if len(each) == 2 else set()
    assert extra == sorted(extra, reverse=True) and extra[-1] == 0
    assert better == {0, 1}  # also where the first fits, the second may be faster


def test_a_frontier_is_one_over_both_steps(request_of_file):
    plans = frontier(request_of_file, 24)
    assert plans[0].peak_bytes == refused().least_feasible_bytes == plans[0].budget_bytes
    assert {keeps_gates(p) for p in plans} == {False, True} and plans[-1].extra_time == 0
    extra = [p.extra_time for p in plans]
    assert extra == sorted(extra, reverse=True)
    for p in plans:
        assert ("gates computed again" in p.how) == ("gates computed again" in str(p)) != keeps_gates(p)
    assert len({p.lower_bound_bytes for p in plans}) == len({p.keep_all_peak_bytes for p in plans}) == 1


def test_the_largest_batch_is_one_of_the_second_step(ask, request_of_file):
    budget = plan().peak_bytes
    code, out = ask("fit-batch", "--budget", str(budget), batch=False)
    batch = int(re.search(r"Batch (\d+) fits", out)[1])
    largest = replace(request_of_file, batch=batch)
    assert code == 0 and not keeps_gates(largest.plan(budget))
    assert f"{format_bytes(largest.plan(budget).peak_bytes)}\n" in out
    with pytest.raises(mx.MemoryBudgetError):
        replace(largest, batch=batch + 1).plan(budget)
    only_kept = plan_memory(request_of_file.keep_all().steps.first, budget)
    assert keeps_gates(only_kept) and batch > BATCH


def test_explain_and_diff_say_which_step_it_is_and_what_it_costs(ask, request_of_file, tmp_path, capsys):
    least = plan(refused().least_feasible_bytes)
    code, out = ask("explain", "--budget", str(least.peak_bytes))
    assert code == 0 and f"{100 * (least.problem.slowdown - 1):.1f} %   (gates computed again)" in out
    row = next(
        line for line in out.splitlines() if "recomputation, to the least, gates computed again" in line
    )
    assert format_bytes(least.peak_bytes) in row and f"{100 * least.extra_time:.1f} %" in row
    file = tmp_path / "plan.json"
    file.write_text(least.to_json())
    assert main(["diff", str(file), str(file)]) == 0
    assert f"A: {file}, {least.how}\n" in capsys.readouterr().out


@pytest.mark.parametrize("bound", [False, True], ids=["planned", "bound"])
@pytest.mark.parametrize("budget", [None, "least"])
def test_a_pages_budgets_go_down_to_the_least_of_the_second_step(bound, budget, tmp_path):
    least = refused().least_feasible_bytes
    budget = budget and least
    found = plan(budget)
    if bound:
        how = dict(optimizer=mx.optimizer.SGD(), memory_budget=budget, **SHAPES)
        found = network().simple_bind(mx.cpu(), **how).memory_plan
    plans = along_budgets(found, 4)
    assert plans[0].peak_bytes == least and not keeps_gates(plans[0]) and keeps_gates(plans[-1])
    assert along_budgets(found, [least])[0].peak_bytes == least
    found.to_html(tmp_path / "plan.html", 3)
    assert "gates computed again" in (tmp_path / "plan.html").read_text()


def test_a_refusal_tells_of_all_steps():
    error, free = refused(), plan()
    full = plan(free.peak_bytes)
    assert (
        error.keep_all_peak_bytes
        == full.keep_all_peak_bytes
        == full.steps.first.fixed_total + full.arena_bytes
    )
    assert error.lower_bound_bytes == full.lower_bound_bytes == free.lower_bound_bytes
    assert error.lower_bound_bytes == min(p.lower_bound_bytes for p in full.steps)
    assert f"Proven lower bound: {error.lower_bound_bytes} bytes" in str(error)


def test_a_file_knows_what_is_proven_of_all_steps_and_no_more():
    full = plan(plan().peak_bytes)
    text = full.to_json()
    again = MemoryPlan.from_json(text)
    assert again.lower_bound_bytes == full.lower_bound_bytes < full.problem.lower_bound_bytes
    assert again == full and again.to_json() == text
    data = json.loads(text)
    data["bound_bytes"] = full.problem.lower_bound_bytes + 1
    with pytest.raises(mx.MXLiteError, match="lower bound"):
        MemoryPlan.from_json(json.dumps(data))


def test_a_plan_can_be_pickled_and_plans_on():
    free, least = plan(), refused().least_feasible_bytes
    again = pickle.loads(pickle.dumps(free))
    assert again == free and again.within(least).peak_bytes == free.within(least).peak_bytes == least


def test_updates_beside_the_step_may_make_it_another_step():
    """Their states are counted when the optimizer comes: the step that was bound may have no room then."""
    module = mx.mod.Module(network(), memory_budget=1)
    shapes = [("data", SHAPES["data"])], [("softmax_label", SHAPES["softmax_label"])]
    states = sum(
        a.size * 4 for n, a in network().simple_bind(mx.cpu(), **SHAPES).arg_dict.items() if n not in SHAPES
    )
    with pytest.raises(mx.MemoryBudgetError) as found:
        module.bind(*shapes)
    kept = network().memory_plan(mx.cpu(), memory_budget="1GB", **SHAPES).peak_bytes
    assert found.value.least_feasible_bytes + states < kept
    module = mx.mod.Module(network(), memory_budget=kept)
    module.bind(*shapes)
    module.init_params()
    assert keeps_gates(module.memory_plan)
    module.init_optimizer(optimizer="sgd", optimizer_params={"momentum": 0.9})
    assert not keeps_gates(module.memory_plan) and module.memory_plan.peak_bytes <= kept
    assert module.memory_plan.within(kept).extra_time == module.memory_plan.extra_time
    rng = np.random.default_rng(0)
    batch = mx.io.DataBatch([mx.nd.array(rng.standard_normal(SHAPES["data"]))], [mx.nd.zeros(STEPS * BATCH)])
    module.forward_backward(batch)
    module.update()
    assert module.planned_bytes <= kept


def test_buckets_are_of_the_step_that_has_room():
    def made(length):
        data, weights = mx.sym.var("data"), mx.sym.var("rnn_weight")
        out = mx.sym.RNN(data, weights, mode="lstm", num_layers=2, state_size=HIDDEN, name="rnn")[0]
        score = mx.sym.FullyConnected(mx.sym.Reshape(out, shape=(-1, HIDDEN)), num_hidden=10, name="fc")
        return mx.sym.SoftmaxOutput(score, name="softmax"), ("data",), ("softmax_label",)

    def bound(budget, order):
        module = mx.mod.BucketingModule(made, max(order), memory_budget=budget)
        for length in order:
            shapes = [("data", (length, BATCH, HIDDEN))], [("softmax_label", (length * BATCH,))]
            if length == order[0]:
                module.bind(*shapes)
                module.init_params()
                module.init_optimizer(optimizer="sgd")
            else:
                module.switch_bucket(length, *shapes)
        return module

    with pytest.raises(mx.MemoryBudgetError) as error:
        bound(1, [48])
    least = error.value.least_feasible_bytes
    module = bound(least + (64 << 10), [48, 12])
    assert module.planned_bytes <= least + (64 << 10)


def test_a_small_step_that_is_quicker_by_the_model_is_the_one_that_runs_if_it_fits():
    """Fewer bytes; that it computes more hardly counts."""
    shapes = {"data": (3, 1, HIDDEN), "softmax_label": (3,)}
    full = network().memory_plan(mx.cpu(), memory_budget="1GB", **shapes)
    first, second = full.steps
    assert first.step_seconds < second.step_seconds and second.instead == "no gates computed again"
    assert not keeps_gates(full) and "gates" not in full.how and full.extra_time == 0
    plans = along_budgets(full, 12)
    for slower in ("extra_time", "predicted_seconds"):
        found = [getattr(p, slower) for p in plans]
        assert found == sorted(found, reverse=True) and found[-1] == getattr(full, slower)


def test_a_refusal_of_mixed_precision_names_float32_where_that_takes_less():
    how = dict(optimizer=mx.optimizer.SGD(), amp="bfloat16", **SHAPES)
    with pytest.raises(mx.MemoryBudgetError) as error:
        network().memory_plan(mx.cpu(), memory_budget=1, **how)
    least = refused().least_feasible_bytes
    wanted = f"float32 alone (amp=None): not enough, needs {format_bytes(least)}\n"
    assert wanted in f"{error.value}\n" and least < error.value.least_feasible_bytes


def test_a_module_refuses_with_the_same_figures_and_advice():
    module = mx.mod.Module(network(), memory_budget=1, fused_update=True)
    module.bind([("data", SHAPES["data"])], [("softmax_label", SHAPES["softmax_label"])])
    module.init_params()
    with pytest.raises(mx.MemoryBudgetError) as found:
        module.init_optimizer(optimizer="sgd")
    mine, planned = found.value, refused()
    for name in ("least_feasible_bytes", "lower_bound_bytes", "keep_all_peak_bytes", "least_extra_time"):
        assert abs(getattr(mine, name) - getattr(planned, name)) <= 64, name  # a rate for each parameter
    assert "What would help:" in str(mine)


def test_other_shapes_are_of_the_step_that_fits_them():
    least = refused().least_feasible_bytes
    how = dict(optimizer=mx.optimizer.SGD(), memory_budget=least)
    exe = network().simple_bind(mx.cpu(), **how, **SHAPES)
    for steps, batch, kept in ((STEPS, BATCH // 2, False), (STEPS // 4, BATCH, True)):
        shapes = {"data": (steps, batch, HIDDEN), "softmax_label": (steps * batch,)}
        again = exe.reshape(partial_shaping=True, **shapes)
        assert keeps_gates(again.memory_plan) == kept and again.memory_plan.peak_bytes <= least
        assert again.memory_plan.within(least).extra_time == again.memory_plan.extra_time
        check(again.memory_plan)


def test_threads_may_ask_a_plan_for_its_steps_at_once():
    def slowly():
        for problem in (residual(2, 1), residual(3, 1)):
            sleep(0.01)
            yield problem

    steps = LazySteps(lambda: residual(2, 1), slowly)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: len(list(steps)), range(4)))
    assert found == [2] * 4
