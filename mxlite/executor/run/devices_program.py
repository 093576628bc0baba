"""A step on several devices: the program of each, joined by the transfers between them.

Each device has a plan, an arena and segments of its own, and its own workers of the engine. A transfer is a
segment on both devices. Here its two ends are one operation, with the tags of both: it waits for what each
device's plan says, and what either plan puts in those bytes later waits for it.

    cpu(0)    segment 0    send 0               segment 2 ...
                              | one operation
    cpu(1)                 receive 0    segment 1 ...

Everything is pushed in one order in which the segments of each program come in theirs. The engine runs
whatever is ready, on all devices at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ...engine import get_engine, Vars
from .program import Program
from .segment import Record


@dataclass(frozen=True)
class _Joined:
    """Both ends of a transfer, that of the sender first, as one operation."""

    ends: tuple[Any, Any]

    def __call__(self) -> None:
        for end in self.ends:
            end()

    def timed(self, record: Record) -> Callable[[], None]:
        """The same with time stamps, see `Segment.timed`."""

        def run() -> None:
            for end in self.ends:
                end.timed(record)()

        return run


@dataclass(frozen=True)
class _Push:
    """One operation; it waits for the former users of the arenas of the devices that it `begins`."""

    run: Callable[[], None]
    held: tuple[Vars, Vars]
    name: str
    lane: str
    kind: str
    begins: tuple[int, ...]


class DevicesProgram:
    """The programs of all devices as one, with the methods of `Program` that an executor calls."""

    def __init__(self, programs: Sequence[Program]) -> None:
        self.programs = programs
        # The number of a transfer -> program -> segment, the sender's first.
        self._ends: dict[int, dict[int, int]] = {}
        for d, program in enumerate(programs):
            for g, (number, receives) in program.transfers.items():
                ends = self._ends.setdefault(number, {})
                self._ends[number] = {**ends, d: g} if receives else {d: g, **ends}
        counts = [len(p.segments) for p in programs]
        self._forward = self._merged([range(p.num_forward) for p in programs])
        self._backward = self._merged([range(p.num_forward, n) for p, n in zip(programs, counts)])
        self._whole = self._merged(
            [[g for g in range(n) if g not in p.previews] for p, n in zip(programs, counts)]
        )

    @property
    def lowered(self) -> Any:
        """That of a device that draws random numbers, if one does."""
        return next((p.lowered for p in self.programs if p.lowered.uses_rng), self.programs[0].lowered)

    @property
    def kept(self) -> list[Any]:
        """Weights in another form: there are none."""
        return []

    @property
    def is_outdated(self) -> bool:
        """True if any of the arenas is to have another block."""
        return any(p.is_outdated for p in self.programs)

    @property
    def may_go_backward(self) -> bool:
        """True if a backward pass may follow the forward pass."""
        return any(p.may_go_backward for p in self.programs)

    def push_forward(self, told: Sequence[Any] = ()) -> None:
        """See `Program`."""
        self._push(self._forward, range(len(self.programs)), self, "forward_tail")

    def push_backward(self, told: Sequence[Any] = ()) -> None:
        """See `Program`."""
        fresh = [d for d, p in enumerate(self.programs) if not p.num_forward]  # not in their arenas yet
        self._push(self._backward, fresh, None, "tail")

    def push_step(self, told: Sequence[Any] = ()) -> None:
        """See `Program`."""
        self._push(self._whole, range(len(self.programs)), None, "tail")

    def _push(self, pushes: Sequence[_Push], entering: Collection[int], holder: object, tail: str) -> None:
        """Push these, on the devices `entering` behind the former users of their arenas."""
        push, arenas = get_engine().push, [p.arena for p in self.programs]
        try:
            for one in pushes:
                reads, writes = one.held
                former = [v for d in one.begins if d in entering for v in arenas[d].tail]
                push(
                    one.run,
                    reads,
                    (*writes, *former) if former else writes,
                    name=one.name,
                    device=one.lane,
                    kind=one.kind,
                )
            for arena in arenas:
                arena.holder = holder
            for d in (d for one in pushes for d in one.begins):
                arenas[d].tail = getattr(self.programs[d], tail)
        except BaseException:
            for program in self.programs:
                program.break_off()
            raise

    def _merged(self, wanted: Sequence[Iterable[int]]) -> list[_Push]:
        """These segments of each program in one order, both ends of each transfer at once. O(segments)."""
        rest = [list(segments)[::-1] for segments in wanted]
        begun: set[int] = set()
        found: list[_Push] = []

        def add(ends: Sequence[tuple[int, int]]) -> None:
            segments = [self.programs[d].segments[g] for d, g in ends]
            held = tuple(Vars(v for s in segments for v in s.held[i]) for i in (0, 1))
            run = segments[0] if len(segments) == 1 else _Joined((segments[0], segments[1]))
            begins = tuple(d for d, _ in ends if d not in begun)
            begun.update(begins)
            lane = self.programs[ends[-1][0]].arena.lane
            found.append(_Push(run, (held[0], held[1]), segments[0].names[0], lane, segments[0].kind, begins))

        there = {(d, g) for d, segments in enumerate(rest) for g in segments}
        for _, ends in sorted(self._ends.items()):
            if not there.issuperset(ends.items()):
                continue  # of the other pass
            for d, g in ends.items():
                while rest[d][-1] != g:
                    add([(d, rest[d].pop())])
                rest[d].pop()
            add(list(ends.items()))
        for d, segments in enumerate(rest):
            while segments:
                add([(d, segments.pop())])
        return found
