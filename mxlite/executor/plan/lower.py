"""Lowering of a step's graph to a planning problem.

After lowering every byte is known: shapes, dtypes, workspaces, in-place options.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from ...backends import Backend, Remote, rewrite
from ...backends.lower import Call, lower_graph, LoweredGraph
from ...backends.rewrite import Pass, Rewrite, Stage, told
from ...backends.tune.records import Records
from ...graph import Entry, Graph, LOSS_SCALE, Node, Shape
from ...memplan import Device, MemoryPlan, Problem, reorder, structure
from ...memplan.cost.device import DEFAULT
from ...memplan.plan import forward_bound
from .constants import CONSTANTS, hoist
from .step import Key, PlannedStep

RNG_BYTES = 16  # seed and step, uint64 each
SCRATCH: Key = ("scratch", 0)
"""Storage that messages among ranks have for scratch."""

STAGING: Key = ("staging", 0)
"""Storage where batches wait next to a GPU program's inputs."""


@dataclass(frozen=True)
class Lowered:
    """A step ready to be planned. Value v is stored at `key[v]`, or in the arena if that is None.

    Task t of the problem is `calls[t]`; their order is the planner's, not that of the step's graph.
    Its kernels have `threads` threads; `tuned` says if there are any but reference kernels.
    `order` is that of the tasks, as positions in `listed`, the problem in the order of the step's graph.
    `light`: True if it is one for steps without a budget.
    """

    step: PlannedStep
    backend: Backend
    problem: Problem
    calls: tuple[Call, ...]
    shape: tuple[Shape, ...]
    dtype: tuple[np.dtype[Any], ...]
    key: tuple[Key | None, ...]
    uses_rng: bool
    threads: int
    tuned: bool
    listed: Problem
    order: tuple[int, ...]
    light: bool = False

    def in_order(self, order: tuple[int, ...]) -> Lowered:
        """The same step with its tasks in another order."""
        place = {t: i for i, t in enumerate(self.order)}
        at = [place[t] for t in order]
        problem = replace(self.problem, tasks=tuple(self.problem.tasks[i] for i in at))
        return replace(self, problem=problem, calls=tuple(self.calls[i] for i in at), order=order)

    @property
    def kind(self) -> str:
        """The engine's kind for its kernels: "team" if each of them is run by several threads."""
        return "team" if self.tuned and self.backend.in_turn(self.threads) else "compute"


def lower(
    step: PlannedStep,
    backend: Backend,
    extra_fixed: Mapping[str, int] | None = None,
    inference: MemoryPlan | None = None,
    constants: bool = False,
    in_place: bool = False,
    device: Device | None = None,
    like: Lowered | None = None,
    light: bool = False,
    variant: Pass | None = None,
    records: Records | None = None,
) -> Lowered:
    """Lower `step` and count the bytes that no plan changes. O(nodes).

    `extra_fixed` adds bytes by category that the program's owner holds besides (optimizer state of an
    imperative update). `inference` is the plan of the pass that shares the arena. `constants`: True if
    results that depend on parameters alone are kept from call to call; `in_place`: True if parameters may be
    kept in another form in place.
    `device` is the one that seconds are modelled for, by the backend's rates if None. `like`: the same step
    for other sizes; if only these differ its order is reused, so that plans for its sizes are templates
    for plans of these.
    `light`: True if it is to hold less for a little more time; else it is one for a budget, see
    `Backend.low_memory`. `variant`: one more pass of the backend's, for another step.
    `records` say which schedules kernels have.
    """
    device = device or backend.rates
    threads = backend.threads()
    step = _rewritten(step, backend, light, variant)
    step = with_previews(step)
    if backend.remote is not None:
        step = _with_staging(step, backend.remote)
    if constants:
        step = hoist(step, backend, in_place)
    streams = None if step.streams is None else dict(zip(drawing(step.graph), step.streams, strict=True))
    with backend.running(threads):
        found = lower_graph(
            step.graph,
            step.storage,
            backend,
            streams,
            train=step.train,
            device=device,
            num_forward=step.num_forward,
            records=records,
        )
    found = _with_previews_marked(accumulated(found, step.num_forward), step)
    step, found = _with_scratch_of_messages(step, found)
    costs = "" if device == DEFAULT else str(device)
    uses_rng = any(n.op is not None and n.op.draws(n.attrs, step.train) for n in found.streams)
    fixed: dict[str, int] = dict(extra_fixed or {})
    for where, (s, d) in step.owned.items():
        category = step.category[where]
        fixed[category] = fixed.get(category, 0) + prod(s) * d.itemsize
    if uses_rng:
        fixed["inputs"] = fixed.get("inputs", 0) + RNG_BYTES
    problem = Problem(
        found.tasks,
        found.values,
        step.num_forward,
        fixed,
        least_arena=0 if inference is None else inference.placed_bytes,
        least_bound=0 if inference is None else forward_bound(inference),
        costs=costs,
    )
    # Only here, so that planner, judge, files, engine and profiler all see this one list of tasks.
    if like is not None and _differs_in_size_only(problem, step, like):
        order = like.order
    else:
        order = reorder(problem, step.num_constant)
    found = found.in_order(order)
    return Lowered(
        step,
        backend,
        replace(problem, tasks=found.tasks),
        found.calls,
        found.shape,
        found.dtype,
        found.key,
        uses_rng,
        threads,
        not all(call.kernel.is_reference for call in found.calls),
        problem,
        order,
        light,
    )


def drawing(graph: Graph) -> list[Node]:
    """The forward nodes that have a stream of random numbers, in the order in which lowering numbers them."""
    found = (n.forward or n for n in graph.nodes)
    return list(dict.fromkeys(n for n in found if n.op is not None and n.op.has_stream(n.attrs)))


def _with_previews_marked(found: LoweredGraph, step: PlannedStep) -> LoweredGraph:
    """`found` with the tasks marked that a whole step leaves out: they take none of its time."""
    tasks = (
        replace(task, preview=True, seconds=0.0) if call.node in step.previews else task
        for task, call in zip(found.tasks, found.calls)
    )
    return replace(found, tasks=tuple(tasks)) if step.previews else found


def _with_scratch_of_messages(step: PlannedStep, found: LoweredGraph) -> tuple[PlannedStep, LoweredGraph]:
    """Give messages among ranks one scratch outside the arena, as only one is under way at a time. In the
    arena it would lie where something else was until just before, and the message would have to wait for
    that.
    """
    nbytes = max((t.workspace for t in found.tasks if t.exchanges), default=0)
    if not nbytes:
        return step, found
    tasks = tuple(replace(t, workspace=0, forms=()) if t.exchanges else t for t in found.tasks)
    owned = {**step.owned, SCRATCH: ((nbytes,), np.dtype(np.uint8))}
    step = replace(step, owned=owned, category={**step.category, SCRATCH: "staging"})
    return step, replace(found, tasks=tasks)


def _differs_in_size_only(problem: Problem, step: PlannedStep, like: Lowered) -> bool:
    if (step.num_constant, len(problem.tasks)) != (like.step.num_constant, len(like.listed.tasks)):
        return False  # the usual case, detected quickly
    return structure(problem) == structure(like.listed)


def staged(step: PlannedStep) -> dict[str, tuple[Shape, np.dtype[Any]]]:
    """The inputs that batches are copied to from the host, with shape and dtype."""
    return {
        key[1]: step.owned[key]
        for key, category in step.category.items()
        if category == "inputs" and key[0] == "var" and key[1] not in (*step.head_names, LOSS_SCALE)
    }


def _with_staging(step: PlannedStep, remote: Remote) -> PlannedStep:
    """`step` that owns a block in which a batch waits."""
    nbytes = remote.staging_bytes(staged(step))
    if not nbytes:
        return step
    owned = {**step.owned, STAGING: ((nbytes,), np.dtype(np.uint8))}
    return replace(step, owned=owned, category={**step.category, STAGING: "staging"})


def rewrites(backend: Backend) -> tuple[str, ...]:
    """The names of all passes that may run while a program is bound on `backend`."""
    optimize, low_memory = backend.optimize(), backend.low_memory()
    names = [p.name for stage in Stage for pipeline in (optimize, low_memory) for p in pipeline.of(stage)]
    return (*dict.fromkeys(names), *((PREVIEWS,) if makes_late(names) else ()), CONSTANTS)


def _rewritten(step: PlannedStep, backend: Backend, light: bool, variant: Pass | None) -> PlannedStep:
    """`step` rewritten by the backend's passes."""
    made = rewrite.Step.of(step.graph, step.storage, step.num_forward, train=step.train)
    made = backend.optimize().run(Stage.STEP, made)
    low_memory = backend.low_memory()
    made = low_memory.run(Stage.UNBOUNDED if light else Stage.BOUNDED, made)
    if variant is not None:
        made = low_memory.apply(variant, made)
    if made.graph is step.graph:
        return step
    assert made.num_forward is not None
    storage = {made.stands[e]: key for e, key in step.storage.items()}
    return replace(step, graph=made.graph, storage=storage, num_forward=made.num_forward)


# -- gradient accumulation in place ----------------------------------------------------------------------
#
# A weight that many nodes use (a step of a recurrent net each, or both ends of a tied pair) has a gradient of
# many terms, added up as they come. Each sum may overwrite the previous one, and the last one is the user's
# array. So all of them are that array:
#
#     d_w = t9 + t8        arena            d_w array  =  t9
#     d_w = d_w + t7       arena            d_w array +=  t8
#     ...                                   ...
#     d_w = d_w + t0       d_w array        d_w array +=  t0
#
# Nothing else uses the array meanwhile: a partial result has one reader, the task that overwrites it.


def accumulated(found: LoweredGraph, num_forward: int) -> LoweredGraph:
    """`found` with all in-place predecessors of a stored gradient stored in its array too. O(inputs).

    If there are several such inputs, the one written first is taken, which would be live longest. The first
    `num_forward` tasks are the forward pass: they may be recomputed, so their results stay in the arena.
    """
    producer, readers = [-1] * len(found.values), [0] * len(found.values)
    for t, task in enumerate(found.tasks):
        for v in task.outputs:
            if v >= 0:
                producer[v] = t
        for v in task.inputs:
            readers[v] += 1
    values, keys = list(found.values), list(found.key)

    def may_lie_at(v: int, at: int) -> bool:
        return (
            keys[v] is None
            and not values[v].fixed
            and readers[v] == 1
            and producer[v] >= num_forward
            and found.shape[v] == found.shape[at]
            and found.dtype[v] == found.dtype[at]
        )

    for gradient, key in enumerate(found.key):
        if key is None or key[0] != "grad":
            continue
        at = gradient
        while producer[at] >= num_forward:
            task = found.tasks[producer[at]]
            donors = [v for out, v in task.in_place if out == at and may_lie_at(v, at)]
            if not donors:
                break
            at = min(donors, key=lambda v: (producer[v], v))
            values[at], keys[at] = replace(values[at], fixed=True), key
    return replace(found, values=tuple(values), key=tuple(keys))


# -- previews --------------------------------------------------------------------------------------------
#
# A backend may move the computation of an output to after the forward pass, together with a weight update
# (see `backends/passes/tiling/chunked_cross_entropy.py`). Then a whole step writes its outputs there. Forward
# alone must show them as well, and change nothing: it runs **previews**, which compute the same and are left
# out of a whole step.
#
#     forward, then the rest     body, preview -> outputs     loss, update -> outputs, ...
#     a whole step               body,                        loss, update -> outputs, ...
#
# Both write to the arrays of the outputs, the same numbers. Previews are planned like everything else.


PREVIEWS = "previews"
"""The name of this rewrite."""


def makes_late(passes: Iterable[str]) -> bool:
    """True if one of `passes` moves outputs to after the forward pass; else there are no previews."""
    return "chunked_cross_entropy" in passes


def with_previews(step: PlannedStep) -> PlannedStep:
    """`step` with a preview of each output that is computed after the forward pass. O(inputs)."""
    graph, count = step.graph, step.num_forward
    operators = [n for n in graph.nodes if n.op is not None]
    late = operators[count:]
    wanted = {e.node for e, key in step.storage.items() if key[0] == "out"}.intersection(late)
    if not wanted:
        return step
    previews: list[tuple[Node, Node]] = []
    for node in reversed(late):
        if node in wanted:
            assert node.op is not None
            previews.append((node, node.op.preview(node)))
            wanted |= {e.node for e in previews[-1][1].inputs}
    shapes, dtypes, storage = dict(graph.shapes), dict(graph.dtypes), dict(step.storage)
    shown: dict[Entry, Entry] = {}
    made: list[Node] = []
    for node, preview in reversed(previews):
        inputs = tuple(shown.get(e, e) for e in preview.inputs)
        made.append(replace(preview, inputs=inputs, name=f"{node.name}_preview"))
        for i in range(preview.num_outputs):
            was, e = Entry(node, i), Entry(made[-1], i)
            shown[was] = e
            shapes[e], dtypes[e] = shapes[was], dtypes[was]
            if was in storage:
                storage[e] = storage[was]
    variables = [n for n in graph.nodes if n.op is None]
    order = (*variables, *operators[:count], *made, *late)
    new = replace(graph, order=order, shapes=shapes, dtypes=dtypes)
    before = rewrite.Step.of(graph, shown, count, train=step.train)
    return replace(
        step,
        graph=told(Rewrite(PREVIEWS, before, before.became(new, shown, count + len(made)))).graph,
        storage=storage,
        num_forward=count + len(made),
        previews=frozenset(made),
    )
