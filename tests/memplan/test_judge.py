"""The judge against plans that are broken on purpose, one rule at a time."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from mxlite.core import FormatError, PlanError
from mxlite.executor.run.program import bridged, step_order
from mxlite.memplan import (
    check,
    FETCH,
    host_ranges,
    HostLink,
    live_ranges,
    make_plan,
    MemoryPlan,
    OFFLOADED,
    Problem,
    RUN,
    STORE,
    Task,
    Value,
)
from tests.memplan.plan_mutants import Broken, Machine, mutants, order_of
from tests.memplan.problems import random_problem, residual
from torture.parts import plans


def plan_of(tasks, values, num_forward=None, counts=None):
    return make_plan(
        Problem(tuple(tasks), tuple(values), len(tasks) if num_forward is None else num_forward), counts
    )


def broken(plan, **changes):
    return replace(plan, schedule=replace(plan.schedule, **changes))


def with_tasks(plan, change):
    """The plan of one problem, judged as that of another."""
    tasks = tuple(change(t) for t in plan.problem.tasks)
    return broken(plan, problem=replace(plan.problem, tasks=tasks))


def refuse(plan, text, before=None):
    with pytest.raises(PlanError, match=text):
        check(plan, before)


@pytest.fixture
def plan():
    problem = residual(3, 1)
    made = make_plan(problem, [int(t.op == "relu") for t in problem.tasks[: problem.num_forward]])
    check(made, made.predecessors)
    assert made.recomputed > 0
    return made


def test_a_task_left_out(plan):
    s = plan.schedule
    last = len(s.task) - 1
    cut = broken(
        plan, task=s.task[:last], copy=s.copy[:last], inputs=s.inputs[:last], outputs=s.outputs[:last]
    )
    refuse(cut, "never run")


def test_a_copy_that_runs_twice(plan):
    s = plan.schedule
    at = next(i for i, k in enumerate(s.copy) if k)

    def twice(row):
        return (*row[: at + 1], row[at], *row[at + 1 :])

    refuse(
        broken(
            plan, task=twice(s.task), copy=twice(s.copy), inputs=twice(s.inputs), outputs=twice(s.outputs)
        ),
        "again",
    )


def test_a_forward_task_behind_the_forward_pass(plan):
    refuse(broken(plan, num_forward=plan.schedule.num_forward - 1), "wrong side")
    refuse(broken(plan, num_forward=plan.schedule.num_forward + 1), "wrong side")


def test_a_second_run_of_what_changes_state(plan):
    at = next(i for i, k in enumerate(plan.schedule.copy) if k)
    again = plan.schedule.task[at]
    name = plan.problem.tasks[again].name
    refuse(with_tasks(plan, lambda t: replace(t, mutates=(0,)) if t.name == name else t), "changes state")
    refuse(
        with_tasks(plan, lambda t: replace(t, recomputable=False) if t.name == name else t), "must run once"
    )


def test_inputs_of_another_task(plan):
    refuse(
        with_tasks(plan, lambda t: replace(t, inputs=(0, *t.inputs[1:])) if t.name == "conv2_0" else t),
        "does not read",
    )


def test_an_output_in_the_place_of_another():
    values = (Value("x", 64, True), Value("a", 64), Value("b", 64), Value("y", 64, True))
    tasks = (Task("two", "op", (0,), (1, 2)), Task("y", "op", (1, 2), (3,)))
    made = plan_of(tasks, values)
    refuse(broken(made, outputs=((2, 1), made.schedule.outputs[1])), "for value")


def test_a_fixed_output_that_is_not_written_or_written_twice():
    values = (Value("x", 64, True), Value("a", 64), Value("y", 64, True), Value("d", 64, True))
    tasks = (Task("a", "op", (0,), (1, 2)), Task("z", "op", (1,), ()), Task("d", "op", (1,), (3,)))
    made = plan_of(tasks, values, num_forward=2, counts=[1, 0])
    s = made.schedule
    check(made, made.predecessors)
    refuse(broken(made, outputs=((s.outputs[0][0], -1), *s.outputs[1:])), "never writes 'y'")
    at = s.copy.index(1)
    rows = list(s.outputs)
    rows[at] = (rows[at][0], 2)
    refuse(broken(made, outputs=tuple(rows)), "'y'")


def two_readers(in_place=((2, 1),)):
    """a is overwritten by b; y reads b."""
    values = (Value("x", 64, True), Value("a", 64), Value("b", 64), Value("y", 64, True))
    return (
        Task("a", "op", (0,), (1,)),
        Task("b", "op", (1,), (2,), in_place),
        Task("y", "op", (2,), (3,)),
    ), values


def test_an_input_that_is_overwritten_without_leave():
    made = plan_of(*two_readers())
    assert made.arena_bytes == 64
    check(made, made.predecessors)
    refuse(with_tasks(made, lambda t: replace(t, in_place=())), "'b' writes 'b' over its input 'a'")


def test_an_input_that_is_read_twice_and_overwritten():
    made = plan_of(*two_readers())
    twice = with_tasks(made, lambda t: replace(t, inputs=(1, 1)) if t.name == "b" else t)
    inputs = list(made.schedule.inputs)
    inputs[1] = (1, 1)
    refuse(replace(twice, schedule=replace(twice.schedule, inputs=tuple(inputs))), "twice")


def test_one_of_two_instances_of_an_input_that_is_overwritten():
    """In place is for values: which of two equal inputs a kernel may overwrite, nobody says."""
    plans.problem(700000120, Counter())


def test_an_input_that_is_overwritten_in_part():
    """In place is for the same bytes, not for a shifted view of them."""
    tasks, values = two_readers()
    large = tuple(replace(v, nbytes=128) if not v.fixed else v for v in values)
    made = plan_of([replace(t, in_place=()) for t in tasks], large)
    assert made.placed_bytes == 256
    allowed = with_tasks(made, lambda t: replace(t, in_place=((2, 1),)) if t.name == "b" else t)
    low = made.offsets.index(0)
    refuse(replace(allowed, offsets=tuple(0 if b == low else 64 for b in range(2))), "over its input")


def workspace_plan():
    values = (Value("x", 64, True), Value("a", 64), Value("y", 64, True))
    return plan_of((Task("a", "op", (0,), (1,)), Task("y", "op", (1,), (2,), workspace=100)), values)


def test_a_workspace_that_is_missing_too_small_outside_or_over_an_input():
    made = workspace_plan()
    check(made, made.predecessors)
    b = made.liveness.workspace_of[1]
    refuse(replace(made, liveness=replace(made.liveness, workspace_of={})), "workspace")
    small = tuple(replace(r, nbytes=99) if i == b else r for i, r in enumerate(made.liveness.ranges))
    refuse(replace(made, liveness=replace(made.liveness, ranges=small)), "workspace")
    for low in (made.placed_bytes, made.placed_bytes + 64, -64, 8):
        moved = tuple(low if i == b else o for i, o in enumerate(made.offsets))
        refuse(replace(made, offsets=moved), f"workspace .* at {low} of")
    refuse(replace(made, offsets=(0, 0)), "over its input 'a'")


def test_an_instance_that_is_looked_for_elsewhere_than_it_lies(plan, away):
    """Programs go by `range_of` and `hosted`, which must say what the buffers' members say."""
    for made in (plan, away):
        liveness = made.liveness
        for i, b in enumerate(liveness.range_of):
            for other in {-1, 0, 1} - {b}:
                turned = replace(
                    liveness, range_of=(*liveness.range_of[:i], other, *liveness.range_of[i + 1 :])
                )
                refuse(replace(made, liveness=turned), "looked for in buffer")
    i = next(i for i, b in enumerate(away.liveness.range_of) if b == 0)
    both = replace(away.host_ranges[0], members=(*away.host_ranges[0].members, i))
    refuse(replace(away, host_ranges=(both, away.host_ranges[1])), "host memory, but is not there alone")


def test_an_output_that_every_run_makes_is_left_out():
    values = (Value("x", 64, True), Value("a", 64), Value("b", 64), Value("y", 64, True))
    tasks = (Task("two", "op", (0,), (1, 2), always=(2,)), Task("y", "op", (1,), (3,)))
    made = plan_of(tasks, values)
    check(made, made.predecessors)
    refuse(broken(made, outputs=((1, -1), made.schedule.outputs[1])), "'two', never writes 'b'")


def test_a_plan_above_its_budget(plan):
    check(replace(plan, budget_bytes=plan.peak_bytes))
    refuse(replace(plan, budget_bytes=plan.peak_bytes - 1), "more than its budget")


def test_two_outputs_of_one_task_that_overlap():
    values = (Value("x", 64, True), Value("a", 128), Value("b", 128), Value("y", 64, True))
    made = plan_of((Task("two", "op", (0,), (1, 2)), Task("y", "op", (1, 2), (3,))), values)
    refuse(replace(made, offsets=(0, 64)), "overlap")
    unread = plan_of((Task("two", "op", (0,), (1,), workspace=128), Task("y", "op", (1,), (3,))), values)
    refuse(replace(unread, offsets=(0, 64)), "overlap")


def test_a_place_that_is_not_aligned_or_negative(plan):
    refuse(replace(plan, offsets=(plan.offsets[0] + 8, *plan.offsets[1:])), "needs")
    refuse(replace(plan, offsets=(-64, *plan.offsets[1:])), "needs")


def test_a_read_of_what_nobody_has_made():
    """Also of fixed storage, which has no place in the arena to be seen empty."""
    values = (Value("x", 64, True), Value("y", 64, True), Value("z", 64, True))
    made = plan_of((Task("y", "op", (0,), (1,)), Task("z", "op", (1,), (2,))), values)
    s = made.schedule
    check(made, made.predecessors)
    turned = broken(made, task=s.task[::-1], inputs=s.inputs[::-1], outputs=s.outputs[::-1])
    refuse(turned, "'z' reads 'y' before it is made")


def test_a_read_of_a_weight_after_its_update():
    values = (Value("x", 64, True), Value("w", 64, True), Value("d", 64), Value("dx", 64, True))
    tasks = (
        Task("y", "op", (0, 1), ()),
        Task("d", "op", (0,), (2,)),
        Task("dx", "op", (1,), (3,)),
        Task("u", "sgd", (1, 2), (), mutates=(1,), update=True),
    )
    made = plan_of(tasks, values, num_forward=1)
    s = made.schedule
    check(made, made.predecessors)

    def swap(row):
        return (*row[:2], row[3], row[2])

    early = broken(made, task=swap(s.task), inputs=swap(s.inputs), outputs=swap(s.outputs))
    refuse(early, "'dx' reads 'w' after .*'u'.* changed it")


# -- many mutants ----------------------------------------------------------------------------------------


def some_plan(seed, rng):
    """Of a random step, with runs again, outputs that each run makes, and copies to the host."""
    problem = random_problem(seed, forward=3 + seed % 9)
    if seed % 3 == 0:
        problem = residual(1 + seed % 2, 1, update=True)
    tasks = [replace(t, always=tuple(v for v in t.outputs if v >= 0)[seed % 2 :]) for t in problem.tasks]
    problem = replace(problem, tasks=tuple(tasks), host=HostLink() if seed % 4 == 0 else None)
    choices = (0, 0, 1, OFFLOADED if seed % 4 == 0 else 2)
    return make_plan(problem, [rng.choice(choices) for _ in range(problem.num_forward)])


def test_what_the_judge_lets_pass_runs_right_in_every_order():
    refused = Counter()
    for seed in range(36):
        rng = random.Random(seed)
        made = some_plan(seed, rng)
        check(made, made.predecessors)
        for _ in range(3):
            Machine(made).play(order_of(made.predecessors, rng))
        for name, mutant, before in mutants(made, rng):
            steps = len(mutant.schedule.task)
            if before == "as listed":
                before, orders = None, [range(steps)]
            else:
                before = made.predecessors if before is None else before
                orders = [range(steps), *(order_of(before, rng) for _ in range(3))]
            try:
                check(mutant, before)
            except PlanError:
                refused[name] += 1
                continue
            try:
                for order in orders:
                    Machine(mutant).play(order)
            except Broken as error:
                pytest.fail(f"seed {seed}: {name}, and the judge let it pass: {error}")
    assert len(refused) == 14 and min(refused.values()) > 5, refused


# -- order -----------------------------------------------------------------------------------------------


def without(before, step, earlier):
    return [tuple(p for p in row if (s, p) != (step, earlier)) for s, row in enumerate(before)]


def test_each_kind_of_waiting_is_demanded():
    values = (
        Value("x", 64, True), Value("w", 64, True), Value("a", 128), Value("b", 64), Value("y", 64, True),
        Value("z", 64, True),
    )  # fmt: skip
    tasks = (
        Task("a", "op", (0, 1), (2,)),  # 0
        Task("y", "op", (2,), (4,)),  # 1 waits for 0: the value
        Task("b", "op", (0,), (3,)),  # 2 waits for 1: half of the bytes of a
        Task("z", "op", (3, 4), (5,)),  # 3 waits for 1 (fixed y) and 2
        Task("u", "sgd", (1,), (), mutates=(1,)),  # 4 waits for 0: who reads w
        Task("v", "sgd", (1,), (), mutates=(1,)),  # 5 waits for 4: who wrote w
        Task("q", "op", (4,), ()),  # 6 waits for 1: y, which has no bytes in the arena
    )
    made = plan_of(tasks, values, num_forward=4)
    before = [(), (0,), (1,), (2,), (0,), (4,), (1,)]
    check(made, before)
    refuse(made, "reads 'a', but nothing makes it wait for step 0", without(before, 1, 0))
    refuse(made, "writes 'b' where 'a' was, but nothing makes it wait", without(before, 2, 1))
    refuse(made, "reads 'b', but nothing makes it wait for step 2", [(), (0,), (1,), (1,), (0,), (4,), (1,)])
    refuse(made, "writes 'w', but nothing makes it wait for step 0", without(before, 4, 0))
    refuse(made, "'w', but nothing makes it wait for step 4", [(), (0,), (1,), (2,), (0,), (0,), (1,)])
    refuse(made, "reads 'y', but nothing makes it wait for step 1", [(), (0,), (1,), (2,), (0,), (4,), (0,)])


def test_a_step_never_waits_for_itself_or_a_later_one():
    made = plan_of(*two_readers())
    refuse(made, "not before it", [(), (1,), (1,)])
    refuse(made, "not before it", [(2,), (0,), (1,)])


def test_the_rest_of_a_buffer_that_was_overwritten_in_part_still_has_its_users():
    """b takes the lower half of a's bytes, c later the upper half: c must wait for the readers of a too."""
    values = (
        Value("x", 64, True), Value("a", 128), Value("y", 64, True), Value("b", 64), Value("z", 64, True),
        Value("c", 64), Value("v", 64, True),
    )  # fmt: skip
    tasks = (
        Task("a", "op", (0,), (1,)),
        Task("y", "op", (1,), (2,)),
        Task("b", "op", (0,), (3,)),
        Task("c", "op", (0,), (5,)),
        Task("z", "op", (3,), (4,)),
        Task("v", "op", (5,), (6,)),
    )
    made = plan_of(tasks, values)
    assert made.arena_bytes == 128
    before = [(), (0,), (1,), (1,), (2,), (3,)]
    check(made, before)
    check(made, made.predecessors)
    refuse(made, "'c' writes 'c' where 'a' was", [(), (0,), (1,), (), (2,), (3,)])
    refuse(made, "'b' writes 'b' where 'a' was", [(), (0,), (), (1,), (2,), (3,)])


# -- host memory -----------------------------------------------------------------------------------------


@pytest.fixture
def away():
    """x and y wait in host memory; steps: x, y, z, both stored on the way, both fetched before dx and dy.

    Everything in the arena takes 64 bytes.
    """
    values = (
        Value("in", 64, True), Value("x", 64), Value("y", 64), Value("z", 64), Value("dy", 64),
        Value("dx", 64), Value("out", 64, True),
    )  # fmt: skip
    tasks = (
        Task("x", "op", (0,), (1,), seconds=1.0),
        Task("y", "op", (1,), (2,), seconds=1.0),
        Task("z", "op", (2,), (3,), seconds=1.0),
        Task("dy", "op", (2, 3), (4,), seconds=1.0),
        Task("dx", "op", (1, 4), (6,), seconds=1.0),
    )
    problem = Problem(tasks, values, 3, host=HostLink())
    made = make_plan(problem, [OFFLOADED, OFFLOADED, 0])
    check(made, made.predecessors)
    assert made.schedule.kind == (RUN, RUN, STORE, RUN, STORE, FETCH, RUN, FETCH, RUN)
    assert made.host_bytes == 128
    return made


def steps_of(plan, *order):
    """The plan with its steps in another order, or fewer of them."""
    s = plan.schedule
    rows = {f: tuple(getattr(s, f)[k] for k in order) for f in ("task", "copy", "inputs", "outputs", "kind")}
    return broken(plan, **rows)


def changed(row, at, value):
    return (*row[:at], value, *row[at + 1 :])


def test_a_copy_that_is_left_out_or_too_early(away):
    refuse(steps_of(away, 0, 1, 3, 4, 5, 6, 7, 8), "copy of 'x' from the host reads 'x'")
    refuse(steps_of(away, 0, 1, 2, 3, 4, 5, 6, 8), "'dx' reads 'x'")
    refuse(steps_of(away, 0, 1, 2, 3, 5, 4, 6, 7, 8), "copy of 'y' from the host reads 'y'")
    refuse(steps_of(away, 2, 0, 1, 3, 4, 5, 6, 7, 8), "copy of 'x' to the host reads 'x'")


def test_a_copy_to_or_from_the_host_that_is_made_twice(away):
    refuse(steps_of(away, 0, 1, 2, 2, 3, 4, 5, 6, 7, 8), "to the host.* writes 'x' again")
    refuse(steps_of(away, 0, 1, 2, 3, 4, 5, 6, 7, 7, 8), "from the host.* writes 'x' again")


def test_a_copy_that_calls_a_value_by_another_name(away):
    s = away.schedule
    other = s.outputs[4]  # where y goes
    refuse(broken(away, outputs=changed(s.outputs, 2, other)), "copies 'x' and calls it 'y'")
    refuse(broken(away, inputs=changed(s.inputs, 7, s.outputs[4])), "copies 'y' and calls it 'x'")


def test_a_copy_of_more_or_less_than_one_array_or_of_what_is_not_in_the_arena(away):
    s = away.schedule
    refuse(broken(away, inputs=changed(s.inputs, 2, (1, 1))), "more or less than one")
    refuse(broken(away, outputs=changed(s.outputs, 2, ())), "more or less than one")
    refuse(broken(away, outputs=changed(s.outputs, 2, (-1,))), "more or less than one")
    fixed = broken(away, inputs=changed(s.inputs, 2, (0,)), outputs=changed(s.outputs, 2, (0,)))
    refuse(fixed, "copies 'in', which is not in the arena")
    refuse(broken(away, task=changed(s.task, 2, 1)), "for a task that does not make it")
    refuse(broken(away, copy=changed(s.copy, 2, 1)), "for a task that does not make it")
    refuse(broken(away, kind=changed(s.kind, 2, 3)), "unknown kind")


def test_a_copy_is_no_run_of_its_task(away):
    refuse(broken(away, kind=changed(away.schedule.kind, 0, STORE)), "never run")
    refuse(broken(away, kind=changed(away.schedule.kind, 2, RUN)), "again|does not read")


def test_a_kernel_that_reads_host_memory(away):
    s = away.schedule
    inputs = changed(s.inputs, 8, (s.outputs[2][0], s.inputs[8][1]))
    refuse(broken(away, inputs=inputs), "'dx' reads 'x', which the plan does not place")


def test_places_in_host_memory_that_overlap_are_outside_or_missing(away):
    refuse(replace(away, host_offsets=(0, 0)), "copy of 'x' from the host.*reads 'x' at .* but 'y' is there")
    refuse(replace(away, host_offsets=(0, 32)), "host memory")
    refuse(replace(away, host_offsets=(0, -64)), "host memory")
    refuse(replace(away, host_bytes=64), "host memory")
    small = replace(away.host_ranges[1], nbytes=63)
    refuse(replace(away, host_ranges=(away.host_ranges[0], small)), "host memory")
    refuse(replace(away, host_ranges=away.host_ranges[:1], host_offsets=(0,)), "no place|does not place")


def test_more_host_memory_than_there_is(away):
    for capacity in (0, 127):
        refuse(
            broken(away, problem=replace(away.problem, host=HostLink(capacity=capacity))),
            f"takes 128 B of host memory, and may take {capacity} B",
        )
    check(broken(away, problem=replace(away.problem, host=HostLink(capacity=128))))


def test_each_kind_of_waiting_for_copies_is_demanded(away):
    """Steps 2 and 4 store x and y, 5 and 7 fetch y and x."""
    before = [(), (0,), (0, 1), (1, 2), (1, 3), (3, 4), (3, 5), (2, 6), (6, 7)]
    check(away, before)
    refuse(away, "copy of 'y' to the host reads 'y', but nothing", without(without(before, 4, 1), 4, 3))
    refuse(away, "copy of 'y' from the host reads 'y', but nothing", without(before, 5, 4))
    refuse(away, "'dy' reads 'y', but nothing", without(before, 6, 5))
    refuse(away, "'dx' reads 'x', but nothing", without(before, 8, 7))
    # z takes the bytes of x: the copy must have been made by then.
    assert away.offsets[away.liveness.range_of[3]] == away.offsets[away.liveness.range_of[1]]
    refuse(away, "'z' writes 'z' where 'x' was, but nothing makes it wait for step 2", without(before, 3, 2))


def test_host_memory_changes_hands_only_after_it_was_read(away):
    """A second value takes the bytes of the first, which is back by then."""
    values = (Value("in", 64, True), Value("x", 64), Value("y", 64), *(Value(n, 64, True) for n in "pqr"))
    tasks = (
        Task("x", "op", (0,), (1,)),
        Task("p", "op", (1,), (3,)),
        Task("y", "op", (0,), (2,)),
        Task("q", "op", (2,), (4,)),
        Task("r", "op", (2,), (5,)),
    )
    made = make_plan(Problem(tasks, values, 5, host=HostLink()))
    s = made.schedule
    # x: out (instance 6) and back (7), then y: out (8) and back (9), by hand.
    schedule = replace(
        s,
        task=(0, 0, 0, 1, 2, 2, 2, 3, 4),
        copy=(0,) * 9,
        inputs=((0,), (1,), (6,), (7,), (0,), (2,), (8,), (9,), (9,)),
        outputs=((1,), (6,), (7,), (3,), (2,), (8,), (9,), (4,), (5,)),
        value_of=(*s.value_of, 1, 1, 2, 2),
        kind=(RUN, STORE, FETCH, RUN, RUN, STORE, FETCH, RUN, RUN),
        num_forward=9,
    )
    live = live_ranges(schedule)
    hosts = host_ranges(schedule)
    plan = MemoryPlan(
        schedule, live, tuple(64 * b for b in range(len(live.ranges))), 64 * len(live.ranges),
        host_ranges=hosts, host_offsets=(0, 0), host_bytes=64,
    )  # fmt: skip
    check(plan, plan.predecessors)
    free = [(), (0,), (1,), (2,), (), (4,), (5,), (6,), (6,)]
    refuse(plan, "copy of 'y' to the host writes 'y' where 'x' was, but nothing makes it wait for", free)
    free[5] = (2, 4)
    check(plan, free)


# -- files -----------------------------------------------------------------------------------------------


def test_a_readable_file_with_an_unsound_plan_is_refused_by_the_judge(plan):
    same = tuple(0 for _ in plan.offsets)
    with pytest.raises(PlanError):
        MemoryPlan.from_json(replace(plan, offsets=same).to_json())
    text = plan.to_json()
    with pytest.raises(FormatError):
        MemoryPlan.from_json(text.replace('"buffers": [[', '"buffers": [["x", '))


# -- previews ---------------------------------------------------------------------------------------


@pytest.fixture
def previewed():
    """a lies where the preview then works, and the last task behind it: steps a, b, preview, c."""
    names = ("a", "b", "preview", "c")
    values = [Value(n, 64, fixed=n == "preview") for n in names]
    tasks = [
        Task("a", "op", (), (0,)),
        Task("b", "op", (0,), (1,)),
        Task("preview", "op", (1,), (2,), workspace=64, preview=True),
        Task("c", "op", (1,), (3,), workspace=64),
        Task("end", "op", (3,), ()),
    ]
    plan = plan_of(tasks, values, num_forward=3)
    check(plan, plan.predecessors)
    return plan


def test_what_a_preview_makes_is_for_previews(previewed):
    read = with_tasks(previewed, lambda t: replace(t, inputs=(1, 2)) if t.name == "c" else t)
    inputs = [(1, 2) if t == 3 else row for t, row in zip(read.schedule.task, read.schedule.inputs)]
    refuse(broken(read, inputs=tuple(inputs)), "'c', reads 'preview', which only a preview makes")


@pytest.mark.parametrize("change", [dict(mutates=(2,)), dict(preview=True)], ids=["changes", "late"])
def test_a_preview_belongs_to_the_forward_pass_and_changes_nothing(previewed, change):
    name = "preview" if "mutates" in change else "c"
    refuse(
        with_tasks(previewed, lambda t: replace(t, **change) if t.name == name else t), "is a preview that"
    )


def test_no_order_goes_through_a_preview(previewed):
    """c works where a was, which b reads; that c waits for the preview, and this for b, is not enough."""
    made, offsets = previewed.liveness, previewed.offsets
    assert offsets[made.workspace_of[2]] == offsets[made.range_of[0]]
    before = [(), (0,), (1,), (1, 2), (3,)]
    check(previewed, before)
    refuse(previewed, "nothing makes it wait for step 1 ", [(), (0,), (1,), (2,), (3,)])
    refuse(previewed, "nothing makes it wait for step 2 ", [(), (0,), (1,), (1,), (3,)])


def test_a_preview_may_wait_through_another():
    """Both run or neither: the second writes where b was, which the first has read."""
    names = ("a", "b", "one", "two", "c")
    values = [Value(n, 64, fixed=n in ("one", "two")) for n in names]
    tasks = [
        Task("a", "op", (), (0,)),
        Task("b", "op", (0,), (1,)),
        Task("one", "op", (1,), (2,), workspace=64, preview=True),
        Task("two", "op", (2,), (3,), workspace=64, preview=True),
        Task("c", "op", (1,), (4,), workspace=64),
        Task("end", "op", (4,), ()),
    ]
    plan = plan_of(tasks, values, num_forward=4)
    offsets, scratch = plan.offsets, plan.liveness.workspace_of
    assert offsets[scratch[2]] == offsets[scratch[3]] == offsets[plan.liveness.range_of[0]]
    check(plan, [(), (0,), (1,), (2,), (1, 2, 3), (4,)])
    refuse(plan, "nothing makes it wait for step 1 ", [(), (0,), (1,), (2,), (2, 3), (4,)])
    refuse(plan, "nothing makes it wait for step 2 ", [(), (0,), (1,), (1,), (1, 2, 3), (4,)])
    check(plan, step_order(plan, 1))


def test_the_order_of_segments_does_not_go_through_previews(previewed):
    """As the executor makes it: who comes behind a preview comes behind those whom that waits for."""
    assert bridged([(), (0,), (1,), (2,), (2, 3)], {2}) == [(), (0,), (1,), (2, 1), (2, 3, 1)]
    assert bridged([(), (0,), (1,), (2,)], {1, 2}) == [(), (0,), (1, 0), (2, 1, 0)]
    check(previewed, step_order(previewed, 1))


# -- what no other rule sees --------------------------------------------------------------------------


def test_a_second_run_that_writes_what_the_user_has(plan):
    """Into an instance of its own, so that nothing is written twice by name."""
    values = (Value("x", 64, True), Value("a", 64), Value("seen", 64, True), Value("d", 64, True))
    tasks = (
        Task("a", "op", (0,), (1, 2)),
        Task("mid", "op", (1,), ()),
        Task("d", "op", (1,), (3,)),
    )
    made = plan_of(tasks, values, num_forward=2, counts=[1, 0])
    check(made, made.predecessors)
    s = made.schedule
    again = s.copy.index(1)
    more = (s.outputs[again][0], len(s.value_of))
    live = replace(made.liveness, range_of=(*made.liveness.range_of, -1))
    wrong = broken(made, outputs=changed(s.outputs, again, more), value_of=(*s.value_of, 2))
    refuse(replace(wrong, liveness=live), "writes 'seen' a second time")


def test_an_instance_in_the_arena_and_in_host_memory(away):
    """A program would look for it in one of both."""
    i = away.host_ranges[0].members[0]
    b = len(away.liveness.ranges)
    ranges = (*away.liveness.ranges, replace(away.liveness.ranges[0], members=(i,)))
    both = replace(away.liveness, ranges=ranges, range_of=changed(away.liveness.range_of, i, b))
    refuse(replace(away, liveness=both, offsets=(*away.offsets, 0)), "is not there alone")


def test_an_update_that_runs_twice():
    """It writes no instance, so no other rule sees it."""
    values = (Value("x", 64, True), Value("w", 64, True), Value("d", 64))
    tasks = (Task("d", "op", (0,), (2,)), Task("u", "sgd", (1, 2), (), mutates=(1,), update=True))
    made = plan_of(tasks, values, num_forward=1)
    check(made, made.predecessors)
    refuse(steps_of_runs(made, 0, 1, 1), "runs copy 0 of 'u' again")


def steps_of_runs(plan, *order):
    s = plan.schedule
    rows = {f: tuple(getattr(s, f)[k] for k in order) for f in ("task", "copy", "inputs", "outputs")}
    return broken(plan, **rows)


def test_an_instance_that_two_runs_write(plan):
    """The second run has one of its own, and whoever reads it means that."""
    s = plan.schedule
    again = s.copy.index(1)
    first = s.outputs[s.task.index(s.task[again])]
    refuse(broken(plan, outputs=changed(s.outputs, again, first)), "writes .* again")


def test_a_writer_of_fixed_storage_waits_for_each_reader_and_for_the_last_writer():
    """The second writer reads nothing, so that only what it writes holds it back."""
    values = (Value("w", 64, True), Value("p", 64, True), Value("q", 64, True))
    tasks = (
        Task("p", "op", (0,), (1,)),
        Task("q", "op", (0,), (2,)),
        Task("u", "op", (), (), mutates=(0,)),
        Task("v", "op", (), (), mutates=(0,)),
    )
    made = plan_of(tasks, values)
    check(made, [(), (), (0, 1), (2,)])
    check(made, made.predecessors)
    refuse(made, "'u' writes 'w', but nothing makes it wait for step 1", [(), (), (0,), (2,)])
    refuse(made, "'u' writes 'w', but nothing makes it wait for step 0", [(), (), (1,), (2,)])
    refuse(made, "'v' writes 'w', but nothing makes it wait for step 2", [(), (), (0, 1), (0, 1)])
