"""Vectorised loops, written as LLVM IR text.

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
once (a mean) is a vector of equal numbers. A value is just a name like `%12`; `emit` creates one from any
instruction, so anything that this class does not provide can be written out. The last, incomplete vector of a
sweep is read and written under a mask.

Vectors are as wide as the registers of this CPU, see `width`; LLVM only translates
(`native.load` without passes), so loop-invariant values should be computed before the loop.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Sequence

from ....core import native
from .arithmetic import Arithmetic
from .instructions import Instructions, quoted

Body = Callable[..., "Sequence[str] | str | None"]


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
    "float32": "float", "float16": "half", "bfloat16": "i16", "bool": "i8", "uint8": "i8", "int32": "i32"
}  # fmt: skip
_NBYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "bool": 1, "uint8": 1, "int32": 4}


class Module:
    """Functions that are compiled together."""

    def __init__(self) -> None:
        self._functions: list[Function] = []
        self.routines: dict[str, Function] = {}
        self._declared: dict[str, None] = {}
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


class Function(Arithmetic, Instructions):
    """A function on vectors of float32 numbers."""

    def __init__(self, module: Module, name: str, lanes: int | None = None) -> None:
        self.width = lanes or width()
        vector, self.ints, self.bits = (f"<{self.width} x {t}>" for t in ("float", "i32", "i1"))
        super().__init__(module, name, vector)
        self._iota = f"<{', '.join(f'i64 {i}' for i in range(self.width))}>"

    # -- vector by vector --------------------------------------------------------------------------

    def sweep(
        self,
        start: str,
        stop: str,
        body: Body,
        carried: Sequence[str] = (),
        unroll: int = 1,
        join: Callable[[str, str], str] | None = None,
        kind: str = "",
    ) -> tuple[str, ...]:
        """`body(index, mask, *carried)` for every vector of [start, stop).

        `mask` is None but in the last, incomplete vector, where loads and stores must get it: lanes outside
        read as 0. `body` returns the new `carried` values (one, or a sequence of them), the sweep the last
        ones. With `unroll` that many vectors are worked on at a time, each with carried values of its own
        that begin alike and are joined by `join` in the end (so they should begin with what `join` ignores).
        `kind` is the type of what is carried, float vectors unless given.
        """
        n = len(carried)

        def bodied(index: str, mask: str | None, values: Sequence[str]) -> tuple[str, ...]:
            made = body(index, mask, *values)
            new = () if made is None else (made,) if isinstance(made, str) else tuple(made)
            assert len(new) == n
            return new

        count = self.emit(f"sub i64 {stop}, {start}")
        values = tuple(carried)
        whole = start
        for step in dict.fromkeys((self.width * unroll, self.width)):
            left = self.emit(f"sub i64 {stop}, {whole}")
            # Rounded down to whole steps; a negative count makes no step at all.
            whole_count = self.emit(f"and i64 {left}, {-step}") if step & (step - 1) == 0 else ""
            assert whole_count, "unroll by a power of two"
            until = self.emit(f"add i64 {whole}, {whole_count}")
            copies = step // self.width
            firsts = values if copies == 1 else [v for _ in range(copies) for v in carried]
            with self.loop(whole, until, step, firsts, kind) as loop:
                made: list[str] = []
                for k in range(copies):
                    index = self.emit(f"add i64 {loop.index}, {k * self.width}") if k else loop.index
                    made += bodied(index, None, loop.values[k * n : (k + 1) * n])
                loop.again(*made)
            values = loop.results[:n]
            for k in range(1, copies):
                assert join is not None or not n
                rest = loop.results[k * n : (k + 1) * n]
                values = tuple(join(a, b) for a, b in zip(values, rest)) if join else ()
            # An empty range stays where it began, also a negative one.
            positive = self.emit(f"icmp sgt i64 {count}, 0")
            whole = self.emit(f"select i1 {positive}, i64 {until}, i64 {stop}")
        return self._tail(whole, stop, bodied, values, kind)

    def _tail(
        self,
        whole: str,
        stop: str,
        bodied: Callable[[str, str | None, Sequence[str]], tuple[str, ...]],
        values: tuple[str, ...],
        kind: str,
    ) -> tuple[str, ...]:
        """The last vector of a sweep, if it is not full."""
        with self.loop(whole, stop, self.width, values, kind) as loop:  # once or never
            mask = self.tail(loop.index, stop)
            loop.again(*bodied(loop.index, mask, loop.values))
        return loop.results

    def tail(self, index: str, stop: str) -> str:
        """The mask of the lanes `index`, `index` + 1, ... that are below `stop`."""
        left = self.emit(f"sub i64 {stop}, {index}")
        kind = f"<{self.width} x i64>"
        one = self.emit(f"insertelement {kind} poison, i64 {left}, i32 0")
        every = self.emit(f"shufflevector {kind} {one}, {kind} poison, <{self.width} x i32> zeroinitializer")
        return self.emit(f"icmp slt {kind} {self._iota}, {every}")

    # -- memory ----------------------------------------------------------------------------------

    def offset(self, pointer: str, index: str, nbytes: int | str = 1) -> str:
        """`pointer` moved by `index` elements of `nbytes`, or of those of a dtype of that name."""
        return super().offset(pointer, index, _NBYTES[nbytes] if isinstance(nbytes, str) else nbytes)

    def load(self, pointer: str, index: str, dtype: str = "float32", mask: str | None = None) -> str:
        """The vector at element `index`; lanes outside `mask` are 0."""
        at, kind = self.offset(pointer, index, dtype), _STORED[dtype]
        many = f"<{self.width} x {kind}>"
        if mask is None:
            return self.widened(self.emit(f"load {many}, ptr {at}, align {_NBYTES[dtype]}"), dtype)
        loaded = self.call(
            many,
            f"llvm.masked.load.v{self.width}{_short(kind)}.p0",
            ("ptr", at),
            ("i32", str(_NBYTES[dtype])),
            (self.bits, mask),
            (many, "zeroinitializer"),
        )
        return self.widened(loaded, dtype)

    def load_one(self, pointer: str, index: str, dtype: str = "float32") -> str:
        """The element at `index` in all lanes."""
        at, kind = self.offset(pointer, index, dtype), _STORED[dtype]
        loaded = self.emit(f"load {kind}, ptr {at}, align {_NBYTES[dtype]}")
        return self.widened(self.every(loaded, kind), dtype)

    def store(
        self,
        value: str,
        pointer: str,
        index: str,
        dtype: str = "float32",
        mask: str | None = None,
        past_cache: bool = False,
    ) -> None:
        """Write the vector `value` from element `index` on, but not the lanes outside `mask`.

        `past_cache`: a whole vector at a multiple of its size is written by a non-temporal store, for results
        too large to be in the cache when they are read.
        """
        at, kind = self.offset(pointer, index, dtype), _STORED[dtype]
        many = f"<{self.width} x {kind}>"
        narrow = self.narrowed(value, dtype)
        if past_cache:
            assert mask is None
            nbytes = self.width * _NBYTES[dtype]
            self.do(f"store {many} {narrow}, ptr {at}, align {nbytes}, !nontemporal !{{i32 1}}")
            return
        if mask is None:
            self.do(f"store {many} {narrow}, ptr {at}, align {_NBYTES[dtype]}")
            return
        name = f"llvm.masked.store.v{self.width}{_short(kind)}.p0"
        self.module.declare(f"void @{name}({many}, ptr, i32, {self.bits})")
        self.do(f"call void @{name}({many} {narrow}, ptr {at}, i32 {_NBYTES[dtype]}, {self.bits} {mask})")

    def store_one(self, value: str, pointer: str, index: str, dtype: str = "float32") -> None:
        """Write the first lane of `value` at element `index`."""
        at, kind = self.offset(pointer, index, dtype), _STORED[dtype]
        narrow = self.narrowed(value, dtype)
        first = self.emit(f"extractelement <{self.width} x {kind}> {narrow}, i32 0")
        self.do(f"store {kind} {first}, ptr {at}, align {_NBYTES[dtype]}")

    def widened(self, value: str, dtype: str) -> str:
        """float32 numbers from the stored form of an array of `dtype`."""
        n = self.width
        if dtype == "float16":
            return self.emit(f"fpext <{n} x half> {value} to {self.vector}")
        if dtype == "bfloat16":
            wide = self.emit(f"zext <{n} x i16> {value} to {self.ints}")
            return self.as_float(self.emit(f"shl {self.ints} {wide}, splat (i32 16)"))
        if dtype in ("bool", "uint8"):
            return self.emit(f"uitofp <{n} x i8> {value} to {self.vector}")
        if dtype == "int32":
            return self.emit(f"sitofp {self.ints} {value} to {self.vector}")
        return value

    def narrowed(self, value: str, dtype: str) -> str:
        """Stored form in an array of `dtype` of float32 numbers."""
        n = self.width
        if dtype == "float16":
            return self.emit(f"fptrunc {self.vector} {value} to <{n} x half>")
        if dtype == "bfloat16":
            # Half of what is cut off is added, less one where the last bit that stays is even. In a NaN this
            # could carry into the sign, so there a bit of the fraction is set instead.
            bits = self.as_int(value)
            high = self.emit(f"lshr {self.ints} {bits}, splat (i32 16)")
            odd = self.emit(f"and {self.ints} {high}, splat (i32 1)")
            half = self.emit(f"add {self.ints} {odd}, splat (i32 32767)")
            sum_of = self.emit(f"add {self.ints} {bits}, {half}")
            rounded = self.emit(f"lshr {self.ints} {sum_of}, splat (i32 16)")
            quiet = self.emit(f"or {self.ints} {high}, splat (i32 64)")
            nan = self.compare("uno", value, value)
            chosen = self.emit(f"select {self.bits} {nan}, {self.ints} {quiet}, {self.ints} {rounded}")
            return self.emit(f"trunc {self.ints} {chosen} to <{n} x i16>")
        if dtype == "bool":
            there = self.compare("une", value, self.const(0.0))
            return self.emit(f"zext {self.bits} {there} to <{n} x i8>")
        if dtype == "uint8":
            return self.emit(f"fptoui {self.vector} {value} to <{n} x i8>")
        if dtype == "int32":
            return self.emit(f"fptosi {self.vector} {value} to {self.ints}")
        return value

    # -- arithmetic ------------------------------------------------------------------------------

    def intrinsic(self, name: str, *values: str) -> str:
        """`llvm.<name>` of float vectors, making one: sqrt, fabs, floor, fma, copysign and others."""
        return self.call(self.vector, f"llvm.{name}.v{self.width}f32", *((self.vector, v) for v in values))

    def const(self, value: float) -> str:
        """A number in all lanes, rounded to float32."""
        (bits,) = struct.unpack("<Q", struct.pack("<d", as_float32(value)))
        return f"splat (float 0x{bits:016X})"

    def number(self, integer: str) -> str:
        """An i64, rounded to float32, in all lanes."""
        return self.every(self.emit(f"sitofp i64 {integer} to float"), "float")

    def every(self, scalar: str, kind: str) -> str:
        """A number in all lanes."""
        many = f"<{self.width} x {kind}>"
        one = self.emit(f"insertelement {many} poison, {kind} {scalar}, i32 0")
        return self.emit(f"shufflevector {many} {one}, {many} poison, {self.ints} zeroinitializer")

    def op(self, name: str, *values: str) -> str:
        """An instruction on float vectors: `fadd`, `fneg`, ..."""
        return self.emit(f"{name} {self.vector} {', '.join(values)}")

    def fma(self, a: str, b: str, c: str) -> str:
        """a * b + c, rounded once where the CPU can."""
        return self.intrinsic("fmuladd", a, b, c)

    def abs(self, a: str) -> str:
        return self.intrinsic("fabs", a)

    def sqrt(self, a: str) -> str:
        return self.intrinsic("sqrt", a)

    def compare(self, how: str, a: str, b: str) -> str:
        """A mask: `oeq`, `olt`, `ole`, `ogt`, `oge`, `une` as numpy's comparisons; `uno`: one is NaN."""
        return self.emit(f"fcmp {how} {self.vector} {a}, {b}")

    def select(self, mask: str, a: str, b: str) -> str:
        """a where `mask`, else b."""
        return self.emit(f"select {self.bits} {mask}, {self.vector} {a}, {self.vector} {b}")

    def above(self, a: str, least: str) -> str:
        """The larger of a and `least`; a where a is NaN. One instruction on x86, unlike `maximum`."""
        return self.select(self.compare("ogt", least, a), least, a)

    def below(self, a: str, most: str) -> str:
        """The smaller of a and `most`; a where a is NaN."""
        return self.select(self.compare("olt", most, a), most, a)

    def maximum(self, a: str, b: str) -> str:
        """As numpy.maximum: NaN where either is."""
        return self.select(self.compare("uno", a, a), a, self.above(b, a))

    def minimum(self, a: str, b: str) -> str:
        """As numpy.minimum: NaN where either is."""
        return self.select(self.compare("uno", a, a), a, self.below(b, a))

    def as_int(self, a: str) -> str:
        """The bits of a float vector as 32-bit integers."""
        return self.emit(f"bitcast {self.vector} {a} to {self.ints}")

    def as_float(self, a: str) -> str:
        """The float vector with these bits."""
        return self.emit(f"bitcast {self.ints} {a} to {self.vector}")

    def polynomial(self, x: str, coefficients: Sequence[float]) -> str:
        """c[0] + c[1] x + c[2] x^2 + ..., by Horner's rule."""
        value = self.const(coefficients[-1])
        for c in reversed(coefficients[:-1]):
            value = self.fma(value, x, self.const(c))
        return value

    # -- across lanes ----------------------------------------------------------------------------

    def total(self, a: str) -> str:
        """The sum of the lanes of `a`, in all lanes."""
        found = self.call(
            "float",
            f"llvm.vector.reduce.fadd.v{self.width}f32",
            ("float", "0x8000000000000000"),  # -0.0, which changes no sum
            (self.vector, a),
            flags="reassoc",
        )
        return self.every(found, "float")

    def largest(self, a: str) -> str:
        """The largest lane of `a`, in all lanes; NaN if there is one."""
        found = self.call("float", f"llvm.vector.reduce.fmaximum.v{self.width}f32", (self.vector, a))
        return self.every(found, "float")

    def smallest(self, a: str) -> str:
        """The smallest lane of `a`, in all lanes; NaN if there is one."""
        found = self.call("float", f"llvm.vector.reduce.fminimum.v{self.width}f32", (self.vector, a))
        return self.every(found, "float")


def as_float32(value: float) -> float:
    """`value` rounded to float32; infinite beyond its range."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def _short(kind: str) -> str:
    return {"float": "f32", "half": "f16"}.get(kind, kind)
