"""Evaluation: what a computation means, carried out by numpy in the sweeps of `sweeps.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from math import prod
from typing import Any

import numpy as np

from ..graph.ir import Shape
from ..graph.opdef import DType
from .array_steps import choose, OF_WHOLE, OWN
from .computation import Computation, REDUCTIONS, Tensor
from .steps import NUMPY, UFUNCS
from .sweeps import Part, Sweep, Sweeps

_PICKED = 1536  # elements that are picked, or added at an index, at a time: with local temporaries

Values = dict[int, Any]
Instruction = Callable[[Values, "_Block"], None]


class Evaluation:
    """The arrays of `outputs` from those of inputs; see `Sweeps` for the arguments. `nbytes`: scratch."""

    def __init__(
        self,
        t: Computation,
        outputs: Mapping[str, Tensor],
        shapes: Mapping[str, Shape],
        dtype: DType,
        dtypes: Mapping[str, DType],
        donors: Mapping[str, frozenset[str]],
    ) -> None:
        self.sweeps = Sweeps(t, outputs, shapes, dtype, dtypes, donors)
        self.nbytes = self.sweeps.nbytes
        self._programs: dict[Any, _Program] = {}

    def run(self, xp: Any, arrays: Mapping[str, Any], made: Mapping[str, Any], work: Any) -> None:
        """Compute the outputs that are not None in `made`, arrays of C order as all of `arrays`.

        work: `nbytes` bytes, whatever they hold.
        """
        wanted = frozenset(n for n, x in made.items() if x is not None and x.size)
        key = xp, wanted
        if key not in self._programs:
            self._programs[key] = _Program(xp, self.sweeps, wanted)
        with np.errstate(all="ignore"):
            self._programs[key].run(arrays, made, work)


class _Block:
    """The block where a sweep is: its arrays, and the slices of a tensor by the axes that this has."""

    begin: Shape
    lengths: Shape
    is_first: tuple[bool, ...]
    is_last: tuple[bool, ...]

    def __init__(self, ins: Values, outs: Mapping[str, Any], totals: Values) -> None:
        self.ins, self.outs, self.totals = ins, outs, totals
        self.where: Mapping[tuple[bool, ...], Any] = {}
        self.slots: Values = {}


class _Program:
    """Instructions for some of the outputs."""

    def __init__(self, xp: Any, plan: Sweeps, wanted: frozenset[str]) -> None:
        self.xp, self.plan = xp, plan
        needed: set[int] = set().union(*(plan.below(plan.roots[n]) for n in wanted))
        self.totals = [i for i in plan.swept if i in needed]
        self.inputs = {i: plan.parts[i] for i in needed if plan.parts[i].name == "input"}
        self.alone = [i for i in plan.alone if i in needed]
        self.sums = [i for i in self.totals if plan.parts[i].name == "scatter"]
        self.empty = [
            i for i in self.totals if i not in self.sums and 0 in plan.parts[plan.parts[i].operands[0]].shape
        ]
        self.sweeps = []
        for sweep in plan.sweeps:
            totals = [i for i in sweep.totals if i in needed]
            stores = [n for n in sweep.stores if n in wanted]
            if totals or stores:
                self.sweeps.append(_SweepProgram(xp, plan, sweep, totals, stores))

    def run(self, arrays: Mapping[str, Any], made: Mapping[str, Any], work: Any) -> None:
        plan, parts = self.plan, self.plan.parts
        ins: Values = {i: _viewed(arrays[x.array], x.shape) for i, x in self.inputs.items()}
        outs = {n: x.reshape(plan.domains[n]) for n, x in made.items() if x is not None and x.size}
        totals: Values = {}
        for i in reversed(self.totals):
            if i in plan.added_to:
                totals[i] = totals[plan.added_to[i]]
            elif i in plan.lent:
                totals[i] = outs[plan.lent[i]]
            else:
                totals[i] = _carved(work, plan.offsets[i], parts[i].shape, parts[i].dtype)
        for i in self.sums:
            self._begin(parts[i].operands[0], totals[i], ins)
        for i in self.empty:
            totals[i].fill(_identity(parts[i]))
        for i in self.alone:
            if i not in self.empty:
                x, into = ins[parts[i].operands[0]], totals[i]
                ufunc = _reduction(self.xp, parts[i])
                ufunc.reduce(x, axis=parts[i].axes, dtype=into.dtype, keepdims=True, out=into)
        for sweep in self.sweeps:
            sweep.run(_Block(ins, outs, totals), work)

    def _begin(self, base: int, total: Any, ins: Values) -> None:
        """Write what terms are added to; another sum has begun in this place."""
        part = self.plan.parts[base]
        if part.name == "broadcast":
            base = part.operands[0]
            part = self.plan.parts[base]
        if base not in self.plan.added_to:
            self.xp.copyto(total, ins.get(base, part.value), casting="unsafe")


class _SweepProgram:
    """The instructions of one sweep, for some of its totals and outputs."""

    def __init__(self, xp: Any, plan: Sweeps, sweep: Sweep, totals: list[int], stores: list[str]) -> None:
        self.xp, self.plan, self.sweep = xp, plan, sweep
        needed: set[int] = set()
        read = {i: plan.collected_from(i) for i in totals}
        for root in (*(k for i in totals for k in read[i]), *(plan.roots[n] for n in stores)):
            needed |= plan.cone(root)
        self.values: Values = {i: plan.parts[i].value for i in needed if plan.parts[i].value is not None}
        order = [i for i in sweep.order if i in needed and i not in self.values]
        when = {i: max(read[i], key=lambda k: order.index(k) if k in order else -1) for i in totals}
        self.instructions: list[Instruction] = []
        self.masks = {_mask(plan.domains[n]) for n in stores} | {_mask(plan.parts[i].shape) for i in order}
        self.masks |= {_mask(plan.parts[i].shape) for i in totals}
        late = [n for n in stores if plan.donors.get(n) or plan.roots[n] not in order]
        for i in order:
            self.instructions.append(self._made(i))
            self.instructions += [self._collected(k) for k in totals if when[k] == i]
            early = [n for n in stores if plan.roots[n] == i and n not in late and sweep.direct.get(i) != n]
            self.instructions += [self._stored(n) for n in early]
        self.instructions += [self._stored(n) for n in late if sweep.direct.get(plan.roots[n]) != n]
        self.is_flat = not sweep.partial and all(self._is_flat(i) for i in order)
        self.read = [i for i in order if plan.parts[i].name == "input"]
        self.reversed = [i for i in totals if plan.parts[i].reverse]
        self.slots = {i: at for i, at in sweep.slots.items() if i in needed}

    def _is_flat(self, i: int) -> bool:
        """True if a node is no work, or all that there is before it is stored: then a block may be large."""
        part = self.plan.parts[i]
        if part.name in ("input", "broadcast") or self.plan.is_total(i):
            return i not in self.sweep.slots
        return part.name in UFUNCS and i in self.plan.roots.values() and i in self.sweep.direct

    def run(self, b: _Block, work: Any) -> None:
        domain, block = self.sweep.domain, self.sweep.block
        if self.is_flat and all(b.ins[i].dtype == self.plan.parts[i].dtype for i in self.read):
            block = domain
        ranges = [range(0, n, step) for n, step in zip(domain, block)]
        for i in self.reversed:
            (axis,) = self.plan.parts[i].axes
            ranges[axis] = ranges[axis][::-1]
        slots: dict[Shape, Values] = {}
        for begin in product(*ranges):
            b.begin = begin
            b.lengths = tuple(min(step, n - at) for at, n, step in zip(begin, domain, block))
            b.is_first = tuple(at == 0 for at in begin)
            b.is_last = tuple(at + step >= n for at, n, step in zip(begin, domain, block))
            slices = [slice(at, at + step) for at, step in zip(begin, b.lengths)]
            b.where = {
                mask: tuple(s if own else slice(None) for s, own in zip(slices, mask)) for mask in self.masks
            }
            if b.lengths not in slots:
                slots[b.lengths] = self._slots(b.lengths, work)
            b.slots = slots[b.lengths]
            values = dict(self.values)
            for instruction in self.instructions:
                instruction(values, b)

    def _slots(self, lengths: Shape, work: Any) -> Values:
        """The slots of a block of these lengths."""
        found: dict[Any, Any] = {}
        for i, offset in (*self.slots.items(), *self.sweep.partial.items()):
            part = self.plan.parts[i]
            place = offset, _within(part.shape, lengths), part.dtype
            if place not in found:
                found[place] = _carved(work, *place)
            found[i] = found[place]
        return found

    # -- instructions ----------------------------------------------------------------------------

    def _made(self, i: int) -> Instruction:
        """What computes a node, into its slot or an output."""
        part = self.plan.parts[i]
        name, mask, operands = part.name, _mask(part.shape), part.operands
        if name == "input":
            return self._loaded(i, part)
        if self.plan.is_total(i):

            def total(v: Values, b: _Block) -> None:
                v[i] = b.totals[i][b.where[mask]]

            return total
        if name == "index":
            return self._positions(i, part)
        if name == "gather":
            return self._picked(i, part)
        if name == "broadcast":
            return self._broadcast(i, part)
        place = self._placed(i, part)
        if part.is_reduction:
            function, axes, (x,) = _reduction(self.xp, part).reduce, part.axes, operands

            def reduced(v: Values, b: _Block) -> None:
                out = v[i] = place(b)
                function(v[x], axis=axes, dtype=out.dtype, keepdims=True, out=out)

            return reduced
        call = self._step(i, part)
        x, *more = operands
        y = more[0] if more else x

        def unary(v: Values, b: _Block) -> None:
            out = v[i] = place(b)
            call(v[x], out=out)

        def binary(v: Values, b: _Block) -> None:
            out = v[i] = place(b)
            call(v[x], v[y], out=out)

        def any_number(v: Values, b: _Block) -> None:
            out = v[i] = place(b)
            call(*[v[k] for k in operands], out=out)

        return {1: unary, 2: binary}.get(len(operands), any_number)

    def _step(self, i: int, part: Part) -> Callable[..., Any]:
        """A function of a step's operands that computes it into `out`."""
        xp, name = self.xp, part.name
        if part.dtype.kind in "iu" and name in OF_WHOLE:
            return partial(OF_WHOLE[name], xp)
        if self.plan.is_choice(i):
            yes, no = (self.plan.parts[x].value for x in part.operands[1:])
            return partial(choose, xp, yes - no, no)
        if name in OWN:
            return partial(OWN[name], xp)
        if name == "pow" and self.plan.is_whole:  # numpy has no negative powers of whole numbers
            return partial(xp.power, dtype=part.dtype)
        if name in UFUNCS:
            function: Callable[..., Any] = getattr(xp, UFUNCS[name])
            return function
        function = NUMPY[name]
        return lambda *operands, out: xp.copyto(out, function(*operands), casting="unsafe")

    def _loaded(self, i: int, part: Part) -> Instruction:
        mask, copyto = _mask(part.shape), self.xp.copyto

        def loaded(v: Values, b: _Block) -> None:
            x = b.ins[i][b.where[mask]]
            if x.dtype != part.dtype:
                if i in b.slots:
                    copyto(b.slots[i], x, casting="unsafe")
                    x = b.slots[i]
                else:
                    x = x.astype(part.dtype)
            v[i] = x

        return loaded

    def _broadcast(self, i: int, part: Part) -> Instruction:
        (x,), shape = part.operands, part.shape
        if not self.plan.readers[i]:  # it is stored, which broadcasts

            def same(v: Values, b: _Block) -> None:
                v[i] = v[x]

            return same
        to = self.xp.broadcast_to

        def broadcast(v: Values, b: _Block) -> None:
            v[i] = to(v[x], _within(shape, b.lengths))

        return broadcast

    def _positions(self, i: int, part: Part) -> Instruction:
        arange, (axis,), rank = self.xp.arange, part.axes, len(part.shape)
        shape = tuple(-1 if k == axis else 1 for k in range(rank))

        def positions(v: Values, b: _Block) -> None:
            start = b.begin[axis]
            v[i] = arange(start, start + b.lengths[axis], dtype=part.dtype).reshape(shape)

        return positions

    def _picked(self, i: int, part: Part) -> Instruction:
        xp, (source, index), place = self.xp, part.operands, self._placed(i, part)
        numbered = self._numbered(self.plan.parts[source].shape, part.axes)

        def gathered(v: Values, b: _Block) -> None:
            out = v[i] = place(b)
            flat = b.ins[source].reshape(-1)
            for cut in _cuts(out.shape):
                picked = flat[numbered(_part(v[index], cut), b.begin, cut)]
                xp.copyto(out[tuple(cut)], picked, casting="unsafe")
                del picked  # before the next one is made

        return gathered

    def _numbered(self, shape: Shape, axes: Sequence[int]) -> Callable[[Any, Shape, Sequence[slice]], Any]:
        """The elements of an array of `shape`, counted in C order, at an index along an axis, and along the
        others in a part of a block that begins somewhere. An index is within the axis, or a nan, which
        counts as 0.
        """
        xp, rank = self.xp, len(shape)
        steps = [prod(shape[k + 1 :]) for k in range(rank)]

        def numbered(index: Any, begin: Shape, cut: Sequence[slice]) -> Any:
            number: Any = 0
            for k, n in enumerate(shape):
                if k in axes:
                    inside = xp.fmax(index, 0).astype("int64")
                    number = number + (inside if steps[k] == 1 else inside * steps[k])
                elif n != 1:
                    start, stop = (steps[k] * (begin[k] + at) for at in (cut[k].start, cut[k].stop))
                    along = xp.arange(start, stop, steps[k])
                    number = number + along.reshape((-1, *(1,) * (rank - 1 - k)))
            return number

        return numbered

    def _placed(self, i: int, part: Part) -> Callable[[_Block], Any]:
        """Where a block of a node is computed: its slot, or an output."""
        into, mask = self.sweep.direct.get(i), _mask(part.shape)
        if into is None:
            return lambda b: b.slots[i]
        return lambda b: b.outs[into][b.where[mask]]

    def _collected(self, i: int) -> Instruction:
        """What adds a block's contribution to a total."""
        plan, part = self.plan, self.plan.parts[i]
        if part.name == "scatter":
            return self._added(i, part)
        if part.name == "scan":
            return self._scanned(i, part)
        (x,), axes, mask = part.operands, part.axes, _mask(part.shape)
        read, ufunc = plan.parts[x].shape, _reduction(self.xp, part)
        domain = self.sweep.domain
        lacking = [k for k, n in enumerate(read) if n == 1 != domain[k]]

        def collected(v: Values, b: _Block) -> None:
            if not all(b.is_last[k] for k in lacking):
                return
            total = b.totals[i][b.where[mask]]
            if all(b.is_first[k] for k in axes):
                ufunc.reduce(v[x], axis=axes, dtype=total.dtype, keepdims=True, out=total)
            else:
                more = b.slots[i]
                ufunc.reduce(v[x], axis=axes, dtype=total.dtype, keepdims=True, out=more)
                ufunc(total, more, out=total)

        return collected

    def _added(self, i: int, part: Part) -> Instruction:
        """An instruction that adds a block's terms at their index to a total."""
        xp, (_, index, terms) = self.xp, part.operands
        numbered = self._numbered(part.shape, part.axes)

        def added(v: Values, b: _Block) -> None:
            total = b.totals[i].reshape(-1)
            for cut in _cuts(np.broadcast_shapes(v[index].shape, v[terms].shape)):
                where = numbered(_part(v[index], cut), b.begin, cut)
                where, x = (x.reshape(-1) for x in xp.broadcast_arrays(where, _part(v[terms], cut)))
                xp.add.at(total, where, x)
                del where, x

        return added

    def _scanned(self, i: int, part: Part) -> Instruction:
        """An instruction that goes along the axis of a scan in a block, on from the block before it."""
        xp, (first, factor, x), (axis,) = self.xp, part.operands, part.axes
        length, mask, parts = part.shape[axis], _mask(part.shape), self.plan.parts
        ufunc = xp.add if parts[factor].value == 1 else xp.multiply if parts[x].value == 0 else None

        def lines(value: Any, shape: Shape) -> Any:
            """A tensor with the axis in front, in the order of the scan."""
            moved = xp.moveaxis(xp.broadcast_to(value, shape), axis, 0)
            return moved[::-1] if part.reverse else moved

        def step(factors: Any, before: Any, terms: Any, out: Any) -> None:
            xp.multiply(factors, before, out=out, casting="unsafe")
            xp.add(out, terms, out=out, casting="unsafe")

        def scanned(v: Values, b: _Block) -> None:
            where = tuple(slice(None) if k == axis else s for k, s in enumerate(b.where[mask]))
            total = xp.moveaxis(b.totals[i][where], axis, 0)
            total = total[::-1] if part.reverse else total
            shape = _within(part.shape, b.lengths)
            factors, terms = lines(v[factor], shape), lines(v[x], shape)
            count, begin = b.lengths[axis], b.begin[axis]
            begin = length - begin - count if part.reverse else begin
            if begin == 0:
                into = total[:1]
                into[...] = lines(v[first], tuple(1 if k == axis else n for k, n in enumerate(shape)))
                if not part.exclusive:
                    step(factors[:1], into, terms[:1], into)
            # The line before the first one that is made here is there: after an exclusive block, too.
            start = begin if part.exclusive else max(0, begin - 1)
            stop = min(length, begin + count + part.exclusive)
            skip = 0 if part.exclusive or begin else 1
            if ufunc is not None:
                given = terms if ufunc is xp.add else factors
                total[start + 1 : stop] = given[skip : skip + stop - start - 1]
                ufunc.accumulate(total[start:stop], axis=0, out=total[start:stop])
                return
            for k, at in enumerate(range(start + 1, stop), skip):
                into = total[at : at + 1]
                step(factors[k], total[at - 1 : at], terms[k], into)

        return scanned

    def _stored(self, n: str) -> Instruction:
        """What copies a value to an output, once it is read for the last time."""
        root, mask, copyto = self.plan.roots[n], _mask(self.plan.domains[n]), self.xp.copyto
        domain = self.sweep.domain
        lacking = [k for k, m in enumerate(self.plan.domains[n]) if m == 1 != domain[k]]

        may_be_there = bool(self.plan.donors.get(n)) and self.plan.parts[root].name == "input"
        shares = self.xp.may_share_memory

        def stored(v: Values, b: _Block) -> None:
            if all(b.is_last[k] for k in lacking):
                out = b.outs[n][b.where[mask]]
                if not (may_be_there and shares(out, v[root])):
                    copyto(out, v[root], casting="unsafe")

        return stored


def _cuts(shape: Shape) -> Iterator[list[slice]]:
    """Parts of a block, of some `_PICKED` elements."""
    axis = max(range(len(shape)), key=lambda k: shape[k])
    step = max(1, _PICKED * shape[axis] // prod(shape))
    cut = [slice(0, n) for n in shape]
    for at in range(0, shape[axis], step):
        cut[axis] = slice(at, min(at + step, shape[axis]))
        yield cut


def _part(x: Any, cut: Sequence[slice]) -> Any:
    """The part of a tensor, which may broadcast, that lies in a part of a block."""
    return x[tuple(s if n != 1 else slice(None) for s, n in zip(cut, x.shape))] if x.ndim else x


def _mask(shape: Shape) -> tuple[bool, ...]:
    return tuple(n != 1 for n in shape)


def _within(shape: Shape, lengths: Shape) -> Shape:
    """The shape of a block of a tensor."""
    return tuple(1 if n == 1 else length for n, length in zip(shape, lengths))


def _reduction(xp: Any, part: Part) -> Any:
    return getattr(xp, REDUCTIONS[part.name].__name__)


def _viewed(x: Any, shape: Shape) -> Any:
    """The array under another shape, which may be that of its first elements."""
    elements = prod(shape)
    return (x if x.size == elements else x.reshape(-1)[:elements]).reshape(shape)


def _identity(part: Part) -> Any:
    """What a reduction of nothing gives."""
    if part.name in ("reduce_sum", "reduce_prod"):
        return int(part.name == "reduce_prod")
    smallest = part.name == "reduce_max"
    if part.dtype.kind in "iu":
        bounds = np.iinfo(part.dtype)
        return bounds.min if smallest else bounds.max
    return -np.inf if smallest else np.inf


def _carved(work: Any, offset: int, shape: Shape, dtype: DType) -> Any:
    """An array inside scratch."""
    return work[offset : offset + prod(shape) * dtype.itemsize].view(dtype).reshape(shape)
