"""Executors that share parameters, gradients, states and one arena, and one budget for all of it.

One network for several input shapes (a module that is given batches of other sizes), or several networks with
the same parameters (the buckets of a recurrent net). They run one after another, so one arena serves them
all:

    planned = extra + what they share, once + inputs and outputs of each + the largest arena

    parameters, gradients, states  |#################|
    arena of the largest member                      |#########################|
      another's                                      |#############|
    inputs, outputs: member 0, 1, 2                                            |##|#|##|

A budget holds for that sum. A later member brings inputs and outputs, and so leaves less for the arena:
members whose arena is then too large are planned anew, with fewer bytes and more recomputation. If that
fails too, members that are only cached in case their shapes come back are dropped, least recently used
first. An `expected` member counts from the start, as if it existed: an earlier one is refused if one of
those to come would be, with a budget for all, and before anything has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any

import numpy as np

from ..backends import Backend
from ..core import Context
from ..core.errors import MemoryBudgetError, ShapeError
from ..graph import Entry, Graph, Shape
from ..memplan import MemoryPlan, plan_memory, Problem, structure, Template
from ..ndarray import NDArray
from .executor import Executor
from .plan.candidates import Candidates, Planned
from .plan.lazy_steps import LazySteps
from .plan.lower import Lowered
from .plan.remedies import advice, Question, Refused
from .plan.step import Key, PlannedStep
from .run.arena import Arena
from .run.away import held_bytes
from .run.room import require_room
from .run.storage import Allocator, Wanted
from .share import Share

Fixed = dict[str, int]
KEPT = 4  # members of one owner: executors for so many shapes, including the present ones


@dataclass(frozen=True)
class Expected:
    """A program that is to come: its steps, and one of them lowered; all own the same arrays."""

    candidates: Candidates
    steps: LazySteps
    lowered: Lowered


class ExecutorGroup:
    """Members by key, least recently used first. A key is (owner, anything): owners are modules.

    `budget` bounds `planned_bytes`. `extra` are bytes by category that the group's user owns besides.
    `current` is the key that each owner uses now: it is never dropped for another owner. `templates`
    are, for each owner, those of its first plans of training and of inference, `first` all of that.
    `held` are parameters and auxiliary states that were created before any program; see `hold`. `expected`
    are programs of owners who have none yet; each is removed when the owner's first one comes. `peers` are
    the groups of the other devices, each with a budget of its own, where the same owners have parts of their
    work; `lane` is the engine's device for programs on a CPU.
    """

    def __init__(self) -> None:
        self.budget: int | None = None
        self.extra: Mapping[str, int] = {}
        self.members: dict[tuple[Hashable, Hashable], Share] = {}
        self.arena: Arena | None = None
        self.held: dict[Key, NDArray] = {}
        self.current: dict[Hashable, Hashable] = {}
        self.templates: dict[Hashable, tuple[Template, Template]] = {}
        self.first: dict[Hashable, Planned] = {}
        self.expected: dict[Hashable, Expected] = {}
        self.peers: list[ExecutorGroup] = []
        self.lane = "cpu"

    @property
    def of_devices(self) -> list[ExecutorGroup]:
        """This group and those of the other devices."""
        return [self, *self.peers]

    @property
    def extras(self) -> list[Mapping[str, int]]:
        """`extra` of each device."""
        return [group.extra for group in self.of_devices]

    @extras.setter
    def extras(self, extras: Sequence[Mapping[str, int]]) -> None:
        for number, extra in enumerate(extras):
            if number == len(self.of_devices):
                self.peers.append(ExecutorGroup())  # `on` says of which device
            self.of_devices[number].extra = extra

    def on(self, contexts: Sequence[Context]) -> list[ExecutorGroup]:
        """The groups of the devices of one program, which are made where they are missing."""
        self.peers += [ExecutorGroup() for _ in contexts[len(self.of_devices) :]]
        for peer, context in zip(self.peers, contexts[1:]):
            peer.lane, peer.budget = str(context), self.budget
        return self.of_devices[: len(contexts)]

    def rest(self, owner: Hashable) -> None:
        """Let others of the group drop what an owner uses now, on all devices."""
        for group in self.of_devices:
            group.current.pop(owner, None)

    def forget(self, owner: Hashable) -> None:
        """Expect no program of this owner any more, on all devices."""
        for group in self.of_devices:
            group.expected.pop(owner, None)

    # -- what it owns --------------------------------------------------------------------------

    @property
    def can_go_away(self) -> bool:
        """True if a newcomer may keep parameters in another form in place: they are created for it, or can
        be away already.
        """
        return not self.held and all(m.planned.infer.step.forms for m in self.members.values())

    @property
    def planned_bytes(self) -> int:
        """All bytes that the group owns once its programs have run: `measured_bytes` is then the same."""
        fixed = self._beside.fixed([m.planned.train for m in self.members.values()])
        nbytes = sum(fixed.values()) + sum(m.copied_bytes for m in self.members.values())
        return nbytes + (self.arena.nbytes if self.arena is not None else 0)

    @property
    def measured_bytes(self) -> int:
        """Bytes actually allocated so far without `extra`: every array, each counted once, and the arena."""
        arrays = [a for m in self.members.values() for a in m.arrays.values()]
        nbytes = held_bytes([*arrays, *self.held.values()])
        nbytes += sum(m.outside_bytes for m in self.members.values())
        return nbytes + (self.arena.measured_bytes if self.arena is not None else 0)

    def get(self, owner: Hashable, key: Hashable) -> Executor | None:
        """A member, which becomes the most recently used one; None if there is none."""
        found = self.members.pop((owner, key), None)
        if found is not None:
            self.members[owner, key] = found
            self.current[owner] = key
        return None if found is None else found.executor

    def drop(self, owner: Hashable, but: Hashable = None) -> None:
        """Drop an owner's members except that one."""
        self.members = {k: m for k, m in self.members.items() if k[0] != owner or k[1] == but}

    def lent(self, lowered: Sequence[Lowered]) -> dict[Key, NDArray]:
        """The arrays here that a newcomer with these programs shares. Raises ShapeError.

        A parameter of one name is one array in the whole group.
        """
        wanted: dict[Key, str] = {}
        owned: dict[Key, tuple[Shape, np.dtype[Any]]] = {}
        inputs: dict[str, Shape] = {}
        # Arrays that stay whole until a rank's parts are cut from them, with their shapes.
        parts: dict[Any, Shape] = {}
        for program in lowered:
            wanted |= _shared(program.step)
            parts |= program.step.parts
            owned |= program.step.owned
            category = program.step.category
            inputs |= {k[1]: owned[k][0] for k, c in category.items() if k[0] == "var" and c == "inputs"}
        result: dict[Key, NDArray] = {}
        for arrays in (self.held, *map(_lendable, self.members.values())):
            for key, array in arrays.items():
                if key not in wanted or key in result:
                    continue
                shape, dtype = owned[key]
                if (array.shape, array.storage.dtype) == (shape, dtype):
                    result[key] = array
                elif wanted[key] in ("arguments", "auxiliary") and array.shape != parts.get(key[1]):
                    raise _other_shape(key, array, shape, dtype, inputs)
        return result

    def hold(self, graph: Graph, inputs: Container[str], allocator: Callable[[Wanted], Allocator]) -> None:
        """Keep the parameters and auxiliary states of `graph`, for which nothing is planned yet.

        `graph` has all shapes and types. Missing arrays are created, all zero. Raises ShapeError.
        """
        states = set(graph.auxiliary)
        category = {
            ("var", n.name): "auxiliary" if n in states else "arguments"
            for n in graph.variables
            if n.name not in inputs
        }
        there = {k: a for m in self.members.values() for k, a in _lendable(m).items()} | self.held
        found: dict[Key, NDArray] = {}
        kinds: dict[Key, tuple[Shape, np.dtype[Any]]] = {
            key: (graph.shapes[Entry(n)], graph.dtypes[Entry(n)])
            for n in graph.variables
            if (key := ("var", n.name)) in category
        }
        made = allocator([(category[k], *kind) for k, kind in kinds.items() if k not in there])
        for key, (shape, dtype) in kinds.items():
            array = there[key] if key in there else made.make(key, shape, dtype, category)
            if (array.shape, array.storage.dtype) != (shape, dtype):
                fed = {n.name: graph.shapes[Entry(n)] for n in graph.arguments if n.name in inputs}
                raise _other_shape(key, array, shape, dtype, fed)
            found[key] = array
        self.held |= found

    # -- members -------------------------------------------------------------------------------

    def plan(
        self,
        owner: Hashable,
        key: Hashable,
        asked: Candidates,
        steps: LazySteps,
        lowered: Lowered,
        template: Template | None = None,
        of: Mapping[str, int] | None = None,
    ) -> Arrival:
        """Effect of one of the steps of `asked` joining as (owner, key), replacing the present member there.

        `lowered` is any of them, and owns `of` outside the arena as far as `steps` know.

        Changes nothing. Raises MemoryBudgetError, whose `least_feasible_bytes` is a budget for all members
        together that are in use, including the new one and those that are expected.
        """
        budget, beside = self.budget, self._beside
        coming = [e for o, e in self.expected.items() if o != owner]
        stay = {k: m for k, m in self.members.items() if k != (owner, key)}
        old = [k for k in stay if k[0] == owner]
        for k in old[: max(0, len(old) + 1 - KEPT)]:
            del stay[k]
        spare = [k for k in stay if k[0] == owner or self.current.get(k[0]) != k[1]]
        while True:
            there = (m.planned.train for m in stay.values())
            fixed = beside.fixed([lowered, *there, *(e.lowered for e in coming)])
            own = steps.owning(fixed, lowered.problem.fixed_bytes if of is None else of)
            others = [e.steps.owning(fixed, e.lowered.problem.fixed_bytes) for e in coming]
            try:
                plan = own.plan(budget, template)
                plans = {k: self._within(k[0], m, fixed, budget) for k, m in stay.items()}
                if budget is not None:
                    for other in others:
                        other.plan(budget)
                return Arrival((owner, key), plan, plans)
            except MemoryBudgetError as error:
                if not spare:
                    programs = [(asked, own)]
                    programs += [(m.planned.asked, _as_it_is(m.memory_plan, fixed)) for m in stay.values()]
                    programs += [(e.candidates, other) for e, other in zip(coming, others)]
                    raise self._refused(error, programs) from None
                del stay[spare.pop(0)]

    def admit(self, arrival: Arrival, share: Share) -> None:
        """Add the newcomer, and drop the others or make them run the plans that make room for it."""
        self.members = {k: self.members[k] for k in arrival.plans}
        self.members[arrival.key] = share
        self.current[arrival.key[0]] = arrival.key[1]
        self.expected.pop(arrival.key[0], None)
        planned, old = share.planned, self.templates.get(arrival.key[0])
        searched = old is not None and not old[0].has_ladder and planned.train_plan.recomputed > 0
        if (
            old is None
            or searched
            or not all(
                structure(t.first.problem) == structure(p.problem)
                for t, p in zip(old, (planned.train_plan, planned.infer_plan))
            )
        ):
            self.templates[arrival.key[0]] = Template(planned.train_plan), Template(planned.infer_plan)
            self.first[arrival.key[0]] = planned
        for k, plan in arrival.plans.items():
            self.members[k].adopt(plan)

    def replan(self, key: tuple[Hashable, Hashable]) -> bool:
        """Plan a member's step anew, and the others accordingly, after `extra` has changed.

        Changes nothing if it raises MemoryBudgetError, or returns False: then another step is better now.
        """
        member = self.members[key]
        backend, train = member.planned.asked.backend, member.planned.train
        template = self.templates[key[0]][0]
        plan = member.memory_plan
        of = plan.problem.fixed_bytes
        arrival = self.plan(*key, member.planned.asked, _steps_of(plan), train, template, of)
        if _whole(arrival.plan).tasks is not train.problem.tasks:
            return False
        planned = replace(member.planned, train_plan=arrival.plan)
        require_room(planned, backend, lambda _: member.arrays, *self.arena_bytes(arrival, backend))
        self.arena_for(arrival, backend)
        member.adopt(arrival.plan)
        self.admit(arrival, member)
        return True

    def arena_bytes(self, arrival: Arrival, backend: Backend) -> tuple[int, int]:
        """Arena bytes that the largest member needs, with the newcomer, and the bytes allocated now."""
        there = self.arena is not None and self.arena.backend is backend
        held = self.arena.measured_bytes if self.arena is not None and there else 0
        return max(p.arena_bytes for p in (arrival.plan, *arrival.plans.values())), held

    def arena_for(self, arrival: Arrival, backend: Backend) -> Arena:
        """The arena, as large as the largest member needs; larger only if it was and the budget allows it."""
        need, _ = self.arena_bytes(arrival, backend)
        host = max(p.host_bytes for p in (arrival.plan, *arrival.plans.values()))
        if self.arena is None or self.arena.backend is not backend:
            self.arena = Arena(backend, need, host, self.lane)
        else:
            budget, fixed = arrival.plan.budget_bytes, arrival.plan.problem.fixed_total
            most = max(self.arena.nbytes, self.arena.measured_bytes)
            over = budget is not None and fixed + most > budget
            if over or self.arena.nbytes < need or not self.arena.is_used:
                self.arena.resize(need, host)
            elif self.arena.host_nbytes < host:
                self.arena.resize(self.arena.nbytes, host)
            if over:
                self.arena.give_back()  # before the newcomer's arrays are created
        return self.arena

    @property
    def _beside(self) -> Beside:
        return Beside(dict(self.extra), {key: held_bytes([a]) for key, a in self.held.items()})

    def _within(self, owner: Hashable, member: Share, fixed: Fixed, budget: int | None) -> MemoryPlan:
        """A member's plan when `fixed` bytes are not for the arena: its present one if that still fits."""
        plan = member.memory_plan
        problem = replace(plan.problem, fixed_bytes=fixed)
        steps = _steps_of(plan).owning(fixed, plan.problem.fixed_bytes)
        whole = replace(_whole(plan), fixed_bytes=fixed)
        plan = replace(
            plan, schedule=replace(plan.schedule, problem=problem), budget_bytes=budget, steps=steps
        )
        if budget is None or plan.peak_bytes <= budget:
            return plan
        return replace(plan_memory(whole, budget, template=self.templates[owner][0]), steps=steps)

    def _refused(
        self, error: MemoryBudgetError, programs: Sequence[tuple[Candidates, LazySteps]]
    ) -> MemoryBudgetError:
        """The error with a budget for all `programs`, based on the one that needs most of the arena.

        `error` is that of the first of them.
        """
        asked, _ = programs[0]
        refused, fit = [(error, asked)], []
        if others := len(programs) - 1:
            all_of_them = [(a, _least(steps, error.budget_bytes)) for a, steps in programs]
            found = [(least, a) for a, (least, _) in all_of_them if least is not None]
            refused = sorted(found or refused, key=lambda r: -r[0].least_feasible_bytes)
            fit = [a for a, (least, _) in all_of_them if least is None and a is not refused[0][1]]
            bound = max(proven for _, (_, proven) in all_of_them)
            error = refused[0][0]
            error.lower_bound_bytes = max(bound, error.lower_bound_bytes)
            others_own = "1 other shape owns" if others == 1 else f"{others} other shapes own"
            error.remark(f"With what {others_own}, {error.least_feasible_bytes} bytes are enough for all.")
        if len(refused) > 1:
            error.remark(f"This is the largest of {len(refused)} shapes that do not fit.")
        short = [Refused(a, e.least_feasible_bytes) for e, a in refused]
        error.advise = partial(advice, Question(short, fit, self._beside.fixed, error))
        return error


@dataclass(frozen=True)
class Beside:
    """Bytes of a group beside its members: `extra` bytes by category, and those of `held` arrays."""

    extra: Fixed
    held: Mapping[Key, int]

    def fixed(self, members: Sequence[Lowered], separate: bool = True) -> Fixed:
        """Bytes outside the arena by category, if these programs share what they can.

        `separate`: True if an optimizer's states lie beside the steps, as at present if there are some.
        """
        total: Fixed = {c: n for c, n in self.extra.items() if separate or c != "optimizer"}
        seen: set[tuple[Key, object]] = set()
        for lowered in members:
            for category, nbytes in lowered.problem.fixed_bytes.items():
                total[category] = total.get(category, 0) + nbytes
            for key, category in _shared(lowered.step).items():
                shape, dtype = lowered.step.owned[key]
                if (key, (shape, dtype)) in seen:
                    total[category] -= prod(shape) * dtype.itemsize
                seen.add((key, (shape, dtype)))
        known = {key for key, _ in seen}
        if rest := sum(nbytes for key, nbytes in self.held.items() if key not in known):
            total["arguments"] = total.get("arguments", 0) + rest
        return total


def _least(steps: LazySteps, budget: int) -> tuple[MemoryBudgetError | None, int]:
    """The refusal of `budget`, None if it is enough, and the proven lower bound."""
    try:
        steps.plan(budget)
    except MemoryBudgetError as error:
        return error, error.lower_bound_bytes
    return None, steps.lower_bound_bytes


def _steps_of(plan: MemoryPlan) -> LazySteps:
    """Those that `plan` is of, or its own alone."""
    return plan.steps if isinstance(plan.steps, LazySteps) else LazySteps.of(_whole(plan))


def _as_it_is(plan: MemoryPlan, fixed: Fixed) -> LazySteps:
    """The step of `plan` alone where `fixed` bytes are not for the arena, with advice of those who know its
    network."""
    return _steps_of(plan).only(_whole(plan)).owning(fixed, plan.problem.fixed_bytes)


class Arrival:
    """A newcomer's key and plan, and the plans of the remaining members, in order of use."""

    def __init__(
        self,
        key: tuple[Hashable, Hashable],
        plan: MemoryPlan,
        plans: dict[tuple[Hashable, Hashable], MemoryPlan],
    ) -> None:
        self.key = key
        self.plan = plan
        self.plans = plans


def _shared(step: PlannedStep) -> dict[Key, str]:
    """The storage of a step that all members share, with its category: all but inputs, outputs, constants."""
    inputs = {k[1] for k, c in step.category.items() if c == "inputs"}
    kinds = ("arguments", "auxiliary", "optimizer", "gradients", "metrics")
    return {
        k: c
        for k, c in step.category.items()
        if c in kinds and k[0] in ("var", "grad") and k[1] not in inputs
    }


def _lendable(member: Share) -> dict[Key, NDArray]:
    """The arrays of a member that others share."""
    shared = _shared(member.planned.train.step)
    return {k: a for k, a in member.arrays.items() if k in shared}


def _other_shape(
    key: Key, array: NDArray, shape: Shape, dtype: np.dtype[Any], inputs: Mapping[str, Shape]
) -> ShapeError:
    fed = ", ".join(f"{n} {s}" for n, s in inputs.items())
    return ShapeError(
        f"Parameter {key[1]!r} is shared: it must be {array.shape} {array.storage.dtype} for all "
        f"shapes and buckets, but here it would be {shape} {dtype}, as follows from {fed}. Inputs may differ "
        f"from those bound first only in axes on which no parameter's shape depends."
    )


def _whole(plan: MemoryPlan) -> Problem:
    """The problem of a plan, with all forms of its kernels."""
    return plan.problem.whole or plan.problem
