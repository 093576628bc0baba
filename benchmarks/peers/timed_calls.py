"""An executor's kernel calls, timed in turns that may lie apart, and its plan priced by what they took."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mxlite.executor import Executor
from mxlite.executor.calibration import costed, distinct_calls, Turns
from mxlite.executor.lower import Lowered
from mxlite.memplan import MemoryPlan


class TimedCalls:
    """`executor` is the one whose training step it is; it may be another one from request to request, as long
    as it is bound for the same.
    """

    executor: Executor
    turns: Turns | None = None

    def calls(self) -> list[str]:
        """The keys of the distinct kernel calls of a step."""
        return list(distinct_calls(self._lowered()))

    def time_calls(self, keys: list[str]) -> dict[str, Any]:
        """One more turn of each of these: [cold, warm] seconds by key, medians of all turns so far; and the
        bytes of the cache that others have touched in a second, seen at the same times."""
        if self.turns is None:
            lowered = self._lowered()
            self.turns = Turns(lowered, distinct_calls(lowered), lowered.problem.cache_bytes)
        self.turns.round(set(keys))
        return {"seconds": self.turns.seconds(), "others": self.turns.others_bytes_per_s()}

    def priced(self, seconds: dict[str, list[float]], others: float) -> float:
        """Seconds that a step is predicted to take, see `plan_by`."""
        return self.plan_by(seconds, others).predicted_seconds

    def plan_by(self, seconds: dict[str, list[float]], others: float) -> MemoryPlan:
        """The executor's plan where its calls take these times, [cold, warm] by key, and others touch so many
        bytes of the cache in a second."""
        plan = self.executor.memory_plan
        known = {key: (cold, warm) for key, (cold, warm) in seconds.items()}
        tasks = costed(self._lowered(), known, (plan.problem.cache_bytes, others)).problem.tasks
        problem = replace(plan.problem, tasks=tasks, others_bytes_per_s=others)
        return replace(plan, schedule=replace(plan.schedule, problem=problem))

    def _lowered(self) -> Lowered:
        return self.executor._planned.train
