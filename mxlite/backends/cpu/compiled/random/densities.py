"""Densities of random numbers and their gradients, as generated code: the laws of random_pdf.py,
traced. Sums over the samples of a parameter are float64, in one order however many threads there are.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from .....core.machine_code import native
from ..calls.team import load
from ..codegen.doubles import Doubles
from ..codegen.emitter import Function, Module
from ..codegen.ir import Value
from ..codegen.traced import Traced, Tracer
from .parameters import Blocks, Parameters, SLOTS

Law = Callable[..., Any]


class DensityForm(NamedTuple):
    """Parameters that the code depends on. `made`: dtypes of the gradients by the sample and by each
    parameter, "" for those not wanted; none at all for the density itself."""

    law: Law
    is_log: bool
    sample: str
    out: str
    parameters: Parameters
    made: tuple[str, ...] = ()


@functools.lru_cache(maxsize=256)
def code(form: DensityForm) -> native.Code:
    """The code with one function, `density`. Arguments: those of `parameters.py`, the sample, the density or
    its gradient, and the requested gradients.
    """
    module = Module()
    _DensityWriter(module.function("density"), form).write()
    return load(module)


class _DensityWriter:
    def __init__(self, f: Function, form: DensityForm) -> None:
        self.f, self.form, self.d = f, form, Doubles(f)
        self.xp = Tracer(self.d)
        self.blocks = Blocks(f, self.xp, form.parameters)
        after = SLOTS + len(form.parameters.kinds)
        self.sample, self.out = f.pointer(after), f.pointer(after + 1)
        self.made = [f.pointer(after + 2 + k) for k in range(len(form.made))]

    def write(self) -> None:
        if self.form.parameters.aligned:
            self.blocks.aligned(self._gradients if self.form.made else self._density)
        else:
            self.blocks.rows(self._row)
        self.f.done()
        self.f.prune()

    def _law(self, index: Value, mask: Value | None, parameters: Sequence[Traced]) -> list[Traced]:
        x = self.xp.real(self.d.load_as(self.sample, index, self.form.sample, mask))
        return list(self.form.law(self.xp, x, *self._held(parameters)))

    def _density(self, index: Value, mask: Value | None, parameters: Sequence[Traced]) -> None:
        value = self._law(index, mask, parameters)[0]
        value = value if self.form.is_log else self.xp.exp(value)
        self.d.store_as(value.value, self.out, index, self.form.out, mask)

    def _slopes(self, index: Value, mask: Value | None, parameters: Sequence[Traced]) -> list[Traced]:
        """The slopes times the head gradient."""
        value, *slopes = self._law(index, mask, parameters)
        head = self.xp.real(self.d.load_as(self.out, index, self.form.out, mask))
        if not self.form.is_log:
            head = head * self.xp.exp(value)
        return [head * s for s in slopes]

    def _gradients(self, index: Value, mask: Value | None, parameters: Sequence[Traced]) -> None:
        for s, target, dtype in zip(self._slopes(index, mask, parameters), self.made, self.form.made):
            if dtype:
                self.d.store_as(s.value, target, index, dtype, mask)

    def _row(self, row: Value, begin: Value, end: Value, parameters: Sequence[Traced]) -> None:
        sample = self.xp.real(Value(self.d.vector, "%sample"))  # a placeholder: what depends on it is pruned
        with self.f.ahead(lambda: self.form.law(self.xp, sample, *self._held(parameters))):
            if self.form.made:
                self._summed(row, begin, end, parameters)
            else:
                self.f.sweep(begin, end, lambda i, mask: self._density(i, mask, parameters))

    def _held(self, parameters: Sequence[Traced]) -> list[Traced]:
        """Copies, which no other code changes."""
        return [self.xp.real(p.value) for p in parameters]

    def _summed(self, row: Value, begin: Value, end: Value, parameters: Sequence[Traced]) -> None:
        d, (by_sample, *kinds) = self.d, self.form.made
        wanted = [k for k, kind in enumerate(kinds) if kind]

        def add(index: Value, mask: Value | None, *sums: Value) -> list[Value]:
            first, *slopes = self._slopes(index, mask, parameters)
            if by_sample:
                d.store_as(first.value, self.made[0], index, by_sample, mask)
            added = [slopes[k].value for k in wanted]
            if mask is not None:
                added = [d.select(mask, x, d.const(0.0)) for x in added]
            return [d.add(s, x) for s, x in zip(sums, added)]

        found = self.f.sweep(begin, end, add, [d.const(0.0)] * len(wanted))
        for k, total in zip(wanted, found):
            d.store_one(d.total(total), self.made[1 + k], row, kinds[k])
