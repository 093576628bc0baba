"""Alternative steps of a network, differentiated and lowered when a planner requests them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from ..backends import Backend, backend_of, guard
from ..backends.elementwise.late import is_of_use
from ..backends.gpu import planning_backend
from ..backends.rewrite import simplified
from ..core import BindError, Context, current_context
from ..core.cached import cached_property
from ..core.errors import DeviceError, MemoryBudgetError
from ..graph import Entry, Graph, LOSS_SCALE, UpdateRule
from ..memplan import (
    Device,
    HostLink,
    leanest,
    MemoryPlan,
    plan_memory,
    Problem,
    reorder_within,
    Steps,
    Template,
)
from ..memplan.cost.device import device_of
from .amp import LossScale, mixed
from .calibration import with_measured_costs
from .constants import constant_bytes
from .lower import lower, Lowered
from .metrics import Counted, with_metrics
from .step import check_grad_req, forward_step, input_names, Step, training_step
from .watch import Watch, Watched, watched

Advise = Callable[[MemoryBudgetError, Mapping[str, int]], str]


def measured(lowered: Lowered, budget: int | None) -> Lowered:
    """`lowered` with the times of its kernels on this machine."""
    return with_measured_costs(lowered, budget=budget)[0]


CHAINS_IN_TWO = "chains in two"
ANOTHER_ORDER = "tasks in another order"
"""Name of a step whose backward pass computes the outputs of chains that only it reads."""

NO_STEPS = {"measure", "in_place", "made", "_inference"}
"""Fields that do not affect the steps within a budget."""


@dataclass(frozen=True)
class Candidate:
    """A training step, the inference step beside it, and the latter's plan."""

    train: Lowered
    infer: Lowered
    infer_plan: MemoryPlan


@dataclass(frozen=True, kw_only=True, eq=False)
class Candidates:
    """A request and the steps that fulfil it; a plan keeps them for other budgets, so it holds no array.

    `inferred` has all shapes and types but those that `amp` changes; `given` are the arguments whose shapes
    were given. `stored`: arguments that have the type `amp` themselves. `measure` times kernels if
    `device` says so. `template` is a plan of inference for other shapes, `like` training and inference as
    they were lowered for these. `in_place`: True if all parameters will be arrays that are not shared, or
    arrays that can be away. `knows_inputs`: True if arguments that are data are among those `given`, or
    labels; else none is known to be a parameter, which stays from call to call. `forward_only`: only
    inference will ever be run, beside programs that train.
    """

    inferred: Graph
    ctx: Context | None
    given: frozenset[str]
    grad_req: Any = "write"
    budget: int | None = None
    rule: UpdateRule | None = None
    strategy: str = "sharing"
    amp: Any = None
    scale: LossScale | None = None
    stored: frozenset[str] = frozenset()
    device: Device | str | None = None
    measure: Callable[[Lowered, int | None], Lowered] = measured
    host: HostLink | None = None
    template: Template | MemoryPlan | None = None
    like: tuple[Lowered, Lowered] | None = None
    metrics: Sequence[Counted] = ()
    in_place: bool = True
    knows_inputs: bool = True
    watch: Watch | None = None
    forward_only: bool = False
    made: list[Candidate] = field(default_factory=list, init=False, repr=False)
    _inference: dict[bool, tuple[Lowered, MemoryPlan]] = field(default_factory=dict, init=False, repr=False)

    # -- derived properties --------------------------------------------------------------

    @cached_property
    def described(self) -> Device | None:
        """The device that seconds are modelled for; None: this machine, measured."""
        return device_of(self.device, self.backend.rates)

    @property
    def is_measured(self) -> bool:
        """True if seconds are those of this machine's kernels."""
        return device_of(self.device) is None

    @cached_property
    def backend(self) -> Backend:
        measured = self.is_measured
        try:
            return backend_of(self.ctx or current_context())
        except DeviceError:
            if measured:
                raise
            return planning_backend()

    @cached_property
    def inputs(self) -> set[str]:
        """Arguments that are data."""
        return input_names(self.inferred, list(self.given))

    @cached_property
    def requests(self) -> dict[str, str]:
        """The gradient request of each argument."""
        requests = check_grad_req(self.inferred, self.grad_req)
        if self.rule is not None:
            requests = {n: "null" if n in self.inputs else r for n, r in requests.items()}
            if added := [n for n, r in requests.items() if r == "add"]:
                raise BindError(
                    f"grad_req of {added[0]!r} is 'add', which needs a gradient to add to; "
                    f"an update inside the step (optimizer=) leaves none."
                )
        return requests

    @property
    def trains(self) -> bool:
        """True if any gradient is requested."""
        return any(r != "null" for r in self.requests.values())

    @cached_property
    def looked(self) -> Watched:
        """The graph in its types, with the watched results."""
        computed = mixed(self.inferred, self.amp, self.inputs, self.scale is not None, self.stored)
        wanted = [Entry(n) for n in computed.arguments if self.requests.get(n.name, "null") != "null"]
        return watched(computed, self.watch, [n.name for n in self.inferred.nodes], wanted)

    @cached_property
    def simple(self) -> Graph:
        """That graph as rewritten by the backend for training."""
        if self.forward_only:
            return simplified(self.backend.simplify(), self.looked.forward, False)
        return simplified(self.backend.simplify(), self.looked.training, True)

    @cached_property
    def data(self) -> set[str]:
        """Arguments that the caller writes: data, and a loss scale that is not the step's own."""
        return self.inputs | ({LOSS_SCALE} if self.scale is not None and self.rule is None else set())

    def is_like(self, other: Candidates) -> bool:
        """True if both offer the same steps within a budget. O(nodes)."""
        names = [f.name for f in fields(self) if f.name not in NO_STEPS]
        return self.budget is not None and all(getattr(self, n) == getattr(other, n) for n in names)

    # -- steps ---------------------------------------------------------------------------------

    @cached_property
    def usual_step(self) -> Step:
        return self._step(self.simple)

    def _step(self, graph: Graph) -> Step:
        """The training step for `graph`."""
        if not self.trains:
            return forward_step(graph, self.data, train=not self.forward_only)
        scaling = None if self.scale is None else self.scale.in_step()
        looked = self.looked
        step = training_step(graph, self.data, self.requests, self.rule, scaling, looked.count, looked.points)
        return with_metrics(step, self.metrics, self.backend)

    def _infer(self, constants: bool) -> tuple[Lowered, MemoryPlan]:
        """Inference, lowered and planned."""
        found = self._inference.get(constants)
        if found is None:
            graph = simplified(self.backend.simplify(), self.looked.forward, False)
            step = forward_step(graph, self.data, train=False)
            like = None if self.like is None else self.like[1]
            in_place = self.in_place and not guard.on
            lowered = lower(step, self.backend, constants=constants, in_place=in_place, like=like)
            plan = plan_memory(lowered.problem, strategy=self.strategy, template=self.template)
            if (self.trains or self.budget is not None) and self.strategy == "sharing":
                plan = leanest(plan)  # training shares its arena, and could not have less
            found = self._inference[constants] = lowered, plan
        return found

    def _lowered(self, step: Step, order: Lowered | None, light: bool, late: bool = False) -> Lowered:
        """A step of training, with inference beside it."""
        # Constants that inference keeps take as much as the weights: not within a budget, nor where
        # steps of training change them.
        keeps = light and self.knows_inputs and self.watch is None and not (self.trains or self.forward_only)
        infer, infer_plan = self._infer(keeps)
        held = constant_bytes(infer.step)
        found = lower(
            step,
            self.backend,
            {"arguments": held} if held else None,
            infer_plan,
            device=self.described,
            # Without gradient requests, the training step is often that of inference, and has its order.
            like=infer if self.like is None else order,
            light=light,
            late=late,
        )
        if self.is_measured:
            found = self.measure(found, self.budget)
        found = replace(found, problem=replace(found.problem, host=self.host))
        self.made.append(Candidate(found, infer, infer_plan))
        return found

    def steps(self, order: Lowered | None, free: bool, bounded: bool, advise: Advise) -> Steps:
        """Steps without a budget and within one. `advise` as for `Steps`."""

        def usual() -> Problem:
            return self._lowered(self.usual_step, order, free).problem

        return Steps(usual, lambda: self._within(order, bounded), self.strategy, advise)

    def _within(self, order: Lowered | None, light: bool) -> Iterator[Problem]:
        """Problems, the fastest first: a small step that keeps less may be that, as it also moves less."""
        usual = self._lowered(self.usual_step, order, light)
        found = [(usual.problem, "")]
        if (spared := simplified(self.backend.spare(), self.simple, True)) is not self.simple:
            found.append((self._lowered(self._step(spared), order, light).problem, self.backend.spared))
        step = usual.step
        if is_of_use(step.graph, frozenset(step.storage), step.num_forward):
            late = self._lowered(self.usual_step, order, light, late=True)
            found.append((late.problem, CHAINS_IN_TWO))
        first, how = min(found, key=lambda pair: pair[0].step_seconds)
        yield first
        other = reorder_within(usual.listed, usual.order, usual.step.num_constant)
        if other != usual.order:
            found.append((self._in_order(usual, other), ANOTHER_ORDER))
        for problem, instead in found:
            if problem is not first:
                yield self._against(problem, first, instead or f"no {how}")

    def _in_order(self, lowered: Lowered, order: tuple[int, ...]) -> Problem:
        """An existing step, with its tasks in another order."""
        made = next(m for m in self.made if m.train is lowered)
        found = lowered.in_order(order)
        self.made.append(replace(made, train=found))
        return found.problem

    def _against(self, problem: Problem, first: Problem, instead: str) -> Problem:
        """`problem` with its times relative to those of `first`."""
        at = next(i for i, m in enumerate(self.made) if m.train.problem is problem)
        problem = replace(problem, base_seconds=first.step_seconds, instead=instead)
        made = self.made[at]
        self.made[at] = replace(made, train=replace(made.train, problem=problem))
        return problem

    def of(self, problem: Problem) -> Candidate:
        """The step whose plan is of `problem`."""
        tasks = (problem.whole or problem).tasks
        return next(m for m in self.made if m.train.problem.tasks is tasks)
