"""A budget that no plan fits: what the error promises holds, and what it says would help does."""

from __future__ import annotations

import pickle
import re
from functools import partial

import pytest

import mxlite as mx
from mxlite.core import MemoryBudgetError
from mxlite.executor.plan import remedies
from mxlite.memplan import check, plan_memory, Problem, Task, Value
from mxlite.memplan.holders import at_peak
from mxlite.memplan.remat.blocks import Blocks
from mxlite.memplan.remat.split import find_cuts
from tests.memplan.problems import chain, random_problem, residual


@pytest.fixture(autouse=True)
def machine_independent(monkeypatch):
    monkeypatch.setenv("MXLITE_KERNELS", "reference")


def refusal(plan, budget=1):
    with pytest.raises(MemoryBudgetError) as caught:
        plan(budget)
    return caught.value


@pytest.mark.parametrize(
    "problem",
    [chain(12), chain(9, update=True), residual(5, 2), *(random_problem(s, forward=12) for s in range(12))],
)
def test_the_budget_named_works_exactly(problem):
    error = refusal(lambda b: plan_memory(problem, b))
    plan = plan_memory(problem, error.least_feasible_bytes)
    check(plan, plan.predecessors)
    assert plan.peak_bytes <= error.least_feasible_bytes
    assert error.lower_bound_bytes <= error.least_feasible_bytes <= error.keep_all_peak_bytes
    assert plan.extra_time <= error.least_extra_time + 1e-9
    assert error.lower_bound_bytes == problem.lower_bound_bytes
    text = str(error)
    assert f"A budget of {error.least_feasible_bytes} bytes" in text
    assert f"Proven lower bound: {error.lower_bound_bytes} bytes" in text
    apart = error.lower_bound_bytes < error.least_feasible_bytes
    assert ("no plan is known and none is excluded" in text) == apart
    assert ("Both are one" in text) != apart


def test_a_long_block_in_which_nothing_runs_again_is_planned():
    """Twelve results are read to its end, so it has no cut; backward reads nothing of it."""
    reads = [(0,) if t < 12 else (t, 1 + t % 12) if t < 60 else (t,) for t in range(70)]
    tasks = tuple(Task(f"t{t}", "op", r, (t + 1,), seconds=1) for t, r in enumerate(reads))
    values = (Value("data", 64, fixed=True), *(Value(f"v{t}", 64) for t in range(70)))
    blocks = Blocks(find_cuts(Problem(tasks, values, 70, {"inputs": 64}), 8))
    assert max(end - begin for begin, end in zip(blocks.begin, blocks.end)) > 40
    assert all(path.seconds[0] == 0 for path in blocks.paths[1])


@pytest.mark.parametrize("name, batch, options", [("lenet", 16, {}), ("mlp", 64, {}), ("lstm", 2, {})])
def test_networks_run_within_the_budget_named(name, batch, options):
    net, shapes = mx.models.get(name, **options), mx.models.shapes_of(name, batch, **options)
    error = refusal(lambda b: net.memory_plan(memory_budget=b, **shapes))
    plan = net.memory_plan(memory_budget=error.least_feasible_bytes, **shapes)
    assert plan.peak_bytes <= error.least_feasible_bytes
    assert error.budget_bytes == 1


def test_a_plan_that_is_asked_for_another_budget_says_what_would_help_too():
    net, shapes = mx.models.get("mlp"), mx.models.shapes_of("mlp", 64)
    plan = net.memory_plan(**shapes)
    said = str(refusal(plan.within))
    assert said == str(refusal(lambda b: net.memory_plan(memory_budget=b, **shapes)))
    assert "What would help:" in said
    read = mx.memplan.MemoryPlan.from_json(plan.to_json())  # the network is not in the file
    assert "What would help:" not in str(refusal(read.within))


def test_states_that_come_after_binding_are_announced_and_then_counted_in_what_would_help():
    net, images = mx.models.get("mlp"), [("data", (64, 784))]
    labels = [("softmax_label", (64,))]
    budget = refusal(lambda b: mx.mod.Module(net, memory_budget=b).bind(images, labels)).least_feasible_bytes
    said = str(refusal(lambda b: mx.mod.Module(net, memory_budget=b).bind(images, labels)))
    assert "states come on top, with init_optimizer" in said
    module = mx.mod.Module(net, memory_budget=budget)
    module.bind(images, labels)
    module.init_params()
    error = refusal(lambda b: module.init_optimizer(optimizer="adam"))
    said = str(error)
    assert "come on top" not in said
    assert "no smaller batch: 1.67 MiB do not" in said  # parameters, gradients, two states of each
    error = refusal(lambda b: module.init_optimizer(optimizer="sgd", optimizer_params={"momentum": 0.9}))
    inside = re.search(r"update inside the step .*, with sgd: fits, ([\d.]+ MiB)", str(error))
    sgd = net.memory_plan(memory_budget=budget, optimizer=mx.optimizer.SGD(), data=(64, 784))
    assert inside and inside[1] == mx.format_bytes(sgd.peak_bytes)  # the states went with the update


@pytest.mark.parametrize(
    "said, optimizer, params",
    [
        (r"a budget of (\d+) bytes does with sgd with momentum", "sgd", {"momentum": 0.9}),
        (r"one of (\d+) with adam", "adam", {}),
        (r"A budget of (\d+) bytes .* does work", "sgd", {}),
    ],
)
def test_the_budgets_named_for_optimizers_before_there_is_one_are_right(said, optimizer, params):
    net, data, labels = mx.models.get("mlp"), [("data", (8, 784))], [("softmax_label", (8,))]

    def run(budget):
        module = mx.mod.Module(net, memory_budget=budget, fixed_param_names=["fc1_weight"])
        module.bind(data, labels)
        module.init_params()
        module.init_optimizer(optimizer=optimizer, optimizer_params=params)

    least = int(re.search(said, str(refusal(run)))[1])
    run(least)
    refusal(run, least - 1)


def test_who_updates_by_himself_is_bound_by_fit_too():
    class Own(mx.mod.Module):
        def init_optimizer(self, *args, **options):
            self.optimizer_initialized = True

        def update(self):
            for name, grad in self._exec_group.execs[0].grad_dict.items():
                if grad is not None:
                    self._exec_group.execs[0].arg_dict[name][:] -= 0.1 * grad

    data = mx.io.NDArrayIter(mx.nd.ones((8, 6)), mx.nd.zeros((8,)), 4)
    module = Own(mx.models.get("mlp", hidden=(4,)), fused_update=False)
    module.fit(data, num_epoch=1)
    assert abs(module.get_params()[0]["fc2_bias"].asnumpy()).max() > 0


@pytest.mark.parametrize("optimizer", ["adam", "nadam"])
@pytest.mark.parametrize("fused", [None, False])
@pytest.mark.parametrize("kind", ["module", "sequential"])
def test_fit_is_refused_once_as_it_knows_its_optimizer(optimizer, fused, kind):
    data = mx.io.NDArrayIter(mx.nd.ones((8, 6)), mx.nd.zeros((8,)), 4)

    def fit(budget):
        module = mx.mod.Module(mx.models.get("mlp", hidden=(4,)), memory_budget=budget, fused_update=fused)
        whole = mx.mod.SequentialModule().add(module, take_labels=True) if kind == "sequential" else module
        whole.fit(data, optimizer=optimizer, num_epoch=1)
        mx.nd.waitall()
        return module

    error = refusal(fit)
    module = fit(error.least_feasible_bytes)
    assert module.measured_bytes == module.planned_bytes <= error.least_feasible_bytes
    assert refusal(fit, error.least_feasible_bytes - 1).least_feasible_bytes == error.least_feasible_bytes


def test_a_refusal_of_modules_in_a_row_names_the_budget_of_each():
    data = mx.io.NDArrayIter(mx.nd.ones((8, 6)), mx.nd.zeros((8,)), 4)
    first = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=5, name="first")

    def fit(budgets):
        nets = (first, ()), (mx.models.get("mlp", hidden=(4,)), ("softmax_label",))
        modules = [
            mx.mod.Module(net, ("data",), labels, memory_budget=b) for (net, labels), b in zip(nets, budgets)
        ]
        whole = mx.mod.SequentialModule().add(modules[0])
        whole.add(modules[1], take_labels=True, auto_wiring=True)
        whole.fit(data, optimizer="adam", num_epoch=1)
        mx.nd.waitall()
        return [m.measured_bytes for m in modules]

    error = refusal(lambda b: fit((b, b)))
    named = [int(n) for n in re.findall(r"module \d (\d+) bytes", str(error))]
    assert error.least_feasible_bytes == max(named) and "This is module 1 of" in str(error)
    assert fit(named) == named
    for less in ((named[0] - 1, named[1]), (named[0], named[1] - 1)):
        refusal(lambda _, less=less: fit(less))


def test_what_takes_no_less_is_no_help():
    net = mx.models.get("lenet")
    error = refusal(lambda b: net.memory_plan(mx.gpu(), memory_budget=b, data=(64, 1, 28, 28)), 4 << 20)
    needs = re.findall(r"not enough, needs ([\d.]+ MiB)", str(error))
    assert needs and all(mx.parse_bytes(n) < error.least_feasible_bytes for n in needs)


def test_the_table_names_who_holds_the_peak():
    problem = residual(6, 2)
    error = refusal(lambda b: plan_memory(problem, b))
    plan = plan_memory(problem, error.least_feasible_bytes)
    held = at_peak(plan)
    assert sum(h.nbytes for h in held) == plan.max_live_bytes
    text = str(error)
    assert "Who holds the arena" in text and "made by" in text
    for h in held[:1]:
        assert re.search(rf"^  {re.escape(h.name)} +{h.kind} +{h.op}", text, re.MULTILINE)


def test_what_inference_needs_is_not_blamed_on_a_task():
    problem = Problem(
        (Task("t", "op", (), (0,)),), (Value("v", 64),), 1, {}, least_arena=6400, least_bound=6400
    )
    text = str(refusal(lambda b: plan_memory(problem, b)))
    assert "6.25 KiB for inference" in text and "alone" not in text


@pytest.mark.parametrize("strategy", mx.memplan.STRATEGIES)
def test_the_proven_bound_holds_for_inference_that_is_planned_otherwise(strategy):
    data = mx.sym.var("data")
    for i in range(6):
        data = mx.sym.exp(data, name=f"exp{i}")
    ask = dict(grad_req="null", data=(64, 64))
    best = data.memory_plan(mx.cpu(), **ask)
    plan = data.memory_plan(mx.cpu(), strategy=strategy, **ask)
    assert plan.lower_bound_bytes <= best.peak_bytes
    assert best.lower_bound_bytes == best.peak_bytes
    error = refusal(lambda b: data.memory_plan(mx.cpu(), memory_budget=b, strategy=strategy, **ask))
    assert error.lower_bound_bytes <= best.peak_bytes
    assert ("Both are one" in str(error)) == (strategy != "none")


def test_advice_is_worked_out_when_it_is_read_and_once():
    asked = []

    def advise():
        asked.append(1)
        return "Buy memory."

    error = MemoryBudgetError(
        "No.", budget_bytes=1, least_feasible_bytes=2, lower_bound_bytes=1, advise=advise
    )
    assert not asked
    assert str(error) == str(error) == "No.\nBuy memory." and asked == [1]
    assert str(MemoryBudgetError("No.", budget_bytes=1, least_feasible_bytes=2, lower_bound_bytes=1)) == "No."


def test_a_refusal_reaches_another_process_whole():
    net = mx.models.get("mlp")
    error = refusal(lambda b: net.memory_plan(data=(8, 784), memory_budget=b))
    assert error.advise is not None
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is MemoryBudgetError and str(again) == str(error) and "What would help" in str(again)
    for name in ("budget_bytes", "least_feasible_bytes", "lower_bound_bytes", "keep_all_peak_bytes"):
        assert getattr(again, name) == getattr(error, name) > 0
    assert again.least_extra_time == error.least_extra_time


def test_the_batch_named_fits_and_the_next_does_not():
    net = mx.models.get("lenet")
    requests = {n: "write" for n in net.list_arguments() if n not in ("data", "softmax_label")}
    parameters = net.memory_plan(data=(1, 1, 28, 28), grad_req=requests).problem.fixed_total

    def ask(batch, budget):
        return net.memory_plan(data=(batch, 1, 28, 28), memory_budget=budget, grad_req=requests)

    for budget in (parameters + 1_200_000, parameters + 2_500_000):
        text = str(refusal(partial(ask, 64), budget))
        found = re.search(
            r"batch (\d+) instead of 64 \(the first axis of 'data'\): fits.*; (\d+) does not", text
        )
        assert found, text
        fits, not_any_more = int(found[1]), int(found[2])
        assert not_any_more == fits + 1
        ask(fits, budget)
        refusal(partial(ask, fits + 1), budget)


def test_remedies_say_what_they_would_take():
    net, shapes = mx.models.get("lenet"), dict(data=(64, 1, 28, 28))
    text = str(refusal(lambda b: net.memory_plan(memory_budget=b, **shapes), 4 << 20))
    line = next(line for line in text.splitlines() if "update inside the step" in line)
    plan = net.memory_plan(optimizer=mx.optimizer.SGD(), memory_budget=None, **shapes)
    needs = mx.parse_bytes(re.search(r"([\d.]+ \w+)(?: with|$)", line)[1].replace(" ", ""))
    assert needs <= plan.peak_bytes * 1.01
    line = next(line for line in text.splitlines() if 'amp="bfloat16"' in line)
    assert "fits" in line or "not enough" in line
    assert "grad_req='null' for 'data', 'softmax_label': 196.25 KiB less" in text
    assert "offload" not in text  # a CPU's memory is the host's


def test_devices_of_their_own_memory_may_offload(monkeypatch):
    monkeypatch.setattr(remedies, "WORK", 0)  # nothing is planned for it
    net = mx.models.get("lenet")
    text = str(refusal(lambda b: net.memory_plan(mx.gpu(), memory_budget=b, data=(64, 1, 28, 28)), 4 << 20))
    assert 'offload="auto"' in text


def test_a_batch_of_one_that_does_not_fit_either():
    net = mx.models.get("mlp")
    text = str(refusal(lambda b: net.memory_plan(memory_budget=b, data=(8, 784)), 1000))
    assert "no smaller batch" in text and "The fixed part alone is larger" in text


def test_large_networks_get_estimates_and_say_so(monkeypatch):
    monkeypatch.setattr("mxlite.executor.plan.remedies.WORK", 0)
    net = mx.models.get("lenet")
    text = str(refusal(lambda b: net.memory_plan(memory_budget=b, data=(64, 1, 28, 28)), 5 << 20))
    assert "an estimate: half of the arena" in text and "gradients need no arrays" in text
    assert re.search(r"batch \d+ instead of 64 .*: fits by an estimate; `mxlite fit-batch`", text)


def test_the_task_of_the_bound_has_shapes():
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=5, name="wide")
    text = str(refusal(lambda b: mx.sym.exp(net).memory_plan(memory_budget=b, data=(64, 3), grad_req="null")))
    assert "'wide' of the bound: float32 (64, 3), float32 (5, 3), float32 (5) -> float32 (64, 5)." in text


def test_within_bind_too():
    net = mx.sym.exp(mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=5, name="wide"))
    shapes = dict(data=(64, 3), wide_weight=(5, 3), wide_bias=(5,))
    arrays = {n: mx.nd.zeros(s) for n, s in shapes.items()}
    error = refusal(lambda b: net.bind(mx.cpu(), arrays, memory_budget=b))
    assert "Proven lower bound" in str(error)
    assert net.bind(mx.cpu(), arrays, memory_budget=error.least_feasible_bytes).forward()


def test_a_batch_that_is_not_the_first_axis_is_found_by_the_length_that_inputs_share():
    net = mx.models.get("lstm", hidden=8, vocabulary=9)
    shapes = mx.models.shapes_of("lstm", 32, hidden=8, steps=12)
    text = str(refusal(lambda b: net.memory_plan(memory_budget=b, **shapes), 60_000))
    found = re.search(r"batch (\d+) instead of 32 \(the second axis of 'data'\): fits", text)
    assert found, text
    net.memory_plan(memory_budget=60_000, **mx.models.shapes_of("lstm", int(found[1]), hidden=8, steps=12))


def test_what_would_make_the_fixed_part_smaller_is_only_what_it_holds():
    net = mx.models.get("mlp")

    def fixed_line(budget, **asked):
        text = str(refusal(lambda b: net.memory_plan(memory_budget=b, data=(8, 784), **asked), budget))
        return next(line for line in text.splitlines() if line.startswith("The fixed part"))

    parameters = {n: "write" for n in net.list_arguments() if n.endswith(("weight", "bias"))}
    assert fixed_line(1000, grad_req="null").endswith("a smaller model would help.")
    assert "update inside" in fixed_line(1000, grad_req=parameters)
    adam = fixed_line(1000, optimizer=mx.optimizer.Adam())
    assert "less state" in adam and "update inside" not in adam and "batch" not in adam
    held = net.memory_plan(data=(8, 784), grad_req="null").breakdown["arguments"]
    assert "model or batch would help" in fixed_line(held + 1000, grad_req="null")


def test_what_would_help_is_reckoned_for_the_device_that_was_asked_for():
    net, found = mx.models.get("lenet"), {}

    def plan(batch, device):
        return net.memory_plan(
            optimizer=mx.optimizer.SGD(), device=device, memory_budget=4 << 20, data=(batch, 1, 28, 28)
        )

    for device in ("2GFLOP/s,900GB/s", None):
        text = str(refusal(lambda _, device=device: plan(64, device)))
        batch, percent = re.search(
            r"batch (\d+) instead .*fits, .* with ([\d.]+) % extra time", text
        ).groups()
        assert f"{100 * plan(int(batch), device).extra_time:.1f}" == percent
        found[device] = percent
    assert len(set(found.values())) == 2


@pytest.mark.parametrize("optimizer, holds", [(mx.optimizer.SGD(), False), (mx.optimizer.Adam(), True)])
def test_less_state_of_an_optimizer_is_advised_where_there_is_some(optimizer, holds):
    net = mx.models.get("mlp")
    text = str(refusal(lambda b: net.memory_plan(memory_budget=b, optimizer=optimizer, data=(8, 784))))
    assert ("an optimizer with less state" in text) == holds


# -- several programs under one budget ---------------------------------------------------------------------


def within_one_budget(budget, batches, fused=False, optimizer="adam"):
    """Train on batches of the first size, evaluate those of the second."""
    draw = mx.nd.zeros((max(batches), 8)), mx.nd.zeros((max(batches),))
    train, held_out = (mx.io.NDArrayIter(draw[0][:n], draw[1][:n], n) for n in batches)
    net = mx.models.get("mlp", hidden=(16,))
    module = mx.mod.Module(net, memory_budget=budget, fused_update=fused)
    module.fit(train, held_out, optimizer=optimizer, num_epoch=1)
    mx.nd.waitall()
    assert module.measured_bytes == module.planned_bytes <= budget


def buckets_in_one_budget(budget, batches, fused=False, optimizer="adam"):
    """Steps of buckets with several lengths, of so many samples each."""

    def net(length):
        data = mx.sym.Reshape(mx.sym.Variable("data"), shape=(-1, 8))
        logits = mx.sym.FullyConnected(mx.sym.Activation(data, act_type="tanh"), num_hidden=5, name="fc")
        label = mx.sym.Reshape(mx.sym.Variable("softmax_label"), shape=(-1,))
        return mx.sym.SoftmaxOutput(logits, label, name="softmax"), ("data",), ("softmax_label",)

    shapes = {k: ([("data", (n, k, 8))], [("softmax_label", (n, k))]) for k, n in zip((9, 8, 2), batches)}
    module = mx.mod.BucketingModule(net, 9, memory_budget=budget, buckets=shapes, fused_update=fused)
    module.await_optimizer()
    module.bind(*shapes[9])
    module.init_params()
    module.init_optimizer(optimizer=optimizer)


@pytest.mark.parametrize(
    "run, batches, below", [(within_one_budget, (42, 62), 3000), (buckets_in_one_budget, (30, 34, 30), 100)]
)
def test_what_is_said_to_help_several_shapes_helps_all_of_them(run, batches, below):
    least = refusal(partial(run, batches=batches)).least_feasible_bytes
    offered = set()
    for budget in (least // 2, least - below):
        text = str(refusal(partial(run, batches=batches), budget))
        assert re.search(r"largest of [23] shapes that do not fit\.(.|\n)*would help all of them:", text), (
            text
        )
        for line in (line for line in text.splitlines() if ": fits" in line):
            if found := re.search(r"batch (\d+) instead of ([\d and]+) \(.*: fits.*; (\d+) does not", line):
                assert found[2] == " and ".join(map(str, sorted({*batches}, reverse=True)))
                run(budget, [min(n, int(found[1])) for n in batches])
                refusal(partial(run, batches=[min(n, int(found[3])) for n in batches]), budget)
                offered.add("batch")
            else:
                assert "update inside the step" in line, line
                run(budget, batches, fused=True, optimizer="sgd")
                offered.add("fused")
    assert offered == {"batch", "fused"}
