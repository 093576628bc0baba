"""Checker of rewrites: the graphs before and after a pass must be equivalent (MXLITE_CHECK_REWRITES=1).

    names      the variables of the graph are unchanged, with their shapes and types
    shapes     every output and every kept entry has its shape and type
    order      every node comes after its inputs; `num_forward` counts the forward nodes
    numbers    outputs, kept entries and written variables equal those of the graph before, on random inputs,
               by reference kernels; for a forward graph that trains, the gradients of all arguments too

The numbers need not be equal in all bits: a pass may sum in another order, or omit a rounding. The tolerance
follows from the least precise type in the graph and, where that is exceeded, from how much the original
graph changes if its variables change by a few roundings. Where that is exceeded too, a graph of float32 is
computed in float64: what roundings make nearly vanishes there, and a mistake stays as large as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TYPE_CHECKING

import ml_dtypes
import numpy as np

from ...core.dtype import is_floating
from ...core.errors import DerivativeError, PlaceError, RewriteError
from ...graph import (
    backward,
    Entry,
    Graph,
    infer_shapes,
    infer_types,
    needs_head_gradient,
    output_name,
    variable,
)
from .drawn import drawn, kinds_of
from .evaluated import evaluated

if TYPE_CHECKING:
    from ..rewrite import Rewrite

ROUNDINGS, MOST = 256, 0.05
"""Tolerance relative to the largest number of an array: so many roundings, and at most this share."""

CANCELS = 1 / 32
"""Least magnitude of an array, relative to the largest number of all: a sum of large numbers may be nearly 0,
like the gradient of a bias before a norm."""

MARGIN = 8
"""Multiple of the change that results if the variables themselves change by the tolerance."""

VANISHES = 2.0**-16
"""Share of a difference that may be left in float64, whose roundings are 2 ** -29 of those of float32."""


def check(rewrite: Rewrite) -> None:
    """Raise RewriteError, with the name of the pass, unless both graphs are equivalent."""
    _Check(rewrite).run()


@dataclass(frozen=True)
class _Pair:
    """Name of an entry of the graph before, and the two entries that have to be equal."""

    name: str
    before: Entry
    after: Entry


class _Check:
    def __init__(self, rewrite: Rewrite) -> None:
        self.rewrite = rewrite
        self.before, self.after = rewrite.before.graph, rewrite.after.graph
        self.train, self.num_forward = rewrite.after.train, rewrite.after.num_forward

    def run(self) -> None:
        self._check_names()
        self._check_count()
        pairs = self._pairs()
        self._check_shapes(pairs)
        before, after = self.before, self.after
        if self.train and self.num_forward is None:
            before, after, pairs = self._differentiated(pairs)
        with np.errstate(all="ignore"):
            self._check_numbers(before, after, pairs)

    def _fault(self, what: str) -> RewriteError:
        return RewriteError(
            f"The pass {self.rewrite.name!r} has changed a network: {what} This is a bug in mxlite; please "
            f"report it. Without MXLITE_CHECK_REWRITES nobody would have seen it."
        )

    def _check_names(self) -> None:
        old, new = (
            {n.name: (g.shapes[Entry(n)], g.dtypes[Entry(n)]) for n in g.variables}
            for g in (self.before, self.after)
        )
        for name, kind in old.items():
            read = any(e.node.name == name and e.node.op is None for e in self.rewrite.before.shown)
            if name not in new and read:
                raise self._fault(f"the variable {name!r} is gone.")
            if new.get(name, kind) != kind:
                raise self._fault(f"{name!r} was {kind[0]} {kind[1]} and is {new[name][0]} {new[name][1]}.")
        if added := [name for name in new if name not in old]:
            raise self._fault(f"the variables {added[:8]} are new.")

    def _check_count(self) -> None:
        count = self.num_forward
        if count is None:
            return
        operators = [n for n in self.after.nodes if n.op is not None]
        if not 0 <= count <= len(operators):
            raise self._fault(f"{count} of {len(operators)} operators are said to be the forward pass.")

    def _pairs(self) -> list[_Pair]:
        moved = self.rewrite.moved
        if len(self.before.outputs) != len(self.after.outputs):
            raise self._fault(f"{len(self.before.outputs)} outputs have become {len(self.after.outputs)}.")
        kept = sorted(self.rewrite.before.kept, key=_place(self.before).__getitem__)
        pairs = {(e, f): output_name(e) for e, f in zip(self.before.outputs, self.after.outputs)}
        pairs |= {(e, moved.get(e, e)): output_name(e) for e in kept}
        there = set(self.after.nodes)
        for (_, f), name in pairs.items():
            if f.node not in there and f.node.op is not None:
                raise self._fault(f"nothing makes {name!r} any more ({f.node.name!r} is not in the graph).")
        return [_Pair(name, e, f) for (e, f), name in pairs.items()]

    def _check_shapes(self, pairs: Sequence[_Pair]) -> None:
        for p in pairs:
            was = self.before.shapes[p.before], self.before.dtypes[p.before]
            now = self.after.shapes.get(p.after), self.after.dtypes.get(p.after)
            if was != now:
                raise self._fault(f"{p.name!r} was {was[0]} {was[1]} and is {now[0]} {now[1]}.")

    def _differentiated(self, pairs: Sequence[_Pair]) -> tuple[Graph, Graph, list[_Pair]]:
        """Both graphs with the gradients of trained arguments, and these among the pairs."""
        graphs: list[Graph] = []
        gradients: list[Mapping[str, Entry]] = []
        heads: dict[int, Entry] = {}
        for graph in (self.before, self.after):
            shapes, dtypes = dict(graph.shapes), dict(graph.dtypes)
            for i, e in enumerate(self.before.outputs):
                starts_in_one = _can_start(e) or _can_start(self.after.outputs[i])  # a loss may have moved
                if starts_in_one and is_floating(graph.dtypes[graph.outputs[i]]):
                    heads.setdefault(i, variable(f"head gradient {i}"))
                    shapes[heads[i]], dtypes[heads[i]] = self.before.shapes[e], self.before.dtypes[e]
            known = replace(graph, shapes=shapes, dtypes=dtypes)
            wrt = [Entry(n) for n in graph.arguments if is_floating(graph.dtypes[Entry(n)])]
            starts = {i: e for i, e in heads.items() if _can_start(graph.outputs[i])}
            try:
                made, found = backward(known, wrt, starts)
            except DerivativeError:
                return self.before, self.after, list(pairs)
            graphs.append(_with_shapes(made, known))
            gradients.append({x.node.name: g for x, g in zip(wrt, found) if g is not None})
        old, new = gradients
        if lost := set(old).symmetric_difference(new):
            raise self._fault(f"{sorted(lost)[:8]} have a gradient before or after it, not both.")
        more = [_Pair(f"the gradient of {name}", old[name], new[name]) for name in old]
        return graphs[0], graphs[1], [*pairs, *more]

    def _check_numbers(self, before: Graph, after: Graph, pairs: Sequence[_Pair]) -> None:
        there, forms, train = {n.name: n for n in after.variables}, self.rewrite.after.forms, self.train
        kept_so = {e.node.name for e in forms}
        written = [
            _Pair(n.name, Entry(n), Entry(there[n.name]))
            for n in before.variables
            if n.name in there and n.name not in kept_so
        ]
        wanted, kinds = [p.before for p in pairs], kinds_of(before)
        positions = 2
        given = drawn(before, kinds)
        try:
            want = evaluated(before, given, wanted, train)
        except PlaceError:  # an axis has one position
            positions = 1
            given = drawn(before, kinds, positions=positions)
            want = evaluated(before, given, wanted, train)
        got = evaluated(after, _in_forms(given, forms), [p.after for p in pairs], train)
        eps = max((_rounding(d) for d in before.dtypes.values() if is_floating(d)), default=0.0)
        slack = min(ROUNDINGS * eps, MOST)
        most = max((_size(a) for a in want.values()), default=0.0)
        swayed: Mapping[Entry, np.ndarray] | None = None
        in_float64: Mapping[_Pair, float] | None = None
        for p in (*pairs, *written):
            a, size = want[p.before], _size(want[p.before])
            difference = _difference(a, got[p.after])
            allowed = slack * max(size, CANCELS * most)
            if difference <= allowed:
                continue
            if swayed is None:
                swayed = evaluated(before, drawn(before, kinds, slack, positions), wanted, train)
            allowed += MARGIN * _difference(a, swayed[p.before])
            if not difference <= allowed:
                if in_float64 is None:
                    in_float64 = self._differences_in_float64(before, after, pairs, given)
                if in_float64.get(p, np.inf) <= VANISHES * difference:
                    continue
                raise self._fault(
                    f"{p.name!r}, {before.shapes[p.before]} {before.dtypes[p.before]}, differs by up to "
                    f"{difference:.3g} of {size:.3g}, where roundings make {allowed:.3g} at most."
                )

    def _differences_in_float64(
        self, before: Graph, after: Graph, pairs: Sequence[_Pair], given: Mapping[str, np.ndarray]
    ) -> Mapping[_Pair, float]:
        """How far pairs are apart if all numbers are float64; none if not all numbers are float32."""
        floats = {d for g in (before, after) for d in g.dtypes.values() if is_floating(d)}
        if floats != {np.dtype("float32")} or self.rewrite.after.forms:
            return {}
        wide = {n: a.astype(_wide(a.dtype)) for n, a in given.items()}
        want = evaluated(_widened(before), wide, [p.before for p in pairs], self.train)
        got = evaluated(_widened(after), wide, [p.after for p in pairs], self.train)
        return {p: _difference(want[p.before], got[p.after]) for p in pairs}


def _widened(graph: Graph) -> Graph:
    """The graph with float64 in place of float32."""
    return replace(graph, dtypes={e: _wide(d) for e, d in graph.dtypes.items()})


def _wide(dtype: Any) -> Any:
    return np.dtype("float64") if dtype == np.float32 else dtype


def _in_forms(given: Mapping[str, np.ndarray], forms: Mapping[Entry, Any]) -> dict[str, np.ndarray]:
    """The variables; those of `forms` as the bytes in which they are kept."""
    found = dict(given)
    for e, form in forms.items():
        plain = given[e.node.name].reshape(-1).view(np.uint8)
        found[e.node.name] = np.zeros(form.nbytes, np.uint8)
        form.pack(plain, found[e.node.name])
    return found


def _rounding(dtype: Any) -> float:
    """The relative distance of neighbouring numbers of a type."""
    return float(ml_dtypes.finfo(dtype).eps)


def _size(a: np.ndarray) -> float:
    """The largest finite magnitude."""
    wide = np.abs(a.astype(np.float64))
    return float(wide[np.isfinite(wide)].max(initial=0.0))


def _difference(a: np.ndarray, b: np.ndarray) -> float:
    """The largest difference; NaNs and infinities must be in the same places."""
    x, y = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.where((x == y) | (np.isnan(x) & np.isnan(y)), 0.0, np.abs(x - y))
    return float(np.where(np.isnan(apart), np.inf, apart).max(initial=0.0))


def _place(graph: Graph) -> Mapping[Entry, int]:
    return {e: i for i, e in enumerate(graph.entries())}


def _can_start(entry: Entry) -> bool:
    """True if the gradient of an output is given from outside."""
    op = entry.node.op
    return op is None or (
        needs_head_gradient(entry.node) and (op.grad_op is not None or bool(op.gradient_is))
    )


def _with_shapes(made: Graph, known: Graph) -> Graph:
    """Set shapes and types of gradients, which are those of their variables."""
    known_too = replace(made, shapes=dict(known.shapes), dtypes=dict(known.dtypes))
    return infer_types(infer_shapes(known_too, {}), {})
