"""Launches of the kernels of a computation's nests: grids, blocks and arguments."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from math import prod
from typing import Any

from ....core.cached import cached_property
from ....core.dtype import as_dtype
from ....te.computation import REDUCTIONS
from ...nests.facts import facts_of
from ...nests.groups import Splitting
from ...nests.nest import Nests, PlacedNest
from ..compiler.source import assembled, KernelSource, NAMES, typedefs
from ..compiler.steps import CALLED, FUNCTIONS
from ..handwritten.each import blocks, launch
from ..handwritten.layout import columns, Divisor, Layout, MOST, rows
from ..runtime.device import Device, nothing, one_after_other, pointer, Run
from .printer import ADDS, BLOCK, COLUMNS, ELEMENTS, Form, MOST_THREADS, printed, ROWS

THREADS = Splitting(few=4096, nbytes=1 << 20, part=1 << 13, most=256, by_rows=False)
"""For some ten thousands of threads."""
PACK = 4
HELD = 4  # packs of a row that a thread has, about
ADDING = 1 << 16
"""Threads that add at indices, about: with more owners of places each index is read more often."""


class Launches:
    """The kernels of a computation's nests for given lengths. `call` connects them to arrays. Profilers see
    them as `name`0, `name`1, ...
    """

    def __init__(self, device: Device, nests: Nests, name: str = "nest") -> None:
        self.device, self.nests, self.name = device, nests, name
        self.placed = [_Placed(p, nests.number) for p in nests.nests]
        self.is_wide = any(p.is_wide for p in self.placed)
        self._length: Any = ctypes.c_int64 if self.is_wide else Divisor
        self._index: Any = ctypes.c_int64 if self.is_wide else ctypes.c_uint32

    @cached_property
    def text(self) -> KernelSource:
        """The kernels' source."""
        forms = tuple((p.placed.nest, p.form) for p in self.placed)
        return source(forms, self.nests.number, self.is_wide, self.name)

    def call(self, arrays: Sequence[Any]) -> Run:
        """The call for all arrays, which are in C order: inputs, outputs, scratch."""
        at = [self.device.address(x) for x in arrays]
        return one_after_other([self._run(k, p, at) for k, p in enumerate(self.placed)])

    def _run(self, k: int, p: _Placed, at: Sequence[int]) -> Run:
        nest = p.placed.nest
        loads, stores = ([at[x.array] for x in xs] for xs in (nest.loads, [x for _, x in nest.stores]))
        if p.facts.is_copy and loads == stores:  # in place
            return nothing
        values: list[Any] = [pointer(a) for a in (*loads, *stores, *(at[x.array] for *_, x in nest.adds))]
        values += [self._length(n) for n in p.lengths]
        values += [ctypes.c_int64(s) for strides in p.placed.strides for s in strides]
        values += [float(self.nests.constants[i]) for i in nest.constants]
        layout = p.layout(self.device)
        values += [self._length(p.parts), self._index(p.units), ctypes.c_uint32(p.group(layout))]
        packed = [x for x in (*nest.loads, *(x for _, x in nest.stores)) if x.mask[-1] and not x.gathered]
        is_aligned = all(at[x.array] % (p.form.pack * as_dtype(x.dtype).itemsize) == 0 for x in packed)
        values.append(int(is_aligned))
        return launch(self.device, self.text, f"{self.name}{k}", layout.grid, layout.block, *values)


class _Placed:
    """A nest with its form: lengths, of the last axis in packs, parts or owners of places, and units."""

    def __init__(self, placed: PlacedNest, number: str) -> None:
        self.placed, self.facts = placed, facts_of(placed.nest)
        nest, lengths = placed.nest, placed.lengths
        self.parts = placed.parts if nest.in_parts else 1
        kept = prod(lengths[k] for k in self.facts.kept)
        pack, threads, is_whole = 1, ELEMENTS, number == "int64"
        if nest.adds:
            threads = ADDS
            self.parts = 1 << max(0, (ADDING // max(1, kept)).bit_length() - 1)
        elif not all(nest.kept):
            threads = COLUMNS if nest.kept[-1] else ROWS
        if threads in (ELEMENTS, ROWS):
            most = 2 if number == "float64" else PACK
            most = most if CALLED.isdisjoint(step[0] for step in nest.steps) else 1
            pack = next(n for n in (most, 2, 1) if lengths[-1] % n == 0)
        self.lengths = (*lengths[:-1], lengths[-1] // pack)
        self.kept = prod(self.lengths[k] for k in self.facts.kept)
        self.units = self.kept * self.parts
        self.swept = -(-prod(self.lengths[k] for k in self.facts.reduced) // (1 if nest.adds else self.parts))
        self.form = Form(threads, pack, is_whole=is_whole)
        many = self.swept > BLOCK * self.group(self.layout(None)) and self._adds_up
        self.form = Form(threads, pack, many, is_whole)
        self.is_wide = max(prod(lengths), self.units) > MOST

    @property
    def _adds_up(self) -> bool:
        return any(step[0] in REDUCTIONS for step in self.placed.nest.steps)

    def group(self, layout: Layout) -> int:
        """Threads that share a kept point."""
        return layout.group or layout.block[1]

    def layout(self, device: Device | None) -> Layout:
        """Grid and blocks. Their shape follows from lengths; results depend on nothing else of it."""
        if self.form.threads == ROWS:
            return rows(self.units, self.swept, HELD, MOST_THREADS[ROWS])
        if self.form.threads == COLUMNS:
            x, y, _ = columns(self.kept, self.swept).block
            return Layout((min(MOST, -(-self.units // x)), 1, 1), (x, y, 1), 0)
        number = 1 if device is None else blocks(device, self.units, 32)
        return Layout((number, 1, 1), (MOST_THREADS[self.form.threads], 1, 1), 1)


@functools.lru_cache(maxsize=1024)
def source(
    nests: tuple[tuple[Any, Form], ...], number: str, is_wide: bool, name: str = "nest"
) -> KernelSource:
    """The kernels `name`0, `name`1, ... that compute in the type `number`; `is_wide`: counts have 64 bits."""
    used = {str(step[0]) for nest, _ in nests for step in nest.steps}
    more = ("whole", "functions") if number == "int64" or not used.isdisjoint(FUNCTIONS) else ()
    types = typedefs(C=NAMES[number])
    counts = (
        typedefs(Index="int64", Length="int64") if is_wide else typedefs(Index="uint32", Length="Divisor")
    )
    texts = [printed(nest, form, f"{name}{k}") for k, (nest, form) in enumerate(nests)]
    return assembled("types", types, "math", "index", counts, *more, "group", "nests", *texts)
