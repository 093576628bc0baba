"""Alternative steps of a network, differentiated and lowered when a planner requests them; the chosen one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

from ...backends import Backend, backend_of, planning_backend, rewrite
from ...backends.checks import guard
from ...backends.rewrite import Pass, Stage
from ...core import BindError, Context
from ...core.cached import cached_property
from ...core.errors import DeviceError, MemoryBudgetError
from ...graph import Entry, Graph, LOSS_SCALE
from ...memplan import (
    Device,
    leanest,
    MemoryPlan,
    plan_memory,
    Problem,
    reorder,
    reorder_within,
    Template,
)
from ...memplan.cost.device import device_of
from ...memplan.order.messages import overlapped, with_message_times
from ..measure.calibration import with_measured_costs
from ..placement.copies import with_copies
from ..placement.devices import Devices
from ..placement.parts import parts_of
from ..request.amp import mixed, typed
from ..request.bind_request import BindRequest
from ..request.infer import shapes_of_variables
from ..request.watch import Seen, Watched, watched
from .constants import constant_bytes
from .lazy_steps import LazySteps
from .lower import lower, Lowered
from .metrics import with_metrics
from .rank_norms import norms_over_ranks
from .rank_weights import shared_weights, with_gathered_weights
from .step import check_grad_req, forward_step, input_names, PlannedStep, training_step

Advise = Callable[[MemoryBudgetError, Mapping[str, int]], str]


def measured(lowered: Lowered, budget: int | None) -> Lowered:
    """`lowered` with the times of its kernels on this machine."""
    return with_measured_costs(lowered, budget=budget)[0]


ANOTHER_ORDER = "tasks in another order"
"""Name of a step that differs from the usual one in nothing else."""

SHARDED = "optimizer states shared by the ranks"
"""Name of the step in which each rank keeps a part of them."""

GATHERED = "weights shared by the ranks"
"""Name of the step in which each rank keeps a part of large weights, too."""

WAITING = "kernels that wait for messages"
"""Name of the step whose updates come as soon as their sums over ranks."""

DECIDING = ("inferred", "given", "stored", "template", "like", "knows_inputs")
ASKED = (
    "ctx", "grad_req", "budget", "rule", "strategy", "amp", "scale", "device", "host", "metrics", "watch",
    "forward_only", "ranks", "parts", "schedules", "devices",
)  # fmt: skip
"""Fields of Candidates, and of what they are asked for, that say which steps there are within a budget."""


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
    they were lowered for these. `in_place`: whether all parameters will be arrays that nobody else has, or
    arrays that can be away. On several devices these are the steps of one of them, number `part`, and `first`
    are those of device 0, of which all are cut. `knows_inputs`: whether arguments that are data are among
    those `given`, or labels; else none is known to be a parameter, which stays from call to call.
    """

    request: BindRequest
    inferred: Graph
    given: frozenset[str]
    stored: frozenset[str] = frozenset()
    measure: Callable[[Lowered, int | None], Lowered] = measured
    template: Template | MemoryPlan | None = None
    like: tuple[Lowered, Lowered] | None = None
    in_place: bool = True
    knows_inputs: bool = True
    part: int = 0
    first: Candidates | None = None
    made: list[Candidate] = field(default_factory=list, init=False, repr=False)
    _inference: dict[tuple[bool, bool], tuple[Lowered, MemoryPlan]] = field(
        default_factory=dict, init=False, repr=False
    )

    @classmethod
    def of_inputs(cls, request: BindRequest, **more: Any) -> Candidates:
        """Those of a request that gives the shapes of inputs, with `more` fields by name."""
        shapes = shapes_of_variables(request.graph, request.shapes)
        inferred, stored = typed(request.graph, shapes, request.type_dict, request.amp, request.shapes)
        return cls(request=request, inferred=inferred, given=frozenset(shapes), stored=stored, **more)

    def asking(self, **changes: Any) -> Candidates:
        """The same where something else is asked for, by the names of BindRequest's fields."""
        first = None if self.first is None else self.first.asking(**changes)
        return replace(self, request=replace(self.request, **changes), first=first)

    def of_graph(self, inferred: Graph) -> Candidates:
        """The same for a graph of other shapes."""
        first = None if self.first is None else self.first.of_graph(inferred)
        return replace(self, inferred=inferred, first=first)

    # -- what follows from these --------------------------------------------------------

    @cached_property
    def described(self) -> Device | None:
        """The device whose seconds are modelled; None for this machine, whose seconds are measured."""
        return device_of(self.request.device, self.backend.rates)

    @property
    def is_measured(self) -> bool:
        """True if seconds are those of this machine's kernels."""
        return device_of(self.request.device) is None

    @property
    def devices(self) -> Devices:
        return self.request.devices

    @property
    def context(self) -> Context:
        """The device whose steps these are."""
        return self.devices.contexts[self.part]

    @property
    def of_devices(self) -> list[Candidates]:
        """These, or on several devices those of each. What is known of other sizes is of one device alone."""
        if not self.devices.are_several:
            return [self]
        first = replace(self, like=None, template=None)
        others = range(1, len(self.devices.contexts))
        return [first, *(replace(first, part=i, first=first) for i in others)]

    def share_of_threads(self) -> AbstractContextManager[None]:
        """Context in which kernels are made for one of several devices, which share the cores."""
        several = len(self.devices.contexts)
        return (
            nullcontext() if several == 1 else self.backend.running(max(1, self.backend.threads() // several))
        )

    @cached_property
    def backend(self) -> Backend:
        measured = self.is_measured
        try:
            return backend_of(self.context)
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
        requests = check_grad_req(self.inferred, self.request.grad_req)
        if self.request.rule is not None:
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
        """The graph in its types, with what is watched."""
        request = self.request
        computed = mixed(self.inferred, request.amp, self.inputs, request.scale is not None, self.stored)
        if request.watch is None:
            return Watched(computed, computed, len(computed.outputs))
        wanted = [Entry(n) for n in computed.arguments if self.requests.get(n.name, "null") != "null"]
        return watched(computed, request.watch, [n.name for n in self.inferred.nodes], wanted)

    @cached_property
    def simple(self) -> Graph:
        """That graph as rewritten by the backend for training."""
        if self.request.forward_only:
            return self._optimized(self.looked.forward, False)
        training, ranks = self.looked.training, self.request.ranks.count
        return self._optimized(training if ranks == 1 else norms_over_ranks(training, ranks), True)

    def _optimized(self, graph: Graph, train: bool) -> Graph:
        """A forward graph as the backend prefers it."""
        if self.devices.are_several:
            graph = with_copies(graph, self.devices)
        return self.backend.optimize().run(Stage.FORWARD, rewrite.Step(graph, train=train)).graph

    @cached_property
    def data(self) -> set[str]:
        """Arguments that the caller writes: data, and a loss scale that is not the step's own."""
        is_fed = self.request.scale is not None and self.request.rule is None
        return self.inputs | ({LOSS_SCALE} if is_fed else set())

    def is_like(self, other: Candidates) -> bool:
        """True if both offer the same steps within a budget. O(nodes)."""
        if self.request.budget is None:
            return False
        own = all(getattr(self, n) == getattr(other, n) for n in DECIDING)
        return own and all(getattr(self.request, n) == getattr(other.request, n) for n in ASKED)

    # -- steps ---------------------------------------------------------------------------------

    @cached_property
    def usual_step(self) -> PlannedStep:
        if self.devices.are_several:
            return (self.first or self).training_parts[self.part]
        return self._step(self.simple, self.usual_shard)

    @cached_property
    def training_parts(self) -> tuple[PlannedStep, ...]:
        """The training step of each device."""
        return self._parts(self._step(self.simple))

    @cached_property
    def inference_parts(self) -> tuple[PlannedStep, ...]:
        """The inference step of each device."""
        return self._parts(forward_step(self._optimized(self.looked.forward, False), self.data, train=False))

    def _parts(self, step: PlannedStep) -> tuple[PlannedStep, ...]:
        at = self.devices.of_nodes(self.inferred)
        return parts_of(step, self.devices, {n.name: at[n] for n in self.inferred.variables})

    @property
    def usual_shard(self) -> str:
        """The kind of arrays that ranks share in the usual step, as `Ranks.shard`."""
        shard = self.request.ranks.shard
        may = self.request.may_shard or self.request.parts
        return shard if may and not shard.startswith("auto") else "none"

    @cached_property
    def shared(self) -> frozenset[str]:
        """Arguments of which each rank keeps a part where ranks share weights."""
        rule = self.request.rule
        if rule is None or not self.trains:
            return self.request.parts
        return shared_weights(self.simple, self.requests, rule)

    def _step(self, graph: Graph, shard: str = "none") -> PlannedStep:
        """The training step for `graph`, in which ranks `shard` something."""
        if shard == "weights":
            graph = with_gathered_weights(graph, self.shared, self.request.ranks.count)
        if not self.trains:
            return forward_step(graph, self.data, train=not self.request.forward_only)
        rule, scale, looked = self.request.rule, self.request.scale, self.looked
        scaling = None if scale is None else scale.in_step()
        told = looked.count, looked.points, self.request.ranks.count, shard == "optimizer"
        step = training_step(graph, self.data, self.requests, rule, scaling, *told)
        return with_metrics(step, self.request.metrics, self.backend) if self.request.metrics else step

    def _inference_step(self, gathers: bool) -> PlannedStep:
        """Inference as a step; `gathers`: with the weights that ranks share."""
        if self.devices.are_several:
            return (self.first or self).inference_parts[self.part]
        graph = self._optimized(self.looked.forward, False)
        if gathers:
            graph = with_gathered_weights(graph, self.shared, self.request.ranks.count)
        return forward_step(graph, self.data, train=False)

    def _infer(self, constants: bool, gathers: bool) -> tuple[Lowered, MemoryPlan]:
        """Inference, lowered and planned; `gathers`: with the weights that ranks share."""
        found = self._inference.get((constants, gathers))
        if found is None:
            step = self._inference_step(gathers)
            like = None if self.like is None else self.like[1]
            in_place = self.in_place and not guard.on
            lowered = lower(
                step,
                self.backend,
                constants=constants,
                in_place=in_place,
                like=like,
                records=self.request.schedules,
            )
            plan = plan_memory(lowered.problem, strategy=self.request.strategy, template=self.template)
            if (self.trains or self.request.budget is not None) and self.request.strategy == "sharing":
                plan = leanest(plan)  # training shares its arena, and could not have less
            found = self._inference[constants, gathers] = lowered, plan
        return found

    def _lowered(
        self, step: PlannedStep, order: Lowered | None, light: bool, variant: Pass | None = None
    ) -> Lowered:
        """A step of training, with inference beside it."""
        # Constants that inference keeps take as much as the weights: not within a budget, nor where
        # steps of training change them.
        only_runs = not self.trains and not self.request.forward_only and self.request.watch is None
        keeps = light and self.knows_inputs and only_runs and not self.devices.are_several
        infer, infer_plan = self._infer(keeps, step.gathers)
        held = constant_bytes(infer.step) if keeps else 0
        found = lower(
            step,
            self.backend,
            {"arguments": held} if held else None,
            infer_plan,
            device=self.described,
            # Without gradient requests, the training step is often that of inference, and has its order.
            like=infer if self.like is None else order,
            light=light,
            variant=variant,
            records=self.request.schedules,
        )
        if self.is_measured:
            found = self.measure(found, self.request.budget)
        found = replace(found, problem=replace(found.problem, host=self.request.host))
        self.made.append(Candidate(self._beside_messages(found), infer, infer_plan))
        return self.made[-1].train

    def _beside_messages(self, lowered: Lowered, overlap: bool = True) -> Lowered:
        """`lowered` with the times of its messages to other ranks, in an order in which they `overlap`."""
        ranks = self.request.ranks
        if ranks.count == 1:
            return lowered
        if overlap:
            order = overlapped(lowered.problem, ranks)
            lowered = lowered.in_order(tuple(lowered.order[t] for t in order))
        return replace(lowered, problem=with_message_times(lowered.problem, ranks))

    def steps(self, order: Lowered | None, free: bool, bounded: bool, advise: Advise) -> LazySteps:
        """Without a budget and within one; each says whether its step is light. `advise`: see LazySteps."""

        def usual() -> Problem:
            return self._lowered(self.usual_step, order, free).problem

        return LazySteps(usual, lambda: self._bounded_problems(order, bounded), self.request.strategy, advise)

    def _bounded_problems(self, order: Lowered | None, light: bool) -> Iterator[Problem]:
        """The problems of the steps that may run within a budget, the fastest first: a small step that keeps
        less may be that, as it also moves less.
        """
        usual = self._lowered(self.usual_step, order, light)
        alone = (
            usual.order if self.request.ranks.count == 1 else reorder(usual.listed, usual.step.num_constant)
        )
        found = [(usual.problem, "")]
        low_memory, simple = self.backend.low_memory(), rewrite.Step(self.simple)
        several = self.devices.are_several  # which are to have the same transfers
        for variant in () if several else low_memory.of(Stage.FORWARD_VARIANT):
            if (other_graph := low_memory.apply(variant, simple).graph) is not self.simple:
                lowered = self._lowered(self._step(other_graph, self.usual_shard), order, light)
                found.append((lowered.problem, variant.instead))
        made = rewrite.Step.of(usual.step.graph, usual.step.storage, usual.step.num_forward)
        for variant in low_memory.of(Stage.STEP_VARIANT):
            if variant.applies(made) and variant.pays(made):
                lowered = self._lowered(self.usual_step, order, light, variant)
                found.append((lowered.problem, variant.instead))
        if self.request.ranks.count > 1:
            found.append((self._in_order(usual, alone, overlap=False), WAITING))
        if self.request.ranks.shard.startswith("auto") and self.request.may_shard:
            kinds = (("optimizer", SHARDED), ("weights", GATHERED))
            for shard, name in kinds if self.request.ranks.shard == "auto" else kinds[:1]:
                sharded = self._lowered(self._step(self.simple, shard), order, light)
                found.append((sharded.problem, name))
                order_alone = reorder(sharded.listed, sharded.step.num_constant)
                found.append((self._in_order(sharded, order_alone, overlap=False), f"{name}, {WAITING}"))
        first, how = min(found, key=lambda pair: pair[0].step_seconds)
        yield first
        other = reorder_within(usual.listed, alone, usual.step.num_constant)
        if other != alone:
            found.append((self._in_order(usual, other), ANOTHER_ORDER))
        for problem, instead in found:
            if problem is not first:
                yield self._against(problem, first, instead or f"no {how}")

    def _in_order(self, lowered: Lowered, order: tuple[int, ...], overlap: bool = True) -> Problem:
        """An existing step, with its tasks in another order; messages may `overlap` with its kernels."""
        made = next(m for m in self.made if m.train is lowered)
        found = self._beside_messages(lowered.in_order(order), overlap)
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


@dataclass(frozen=True)
class Planned:
    """Result of planning in `bind`, before any array exists. `others` are those of other devices."""

    asked: Candidates
    infer: Lowered
    infer_plan: MemoryPlan
    train: Lowered
    train_plan: MemoryPlan
    shown: tuple[Seen, ...] = ()
    others: tuple[Planned, ...] = ()

    @property
    def of_devices(self) -> tuple[Planned, ...]:
        """The plans of each device, this one first."""
        return self, *self.others

    @property
    def arena_bytes(self) -> int:
        """What the arena needs, for training and inference."""
        return max(self.train_plan.arena_bytes, self.infer_plan.arena_bytes)

    @property
    def lane(self) -> str:
        """The engine's device for these programs, if they run on a CPU."""
        return str(self.asked.context) if self.asked.part else "cpu"

    @property
    def graph(self) -> Graph:
        """The graph with all shapes and types but those of mixed precision."""
        return self.asked.inferred

    @property
    def lowered(self) -> tuple[Lowered, Lowered]:
        """Training and inference."""
        return self.train, self.infer
