"""Facts and costs of a program's steps, for a profiler, computed on first use."""

from __future__ import annotations

from ...backends import Facts, flops_of
from ...core.cached import cached_property
from ...memplan import MemoryPlan, RUN, STORE
from ..plan.lower import Lowered


class Sheet:
    """`facts[s]` and `live_bytes[s]` of step s; `measured_bytes` is the program's actual size.

    It holds no arrays, so that its owner (a profiler) keeps no memory of the program alive.
    """

    def __init__(self, lowered: Lowered, plan: MemoryPlan, measured_bytes: int) -> None:
        self._lowered = lowered
        self._plan = plan
        self.measured_bytes = measured_bytes

    @cached_property
    def facts(self) -> tuple[Facts, ...]:
        """Facts of each step."""
        problem, lowered = self._plan.problem, self._lowered
        of_task = []
        for task, call in zip(problem.tasks, lowered.calls):
            op = call.node.op
            assert op is not None
            wanted = [n for n, o in zip(op.output_names(call.node.attrs), call.outputs) if o >= 0]
            values = [v for v in (*task.inputs, *task.outputs) if v >= 0]
            of_task.append(
                Facts(
                    task.name,
                    op.op_name,
                    call.kernel.name,
                    str(lowered.dtype[values[0]]) if values else "float32",
                    flops_of(op, call.node.attrs, call.shapes, wanted),
                    sum(problem.values[v].nbytes for v in values),
                )
            )
        schedule, found = self._plan.schedule, []
        for s, (kind, t) in enumerate(zip(schedule.kinds, schedule.task)):
            if kind == RUN:
                found.append(of_task[t])
                continue
            v = schedule.value_of[schedule.inputs[s][0]]
            way = "to the host" if kind == STORE else "from the host"
            nbytes = 2 * problem.values[v].nbytes  # read and written
            name = f"{problem.values[v].name} {way}"
            found.append(Facts(name, "copy", "copy", str(lowered.dtype[v]), 0, nbytes))
        return tuple(found)

    @property
    def again(self) -> tuple[int, ...]:
        """Number of earlier runs of each step's task in this training step: above 0 it is recomputed."""
        return self._plan.schedule.copy

    @property
    def planned_bytes(self) -> int:
        """Planned bytes of the program."""
        return self._plan.peak_bytes

    @property
    def budget_bytes(self) -> int | None:
        """Budget of the program."""
        return self._plan.budget_bytes

    @cached_property
    def live_bytes(self) -> tuple[int, ...]:
        """Planned bytes of the arena in use at each step."""
        return tuple(self._plan.live_bytes())
