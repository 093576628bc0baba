"""The calls of a tile region on given arrays, in their order."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np

from ...ops.scratch import carve
from ..base import Run
from ..call import bind_call
from .tile_program import tile_shape, TileProgram

_byte = np.dtype("uint8")


def tile_calls(
    program: TileProgram, xp: Any, args: Sequence[Any], outs: Sequence[Any], work: Any
) -> Sequence[Run]:
    """The calls of a program on these arrays; an output that is None is not computed."""
    return _Binding(program, xp, args, outs, work).calls()


class _Binding:
    """The calls of a program on given arrays."""

    def __init__(self, program: TileProgram, xp: Any, args: Sequence[Any], outs: Sequence[Any], work: Any):
        a = self.a = program.a
        self.program, self.xp = program, xp
        *pieces, self.rest = carve(work, [*program.pieces.values(), ((program.rest,), _byte)])
        self.pieces = dict(zip(program.pieces, pieces))
        given = dict(zip((*range(a.num_inputs), *a.made), (*args, *outs), strict=True))
        self.whole = {i: None if x is None else x.reshape(a.arrays[i].shape) for i, x in given.items()}
        self.needed = program.needed({i for i, x in self.whole.items() if x is not None})
        self.found: list[Run] = []

    def calls(self) -> Sequence[Run]:
        """All calls in their order."""
        self._nest(range(len(self.a.calls)), (), ())
        for i in self.program.sums:
            if self.whole[i] is not None:
                part = self.pieces["part", i]
                self.found.append(partial(self.xp.add.reduce, part, axis=0, out=self.whole[i]))
        return self.found

    def _nest(self, numbers: Sequence[int], at: tuple[slice, ...], tiles: tuple[int, ...]) -> None:
        """The calls `numbers` in the tile `at`, which is the number `tiles` of each loop around them."""
        level, rest = len(at), list(numbers)
        while rest:
            if self.a.calls[rest[0]].level == level:
                self._one(rest.pop(0), at, tiles)
                continue
            count = next((n for n, c in enumerate(rest) if self.a.calls[c].level == level), len(rest))
            inside, rest = rest[:count], rest[count:]
            for number, part in enumerate(self.a.loops[level].tiles):
                self._nest(inside, (*at, part), (*tiles, number))

    def _one(self, n: int, at: tuple[slice, ...], tiles: tuple[int, ...]) -> None:
        call, program, xp = self.a.calls[n], self.program, self.xp
        adds, keeps = program.adds(n, tiles)
        kernel = program.kernels[n, tuple(p.stop - p.start for p in at), adds, keeps]
        arrays = {name: self._array(i, at, tiles) for name, i in call.named.items()}
        changed = call.op.mutated(call.attrs)
        if not changed and all(arrays[name] is None for name in call.wanted):
            return
        own = dict(arrays)
        for kind, names in (("copy", kernel.copied), ("term", kernel.added)):
            for name in names:
                if arrays[name] is not None:
                    piece = self.pieces[kind, call.named[name]]
                    own[name] = piece[: arrays[name].size].reshape(arrays[name].shape)
        if kernel.keeps != 1:
            for array in (arrays[name] for name in adds):
                self.found.append(partial(xp.multiply, array, array.dtype.type(kernel.keeps), array))
        names, results = call.op.input_names(call.attrs), call.op.output_names(call.attrs)
        for name in kernel.copied:
            if (name in names or (name in adds and name not in kernel.added)) and arrays[name] is not None:
                self.found.append(partial(xp.copyto, own[name], arrays[name]))
        run = bind_call(
            kernel.chosen,
            xp,
            call.op,
            kernel.attrs,
            [own.get(name) for name in names],
            [own.get(name) for name in results],
            work=self.rest[: kernel.nbytes],
            train=True,
            shapes=call.of(kernel.lengths),
            state={},
        )
        self.found.append(run)
        for name in kernel.added:
            if arrays[name] is not None:
                self.found.append(partial(xp.add, arrays[name], own[name], out=arrays[name]))
        for name in kernel.copied:
            if (name in results or name in changed) and name not in kernel.added and arrays[name] is not None:
                self.found.append(partial(xp.copyto, arrays[name], own[name]))

    def _array(self, i: int, at: tuple[slice, ...], tiles: tuple[int, ...]) -> Any:
        """Array `i` in a tile; None if nobody needs it."""
        a, program = self.a, self.program
        if i >= a.num_inputs and i not in self.needed:
            return None
        if a.arrays[i].sums:
            return self.pieces["part", i][tiles[0]]
        if i in program.place:
            home = program.home[i]
            shape = tile_shape(a.arrays[i], [p.stop - p.start for p in at[:home]])
            array = self.pieces["inner", program.place[i]][: prod(shape)].reshape(shape)
        else:
            home, array = 0, self.whole[i]
        if array is None:
            return None
        index = [slice(None)] * array.ndim
        for axis, part in zip(a.arrays[i].axes[home:], at[home:]):
            if axis is not None:
                index[axis] = part
        return array[tuple(index)]
