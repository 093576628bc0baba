"""Streams of random numbers that are drawn by generated code."""

from __future__ import annotations

import functools
from typing import Any

from .....core.machine_code import native
from .....ops.random.philox import RandomStream
from ...onednn.primitive import address_of
from ..calls.team import call, LEAST_NBYTES, load
from ..codegen.doubles import Doubles
from ..codegen.emitter import Module
from ..codegen.ir import Value
from . import samplers
from .philox import Philox


class FastStream(RandomStream):
    """A stream whose numbers are drawn by generated code, on `threads` threads if there are many: for
    reference kernels, in place of numpy's code.
    """

    __slots__ = ("threads",)

    def __init__(self, state: Any, stream: int, threads: int) -> None:
        super().__init__(state, stream)
        self.threads = threads

    def fill_bits(self, xp: Any, out: Any, work: Any, start: int = 0) -> None:
        self._fill(out, start)

    def fill_uniform(self, xp: Any, out: Any, work: Any, start: int = 0) -> None:
        self._fill(out, start)

    def draw(self, law: Any, out: Any, *parameters: Any) -> bool:
        return samplers.draw(self.state, self.stream, self.threads, law, out, parameters)

    def _fill(self, out: Any, start: int) -> None:
        args = [address_of(out), address_of(self.state), self.stream, start, out.size]
        threads = self.threads if out.nbytes >= LEAST_NBYTES else 1
        call(code(out.dtype.name), "draw", args, threads)()


_BITS = {"float32": 24, "float64": 24, "float16": 11, "bfloat16": 8}


@functools.cache
def code(dtype: str) -> native.Code:
    """The code with one function, `draw`: it fills an array with numbers of a stream, from number `start` on;
    its arguments are the array, [seed, step], the stream, `start` and how many.
    """
    module = Module()
    f = module.function("draw")
    stream = Philox(f, f.pointer(1), f.integer(2))
    out, start, count = f.pointer(0), f.integer(3), f.integer(4)
    doubles, bits = Doubles(f), _BITS.get(dtype, 32)

    def put(numbers: Value, at: Value, mask: Value | None) -> None:
        if dtype == "uint32":
            f.store(f.as_float(numbers), out, at, "float32", mask)
            return
        upper = f.binary("lshr", numbers, 32 - bits)
        value = f.mul(f.cast("sitofp", upper, f.vector), f.const(2.0**-bits))
        if dtype == "float64":
            doubles.store(doubles.widen(value), out, at, mask)
        else:
            f.store(value, out, at, dtype, mask)

    first, last = f.share(count, 2 * f.width)
    stream.sweep(start, first, last, put)
    f.done()
    return load(module)
