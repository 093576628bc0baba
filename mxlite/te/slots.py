"""Slots: where the tensors of a block stand in scratch, each until it is read for the last time.

A step is computed over an operand that nothing reads after it, else in a slot that is free by then. What only
one output needs may stand in the array of that output until its own numbers are computed there.
"""

from __future__ import annotations

from typing import NamedTuple, TYPE_CHECKING

from .steps import NUMPY

if TYPE_CHECKING:
    from .sweeps import Sweep, Sweeps

ALIGN = 64


class Room(NamedTuple):
    """Bytes of scratch, or the block of an output if it has a name."""

    offset: int
    nbytes: int
    output: str = ""


class Placement:
    """The places of a sweep's nodes, in its `slots`, `direct` and `partial`: from `start` to `end`."""

    def __init__(self, plan: Sweeps, sweep: Sweep, start: int) -> None:
        self.plan, self.sweep, self.end = plan, sweep, start
        self._free: list[Room] = []
        self._held: dict[int, Room] = {}
        sweep.order = self._in_order()
        self._late = {plan.roots[n] for n in sweep.stores if plan.donors.get(n)}
        self._final = self._direct_outputs()
        self._last = self._last_reads()
        sweep.direct.update(self._final)
        self._borrowers = {n: self._borrowed(i, n) for i, n in self._final.items() if self._is_lendable(n)}
        self._free += [Room(0, 0, n) for n in self._borrowers]
        for at, i in enumerate(sweep.order):
            self._place(at, i)

    def _in_order(self) -> list[int]:
        """The nodes of a sweep; of those that can be next, always the one that needs least more scratch."""
        nodes = self.sweep.order
        waits = {i: {x for x in self._operands(i) if x in nodes} for i in nodes}
        unread = {
            i: {x for x in self.plan.readers[i] if x in nodes and i in self._operands(x)} for i in nodes
        }
        nbytes = {i: self._nbytes(i) if self._has_slot(i) else 0 for i in nodes}
        order: list[int] = []
        while waits:
            more = {
                i: nbytes[i] - sum(nbytes[x] for x in {*self._operands(i)} if unread.get(x) == {i})
                for i, before in waits.items()
                if not before
            }
            i = min(more, key=lambda i: (more[i], i))
            order.append(i)
            del waits[i]
            for before in waits.values():
                before.discard(i)
            for x in self._operands(i):
                unread.get(x, set()).discard(i)
        return order

    def _operands(self, i: int) -> tuple[int, ...]:
        """What a node is computed of in this sweep."""
        return () if self.plan.is_total(i) else self.plan.parts[i].operands

    # -- outputs ---------------------------------------------------------------------------------

    def _direct_outputs(self) -> dict[int, str]:
        """The nodes that are computed in the array of an output, which nothing else reads.

        One that may be written over an input comes last, and only where there are no two of them.
        """
        plan, sweep = self.plan, self.sweep
        found = {}
        over = [n for n in sweep.stores if plan.donors.get(n)]
        for n in sweep.stores:
            i = plan.roots[n]
            part = plan.parts[i]
            if not self._has_slot(i) or part.name == "input" or list(plan.roots.values()).count(i) > 1:
                continue
            if (part.shape, part.dtype) != (plan.domains[n], plan.dtypes.get(n)):
                continue
            if any(x in sweep.order and not plan.is_total(x) for x in plan.readers[i]):
                continue
            if any(i in plan.collected_from(k) for k in sweep.totals):
                continue
            if any(m == 1 and b < d for m, b, d in zip(part.shape, sweep.block, sweep.domain)):
                continue  # it is computed more than once
            if n in over:
                if len(over) > 1 or part.name not in NUMPY or part.name == "select":
                    continue
                self._late.discard(i)
                sweep.order.remove(i)
                sweep.order.append(i)
            found[i] = n
        sweep.stores.sort(key=lambda n: self._has_slot(plan.roots[n]))  # inputs as they are come first
        return found

    def _is_lendable(self, n: str) -> bool:
        """True if an output's array may hold other numbers before: it is no total."""
        return n not in self.plan.lent.values()

    def _borrowed(self, final: int, n: str) -> set[int]:
        """The nodes that may stand in the array of an output before: those that only it needs. If it may be
        written over inputs, nothing reads these later.
        """
        plan, sweep = self.plan, self.sweep
        end = plan.parts[final]
        others: set[int] = set()
        for root in (
            *(plan.roots[k] for k in sweep.stores if k != n),
            *(i for k in sweep.totals for i in plan.collected_from(k)),
        ):
            others |= plan.cone(root)
        over = plan.donors.get(n, frozenset())
        read = max((self._last[i] for i in sweep.order if plan.parts[i].array in over), default=-1)
        at = sweep.order.index(final)
        may = set()
        for here, i in enumerate(sweep.order[:at]):
            part = plan.parts[i]
            if here < read or (here == read and (part.name not in NUMPY or part.name == "select")):
                continue
            if i in others or not self._has_slot(i) or (part.shape, part.dtype) != (end.shape, end.dtype):
                continue
            if self._last[i] < at or i in self._overwritable(final):
                may.add(i)
        return may

    # -- nodes -----------------------------------------------------------------------------------

    def _last_reads(self) -> dict[int, int]:
        """When each node is read for the last time, also under the shape to which it is broadcast."""
        parts, order = self.plan.parts, self.sweep.order
        last: dict[int, int] = {}
        for at, i in enumerate(order):
            for x in (i, *self._operands(i)):
                last[x] = at
        last.update(dict.fromkeys(self._late, len(order)))
        for total in self.sweep.totals:
            if len(read := self.plan.collected_from(total)) > 1:
                last.update(dict.fromkeys(read, len(order)))
        for i in reversed(order):
            if parts[i].name == "broadcast":
                (x,) = parts[i].operands
                last[x] = max(last[x], last[i])
        return last

    def _has_slot(self, i: int) -> bool:
        part = self.plan.parts[i]
        if part.value is not None or part.name in ("index", "broadcast") or self.plan.is_total(i):
            return False
        return part.name != "input" or self.plan.dtypes.get(part.array, self.plan.dtype) != part.dtype

    def _overwritable(self, i: int) -> list[int]:
        """The operands over which a step can be computed."""
        part = self.plan.parts[i]
        over = part.operands if part.name in NUMPY else ()
        if part.name == "select":
            alone = over[:1] if self.plan.is_choice(i) else over[2:]
            over = tuple(x for x in alone if over.count(x) == 1)
        kind = part.shape, part.dtype
        return [x for x in over if kind == (self.plan.parts[x].shape, self.plan.parts[x].dtype)]

    def _place(self, at: int, i: int) -> None:
        plan, sweep = self.plan, self.sweep
        ended = [x for x in dict.fromkeys(self._operands(i)) if self._last.get(x) == at and x in self._held]
        if self._has_slot(i) and i not in self._final:
            over = [x for x in ended if x in self._overwritable(i) and self._may_stand(i, self._held[x])]
            if over:
                ended.remove(over[0])
                room = self._held.pop(over[0])
            else:
                room = self._taken(i)
            self._held[i] = room
            if room.output:
                sweep.direct[i] = room.output
            else:
                sweep.slots[i] = room.offset
        self._free += [self._held.pop(x) for x in ended]
        for total in sweep.totals:
            if plan.collected_from(total) == (i,) and self._is_in_parts(total):
                room = self._taken(total)
                sweep.partial[total] = room.offset
                self._free.append(room)
        if self._last[i] == at and i in self._held:
            self._free.append(self._held.pop(i))

    def _may_stand(self, i: int, room: Room) -> bool:
        return not room.output or i in self._borrowers[room.output]

    def _taken(self, i: int) -> Room:
        """The smallest free room that is enough for a node."""
        nbytes = self._nbytes(i)
        enough = [x for x in self._free if (self._may_stand(i, x) if x.output else x.nbytes >= nbytes)]
        if enough:
            room = min(enough, key=lambda x: (x.nbytes, x.offset))
            self._free.remove(room)
            return room
        self.end += nbytes
        return Room(self.end - nbytes, nbytes)

    def _nbytes(self, i: int) -> int:
        part = self.plan.parts[i]
        return padded(self.sweep.elements(part.shape) * part.dtype.itemsize)

    def _is_in_parts(self, total: int) -> bool:
        """True if a total is collected from more than one block."""
        sweep = self.sweep
        return any(sweep.block[axis] < sweep.domain[axis] for axis in self.plan.parts[total].axes)


def padded(nbytes: int) -> int:
    """Bytes of scratch that something takes, so that the next begins at a cache line."""
    return -(-nbytes // ALIGN) * ALIGN
