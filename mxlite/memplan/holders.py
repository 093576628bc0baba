"""Buffers that occupy the arena at the peak step of a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..core.bytesize import format_bytes
from ..core.table import table
from .plan import MemoryPlan
from .problem import padded

LONGEST = 48  # characters of a name in a table


@dataclass(frozen=True)
class Held:
    """A buffer that is alive at the peak.

    `kind`: activation, recomputed, gradient or workspace; `op` is the operator that made it.
    """

    name: str
    kind: str
    op: str
    nbytes: int


def peak_step(plan: MemoryPlan) -> int:
    """The first step at which the most bytes of the arena are in use."""
    live = plan.live_bytes()
    return max(range(len(live)), key=live.__getitem__)


def at_peak(plan: MemoryPlan) -> list[Held]:
    """Arena buffers alive at the fullest step, the largest first."""
    schedule, problem = plan.schedule, plan.problem
    if not schedule.task:
        return []
    step = peak_step(plan)
    made_at = {i: s for s, row in enumerate(schedule.outputs) for i in row if i >= 0}
    held = []
    for r in plan.liveness.ranges:
        if not r.start <= step < r.stop:
            continue
        # The buffer currently holds the last of its values that has been written.
        written = [i for i in r.members if made_at.get(i, step + 1) <= step]
        if written:
            i = max(written, key=made_at.__getitem__)
            s = made_at[i]
            name, op = problem.values[schedule.value_of[i]].name, problem.tasks[schedule.task[s]].op
            if schedule.copy[s]:
                kind = "recomputed"
            else:
                kind = "activation" if schedule.task[s] < problem.num_forward else "gradient"
        else:
            task = problem.tasks[schedule.task[r.start]]
            name, kind, op = task.name, "workspace", task.op
        held.append(Held(name, kind, op, padded(r.nbytes)))
    return sorted(held, key=lambda h: (-h.nbytes, h.name))


def describe_peak(plan: MemoryPlan) -> str:
    """Description of the peak step, such as `step 12 of 90, Convolution 'conv3' again`."""
    step, schedule = peak_step(plan), plan.schedule
    task = plan.problem.tasks[schedule.task[step]]
    again = " again" if schedule.copy[step] else ""
    return f"step {step} of {len(schedule.task)}, {task.op} {short(task.name)!r}{again}"


def held_table(held: Sequence[Held], top: int) -> str:
    """Table of the `top` largest buffers, with the others summed up in one row."""
    rows = [(short(h.name), h.kind, h.op, format_bytes(h.nbytes)) for h in held[:top]]
    if len(held) > top:
        rows.append((f"{len(held) - top} more", "", "", format_bytes(sum(h.nbytes for h in held[top:]))))
    return table(("tensor", "what", "made by", "bytes"), rows, left=(0, 1, 2), gives_way=0)


def short(name: str) -> str:
    """A name, cut if it is very long: names come out of files."""
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 3]}..."
