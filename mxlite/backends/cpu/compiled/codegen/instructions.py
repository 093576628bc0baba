"""A function that is being written: instructions, branches, loops, its arguments, a thread's part of work.

Every method makes a typed value (see `ir.py`) or an instruction without one. Whole numbers may be Python's:
they take the type of what they meet, and what is known already is computed at once and not written.
`Function` adds vectors of numbers.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TYPE_CHECKING

from .arithmetic import Integers
from .ir import (
    Block,
    I1,
    I32,
    I64,
    Instruction,
    listed,
    number,
    Operand as Int,
    poison,
    printed,
    PTR,
    Type,
    type_of,
    Value,
    VOID,
    without_dead,
    zero,
)

if TYPE_CHECKING:
    from .emitter import Module

NBYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "bool": 1, "uint8": 1, "int32": 4, "int64": 8}
_STRIDES: dict[int | str, str] = {n: f"[{n} x i8]" for n in (1, 2, 4, 8)}
_STRIDES |= {dtype: _STRIDES[n] for dtype, n in NBYTES.items()}


class Loop:
    """A loop that is being written: its index, and the loop-carried values.

    `again(*values)` says what the next round gets; after the loop `results` are the last of them.
    """

    def __init__(self, index: Value, values: tuple[Value, ...]) -> None:
        self.index, self.values = index, values
        self.results: tuple[Value, ...] = values
        self.next: tuple[Int, ...] = values

    def again(self, *values: Int) -> None:
        assert len(values) == len(self.values)
        self.next = values


class Round(Loop):
    """A loop whose end is decided at the end of an iteration: `again(*values, condition=...)`, an i1."""

    condition: Value = number(I1, False)

    def again(self, *values: Int, condition: Value | None = None) -> None:
        super().again(*values)
        self.condition = condition or self.condition


class Instructions(Integers):
    """`void name(ptr args, i64 thread, i64 threads)`, written from top to bottom; or other `parameters`."""

    def __init__(
        self, module: Module, name: str, parameters: dict[str, Type] | None = None, result: Type = VOID
    ) -> None:
        self.module, self.name, self.result = module, name, result
        self.is_entry = parameters is None
        given = {"args": PTR, "thread": I64, "threads": I64} if parameters is None else parameters
        self._parameters = {n: Value(t, f"%{n}") for n, t in given.items()}
        if parameters is None:
            self.thread, self.threads = self.arg("thread"), self.arg("threads")
        self.linkage = "internal "
        self._blocks = [Block("entry")]
        self._here = self._blocks[0].instructions
        self._count = 0
        self._known: dict[tuple[Any, ...], Value] | None = None
        self._records = False

    def arg(self, name: str) -> Value:
        """A parameter."""
        return self._parameters[name]

    def text(self) -> str:
        spelled = quoted(self.name) if self.is_entry else self.name
        given = ", ".join(f"{v.type} {v.name}" for v in self._parameters.values())
        head = f"define {self.linkage}{self.result} @{spelled}({given}) #0 {{"
        return "\n".join([head, *printed(self._blocks), "}\n"])

    def prune(self) -> None:
        """Remove instructions whose values are not used (dead-code elimination)."""
        without_dead(self._blocks)

    # -- any instruction -------------------------------------------------------------------------

    def make(self, op: str, type: Type, operands: Sequence[Value], detail: Any = None) -> Value:
        """The value of an instruction."""
        known = self._known
        if known is not None:
            key = (op, type, tuple(operands), detail)
            if (before := known.get(key)) is not None:
                return before
        self._count = count = self._count + 1
        made = Instruction(type, f"%v{count}", op, operands, detail)
        self._here.append(made)
        if known is not None and self._records:
            known[key] = made
        return made

    @contextlib.contextmanager
    def ahead(self, write: Callable[[], object]) -> Iterator[None]:
        """Write before a loop the instructions, without branches, that `write` writes, so that the same ones
        in the loop are not repeated: its invariants are hoisted. The rest is left to `prune`.
        """
        self._known, self._records = {}, True
        write()
        self._records = False
        yield
        self._known = None

    def do(self, op: str, *operands: Value, detail: Any = None) -> None:
        """An instruction without a value."""
        self._here.append(Instruction(VOID, "", op, operands, detail))

    def cast(self, op: str, a: Value, to: Type) -> Value:
        """`a` as another type: `trunc`, `zext`, `sitofp`, `bitcast`, ..."""
        return self.make(op, to, (a,))

    def call(self, result: Type, name: str, *args: Value, flags: str = "") -> Value:
        """The value of a function of LLVM or of the process."""
        if name not in self.module.called:
            self.module.called.add(name)
            self.module.declare(f"{result} @{name}({', '.join([v.type.text for v in args])})")
        return self.called(result, name, *args, flags=flags)

    def called(self, result: Type, name: str, *args: Value, flags: str = "") -> Value:
        """The value of a function of this module."""
        return self.make("call", result, args, (name, f"{flags} " if flags else ""))

    def do_call(self, name: str, *args: Value, declared: bool = False) -> None:
        """Call a function that gives nothing. `declared`: it is one of this module."""
        if not declared:
            self.module.declare(f"void @{name}({', '.join([v.type.text for v in args])})")
        self.do("call", *args, detail=(name, ""))

    def done(self) -> None:
        """The end of the function."""
        self.do("ret")

    def gives(self, value: Value) -> None:
        """The end of a function that has a value."""
        self.do("ret", value)
        self.prune()

    # -- control ---------------------------------------------------------------------------------

    def _label(self) -> str:
        self._count += 1
        return f"b{self._count}"

    def _begin(self, label: str) -> None:
        self._blocks.append(Block(label))
        self._here = self._blocks[-1].instructions

    @property
    def _block(self) -> str:
        return self._blocks[-1].label

    def _jump(self, label: str) -> None:
        self.do("br", detail=(label,))

    def _branch(self, condition: Value, yes: str, no: str) -> None:
        self.do("br", condition, detail=(yes, no))

    def _phi(self, type: Type, name: str) -> Instruction:
        """A value that depends on where one comes from; see `_from`."""
        made = Instruction(type, name, "phi", (), ())
        self._here.append(made)
        return made

    def _from(self, phi: Instruction, *edges: tuple[Int, str]) -> None:
        """The values of a phi node, each with the block that one comes from."""
        phi.operands = [self.value(v, phi.type) for v, _ in edges]
        phi.detail = [label for _, label in edges]

    @contextlib.contextmanager
    def when(self, condition: Value) -> Iterator[None]:
        """Code written inside runs only if `condition` (an i1) holds. It defines no values for later use."""
        yes, after = self._label(), self._label()
        self._branch(condition, yes, after)
        self._begin(yes)
        yield
        self._jump(after)
        self._begin(after)

    @contextlib.contextmanager
    def loop(self, start: Int, stop: Int, step: Int = 1, carried: Sequence[Int] = ()) -> Iterator[Loop]:
        """For an index (i64) from `start` while it is below `stop`. `carried` are first values."""
        head, inside, after = self._label(), self._label(), self._label()
        before = self._block
        self._jump(head)
        self._begin(head)
        self._count += 1
        index = self._phi(I64, f"%i{self._count}")
        firsts = [self.value(x) for x in carried]
        values = tuple(self._phi(x.type, f"%c{self._count}.{k}") for k, x in enumerate(firsts))
        self._branch(self.is_("slt", index, stop), inside, after)
        self._begin(inside)
        loop = Loop(index, values)
        yield loop
        following = self.binary("add", index, step)
        end = self._block
        self._jump(head)
        for phi, first, then in zip((index, *values), (start, *firsts), (following, *loop.next), strict=True):
            self._from(phi, (first, before), (then, end))
        self._begin(after)

    @contextlib.contextmanager
    def repeat(self, condition: Value, carried: Sequence[Value]) -> Iterator[Round]:
        """While `condition` (an i1) holds, and as `again` says. `carried` are first values.

        If it never runs, `results` are the first values. Without another condition it runs once.
        """
        inside, after = self._label(), self._label()
        before = self._block
        self._branch(condition, inside, after)
        self._begin(inside)
        self._count += 1
        values = tuple(self._phi(x.type, f"%c{self._count}.{k}") for k, x in enumerate(carried))
        round = Round(number(I64, 0), values)
        yield round
        end = self._block
        self._branch(round.condition, inside, after)
        self._begin(after)
        results = []
        for phi, first, then in zip(values, carried, round.next, strict=True):
            self._count += 1
            results.append(self._phi(first.type, f"%v{self._count}"))
            for node in (phi, results[-1]):
                self._from(node, (first, before), (then, end))
        round.results = tuple(results)

    # -- arguments and threads -------------------------------------------------------------------

    def integer(self, slot: int) -> Value:
        """Slot `slot` of the arguments, an i64."""
        return self.load_at(I64, self.slot(slot), 8)

    def pointer(self, slot: int) -> Value:
        """Slot `slot` of the arguments, an address."""
        return self.load_at(PTR, self.slot(slot), 8)

    def slot(self, slot: int) -> Value:
        """The address of slot `slot` of the arguments."""
        return self.offset(self.arg("args"), slot, 8)

    def meet(self) -> None:
        """Barrier of the team's threads: afterwards all of them can read what each wrote before it."""
        self.module.meets = True
        with self.when(self.is_("sgt", self.threads, 1)):
            self.do_call("GOMP_barrier", declared=True)

    def share(self, total: Int, grain: int = 1, part: tuple[Int, Int] | None = None) -> tuple[Value, Value]:
        """This thread's part of [0, total), or `part` of so many: whole multiples of `grain`, except the
        last.
        """
        thread, threads = part or (self.thread, self.threads)
        blocks = total
        if grain > 1:
            up = self.binary("add", total, grain - 1)
            blocks = self.binary("sdiv", up, grain)
        bounds = []
        following = self.binary("add", thread, 1)
        for t in (thread, following):
            share = self.binary("sdiv", self.binary("mul", blocks, t), threads)
            at = self.binary("mul", share, grain) if grain > 1 else share
            bounds.append(self.least(at, total))
        return bounds[0], bounds[1]

    # -- memory ----------------------------------------------------------------------------------

    def offset(self, pointer: Value, index: Int, nbytes: int | str = 1) -> Value:
        """`pointer` moved by `index` elements of `nbytes`, or of those of a dtype of that name."""
        stride = _STRIDES.get(nbytes) or f"[{nbytes} x i8]"
        return self.make("getelementptr", PTR, (pointer, self.value(index)), stride)

    def at(self, pointer: Value, nbytes: Int) -> Value:
        """The address so many bytes on."""
        if isinstance(nbytes, int) and nbytes == 0:
            return pointer
        return self.make("getelementptr", PTR, (pointer, self.value(nbytes)), "i8")

    def load_at(self, type: Type, pointer: Value, align: int = 0) -> Value:
        """The value at an address, which is a multiple of `align` if that is not 0."""
        return self.make("load", type, (pointer,), f", align {align}" if align else "")

    def store_at(self, value: Value, pointer: Value, align: int = 0, more: str = "") -> None:
        """Write to an address, a multiple of `align` if that is not 0."""
        self.do("store", value, pointer, detail=("", (f", align {align}" if align else "") + more))

    def prefetch(self, pointer: Value, writes: bool = False, level: int = 3) -> None:
        """Ask for the line of an address, to be read or written, into this cache and those behind it."""
        given = (number(I32, x) for x in (writes, level, 1))
        self.do_call("llvm.prefetch.p0", pointer, *given)

    # -- lanes -----------------------------------------------------------------------------------

    def lane(self, vector: Value, k: int) -> Value:
        """Lane `k`."""
        return self.make("extractelement", vector.type.element, (vector, number(I32, k)))

    def with_lane(self, vector: Value, scalar: Value, k: int) -> Value:
        """The vector with lane `k` replaced."""
        return self.make("insertelement", vector.type, (vector, scalar, number(I32, k)))

    def shuffle(self, a: Value, b: Value, lanes: Sequence[int] | None = None) -> Value:
        """Lanes of two vectors, those of `b` counted on; all of them the first of `a` unless `lanes` says."""
        count = a.type.lanes if lanes is None else len(lanes)
        picked = type_of("i32", count)
        mask = zero(picked) if lanes is None else listed(picked, lanes)
        return self.make("shufflevector", type_of(a.type.scalar, count), (a, b, mask))

    def spread(self, scalar: Value, lanes: int) -> Value:
        """A scalar in so many lanes."""
        many, nothing, mask = _spread(scalar.type, lanes)
        first = self.make("insertelement", many, (nothing, scalar, _FIRST))
        return self.make("shufflevector", many, (first, nothing, mask))


_FIRST = number(I32, 0)


@functools.cache
def _spread(scalar: Type, lanes: int) -> tuple[Type, Value, Value]:
    """The vector of so many lanes, one of which no lane counts, and the mask that takes the first lane."""
    many = type_of(scalar.scalar, lanes)
    return many, poison(many), zero(type_of("i32", lanes))


def quoted(name: str) -> str:
    return f'"{name}"'
