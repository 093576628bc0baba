"""The planner's input: tasks and values as plain numbers, without graph, device or array.

A **task** is one kernel call of the training step in its canonical order: forward tasks first, then backward
and update tasks. A **value** is one array. It is *fixed* when it lives in storage of its own (an
argument, a gradient the user can see, an output) and otherwise has to be given bytes in the arena.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from math import fsum
from operator import attrgetter

from ..core.cached import cached_property
from ..core.errors import BindError
from ..core.wanted import found
from .cost.device import FASTEST, is_rate, SLOWEST

CATEGORIES = (
    "arguments",
    "gradients",
    "auxiliary",
    "optimizer",
    "metrics",
    "inputs",
    "outputs",
    "staging",
    "activations",
    "workspace",
)
"""Categories of bytes, in the order of every table: fixed ones first, then those of the arena. SOMETIMES are
left out of tables if they are zero."""

SOMETIMES = ("metrics", "staging")
"""Sums of metrics that a step accumulates, and buffers where batches wait on a GPU for their turn."""


@dataclass(frozen=True, slots=True)
class Value:
    """An array of `nbytes`; `fixed` says that it lies outside the arena."""

    name: str
    nbytes: int
    fixed: bool = False


@dataclass(frozen=True, slots=True)
class Task:
    """One kernel call.

    `inputs` and `outputs` are value numbers, outputs -1 where nothing reads them. `in_place` are the
    allowed (output value, input value) pairs, best first. `mutates` are fixed values that are also written.
    `seconds` is the time of the call by which plans are chosen, `workspace` its scratch in bytes. `warm` and
    `cold` are its times where all and where nothing of what it touches is in the cache, 0 if not
    measured. A `preview` runs where the forward pass is called by itself; a whole step leaves it out,
    and its time does not count. `threads` is the kernel's thread count if that was reduced, else 0.
    `forms` are (threads, workspace) of the kernel as it is and with ever fewer threads, for less workspace
    and in as many times the time: a plan chooses among them. Results are equal to the bit. `exchanges` are
    the bytes of arrays that go to other ranks or come from them: all ranks run such tasks in one order. A
    message has so many `phases`: the parts of a sum are reduced, then gathered. With none, the arrays go to
    another device of this process, or come from one.
    """

    name: str
    op: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    in_place: tuple[tuple[int, int], ...] = ()
    mutates: tuple[int, ...] = ()
    workspace: int = 0
    seconds: float = 0.0
    recomputable: bool = True
    cheap: bool = False
    update: bool = False  # may be moved to any place after its inputs are there
    mirror: bool = False  # the user asks for it to be recomputed
    stage: bool = False  # the user marks it as a place to split
    kernel: str = ""  # which implementation runs
    always: tuple[int, ...] = ()  # outputs that each run makes, read or not
    warm: float = 0.0
    cold: float = 0.0
    preview: bool = False
    threads: int = 0
    forms: tuple[tuple[int, int], ...] = field(default=(), compare=False)
    exchanges: int = field(default=0, repr=False)
    phases: int = field(default=2, repr=False)

    def with_form(self, form: tuple[int, int]) -> Task:
        """The task with the threads and the workspace of one of its kernel's forms."""
        threads, workspace = form
        if threads == self.forms[0][0]:
            return self
        longer = self.forms[0][0] / threads
        return replace(
            self,
            workspace=workspace,
            seconds=longer * self.seconds,
            warm=longer * self.warm,
            cold=longer * self.cold,
            threads=threads,
            forms=(),
        )


_CONTENT = attrgetter(*(f.name for f in fields(Task) if f.repr))
"""The fields of a task that a digest reads."""


@dataclass(frozen=True, slots=True)
class HostLink:
    """The link to host memory: bytes per second in each direction, and how many bytes it may hold.

    The two directions do not disturb each other, nor do they disturb kernels. The default is the measured
    copy rate of a device on PCI Express 3.0 with 16 lanes, from and to page-locked memory.
    """

    store_bytes_per_s: float = 12e9
    fetch_bytes_per_s: float = 12e9
    capacity: int | None = None  # bytes; None: as many as it takes

    def __post_init__(self) -> None:
        for name in ("store_bytes_per_s", "fetch_bytes_per_s"):
            rate = getattr(self, name)
            if not is_rate(rate):
                raise BindError(
                    f"{name} of a HostLink must be a number from {SLOWEST:g} to {FASTEST:g}, got "
                    f"{found(rate)}; as in HostLink(store_bytes_per_s=12e9)."
                )
        if self.capacity is not None and (type(self.capacity) is not int or self.capacity < 0):
            raise BindError(
                f"The capacity of a HostLink is a whole number of bytes, 0 or more, got "
                f"{found(self.capacity)}; mx.parse_bytes('4GiB') is one."
            )


@dataclass(frozen=True)
class Problem:
    """A training or inference step to be planned.

    The first `num_forward` tasks are the forward pass. `fixed_bytes` counts, by category, everything that the
    program owns outside the arena. `costs` names the device that the seconds hold for; empty: the default
    device. `least_arena` is needed in any case (by the plan of inference, which shares the arena);
    `least_bound` is the part of it that every plan of inference provably needs. `host` is set if kept values
    may wait for backward in host memory. `cache_bytes` is the measured capacity of the cache, else 0, and
    `others_bytes_per_s` the rate at which others fill it; see `locality.py`. `base_seconds` is the time of
    the step that would run without a budget, if that is another one, else 0, and `instead` says how this one
    differs from it. `whole` is the problem of which this one is a choice of forms, if it is not this one.
    """

    tasks: tuple[Task, ...]
    values: tuple[Value, ...]
    num_forward: int
    fixed_bytes: Mapping[str, int] = field(default_factory=dict)
    least_arena: int = 0
    least_bound: int = 0
    costs: str = ""
    host: HostLink | None = None
    cache_bytes: int = 0
    others_bytes_per_s: float = 0.0
    base_seconds: float = 0.0
    instead: str = ""
    whole: Problem | None = field(default=None, compare=False, repr=False)

    @property
    def fixed_total(self) -> int:
        """Bytes that no plan changes."""
        return sum(self.fixed_bytes.values())

    @cached_property
    def digest(self) -> str:
        """Digest of the content, equal for equal problems."""
        fixed = sorted(self.fixed_bytes.items())
        content = [*map(_CONTENT, self.tasks)], [(v.name, v.nbytes, v.fixed) for v in self.values]
        text = repr((*content, self.num_forward, fixed, self.least_arena))
        if self.host is not None:
            text += repr(self.host)
        if self.cache_bytes:
            text += f" cache {self.cache_bytes} others {self.others_bytes_per_s!r}"
        if self.base_seconds:
            text += f" base {self.base_seconds!r}"
        return hashlib.sha256(text.encode()).hexdigest()

    @cached_property
    def has_forms(self) -> bool:
        """True if any kernel could have fewer threads."""
        return any(t.forms for t in self.tasks)

    @cached_property
    def leanest(self) -> Problem:
        """The problem whose kernels have their smallest workspaces at no loss of time.
        A relaxation: no plan in any forms takes fewer bytes or less time than this one's with the same
        schedule.
        """
        if not self.has_forms:
            return self
        tasks = tuple(replace(t, workspace=t.forms[-1][1], forms=()) if t.forms else t for t in self.tasks)
        return replace(self, tasks=tasks, whole=None)

    @property
    def threads(self) -> tuple[int, ...]:
        """Thread count of each task; see `Task`."""
        return tuple(t.threads for t in self.tasks)

    def in_forms(self, threads: Sequence[int]) -> Problem | None:
        """The problem whose kernels have these thread counts; itself if they are its own, None if it does
        not know such forms.
        """
        if len(threads) != len(self.tasks):
            return None
        tasks, fewer = list(self.tasks), 0
        for i, (task, n) in enumerate(zip(self.tasks, threads)):
            if n != task.threads:
                form = next((f for f in task.forms if f[0] == n), None)
                if form is None:
                    return None
                tasks[i], fewer = task.with_form(form), fewer + 1
        if not fewer:
            return self
        what = f"fewer threads for {fewer} kernel{'' if fewer == 1 else 's'}"
        return replace(
            self,
            tasks=tuple(tasks),
            base_seconds=self.base_seconds or self.step_seconds,
            instead=f"{self.instead}, {what}" if self.instead else what,
            whole=self,
        )

    @cached_property
    def producer(self) -> tuple[int, ...]:
        """For each value the task that makes it, or -1."""
        made = [-1] * len(self.values)
        for t, task in enumerate(self.tasks):
            for v in task.outputs:
                if v >= 0:
                    made[v] = t
        return tuple(made)

    @cached_property
    def arena_producer(self) -> tuple[int, ...]:
        """For each value the task that writes it, or -1."""
        return tuple(-1 if v.fixed else p for v, p in zip(self.values, self.producer))

    @cached_property
    def reads(self) -> tuple[tuple[int, ...], ...]:
        """For each task the forward tasks whose arena outputs it reads."""
        made, n = self.arena_producer, self.num_forward
        return tuple(tuple(dict.fromkeys(p for v in t.inputs if 0 <= (p := made[v]) < n)) for t in self.tasks)

    @cached_property
    def joins(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """For each task the (output, input) positions that may share bytes, as far as sizes and
        readers allow.
        """
        values, result = self.values, []
        for task in self.tasks:
            pairs = []
            for out, inp in task.in_place:
                if (
                    out in task.outputs
                    and not values[out].fixed
                    and not values[inp].fixed
                    and values[out].nbytes == values[inp].nbytes
                    and task.inputs.count(inp) == 1
                ):
                    pairs.append((task.outputs.index(out), task.inputs.index(inp)))
            result.append(tuple(pairs))
        return tuple(result)

    @cached_property
    def changed_by_backward(self) -> frozenset[int]:
        """Fixed values that some backward task, not an update, writes."""
        return frozenset(v for t in self.tasks if not t.update for v in t.mutates)

    @cached_property
    def updates(self) -> tuple[int, ...]:
        """The tasks that may be moved."""
        return tuple(t for t, task in enumerate(self.tasks) if task.update)

    @cached_property
    def updated_inputs(self) -> tuple[tuple[int, ...], ...]:
        """For each task the inputs that an update writes."""
        touched = {v for t in self.updates for v in self.tasks[t].mutates}
        return tuple(tuple(v for v in t.inputs if v in touched) for t in self.tasks)

    @cached_property
    def step_seconds(self) -> float:
        """Modelled time of one step without any recomputation."""
        return fsum(t.seconds for t in self.tasks)

    @property
    def slowdown(self) -> float:
        """Time of this step without recomputation / time of the step that would run without a budget."""
        return self.step_seconds / self.base_seconds if self.base_seconds else 1.0

    def seconds_left(self, extra_time: float) -> float:
        """Seconds of recomputation that make this step take the share `extra_time` more than the step that
        would run without a budget; negative if it takes longer even without recomputation.
        """
        return (1 + extra_time) * (self.base_seconds or self.step_seconds) - self.step_seconds

    @cached_property
    def made(self) -> frozenset[int]:
        """Values that are read or that each run writes; no others are ever written in the arena."""
        return frozenset(v for t in self.tasks for v in (*t.inputs, *t.always))

    @cached_property
    def task_bound(self) -> tuple[int, int]:
        """(bytes, task): the most arena bytes that a single task needs by itself.

        Its arena inputs, workspace and the outputs of one of its runs must be there together, less outputs
        that may overwrite an input. The first run of a forward task that may be recomputed writes what other
        forward tasks read, but outputs that only backward reads may be left to later runs, one run each. No
        schedule of these tasks gets below it.
        """
        if self.has_forms:
            return self.leanest.task_bound
        by_forward = {v for t in self.tasks[: self.num_forward] for v in t.inputs}
        best, at = 0, 0
        for t, task in enumerate(self.tasks):
            outputs = {v for v in task.outputs if v in self.made and not self.values[v].fixed}
            runs = [outputs]
            if t < self.num_forward and task.recomputable and not task.mutates:
                always = outputs.intersection(task.always)
                first = outputs & by_forward | always
                runs = [first, *({v, *always} for v in outputs - first)]
            nbytes = max(self.together(t, outputs) for outputs in runs)
            if nbytes > best:
                best, at = nbytes, t
        return best, at

    def together(
        self,
        t: int,
        outputs: Iterable[int] | None = None,
        held: Callable[[int], bool] | None = None,
        stay: Container[int] = (),
    ) -> int:
        """Arena bytes that one run of task `t` needs to write `outputs`, or all it has, without values that
        are `held`, which are counted elsewhere; no output may overwrite one of `stay`.
        """
        task, values = self.tasks[t], self.values
        outputs = task.outputs if outputs is None else outputs
        made = {v for v in outputs if v in self.made and not values[v].fixed}
        nbytes = padded(task.workspace)
        for v in {*task.inputs, *made}:
            if not values[v].fixed and not (held and held(v)):
                nbytes += padded(values[v].nbytes)
        size = {v: padded(values[v].nbytes) for v in made}
        pairs = ((task.outputs[o], task.inputs[i]) for o, i in self.joins[t])
        return nbytes - most_overwritten(((o, i) for o, i in pairs if o in made and i not in stay), size)

    @cached_property
    def lower_bound_bytes(self) -> int:
        """Proven lower bound: no plan of this step owns less."""
        return self.fixed_total + max(self.task_bound[0], self.least_bound)


ALIGN = 64  # bytes; every buffer starts at a multiple of it


def padded(nbytes: int) -> int:
    """`nbytes` rounded up to the alignment of the arena."""
    return -(-nbytes // ALIGN) * ALIGN


def most_overwritten(pairs: Iterable[tuple[int, int]], nbytes: Mapping[int, int]) -> int:
    """The largest sum of `nbytes` over outputs that `pairs`, (output, input), can match with inputs."""
    takes: dict[int, list[int]] = {}
    for out, inp in pairs:
        takes.setdefault(out, []).append(inp)
    taken: dict[int, int] = {}  # input -> the output that overwrites it
    lies: dict[int, int] = {}  # output -> the input it overwrites
    total = 0
    for out in sorted(takes, key=lambda o: -nbytes[o]):
        found: dict[int, int] = {}  # input -> the output from which the search reached it
        looking, free = [out], -1
        for o in looking:
            for inp in takes[o]:
                if inp not in found:
                    found[inp] = o
                    if inp not in taken:
                        free = inp
                        break
                    looking.append(taken[inp])
            if free >= 0:
                total += nbytes[out]
                break
        while free >= 0:  # augment: each output on the path moves to the next input
            mover = found[free]
            taken[free], lies[mover], free = mover, free, lies.get(mover, -1)
    return total
