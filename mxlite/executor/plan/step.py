"""A step of a bound program as a graph, with the storage it owns.

From a forward graph, shapes and gradient requests comes a graph that also holds the backward nodes and,
when an optimizer is given, its updates. Entries that the user can see live in **storage** of their own,
named by a key; everything else is left to the memory planner.

    ("var", name)        an argument, auxiliary state or optimizer state: a variable of the graph
    ("out", i)           output i
    ("grad", name)       the gradient of an argument
    ("rows", name)       flags of the rows that the gradient reaches, if MXNet would store those alone
    ("token", i)         what orders messages among ranks, see `rank_sums.py`
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ...core import BindError, is_floating, nearest, UnknownNameError
from ...core.cached import cached_property
from ...core.dtype import float32
from ...graph import (
    backward,
    Entry,
    fuse_updates,
    Graph,
    infer_shapes,
    infer_types,
    LOSS_SCALE,
    needs_head_gradient,
    NoAttrs,
    Node,
    Op,
    parse_attrs,
    Scaling,
    Shape,
    state_name,
    UpdateRule,
    variable,
)
from ...graph.update import HISTORY, HYPER
from ...ops import find_op
from .rank_sums import summed_over_ranks, tokens_of, with_sharded_updates
from .row_gradients import is_row_sparse, touched_rows

Key = tuple[str, Any]
GRAD_REQS = ("null", "write", "add")


class Copied(Op):
    """A value in storage of its own, ``out = data``."""

    op_name = "_copy"
    inputs = ("data",)
    same_shape = True
    cheap = True
    gradient_is = {"data": "d_out"}

    @staticmethod
    def forward(xp, a, data, *, out):
        out[...] = data


class _accumulate(Op):
    """``total += term``: gradient accumulation on the user's request."""

    inputs = ("total", "term")
    outputs = ()
    mutates = ("total",)
    same_shape = True
    recomputable = False

    @staticmethod
    def forward(xp, a, total, term):
        xp.add(total, term, out=total)


@dataclass(frozen=True)
class PlannedStep:
    """A training or inference step before planning.

    `graph.nodes` is in execution order; its first `num_forward` operator nodes are the forward pass.
    `storage` maps results of nodes to the storage they are written to (a variable without
    an entry here is stored under its own name). `owned` is everything
    that lies outside the arena: key -> (shape, dtype), and `category` the plan's category of each.
    `points` are the watched gradients, by name, with their storage. `previews` are those
    nodes of the forward pass that a whole step leaves out (see `lower.py`). `streams` are the numbers of the
    random streams of its nodes, in their order, where it is one device's part of a step; None: 0, 1, ...
    `no_gradient` are arguments with a gradient request on which no output depends; `learns`: True if any
    requested gradient exists. The first `num_constant`
    operator nodes need running only when an argument has changed (see `constants.py`). `forms` are those of
    variables that are kept in another form in their own bytes (see `away.py`).
    """

    graph: Graph
    num_forward: int
    train: bool
    storage: Mapping[Entry, Key]
    owned: Mapping[Key, tuple[Shape, np.dtype[Any]]]
    category: Mapping[Key, str]
    head_names: tuple[str | None, ...] = ()
    no_gradient: tuple[str, ...] = ()
    learns: bool = False
    updated: tuple[str, ...] = ()
    num_constant: int = 0
    forms: Mapping[Key, Any] = field(default_factory=dict)
    points: tuple[tuple[str, Key], ...] = ()
    previews: frozenset[Node] = frozenset()
    streams: tuple[int, ...] | None = None

    @cached_property
    def parts(self) -> Mapping[str, Shape]:
        """Variables of which each rank of a job keeps the parts that it adds up, with the shapes of the whole
        arrays: see `comm.own_parts`.
        """
        gather, update = find_op("_gather_over_ranks"), find_op("_sharded_update")
        found: dict[str, Shape] = {}
        for node in self.graph.nodes:
            if node.op is gather:
                found[node.inputs[0].node.name] = node.attrs.shape
            elif node.op is update:
                states = node.inputs[2 : 2 + node.attrs.states]
                found |= dict.fromkeys((e.node.name for e in states), self.graph.shapes[node.inputs[0]])
        names = (str(k[1]) for k, c in self.category.items() if c == "optimizer")
        return found | {n: found[w] for n in names if (w := n.rpartition(":")[0]) in found}

    @property
    def gathers(self) -> bool:
        """True if each rank keeps only a part of some weights."""
        gather = find_op("_gather_over_ranks")
        return any(n.op is gather for n in self.graph.nodes)


@dataclass
class _Owned:
    shapes: dict[Key, tuple[Shape, np.dtype[Any]]] = field(default_factory=dict)
    category: dict[Key, str] = field(default_factory=dict)

    def add(self, key: Key, graph: Graph, entry: Entry, category: str) -> None:
        self.shapes[key] = (graph.shapes[entry], graph.dtypes[entry])
        self.category[key] = category


def input_names(graph: Graph, given: Sequence[str]) -> set[str]:
    """Arguments that are data, not parameters: those whose shape was given, and labels of losses."""
    result = {n.name for n in graph.arguments if n.name in set(given)}
    for node in graph.nodes:
        if node.op is not None and node.op.is_loss:
            result |= {e.node.name for e in node.inputs[1:] if e.node.op is None}
    return result


def check_grad_req(graph: Graph, grad_req: Any) -> dict[str, str]:
    """A request for every argument from one word, a list, or a dict (names left out are 'null').

    A dict may name what is no argument, as in MXNet, unless that is similar to a missing one.
    """
    names = [n.name for n in graph.arguments]
    if isinstance(grad_req, str):
        result = dict.fromkeys(names, grad_req)
    elif isinstance(grad_req, Mapping):
        left_out = [n for n in names if n not in grad_req]
        for name in grad_req:
            if name not in names and (meant := nearest(name, left_out)):
                raise UnknownNameError(f"grad_req names {name!r}, which is no argument.{meant}")
        result = {n: grad_req.get(n, "null") for n in names}
    else:
        if not isinstance(grad_req, Sequence):
            raise BindError(f"grad_req is one of {GRAD_REQS}, or a list or dict of them; got {grad_req!r}.")
        if len(grad_req) != len(names):
            raise BindError(f"grad_req has {len(grad_req)} entries for {len(names)} arguments.")
        result = dict(zip(names, grad_req))
    for name, req in result.items():
        if req not in GRAD_REQS:
            raise BindError(
                f"grad_req of {name!r} must be one of {GRAD_REQS}, got {req!r}.{nearest(str(req), GRAD_REQS)}"
            )
    return result


def forward_step(graph: Graph, inputs: set[str], train: bool) -> PlannedStep:
    """The forward pass alone. `graph` has all shapes and dtypes."""
    graph, storage = _own_outputs(graph)
    owned = _own_variables(graph, inputs)
    for entry, key in storage.items():
        owned.add(key, graph, entry, "outputs")
    count = sum(1 for n in graph.nodes if n.op is not None)
    return PlannedStep(graph, count, train, storage, owned.shapes, owned.category)


def training_step(
    graph: Graph,
    inputs: set[str],
    grad_req: Mapping[str, str],
    rule: UpdateRule | None = None,
    scaling: Scaling | None = None,
    count: int | None = None,
    points: Sequence[str] = (),
    ranks: int = 1,
    shard: bool = False,
) -> PlannedStep:
    """Forward, backward and, with `rule`, the update of every argument whose request is not 'null'.

    With `scaling` too, an update that overflows is skipped. Outputs beyond the first `count` are only
    watched; so are the gradients at the nodes called `points` (see `watch.py`). Updates read gradients that
    are summed over `ranks`; with `shard` each rank keeps only a part of the states of large weights. A weight
    that is gathered is updated by its part of the sum.
    """
    graph, storage = _own_outputs(graph)
    owned = _own_variables(graph, inputs)
    for entry, key in storage.items():
        owned.add(key, graph, entry, "outputs")
    num_forward = sum(1 for n in graph.nodes if n.op is not None)
    wanted = [
        Entry(n)
        for n in graph.arguments
        if grad_req.get(n.name, "null") != "null" and (rule is None or is_floating(graph.dtypes[Entry(n)]))
    ]
    graph, heads = _head_gradients(graph, count) if wanted else (graph, {})
    named = {n.name: Entry(n) for n in graph.nodes if n.name in set(points)}
    looked_at = [(name, named[name]) for name in points if name in named]
    trained, grads = backward(
        graph, [*wanted, *(e for _, e in looked_at)], heads, starts=count, find_op=find_op
    )
    there = [(name, g) for (name, _), g in zip(looked_at, grads[len(wanted) :]) if g is not None]
    used = set(trained.variables)
    heads = {i: e for i, e in heads.items() if e.node in used}
    for e in heads.values():
        owned.add(("var", e.node.name), graph, e, "inputs")

    found = [(x, g) for x, g in zip(wanted, grads) if g is not None]
    if rule is not None and found:
        trained, found = _with_zeros(trained, rule, list(zip(wanted, grads)))
    flags, made = touched_rows(graph, [x for x, _ in found])
    if rule is not None:
        lazy = (x for x in flags if rule.lazy_always or is_row_sparse(x))
        flags = {x: flags[x] for x in lazy if rule.lazy_of(graph.dtypes.get(x, float32))}
        if flags:
            trained = replace(trained, order=(*trained.nodes, *made))
        trained = replace(trained, outputs=graph.outputs)
        trained = _with_updates(trained, rule, found, owned, scaling, flags, storage, ranks, shard)
    else:
        flags = {x: f for x, f in flags.items() if grad_req[x.node.name] == "write"}
        if flags:
            trained = replace(trained, order=(*trained.nodes, *made))
        trained = _with_gradient_storage(trained, graph, found, grad_req, storage)
        trained = _with_flags_stored(trained, flags, storage, owned)
        for weight in wanted:
            owned.add(("grad", weight.node.name), graph, weight, "gradients")
    trained, shown = _with_points_stored(trained, there, storage, owned)
    return PlannedStep(
        trained,
        num_forward,
        True,
        storage,
        owned.shapes,
        owned.category,
        head_names=tuple(
            heads[i].node.name if i in heads else None for i in range(len(graph.outputs[:count]))
        ),
        no_gradient=tuple(x.node.name for x, g in zip(wanted, grads) if g is None),
        learns=bool(found),
        updated=tuple(x.node.name for x, _ in found) if rule is not None else (),
        points=shown,
    )


def _over_ranks(
    trained: Graph,
    rule: UpdateRule | None,
    found: Sequence[tuple[Entry, Entry]],
    flags: Mapping[Entry, Entry],
    hyper: Entry,
    ranks: int,
) -> tuple[Graph, list[tuple[Entry, Entry]], dict[Entry, Entry], dict[Entry, Shape]]:
    """Gradients summed over all ranks, and flags of the rows that the gradient of any rank reaches.

    With a `rule` the ranks share the updates of large weights; given last are the shapes of their states.
    """
    shapes, dtypes = dict(trained.shapes), dict(trained.dtypes)
    for weight, gradient in found:
        shapes[gradient], dtypes[gradient] = shapes[weight], dtypes[weight]
    for weight, flag in flags.items():
        shapes[flag], dtypes[flag] = shapes[weight][:1], np.dtype(np.uint8)
    trained = replace(trained, shapes=shapes, dtypes=dtypes)
    parts: dict[Entry, Shape] = {}
    token: tuple[Entry, ...] = ()
    if rule is not None:
        trained, parts, token = with_sharded_updates(trained, rule, found, flags, hyper, ranks)
    scatter = find_op("_scatter_over_ranks")  # whose outputs are sums already
    entries = [*(g for w, g in found if w not in parts and g.node.op is not scatter), *flags.values()]
    trained, total = summed_over_ranks(trained, entries, ranks, token)
    summed = [(w, total.get(g, g)) for w, g in found]
    return trained, summed, {w: total[f] for w, f in flags.items()}, parts


def _with_points_stored(
    trained: Graph, points: Sequence[tuple[str, Entry]], storage: dict[Entry, Key], owned: _Owned
) -> tuple[Graph, tuple[tuple[str, Key], ...]]:
    """Store the watched gradients: in storage of their own, except those that have some already."""
    shown: list[tuple[str, Key]] = []
    kept: list[Entry] = []
    for name, g in points:
        if g not in storage and g.node.op is not None:
            storage[g] = ("watched", name)
            owned.add(storage[g], trained, g, "outputs")
            kept.append(g)
        shown.append((name, storage.get(g, ("var", g.node.name))))
    return replace(trained, outputs=(*trained.outputs, *kept)), tuple(shown)


def _head_gradients(graph: Graph, count: int | None) -> tuple[Graph, dict[int, Entry]]:
    """A variable for the gradient of each output that is no loss; the graph knows their shapes."""
    heads: dict[int, Entry] = {}
    shapes, dtypes = dict(graph.shapes), dict(graph.dtypes)
    for i, e in enumerate(graph.outputs[:count]):
        if needs_head_gradient(e.node) and not _is_blocked(e):
            heads[i] = variable(f"{e.node.name}_head_gradient{i}")
            shapes[heads[i]], dtypes[heads[i]] = shapes[e], dtypes[e]
    return replace(graph, shapes=shapes, dtypes=dtypes), heads


def _with_zeros(
    trained: Graph, rule: UpdateRule, gradients: Sequence[tuple[Entry, Entry | None]]
) -> tuple[Graph, list[tuple[Entry, Entry]]]:
    """Parameters with their gradients; zeros for one that no output's gradient reaches. It is updated like
    all others, because it decays and has momentum, unless only rows with a gradient are updated.
    """
    shapes, dtypes, order = dict(trained.shapes), dict(trained.dtypes), list(trained.nodes)
    found: list[tuple[Entry, Entry]] = []
    for weight, gradient in gradients:
        if gradient is None:
            if rule.lazy is not None and is_row_sparse(weight):
                continue
            shape, dtype = shapes[weight], dtypes[weight]
            attrs = parse_attrs(find_op("_zeros"), {"shape": str(shape), "dtype": dtype.name})
            order.append(Node(find_op("_zeros"), attrs, (), f"{weight.node.name}_gradient"))
            gradient = Entry(order[-1])
            shapes[gradient], dtypes[gradient] = shape, dtype
        found.append((weight, gradient))
    return replace(trained, order=tuple(order), shapes=shapes, dtypes=dtypes), found


def _with_updates(
    trained: Graph,
    rule: UpdateRule,
    found: Sequence[tuple[Entry, Entry]],
    owned: _Owned,
    scaling: Scaling | None,
    flags: Mapping[Entry, Entry],
    storage: dict[Entry, Key],
    ranks: int,
    shard: bool,
) -> Graph:
    """Add an update for each (parameter, gradient); gradients need no storage then, states do."""
    hyper = variable(HYPER)
    parts: dict[Entry, Shape] = {}  # of states that ranks share
    if ranks > 1 and found:
        shared = rule if shard else None
        trained, found, flags, parts = _over_ranks(trained, shared, found, flags, hyper, ranks)
    scale = next((Entry(n) for n in trained.variables if n.name == LOSS_SCALE), None)
    if scale is None and scaling is not None:
        scale = variable(LOSS_SCALE)  # of a network that has nothing in 16 bits
    trained = fuse_updates(trained, rule, found, scaling, scale, flags, hyper, parts)
    shapes: dict[str, Shape] = {HYPER: (max(1, len(found)), rule.rates)}
    types: dict[str, Any] = {HYPER: "float64"}
    if scaling is not None and found:
        shapes |= {LOSS_SCALE: (2,), HISTORY: (3,)}
        types |= {LOSS_SCALE: "float32", HISTORY: "float64"}
    for weight, _ in found:
        dtype = trained.dtypes[weight]
        mixed = rule.op_of(dtype) is not rule.op
        for s in rule.states_of(dtype):
            name = state_name(weight.node.name, s)
            shapes[name] = parts.get(weight, trained.shapes[weight])
            types[name] = "float32" if mixed else dtype
    trained = infer_types(infer_shapes(trained, shapes), types)
    for node in trained.variables:
        if node.name in shapes:
            owned.add(("var", node.name), trained, Entry(node), "optimizer")
    for number, token in enumerate(tokens_of(trained)):
        storage[token] = ("token", number)
        owned.add(storage[token], trained, token, "staging")
    return trained


def _with_flags_stored(
    trained: Graph, flags: Mapping[Entry, Entry], storage: dict[Entry, Key], owned: _Owned
) -> Graph:
    """Store the flags of the rows that gradients reach, each in storage of its own."""
    order, kept = list(trained.nodes), []
    for weight, flag in flags.items():
        if flag in storage:
            order.append(Node(Copied, NoAttrs(), (flag,), f"{weight.node.name}_rows"))
            flag = Entry(order[-1])
        storage[flag] = ("rows", weight.node.name)
        kept.append(flag)
    if not kept:
        return trained
    outputs = (*trained.outputs, *kept)
    trained = infer_types(infer_shapes(replace(trained, outputs=outputs, order=tuple(order)), {}), {})
    for flag in kept:
        owned.add(storage[flag], trained, flag, "outputs")
    return trained


def _with_gradient_storage(
    trained: Graph,
    graph: Graph,
    found: Sequence[tuple[Entry, Entry]],
    grad_req: Mapping[str, str],
    storage: dict[Entry, Key],
) -> Graph:
    """Set the storage of each gradient: written there, or accumulated.

    A gradient that is a variable, or that has storage already, is copied.
    """
    shapes, dtypes = dict(trained.shapes), dict(trained.dtypes)
    order, effects = list(trained.nodes), []
    for weight, g in found:
        name = weight.node.name
        if grad_req[name] == "add":
            total = variable(f"{name}_total_gradient")
            shapes[total], dtypes[total] = shapes[weight], dtypes[weight]
            storage[total] = ("grad", name)
            effects.append(Node(_accumulate, NoAttrs(), (total, g), f"{name}_accumulate"))
            order += [total.node, effects[-1]]
            continue
        if g.node.op is None or g in storage:
            copy = Node(Copied, NoAttrs(), (g,), f"{name}_gradient")
            order.append(copy)
            g = Entry(copy)
        storage[g] = ("grad", name)
    made = (e for e, k in storage.items() if k[0] == "grad" and e.node.op is not None)
    trained = replace(
        trained,
        outputs=(*graph.outputs, *made),
        effects=tuple(effects),
        order=tuple(order),
        shapes=shapes,
        dtypes=dtypes,
    )
    return infer_types(infer_shapes(trained, {}), {})


def _is_blocked(entry: Entry) -> bool:
    """True if no gradient can pass this output's operator."""
    op = entry.node.op
    return op is not None and op.grad_op is None and not op.gradient_is


def _own_outputs(graph: Graph) -> tuple[Graph, dict[Entry, Key]]:
    """Give each output storage of its own; a variable, or an entry that is output twice, is copied."""
    storage: dict[Entry, Key] = {}
    outputs, added = [], []
    shapes, dtypes = dict(graph.shapes), dict(graph.dtypes)
    for i, e in enumerate(graph.outputs):
        if e.node.op is None or e in storage:
            copy = Node(Copied, NoAttrs(), (e,), f"{e.node.name}_output")
            shapes[Entry(copy)], dtypes[Entry(copy)] = shapes[e], dtypes[e]
            added.append(copy)
            e = Entry(copy)
        storage[e] = ("out", i)
        outputs.append(e)
    order = (*graph.nodes, *added)
    return replace(graph, outputs=tuple(outputs), order=order, shapes=shapes, dtypes=dtypes), storage


def _own_variables(graph: Graph, inputs: set[str]) -> _Owned:
    owned = _Owned()
    states = set(graph.auxiliary)
    for node in graph.variables:
        category = "auxiliary" if node in states else "inputs" if node.name in inputs else "arguments"
        owned.add(("var", node.name), graph, Entry(node), category)
    return owned
