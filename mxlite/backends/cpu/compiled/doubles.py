"""Vectors of float64 beside a function's vectors of float32: for long sums, and for intermediate values
for which float32 is too coarse.
"""

from __future__ import annotations

import struct

from .arithmetic import Arithmetic
from .emitter import Function


def slot(value: float) -> int:
    """`value` as a 64-bit integer, for a slot of the arguments."""
    (bits,) = struct.unpack("<q", struct.pack("<d", value))
    return int(bits)


class Doubles(Arithmetic):
    """Operations of a function on float64: as many lanes as its float32 vectors have."""

    def __init__(self, f: Function) -> None:
        self.f = f
        self.vector, self.wholes = f"<{f.width} x double>", f"<{f.width} x i64>"
        self.zero = "zeroinitializer"

    def number(self, slot: int) -> str:
        """Slot `slot` of the arguments, a float64, in all lanes."""
        f = self.f
        one = f.emit(f"load double, ptr {f.offset('%args', str(slot), 8)}, align 8")
        return self.every(one)

    def every(self, scalar: str) -> str:
        """A number in all lanes."""
        f = self.f
        first = f.emit(f"insertelement {self.vector} poison, double {scalar}, i32 0")
        return f.emit(f"shufflevector {self.vector} {first}, {self.vector} poison, {f.ints} zeroinitializer")

    def widen(self, a: str) -> str:
        """A float32 vector as float64."""
        return self.f.emit(f"fpext {self.f.vector} {a} to {self.vector}")

    def narrow(self, a: str, odd: bool = False) -> str:
        """A float64 vector rounded to float32; `odd`: inexact values to the neighbour with an odd last
        bit, so that a second rounding gives the right result (S. Boldo, G. Melquiond, 2008, "Emulation of
        FMA and correctly rounded sums: proved algorithms using rounding to odd").
        """
        f = self.f
        near = f.emit(f"fptrunc {self.vector} {a} to {f.vector}")
        if not odd:
            return near
        back, bits = self.widen(near), f.as_int(near)
        last = f.emit(f"and {f.ints} {bits}, splat (i32 1)")
        wrong = self.both(self.compare("one", back, a), f.emit(f"icmp eq {f.ints} {last}, zeroinitializer"))
        below = self.compare("olt", self.abs(back), self.abs(a))
        step = f.emit(f"select {f.bits} {below}, {f.ints} splat (i32 1), {f.ints} splat (i32 -1)")
        moved = f.emit(f"add {f.ints} {bits}, {step}")
        return f.as_float(f.emit(f"select {f.bits} {wrong}, {f.ints} {moved}, {f.ints} {bits}"))

    def load(self, pointer: str, index: str, mask: str | None = None) -> str:
        """The vector at element `index`; lanes outside `mask` are 0."""
        f, at = self.f, self.f.offset(pointer, index, 8)
        if mask is None:
            return f.emit(f"load {self.vector}, ptr {at}, align 8")
        given = (("ptr", at), ("i32", "8"), (f.bits, mask), (self.vector, self.zero))
        return f.call(self.vector, f"llvm.masked.load.v{f.width}f64.p0", *given)

    def store(self, a: str, pointer: str, index: str, mask: str | None = None) -> None:
        """Write `a` from element `index` on, but not the lanes outside `mask`."""
        f, at = self.f, self.f.offset(pointer, index, 8)
        if mask is None:
            f.do(f"store {self.vector} {a}, ptr {at}, align 8")
            return
        name = f"llvm.masked.store.v{f.width}f64.p0"
        f.module.declare(f"void @{name}({self.vector}, ptr, i32, {f.bits})")
        f.do(f"call void @{name}({self.vector} {a}, ptr {at}, i32 8, {f.bits} {mask})")

    def load_as(self, pointer: str, index: str, dtype: str, mask: str | None = None) -> str:
        """As `load`, of an array of `dtype`."""
        if dtype == "float64":
            return self.load(pointer, index, mask)
        return self.widen(self.f.load(pointer, index, dtype, mask))

    def load_one(self, pointer: str, index: str, dtype: str) -> str:
        """The element at `index` of an array of `dtype`, in all lanes."""
        if dtype != "float64":
            return self.widen(self.f.load_one(pointer, index, dtype))
        return self.every(self.f.emit(f"load double, ptr {self.f.offset(pointer, index, 8)}, align 8"))

    def store_as(self, a: str, pointer: str, index: str, dtype: str, mask: str | None = None) -> None:
        """As `store`, rounded to `dtype`."""
        if dtype == "float64":
            self.store(a, pointer, index, mask)
        else:
            self.f.store(self.narrow(a, dtype == "float16"), pointer, index, dtype, mask)

    def store_one(self, a: str, pointer: str, index: str, dtype: str) -> None:
        """Write the first lane of `a`, rounded to `dtype`, at element `index`."""
        if dtype != "float64":
            self.f.store_one(self.narrow(a, dtype == "float16"), pointer, index, dtype)
            return
        first = self.f.emit(f"extractelement {self.vector} {a}, i32 0")
        self.f.do(f"store double {first}, ptr {self.f.offset(pointer, index, 8)}, align 8")

    def op(self, name: str, *values: str) -> str:
        """An instruction: `fadd`, `fdiv`, ..."""
        return self.f.emit(f"{name} {self.vector} {', '.join(values)}")

    def const(self, value: float) -> str:
        """A number in all lanes."""
        return f"splat (double 0x{slot(value) % 2**64:016X})"

    def intrinsic(self, name: str, *values: str) -> str:
        """`llvm.<name>` of these vectors: sqrt, fabs, floor, rint, copysign and others."""
        width = self.f.width
        return self.f.call(self.vector, f"llvm.{name}.v{width}f64", *((self.vector, v) for v in values))

    def fma(self, a: str, b: str, c: str) -> str:
        """a * b + c, rounded once."""
        return self.intrinsic("fma", a, b, c)

    def muladd(self, a: str, b: str, c: str) -> str:
        """a * b + c, rounded once where the CPU can."""
        return self.intrinsic("fmuladd", a, b, c)

    def abs(self, a: str) -> str:
        return self.intrinsic("fabs", a)

    def sqrt(self, a: str) -> str:
        return self.intrinsic("sqrt", a)

    def compare(self, how: str, a: str, b: str) -> str:
        """A mask; see `Function.compare`."""
        return self.f.emit(f"fcmp {how} {self.vector} {a}, {b}")

    def select(self, mask: str, a: str, b: str) -> str:
        """a where `mask`, else b."""
        return self.f.emit(f"select {self.f.bits} {mask}, {self.vector} {a}, {self.vector} {b}")

    def both(self, a: str, b: str) -> str:
        """The mask of where two masks hold."""
        return self.f.emit(f"and {self.f.bits} {a}, {b}")

    def above(self, a: str, least: str) -> str:
        """The larger of a and `least`; a where a is NaN."""
        return self.select(self.compare("ogt", least, a), least, a)

    def below(self, a: str, most: str) -> str:
        """The smaller of a and `most`; a where a is NaN."""
        return self.select(self.compare("olt", most, a), most, a)

    def whole(self, name: str, a: str, b: str) -> str:
        """An instruction on vectors of 64-bit whole numbers."""
        return self.f.emit(f"{name} {self.wholes} {a}, {b}")

    def every_whole(self, value: int) -> str:
        """A 64-bit whole number in all lanes."""
        return f"splat (i64 {value})"

    def as_whole(self, a: str) -> str:
        """The bits of a vector."""
        return self.f.emit(f"bitcast {self.vector} {a} to {self.wholes}")

    def as_double(self, a: str) -> str:
        """The vector with these bits."""
        return self.f.emit(f"bitcast {self.wholes} {a} to {self.vector}")

    def not_below_zero(self, a: str) -> str:
        """`a`, or 0 where it is negative; NaN stays."""
        f = self.f
        below = f.emit(f"fcmp olt {self.vector} {a}, {self.zero}")
        return f.emit(f"select {f.bits} {below}, {self.vector} {self.zero}, {self.vector} {a}")

    def total(self, a: str) -> str:
        """The sum of the lanes, in all lanes."""
        found = self.f.call(
            "double",
            f"llvm.vector.reduce.fadd.v{self.f.width}f64",
            ("double", "0x8000000000000000"),  # -0.0, which changes no sum
            (self.vector, a),
            flags="reassoc",
        )
        return self.every(found)
