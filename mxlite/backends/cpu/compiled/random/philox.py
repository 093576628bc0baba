"""Philox4x32-10 in vector registers, bit for bit that of philox.py, where its source is named.

A counter's words c0 and c2 lie in the lower halves of 64-bit lanes, where a product of 32 bits by 32 has
room; the upper halves are never read, so that a shift, two logical instructions and a product compute
a word of a round. A vector has half as many blocks as it has float32 lanes. A block's four numbers are
consecutive in a stream:

    lanes     block 0 | block n | block 1 | block n+1 | ...      n: a quarter of the float32 lanes
    c0, c1    joined to one vector, c2 and c3 to another; their lower pairs are blocks 0, 1, ... in order,
              their upper ones blocks n, n+1, ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ..codegen.emitter import Function
from ..codegen.ir import I32, I64, listed, Operand as Int, type_of, Value

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_LOW = 0xFFFFFFFF
_ROUNDS = 10

Halves = tuple[Value, Value]
"""64-bit whole numbers, one for each float32 lane: of the first half of the lanes, and of the second."""


class Philox:
    """One stream, for code in a function: `state` points to [seed, step], `stream` is an i64."""

    def __init__(self, f: Function, state: Value, stream: Value) -> None:
        self.f, self.half = f, f.width // 2
        self.kind = type_of("i64", self.half)
        seed, step = (f.load_at(I64, f.offset(state, k, 8), 8) for k in (0, 1))
        self.counter = [self._every(x) for x in (stream, step, self._shifted(step))]
        keys = [seed, self._shifted(seed)]
        self.keys: list[list[Value]] = []
        for _ in range(_ROUNDS):
            self.keys.append([self._every(k) for k in keys])
            keys = [f.plus(k, step) for k, step in zip(keys, _KEY_STEPS)]
        # Block of each lane: see above.
        quarter = self.half // 2
        self._order = self._numbers(k // 2 + quarter * (k % 2) for k in range(self.half))
        self._lanes = self._numbers(range(self.half)), self._numbers(range(self.half, 2 * self.half))

    # -- numbers of a stream ---------------------------------------------------------------------

    def run(self, block: Value) -> tuple[Value, Value]:
        """The numbers of a stream from block `block` (an i64) on: two vectors of 32 bits a lane."""
        c = self.words(self._op("add", self._every(block), self._order))
        low, high = self._joined(c[0], c[1]), self._joined(c[2], c[3])
        n = self.half
        found = []
        for first in (0, 1):
            picked = [k + first + n * side for k in range(0, n, 2) for side in (0, 1)]
            found.append(self._picked(low, high, picked))
        return found[0], found[1]

    def sweep(
        self, number: Value, begin: Value, end: Value, body: Callable[[Value, Value, Value | None], None]
    ) -> None:
        """`body(bits, index, mask)` for every vector of [begin, end); index i has number `number` + i."""
        f = self.f
        # Up to a block's first number.
        sum_of = f.plus(number, begin)
        before = f.binary("and", f.minus(0, sum_of), 3)
        middle = f.plus(begin, before)
        middle = f.least(middle, end)
        with f.loop(begin, middle, f.width) as head:  # once or never
            bits = self.at(self.spread(f.plus(number, head.index), 1))
            body(bits, head.index, f.tail(head.index, middle))
        count = f.minus(end, middle)
        until = f.plus(middle, f.binary("and", count, -2 * f.width))
        for whole, first, stop in ((True, middle, until), (False, until, end)):
            with f.loop(first, stop, 2 * f.width) as loop:
                block = f.binary("lshr", f.plus(number, loop.index), 2)
                for k, bits in enumerate(self.run(block)):
                    index = f.binary("add", loop.index, k * f.width)
                    body(bits, index, None if whole else f.tail(index, stop))

    def at(self, numbers: Halves) -> Value:
        """Those numbers of a stream: 32 bits a lane. A block is computed for each."""
        made = self.words_of(self._each("lshr", numbers, 2))
        word = self._trunc(self._each("and", numbers, 3))
        f, found = self.f, made[0]
        for k in (1, 2, 3):
            here = f.is_("eq", word, k)
            found = f.either(here, made[k], found)
        return found

    def words_of(self, blocks: Halves) -> list[Value]:
        """The four numbers of each of these blocks: 32 bits a lane each."""
        first, second = (self.words(b) for b in blocks)
        return [self._trunc((a, b)) for a, b in zip(first, second)]

    def element(self, elements: Halves, tag: Int) -> list[Value]:
        """The four numbers of each of these elements for an i64 `tag`, as `RandomStream.element_bits`."""
        first, second = (self.words(e, tag) for e in elements)
        return [self._trunc((a, b)) for a, b in zip(first, second)]

    def one(self, number: Value) -> Value:
        """Number `number` (an i64) of the stream, in all lanes."""
        f = self.f
        block = f.binary("lshr", number, 2)
        word = f.binary("and", number, 3)
        c = self.words(self._every(block))
        found = f.lane(c[0], 0)
        for k in (1, 2, 3):
            here = f.is_("eq", word, k)
            other = f.lane(c[k], 0)
            found = f.either(here, other, found)
        return f.every(f.cast("trunc", found, I32))

    def spread(self, start: Int, step: Int) -> Halves:
        """start, start + step, start + 2 step, ... (i64), one for each lane."""
        first, each = self._every(start), self._every(step)
        a, b = (self._op("add", first, self._op("mul", each, lanes)) for lanes in self._lanes)
        return a, b

    # -- the generator -----------------------------------------------------------------------------

    def words(self, blocks: Value, tag: Int | None = None) -> list[Value]:
        """The four numbers of each of these blocks, in the lower halves of 64-bit lanes; `tag` as in
        `element`.
        """
        c0, (c1, c2, c3) = blocks, self.counter
        if tag is not None:
            c3 = self._op("xor", c3, self._every(self.f.binary("shl", tag, 16)))
        for key in self.keys:
            p0, p1 = (self._op("mul", self._op("and", c, _LOW), m) for c, m in zip((c0, c2), _MULTIPLIERS))
            c0 = self._op("xor", self._op("xor", self._shifted(p1), c1), key[0])
            c2 = self._op("xor", self._op("xor", self._shifted(p0), c3), key[1])
            c1, c3 = p1, p0
        return [c0, c1, c2, c3]

    # -- vectors of 64-bit numbers -------------------------------------------------------------------

    def _op(self, name: str, a: Value, b: Int) -> Value:
        return self.f.binary(name, a, b)

    def _each(self, name: str, numbers: Halves, by: int) -> Halves:
        a, b = (self._op(name, x, by) for x in numbers)
        return a, b

    def _shifted(self, number: Value) -> Value:
        return self.f.binary("lshr", number, 32)

    def _every(self, number: Int) -> Value:
        return self.f.spread(self.f.value(number), self.half)

    def _numbers(self, values: Iterable[int]) -> Value:
        return listed(self.kind, values)

    def _joined(self, low: Value, high: Value) -> Value:
        """The lower halves of both, in one lane."""
        kept = self._op("and", low, _LOW)
        return self._op("or", kept, self._op("shl", high, 32))

    def _picked(self, a: Value, b: Value, lanes: Sequence[int]) -> Value:
        return self.f.cast("bitcast", self.f.shuffle(a, b, lanes), self.f.ints)

    def _trunc(self, numbers: Halves) -> Value:
        """The lower halves of 64-bit lanes, side by side."""
        f = self.f
        a, b = (f.cast("trunc", x, x.type.of("i32")) for x in numbers)
        return f.shuffle(a, b, range(2 * self.half))
