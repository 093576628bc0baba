"""The text of one LLVM function: instructions, branches, loops, its arguments, a thread's part of the work.

Values have names like `%12`; nothing here knows what they are. `Function` adds vectors of numbers.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .emitter import Module


class Loop:
    """A loop that is being written: its index, and the loop-carried values.

    `again(*values)` sets the values of the next iteration; after the loop `results` are the last ones.
    """

    def __init__(self, index: str, values: tuple[str, ...]) -> None:
        self.index, self.values = index, values
        self.results: tuple[str, ...] = values
        self.next: tuple[str, ...] = values

    def again(self, *values: str) -> None:
        assert len(values) == len(self.values)
        self.next = values


class Round(Loop):
    """A loop whose end is decided at the end of an iteration: `again(*values, condition=...)`, an i1."""

    condition = "false"

    def again(self, *values: str, condition: str = "false") -> None:
        super().again(*values)
        self.condition = condition


class Instructions:
    """`void name(ptr args, i64 thread, i64 threads)`, written from top to bottom.

    vector: the type of loop-carried values, unless another is given.
    """

    def __init__(self, module: Module, name: str, vector: str) -> None:
        self.module, self.name, self.vector = module, name, vector
        self.thread, self.threads = "%thread", "%threads"
        self.head = f"define internal void @{quoted(name)}(ptr %args, i64 %thread, i64 %threads) #0 {{"
        self._lines: list[str] = []
        self._count = 0
        self._block = "entry"
        self._known: dict[str, str] = {}
        self._records = False

    def text(self) -> str:
        return "\n".join([self.head, "entry:", *self._lines, "}\n"])

    def prune(self) -> None:
        """Remove instructions whose values are not used (dead-code elimination)."""
        used = {name for line in self._lines if " = phi " in line for name in _names(line)}
        kept = []
        for line in reversed(self._lines):
            made, equals, rest = line.partition(" = ")
            if not equals or made.strip() in used:
                used.update(_names(rest if equals else line))
                kept.append(line)
        self._lines = kept[::-1]

    # -- text ------------------------------------------------------------------------------------

    def emit(self, instruction: str) -> str:
        """The value of an instruction."""
        if (known := self._known.get(instruction)) is not None:
            return known
        self._count += 1
        name = f"%v{self._count}"
        self._lines.append(f"  {name} = {instruction}")
        if self._records:
            self._known[instruction] = name
        return name

    @contextlib.contextmanager
    def ahead(self, write: Callable[[], object]) -> Iterator[None]:
        """Instructions that `write` emits, without a branch, are not emitted again inside: so a loop that is
        written there uses its invariants from before it. The rest is left to `prune`.
        """
        self._records = True
        write()
        self._records = False
        yield
        self._known = {}

    def do(self, instruction: str) -> None:
        """An instruction without a value."""
        self._lines.append(f"  {instruction}")

    def call(self, result: str, name: str, *args: tuple[str, str], flags: str = "") -> str:
        """The value of a function of LLVM or of the process; `args` are (type, value)."""
        self.module.declare(f"{result} @{name}({', '.join(t for t, _ in args)})")
        given = ", ".join(f"{t} {v}" for t, v in args)
        return self.emit(f"call {flags + ' ' if flags else ''}{result} @{name}({given})")

    def done(self) -> None:
        """The end of the function."""
        self.do("ret void")

    # -- control ---------------------------------------------------------------------------------

    def _label(self) -> str:
        self._count += 1
        return f"b{self._count}"

    def _begin(self, label: str) -> None:
        self._lines.append(f"{label}:")
        self._block = label

    @contextlib.contextmanager
    def when(self, condition: str) -> Iterator[None]:
        """Code written inside runs only if `condition` (an i1) holds. It defines no values for later use."""
        yes, after = self._label(), self._label()
        self.do(f"br i1 {condition}, label %{yes}, label %{after}")
        self._begin(yes)
        yield
        self.do(f"br label %{after}")
        self._begin(after)

    @contextlib.contextmanager
    def loop(
        self, start: str, stop: str, step: str | int = 1, carried: Sequence[str] = (), kind: str = ""
    ) -> Iterator[Loop]:
        """Loop with an index (i64) from `start` while it is below `stop`. `carried` are initial values of
        type `kind` (float vectors unless given).
        """
        kind = kind or self.vector
        head, inside, after = self._label(), self._label(), self._label()
        before = self._block
        self.do(f"br label %{head}")
        self._begin(head)
        self._count += 1
        index = f"%i{self._count}"
        names = tuple(f"%c{self._count}.{k}" for k in range(len(carried)))
        at = len(self._lines)
        self._lines += [""] * (1 + len(carried))  # phi nodes: written when the end of the loop is known
        more = self.emit(f"icmp slt i64 {index}, {stop}")
        self.do(f"br i1 {more}, label %{inside}, label %{after}")
        self._begin(inside)
        loop = Loop(index, names)
        yield loop
        following = self.emit(f"add i64 {index}, {step}")
        end = self._block
        self.do(f"br label %{head}")
        self._lines[at] = f"  {index} = phi i64 [ {start}, %{before} ], [ {following}, %{end} ]"
        for k, (name, first, then) in enumerate(zip(names, carried, loop.next)):
            self._lines[at + 1 + k] = f"  {name} = phi {kind} [ {first}, %{before} ], [ {then}, %{end} ]"
        self._begin(after)

    @contextlib.contextmanager
    def repeat(self, condition: str, carried: Sequence[tuple[str, str]]) -> Iterator[Round]:
        """Loop while `condition` (an i1) holds, and as `again` says. `carried` are (type, initial value).

        If it never runs, `results` are the initial values. Without another condition it runs once.
        """
        inside, after = self._label(), self._label()
        before = self._block
        self.do(f"br i1 {condition}, label %{inside}, label %{after}")
        self._begin(inside)
        self._count += 1
        names = tuple(f"%c{self._count}.{k}" for k in range(len(carried)))
        at = len(self._lines)
        self._lines += [""] * len(carried)  # phi nodes, as in `loop`
        round = Round("", names)
        yield round
        end = self._block
        self.do(f"br i1 {round.condition}, label %{inside}, label %{after}")
        self._begin(after)
        results = []
        for k, ((kind, first), name, then) in enumerate(zip(carried, names, round.next)):
            edges = f"[ {first}, %{before} ], [ {then}, %{end} ]"
            self._lines[at + k] = f"  {name} = phi {kind} {edges}"
            results.append(self.emit(f"phi {kind} {edges}"))
        round.results = tuple(results)

    # -- arguments and threads -------------------------------------------------------------------

    def integer(self, slot: int) -> str:
        """Slot `slot` of the arguments, an i64."""
        return self.emit(f"load i64, ptr {self.offset('%args', str(slot), 8)}, align 8")

    def pointer(self, slot: int) -> str:
        """Slot `slot` of the arguments, an address."""
        return self.emit(f"load ptr, ptr {self.offset('%args', str(slot), 8)}, align 8")

    def offset(self, pointer: str, index: str, nbytes: int = 1) -> str:
        """`pointer` moved by `index` elements of `nbytes`."""
        return self.emit(f"getelementptr [{nbytes} x i8], ptr {pointer}, i64 {index}")

    def meet(self) -> None:
        """Barrier of the team's threads: afterwards all of them can read what each wrote before it."""
        self.module.meets = True
        with self.when(self.emit(f"icmp sgt i64 {self.threads}, 1")):
            self.do("call void @GOMP_barrier()")

    def share(self, total: str, grain: int = 1, part: tuple[str, str] | None = None) -> tuple[str, str]:
        """This thread's part of [0, total), or `part` of so many: whole multiples of `grain`, except the
        last.
        """
        thread, threads = part or (self.thread, self.threads)
        blocks = total
        if grain > 1:
            up = self.emit(f"add i64 {total}, {grain - 1}")
            blocks = self.emit(f"sdiv i64 {up}, {grain}")
        bounds = []
        following = self.emit(f"add i64 {thread}, 1")
        for t in (thread, following):
            share = self.emit(f"sdiv i64 {self.emit(f'mul i64 {blocks}, {t}')}, {threads}")
            at = self.emit(f"mul i64 {share}, {grain}") if grain > 1 else share
            over = self.emit(f"icmp slt i64 {at}, {total}")
            bounds.append(self.emit(f"select i1 {over}, i64 {at}, i64 {total}"))
        return bounds[0], bounds[1]


_names = re.compile(r"%[\w.]+").findall


def quoted(name: str) -> str:
    return f'"{name}"'
