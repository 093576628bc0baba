"""Machine code for loops over integers, where llvmlite is installed.

The compiler accepts a small subset of Python: functions of integers (`int`) and integer arrays (`Ints`) that
assign, loop with `while`, branch, and call one another. Such functions also run uncompiled, on lists, with
the same results; the compiler only makes them faster, thirty times and more. Integers have 64 bits here, so
callers keep their numbers below 2**62; there is no bounds check, and no division but `>>` and, for numbers
that are not negative, `%`.

A parameter may be a *record*, a NamedTuple of integers and arrays, whose fields are read as `r.name` and
`r.name[i]`. It is passed on as `r`, or made for a call as `f(Record(r.name, i))`; its fields are never
assigned. Machine code knows no records: it has a parameter for each field, and Python calls it with those.
"""

from __future__ import annotations

import ast
import ctypes
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, MutableSequence, Sequence
from itertools import accumulate, islice
from pathlib import Path
from typing import Any

import numpy as np

from ..core.machine_code import native
from ..core.record import named_tuple

Ints = MutableSequence[int]


class Fixed:
    """An array that is passed many times: looking up its address takes longer than many a loop."""

    __slots__ = ("address", "array")

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.address = int(array.ctypes.data)
        assert array.flags.c_contiguous and array.dtype in (np.int64, object)


def compiled(functions: Sequence[Callable[..., int]]) -> Callable[..., int] | None:
    """Machine code of the last of `functions`, called with numpy arrays of int64 for its `Ints`.

    The others are those it calls, each before its callers. None where llvmlite is not installed.
    """
    found = all_compiled(functions)
    return None if found is None else found[-1]


def all_compiled(functions: Sequence[Callable[..., int]]) -> list[Callable[..., int]] | None:
    """Machine code of each of `functions`; see `compiled`."""
    if not native.available():
        return None
    # Generating LLVM's text takes longer than loading the object code: the cache is keyed by our own source.
    files = dict.fromkeys([__file__, *(name for f in functions for name in _files(f))])
    question = "\0".join([*(Path(name).read_text() for name in files), *(f.__name__ for f in functions)])
    code = native.load_made(question, lambda: _module(functions), passes=2)
    return [_callable(code, function) for function in functions]


def _module(functions: Sequence[Callable[..., int]]) -> str:
    """LLVM module text of `functions`."""
    from llvmlite import ir  # type: ignore[import-untyped,import-not-found,unused-ignore]

    module = ir.Module(name="mxlite")
    known: dict[str, Any] = {}
    for function in functions:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
        assert isinstance(tree, ast.FunctionDef)
        _Function(ir, module, tree, function, known).build()
    return str(module)


def _files(function: Callable[..., int]) -> Iterator[str]:
    """The files that say what a function and its records are."""
    yield function.__code__.co_filename
    for _, record in _parameters(function):
        if record is not None:
            yield str(sys.modules[record.__module__].__file__)


def plain(function: Callable[..., int]) -> Callable[..., int]:
    """`function` uncompiled, called as its machine code is: with the fields of records one by one."""
    records = [record for _, record in _parameters(function)]
    if not any(records):
        return function

    count = len(_arrays(function))

    def run(*args: Any) -> int:
        assert len(args) == count
        given = iter(args)
        return function(*(next(given) if r is None else r(*islice(given, len(r._fields))) for r in records))

    return run


def interpreted(function: Callable[..., int]) -> Callable[..., int]:
    """`function` uncompiled, with the calling convention of compiled code; lists are allowed as arrays."""
    arrays, call = _arrays(function), plain(function)

    def run(*args: Any) -> int:
        given = [value.array if type(value) is Fixed else value for value in args]
        lists = [value.tolist() if array else value for value, array in zip(given, arrays, strict=True)]
        result = call(*lists)
        for value, array, after in zip(given, arrays, lists):
            if array and value.flags.writeable:
                value[:] = after
        return result

    return run


def _callable(code: native.Code, function: Callable[..., int]) -> Callable[..., int]:
    arrays = _arrays(function)
    kinds = [ctypes.c_void_p if a else ctypes.c_int64 for a in arrays]
    call = code.function(function.__name__, *kinds, result=ctypes.c_int64)

    def run(*args: Any) -> int:
        assert len(args) == len(arrays)
        return int(call(*(_address(v) if a else v for v, a in zip(args, arrays))))

    return run


def _address(array: Any) -> int:
    if type(array) is Fixed:
        return array.address
    assert array.dtype == np.int64 and array.flags.c_contiguous
    return int(array.ctypes.data)


def _parameters(function: Callable[..., int]) -> list[tuple[str, Any]]:
    """Each parameter and the class of its record, None for integers and arrays."""
    kinds = {name: kind for name, kind in function.__annotations__.items() if name != "return"}
    return [(name, _record(function, kind)) for name, kind in kinds.items()]


def _record(function: Callable[..., int], kind: str) -> Any:
    """The record class that is called `kind` in the file of `function`, or None."""
    return named_tuple(function.__globals__.get(kind))


def _names(parameter: str, record: Any) -> list[str]:
    """The parameters of machine code: one, or one for each field."""
    return [parameter] if record is None else [f"{parameter}.{field}" for field in record._fields]


def _arrays(function: Callable[..., int]) -> list[bool]:
    """True for each parameter of machine code that is an array."""
    found = []
    for name, record in _parameters(function):
        kinds = [function.__annotations__[name]] if record is None else record.__annotations__.values()
        for kind in kinds:  # texts, as in all of this package; NamedTuple wraps them
            text = getattr(kind, "__forward_arg__", kind)
            if text not in ("int", "Ints"):
                raise NotImplementedError(f"{function.__name__}: {name} is of {text}, not int or Ints.")
            found.append(text == "Ints")
    return found


class _Function:
    """Translation of one function from its syntax tree to LLVM."""

    def __init__(
        self, ir: Any, module: Any, tree: ast.FunctionDef, source: Callable[..., int], known: dict[str, Any]
    ) -> None:
        self.ir, self.tree, self.source, self.known = ir, tree, source, known
        self.parameters = _parameters(source)
        self.records = {name: record for name, record in self.parameters if record is not None}
        self.int, self.bit = ir.IntType(64), ir.IntType(1)
        kinds = [self.int.as_pointer() if array else self.int for array in _arrays(source)]
        self.function = ir.Function(module, ir.FunctionType(self.int, kinds), tree.name)
        known[tree.name] = self.function, self.parameters
        self.arrays: dict[str, Any] = {}
        self.variables: dict[str, Any] = {}
        self.loops: list[tuple[Any, Any]] = []  # where `continue` and `break` go
        self.at: Any = None

    def build(self) -> None:
        self.at = self.ir.IRBuilder(self.function.append_basic_block())
        names = [n for parameter in self.parameters for n in _names(*parameter)]
        for name, value in zip(names, self.function.args, strict=True):
            if value.type == self.int:
                self.assign(name, value)
            else:
                self.arrays[name] = value
        stores = (n for n in ast.walk(self.tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
        for store in stores:
            if store.id not in self.variables:
                self.variables[store.id] = self.at.alloca(self.int)
        self.body(self.tree.body)
        if not self.at.block.is_terminated:
            self.at.ret(self.int(0))

    def assign(self, name: str, value: Any) -> None:
        if name not in self.variables:
            self.variables[name] = self.at.alloca(self.int)
        self.at.store(value, self.variables[name])

    def body(self, statements: Sequence[ast.stmt]) -> None:
        for statement in statements:
            self.statement(statement)
            if self.at.block.is_terminated:
                break

    def statement(self, s: ast.stmt) -> None:
        match s:
            case ast.Assign(targets=[target], value=value):
                self.store(target, self.number(value))
            case ast.AugAssign(target=target, op=op, value=value):
                self.store(target, self.arithmetic(op, self.load(target), self.number(value)))
            case ast.While(test=test, body=body, orelse=[]):
                head, inside, after = (self.function.append_basic_block() for _ in range(3))
                self.at.branch(head)
                self.at.position_at_end(head)
                self.condition(test, inside, after)
                self.at.position_at_end(inside)
                self.loops.append((head, after))
                self.body(body)
                self.loops.pop()
                self.go(head)
                self.at.position_at_end(after)
            case ast.If(test=test, body=body, orelse=orelse):
                yes, no, after = (self.function.append_basic_block() for _ in range(3))
                self.condition(test, yes, no)
                for block, part in ((yes, body), (no, orelse)):
                    self.at.position_at_end(block)
                    self.body(part)
                    self.go(after)
                self.at.position_at_end(after)
            case ast.Break():
                self.at.branch(self.loops[-1][1])
            case ast.Continue():
                self.at.branch(self.loops[-1][0])
            case ast.Return(value=ast.expr() as value):
                self.at.ret(self.number(value))
            case ast.Expr(value=ast.Constant(value=str())):
                pass
            case ast.Expr(value=ast.Call() as call):
                self.number(call)
            case _:
                raise NotImplementedError(ast.unparse(s))

    def go(self, block: Any) -> None:
        if not self.at.block.is_terminated:
            self.at.branch(block)

    def place(self, target: ast.expr) -> Any:
        match target:
            case ast.Subscript(value=array, slice=index) if self.name(array) in self.arrays:
                return self.at.gep(self.arrays[self.name(array)], [self.number(index)])
        if self.name(target) in self.variables:
            return self.variables[self.name(target)]
        raise NotImplementedError(ast.unparse(target))

    def name(self, e: ast.expr) -> str:
        """The name of a variable or of a record's field; no name of others."""
        match e:
            case ast.Name(id=name):
                return name
            case ast.Attribute(value=ast.Name(id=record), attr=field):
                return f"{record}.{field}"
        return ""

    def store(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Attribute) or self.name(target) in self.records:
            raise NotImplementedError(f"{ast.unparse(target)} = ...: records do not change.")
        self.at.store(value, self.place(target))

    def load(self, target: ast.expr) -> Any:
        return self.at.load(self.place(target), typ=self.int)

    def arithmetic(self, op: ast.operator, a: Any, b: Any) -> Any:
        make = {
            ast.Add: self.at.add,
            ast.Sub: self.at.sub,
            ast.Mult: self.at.mul,
            ast.BitAnd: self.at.and_,
            ast.BitOr: self.at.or_,
            ast.BitXor: self.at.xor,
            ast.LShift: self.at.shl,
            ast.RShift: self.at.ashr,
            ast.Mod: self.at.srem,
        }[type(op)]
        return make(a, b)

    def number(self, e: ast.expr) -> Any:
        match e:
            case ast.Constant(value=int() as value):
                return self.int(int(value))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return self.at.sub(self.int(0), self.number(operand))
            case ast.BinOp(left=left, op=op, right=right):
                return self.arithmetic(op, self.number(left), self.number(right))
            case ast.Call(func=ast.Attribute(value=value, attr="bit_length"), args=[]):
                return self.at.sub(self.int(64), self.at.ctlz(self.number(value), self.bit(0)))
            case ast.Call(func=ast.Name(id=name), args=args):
                called, parameters = self.known[name]
                given = []
                for (_, record), a in zip(parameters, args, strict=True):
                    given += [self.argument(a)] if record is None else self.fields(record, a)
                return self.at.call(called, given)
        return self.load(e)

    def argument(self, e: ast.expr) -> Any:
        """An integer or an array that is passed to a function."""
        return self.arrays[self.name(e)] if self.name(e) in self.arrays else self.number(e)

    def fields(self, record: Any, e: ast.expr) -> list[Any]:
        """The fields of a record that is passed to a function: a parameter, or one made for the call."""
        match e:
            case ast.Name(id=name) if self.records.get(name) is record:
                return [self.field(n) for n in _names(name, record)]
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if len(args) == len(record._fields):
                if _record(self.source, name) is record:
                    return [self.argument(a) for a in args]
        raise NotImplementedError(f"{ast.unparse(e)}, which must be a {record.__name__}.")

    def field(self, name: str) -> Any:
        return self.arrays[name] if name in self.arrays else self.at.load(self.variables[name], typ=self.int)

    def condition(self, e: ast.expr, yes: Any, no: Any) -> None:
        """Branch to block `yes` or `no`; `and` and `or` evaluate no more than Python would."""
        match e:
            case ast.Constant(value=constant):
                self.at.branch(yes if constant else no)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                self.condition(operand, no, yes)
            case ast.BoolOp(op=op, values=values):
                for value in values[:-1]:
                    more = self.function.append_basic_block()
                    if isinstance(op, ast.And):
                        self.condition(value, more, no)
                    else:
                        self.condition(value, yes, more)
                    self.at.position_at_end(more)
                self.condition(values[-1], yes, no)
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                sign = {
                    ast.Lt: "<",
                    ast.LtE: "<=",
                    ast.Gt: ">",
                    ast.GtE: ">=",
                    ast.Eq: "==",
                    ast.NotEq: "!=",
                }[type(op)]
                self.at.cbranch(self.at.icmp_signed(sign, self.number(left), self.number(right)), yes, no)
            case _:
                raise NotImplementedError(ast.unparse(e))


# Numbers of tasks and values as arrays, the form that machine code takes.


def ints(numbers: Iterable[int]) -> np.ndarray:
    """The numbers as an array of at least one element, because an empty array has no address."""
    return np.array([*numbers] or [0], np.int64)


def rows(rows: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Offsets of the rows in their concatenation, with its length at the end; and the concatenation."""
    first = [0, *accumulate(map(len, rows))]
    return ints(first), ints(x for row in rows for x in row)
