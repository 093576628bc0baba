"""Vectors of float64 beside a function's vectors of float32: for long sums, and for intermediate values
for which float32 is too coarse.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from .arithmetic import Arithmetic
from .emitter import Function
from .ir import DOUBLE, number, Operand as Int, Type, Value, zero


def slot(value: float) -> int:
    """`value` as a 64-bit integer, for a slot of the arguments."""
    (bits,) = struct.unpack("<q", struct.pack("<d", value))
    return int(bits)


class Doubles(Arithmetic):
    """Operations of a function on float64: as many lanes as its float32 vectors have."""

    def __init__(self, f: Function) -> None:
        self.f = f
        self.vector, self.wholes = f.vector.of("double"), f.vector.of("i64")
        self.zero = zero(self.vector)

    def make(self, op: str, type: Type, operands: Sequence[Value], detail: Any = None) -> Value:
        return self.f.make(op, type, operands, detail)

    def number(self, slot: int) -> Value:
        """Slot `slot` of the arguments, a float64, in all lanes."""
        return self.f.every(self.f.load_at(DOUBLE, self.f.slot(slot), 8))

    def widen(self, a: Value) -> Value:
        """A float32 vector as float64."""
        return self.f.cast("fpext", a, self.vector)

    def narrow(self, a: Value, odd: bool = False) -> Value:
        """A float64 vector rounded to float32; `odd`: inexact values to the neighbour with an odd last
        bit, so that a second rounding gives the right result (S. Boldo, G. Melquiond, 2008, "Emulation of
        FMA and correctly rounded sums: proved algorithms using rounding to odd").
        """
        f = self.f
        near = f.cast("fptrunc", a, f.vector)
        if not odd:
            return near
        back, bits = self.widen(near), f.as_int(near)
        last = f.binary("and", bits, 1)
        wrong = f.both(f.compare("one", back, a), f.is_("eq", last, zero(f.ints)))
        below = f.compare("olt", self.abs(back), self.abs(a))
        moved = f.binary("add", bits, f.either(below, number(f.ints, 1), number(f.ints, -1)))
        return f.as_float(f.either(wrong, moved, bits))

    def load(self, pointer: Value, index: Int, mask: Value | None = None) -> Value:
        """The vector at element `index`; lanes outside `mask` are 0."""
        return self.f.masked_load(self.vector, self.f.offset(pointer, index, 8), 8, mask)

    def store(self, a: Value, pointer: Value, index: Int, mask: Value | None = None) -> None:
        """Write `a` from element `index` on, but not the lanes outside `mask`."""
        self.f.masked_store(a, self.f.offset(pointer, index, 8), 8, mask)

    def load_as(self, pointer: Value, index: Int, dtype: str, mask: Value | None = None) -> Value:
        """As `load`, of an array of `dtype`."""
        if dtype == "float64":
            return self.load(pointer, index, mask)
        return self.widen(self.f.load(pointer, index, dtype, mask))

    def load_one(self, pointer: Value, index: Int, dtype: str) -> Value:
        """The element at `index` of an array of `dtype`, in all lanes."""
        if dtype != "float64":
            return self.widen(self.f.load_one(pointer, index, dtype))
        return self.f.every(self.f.load_at(DOUBLE, self.f.offset(pointer, index, 8), 8))

    def store_as(self, a: Value, pointer: Value, index: Int, dtype: str, mask: Value | None = None) -> None:
        """As `store`, rounded to `dtype`."""
        if dtype == "float64":
            self.store(a, pointer, index, mask)
        else:
            self.f.store(self.narrow(a, dtype == "float16"), pointer, index, dtype, mask)

    def store_one(self, a: Value, pointer: Value, index: Int, dtype: str) -> None:
        """Write the first lane of `a`, rounded to `dtype`, at element `index`."""
        if dtype != "float64":
            self.f.store_one(self.narrow(a, dtype == "float16"), pointer, index, dtype)
            return
        first = self.f.lane(a, 0)
        self.f.store_at(first, self.f.offset(pointer, index, 8), 8)

    def const(self, value: float) -> Value:
        """A number in all lanes."""
        return number(self.vector, value)

    def intrinsic(self, name: str, *values: Value) -> Value:
        """`llvm.<name>` of these vectors: sqrt, fabs, floor, rint, copysign and others."""
        return self.f.call(self.vector, f"llvm.{name}.{self.vector.short}", *values)

    def fma(self, a: Value, b: Value, c: Value) -> Value:
        """a * b + c, rounded once."""
        return self.intrinsic("fma", a, b, c)

    def muladd(self, a: Value, b: Value, c: Value) -> Value:
        """a * b + c, rounded once where the CPU can."""
        return self.intrinsic("fmuladd", a, b, c)

    def both(self, a: Value, b: Value) -> Value:
        """The mask of where two masks hold."""
        return self.f.both(a, b)

    def whole(self, name: str, a: Value, b: Int) -> Value:
        """An instruction on vectors of 64-bit whole numbers."""
        return self.f.binary(name, a, b)

    def every_whole(self, value: int) -> Value:
        """A 64-bit whole number in all lanes."""
        return number(self.wholes, value)

    def as_whole(self, a: Value) -> Value:
        """The bits of a vector."""
        return self.f.cast("bitcast", a, self.wholes)

    def as_double(self, a: Value) -> Value:
        """The vector with these bits."""
        return self.f.cast("bitcast", a, self.vector)

    def not_below_zero(self, a: Value) -> Value:
        """`a`, or 0 where it is negative; NaN stays."""
        return self.select(self.compare("olt", a, self.zero), self.zero, a)

    def total(self, a: Value) -> Value:
        """The sum of the lanes, in all lanes."""
        return self.f.total(a)
