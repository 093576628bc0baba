"""Vectorised loops, written as typed LLVM instructions.

    module = Module()
    f = module.function("scale")                   # void scale(i64 *args, thread, threads)
    x, y = f.pointer(0), f.pointer(1)              # two slots of args
    first, last = f.share(f.integer(2), f.width)   # this thread's part of [0, args[2])
    def body(i, mask):
        f.store(f.mul(f.load(x, i, mask=mask), f.const(2.0)), y, i, mask=mask)
    f.sweep(first, last, body)
    f.done()
    run = call(load(module), "scale", [x.ctypes.data, y.ctypes.data, n], threads)

Every value in a loop is a vector of `width` float32 numbers, whatever the types of the arrays: a load of
bfloat16, float16 or bool casts to float32, a store rounds to nearest, ties to even. A value that a row needs
once (a mean) is a vector of equal numbers. A value has a type (see `ir.py`); `make` creates one from
any instruction, so anything that this class does not provide can be built. The last, incomplete vector of a
sweep is read and written under a mask.

Vectors are as wide as the registers of this CPU, see `width`; LLVM only translates
(`native.load` without passes), so loop-invariant values should be computed before the loop.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Sequence

from .....core.machine_code import native
from .arithmetic import Arithmetic
from .instructions import Instructions, NBYTES, quoted
from .ir import FLOAT, I1, I32, listed, number, Operand as Int, Type, type_of, Value, zero

Body = Callable[..., "Sequence[Value] | Value | None"]
Join = Callable[[Value, Value], Value]


@functools.cache
def width() -> int:
    """float32 numbers in one vector register of this CPU."""
    features = native.target().features
    return 16 if {"avx512f", "avx512bw", "avx512vl"} <= features else 8 if "avx2" in features else 4


@functools.cache
def storable() -> frozenset[str]:
    """Names of the dtypes that can be loaded and stored: not every CPU knows float16."""
    at = native.target()
    has_half = "f16c" in at.features or at.triple.startswith(("aarch64", "arm64"))
    return frozenset({"float32", "bfloat16", "bool", "uint8", "int32"} | ({"float16"} if has_half else set()))


_STORED = {
    "float32": "float", "float16": "half", "bfloat16": "i16", "bool": "i8", "uint8": "i8", "int32": "i32",
    "int64": "i64",
}  # fmt: skip


class Module:
    """Functions that are compiled together."""

    def __init__(self) -> None:
        self._functions: list[Function] = []
        self.routines: dict[str, Function] = {}
        self._declared: dict[str, None] = {}
        self.called: set[str] = set()  # functions that are declared for a call
        self.meets = False  # whether threads wait for each other

    def function(self, name: str, width: int | None = None) -> Function:
        """A function to be filled: `void name(ptr args, i64 thread, i64 threads)`."""
        self._functions.append(Function(self, name, width))
        return self._functions[-1]

    def declare(self, text: str) -> None:
        """Say that a function is elsewhere: `float @expf(float)`; intrinsics of LLVM are declared so too."""
        self._declared[f"declare {text}"] = None

    def text(self, team: bool = True) -> str:
        """The module, with two entry points for each function: `name.one(args)` does all of it,
        `name.all(args)` is called by every thread of a team and does that thread's part (only if `team`).
        """
        parts = [f.text() for f in (*self.routines.values(), *self._functions)]
        for f in self._functions:
            one = f"call void @{quoted(f.name)}(ptr %args, i64 0, i64 1)"
            parts.append(_WAY_IN.format(name=quoted(f"{f.name}.one"), body=one))
            if team:
                self.declare("i32 @omp_get_thread_num()")
                self.declare("i32 @omp_get_num_threads()")
                all_of = (
                    "%t = call i32 @omp_get_thread_num()\n  %n = call i32 @omp_get_num_threads()\n"
                    "  %thread = zext i32 %t to i64\n  %threads = zext i32 %n to i64\n"
                    f"  call void @{quoted(f.name)}(ptr %args, i64 %thread, i64 %threads)"
                )
                parts.append(_WAY_IN.format(name=quoted(f"{f.name}.all"), body=all_of))
        if self.meets:
            parts.append(
                "declare void @GOMP_barrier()" if team else "define void @GOMP_barrier() { ret void }"
            )
        return "\n".join([*self._declared, *parts, _ATTRIBUTES.format(bits=32 * max(4, width()))])


_WAY_IN = "define void @{name}(ptr %args) #0 {{\n  {body}\n  ret void\n}}\n"
_ATTRIBUTES = (
    'attributes #0 = {{ nounwind "prefer-vector-width"="{bits}" "min-legal-vector-width"="{bits}" }}\n'
)


class Function(Instructions, Arithmetic):
    """A function on vectors of float32 numbers."""

    def __init__(
        self,
        module: Module,
        name: str,
        lanes: int | None = None,
        parameters: dict[str, Type] | None = None,
        result: Type | None = None,
    ) -> None:
        super().__init__(module, name, parameters, *(() if result is None else (result,)))
        self.width = lanes or width()
        self.vector, self.ints, self.bits = (type_of(t, self.width) for t in ("float", "i32", "i1"))
        self.iota = listed(type_of("i64", self.width), range(self.width))

    # -- vector by vector --------------------------------------------------------------------------

    def sweep(
        self,
        start: Int,
        stop: Int,
        body: Body,
        carried: Sequence[Int] = (),
        unroll: int = 1,
        join: Join | Sequence[Join] | None = None,
    ) -> tuple[Value, ...]:
        """`body(index, mask, *carried)` for every vector of [start, stop).

        `mask` is None but in the last, incomplete vector, where loads and stores must get it: lanes outside
        read as 0. `body` returns the new `carried` values (one, or a sequence of them), the sweep the last
        ones. With `unroll` that many vectors are worked on at a time, each with carried values of its own
        that begin alike and are joined by `join` in the end (so they should begin with what `join` ignores),
        which is one function for all or one for each.
        """
        n = len(carried)
        joins = (join,) * n if callable(join) else tuple(join or ())

        def bodied(index: Value, mask: Value | None, values: Sequence[Value]) -> tuple[Value, ...]:
            made = body(index, mask, *values)
            new = () if made is None else (made,) if isinstance(made, Value) else tuple(made)
            assert len(new) == n
            return new

        count = self.binary("sub", stop, start)
        values: Sequence[Int] = tuple(carried)
        whole = start
        for step in dict.fromkeys((self.width * unroll, self.width)):
            left = self.binary("sub", stop, whole)
            assert step & (step - 1) == 0, "unroll by a power of two"
            # Rounded down to whole steps; a negative count makes no step at all.
            until: Value = self.binary("add", whole, self.binary("and", left, -step))
            copies = step // self.width
            firsts = values if copies == 1 else [v for _ in range(copies) for v in carried]
            with self.loop(whole, until, step, firsts) as loop:
                made: list[Value] = []
                for k in range(copies):
                    index = self.binary("add", loop.index, k * self.width) if k else loop.index
                    made += bodied(index, None, loop.values[k * n : (k + 1) * n])
                loop.again(*made)
            results = loop.results[:n]
            for k in range(1, copies):
                rest = loop.results[k * n : (k + 1) * n]
                results = tuple(merge(a, b) for merge, a, b in zip(joins, results, rest, strict=True))
            values = results
            # An empty range stays where it began, also a negative one.
            whole = self.either(self.is_("sgt", count, 0), until, stop)
        return self._tail(whole, stop, bodied, values)

    def _tail(
        self,
        whole: Int,
        stop: Int,
        bodied: Callable[[Value, Value | None, Sequence[Value]], tuple[Value, ...]],
        values: Sequence[Int],
    ) -> tuple[Value, ...]:
        """The last vector of a sweep, if it is not full."""
        with self.loop(whole, stop, self.width, values) as loop:  # once or never
            mask = self.tail(loop.index, stop)
            loop.again(*bodied(loop.index, mask, loop.values))
        return loop.results

    def tail(self, index: Int, stop: Int) -> Value:
        """The mask of the lanes `index`, `index` + 1, ... that are below `stop`."""
        return self.is_("slt", self.iota, self.every(self.binary("sub", stop, index)))

    # -- memory ----------------------------------------------------------------------------------

    def load(self, pointer: Value, index: Int, dtype: str = "float32", mask: Value | None = None) -> Value:
        """The vector at element `index`; lanes outside `mask` are 0."""
        many = self.stored(dtype)
        return self.widened(
            self.masked_load(many, self.offset(pointer, index, dtype), NBYTES[dtype], mask), dtype
        )

    def masked_load(self, many: Type, at: Value, align: int, mask: Value | None) -> Value:
        """A vector at an address; lanes outside `mask` are 0."""
        if mask is None:
            return self.load_at(many, at, align)
        return self.call(many, f"llvm.masked.load.{many.short}.p0", at, number(I32, align), mask, zero(many))

    def gather(self, pointer: Value, offsets: Value, dtype: str, mask: Value | None = None) -> Value:
        """The elements at a vector of offsets (i64), for each lane its own; lanes outside `mask` are 0."""
        many, align = self.stored(dtype), number(I32, NBYTES[dtype])
        at = self.make("getelementptr", many.of("ptr"), (pointer, offsets), f"[{NBYTES[dtype]} x i8]")
        where = mask if mask is not None else self.is_("eq", offsets, offsets)
        name = f"llvm.masked.gather.{many.short}.{at.type.short}"
        return self.widened(self.call(many, name, at, align, where, zero(many)), dtype)

    def masked_store(self, value: Value, at: Value, align: int, mask: Value | None) -> None:
        """Write a vector to an address, but not the lanes outside `mask`."""
        if mask is None:
            self.store_at(value, at, align)
        else:
            name = f"llvm.masked.store.{value.type.short}.p0"
            self.do_call(name, value, at, number(I32, align), mask)

    def stored(self, dtype: str) -> Type:
        """A vector of what an array of `dtype` holds."""
        return type_of(_STORED[dtype], self.width)

    def load_one(self, pointer: Value, index: Int, dtype: str = "float32") -> Value:
        """The element at `index` in all lanes."""
        at = self.offset(pointer, index, dtype)
        return self.widened(self.every(self.load_at(self.stored(dtype).element, at, NBYTES[dtype])), dtype)

    def store(
        self,
        value: Value,
        pointer: Value,
        index: Int,
        dtype: str = "float32",
        mask: Value | None = None,
        past_cache: bool = False,
    ) -> None:
        """Write the vector `value` from element `index` on, but not the lanes outside `mask`.

        `past_cache`: a whole vector at a multiple of its size is written by a non-temporal store, for results
        too large to be in the cache when they are read.
        """
        at = self.offset(pointer, index, dtype)
        narrow = self.narrowed(value, dtype)
        if past_cache:
            assert mask is None
            self.store_at(narrow, at, self.width * NBYTES[dtype], ", !nontemporal !{i32 1}")
        else:
            self.masked_store(narrow, at, NBYTES[dtype], mask)

    def store_one(self, value: Value, pointer: Value, index: Int, dtype: str = "float32") -> None:
        """Write the first lane of `value` at element `index`."""
        at = self.offset(pointer, index, dtype)
        self.store_at(self.lane(self.narrowed(value, dtype), 0), at, NBYTES[dtype])

    def widened(self, value: Value, dtype: str) -> Value:
        """float32 numbers from the stored form of an array of `dtype`."""
        if dtype == "float16":
            return self.cast("fpext", value, self.vector)
        if dtype == "bfloat16":
            return self.as_float(self.binary("shl", self.cast("zext", value, self.ints), 16))
        if dtype in ("bool", "uint8"):
            return self.cast("uitofp", value, self.vector)
        if dtype in ("int32", "int64"):
            return self.cast("sitofp", value, self.vector)
        return value

    def narrowed(self, value: Value, dtype: str) -> Value:
        """Stored form in an array of `dtype` of float32 numbers."""
        stored = self.stored(dtype)
        if dtype == "float16":
            return self.cast("fptrunc", value, stored)
        if dtype == "bfloat16":
            # Half of what is cut off is added, less one where the last bit that stays is even. In a NaN this
            # could carry into the sign, so there a bit of the fraction is set instead.
            bits = self.as_int(value)
            high = self.binary("lshr", bits, 16)
            half = self.binary("add", self.binary("and", high, 1), 32767)
            rounded = self.binary("lshr", self.binary("add", bits, half), 16)
            quiet = self.binary("or", high, 64)
            nan = self.compare("uno", value, value)
            return self.cast("trunc", self.either(nan, quiet, rounded), stored)
        if dtype == "bool":
            return self.cast("zext", self.compare("une", value, self.const(0.0)), stored)
        if dtype == "uint8":
            return self.cast("fptoui", value, stored)
        if dtype in ("int32", "int64"):
            return self.cast("fptosi", value, stored)
        return value

    # -- arithmetic ------------------------------------------------------------------------------

    def intrinsic(self, name: str, *values: Value) -> Value:
        """`llvm.<name>` of floats or vectors, making one: sqrt, fabs, floor, fma, copysign and others."""
        made = values[0].type
        return self.call(made, f"llvm.{name}.{made.short}", *values)

    def const(self, value: float) -> Value:
        """A number in all lanes, rounded to float32."""
        return number(self.vector, as_float32(value))

    def number(self, integer: Int) -> Value:
        """An i64, rounded to float32, in all lanes."""
        return self.every(self.cast("sitofp", self.value(integer), FLOAT))

    def every(self, scalar: Int) -> Value:
        """A number in all lanes."""
        return self.spread(self.value(scalar), self.width)

    def fma(self, a: Value, b: Value, c: Value) -> Value:
        """a * b + c, rounded once where the CPU can."""
        return self.intrinsic("fmuladd", a, b, c)

    def as_int(self, a: Value) -> Value:
        """The bits of a float vector as 32-bit integers."""
        return self.cast("bitcast", a, self.ints)

    def as_float(self, a: Value) -> Value:
        """The float vector with these bits."""
        return self.cast("bitcast", a, self.vector)

    def polynomial(self, x: Value, coefficients: Sequence[float]) -> Value:
        """c[0] + c[1] x + c[2] x^2 + ..., by Horner's rule."""
        value = self.const(coefficients[-1])
        for c in reversed(coefficients[:-1]):
            value = self.fma(value, x, self.const(c))
        return value

    # -- across lanes ----------------------------------------------------------------------------

    def total(self, a: Value) -> Value:
        """The sum of the lanes of `a`, in all lanes."""
        return self.every(self.summed(a))

    def summed(self, a: Value) -> Value:
        """The sum of the lanes of `a`, a scalar."""
        nothing = number(a.type.element, -0.0)  # which changes no sum
        return self.call(
            a.type.element, f"llvm.vector.reduce.fadd.{a.type.short}", nothing, a, flags="reassoc"
        )

    def any_of(self, mask: Value) -> Value:
        """An i1: true if the mask holds in any lane."""
        return self.call(I1, f"llvm.vector.reduce.or.{mask.type.short}", mask)

    def largest(self, a: Value) -> Value:
        """The largest lane of `a`, in all lanes; NaN if there is one."""
        return self.every(self.call(FLOAT, f"llvm.vector.reduce.fmaximum.{a.type.short}", a))

    def smallest(self, a: Value) -> Value:
        """The smallest lane of `a`, in all lanes; NaN if there is one."""
        return self.every(self.call(FLOAT, f"llvm.vector.reduce.fminimum.{a.type.short}", a))


def as_float32(value: float) -> float:
    """`value` rounded to float32; infinite beyond its range."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
