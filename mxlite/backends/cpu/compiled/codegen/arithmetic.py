"""Arithmetic, as instructions: on integers, and on vectors of one type of number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, overload

from .ir import I64, number, Operand as Int, Type, Value

_FOLDED: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
}


class Integers:
    """Mixin for classes that write instructions on integers. An operand may be a Python int: what is known is
    folded and not written, and else it has the type of the other operand, or i64.
    """

    def make(self, op: str, type: Type, operands: Sequence[Value], detail: Any = None) -> Value:
        """The value of an instruction; see `Instructions`."""
        raise NotImplementedError

    @staticmethod
    def value(x: Int, type: Type = I64) -> Value:
        """A whole number as a constant of a type; a value as it is."""
        return number(type, x) if isinstance(x, int) else x

    def _alike(self, a: Int, b: Int) -> tuple[Value, Value]:
        """Two values of one type: of numbers that of the other, else i64."""
        if isinstance(a, Value):
            if isinstance(b, Value):
                assert a.type is b.type, f"{a.type} {a} and {b.type} {b}"
                return a, b
            return a, number(a.type, b)
        type = b.type if isinstance(b, Value) else I64
        return number(type, a), b if isinstance(b, Value) else number(type, b)

    def binary(self, op: str, a: Int, b: Int) -> Value:
        """An instruction on two values of one type: `and`, `lshr`, `fadd`, ..."""
        x, y = self._alike(a, b)
        return self.make(op, x.type, (x, y))

    def int_op(self, op: str, a: Int, b: Int) -> Int:
        if isinstance(a, int) and isinstance(b, int) and op in _FOLDED:
            return _FOLDED[op](a, b)
        if isinstance(b, int) and (
            (op in ("add", "sub") and b == 0) or (op in ("mul", "sdiv", "udiv") and b == 1)
        ):
            return a
        if isinstance(a, int) and ((op == "add" and a == 0) or (op == "mul" and a == 1)):
            return b
        if op == "mul" and ((isinstance(a, int) and a == 0) or (isinstance(b, int) and b == 0)):
            return 0
        return self.binary(op, a, b)

    @overload
    def plus(self, a: Value, b: Int) -> Value: ...
    @overload
    def plus(self, a: Int, b: Int) -> Int: ...
    def plus(self, a: Int, b: Int) -> Int:
        return self.int_op("add", a, b)

    @overload
    def minus(self, a: Value, b: Int) -> Value: ...
    @overload
    def minus(self, a: Int, b: Int) -> Int: ...
    def minus(self, a: Int, b: Int) -> Int:
        return self.int_op("sub", a, b)

    @overload
    def times(self, a: Value, b: Value) -> Value: ...
    @overload
    def times(self, a: Int, b: Int) -> Int: ...
    def times(self, a: Int, b: Int) -> Int:
        return self.int_op("mul", a, b)

    @overload
    def over(self, a: Value, b: Int) -> Value: ...
    @overload
    def over(self, a: Int, b: Int) -> Int: ...
    def over(self, a: Int, b: Int) -> Int:
        """a // b of numbers that are not negative."""
        return self.int_op("udiv", a, b)

    @overload
    def rest(self, a: Value, b: Int) -> Value: ...
    @overload
    def rest(self, a: Int, b: Int) -> Int: ...
    def rest(self, a: Int, b: Int) -> Int:
        """a % b of numbers that are not negative."""
        return self.int_op("urem", a, b)

    def split(self, number: Value, lengths: Sequence[Int]) -> list[Value]:
        """The index along each axis of an element by its number in C order; `lengths`: of all but the
        first axis.
        """
        places: list[Value] = []
        for n in reversed(lengths):
            above = self.over(number, n)
            places.insert(0, self.minus(number, self.times(above, n)))
            number = above
        return [number, *places]

    def least(self, a: Int, b: Int) -> Value:
        return self.either(self.is_("slt", a, b), a, b)

    def most(self, a: Int, b: Int) -> Value:
        return self.either(self.is_("slt", a, b), b, a)

    def is_(self, how: str, a: Int, b: Int) -> Value:
        """A comparison as an i1 or a mask: `eq`, `slt`, `ult`, ... of whole numbers or addresses."""
        x, y = self._alike(a, b)
        return self.make("icmp", x.type.of("i1"), (x, y), how)

    def either(self, condition: Value, a: Int, b: Int) -> Value:
        """a if the condition holds, else b."""
        x, y = self._alike(a, b)
        return self.make("select", x.type, (condition, x, y))

    def both(self, a: Value, b: Value) -> Value:
        """True if both conditions hold."""
        return self.binary("and", a, b)

    def negated(self, a: Value) -> Value:
        return self.binary("xor", a, 1)

    def flag(self, condition: Value) -> Value:
        """1 where an i1 holds, else 0."""
        return self.make("zext", I64, (condition,))


class Arithmetic:
    """Mixin for writers of instructions on one kind of vector by `op`."""

    def make(self, op: str, type: Type, operands: Sequence[Value], detail: Any = None) -> Value:
        """The value of an instruction; see `Instructions`."""
        raise NotImplementedError

    def op(self, name: str, first: Value, *rest: Value) -> Value:
        """An instruction on values of one type: `fadd`, `fneg`, ..."""
        return self.make(name, first.type, (first, *rest))

    def add(self, a: Value, b: Value) -> Value:
        return self.make("fadd", a.type, (a, b))

    def sub(self, a: Value, b: Value) -> Value:
        return self.make("fsub", a.type, (a, b))

    def mul(self, a: Value, b: Value) -> Value:
        return self.make("fmul", a.type, (a, b))

    def div(self, a: Value, b: Value) -> Value:
        return self.make("fdiv", a.type, (a, b))

    def neg(self, a: Value) -> Value:
        return self.op("fneg", a)

    def intrinsic(self, name: str, *values: Value) -> Value:
        """`llvm.<name>` of vectors of this kind."""
        raise NotImplementedError

    def compare(self, how: str, a: Value, b: Value) -> Value:
        """A mask: `oeq`, `olt`, `ole`, `ogt`, `oge`, `une` as numpy's comparisons; `uno`: one is NaN."""
        return self.make("fcmp", a.type.of("i1"), (a, b), how)

    def select(self, mask: Value, a: Value, b: Value) -> Value:
        """a where `mask`, else b."""
        return self.make("select", a.type, (mask, a, b))

    def abs(self, a: Value) -> Value:
        return self.intrinsic("fabs", a)

    def sqrt(self, a: Value) -> Value:
        return self.intrinsic("sqrt", a)

    def above(self, a: Value, least: Value) -> Value:
        """The larger of a and `least`; a where a is NaN. One instruction on x86, unlike `maximum`."""
        return self.select(self.compare("ogt", least, a), least, a)

    def below(self, a: Value, most: Value) -> Value:
        """The smaller of a and `most`; a where a is NaN."""
        return self.select(self.compare("olt", most, a), most, a)

    def maximum(self, a: Value, b: Value) -> Value:
        """As numpy.maximum: NaN where either is."""
        return self.select(self.compare("uno", a, a), a, self.above(b, a))

    def minimum(self, a: Value, b: Value) -> Value:
        """As numpy.minimum: NaN where either is."""
        return self.select(self.compare("uno", a, a), a, self.below(b, a))
