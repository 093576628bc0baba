"""Functions inside a module of generated code, with parameters of their own, called by its other
functions.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from .....core.machine_code import native
from ..calls.team import load
from .emitter import Function, Module
from .ir import I32, I64, number, Operand as Int, Type, type_of, Value, zero


class Program(Module):
    """A module with routines."""

    def __init__(self) -> None:
        super().__init__()
        self._routines: dict[str, Routine] = {}
        self._codes: list[native.Code] = []

    def routine(self, name: str, **parameters: str) -> Routine:
        """A `void name(parameters)` for this module; they are of types `ptr` and `i64`."""
        types = {n: type_of(t) for n, t in parameters.items()}
        made = self._routines[name] = Routine(self, name, types)
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

    def __init__(self, done: Value) -> None:
        self.done = done
        self.size: Int = done


class Routine(Function):
    """A function of a program."""

    def __init__(self, program: Program, name: str, parameters: dict[str, Type] | None) -> None:
        super().__init__(program, name, None, parameters)
        self.program = program

    def run(self, name: str, *args: Int) -> None:
        """Call a routine, one of this module or a borrowed one."""
        self.do_call(name, *(self.value(x) for x in args), declared=name in self.program._routines)

    @contextlib.contextmanager
    def cut(self, total: Int) -> Iterator[Cut]:
        """Steps of any size until `total` is done."""
        before, head, inside, after = self._block, self._label(), self._label(), self._label()
        self._jump(head)
        self._begin(head)
        self._count += 1
        phi = self._phi(I64, f"%done{self._count}")
        cut = Cut(phi)
        self._branch(self.is_("slt", cut.done, total), inside, after)
        self._begin(inside)
        yield cut
        following = self.plus(cut.done, cut.size)
        self._jump(head)
        self._from(phi, (0, before), (following, self._block))
        self._begin(after)

    def one_of(
        self, which: Value, cases: Sequence[tuple[int, int]], ways: Mapping[int, Callable[[], None]]
    ) -> Value:
        """Run the way that `cases` has for `which`, pairs of a number and a way; without one, the last way.

        The value is the way that ran.
        """
        labels = {way: self._label() for way in ways}
        after = self._label()
        listed = tuple((number, labels[way]) for number, way in cases)
        self.do("switch", which, detail=(labels[max(ways)], listed))
        for way, label in labels.items():
            self._begin(label)
            ways[way]()
            self._jump(after)
        self._begin(after)
        self._count += 1
        ran = self._phi(I64, f"%v{self._count}")
        self._from(ran, *labels.items())
        return ran

    @contextlib.contextmanager
    def items(self, total: Int, slot: int) -> Iterator[Value]:
        """Loop over numbers below `total` that no other thread has taken, as long as there are any.

        A thread that the system has suspended then does not keep the others waiting for work that it has
        not begun. Slots `slot` and `slot` + 1 count what is taken and which threads have finished; the last
        one to finish resets them for the next call.
        """
        taken, finished = self.slot(slot), self.slot(slot + 1)
        head, inside, after = self._label(), self._label(), self._label()
        self._jump(head)
        self._begin(head)
        item = self._counted(taken)
        self._branch(self.is_("ult", item, total), inside, after)
        self._begin(inside)
        yield item
        self._jump(head)
        self._begin(after)
        before = self._counted(finished)
        with self.when(self.is_("eq", self.plus(before, 1), self.threads)):
            for there in (taken, finished):
                self.do("store", number(I64, 0), there, detail=("atomic ", " monotonic, align 8"))

    def _counted(self, there: Value) -> Value:
        """Add 1 to a number in memory, unparted by other threads; what it was."""
        return self.make("atomicrmw", I64, (there, number(I64, 1)), "add")

    def every_lane(self, condition: Value) -> Value:
        """An i1 as a mask."""
        return self.is_("ne", self.every(self.cast("sext", condition, I32)), zero(self.ints))

    # -- vectors at addresses -----------------------------------------------------------------------

    def read(self, pointer: Value, dtype: str = "float32") -> Value:
        """The vector at an address."""
        return self.load(pointer, 0, dtype)

    def write(self, value: Value, pointer: Value, dtype: str = "float32") -> None:
        self.store(value, pointer, 0, dtype)

    def repeated(self, pointer: Value) -> Value:
        """The float32 number at an address, in all lanes."""
        return self.load_one(pointer, 0, "float32")


@functools.lru_cache(maxsize=256)
def code_of(make: Callable[..., str], *args: Any) -> tuple[native.Code, str]:
    """The code of a program with the entry `make(program, *args)`, and the entry's name."""
    program = Program()
    name = make(program, *args)
    return load(program), name
