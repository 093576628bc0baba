"""Arithmetic on vectors, alike for every type of number."""

from __future__ import annotations

from collections.abc import Sequence

from .ir import Type, Value


class Arithmetic:
    """Mixin for writers of instructions on one kind of vector by `op`."""

    def make(self, op: str, type: Type, operands: Sequence[Value]) -> Value:
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
