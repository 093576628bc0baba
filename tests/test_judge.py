"""The judge against plans that are broken on purpose, one rule at a time."""

from __future__ import annotations

from dataclasses import replace

import pytest
from problems import residual

from mxlite.core import FormatError, PlanError
from mxlite.memplan import check, make_plan, MemoryPlan, Problem, Task, Value


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
    outside = tuple(made.placed_bytes if i == b else o for i, o in enumerate(made.offsets))
    refuse(replace(made, offsets=outside), "workspace")
    refuse(replace(made, offsets=(0, 0)), "over its input 'a'")


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


# -- files -----------------------------------------------------------------------------------------------


def test_a_readable_file_with_an_unsound_plan_is_refused_by_the_judge(plan):
    same = tuple(0 for _ in plan.offsets)
    with pytest.raises(PlanError):
        MemoryPlan.from_json(replace(plan, offsets=same).to_json())
    text = plan.to_json()
    with pytest.raises(FormatError):
        MemoryPlan.from_json(text.replace('"buffers": [[', '"buffers": [["x", '))
