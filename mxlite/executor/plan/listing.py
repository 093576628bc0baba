"""A plan as text, step by step."""

from __future__ import annotations

from ...memplan import MemoryPlan, RUN, STORE


def listing(plan: MemoryPlan) -> list[str]:
    """Lines: each step with its kernel and the offsets of its outputs, then the plan's table."""
    schedule, problem = plan.schedule, plan.problem
    lines = []
    for s, (t, k) in enumerate(zip(schedule.task, schedule.copy)):
        task = problem.tasks[t]
        if schedule.kinds[s] != RUN:
            name = problem.values[schedule.value_of[schedule.inputs[s][0]]].name
            way = "to the host" if schedule.kinds[s] == STORE else "from the host"
            lines.append(f"{s:6d} copy of {name!r} {way}")
            continue
        places = [
            f"{problem.values[schedule.value_of[o]].name}@{plan.offsets[b]}"
            for o in schedule.outputs[s]
            if o >= 0 and (b := plan.liveness.range_of[o]) >= 0
        ]
        again = f" (run {k + 1})" if k else " (where forward is called by itself)" if task.preview else ""
        lines.append(f"{s:6d} {task.op} {task.name!r}{again} [{task.kernel}] -> {', '.join(places) or '-'}")
    return [*lines, plan.summary()]


def totals(plan: MemoryPlan) -> list[str]:
    """The two lines at the end of MXNet's text, which programs parse: arena bytes, and steps with scratch."""
    schedule, tasks = plan.schedule, plan.problem.tasks
    steps = [tasks[t] for t, kind in zip(schedule.task, schedule.kinds) if kind == RUN]
    scratch = sum(task.workspace > 0 for task in steps)
    return [
        f"Total {plan.arena_bytes >> 20} MB allocated",
        f"Total {scratch} TempSpace resource requested",
    ]
