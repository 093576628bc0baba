"""Vectors of float64 beside a function's vectors of float32: for sums that many numbers go into."""

from __future__ import annotations

import struct

from .emitter import Function


def slot(value: float) -> int:
    """`value` as a 64-bit integer, for a slot of the arguments."""
    (bits,) = struct.unpack("<q", struct.pack("<d", value))
    return int(bits)


class Doubles:
    """What a function does with float64: as many lanes as its float32 vectors have."""

    def __init__(self, f: Function) -> None:
        self.f = f
        self.vector = f"<{f.width} x double>"
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

    def narrow(self, a: str) -> str:
        """A float64 vector rounded to float32."""
        return self.f.emit(f"fptrunc {self.vector} {a} to {self.f.vector}")

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

    def op(self, name: str, *values: str) -> str:
        """An instruction: `fadd`, `fdiv`, ..."""
        return self.f.emit(f"{name} {self.vector} {', '.join(values)}")

    def sqrt(self, a: str) -> str:
        return self.f.call(self.vector, f"llvm.sqrt.v{self.f.width}f64", (self.vector, a))

    def not_below_zero(self, a: str) -> str:
        """`a`, or 0 where it is below that; NaN stays."""
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
