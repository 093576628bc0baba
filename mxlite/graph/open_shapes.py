"""Shapes around an operator of which some input has open axes, found by trying lengths.

An operator says its shapes once, in `infer_shape`, which takes whole shapes. What follows from partly known
shapes is found by asking it several times, with other lengths on the open axes each time:

    FullyConnected(num_hidden=7) of data (?, 10)

    ask with   (1, 10)  (2, 10)  (840, 10)  ...
    out is     (1,  7)  (2,  7)  (840,  7)  ...     differs, so open; the same each time, so 7
    weight is  (7, 10)  (7, 10)  (7, 10)    ...     the same each time

An answer counts if it agrees with all that is known of inputs and outputs; an axis for which only one length
is accepted has that length. So the same questions carry a batch size backwards, from an output to its inputs,
and from one input to another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import combinations
from typing import Any

from ..core.cached import cached_property
from ..core.compat.npshape import is_np_shape, UNKNOWN
from ..core.errors import OpAttributeError, ShapeError
from .ir import Shape
from .opdef import agreed_shape, known_shape, Op

LENGTHS = (1, 2, 3, 4, 6, 8, 12, 30, 60, 840, 5040)
"""Lengths to try: short ones that kernels do not fit in, long ones that many numbers divide."""

MOST_AXES = 6
"""The most open axes of one operator that are tested for being one: the questions double with each."""

Known = tuple[Shape | None, ...]
Place = tuple[int, int]  # input, axis
Answer = tuple[Known, Mapping[Place, int]]


def shapes_around(op: type[Op], a: Any, ins: Known, outs: Known) -> Known:
    """The shapes of inputs and outputs, in one sequence, that follow from the known ones, or None.

    Every input outside `op.inferred` must have a known number of axes, and one of them an open one.
    """
    return _kept(op, a, ins, outs, is_np_shape())


def _shapes_around(op: type[Op], a: Any, ins: Known, outs: Known, np_shape: bool) -> Known:
    trials = _Trials(op, a, ins, outs)
    answers = list(trials.answers())
    nothing: Known = (None,) * (len(ins) + len(outs))
    if not answers:
        return nothing
    fixed = [p for p in trials.places if len({lengths[p] for _, lengths in answers}) == 1]
    if len(fixed) > 1 and not trials.are_one:
        return nothing
    if not all(trials.is_only(place, answers[0][1]) for place in fixed):
        return nothing  # too little was accepted to tell what depends on these axes
    return tuple(_common(shapes) for shapes in zip(*(answer for answer, _ in answers)))


_kept: Callable[[Any, Any, Known, Known, bool], Known] = lru_cache(maxsize=4096)(_shapes_around)


def _common(shapes: Sequence[Shape | None]) -> Shape | None:
    """The lengths that all `shapes` have, and UNKNOWN where they differ; None if they differ in rank."""
    if any(s is None or len(s) != len(shapes[0] or ()) for s in shapes):
        return None
    return tuple(d[0] if len(set(d)) == 1 else UNKNOWN for d in zip(*(s for s in shapes if s is not None)))


class _Trials:
    """Questions to one operator: lengths for the open axes of its inputs."""

    def __init__(self, op: type[Op], a: Any, ins: Known, outs: Known) -> None:
        self.op, self.a, self.ins, self.known = op, a, ins, (*ins, *outs)
        inferred = op.inferred_names(a)
        self.free = [n in inferred for n in op.input_names(a)]
        self.places = [
            (i, axis)
            for i, (shape, free) in enumerate(zip(ins, self.free))
            if not free and shape is not None
            for axis, d in enumerate(shape)
            if d == UNKNOWN
        ]
        values = (getattr(a, field) for field in a.__dataclass_fields__)
        named = [v if isinstance(v, tuple) else (v,) for v in values]
        seen = {d for part in (*self.known, *named) for d in part or () if type(d) is int and d > 0}
        self.lengths = sorted({*LENGTHS, *seen})

    def ask(self, lengths: Mapping[Place, int]) -> Known | None:
        """All shapes with `lengths` on the open axes; None if the operator, or what is known, refuses."""
        if any(n < 1 for n in lengths.values()):
            return None
        filled = [
            (shape if known_shape(shape) else None)
            if free or shape is None
            else tuple(lengths.get((i, axis), d) for axis, d in enumerate(shape))
            for i, (shape, free) in enumerate(zip(self.ins, self.free))
        ]
        try:
            ins, outs = self.op.infer_shape(self.a, *filled)
        except (ShapeError, OpAttributeError):
            return None
        answer = (*ins, *outs)
        for old, new in zip(self.known, answer):
            if old is not None and new is not None and agreed_shape(old, new) is None:
                return None
        return answer

    def answers(self) -> Iterator[Answer]:
        """Accepted answers: one length for all open axes, then other lengths for one axis of each array."""
        together: list[Answer] = []
        for lengths in (self._like_the_others(), *(dict.fromkeys(self.places, n) for n in self.lengths)):
            answer = self.ask(lengths)
            if answer is not None:
                together.append((answer, lengths))
        yield from together
        axes = {axis for _, axis in self.places}
        if len(axes) > 1:
            for _, base in together[:1] + together[1:][-1:]:
                for axis in axes:
                    yield from self._varied(base, [p for p in self.places if p[1] == axis], self.lengths)

    def _varied(
        self, base: Mapping[Place, int], places: Sequence[Place], to: Sequence[int]
    ) -> Iterator[Answer]:
        for n in to:
            lengths = {**base, **dict.fromkeys(places, n)}
            if n != base[places[0]] and (answer := self.ask(lengths)) is not None:
                yield answer, lengths

    def _like_the_others(self) -> dict[Place, int]:
        """A length for each open axis: the longest known one of the same axis in the other arrays."""
        longest: dict[int, int] = {}
        for shape in self.known:
            for axis, d in enumerate(shape or ()):
                longest[axis] = max(longest.get(axis, 1), d)
        return {place: longest[place[1]] for place in self.places}

    def is_only(self, place: Place, base: Mapping[Place, int]) -> bool:
        """True if `base`'s length is the only one accepted there, alone or on all open axes together."""
        n = base[place]
        near = (n - 1, n + 1, 2 * n, 3 * n)
        tried = [{place: m} for m in (*self.lengths, *near) if m != n]
        tried += [dict.fromkeys(self.places, m) for m in near]
        return not any(self.ask({**base, **lengths}) for lengths in tried)

    @cached_property
    def are_one(self) -> bool:
        """True if all open axes must share one arbitrary length: none can change without the rest."""
        if len(self.places) > MOST_AXES:
            return False
        free = _Trials(self.op, self.a, self.ins, (None,) * (len(self.known) - len(self.ins)))
        equal = [dict.fromkeys(self.places, n) for n in self.lengths]
        accepted = [base for base in equal if free.ask(base)]
        first, *rest = self.places
        return len(accepted) > 1 and not any(
            free.ask({**base, **dict.fromkeys((first, *others), 2 * base[first])})
            for base in accepted[-2:]
            for count in range(len(rest))
            for others in combinations(rest, count)
        )
