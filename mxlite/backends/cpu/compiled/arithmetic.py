"""Arithmetic on vectors, alike for every type of number."""

from __future__ import annotations


class Arithmetic:
    """Mixin for writers of instructions on one kind of vector by `op`."""

    def op(self, name: str, *values: str) -> str:
        """An instruction: `fadd`, `fneg`, ..."""
        raise NotImplementedError

    def add(self, a: str, b: str) -> str:
        return self.op("fadd", a, b)

    def sub(self, a: str, b: str) -> str:
        return self.op("fsub", a, b)

    def mul(self, a: str, b: str) -> str:
        return self.op("fmul", a, b)

    def div(self, a: str, b: str) -> str:
        return self.op("fdiv", a, b)

    def neg(self, a: str) -> str:
        return self.op("fneg", a)
