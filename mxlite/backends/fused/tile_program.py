"""The program of a tile region: which kernels run on its tiles, in which order, and in what scratch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Any, TYPE_CHECKING

import numpy as np

from ...graph.ir import Shape
from ...graph.opdef import DType, Op
from ...ops.optim.update import CHUNK
from ...ops.scratch import accumulator, Piece, scratch_bytes
from ..base import Backend, ChosenKernel, Request, TileView

if TYPE_CHECKING:
    from .tiled import TileArray, TileAttrs, TileCall

_byte = np.dtype("uint8")

Choose = Callable[[Request], "ChosenKernel | None"]
"""The kernel for a request; None for one with views or accumulation that no kernel answers."""


def reference_kernels(request: Request) -> ChosenKernel | None:
    """The reference for every call: it takes neither views nor accumulates."""
    return None if request.tile.is_special else _reference(request)


def tuned_kernels(backend: Backend, request: Request) -> ChosenKernel | None:
    """The backend's kernel for a call."""
    if request.tile.is_special:
        return backend.tuned(request)
    return _safe(backend.kernel(request), request)


def _reference(request: Request) -> ChosenKernel:
    r = request
    return _safe(Backend.reference(r.op, r.attrs, r.inputs, r.outputs, r.dtype), request)


def _safe(kernel: ChosenKernel, request: Request) -> ChosenKernel:
    """`kernel` with room for a gradient that a reference step casts to the weight's type."""
    kinds = request.dtypes
    if not kernel.is_reference or not request.op.mutated(request.attrs) or kinds[0] == kinds[1]:
        return kernel
    return replace(kernel, workspace=kernel.workspace + cast_bytes(request.inputs[0], kinds[1]))


def cast_bytes(shape: Shape, dtype: DType) -> int:
    """Bytes in which a reference step casts a gradient of this shape and type."""
    return min(CHUNK, prod(shape)) * accumulator(dtype).itemsize


@dataclass(frozen=True)
class TileKernel:
    """The kernel of a call on tiles of one size. `copied` are the arrays of which it gets a contiguous copy,
    `added` those that are added to the earlier tiles' by a call of its own. `keeps`: a factor of what these,
    or the outputs that the kernel adds to, held before, where a call of its own multiplies them by it.
    """

    call: TileCall
    attrs: Any
    lengths: tuple[int, ...]
    chosen: ChosenKernel
    copied: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    keeps: float = 1.0

    @property
    def nbytes(self) -> int:
        """Bytes of scratch."""
        return self.chosen.workspace if "work" in self.chosen.signature.services else 0


_Key = tuple[int, tuple[int, ...], frozenset[str], float]
"""A call's number, the lengths of its tile, the outputs that it adds to, and the factor of what they held."""


class TileProgram:
    """The kernels of a region and its scratch: tiles of inner arrays, parts of sums, contiguous copies of
    tiles, terms of sums, and the kernels' scratch.
    """

    def __init__(self, a: TileAttrs, choose: Choose) -> None:
        self.a = a
        self.inner = [
            i for i, x in enumerate(a.arrays) if i >= a.num_inputs and i not in a.made and not x.sums
        ]
        self.home = {
            i: min((c.level for c in a.calls if i in (*c.inputs, *c.outputs)), default=0) for i in self.inner
        }
        self.kernels: dict[_Key, TileKernel] = {
            (n, lengths, *adds): self._kernel(call, lengths, *adds, choose)
            for n, call in enumerate(a.calls)
            for lengths in _sizes(a, call.level)
            for adds in self._accumulations(n)
        }
        self.place = self._places()
        self.sums = [i for i, x in enumerate(a.arrays) if x.sums]
        pieces: dict[Any, Piece] = {}
        for i in dict.fromkeys(self.place.values()):
            pieces["inner", i] = ((self._most(i),), a.arrays[i].dtype)
        for i in self.sums:
            pieces["part", i] = ((a.loops[0].num_tiles, *a.arrays[i].shape), a.arrays[i].dtype)
        for k in self.kernels.values():
            for kind, names in (("copy", k.copied), ("term", k.added)):
                for name in names:
                    i = k.call.named[name]
                    count = prod(tile_shape(a.arrays[i], k.lengths))
                    most = max(count, *pieces.get((kind, i), ((0,), None))[0])
                    pieces[kind, i] = ((most,), a.arrays[i].dtype)
        self.pieces = pieces
        self.rest = max((k.nbytes for k in self.kernels.values()), default=0)

    @property
    def nbytes(self) -> int:
        """Bytes of scratch."""
        return scratch_bytes([*self.pieces.values(), ((self.rest,), _byte)])

    @property
    def name(self) -> str:
        """The names of its kernels, and the sizes of its tiles."""
        names = dict.fromkeys(k.chosen.name for k in self.kernels.values())
        sizes = (f"{x.each} {x.unit}{'s' * (x.each > 1)}" for x in self.a.loops)
        return f"{', '.join(names)}, {', '.join(sizes)} at a time"

    @property
    def in_place(self) -> Mapping[str, tuple[str, ...]]:
        """The inputs that each output may overwrite, as far as the kernels allow."""
        return donors(self.a, [self._options(n) for n in range(len(self.a.calls))])

    def is_tuned(self, ops: Sequence[type[Op] | None]) -> bool:
        """True if the calls of these operators have better kernels than the reference, and accumulate."""
        return not any(k.chosen.is_reference or k.added for k in self.kernels.values() if k.call.op in ops)

    def _accumulations(self, n: int) -> list[tuple[frozenset[str], float]]:
        """The results of `adds` for call `n` in the first tile of its loops and in later ones."""
        loops = self.a.loops[: self.a.calls[n].level]
        firsts = product(*((0, 1) if x.num_tiles > 1 else (0,) for x in loops))
        return list(dict.fromkeys(self.adds(n, tiles) for tiles in firsts))

    def adds(self, n: int, tiles: Sequence[int]) -> tuple[frozenset[str], float]:
        """The outputs that call `n` adds to in these tiles of its loops, and the factor of what they held."""
        call = self.a.calls[n]
        sums = {name: self._summed(call, name) for name in call.wanted}
        added = frozenset(
            name for name, loops in sums.items() if self._is_begun(n, name) or any(tiles[x] for x in loops)
        )
        is_later = any(tiles[x] for loops in sums.values() for x in loops)
        return added, 1.0 if is_later else call.keeps

    def _summed(self, call: TileCall, name: str) -> list[int]:
        """The loops over which an output is accumulated: where it is whole and an input is not."""
        made, ins = self.a.arrays[call.named[name]], [self.a.arrays[i] for i in call.inputs if i >= 0]
        if made.sums:
            return []
        return [
            x for x in range(call.level) if made.axes[x] is None and any(y.axes[x] is not None for y in ins)
        ]

    def _is_begun(self, n: int, name: str) -> bool:
        """True if a call outside the loops of call `n` has written the output `name`, which is added to, or
        if it is an input.
        """
        call = self.a.calls[n]
        return call.named[name] < self.a.num_inputs or any(
            call.named[name] in c.outputs and c.level < call.level for c in self.a.calls[:n]
        )

    def _kernel(
        self, call: TileCall, lengths: tuple[int, ...], adds: frozenset[str], keeps: float, choose: Choose
    ) -> TileKernel:
        shapes = call.of(lengths)
        attrs, arrays = call.attrs_of(shapes), self.a.arrays
        held = {name: self._held(i, lengths) for name, i in call.named.items()}
        views = {
            name: _strides(array) for name, array in held.items() if not _is_dense(array, lengths, call.level)
        }
        types = {n: arrays[call.named[n]].dtype for n in call.wanted if n in adds or self._summed(call, n)}
        made = {n: kind for n, kind in types.items() if kind != call.dtypes[0]}
        tile = TileView(
            tuple(views.items()),
            adds,
            keeps if adds else 1.0,
            tuple(made.items()),
            int(call.flops) // 2,
            self.a.any_width,
        )
        used = frozenset(call.named)
        request = Request(call.op, attrs, *shapes, call.dtypes[0], call.dtypes, used, True, tile)
        for here, rest in ((tile, 1.0), (replace(tile, keeps=1.0), tile.keeps)):
            chosen = choose(replace(request, tile=here))
            if chosen is not None:
                copied = tuple(n for n in views if n not in chosen.views)
                return TileKernel(call, attrs, lengths, chosen, copied, (), rest)
        chosen = choose(replace(request, tile=TileView(work=tile.work, any_width=tile.any_width)))
        assert chosen is not None
        added = tuple(n for n in call.wanted if n in adds)
        return TileKernel(call, attrs, lengths, chosen, tuple(views), added, tile.keeps)

    def _held(self, i: int, lengths: tuple[int, ...]) -> TileArray:
        """Array `i` as it lies in memory: of one in scratch, a tile of the loops around all its calls."""
        array = self.a.arrays[i]
        if i not in self.inner:
            return array
        return replace(array, shape=cut(array.shape, array.axes, lengths[: self.home[i]]))

    def _most(self, i: int) -> int:
        """Number of elements of array `i` in a tile of the outermost call that it is an array of."""
        level = min(c.level for c in self.a.calls if i in (*c.inputs, *c.outputs))
        return prod(tile_shape(self.a.arrays[i], [max(x.sizes, default=0) for x in self.a.loops[:level]]))

    def _options(self, n: int) -> Mapping[str, tuple[str, ...]]:
        """The inputs that an output of call `n` may overwrite in each of its kernels."""
        call = self.a.calls[n]
        found = [k.chosen.in_place_options(call.op, k.attrs) for k in self.kernels.values() if k.call is call]
        return {
            o: tuple(d for d in ds if all(d in f.get(o, ()) for f in found)) for o, ds in found[0].items()
        }

    def _places(self) -> dict[int, int]:
        """For each inner array the one that it overwrites: one that dies with the call, if kernels allow."""
        a, place = self.a, {}
        last = {i: n for n, c in enumerate(a.calls) for i in c.inputs}
        for n, call in enumerate(a.calls):
            taken: set[int] = set()
            options = self._options(n)
            for name in call.wanted:
                i = call.named[name]
                if i not in self.inner or i in place:
                    continue
                place[i] = i
                for donor in options.get(name, ()):
                    j = call.named.get(donor, -1)
                    dies = j in place and last[j] == n and j not in taken and self.home[j] == self.home[i]
                    if dies and _alike(a.arrays[i], a.arrays[j]):
                        place[i] = place[j]
                        taken.add(j)
                        break
        return place

    def needed(self, there: set[int]) -> set[int]:
        """Arrays that have to be computed for these outputs."""
        needed = set(there)
        for call in reversed(self.a.calls):
            if needed.intersection(call.outputs) or call.op.mutated(call.attrs):
                needed.update(call.inputs)
        return needed


def donors(a: TileAttrs, options: Sequence[Mapping[str, tuple[str, ...]]]) -> dict[str, tuple[str, ...]]:
    """The inputs that each output may overwrite; `options` are those of each call."""
    found: dict[str, tuple[str, ...]] = {}
    maker = {i: n for n, c in enumerate(a.calls) for i in c.outputs if i >= 0}
    last = {i: n for n, c in enumerate(a.calls) for i in c.inputs}
    for o, i in enumerate(a.made):
        n = maker[i]
        call = a.calls[n]
        (name,) = (w for w in call.wanted if call.named[w] == i)
        level = min(c.level for c in a.calls if i in c.outputs)
        own = {call.named.get(d, -1) for d in options[n].get(name, ())}
        found[f"output{o}"] = tuple(
            f"arg{j}"
            for j in range(a.num_inputs)
            if _alike(a.arrays[i], a.arrays[j], level) and (last[j] < n or (last[j] == n and j in own))
        )
    return found


def _alike(x: TileArray, y: TileArray, level: int | None = None) -> bool:
    """True if tiles of both have the same size, and no array is read again in a later tile of so many loops,
    all unless given.
    """
    axes = x.axes[:level]
    is_tiled = None not in axes and not x.sums and not y.sums
    return is_tiled and (axes, x.shape, x.dtype) == (y.axes[:level], y.shape, y.dtype)


def _sizes(a: TileAttrs, level: int) -> Iterator[tuple[int, ...]]:
    """The lengths of tiles inside of `level` loops."""
    if level == 0:
        yield ()
        return
    for outer in _sizes(a, level - 1):
        for length in a.loops[level - 1].sizes:
            yield (*outer, length)


def cut(shape: Shape, axes: Sequence[int | None], lengths: Sequence[int]) -> Shape:
    """`shape` in a tile of these lengths, one for each loop around it."""
    found = list(shape)
    for axis, length in zip(axes, lengths):
        if axis is not None:
            found[axis] = length
    return tuple(found)


def tile_shape(array: TileArray, lengths: Sequence[int]) -> Shape:
    """The shape of an array in a tile of these lengths."""
    return cut(array.shape, array.axes, lengths)


def _strides(array: TileArray) -> Shape:
    """Elements between neighbours along each axis of an array, in C order unless it says otherwise."""
    shape = array.shape
    return array.strides or tuple(prod(shape[i + 1 :]) for i in range(len(shape)))


def _is_dense(array: TileArray, lengths: Sequence[int], level: int) -> bool:
    """True if a tile of an array is contiguous."""
    shape = tile_shape(array, lengths[:level])
    there = [i for i, n in enumerate(shape) if n > 1]
    strides, expected = _strides(array), 1
    for i in reversed(there):
        if strides[i] != expected:
            return False
        expected *= shape[i]
    return True
