"""oneDNN's direct convolutions.

Their good kernels need weights in a blocked layout of their own. Weights stay in the user's layout, so each
call reorders them into its scratch; PyTorch does the same, and it costs one pass over the weights. A layout
that is kept between the passes would cost memory for every layer at once instead.

Arrays of 16 bits go straight into kernels for them if the processor multiplies bfloat16 itself. Otherwise
they are cast to float32, a few samples at a time: oneDNN's emulation takes five times as long as float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from math import prod
from typing import Any

import ml_dtypes
import numpy as np

from ....core.cached import cached_property
from ....core.dtype import float32
from ....graph.ir import Shape
from ....graph.opdef import DType
from ....ops.nn.conv_kernels import Geometry
from ....ops.scratch import carve, Piece, scratch_bytes
from ..onednn import Attr, bind, in_turn, library, Memory, memory, Primitive, reorder, Run
from ..onednn.constants import (
    BIAS,
    DIFF_BIAS,
    DIFF_DST,
    DIFF_SRC,
    DIFF_WEIGHTS,
    DST,
    POST_OP,
    SRC,
    SRC_1,
    WEIGHTS,
)  # fmt: skip
from ..onednn.primitive import address_of
from .shapes import (
    by_data_primitive,
    by_weight_primitive,
    channel_memory,
    data_memory,
    forward_over_primitive,
    forward_primitive,
    out_memory,
    vector_memory,
    weight_memory,
)
from .slabs import part_of as part_of_memory, Slabs

LEAST_NARROWED, NARROWED = 2 << 20, 512 << 10
"""Bytes of a float32 weight that is cast before it is reordered, and of 16-bit filters at a time, about."""

_FILTERS = 64
"""Multiple of the filter blocks of all layouts."""

PART = 4 << 20
"""Bytes of float32 samples to be cast at a time: work for all threads that stays near the caches."""

_byte = np.dtype("uint8")
_bfloat16 = np.dtype(ml_dtypes.bfloat16)


class Narrowing:
    """Cast of a plain float32 weight of `shape` to one of 16 bits in another layout, some filters at a time.

    They are cast in their memory order, and reordered in the cache: for kernels of several
    taps oneDNN's reorder reads so many streams at once that it takes up to twice as long. Raises
    LookupError if filters of the layout are not separable.
    """

    def __init__(self, shape: Shape, dtype: DType, layout: Memory) -> None:
        one = prod(shape[1:]) * dtype.itemsize
        rows = max(1, NARROWED // one // _FILTERS) * _FILTERS
        self.parts: list[tuple[slice, Memory, Memory, Memory]] = []
        self.moves: list[tuple[Primitive, Primitive]] = []
        self.nbytes, self.scratch = min(rows, shape[0]) * one, 0
        for start in range(0, shape[0], rows):
            some = (min(rows, shape[0] - start), *shape[1:])
            there = part_of_memory(layout, start, some)
            if there is None:
                raise LookupError
            wide, narrow = memory(some, float32), memory(some, dtype)
            self.parts.append((slice(start, start + some[0]), wide, narrow, there))
            self.moves.append((reorder(wide, narrow), reorder(narrow, there)))
            self.scratch = max(self.scratch, *(m.scratch for m in self.moves[-1]))

    def calls(self, weight: Any, target: Any, held: Any, scratch: Any) -> list[Run]:
        """held: a buffer of `nbytes` bytes."""
        found = []
        for (rows, wide, narrow, there), (cast, move) in zip(self.parts, self.moves):
            found.append(bind(cast, {SRC: (wide, weight[rows]), DST: (narrow, held)}, scratch))
            found.append(bind(move, {SRC: (narrow, held), DST: (there, target)}, scratch))
        return found


class Direct:
    """Base of the three directions: samples in parts, cast to float32 if needed, and reordered weights.

    g: the convolution, with the type that data and output are stored in. weight: the type of weight and bias.
    """

    def __init__(self, g: Geometry, weight: DType, primitive: Primitive, arg: int) -> None:
        self.g = g
        self.weight_dtype = weight
        self.part = part_of(g)
        self.primitive = primitive
        self.arg = arg
        self.plain = weight_memory(g, weight)
        found = primitive.wants(arg)
        assert found is not None
        self.layout = found
        self._scratch = primitive.scratch
        self._moves: dict[str, Primitive] = {}
        if self.is_wide:
            for name, stored, wide in (
                ("data", data_memory(self.stored_part), data_memory(self.part)),
                ("out", out_memory(self.stored_part), out_memory(self.part)),
            ):
                self.add_move(f"{name} in", stored, wide)
                self.add_move(f"{name} out", wide, stored)

    def add_move(self, name: str, source: Memory, target: Memory, attr: Attr | None = None) -> None:
        """Create the reorder called `name`."""
        made = self._moves[name] = reorder(source, target, attr)
        self._scratch = max(self._scratch, made.scratch)

    def add_weight(self) -> None:
        """Create what `reordered` needs."""
        self.add_move("weight", self.plain, self.layout)
        if self.narrowing is not None:
            self._scratch = max(self._scratch, self.narrowing.scratch)

    def move(self, name: str, source: Memory, x: Any, target: Memory, y: Any, scratch: Any) -> Run:
        """The call of reorder `name` from `x` to `y`."""
        return bind(self._moves[name], {SRC: (source, x), DST: (target, y)}, scratch)

    @cached_property
    def narrowing(self) -> Narrowing | None:
        """Cast of a large float32 weight to a layout of 16 bits."""
        g, dtype = self.g, self.part.dtype
        shape = (g.f, g.c, *g.kernel)
        if g.groups > 1 or self.weight_dtype != float32 or dtype.itemsize != 2 or prod(g.kernel) == 1:
            return None
        if 4 * prod(shape) < LEAST_NARROWED or self.layout.nbytes != 2 * prod(shape):
            return None
        try:
            return Narrowing(shape, dtype, self.layout)
        except LookupError:
            return None

    def reordered(self, weight: Any, held: Any, narrow: Any, scratch: Any) -> list[Run]:
        """The calls that reorder the plain weight into `held`. narrow: a buffer of `for_narrow` bytes."""
        if self.narrowing is not None:
            return self.narrowing.calls(weight, held, narrow, scratch)
        return [self.move("weight", self.plain, weight, self.layout, held, scratch)]

    @property
    def for_narrow(self) -> int:
        """Bytes of scratch for `reordered`."""
        return 0 if self.narrowing is None else self.narrowing.nbytes

    @property
    def is_wide(self) -> bool:
        """True if samples are cast to float32 before they are processed."""
        return self.part.dtype != self.g.dtype

    @cached_property
    def stored_part(self) -> Geometry:
        """A part with the type in which its samples are stored."""
        return replace(self.part, dtype=self.g.dtype)

    @property
    def name(self) -> str:
        return f"onednn {self.primitive.implementation}"

    @property
    def is_gemm(self) -> bool:
        """True if oneDNN computes it as a product with columns, sample by sample."""
        return self.primitive.implementation.startswith("x64:gemm")

    @property
    def starts(self) -> range:
        """The first sample of each part."""
        return range(0, self.g.n, self.part.n)

    def buffers(self, *what: str) -> list[Piece]:
        """Scratch for a float32 part of "data" and "out"; nothing if none is cast."""
        p = self.part
        shape = {"data": (p.n, p.c, *p.size), "out": (p.n, p.f, *p.out)}
        return [((prod(shape[w]) * self.is_wide,), float32) for w in what]

    @property
    def pieces(self) -> list[Piece]:
        raise NotImplementedError

    @property
    def nbytes(self) -> int:
        return scratch_bytes(self.pieces)

    def rows(self, x: Any, start: int) -> Any:
        """The samples of a part."""
        return x[start : start + self.part.n]


class Forward(Direct):
    """out = relu(data * weight [factor] + bias + addend)."""

    def __init__(
        self,
        g: Geometry,
        weight: DType,
        bias: bool,
        add: bool,
        relu: bool,
        train: bool,
        scale: bool = False,
    ) -> None:
        primitive = forward_primitive(part_of(g), bias, add, relu, train, scale)
        if primitive is None:
            raise LookupError
        super().__init__(g, weight, primitive, WEIGHTS)
        if scale and (self.is_wide or weight != float32):
            raise LookupError
        self.bias, self.add, self.scale, self.is_packed = bias, add, scale, False
        self.over: Primitive | None = None
        if add and not self.is_wide:
            self.over = forward_over_primitive(self.part, bias, relu, train, self.layout, scale)
            if self.over is None:
                raise LookupError
            self._scratch = max(self._scratch, self.over.scratch)
        self.add_weight()
        self.add_move("bias", vector_memory(g, weight), vector_memory(g))

    def packed(self) -> Forward | None:
        """The same for weights that `pack` has reordered; None if it uses plain ones."""
        if self.layout == self.plain:
            return None
        other = copy(self)
        other.is_packed = True
        return other

    @cached_property
    def slabs(self) -> Slabs | None:
        """Slabs by which the weight can be packed in place; None if it cannot."""
        if self.g.groups > 1 or self.is_wide:
            return None
        try:
            return Slabs((self.g.f, self.g.c, *self.g.kernel), self.weight_dtype, self.layout)
        except LookupError:
            return None

    @property
    def scratch(self) -> int:
        """Bytes of work for `pack`."""
        return self._moves["weight"].scratch

    def pack(self, weight: Any, held: Any, work: Any) -> Run:
        """The call that reorders `weight` into `held`, of `layout.nbytes` bytes."""
        return self.move("weight", self.plain, weight, self.layout, held, work)

    @property
    def pieces(self) -> list[Piece]:
        held = self.layout.nbytes * (self.layout != self.plain and not self.is_packed)
        vector = self.g.f * (self.bias and self.weight_dtype != float32)
        addend = self.buffers("out") if self.add else [((0,), float32)]
        return [
            ((held,), _byte), ((self.for_narrow if held else 0,), _byte), ((vector,), float32),
            *self.buffers("data", "out"), *addend, ((self._scratch,), _byte),
        ]  # fmt: skip

    def connect(
        self, data: Any, weight: Any, bias: Any, addend: Any, out: Any, work: Any, factor: Any = None
    ) -> Run:
        held, narrow, vector, x, y, z, scratch = carve(work, self.pieces)
        calls: list[Run] = []
        if held.size:
            calls += self.reordered(weight, held, narrow, scratch)
            weight = held
        arrays: dict[int, tuple[Memory, Any]] = {WEIGHTS: (self.layout, weight)}
        behind = 0  # number of operands before the addend
        for number in (factor, bias) if self.scale else ():
            if number is not None:
                behind += 1
                arrays[POST_OP * behind | SRC_1] = (channel_memory(self.g), number)
        if bias is not None and not self.scale:
            to = vector_memory(self.g)
            if vector.size:
                calls.append(self.move("bias", vector_memory(self.g, bias.dtype), bias, to, vector, scratch))
            arrays[BIAS] = (to, vector if vector.size else bias)
        in_memory, on_memory = data_memory(self.part), out_memory(self.part)
        stored_in, stored_on = data_memory(self.stored_part), out_memory(self.stored_part)
        for i in self.starts:
            source, target, more = self.rows(data, i), self.rows(out, i), None
            if addend is not None:
                more = self.rows(addend, i)
            if self.is_wide:
                calls.append(self.move("data in", stored_in, source, in_memory, x, scratch))
                if more is not None:
                    calls.append(self.move("out in", stored_on, more, on_memory, z, scratch))
                    more = z
                source, result = x, y
            else:
                result = target
            own = {**arrays, SRC: (in_memory, source), DST: (on_memory, result)}
            primitive = self.primitive
            if more is not None:
                if self.over is not None and address_of(more) == address_of(result):
                    primitive = self.over
                else:
                    own[POST_OP * (behind + 1) | SRC_1] = (on_memory, more)
            calls.append(bind(primitive, own, scratch))
            if self.is_wide:
                calls.append(self.move("out out", on_memory, y, stored_on, target, scratch))
        return in_turn(calls)


class ByData(Direct):
    """d_data from d_out and weight."""

    def __init__(self, g: Geometry, weight: DType) -> None:
        primitive = by_data_primitive(part_of(g))
        if primitive is None:
            raise LookupError
        super().__init__(g, weight, primitive, WEIGHTS)
        self.add_weight()

    @property
    def pieces(self) -> list[Piece]:
        held = self.layout.nbytes * (self.layout != self.plain)
        narrow = self.for_narrow if held else 0
        buffers = self.buffers("data", "out")
        return [((held,), _byte), ((narrow,), _byte), *buffers, ((self._scratch,), _byte)]

    def connect(self, d_out: Any, weight: Any, d_data: Any, work: Any) -> Run:
        held, narrow, x, y, scratch = carve(work, self.pieces)
        calls: list[Run] = []
        if held.size:
            calls += self.reordered(weight, held, narrow, scratch)
            weight = held
        in_memory, on_memory = data_memory(self.part), out_memory(self.part)
        stored_in, stored_on = data_memory(self.stored_part), out_memory(self.stored_part)
        for i in self.starts:
            source, target = self.rows(d_out, i), self.rows(d_data, i)
            result = x if self.is_wide else target
            if self.is_wide:
                calls.append(self.move("out in", stored_on, source, on_memory, y, scratch))
                source = y
            own = {
                WEIGHTS: (self.layout, weight),
                DIFF_DST: (on_memory, source),
                DIFF_SRC: (in_memory, result),
            }
            calls.append(bind(self.primitive, own, scratch))
            if self.is_wide:
                calls.append(self.move("data out", in_memory, x, stored_in, target, scratch))
        return in_turn(calls)


class ByWeight(Direct):
    """d_weight and d_bias from d_out and data, accumulated in float32: over parts, and with `adds` also into
    both, which are float32 then.
    """

    def __init__(self, g: Geometry, weight: DType, bias: bool, adds: bool) -> None:
        primitive = by_weight_primitive(part_of(g), bias)
        if primitive is None or (adds and weight != float32):
            raise LookupError
        super().__init__(g, weight, primitive, DIFF_WEIGHTS)
        self.bias, self.adds = bias, adds
        self.sum = weight_memory(g, float32)
        for name, made, total, stored in (
            ("weight", self.layout, self.sum, self.plain),
            ("bias", vector_memory(g), vector_memory(g), vector_memory(g, weight)),
        ):
            self.add_move(name, made, stored if self.is_single else total)
            if not self.is_single:
                self.add_move(f"{name} add", made, total, Attr().add_to_output())
                self.add_move(f"{name} out", total, stored)

    @property
    def is_padded(self) -> bool:
        """True if groups of few channels are padded to many: most products are with zeros."""
        return self.layout.nbytes >= 16 * self.sum.nbytes

    @property
    def is_single(self) -> bool:
        """True if there is only one part to add up."""
        return self.part.n == self.g.n and not self.adds

    @property
    def pieces(self) -> list[Piece]:
        straight = self.is_single and self.layout == self.plain
        held = self.layout.nbytes * (not straight)
        vector = self.g.f * self.bias * (not (self.is_single and self.weight_dtype == float32))
        total = 0 if self.is_single or self.weight_dtype == float32 else 1
        return [
            ((held,), _byte), ((self.sum.nbytes * total,), _byte),
            ((vector,), float32), ((self.g.f * self.bias * total,), float32),
            *self.buffers("data", "out"), ((self._scratch,), _byte),
        ]  # fmt: skip

    def connect(self, d_out: Any, data: Any, d_weight: Any, d_bias: Any, work: Any) -> Run:
        held, total, vector, vectors, x, y, scratch = carve(work, self.pieces)
        one, many = vector_memory(self.g), vector_memory(self.g, self.weight_dtype)
        calls: list[Run] = []
        in_memory, on_memory = data_memory(self.part), out_memory(self.part)
        stored_in, stored_on = data_memory(self.stored_part), out_memory(self.stored_part)
        made = held if held.size else d_weight
        made_bias = vector if vector.size else d_bias
        sum_weight = total if total.size else d_weight
        sum_bias = vectors if vectors.size else d_bias
        for i in self.starts:
            source, from_out = self.rows(data, i), self.rows(d_out, i)
            if self.is_wide:
                calls.append(self.move("data in", stored_in, source, in_memory, x, scratch))
                calls.append(self.move("out in", stored_on, from_out, on_memory, y, scratch))
                source, from_out = x, y
            own = {
                SRC: (in_memory, source), DIFF_DST: (on_memory, from_out), DIFF_WEIGHTS: (self.layout, made)
            }  # fmt: skip
            if self.bias:
                own[DIFF_BIAS] = (one, made_bias)
            calls.append(bind(self.primitive, own, scratch))
            step = " add" if i or self.adds else ""
            if self.is_single:
                if held.size:
                    calls.append(self.move("weight", self.layout, made, self.plain, d_weight, scratch))
                if vector.size:
                    calls.append(self.move("bias", one, made_bias, many, d_bias, scratch))
                continue
            calls.append(self.move(f"weight{step}", self.layout, made, self.sum, sum_weight, scratch))
            if self.bias:
                calls.append(self.move(f"bias{step}", one, made_bias, one, sum_bias, scratch))
        if total.size:
            calls.append(self.move("weight out", self.sum, total, self.plain, d_weight, scratch))
        if vectors.size:
            calls.append(self.move("bias out", one, vectors, many, d_bias, scratch))
        return in_turn(calls)


def part_of(g: Geometry) -> Geometry:
    """The convolution of as many samples as are processed at a time, in the compute type."""
    lib = library()
    if g.dtype == float32 or (
        g.dtype == _bfloat16 and lib is not None and lib.has_bf16 and _all_taps_meet(g)
    ):
        return g
    sample = 4 * (g.c * prod(g.size) + g.f * prod(g.out))
    fitting = [d for d in _divisors(g.n) if d * sample <= PART]
    return replace(g, n=max(fitting, default=1), dtype=float32)


def _all_taps_meet(g: Geometry) -> bool:
    """True if every tap of the last axis meets data in some window.

    For one that does not, oneDNN 3's weight gradient in bfloat16 (jit_bf16:avx512_core_bf16, strides above 1)
    adds up the content of its scratch memory.
    """
    size, out, kernel, stride, dilate, pad = (
        x[-1] for x in (g.size, g.out, g.kernel, g.stride, g.dilate, g.pad)
    )
    starts = [o * stride - pad for o in range(out)]
    return all(any(0 <= s + k * dilate < size for s in starts) for k in range(kernel))


def _divisors(n: int) -> Sequence[int]:
    return [d for d in range(1, n + 1) if n % d == 0]
