"""Kernels of control flow: a subgraph planned once, and the loops that run it.

A subgraph becomes a **part**: its kernel calls on fixed arrays, and a memory plan of its own. All arrays of a
part lie in the `work` of the node that holds it, so that the plan around counts every byte:

    work  | rows | states | results | random state | arena of the part that runs |

Arguments that are used as a whole (weights) are read in place. The cost of an iteration besides its
kernels is the copy of a row or a state: no plan, no lookup and no allocation happen while a loop runs.

Random numbers: iteration t of the node with stream s draws from streams of its own seed and step, which are
the four words of block t of stream s. Backward, which recomputes the body, gets the same ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from math import fsum
from typing import Any

import numpy as np

from ...core import config
from ...core.compat.npshape import is_np_shape
from ...core.dtype import as_dtype, is_floating
from ...graph import Entry, Graph, infer_shapes, infer_types, Node, Shapes, Signature, variable
from ...graph.opdef import DType
from ...memplan import Device
from ...ops.control.control import Control, Plug
from ...ops.control.control_shapes import typed_subgraphs
from ...ops.control.subgraph import gradient_graph
from ...ops.random.philox import RandomStream
from ...ops.scratch import accumulator, carve, Piece, scratch_bytes
from ..base import Backend, ChosenKernel, Request
from .loops import Reseed, run_back, run_backward, run_loop, SEEDS
from .part import apart, Part, Run

_STATE = np.dtype("uint64")
_BYTE = as_dtype("uint8")


class _Linked(partial[None]):
    """A call that is linked when it is first made, and from then on only run."""

    run: Run | None = None

    def __call__(self, /, *args: Any, **keywords: Any) -> None:
        if self.run is None:
            self.run = self.func.link(*self.args[2:], **self.keywords)  # type: ignore[attr-defined]
        self.run()


def control_kernel(backend: Backend, request: Request) -> ChosenKernel:
    """The kernel of an operator with subgraphs, or of its gradient; see `Backend.control`."""
    op, attrs, used = request.op, request.attrs, request.used
    forward = op.forward_op or op
    assert issubclass(forward, Control)
    names = used if used is not None else frozenset((*op.input_names(attrs), *op.output_names(attrs)))
    key = _Same(backend), op, forward, attrs, tuple(request.inputs), request.dtypes, names, is_np_shape()
    return _kernel(*key)


class _Same:
    """A backend as a key: by identity, and by the settings besides the request that its choice depends on."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.settings = (backend.threads(), config.kernel_kinds())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.backend is self.backend and other.settings == self.settings

    def __hash__(self) -> int:
        return id(self.backend)


def _make_kernel(
    same: _Same,
    op: Any,
    forward: Any,
    attrs: Any,
    inputs: Shapes,
    dtypes: tuple[DType, ...],
    used: frozenset[str],
    np_shape: bool,
) -> ChosenKernel:
    graphs = typed_subgraphs(forward, attrs, inputs, dtypes)
    made: type[_LoopForward | _LoopBackward] = _LoopForward if op is forward else _LoopBackward
    run = made(same.backend, forward, attrs, inputs, dtypes, graphs, used)
    signature = op.signature
    services = frozenset(("work", "train", "rng"))
    signature = Signature(signature.needs, signature.makes, services)
    plain = all(call.kernel.is_reference for part in run.every_part for call in part.lowered.calls)
    return ChosenKernel(run, run.nbytes, "planned body", signature, _Linked, run.seconds, plain)


_kernel: Callable[..., ChosenKernel] = lru_cache(maxsize=256)(_make_kernel)


class _Kernel:
    """Base of the kernels of both directions: sources of the inputs of subgraphs."""

    def __init__(
        self,
        backend: Backend,
        op: type[Control],
        attrs: Any,
        shapes: Shapes,
        dtypes: tuple[DType, ...],
        graphs: tuple[Graph, ...],
        used: frozenset[str],
    ) -> None:
        self.backend, self.op, self.attrs = backend, op, attrs
        self.shapes, self.dtypes = shapes, dtypes
        self.plugs = op.plugs(attrs)
        self.data, self.state_args = op.data_args(attrs), op.state_args(attrs)
        self.rows = attrs.num_outputs - len(self.state_args)  # outputs that are no states
        self.count = op.iterations(attrs, shapes)
        self.graphs = graphs
        # From the graphs, not from `attrs`: their shapes may have been inferred for an equal subgraph.
        self.inputs = [g.variables for g in graphs]
        self.streams: dict[Node, int] = {}  # numbered by the subgraphs, so that both directions agree
        for g in graphs:
            for n in g.nodes:
                if n.op is not None and n.op.has_stream(n.attrs):
                    self.streams[n] = len(self.streams)
        self.deciding = op.num_deciding()
        self.every_part: list[Part] = []
        rows = {}
        for plugs, nodes, g in zip(self.plugs, self.inputs, graphs):
            for (kind, i), n in zip(plugs, nodes):
                if kind == "data":
                    rows[i] = (g.shapes[Entry(n)], g.dtypes[Entry(n)])
        self.row_pieces: list[Piece] = [rows[i] for i in self.data]
        self.state_pieces: list[Piece] = [(shapes[i], dtypes[i]) for i in self.state_args]
        self.random_pieces: list[Piece] = []
        if self.streams:
            self.random_pieces = [
                ((2,), _STATE),
                ((SEEDS, 2), _STATE),
                ((RandomStream.work_bytes(4 * SEEDS),), _BYTE),
            ]
        self.pieces = self.prepare(used)
        self.nbytes = scratch_bytes(self.pieces)

    def prepare(self, used: frozenset[str]) -> list[Piece]:
        """Plan the subgraphs for a call of which these inputs and outputs are `used`; returns its scratch."""
        raise NotImplementedError

    def feed(
        self, plugs: Iterable[Plug], args: Sequence[Any], rows: Sequence[Any], states: Sequence[Any]
    ) -> list[Any]:
        """The arrays of a subgraph's inputs."""
        return [rows[i] if kind == "data" else states[i] if kind == "state" else args[i] for kind, i in plugs]

    def reseeding(self, pieces: Sequence[Any], rng: Any) -> Reseed | None:
        """Setter of each iteration's random state, if the subgraphs draw and there is a stream."""
        return Reseed(self.backend.xp, rng, *pieces) if pieces and rng is not None else None

    def __call__(self, xp: Any, a: Any, *args: Any, **keywords: Any) -> None:
        """Link and run once."""
        self.link(*args, **keywords)()

    def seconds(self, device: Device) -> float:
        """Modelled time of a call on `device`: all iterations, with the slowest of the branches."""
        first = len(self.every_part) - (len(self.inputs) - self.deciding)
        times = [p.seconds(device) for p in self.every_part]
        return self.count * (max(times[first:]) + fsum(times[:first]))

    def link(self, *args: Any, **keywords: Any) -> Run:
        raise NotImplementedError


class _LoopForward(_Kernel):
    def prepare(self, used: frozenset[str]) -> list[Piece]:
        # An output that is not read is not computed, unless it is a state.
        kept = [i for i in range(self.attrs.num_outputs) if i >= self.rows or f"output{i}" in used]
        self.kept = kept
        self.parts = []
        for k, (g, nodes) in enumerate(zip(self.graphs, self.inputs)):
            if k >= self.deciding:
                states = [nodes[j] for j, (kind, _) in enumerate(self.plugs[k]) if kind == "state"]
                g = apart(g, tuple(g.outputs[i] for i in kept), states)
            self.parts.append(Part(self.backend, g, nodes, self.streams))
        self.every_part = self.parts
        self.made = [p.pieces() for p in self.parts]
        arena = max(p.nbytes for p in self.parts)
        return [
            *self.row_pieces,
            *self.state_pieces,
            *self.random_pieces,
            *(piece for pieces in self.made for piece in pieces),
            ((arena,), _BYTE),
        ]

    def link(self, *args: Any, outs: Sequence[Any], work: Any, rng: Any, train: bool) -> Run:
        take = _Taker(carve(work, self.pieces))
        rows, states = take(len(self.row_pieces)), take(len(self.state_pieces))
        reseed = self.reseeding(take(len(self.random_pieces)), rng)
        state = reseed and reseed.state
        made = [take(len(pieces)) for pieces in self.made]
        arena = take(1)[0]
        linked = [
            part.link(self.feed(plugs, args, rows, states), m, arena, state, train)
            for part, plugs, m in zip(self.parts, self.plugs, made)
        ]
        visible, hidden = outs[: self.attrs.num_outputs], outs[self.attrs.num_outputs :]
        count = hidden[-1] if self.op.hidden_names(self.attrs)[-1:] == ("count",) else None
        if not self.op.is_loop:
            return self._branch(linked, [visible[i] for i in self.kept], count, reseed)
        decide = linked[0] if self.deciding else None
        calls, results = linked[-1]
        num_rows = len(self.kept) - len(states)
        out_rows = [(visible[i], x) for i, x in zip(self.kept, results[:num_rows]) if visible[i] is not None]
        ends = list(zip(visible[self.rows :], states))
        news = results[num_rows:]
        keep = [(h, s) for h, s in zip(hidden, states) if h is not None]
        return partial(
            run_loop,
            self.count,
            [(r, args[i]) for r, i in zip(rows, self.data)],
            [(s, args[i]) for s, i in zip(states, self.state_args)],
            decide and (decide[0], decide[1][0].reshape(-1)),
            calls,
            out_rows,
            list(zip(states, news)),
            keep,
            ends,
            count,
            reseed,
        )

    def _branch(self, linked: Any, outs: Sequence[Any], count: Any, reseed: Any) -> Run:
        decide, flag = linked[0][0], linked[0][1][0].reshape(-1)

        def run() -> None:
            if reseed:
                reseed.restart()
                reseed(0)
            for call in decide:
                call()
            chosen = bool(flag[0])
            calls, results = linked[1 if chosen else 2]
            for call in calls:
                call()
            for out, x in zip(outs, results):
                if out is not None:
                    out[...] = x
            if count is not None:
                count[0] = chosen

        return run


class _LoopBackward(_Kernel):
    """Iterations in reverse: recompute the body from the kept states, then its gradient."""

    def prepare(self, used: frozenset[str]) -> list[Piece]:
        self.wanted = frozenset(i for i in range(len(self.shapes)) if f"d_arg{i}" in used)
        self.branches = [
            _Gradient(self, g, nodes, plugs)
            for g, nodes, plugs in list(zip(self.graphs, self.inputs, self.plugs))[self.deciding :]
        ]
        self.every_part = [b.part for b in self.branches]
        floating = [i for i, d in enumerate(self.dtypes) if is_floating(d)]
        outer = {i for b in self.branches for kind, i in b.of if kind == "outer"}
        # Sums over iterations are accumulated in the gradient's own array if its type has enough digits.
        self.sums = [i for i in floating if i in outer and i in self.wanted]
        self.narrow = [i for i in self.sums if accumulator(self.dtypes[i]) != self.dtypes[i]]
        self.sum_pieces: list[Piece] = [(self.shapes[i], accumulator(self.dtypes[i])) for i in self.narrow]
        arena = max(b.part.nbytes for b in self.branches)
        return [
            *self.row_pieces,
            *self.state_pieces,
            *self.random_pieces,
            *self.sum_pieces,
            *(piece for b in self.branches for piece in (*b.head_pieces, *b.made)),
            ((arena,), _BYTE),
        ]

    def link(
        self,
        d_outs: Sequence[Any],
        args: Sequence[Any],
        outs: Sequence[Any],
        *,
        d_args: Sequence[Any],
        work: Any,
        rng: Any,
        train: bool,
    ) -> Run:
        attrs = self.attrs
        take = _Taker(carve(work, self.pieces))
        rows, states = take(len(self.row_pieces)), take(len(self.state_pieces))
        reseed = self.reseeding(take(len(self.random_pieces)), rng)
        state = reseed and reseed.state
        sums = dict(zip(self.narrow, take(len(self.sum_pieces))))
        sums |= {i: d_args[i] for i in self.sums if i not in sums and d_args[i] is not None}
        branches = []
        for b in self.branches:
            heads = dict(zip(b.heads, take(len(b.head_pieces))))
            branches.append((b, heads, take(len(b.made))))
        arena = take(1)[0]
        hidden, repeats = outs[attrs.num_outputs :], self.op.repeats(attrs)
        count = hidden[-1] if self.op.hidden_names(attrs)[-1:] == ("count",) else None
        loops = []
        for b, heads, made in branches:
            inputs = [*self.feed(b.plugs, args, rows, states), *heads.values()]
            calls, results = b.part.link(inputs, made, arena, state, train)
            carried = {k: heads[self.rows + k] for k in range(len(states)) if self.rows + k in heads}
            found = dict(zip(b.of, results))
            loops.append(
                partial(
                    run_back,
                    calls,
                    [(row, args[i]) for row, i in zip(rows, self.data) if args[i] is not None],
                    [
                        (s, x)
                        for k, (s, x) in enumerate(zip(states, hidden))
                        if x is not None and k not in repeats
                    ],
                    [
                        (states[k], outs[j], args[self.state_args[k]])
                        for k, j in repeats.items()
                        if outs[j] is not None and args[self.state_args[k]] is not None
                    ],
                    [
                        (heads[i], d)
                        for i, d in enumerate(d_outs[: self.rows])
                        if d is not None and i in heads
                    ],
                    [
                        (
                            d_args[i] if d_args[i].ndim > x.ndim else d_args[i][:, None],
                            x,
                        )  # rows of a vector are (1,)
                        for (kind, i), x in found.items()
                        if kind == "data" and d_args[i] is not None
                    ],
                    [(into, found.get(("state", k))) for k, into in carried.items()],
                    [(sums[i], x) for (kind, i), x in found.items() if kind == "outer" and i in sums],
                    reseed,
                    self.op.is_loop,
                    self.backend.xp,
                )
            )
        starts = [
            (into, d_outs[i]) for _, heads, _ in branches for i, into in heads.items()
            if i >= self.rows or d_outs[i] is None
        ]  # fmt: skip
        ends: list[tuple[Any, Any]] = [(d_args[i], sums[i]) for i in self.narrow if d_args[i] is not None]
        for i, d in enumerate(d_args):
            if d is not None and i not in sums:
                ends += self._final(i, d, branches)
        return partial(run_backward, starts, sums, loops, self.count, self.op.is_loop, count, ends)

    def _final(self, i: int, d: Any, branches: Any) -> list[tuple[Any, Any]]:
        """Sources of the gradient of an argument that is no sum, after the loop."""
        b, heads, _ = branches[0]
        if i in self.state_args:
            k = self.state_args.index(i)
            return [(d, heads.get(self.rows + k))]
        if i in self.data and ("data", i) in b.of:
            return []  # written row by row
        return [(d, None)]


class _Gradient:
    """The gradient of one subgraph as a part: inputs are those of the subgraph, then head gradients."""

    def __init__(
        self, kernel: _LoopBackward, graph: Graph, inputs: Sequence[Node], plugs: tuple[Plug, ...]
    ) -> None:
        self.plugs = plugs
        heads = {i: variable(f"head{i}") for i, e in enumerate(graph.outputs) if is_floating(graph.dtypes[e])}
        wanted = [
            (Entry(n), p)
            for n, p in zip(inputs, plugs)
            if is_floating(graph.dtypes[Entry(n)]) and (p[0] == "state" or p[1] in kernel.wanted)
        ]
        shapes, dtypes = dict(graph.shapes), dict(graph.dtypes)
        for i, e in heads.items():
            shapes[e], dtypes[e] = graph.shapes[graph.outputs[i]], graph.dtypes[graph.outputs[i]]
        typed = replace(graph, shapes=shapes, dtypes=dtypes)
        found, grads = gradient_graph(typed, [e for e, _ in wanted], heads)
        # Shapes of the forward nodes are known; those of the backward nodes are inferred from them.
        found = infer_types(infer_shapes(found, {}), {})
        self.of: list[Plug] = [p for (_, p), g in zip(wanted, grads) if g is not None]
        used = set(found.nodes)
        heads = {i: e for i, e in heads.items() if i >= kernel.rows or e.node in used}
        carried = [e.node for i, e in heads.items() if i >= kernel.rows]
        found = apart(found, tuple(g for g in grads if g is not None), carried)
        self.heads = list(heads)
        self.head_pieces: list[Piece] = [(shapes[e], dtypes[e]) for e in heads.values()]
        self.part = Part(kernel.backend, found, [*inputs, *(e.node for e in heads.values())], kernel.streams)
        self.made = self.part.pieces()


class _Taker:
    """Hands out a list piece by piece."""

    def __init__(self, arrays: list[Any]) -> None:
        self._rest = iter(arrays)

    def __call__(self, count: int) -> list[Any]:
        return [next(self._rest) for _ in range(count)]
