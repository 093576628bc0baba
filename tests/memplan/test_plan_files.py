"""Plans that come out of files, and other input that nobody has looked at before."""

from __future__ import annotations

import hashlib
import json
import random
from dataclasses import replace

import numpy as np
import pytest

import mxlite as mx
from mxlite.cli import main
from mxlite.core import FormatError, PlanError
from mxlite.memplan import make_plan, MemoryPlan, Task
from mxlite.memplan.files.difference import first_difference
from tests.memplan.problems import chain, random_problem, residual


@pytest.fixture(autouse=True)
def machine_independent(monkeypatch):
    monkeypatch.setenv("MXLITE_KERNELS", "reference")


def plans():
    yield make_plan(residual(2, 2, update=True), [1, 1, 0] + [1] * 8)
    yield make_plan(chain(0))
    for seed in range(20):
        problem = random_problem(seed, forward=8)
        counts = [int(c) for c in np.random.default_rng(seed).integers(0, 3, problem.num_forward)]
        yield make_plan(problem, counts)
    yield mx.models.get("mlp", hidden=(4,), features=4).memory_plan(
        data=(2, 4), device="20TFLOP/s,900GB/s", optimizer=mx.optimizer.Adam()
    )


def test_every_plan_survives():
    for plan in plans():
        again = MemoryPlan.from_json(plan.to_json())
        assert again == plan and again.problem.costs == plan.problem.costs
        assert again.predecessors == plan.predecessors and again.to_json() == plan.to_json()


def outcome(text):
    """None for a refusal, else the plan; anything else is an error of the test."""
    try:
        return MemoryPlan.from_json(text)
    except (FormatError, PlanError) as error:
        assert len(str(error)) < 2000
        return None


def test_every_truncation_is_refused():
    text = make_plan(residual(2, 1), [1] * 7).to_json()
    for stop in range(len(text)):
        assert outcome(text[:stop]) is None
    with pytest.raises(FormatError, match="not the JSON of a memory plan, or it is cut short"):
        MemoryPlan.from_json(text[:-1])


def test_no_byte_can_fall_over_unseen():
    plan = make_plan(residual(2, 1), [1] * 7)
    text = plan.to_json()
    draw = random.Random(5)
    same = 0
    for _ in range(1200):
        at = draw.randrange(len(text))
        kind = draw.randrange(3)
        new = draw.choice('0123456789-.,:[]{}"etrufalsn \\')
        changed = (text[:at] + new + text[at + 1 :], text[:at] + text[at + 1 :], text[:at] + new + text[at:])[
            kind
        ]
        found = outcome(changed)
        assert found is None or found == plan, (at, kind, new)
        same += found is not None
    assert same < 200  # spaces


def leaves(data, path=()):
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        yield (*path, key)
        yield from leaves(value, (*path, key))


def test_no_field_takes_another_kind_or_a_huge_number():
    """Also where the digest is made right again, as somebody with bad intentions would."""
    plan = make_plan(residual(1, 1), [1] * 3)
    data = json.loads(plan.to_json())
    places = list(leaves(data))
    draw = random.Random(3)
    for path in draw.sample(places, min(len(places), 60)):
        for wrong in (True, 1.5, 2**63, 2**200, -2, None, "x", [], {}, float("inf")):
            copy = json.loads(plan.to_json())
            at = copy
            for key in path[:-1]:
                at = at[key]
            at[path[-1]] = wrong
            found = outcome(json.dumps(copy))
            assert found is None or found == plan, (path, wrong)


@pytest.mark.parametrize("where, named", [
    (("problem", "tasks"), "tasks of the problem"), (("problem", "values"), "values of the problem"),
    (("buffers",), "buffers of the plan"), (("buffers", 1), "buffer 1"),
    (("buffers", 1, 4), "members of buffer 1"), (("problem", "tasks", 0, "inputs"), "inputs of task 0"),
    (("schedule", "task"), "task of the schedule"), (("schedule", "inputs", 2), "inputs of the schedule"),
])  # fmt: skip
def test_what_is_no_list_is_named(where, named):
    data = json.loads(make_plan(residual(2, 2), [1] * 11).to_json())
    at = data
    for key in where[:-1]:
        at = at[key]
    at[where[-1]] = 64
    with pytest.raises(FormatError, match=f"The memory plan: {named}: '64' is no list"):
        MemoryPlan.from_json(json.dumps(data))


@pytest.mark.parametrize("name, wrong", [
    ("offset", -64), ("offset", 32), ("offset", 2**61), ("nbytes", 1), ("start", 0), ("stop", 10**6),
    ("stop", 1),
    ("members", []), ("members", [10**6]), ("members", [0]),
])  # fmt: skip
def test_buffers_live_as_the_schedule_says(name, wrong):
    data = json.loads(make_plan(residual(2, 2), [1] * 11).to_json())
    at = ("offset", "nbytes", "start", "stop", "members").index(name)
    row = next(r for r in data["buffers"] if r[4] and r[2] > 1)
    row[at] = wrong
    with pytest.raises(FormatError, match=r"buffer|instance|whole number"):
        MemoryPlan.from_json(json.dumps(data))


def test_what_follows_from_the_rest_must_follow():
    data = json.loads(make_plan(residual(2, 2)).to_json())
    for key in ("peak_bytes", "extra_time", "breakdown", "lower_bound_bytes", "digest"):
        with pytest.raises(FormatError, match=key):
            MemoryPlan.from_json(json.dumps({**data, key: 1}))
    with pytest.raises(FormatError, match="surprise"):
        MemoryPlan.from_json(json.dumps({**data, "surprise": 1}))


def test_sums_of_bytes_do_not_wrap_around():
    data = json.loads(make_plan(residual(1, 1)).to_json())
    for value in data["problem"]["values"]:
        value["nbytes"] = 2**61
    with pytest.raises(FormatError, match="62 bits"):
        MemoryPlan.from_json(json.dumps(data))


def with_digest(data):
    """The text of a plan whose digest is right again, as somebody with bad intentions would write it."""
    data.pop("digest", None)
    data["digest"] = hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()
    return json.dumps(data)


@pytest.mark.parametrize("where", [
    ("problem", "cache_bytes"), ("problem", "least_arena"), ("problem", "tasks", 0, "workspace"),
    ("problem", "values", 0, "nbytes"), ("budget_bytes",), ("keep_all_peak_bytes",), ("host_bytes",),
    ("placed_bytes",), ("bound_bytes",),
])  # fmt: skip
def test_no_number_of_bytes_is_below_zero(where):
    """A cache of -1 bytes made the time of the plan overflow."""
    data = json.loads(make_plan(residual(1, 1)).to_json())
    at = data
    for key in where[:-1]:
        at = at[key]
    at[where[-1]] = -1
    with pytest.raises(FormatError, match=rf"{where[-1]} of .*'-1' is no whole number of at least 0"):
        MemoryPlan.from_json(with_digest(data))


def test_a_time_that_is_infinite_times_another_is_refused():
    """Such a plan could be read, but what it wrote could not be read again."""
    data = json.loads(make_plan(residual(1, 1)).to_json())
    data["problem"]["base_seconds"] = 5e-324
    data["extra_time"] = float("inf")
    with pytest.raises(FormatError, match="has Infinity where a number should be"):
        MemoryPlan.from_json(with_digest(data).replace("Infinity", "1e400"))


# -- binding with a plan -------------------------------------------------------------------------


def network(width=8):
    data = mx.sym.Variable("data")
    for i in range(6):
        data = mx.sym.Activation(
            mx.sym.FullyConnected(data, num_hidden=width, name=f"fc{i}"), act_type="tanh", name=f"act{i}"
        )
    return mx.sym.MakeLoss(mx.sym.sum(mx.sym.square(data), name="sum"), name="loss")


def gradients(executor):
    for i, a in enumerate(executor.arg_arrays):
        a[:] = np.random.default_rng(i).normal(size=a.shape)
    executor.forward(is_train=True)
    executor.backward()
    return [g.asnumpy() for g in executor.grad_arrays]


def test_a_plan_out_of_a_file_is_the_one_that_runs():
    net, shape = network(), (256, 8)
    full = net.memory_plan(data=shape)
    budget = full.problem.fixed_total + int(0.7 * full.arena_bytes)
    plan = MemoryPlan.from_json(net.memory_plan(data=shape, memory_budget=budget).to_json())
    assert plan.recomputed
    executor = net.simple_bind(mx.cpu(), data=shape, plan=plan)
    assert executor.memory_plan == plan
    for a, b in zip(gradients(executor), gradients(net.simple_bind(mx.cpu(), data=shape))):
        np.testing.assert_array_equal(a, b)
    assert executor.measured_bytes == plan.peak_bytes <= budget
    # Costs weigh plans; they are none of what runs.
    slow = net.memory_plan(data=shape, device="1TFLOP/s,1GB/s")
    assert net.simple_bind(mx.cpu(), data=shape, plan=slow).memory_plan.placed_bytes == slow.placed_bytes
    arrays = {n: mx.nd.zeros(a.shape) for n, a in executor.arg_dict.items()}
    grads = {n: mx.nd.zeros(a.shape) for n, a in arrays.items()}
    assert net.bind(mx.cpu(), arrays, grads, plan=slow).memory_plan.schedule.task == slow.schedule.task


@pytest.mark.parametrize("other, says", [
    (lambda: network().memory_plan(data=(255, 8)),
     "value 0, 'data' there and 'data' here, has nbytes 8160 in the plan and 8192 here"),
    (lambda: network(9).memory_plan(data=(256, 8)), "9216 in the plan and 8192 here"),
    (lambda: network().memory_plan(data=(256, 8), grad_req="null"), "has|here are"),
    (lambda: network().memory_plan(data=(256, 8), optimizer=mx.optimizer.SGD()), "task|value"),
    (lambda: mx.sym.exp(mx.sym.Variable("data")).memory_plan(data=(256, 8)),
     "has op 'exp' in the plan and 'FullyConnected' here"),
])  # fmt: skip
def test_a_plan_of_another_step_is_refused_with_the_first_difference(other, says):
    with pytest.raises(PlanError, match=says) as caught:
        network().simple_bind(mx.cpu(), data=(256, 8), plan=other())
    assert "made for another step" in str(caught.value)


def test_differences_are_found_wherever_they_are():
    problem = residual(2, 2)
    task = problem.tasks[3]
    assert first_difference(problem, problem) is None
    for changed, says in (
        (replace(problem, tasks=(*problem.tasks[:3], replace(task, seconds=9.0), *problem.tasks[4:])), None),
        (replace(problem, tasks=(*problem.tasks[:3], replace(task, warm=9.0), *problem.tasks[4:])), None),
        (
            replace(problem, tasks=(*problem.tasks[:3], replace(task, workspace=9), *problem.tasks[4:])),
            "workspace",
        ),
        (replace(problem, tasks=problem.tasks[:-1]), "tasks, here are"),
        (replace(problem, tasks=(*problem.tasks, Task("t", "o", (), ()))), "tasks, here are"),
        (replace(problem, values=problem.values[:-1]), "values, here are"),
        (replace(problem, num_forward=1), "1 forward tasks"),
        (replace(problem, fixed_bytes={**problem.fixed_bytes, "inputs": 7}), "7 bytes of inputs"),
        (replace(problem, least_arena=7), "arena of 7 bytes"),
    ):
        found = first_difference(changed, problem)
        assert found is None if says is None else says in found, found


def test_a_plan_that_is_not_sound_never_runs():
    net, shape = network(), (256, 8)
    plan = net.memory_plan(data=shape)
    with pytest.raises(PlanError):
        net.simple_bind(mx.cpu(), data=shape, plan=replace(plan, offsets=(0,) * len(plan.offsets)))
    with pytest.raises(PlanError, match="more than memory_budget"):
        net.simple_bind(mx.cpu(), data=shape, plan=plan, memory_budget=plan.peak_bytes - 1)
    with pytest.raises(mx.BindError, match="from_json"):
        net.simple_bind(mx.cpu(), data=shape, plan=plan.to_json())


# -- shapes, graphs, budgets ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "shape", [(2**62, 8), (2**63, 8), (2**70, 8), (2**31, 2**31, 2**31), (2.5, 8), ("a", 8), 3, None, (-1, 8)]
)
def test_absurd_shapes_are_shape_errors(shape):
    for ask in (network().memory_plan, network().simple_bind):
        with pytest.raises(mx.ShapeError):
            ask(mx.cpu(), data=shape)


def test_sums_of_sizes_have_a_limit_too():
    with pytest.raises(mx.ShapeError, match=r"2\*\*62"):
        network().memory_plan(data=(2**55, 8))


@pytest.mark.parametrize("name, shape", [
    ("lenet", (1, 28, 28)), ("resnet20_cifar", (3, 32, 32)), ("mlp", (784,)),
])  # fmt: skip
def test_what_no_memory_holds_is_planned_and_no_library_asked(name, shape, monkeypatch):
    """oneDNN divides by 0 when it is asked about such sizes, and the process is gone."""
    monkeypatch.delenv("MXLITE_KERNELS")
    plan = mx.models.get(name).memory_plan(data=(2**32, *shape))
    assert plan.peak_bytes > 2**40
    with pytest.raises(mx.OutOfMemoryError):
        mx.models.get(name).simple_bind(data=(2**32, *shape))


@pytest.mark.parametrize("node", [0, 1, 5])
def test_a_cycle_in_a_graph_is_refused(node):
    data = json.loads(network().tojson())
    with_inputs = [n for n in data["nodes"] if n["inputs"]]
    with_inputs[node]["inputs"][0] = [len(data["nodes"]) - 1, 0, 0]
    with pytest.raises(FormatError, match="does not come before it"):
        mx.sym.load_json(json.dumps(data))


BUDGETS = [
    0,
    -1,
    "abc",
    "1e400GB",
    "NaN",
    float("nan"),
    True,
    "",
    "GB",
    "-5MiB",
    "9" * 5000,
    "1." + "9" * 5000,
    1.5,
    10**5000,
    -(10**5000),
]


@pytest.mark.parametrize("budget", BUDGETS, ids=range(len(BUDGETS)))
def test_what_is_no_budget(budget):
    with pytest.raises(mx.BudgetError) as caught:
        network().memory_plan(data=(2, 8), memory_budget=budget)
    assert len(str(caught.value)) < 500


def test_the_command_line_says_it_in_one_line(capsys, tmp_path):
    plan = tmp_path / "plan.json"
    text = network().memory_plan(data=(2, 8)).to_json()
    plan.write_text(text.replace('"act3"', '"act9"', 1))
    model = tmp_path / "model.json"
    data = json.loads(network().tojson())
    next(n for n in data["nodes"] if n["inputs"])["inputs"][0] = [9, 0, 0]
    model.write_text(json.dumps(data))
    for argv in (
        ["diff", plan, plan], ["plan", model], ["plan", "zoo:mlp", "--device", "abc"],
        *(["plan", "zoo:mlp", f"--budget={b}"] for b in BUDGETS if isinstance(b, str)),
        ["plan", "zoo:mlp", "--budget", "0"], ["plan", "zoo:mlp", "--shape", "data:4611686018427387904,784"],
        ["plan", "zoo:mlp", "--batch", "9" * 30], ["fit-batch", "zoo:mlp", "--budget", "1e400GB"],
    ):  # fmt: skip
        assert main([str(a) for a in argv]) == 2, argv
        lines = [x for x in capsys.readouterr().err.splitlines() if x[:6] not in ("usage:", "      ")]
        assert len(lines) == 1, (argv, lines)
    assert main(["plan", "zoo:mlp", "--budget", "1KiB"]) == 1
