"""Typed values, instructions and blocks: what a generated function is before it is text.

    t = type_of("float", 8)                       # <8 x float>
    x = Value(t, "%v1")                           # what an instruction makes, or a parameter
    two = number(t, 2.0)                          # a ConstantValue: it is known while code is written
    Instruction("fadd", (x, two), Value(t, "%v2"))

A function is a list of blocks, a block a list of instructions, of which the last one is a branch or a return.
`printed` is the only place that knows how LLVM's assembly language spells an instruction.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any


class Type:
    """A type of LLVM: a scalar, or a vector of `lanes` of them. Equal types are one object: see `type_of`."""

    __slots__ = ("element", "lanes", "numbers", "scalar", "short", "text")

    def __init__(self, scalar: str, lanes: int) -> None:
        self.scalar, self.lanes = scalar, lanes
        self.text = f"<{lanes} x {scalar}>" if lanes else scalar
        short = {"float": "f32", "double": "f64", "half": "f16", "ptr": "p0"}.get(scalar, scalar)
        self.short = f"v{lanes}{short}" if lanes else short
        """As names of intrinsics have it."""
        self.element: Type = type_of(scalar) if lanes else self
        self.numbers: dict[float | str, Value] = {}  # see `number`

    def __str__(self) -> str:
        return self.text

    def of(self, scalar: str) -> Type:
        """As many lanes of another scalar."""
        return type_of(scalar, self.lanes)


def type_of(scalar: str, lanes: int = 0) -> Type:
    """The type of so many lanes, or of a scalar."""
    if (found := _TYPES.get((scalar, lanes))) is None:
        found = _TYPES[scalar, lanes] = Type(scalar, lanes)
    return found


_TYPES: dict[tuple[str, int], Type] = {}


VOID, PTR, I64, I32, I16, I8, I1 = map(type_of, ("void", "ptr", "i64", "i32", "i16", "i8", "i1"))
FLOAT, DOUBLE, HALF = map(type_of, ("float", "double", "half"))


class Value:
    """The result of an instruction, or a parameter. No two values are equal or share a name."""

    __slots__ = ("name", "type")

    def __init__(self, type: Type, name: str) -> None:
        self.type, self.name = type, name

    def __str__(self) -> str:
        return self.name


class ConstantValue(Value):
    """A value that is known while code is written. Equal ones are one object: see `number`."""

    __slots__ = ()


Operand = Value | int
"""A value, or a whole number that takes the type of what it meets."""


@functools.cache
def _constant(type: Type, name: str) -> Value:
    return ConstantValue(type, name)


def number(type: Type, value: float) -> Value:
    """A number, in all lanes of a vector."""
    # Equal numbers are spelled alike, but for the two zeros.
    key = value or str(value)
    if (found := type.numbers.get(key)) is None:
        if type.scalar == "i1":
            text = "true" if value else "false"
        elif type.scalar.startswith("i"):
            text = str(int(value))
        else:
            text = _spelled(value, type)
        found = _constant(type, f"splat ({type.scalar} {text})" if type.lanes else text)
        type.numbers[key] = found
    return found


@functools.cache
def zero(type: Type) -> Value:
    """The number 0 in all lanes, as LLVM spells it where all bits are 0."""
    return _constant(type, "zeroinitializer")


NULL = ConstantValue(PTR, "null")


@functools.cache
def poison(type: Type) -> Value:
    """A vector of which no lane is ever looked at."""
    return _constant(type, "poison")


def listed(type: Type, values: Iterable[int]) -> Value:
    """A vector of these whole numbers; below 0: of any."""
    return _listed(type, tuple(values))


@functools.cache
def _listed(type: Type, values: tuple[int, ...]) -> Value:
    spelled = ("poison" if v < 0 else str(int(v)) for v in values)
    return _constant(type, f"<{', '.join(f'{type.scalar} {v}' for v in spelled)}>")


def _spelled(value: float, type: Type) -> str:
    """A floating number by its bits; a whole one that is no vector as people write it."""
    (bits,) = struct.unpack("<Q", struct.pack("<d", value))
    is_short = not type.lanes and bits != 1 << 63 and value.is_integer()
    return str(value) if is_short else f"0x{bits:016X}"


class Instruction(Value):
    """One instruction: its operation, what it reads and what else it says. It is the value that it makes; one
    that makes none has the type `VOID` and no name.

    detail: how a comparison compares, the type a pointer counts in, the name of a called function, labels of
    blocks that are jumped to; see `_PRINTED`.
    """

    __slots__ = ("detail", "op", "operands")

    def __init__(self, type: Type, name: str, op: str, operands: Sequence[Value], detail: Any = None) -> None:
        self.type, self.name = type, name
        self.op, self.operands, self.detail = op, operands, detail


class Block:
    """Instructions that run one behind the other."""

    __slots__ = ("instructions", "label")

    def __init__(self, label: str) -> None:
        self.label = label
        self.instructions: list[Instruction] = []


def without_dead(blocks: Sequence[Block]) -> None:
    """Leave out instructions whose values nobody uses. Phi nodes stay, and what they read."""
    used = {v for b in blocks for i in b.instructions if i.op == "phi" for v in i.operands}
    for block in reversed(blocks):
        kept = []
        for i in reversed(block.instructions):
            if not i.name or i.op == "phi" or i in used:
                used.update(i.operands)
                kept.append(i)
        block.instructions = kept[::-1]


# -- text ----------------------------------------------------------------------------------------------


def printed(blocks: Sequence[Block]) -> list[str]:
    """The lines of a function's blocks."""
    lines = []
    spell = _PRINTED.get
    for block in blocks:
        lines.append(f"{block.label}:")
        lines += [
            f"  {i.name} = {spell(i.op, _arithmetic)(i)}" if i.name else f"  {spell(i.op, _arithmetic)(i)}"
            for i in block.instructions
        ]
    return lines


def typed(values: Iterable[Value]) -> str:
    """Operands with their types."""
    return ", ".join([f"{v.type.text} {v.name}" for v in values])


def _arithmetic(i: Instruction) -> str:
    if len(i.operands) == 2:
        a, b = i.operands
        return f"{i.op} {a.type.text} {a.name}, {b.name}"
    (a,) = i.operands
    return f"{i.op} {a.type.text} {a.name}"


def _comparison(i: Instruction) -> str:
    a, b = i.operands
    return f"{i.op} {i.detail} {a.type.text} {a.name}, {b.name}"


def _cast(i: Instruction) -> str:
    (a,) = i.operands
    return f"{i.op} {a.type.text} {a.name} to {i.type.text}"


def _load(i: Instruction) -> str:
    (at,) = i.operands
    return f"load {i.type.text}, ptr {at.name}{i.detail}"


def _offset(i: Instruction) -> str:
    pointer, index = i.operands
    return f"getelementptr {i.detail}, ptr {pointer.name}, {index.type.text} {index.name}"


def _call(i: Instruction) -> str:
    name, flags = i.detail
    return f"call {flags}{i.type.text} @{name}({typed(i.operands)})"


def _phi(i: Instruction) -> str:
    edges = ", ".join([f"[ {v.name}, %{label} ]" for v, label in zip(i.operands, i.detail, strict=True)])
    return f"phi {i.type.text} {edges}"


def _branch(i: Instruction) -> str:
    return f"br {', '.join([*(f'i1 {v.name}' for v in i.operands), *(f'label %{x}' for x in i.detail)])}"


def _switch(i: Instruction) -> str:
    (value,), (default, cases) = i.operands, i.detail
    listed = " ".join(f"{value.type.text} {k}, label %{label}" for k, label in cases)
    return f"switch {value.type.text} {value.name}, label %{default} [ {listed} ]"


_CASTS = (
    "bitcast", "fpext", "fptosi", "fptoui", "fptrunc", "inttoptr", "ptrtoint", "sext", "sitofp", "trunc",
    "uitofp", "zext",
)  # fmt: skip

_PRINTED: Mapping[str, Callable[[Instruction], str]] = {
    **dict.fromkeys(_CASTS, _cast),
    **dict.fromkeys(("icmp", "fcmp"), _comparison),
    "atomicrmw": lambda i: f"atomicrmw {i.detail} {typed(i.operands)} monotonic",
    "br": _branch,
    "call": _call,
    "getelementptr": _offset,
    "load": _load,
    "phi": _phi,
    "ret": lambda i: f"ret {typed(i.operands) or 'void'}",
    "store": lambda i: f"store {i.detail[0]}{typed(i.operands)}{i.detail[1]}",
    "switch": _switch,
    **dict.fromkeys(
        ("select", "insertelement", "extractelement", "shufflevector"),
        lambda i: f"{i.op} {typed(i.operands)}",
    ),
}
"""How an instruction is spelled; the rest are an operation, a type and operands of it."""
