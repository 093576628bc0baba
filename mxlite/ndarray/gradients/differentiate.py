"""Gradients from the tape: the recorded steps become a graph, `graph.gradient` differentiates it, and the new
nodes are run call by call.

The graph's variables are leaves, constants, and the arrays at which the caller wants to stop. No forward node
is run: the arrays that the gradient reads were kept on the tape. Each gradient is freed after its
last reader, each step's arrays with its gradient call (unless the graph is retained), and a kernel that may
work in place does so on a gradient that has no other reader.

With `create`, forward values and gradients carry their origins and the calls are recorded like any others, so
the results can be differentiated again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ...core import Context, cpu, DTypeError, gpu, ShapeError, StateError
from ...engine import Var
from ...graph import backward, Entry, Graph, needs_head_gradient, Node, variable
from ...graph.opdef import DType
from ...ops import find_op
from ..calls.invoke import call_of, call_with, invoke
from ..calls.plan import Plan
from ..memory.lazy import Lazy, renew
from ..memory.storage import context_of, Shape, Storage
from ..memory.transfer import push_fill, push_on
from .host import PythonCall
from .tape import Leaf, MODE, note, Origin, TapeStep


@contextmanager
def scope(recording: bool | None = None, training: bool | None = None) -> Iterator[None]:
    """A context that sets this thread's modes."""
    before = MODE.switch(recording, training)
    try:
        yield
    finally:
        MODE.switch(*before)


@dataclass
class Traced:
    """The part of the tape that computed some arrays, as a graph."""

    graph: Graph
    steps: list[TapeStep]
    leaves: list[Leaf]
    entry: dict[Origin, Entry]
    step_of: dict[Node, TapeStep]
    origin: dict[Entry, Origin]
    kept: dict[Entry, tuple[Any, Var, int]] = field(default_factory=dict)
    owner: dict[Entry, tuple[str, str]] = field(default_factory=dict)  # operator and name, for errors

    def free(self) -> None:
        """Release the arrays that its steps have kept."""
        for step in self.steps:
            step.free()


_CONSTANT = variable("constant")


def trace(heads: Sequence[Origin], stop: Iterable[Origin] = (), distinct: bool = False) -> Traced:
    """The steps that `heads` depend on, up to leaves and `stop`. Raises StateError if a part is freed.

    Constants that no gradient reads share one variable, unless `distinct`.
    """
    ends = set(stop)
    steps: dict[TapeStep, None] = {}
    leaves: dict[Leaf, None] = {}
    todo = [h for h in heads if h not in ends]
    while todo:
        source = todo.pop()[0]
        if isinstance(source, Leaf):
            leaves[source] = None
        elif source not in steps:
            if source.freed:
                raise StateError(
                    f"the graph behind {source.plan.name} was freed by an earlier backward; to go through it "
                    f"twice, give the first one retain_graph=True."
                )
            steps[source] = None
            todo += [o for o in source.inputs if o is not None and o not in ends]
    order = sorted(steps, key=lambda s: s.number)
    entry: dict[Origin, Entry] = {o: variable(f"input{i}") for i, o in enumerate(ends)}
    entry.update(((leaf, 0), variable(f"var{i}")) for i, leaf in enumerate(leaves) if (leaf, 0) not in ends)
    nodes: dict[Node, None] = dict.fromkeys(e.node for e in entry.values())
    traced = Traced(Graph(()), order, list(leaves), entry, {}, {})
    for number, step in enumerate(order):
        node = _node(step, number, traced, distinct)
        traced.step_of[node] = step
        nodes.update((e.node, None) for e in node.inputs)
        nodes[node] = None
        for i in range(node.num_outputs):
            entry.setdefault((step, i), Entry(node, i))
        for (name, is_output, i), kept in zip(step.plan.keeps, step.kept):
            e = Entry(node, step.plan.places[i]) if is_output else node.inputs[i]
            traced.kept.setdefault(e, kept)  # of several versions the oldest: it has been written to
            traced.owner.setdefault(e, (step.plan.name, name))
    traced.origin = {e: o for o, e in entry.items()}
    traced.graph = Graph(tuple(entry[h] for h in heads), order=tuple(nodes))
    return traced


def _node(step: TapeStep, number: int, traced: Traced, distinct: bool) -> Node:
    plan = step.plan
    kept = (
        set(range(len(step.inputs))) if distinct else {i for _, is_output, i in plan.keeps if not is_output}
    )
    inputs = tuple(
        traced.entry[o] if o is not None else variable(f"constant{number}_{i}") if i in kept else _CONSTANT
        for i, o in enumerate(step.inputs)
    )
    op = plan.op
    name = f"{op.op_name.lower()}{number}"
    if op.forward_op is None:
        return Node(op, plan.attrs, inputs, name)
    absent = frozenset(n for n in op.input_names(plan.attrs) if n not in plan.inputs)
    forward = Node(op.forward_op, plan.attrs, (), name)
    return Node(op, plan.attrs, inputs, name, forward=forward, absent=absent)


def run_backward(
    heads: Sequence[Storage],
    head_grads: Sequence[Storage | None],
    wrt: Sequence[Origin] | None,
    *,
    retain: bool,
    create: bool = False,
    stop: Iterable[Origin] = (),
) -> list[Storage | None]:
    """Gradients of the sum of `heads` for `wrt`, None for arrays that the heads do not depend on.

    With `wrt` None: for all leaves, written as these request; returns nothing.
    """
    if wrt is None and not (retain or create) and len(heads) == 1 and head_grads[0] is None:
        handle = getattr(heads[0], "away", None)
        if isinstance(handle, Lazy) and handle.takes_backward():
            return []
    traced = trace([_head_origin(h) for h in heads], stop)
    heads = [h.plain() for h in heads]
    head_grads = [None if g is None else g.plain() for g in head_grads]
    leaves = [x for x in traced.leaves if x.req != "null"]
    if wrt is None:
        if not leaves:
            raise StateError(
                "no array in the graph has asked for its gradient: call attach_grad() on one first."
            )
        wrt = [(leaf, 0) for leaf in leaves]
        for leaf in leaves:
            renew(leaf.grad)
    else:
        leaves = []
    arrays: dict[int, Storage] = {}
    for i, (head, grad) in enumerate(zip(heads, head_grads)):
        if grad is not None:
            _check_head(head, grad)
        if needs_head_gradient(traced.graph.outputs[i].node):
            arrays[i] = grad if grad is not None else _filled(head, 1)
    entries = {i: variable(f"head_gradient{i}") for i in arrays}
    known = {o: traced.entry[o] for o in wrt if o in traced.entry}
    graph, gradients = backward(
        traced.graph, list(known.values()), entries, again=find_op if create else None
    )
    gradient_of = dict(zip(known, gradients))
    grads = [gradient_of.get(o) for o in wrt]
    forward = set(traced.graph.nodes)
    new_nodes = [n for n in graph.nodes if n.op is not None and n not in forward]
    run = _Run(traced, new_nodes, grads, retain, create, type(heads[0]), heads[0].context)
    run.check_versions()
    run.values.update((e, arrays[i]) for i, e in entries.items())
    destination = {} if create else _destinations(leaves, grads, run)
    try:
        for node in new_nodes:
            run.call(node, destination)
    except BaseException:  # a Python function's own, or an interrupt: some kept arrays are gone
        if not retain:
            traced.free()
        raise
    results: list[Storage | None] = []
    if leaves:
        with scope(recording=False, training=False):
            for leaf, g in zip(leaves, grads):
                leaf.fresh = True
                if g is None or destination.get(g) is not leaf.grad:
                    _deliver(leaf, None if g is None else run.values[g])
    else:
        for o, g in zip(wrt, grads):
            behind = g is None and o in known
            results.append(run.zeros(known[o]) if behind else None if g is None else run.result(g))
    if not retain:
        traced.free()
    return results


def _head_origin(head: Storage) -> Origin:
    origin = head.origin
    if origin is None:
        raise StateError(
            "this array is not on the tape: it was not computed under autograd.record() from an array with "
            "attach_grad()."
        )
    return origin


def _check_head(head: Storage, grad: Storage) -> None:
    if grad.storage.shape != head.storage.shape:
        raise ShapeError(
            f"a head of shape {head.storage.shape} has a gradient of shape {grad.storage.shape}."
        )
    if grad.storage.dtype != head.storage.dtype:
        raise DTypeError(f"a head of {head.storage.dtype} has a gradient of {grad.storage.dtype}.")


def _filled(like: Storage, value: float) -> Storage:
    filled = type(like).fresh(like.storage.shape, like.storage.dtype, like.context)
    push_fill(filled, value, name="full")
    return filled


def _destinations(leaves: list[Leaf], grads: Sequence[Entry | None], run: _Run) -> dict[Entry, Storage]:
    """Memory of `.grad` for gradients that are computed in place there: those to be written, whose old
    values nothing reads."""
    read = {kept[1] for e, kept in run.traced.kept.items() if e in run.uses}
    read |= {a.var for a in run.values.values()}
    destinations: dict[Entry, Storage] = {}
    for leaf, g in zip(leaves, grads):
        if g is not None and leaf.req == "write" and g not in destinations and g.node.op is not None:
            if leaf.grad.var not in read and leaf.grad.stype == "default":
                read.add(leaf.grad.var)
                destinations[g] = leaf.grad
    return destinations


def _is_host(node: Node) -> bool:
    return node.op is PythonCall.grad_op


def _deliver(leaf: Leaf, result: Storage | None) -> None:
    """Write or add a gradient to its leaf. A leaf that was reached without one has the gradient 0."""
    grad = leaf.grad
    if result is None:
        if leaf.req == "write":
            grad[:] = 0
    elif leaf.req == "add":
        invoke(call_of("elemwise_add", {}), (grad, result), grad)
    else:
        result.copyto(grad)  # type: ignore[attr-defined]


class _Run:
    """The calls of one backward pass, and their intermediate arrays."""

    def __init__(
        self,
        traced: Traced,
        made: Sequence[Node],
        grads: Sequence[Entry | None],
        retain: bool,
        create: bool,
        cls: type[Storage],
        context: Context,
    ) -> None:
        self.traced = traced
        self.retain = retain
        self.create = create
        self.cls = cls
        self.context = context
        self.values: dict[Entry, Storage] = {}
        # Arrays allocated here: a kernel may overwrite one at its last use. Results of Python functions are
        # not among them: one may be the head gradient itself, one array for two arguments, or a user's array.
        self.owned: set[Entry] = set()
        self.uses: dict[Entry, int] = {}
        self.mode = MODE.recording, MODE.training
        self.step_of = dict(traced.step_of)
        for e in (*(e for n in made for e in n.inputs), *(g for g in grads if g is not None)):
            self.uses[e] = self.uses.get(e, 0) + 1
        self.mutated = {
            e
            for n in made
            if n.op is not None and n.op.mutated(n.attrs)
            for name, e in zip(n.input_names, n.inputs)
            if name in n.op.mutated(n.attrs)
        }

    def check_versions(self) -> None:
        """Raise StateError if an array that will be read was written since it was recorded.

        The running averages that a gradient moves do not count.
        """
        for e, (_, var, pushes) in self.traced.kept.items():
            if var.pushes != pushes and e in self.uses and e not in self.mutated:
                op, name = self.traced.owner[e]
                raise StateError(
                    f"the gradient of {op} reads its {name!r}, but that array was written after it was "
                    f"recorded. Write to it after backward, or give {op} a copy."
                )

    def value(self, e: Entry) -> Storage:
        """The array of an entry: computed here, kept on the tape, or zeros if only the shape counts."""
        storage = self.values.get(e)
        if storage is not None:
            return storage
        kept = self.traced.kept.get(e)
        if kept is not None:
            raw, var, _ = kept
        else:
            zeros = self.zeros(e)
            raw, var = zeros.storage, zeros.var
        storage = self.cls.adopt(raw, context_of(raw, self.context))
        storage.var = var
        if self.create:
            storage.origin = self.traced.origin.get(e)
        self.values[e] = storage
        return storage

    def zeros(self, e: Entry) -> Storage:
        """Zeros like a forward entry."""
        storage = self.cls.fresh(*self.kind(e))
        push_fill(storage, 0, name="full")
        return storage

    def result(self, e: Entry) -> Storage:
        """The array of a requested gradient, shared with nothing else."""
        storage = self.values[e]
        if not _is_host(e.node):
            return storage
        with scope(recording=self.create):
            copied: Storage = storage.copy()  # type: ignore[attr-defined]
        return copied

    def kind(self, e: Entry) -> tuple[Shape, DType, Context]:
        """Shape, dtype and device of a forward entry."""
        step = self.step_of.get(e.node)
        if step is not None:
            return *step.plan.outputs[e.index], self.place(step.plan)
        return next(
            (*s.plan.kinds[i], self.place(s.plan))
            for n, s in self.step_of.items()
            for i, x in enumerate(n.inputs)
            if x == e
        )

    def place(self, plan: Plan) -> Context:
        """The device of a plan's arrays."""
        place = plan.backend.place
        if place == "cpu":
            return self.context if self.context.device_type != "gpu" else cpu()
        return gpu(place.index)

    def call(self, node: Node, destination: dict[Entry, Storage]) -> None:
        """Run one node and release the arrays that it read last."""
        op = node.op
        assert op is not None
        ins = [self.value(e) for e in node.inputs]
        if op.op_name != "_grad_add":  # sums of sparse gradients are sparse
            for i, a in enumerate(ins):
                if a.stype != "default":
                    ins[i] = self.values[node.inputs[i]] = a.plain()
        outs = [*node.outputs]
        if _is_host(node):
            results = self._host(node, ins, destination)
        elif node.forward is not None:
            results = self._gradient(node, ins, outs, destination)
        elif self.create:
            with scope(True, self.mode[1]):
                result = invoke(call_with(op, node.attrs), ins)
            results = dict(zip(outs, [result] if isinstance(result, Storage) else result))
        else:
            target = next((destination[e] for e in outs if e in destination), None)
            if target is None:
                donor = next((x for x in self._donors(node) if x is not None), None)
                target = None if donor is None else self.values[donor]
            with scope(False, False):
                result = invoke(call_with(op, node.attrs), ins, target)
            results = {outs[0]: result}
        self.values.update((e, a) for e, a in results.items() if e in self.uses)
        if not self.create and not _is_host(node):
            self.owned.update(e for e in results if e not in destination)
        for e in node.inputs:
            self.uses[e] -= 1
            if not self.uses[e]:
                self.values.pop(e, None)
                if not self.retain:
                    self.traced.kept.pop(e, None)
        if node.forward is not None and not self.retain:
            self.step_of[node.forward].kept = ()

    def _donors(self, node: Node) -> list[Entry | None]:
        """For the first output of an operator, the inputs whose memory it may reuse."""
        assert node.op is not None
        names = node.op.in_place_options(node.attrs).get(node.output_names[0], ())
        return [e for n, e in zip(node.input_names, node.inputs) if n in names and self._dying(e)]

    def _dying(self, e: Entry) -> bool:
        return e in self.owned and self.uses[e] == 1

    def _gradient(
        self, node: Node, ins: list[Storage], outs: list[Entry], destination: dict[Entry, Storage]
    ) -> dict[Entry, Storage]:
        """Run a call of a gradient operator."""
        assert node.forward is not None
        step = self.step_of[node.forward]
        wanted = [e for e in outs if e in self.uses]
        plan = step.plan.gradient(node.input_names, tuple(e in self.uses for e in outs))
        arrays = []
        for k, e in enumerate(wanted):
            place = destination.get(e)
            if place is None:
                place = self._taken(node, plan, k)
            arrays.append(self.cls.fresh(*plan.makes[k], self.place(plan)) if place is None else place)
        run = plan.bind([a.storage for a in ins], [a.storage for a in arrays], step.stream, step.state)
        mutated = [ins[i] for i in plan.mutated]
        reads = [a.var for a in ins] + [a.var for a in arrays if a.partial]
        versions = [a.var.pushes for a in ins]
        push_on(plan.backend, run, reads, [a.var for a in (*arrays, *mutated)], name=plan.name)
        if self.create and any(a.origin is not None for a in ins):
            note(plan, tuple(a.origin for a in ins), ins, versions, arrays)
        return dict(zip(wanted, arrays))

    def _taken(self, node: Node, plan: Plan, k: int) -> Storage | None:
        """The memory of an input that output number `k` may overwrite."""
        for i in plan.donors[k]:
            e = node.inputs[i]
            if self._dying(e) and plan.kinds[i] == plan.makes[k]:
                self.owned.discard(e)
                return self.values[e]
        return None

    def _host(
        self, node: Node, ins: list[Storage], destination: dict[Entry, Storage]
    ) -> dict[Entry, Storage]:
        """The gradient of a Python function, which pushes calls itself.

        Of gradients that it does not write into their places, the places are removed from `destination`.
        """
        assert node.forward is not None
        step = self.step_of[node.forward]
        have = dict(zip(node.input_names, ins))
        heads = [have.get(f"d_output{i}") for i in range(node.attrs.num_outputs)]
        names = node.output_names
        wanted = [n for i, n in enumerate(names) if Entry(node, i) in self.uses]
        with scope(self.create, self.mode[1]):
            for i, (shape, dtype) in enumerate(step.plan.outputs):
                if heads[i] is None:  # no gradient has arrived: it is 0
                    zeros = heads[i] = self.cls.fresh(shape, dtype, self.place(step.plan))
                    push_fill(zeros, 0, name="full")
            assert step.state is not None
            places = [destination.get(Entry(node, i)) for i in range(len(names))]
            gradients = step.state["call"].differentiate(heads, [n in wanted for n in names], places)
        for i, (place, gradient) in enumerate(zip(places, gradients)):
            if place is not None and gradient is not place:
                del destination[Entry(node, i)]
        return {Entry(node, i): g for i, (n, g) in enumerate(zip(names, gradients)) if n in wanted}
