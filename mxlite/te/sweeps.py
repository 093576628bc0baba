"""Sweeps: the order in which numpy computes a computation, block by block, with scratch known in advance.

A sweep goes over the blocks of a domain. In a block it computes tensors one after the other, each in a *slot*
of scratch that is used again once nothing reads it; so what is not yet stored stays in the cache. A reduction
whose axes lie whole in a block is computed there. Every other one is *swept*: its *total* collects what each
block contributes, and what depends on it comes in a later sweep, which computes anew what it needs:

    softmax of (rows, columns)     short rows, a block of rows      one sweep:   largest, sum, out
                                   long rows, a part of one         three:       largest | sum | out

A total takes no sweep at all if it is one of an input as it is. Which sweeps, blocks and slots there are
depends on shapes and types alone, not on which outputs are wanted: so results have the same bits whichever
are, and scratch is known to planners.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ..core.dtype import float64, is_floating
from ..core.errors import DefinitionError
from ..graph.ir import Shape
from ..graph.opdef import DType
from .computation import (
    common_shape,
    Computation,
    farthest,
    MOST_COUNTED,
    needed_by,
    operands_of,
    REDUCTIONS,
    Tensor,
)
from .slots import padded, Placement
from .steps import COMPARISONS, NUMPY

BLOCK_NBYTES = 1 << 17
"""Bytes of a block of the type that is computed in: two or three stay in the second-level cache. A softmax of
1000 rows of 1000 takes 1.3 times as long with half of it, and twice as long with a quarter: calls cost."""
LEAST_RUN = 256
"""Fewest neighbours in memory that a block has if it is not as long as they are."""

BOOL = np.dtype(np.bool_)
INT64 = np.dtype(np.int64)
_WHOLE = frozenset("add sub mul div neg abs max min sign select trunc floor ceil".split())
"""Steps that give whole numbers for such; a quotient is cut towards 0."""


class Part(NamedTuple):
    """One node of a computation, with its axes merged and all tensors of one rank.

    `value`: the number that it is, for a tensor without axes that is known. `axes`: those that a reduction
    folds, or the one of an index, gather, scatter or scan. `reverse`, `exclusive`: how a scan goes.
    """

    name: str
    operands: tuple[int, ...]
    shape: Shape
    dtype: DType
    axes: tuple[int, ...] = ()
    array: str = ""
    value: Any = None
    reverse: bool = False
    exclusive: bool = False

    @property
    def is_reduction(self) -> bool:
        return self.name in REDUCTIONS


@dataclass
class Sweep:
    """One pass over a domain. `order` are the nodes that a block computes, `slots` their offsets in scratch;
    one in `direct` is computed in the output of that name instead. `totals` are those that it collects,
    `partial` where a block has its contribution. `stores` are outputs that it completes.
    """

    domain: Shape
    block: Shape
    order: list[int] = field(default_factory=list)
    slots: dict[int, int] = field(default_factory=dict)
    partial: dict[int, int] = field(default_factory=dict)
    totals: list[int] = field(default_factory=list)
    stores: list[str] = field(default_factory=list)
    direct: dict[int, str] = field(default_factory=dict)

    def elements(self, shape: Shape) -> int:
        """Elements of a block of a tensor."""
        return prod(b for b, n in zip(self.block, shape) if n != 1)


class Sweeps:
    """The sweeps that compute `outputs`, of these `shapes` in their domain (a tensor broadcasts to it).

    `dtypes`: the types of arrays, as far as they are known. `dtype`: that of the computation's numbers.
    `donors`: inputs over which an output may be written. `nbytes`: scratch.
    """

    def __init__(
        self,
        t: Computation,
        outputs: Mapping[str, Tensor],
        shapes: Mapping[str, Shape],
        dtype: DType,
        dtypes: Mapping[str, DType],
        donors: Mapping[str, frozenset[str]],
    ) -> None:
        self.dtypes, self.donors = dtypes, donors
        self.roots = {n: x.number for n, x in outputs.items()}
        needed = sorted(needed_by(t, self.roots.values()))
        far = farthest(t, needed) > MOST_COUNTED
        self.dtype = float64 if far and dtype.itemsize < 8 and is_floating(dtype) else dtype
        self._merge(t, needed, {n: shapes[n] for n in outputs})
        self.readers: dict[int, list[int]] = {i: [] for i in needed}
        for i in needed:
            for x in self.parts[i].operands:
                self.readers[x].append(i)
        for i in self.parts:
            self._keep_type(i)
            self._make_number(i)
        # Positions among whole numbers have 64 bits.
        self.block_elements = BLOCK_NBYTES // (self.dtype.itemsize if self._is_real else 8)
        self.reach: dict[int, set[int]] = {}  # axes of what depends on a node, and of it
        self.inside: set[int] = set()  # reductions whose axes lie whole in a block
        self.whole: frozenset[int] = frozenset()  # these axes
        self._choose_inside()
        self.swept = [i for i in self.parts if self.is_total(i)]
        self.added_to: dict[int, int] = {}  # sums at an index -> the sum whose terms are added to them
        self.level: dict[int, int] = {}
        for i, part in self.parts.items():
            self.level[i] = max((self.level[k] + self.is_total(k) for k in part.operands), default=0)
            if part.name == "scatter":
                self._start_sum(i, part)
        self.offsets: dict[int, int] = {}  # totals -> their places in scratch
        self.lent: dict[int, str] = {}  # totals -> outputs whose arrays they are
        self._place_totals()
        start = sum(padded(prod(self.parts[i].shape) * self.parts[i].dtype.itemsize) for i in self.offsets)
        self.nbytes = start
        self.alone = [
            i
            for i in self.swept
            if self.parts[i].is_reduction and self.parts[self.parts[i].operands[0]].name == "input"
        ]
        self.sweeps = self._sweeps()
        for sweep in self.sweeps:
            self.nbytes = max(self.nbytes, Placement(self, sweep, start).end)

    # -- nodes -----------------------------------------------------------------------------------

    def _merge(self, t: Computation, needed: Sequence[int], shapes: Mapping[str, Shape]) -> None:
        """Bring all tensors to one rank, neighbouring axes as one where every tensor has both or none."""
        rank = max([1, *(len(t.shapes[i]) for i in needed), *map(len, shapes.values())])

        def aligned(shape: Shape) -> Shape:
            return (1,) * (rank - len(shape)) + tuple(shape)

        every = {aligned(s) for s in (*(t.shapes[i] for i in needed), *shapes.values())}
        for i in needed:
            if t.nodes[i][0] == "scan":  # its axis stays by itself
                at, length = t.nodes[i][4], t.shapes[i][t.nodes[i][4]]
                every.add(aligned((length, *(1,) * (-1 - at))))
        groups = _neighbours(rank, every)
        where = {axis: g for g, group in enumerate(groups) for axis in group}

        def merged(shape: Shape) -> Shape:
            whole = aligned(shape)
            return tuple(prod(whole[axis] for axis in group) for group in groups)

        self.rank = len(groups)
        self.domains = {n: merged(s) for n, s in shapes.items()}
        self.parts: dict[int, Part] = {}
        for i in needed:
            node = t.nodes[i]
            axes: tuple[int, ...] = ()
            if node[0] in REDUCTIONS:
                axes = tuple(dict.fromkeys(where[rank + axis] for axis in node[2]))
            elif node[0] == "index":
                axes = (where[rank + node[1]],)
            elif node[0] in ("gather", "scatter"):
                axes = (where[rank + node[-1]],) if rank + node[-1] in where else ()
            elif node[0] == "scan":
                axes = (where[rank + node[4]],)
            self.parts[i] = self._part(node, merged(t.shapes[i]), axes)
            if node[0] == "scan":
                self.parts[i] = self.parts[i]._replace(reverse=node[5], exclusive=node[6])

    def _part(self, node: tuple[Any, ...], shape: Shape, axes: tuple[int, ...]) -> Part:
        name, operands = node[0], operands_of(node)
        if name in ("number", "constant"):
            value = self._number(node[1])
            return Part(name, (), shape, float64 if isinstance(value, float) else self.dtype, value=value)
        if name == "input":
            return Part(name, (), shape, self.dtype, array=node[1])
        if name == "index":
            return Part(name, (), shape, self.dtype if self._is_real else INT64, axes)
        given = [self.parts[x] for x in operands]
        dtype = self._type_of(name, given)
        if name in NUMPY and all(x.value is not None for x in given):
            with np.errstate(all="ignore"):
                found = NUMPY[name](*(np.asarray(x.value, x.dtype) for x in given))
            return Part(name, (), shape, dtype, value=np.asarray(found, dtype)[()])
        return Part(name, operands, shape, dtype, axes)

    def _keep_type(self, i: int) -> None:
        """An input with which nothing is computed, as it is only copied, keeps the type of its array."""
        reached = [i]
        for x in reached:
            reached += self.readers[x]
        part = self.parts[i]
        if part.name == "input" and all(self.parts[x].name in ("input", "broadcast") for x in reached):
            self.parts[i] = part._replace(dtype=self.dtypes.get(part.array, part.dtype))

    def _make_number(self, i: int) -> None:
        """A comparison that only chooses between numbers is a number itself, 1 or 0: see `is_choice`."""
        part, readers = self.parts[i], self.readers[i]
        chooses = all(self.is_choice(x) and self.parts[x].operands[0] == i for x in readers)
        if part.name in COMPARISONS and readers and chooses and i not in self.roots.values():
            self.parts[i] = part._replace(dtype=self.dtype)

    def is_choice(self, i: int) -> bool:
        """True for a selection of one of two numbers that is ``condition * (yes - no) + no``, exactly."""
        part = self.parts[i]
        if part.name != "select" or not self._is_real:
            return False
        yes, no = (self.parts[x].value for x in part.operands[1:])
        if yes is None or no is None:
            return False
        with np.errstate(all="ignore"):
            return bool(yes - no + no == yes)

    @property
    def _is_real(self) -> bool:
        return is_floating(self.dtype)

    @property
    def is_whole(self) -> bool:
        """True for a computation on whole numbers."""
        return not self._is_real

    def _number(self, x: float) -> Any:
        if self._is_real:
            return self.dtype.type(x)
        return int(x) if np.isfinite(x) and x == int(x) else float(x)

    def _type_of(self, name: str, given: Sequence[Part]) -> DType:
        """The type of a step's result. Whole numbers keep the widest of the tensors that it reads."""
        if name in COMPARISONS:
            return BOOL
        if self._is_real:
            return self.dtype
        if name in NUMPY and name not in _WHOLE:
            return float64
        values = [x.dtype for x in given if x.dtype != BOOL and (x.value is None or x.dtype == float64)]
        return np.result_type(*values) if values else self.dtype

    # -- reductions ------------------------------------------------------------------------------

    def _choose_inside(self) -> None:
        """Choose the reductions that are computed in a block: first those whose results are broadcast to what
        they were computed from, then those of neighbours in memory.
        """
        self.lengths = [{x.shape[k] for x in self.parts.values()} - {1} for k in range(self.rank)]
        back: list[int] = []
        ends: list[int] = []
        reach = self.reach
        for i in reversed(self.parts):
            shapes = [self.parts[i].shape, *(self.domains[n] for n, root in self.roots.items() if root == i)]
            reach[i] = {axis for s in shapes for axis in range(self.rank) if s[axis] != 1}
            for reader in self.readers[i]:
                reach[i] |= reach[reader]
            if self.parts[i].is_reduction:
                (back if reach[i].intersection(self.parts[i].axes) else ends).append(i)
        back.sort(key=lambda i: (-prod(self.parts[self.parts[i].operands[0]].shape), i))
        for i in back:
            self._try_inside(i, LEAST_RUN)
        for i in reversed(ends):
            if self.parts[self.parts[i].operands[0]].name != "input" or self.whole.issuperset(
                self.parts[i].axes
            ):
                self._try_inside(i, None)

    def _try_inside(self, i: int, least: int | None) -> None:
        """Compute a reduction in a block if it has room for the axes, and `least` neighbours in memory where
        these are not the last ones. None: only if they are.
        """
        x = self.parts[self.parts[i].operands[0]]
        axes = self.whole | set(self.parts[i].axes)
        if axes > self.whole and any(x.shape[axis] == 1 for axis in self.reach[i]):
            return  # blocks of what it is broadcast to would be shaped by something smaller
        held = prod(max(self.lengths[axis], default=1) for axis in axes)
        run = prod(n for axis, n in enumerate(x.shape) if axis > max(axes) and axis not in axes)
        if 0 in x.shape or held > self.block_elements or any(len(self.lengths[k]) > 1 for k in axes):
            return
        if run > 1 and not axes <= self.whole:
            if least is None or self.block_elements // held < min(run, least):
                return
        self.inside.add(i)
        self.whole = frozenset(axes)

    def _place_totals(self) -> None:
        """Give each swept reduction its place: the array of the output that is made of it, or scratch."""
        free = {n for n in self.roots if not self.donors.get(n) and self.dtypes.get(n) is not None}
        for i in reversed(self.swept):
            if i in self.added_to:
                continue
            x = self.parts[i]
            of = [n for n, root in self.roots.items() if i in self.below(root)]
            if (
                len(of) == 1
                and of[0] in free
                and (self.domains[of[0]], self.dtypes[of[0]]) == (x.shape, x.dtype)
                and (self.roots[of[0]] == i or self.roots[of[0]] not in self.lent)
            ):
                self.lent[i] = of[0]
                free.remove(of[0])
        at = 0
        for i in self.swept:
            if i not in self.lent and i not in self.added_to:
                self.offsets[i] = at
                at += padded(prod(self.parts[i].shape) * self.parts[i].dtype.itemsize)

    def below(self, root: int) -> set[int]:
        """The nodes on which one depends, and it."""
        found, stack = set(), [root]
        while stack:
            i = stack.pop()
            if i not in found:
                found.add(i)
                stack += self.parts[i].operands
        return found

    def cone(self, root: int) -> set[int]:
        """The nodes that a sweep has to have for one: up to totals that are there by then."""
        found, stack = set(), [root]
        while stack:
            i = stack.pop()
            if i not in found:
                found.add(i)
                if not self.is_total(i):
                    stack += self.parts[i].operands
        return found

    def is_total(self, i: int) -> bool:
        """True for swept reductions, sums at an index, and scans."""
        part = self.parts[i]
        return part.name in ("scatter", "scan") or (part.is_reduction and i not in self.inside)

    def collected_from(self, i: int) -> tuple[int, ...]:
        """The nodes of a block from which a total collects: what is reduced, an index and the terms, or what
        a scan reads.
        """
        operands = self.parts[i].operands
        if self.parts[i].name == "scan":
            return operands
        return operands[1:] if self.parts[i].name == "scatter" else operands[:1]

    def _start_sum(self, i: int, part: Part) -> None:
        """Find where a sum at an index begins: at a number, an input, or a sum that only it reads."""
        base = part.operands[0]
        start = self.parts[base]
        if start.name == "scatter" and self.readers[base] == [i] and base not in self.roots.values():
            self.added_to[base] = i
            others = (self.level[k] + self.is_total(k) for k in part.operands[1:])
            self.level[i] = max(self.level[base], *others)
        elif start.name == "broadcast":
            start = self.parts[start.operands[0]]
        if start.name not in ("input", "scatter") and start.value is None:
            raise DefinitionError(f"terms are added at an index to the result of {start.name}.")

    # -- sweeps ----------------------------------------------------------------------------------

    def _sweeps(self) -> list[Sweep]:
        """Sweeps in their order. An output comes after everything that reads what it may be written over."""
        cones: dict[int | str, set[int]] = {}
        levels: dict[int | str, int] = {}
        for i in self.swept:
            read = self.collected_from(i)
            if i not in self.alone and not any(0 in self.parts[k].shape for k in read):
                cones[i] = set().union(*map(self.cone, read))
                levels[i] = self.level[i]
        for n, root in self.roots.items():
            if 0 not in self.domains[n] and self.lent.get(root) != n:
                cones[n] = self.cone(root)
                levels[n] = self.level[root] + self.is_total(root)
        reads = {k: {self.parts[i].array for i in cone} for k, cone in cones.items()}
        for _ in self.roots:
            for n in self.roots:
                over = self.donors.get(n)
                if over and n in levels:
                    levels[n] = max(levels[n], *(v for k, v in levels.items() if over & reads[k]), 0)
        found = []
        for level in sorted(set(levels.values())):
            here = [k for k, v in levels.items() if v == level]
            found += self._joined({k: cones[k] for k in here})
        return found

    def _joined(self, cones: Mapping[int | str, set[int]]) -> list[Sweep]:
        """Sweeps of one level, as few as there are domains that do not lie within others."""
        domains = {k: self._domain(k, cone) for k, cone in cones.items()}

        def is_scan(k: int | str) -> bool:
            return isinstance(k, int) and self.parts[k].name == "scan"

        groups: list[tuple[Shape, list[int | str]]] = []
        for k in sorted(domains, key=lambda k: -prod(domains[k])):
            for domain, members in groups:
                if is_scan(k) or is_scan(members[0]):  # whose blocks have an order of their own
                    continue
                if all(n in (1, whole) for n, whole in zip(domains[k], domain)):
                    members.append(k)
                    break
            else:
                groups.append((domains[k], [k]))
        groups.sort(key=lambda g: any(isinstance(k, str) and bool(self.donors.get(k)) for k in g[1]))
        found = []
        for domain, members in groups:
            nodes = set[int]().union(*(cones[k] for k in members))
            sweep = Sweep(domain, self._block(domain, nodes))
            sweep.order = [i for i in self.parts if i in nodes and not self._is_picked(i, nodes)]
            sweep.totals = [k for k in members if isinstance(k, int)]
            sweep.stores = [k for k in members if isinstance(k, str)]
            found.append(sweep)
        return found

    def _domain(self, k: int | str, cone: Iterable[int]) -> Shape:
        shapes = [self.parts[i].shape for i in cone if not self._is_picked(i, cone)]
        return common_shape([*shapes, self.domains[k]] if isinstance(k, str) else shapes)

    def _is_picked(self, i: int, cone: Iterable[int]) -> bool:
        """True for an input of which only elements at an index are read: it may have another length there."""
        readers = [x for x in self.readers[i] if x in cone]
        return bool(readers) and all(
            self.parts[x].name == "gather" and self.parts[x].operands[1] != i for x in readers
        )

    def _block(self, domain: Shape, nodes: Iterable[int]) -> Shape:
        """The lengths of a block: whole axes of reductions in it, then neighbours in memory; at least 1."""
        whole = {axis for i in nodes if i in self.inside for axis in self.parts[i].axes}
        room = max(1, self.block_elements // max(1, prod(domain[axis] for axis in whole)))
        block = [max(1, n) for n in domain]
        for axis in reversed(range(self.rank)):
            if axis not in whole:
                block[axis] = min(block[axis], room)
                room = room // block[axis] if block[axis] >= domain[axis] else 1
        return tuple(block)


def _neighbours(rank: int, shapes: Iterable[Shape]) -> list[list[int]]:
    """The axes, neighbours together where each of `shapes` has both or none; at least one group."""
    groups: list[list[int]] = []
    for axis in range(rank):
        lengths = {s[axis] for s in shapes} - {1}
        if not lengths:
            continue
        before = groups[-1][-1] if groups else None
        if before is not None and len(lengths) == 1 == len({s[before] for s in shapes} - {1}):
            if all((s[axis] == 1) == (s[before] == 1) for s in shapes):
                groups[-1].append(axis)
                continue
        groups.append([axis])
    return groups or [[rank - 1]]
