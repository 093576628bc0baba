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

from collections.abc import Callable, Iterable

from .emitter import Function

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_LOW = 0xFFFFFFFF
_ROUNDS = 10

Halves = tuple[str, str]
"""64-bit whole numbers, one for each float32 lane: of the first half of the lanes, and of the second."""


class Philox:
    """One stream, for code in a function: `state` points to [seed, step], `stream` is an i64."""

    def __init__(self, f: Function, state: str, stream: str) -> None:
        self.f, self.half = f, f.width // 2
        self.kind = f"<{self.half} x i64>"
        seed, step = (f.emit(f"load i64, ptr {f.offset(state, k, 8)}, align 8") for k in "01")
        self.counter = [self._every(x) for x in (stream, step, self._shifted(step))]
        keys = [seed, self._shifted(seed)]
        self.keys: list[list[str]] = []
        for _ in range(_ROUNDS):
            self.keys.append([self._every(k) for k in keys])
            keys = [f.emit(f"add i64 {k}, {step}") for k, step in zip(keys, _KEY_STEPS)]
        # Block of each lane: see above.
        quarter = self.half // 2
        self._order = self._numbers(k // 2 + quarter * (k % 2) for k in range(self.half))
        self._lanes = self._numbers(range(self.half)), self._numbers(range(self.half, 2 * self.half))

    # -- numbers of a stream ---------------------------------------------------------------------

    def run(self, block: str) -> tuple[str, str]:
        """The numbers of a stream from block `block` (an i64) on: two vectors of 32 bits a lane."""
        c = self.words(self._op("add", self._every(block), self._order))
        low, high = self._joined(c[0], c[1]), self._joined(c[2], c[3])
        n = self.half
        found = []
        for first in (0, 1):
            picked = ", ".join(f"i32 {k + first + n * side}" for k in range(0, n, 2) for side in (0, 1))
            found.append(self._picked(low, high, picked))
        return found[0], found[1]

    def sweep(self, number: str, begin: str, end: str, body: Callable[[str, str, str | None], None]) -> None:
        """`body(bits, index, mask)` for every vector of [begin, end); index i has number `number` + i."""
        f = self.f
        # Up to a block's first number.
        sum_of = f.emit(f"add i64 {number}, {begin}")
        before = f.emit(f"and i64 {f.emit(f'sub i64 0, {sum_of}')}, 3")
        middle = f.emit(f"add i64 {begin}, {before}")
        short = f.emit(f"icmp slt i64 {middle}, {end}")
        middle = f.emit(f"select i1 {short}, i64 {middle}, i64 {end}")
        with f.loop(begin, middle, f.width) as head:  # once or never
            bits = self.at(self.spread(f.emit(f"add i64 {number}, {head.index}"), "1"))
            body(bits, head.index, f.tail(head.index, middle))
        count = f.emit(f"sub i64 {end}, {middle}")
        until = f.emit(f"add i64 {middle}, {f.emit(f'and i64 {count}, {-2 * f.width}')}")
        for whole, first, stop in ((True, middle, until), (False, until, end)):
            with f.loop(first, stop, 2 * f.width) as loop:
                block = f.emit(f"lshr i64 {f.emit(f'add i64 {number}, {loop.index}')}, 2")
                for k, bits in enumerate(self.run(block)):
                    index = f.emit(f"add i64 {loop.index}, {k * f.width}")
                    body(bits, index, None if whole else f.tail(index, stop))

    def at(self, numbers: Halves) -> str:
        """Those numbers of a stream: 32 bits a lane. A block is computed for each."""
        made = self.words_of(self._each("lshr", numbers, 2))
        word = self._trunc(self._each("and", numbers, 3))
        f, found = self.f, made[0]
        for k in (1, 2, 3):
            here = f.emit(f"icmp eq {f.ints} {word}, splat (i32 {k})")
            found = f.emit(f"select {f.bits} {here}, {f.ints} {made[k]}, {f.ints} {found}")
        return found

    def words_of(self, blocks: Halves) -> list[str]:
        """The four numbers of each of these blocks: 32 bits a lane each."""
        first, second = (self.words(b) for b in blocks)
        return [self._trunc((a, b)) for a, b in zip(first, second)]

    def element(self, elements: Halves, tag: str) -> list[str]:
        """The four numbers of each of these elements for an i64 `tag`, as `RandomStream.element_bits`."""
        first, second = (self.words(e, tag) for e in elements)
        return [self._trunc((a, b)) for a, b in zip(first, second)]

    def one(self, number: str) -> str:
        """Number `number` (an i64) of the stream, in all lanes."""
        f = self.f
        block = f.emit(f"lshr i64 {number}, 2")
        word = f.emit(f"and i64 {number}, 3")
        c = self.words(self._every(block))
        found = f.emit(f"extractelement {self.kind} {c[0]}, i32 0")
        for k in (1, 2, 3):
            here = f.emit(f"icmp eq i64 {word}, {k}")
            other = f.emit(f"extractelement {self.kind} {c[k]}, i32 0")
            found = f.emit(f"select i1 {here}, i64 {other}, i64 {found}")
        return f.every(f.emit(f"trunc i64 {found} to i32"), "i32")

    def spread(self, start: str, step: str) -> Halves:
        """start, start + step, start + 2 step, ... (i64), one for each lane."""
        first, each = self._every(start), self._every(step)
        a, b = (self._op("add", first, self._op("mul", each, lanes)) for lanes in self._lanes)
        return a, b

    # -- the generator -----------------------------------------------------------------------------

    def words(self, blocks: str, tag: str | None = None) -> list[str]:
        """The four numbers of each of these blocks, in the lower halves of 64-bit lanes; `tag` as in
        `element`.
        """
        c0, (c1, c2, c3) = blocks, self.counter
        if tag is not None:
            c3 = self._op("xor", c3, self._every(self.f.emit(f"shl i64 {tag}, 16")))
        for key in self.keys:
            p0, p1 = (
                self._op("mul", self._op("and", c, f"splat (i64 {_LOW})"), f"splat (i64 {m})")
                for c, m in zip((c0, c2), _MULTIPLIERS)
            )
            c0 = self._op("xor", self._op("xor", self._shifted_all(p1), c1), key[0])
            c2 = self._op("xor", self._op("xor", self._shifted_all(p0), c3), key[1])
            c1, c3 = p1, p0
        return [c0, c1, c2, c3]

    # -- vectors of 64-bit numbers -------------------------------------------------------------------

    def _op(self, name: str, a: str, b: str) -> str:
        return self.f.emit(f"{name} {self.kind} {a}, {b}")

    def _each(self, name: str, numbers: Halves, by: int) -> Halves:
        a, b = (self._op(name, x, f"splat (i64 {by})") for x in numbers)
        return a, b

    def _shifted(self, number: str) -> str:
        return self.f.emit(f"lshr i64 {number}, 32")

    def _shifted_all(self, a: str) -> str:
        return self._op("lshr", a, "splat (i64 32)")

    def _every(self, number: str) -> str:
        f = self.f
        one = f.emit(f"insertelement {self.kind} poison, i64 {number}, i32 0")
        mask = f"<{self.half} x i32> zeroinitializer"
        return f.emit(f"shufflevector {self.kind} {one}, {self.kind} poison, {mask}")

    @staticmethod
    def _numbers(values: Iterable[int]) -> str:
        return f"<{', '.join(f'i64 {k}' for k in values)}>"

    def _joined(self, low: str, high: str) -> str:
        """The lower halves of both, in one lane."""
        kept = self._op("and", low, f"splat (i64 {_LOW})")
        return self._op("or", kept, self._op("shl", high, "splat (i64 32)"))

    def _picked(self, a: str, b: str, lanes: str) -> str:
        f = self.f
        mask = f"<{self.half} x i32> <{lanes}>"
        found = f.emit(f"shufflevector {self.kind} {a}, {self.kind} {b}, {mask}")
        return f.emit(f"bitcast {self.kind} {found} to {f.ints}")

    def _trunc(self, numbers: Halves) -> str:
        """The lower halves of 64-bit lanes, side by side."""
        f, n = self.f, self.half
        a, b = (f.emit(f"trunc {self.kind} {x} to <{n} x i32>") for x in numbers)
        lanes = ", ".join(f"i32 {k}" for k in range(2 * n))
        return f.emit(f"shufflevector <{n} x i32> {a}, <{n} x i32> {b}, <{2 * n} x i32> <{lanes}>")
