"""Functions inside a module of generated code, with parameters of their own, called by its other
functions.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from ....core import native
from ..compiled import Function, load, Module

_INTRINSIC = {"add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b}

Int = str | int  # an i64: the name of a value, or a constant


class Program(Module):
    """A module with routines."""

    def __init__(self) -> None:
        super().__init__()
        self._routines: dict[str, Routine] = {}
        self._codes: list[native.Code] = []

    def routine(self, name: str, **parameters: str) -> Routine:
        """A `void name(parameters)` for this module; they are of types `ptr` and `i64`."""
        made = self._routines[name] = Routine(self, name, parameters)
        return made

    def entry(self, name: str) -> Routine:
        """A function as `Module.function`, with the emitting methods of a routine."""
        made = Routine(self, name, None)
        self._functions.append(made)
        return made

    def borrow(self, make: Callable[..., str], *args: Any) -> str:
        """The name of the routine `make(program, *args)`, which is compiled once for all modules."""
        code, name = _lent(make, *args)
        self._codes.append(code)
        return name

    def text(self, team: bool = True) -> str:
        return super().text(team) + "\n" + "\n".join(r.text() for r in self._routines.values())


@functools.cache
def _lent(make: Callable[..., str], *args: Any) -> tuple[native.Code, str]:
    """The code of a routine, which other modules can call by its name from now on."""
    program = Program()
    name = make(program, *args)
    program._routines[name].linkage = ""
    code = load(program)
    native.add_symbol(name, code.address(name))
    return code, name


class Cut:
    """A step of `Routine.cut`: the amount `done` so far; `size`, to be set, is the amount of this step."""

    def __init__(self, done: str) -> None:
        self.done, self.size = done, done


class Routine(Function):
    """A function with integer arithmetic that folds constants."""

    def __init__(self, program: Program, name: str, parameters: dict[str, str] | None) -> None:
        super().__init__(program, name)
        self.program = program
        self.parameters = parameters
        self.linkage = "internal "

    def text(self) -> str:
        if self.parameters is None:
            return super().text()
        head = ", ".join(f"{t} %{n}" for n, t in self.parameters.items())
        lines = "\n".join(self._lines)
        return f"define {self.linkage}void @{self.name}({head}) #0 {{\nentry:\n{lines}\n}}\n"

    def run(self, name: str, *args: tuple[str, Int]) -> None:
        """Call a routine, one of this module or a borrowed one."""
        if name not in self.program._routines:
            self.program.declare(f"void @{name}({', '.join(t for t, _ in args)})")
        self.do(f"call void @{name}({', '.join(f'{t} {v}' for t, v in args)})")

    @contextlib.contextmanager
    def cut(self, total: Int) -> Iterator[Cut]:
        """Steps of any size until `total` is done."""
        before, head, inside, after = self._block, self._label(), self._label(), self._label()
        self.do(f"br label %{head}")
        self._begin(head)
        self._count += 1
        cut = Cut(f"%done{self._count}")
        at = len(self._lines)
        self._lines.append("")
        self.do(f"br i1 {self.is_('slt', cut.done, total)}, label %{inside}, label %{after}")
        self._begin(inside)
        yield cut
        following = self.plus(cut.done, cut.size)
        self.do(f"br label %{head}")
        self._lines[at] = f"  {cut.done} = phi i64 [ 0, %{before} ], [ {following}, %{self._block} ]"
        self._begin(after)

    @contextlib.contextmanager
    def items(self, total: Int, slot: int) -> Iterator[str]:
        """Loop over numbers below `total` that no other thread has taken, as long as there are any.

        A thread that the system has suspended then does not keep the others waiting for work that it has
        not begun. Slots `slot` and `slot` + 1 count what is taken and which threads have finished; the last
        one to finish resets them for the next call.
        """
        taken, finished = self.offset("%args", str(slot), 8), self.offset("%args", str(slot + 1), 8)
        head, inside, after = self._label(), self._label(), self._label()
        self.do(f"br label %{head}")
        self._begin(head)
        item = self.emit(f"atomicrmw add ptr {taken}, i64 1 monotonic")
        self.do(f"br i1 {self.is_('ult', item, total)}, label %{inside}, label %{after}")
        self._begin(inside)
        yield item
        self.do(f"br label %{head}")
        self._begin(after)
        before = self.emit(f"atomicrmw add ptr {finished}, i64 1 monotonic")
        with self.when(self.is_("eq", self.plus(before, 1), self.threads)):
            self.do(f"store atomic i64 0, ptr {taken} monotonic, align 8")
            self.do(f"store atomic i64 0, ptr {finished} monotonic, align 8")

    # -- integers ----------------------------------------------------------------------------------

    def int_op(self, op: str, a: Int, b: Int) -> Int:
        if isinstance(a, int) and isinstance(b, int) and op in _INTRINSIC:
            return _INTRINSIC[op](a, b)
        if (op in ("add", "sub") and b == 0) or (op in ("mul", "sdiv", "udiv") and b == 1):
            return a
        if (op == "add" and a == 0) or (op == "mul" and a == 1):
            return b
        if op == "mul" and (a == 0 or b == 0):
            return 0
        return self.emit(f"{op} i64 {a}, {b}")

    def plus(self, a: Int, b: Int) -> Int:
        return self.int_op("add", a, b)

    def minus(self, a: Int, b: Int) -> Int:
        return self.int_op("sub", a, b)

    def times(self, a: Int, b: Int) -> Int:
        return self.int_op("mul", a, b)

    def over(self, a: Int, b: Int) -> Int:
        """a // b of numbers that are not negative."""
        return self.int_op("udiv", a, b)

    def rest(self, a: Int, b: Int) -> Int:
        """a % b of numbers that are not negative."""
        return self.int_op("urem", a, b)

    def least(self, a: Int, b: Int) -> Int:
        less = self.emit(f"icmp slt i64 {a}, {b}")
        return self.emit(f"select i1 {less}, i64 {a}, i64 {b}")

    def most(self, a: Int, b: Int) -> Int:
        less = self.emit(f"icmp slt i64 {a}, {b}")
        return self.emit(f"select i1 {less}, i64 {b}, i64 {a}")

    def is_(self, how: str, a: Int, b: Int) -> str:
        """A comparison as an i1: `eq`, `slt`, `ult`, ..."""
        return self.emit(f"icmp {how} i64 {a}, {b}")

    def either(self, condition: str, a: Int, b: Int) -> str:
        """a if the i1 holds, else b."""
        return self.emit(f"select i1 {condition}, i64 {a}, i64 {b}")

    def both(self, a: str, b: str) -> str:
        """The conjunction of two i1."""
        return self.emit(f"and i1 {a}, {b}")

    def negated(self, a: str) -> str:
        return self.emit(f"xor i1 {a}, true")

    def flag(self, condition: str) -> str:
        """1 if an i1 holds, else 0."""
        return self.emit(f"zext i1 {condition} to i64")

    def every_lane(self, condition: str) -> str:
        """An i1 as a mask."""
        wide = self.emit(f"sext i1 {condition} to i32")
        one = self.emit(f"insertelement {self.ints} poison, i32 {wide}, i32 0")
        every = self.emit(f"shufflevector {self.ints} {one}, {self.ints} poison, {self.ints} zeroinitializer")
        return self.emit(f"icmp ne {self.ints} {every}, zeroinitializer")

    def at(self, pointer: str, nbytes: Int) -> str:
        """The address plus so many bytes."""
        if nbytes == 0:
            return pointer
        return self.emit(f"getelementptr i8, ptr {pointer}, i64 {nbytes}")

    # -- vectors at addresses -----------------------------------------------------------------------

    def read(self, pointer: str, dtype: str = "float32") -> str:
        """The vector at an address."""
        return self.load(pointer, "0", dtype)

    def write(self, value: str, pointer: str, dtype: str = "float32") -> None:
        self.store(value, pointer, "0", dtype)

    def repeated(self, pointer: str) -> str:
        """The float32 number at an address, in all lanes."""
        return self.load_one(pointer, "0", "float32")


@functools.lru_cache(maxsize=256)
def code_of(make: Callable[..., str], *args: Any) -> tuple[native.Code, str]:
    """The code of a program with the entry `make(program, *args)`, and the entry's name."""
    program = Program()
    name = make(program, *args)
    return load(program), name
