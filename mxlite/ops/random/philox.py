"""Counter-based random numbers: number i of a stream is a function of (seed, step, stream, i), nothing else.

Philox4x32-10 of J. Salmon, M. Moraes, R. Dror, D. Shaw, 2011, "Parallel random numbers: as easy as
1, 2, 3". A block cipher of ten rounds turns a counter of 128 bits into four numbers of 32 bits:

    counter = (block, stream, step low, step high)      key = (seed low, seed high)

Nothing is carried from one number to the next. So a recomputed dropout draws the
same mask, the order in which threads draw does not matter, and a GPU can draw the same bits.

One round maps (c0, c1, c2, c3) to (hi(M1*c2) ^ c1 ^ k0, lo(M1*c2), hi(M0*c0) ^ c3 ^ k1, lo(M0*c0)). The
64-bit products live in uint64 arrays; their halves are read in place through uint32 views, so that a
round needs no shift and no mask:

    product  | lo | hi | lo | hi | ...      words[lo_word::2], words[hi_word::2]
"""

from __future__ import annotations

import sys
from typing import Any, ClassVar

import numpy as np

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_MASK = 0xFFFFFFFF
_LOW, _HIGH = (0, 1) if sys.byteorder == "little" else (1, 0)

CHUNK = 2048  # blocks at a time: the scratch stays in the second-level cache
_BLOCK_BYTES = 6 * 8 + 4 * 4  # scratch of one block: six uint64, four uint32


class RandomStream:
    """One reproducible sequence of random numbers, drawn anew in each step.

    state: uint64 array of two, [seed, step]; read at each call, so that one object serves every step.
    stream: number of the sequence, below 2**32: one for each node that draws.

    A stream has 2**34 numbers.
    """

    WORK_BYTES: ClassVar[int] = CHUNK * _BLOCK_BYTES
    """Scratch with which `fill_bits` and `fill_uniform` are fastest, whatever the size of the output."""

    __slots__ = ("state", "stream")

    def __init__(self, state: Any, stream: int) -> None:
        self.state = state
        self.stream = int(stream) & _MASK

    @staticmethod
    def work_bytes(count: int) -> int:
        """Scratch with which `count` numbers, wherever they start, are drawn at full speed."""
        return min(CHUNK, count // 4 + 2) * _BLOCK_BYTES

    def fill_bits(self, xp: Any, out: Any, work: Any, start: int = 0) -> None:
        """Fill `out` (uint32, contiguous) with numbers `[start, start + out.size)` of the stream.

        work: uint8 array of `work_bytes(out.size)`, 8-byte aligned. Cost: ten rounds for four numbers.
        """
        flat = out.reshape(-1)
        for begin, end, words in self._chunks(xp, flat.size, work, start):
            flat[begin:end] = words

    def fill_uniform(self, xp: Any, out: Any, work: Any, start: int = 0) -> None:
        """Fill `out` (floating, contiguous) with uniform numbers in [0, 1), from number `start` on.

        float32 and float64 get the upper 24 bits of each number, the same values in both; float16 and
        bfloat16 the upper 11 and 8, as many as they can hold. work: as for `fill_bits`.
        """
        bits = {"float16": 11, "bfloat16": 8}.get(out.dtype.name, 24)
        scale = out.dtype.type(2.0**-bits)
        flat = out.reshape(-1)
        for begin, end, words in self._chunks(xp, flat.size, work, start):
            xp.right_shift(words, 32 - bits, out=words)
            part = flat[begin:end]
            # As int32 (the values are below 2**24), whose conversion the processor has.
            xp.copyto(part, words.view("int32"), casting="unsafe")
            xp.multiply(part, scale, out=part)

    def draw(self, law: Any, out: Any, *parameters: Any) -> bool:
        """Fill `out` in a faster way than `distributions.draw`, if there is one; returns True if so."""
        return False

    def element_bits(self, xp: Any, elements: Any, tag: int, work: Any) -> Any:
        """Four numbers for each of `elements` (whole numbers below 2**32): uint32 (n, 4), inside `work`.

        They depend on (seed, step, stream, tag, element), not on which other elements are asked for: so a
        sampler that rejects asks again, with the next tag, for the remaining ones. tag: from 1 to 2**16 - 1;
        it takes the upper bits of the step, which no program reaches, so these numbers differ from the
        stream's own. work: `element_work_bytes(n)`, for at most CHUNK elements.
        """
        seed, step = int(self.state[0]), int(self.state[1])
        counter = (self.stream, step & _MASK, (step >> 32) ^ (tag << 16))
        return philox4x32(xp, elements, len(elements), counter, seed, work).reshape(-1, 4)

    @staticmethod
    def element_work_bytes(count: int) -> int:
        """Scratch of `element_bits` for `count` elements."""
        return count * _BLOCK_BYTES

    def _chunks(self, xp: Any, count: int, work: Any, start: int) -> Any:
        """Yield (begin, end, words): numbers `[start + begin, start + end)`, as a scratch array."""
        seed, step = int(self.state[0]), int(self.state[1])
        most = min(CHUNK, work.size // _BLOCK_BYTES)
        begin = 0
        while begin < count:
            block, skip = divmod(start + begin, 4)
            blocks = min(most, (skip + count - begin + 3) // 4)
            end = min(count, begin + 4 * blocks - skip)
            words = philox4x32(xp, block, blocks, (self.stream, step & _MASK, step >> 32), seed, work)
            yield begin, end, words[skip : skip + end - begin]
            begin = end


def philox4x32(xp: Any, first: Any, blocks: int, counter: tuple[int, int, int], seed: int, work: Any) -> Any:
    """The numbers of blocks `[first, first + blocks)`: a uint32 array (4 * blocks,) inside `work`.

    first: alternatively the numbers of the blocks, an array of `blocks` whole numbers.

    counter: words 1, 2 and 3 of the counter; word 0 is the block. blocks: at most `len(work)` / 64.
    """
    n = blocks
    wide = work[: 48 * n].view("uint64").reshape(6, n)
    result = work[48 * n : 64 * n].view("uint32")
    c0, c2 = wide[0], wide[1]
    low, high = wide.view("uint32")[:, _LOW::2], wide.view("uint32")[:, _HIGH::2]
    c0_low, c2_low = low[0], low[1]

    if isinstance(first, int):
        first = xp.arange(first, first + n, dtype="uint64")
    xp.copyto(c0, first, casting="unsafe")
    c2.fill(counter[1])
    c1, c3 = low[2], low[3]
    c1.fill(counter[0])
    c3.fill(counter[2])
    p0, p1, spare = 4, 5, 2  # rows of the products; the rows before them hold the last round's
    k0, k1 = seed & _MASK, seed >> 32
    m0, m1 = np.uint64(_MULTIPLIERS[0]), np.uint64(_MULTIPLIERS[1])
    for _ in range(10):
        xp.multiply(c0, m0, out=wide[p0])
        xp.multiply(c2, m1, out=wide[p1])
        xp.bitwise_xor(c1, np.uint32(k0), out=c0_low)
        xp.bitwise_xor(c0_low, high[p1], out=c0_low)
        xp.bitwise_xor(c3, np.uint32(k1), out=c2_low)
        xp.bitwise_xor(c2_low, high[p0], out=c2_low)
        c1, c3 = low[p1], low[p0]
        p0, p1, spare = spare, spare + 1, p0
        k0, k1 = (k0 + _KEY_STEPS[0]) & _MASK, (k1 + _KEY_STEPS[1]) & _MASK
    quads = result.reshape(n, 4)
    for i, c in enumerate((c0_low, c1, c2_low, c3)):
        quads[:, i] = c
    return result
