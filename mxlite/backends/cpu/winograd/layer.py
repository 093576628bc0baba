"""A convolution of 3x3 as the kernels here see it, and its parts as calls."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....core import native
from ....ops.scratch import carve, Piece, scratch_bytes
from ..compiled import call, load, storable, usable, width
from ..onednn import in_turn, Run
from ..threads import num_threads
from .convolve import convolve_entry, SLOTS
from .kernels import weight_entry
from .routine import Program
from .tiles import NBYTES

_byte = np.dtype("uint8")


def _up(nbytes: int, to: int = 64) -> int:
    return -(-nbytes // to) * to


@functools.lru_cache(maxsize=64)
def _weight_code(m: int, v: int) -> tuple[native.Code, str]:
    p = Program()
    name = weight_entry(p, m, v)
    return load(p), name


@functools.lru_cache(maxsize=64)
def _convolve_code(m: int, v: int, dtype: str) -> tuple[native.Code, str]:
    p = Program()
    name = convolve_entry(p, m, v, dtype)
    return load(p), name


@dataclass(frozen=True)
class Convolution:
    """out = data * weight + bias, or (`flipped`) the gradient of the data of such a one.

    data: (n, h, w, c), out: (n, oh, ow, f) with oh = h + 2 pad - 2. weight: (f, c, 3, 3), or flipped (c, f, 3,
    3). m: outputs of a tile in each direction; `most`: tiles that a thread works on at a time.
    """

    n: int
    h: int
    w: int
    c: int
    f: int
    pad: tuple[int, int]
    dtype: str
    flipped: bool
    m: int
    most: int
    threads: int

    @property
    def oh(self) -> int:
        return self.h + 2 * self.pad[0] - 2

    @property
    def ow(self) -> int:
        return self.w + 2 * self.pad[1] - 2

    @property
    def v(self) -> int:
        """Vectors in a panel of outputs."""
        return 2 if self.f % (2 * width()) == 0 else 1

    @property
    def tiles(self) -> tuple[int, int, int]:
        """Images, rows and columns of tiles."""
        return self.n, -(-self.oh // self.m), -(-self.ow // self.m)

    @property
    def u_far(self) -> int:
        """Bytes of one product of one panel of U: one row more than it has, lest all products lie in the same
        sets of the cache."""
        return (self.c + 1) * self.v * width() * 4

    def places(self) -> dict[str, int]:
        """Offsets in one thread's scratch, and distances in it."""
        products = (self.m + 2) ** 2
        size = NBYTES[self.dtype]
        line = 4 * width()
        found = {
            "v_far": self.most * self.c * 4 + line,
            "m_far": self.most * self.v * line + line,
            "at_zero": 0,
        }
        found["at_out"] = _up(4 * self.f)
        sheet = max(products * self.c, self.m * self.m * self.v * width()) * size
        found["at_m"] = found["at_out"] + _up(sheet)
        found["at_v"] = found["at_m"] + _up(products * found["m_far"])
        found["share"] = _up(found["at_v"] + products * found["v_far"], 4096) + 64
        return found

    def pieces(self) -> list[Piece]:
        """What is in `work`: U, and each thread's own."""
        panels = self.f // (self.v * width())
        u = panels * (self.m + 2) ** 2 * self.u_far
        return [((u,), _byte), ((self.threads * self.places()["share"],), _byte)]

    @property
    def workspace(self) -> int:
        return scratch_bytes(self.pieces())

    def connect(self, data: Any, weight: Any, bias: Any, out: Any, work: Any) -> Run:
        """The call that computes `out`."""
        u, own = carve(work, self.pieces())
        keep = (data, weight, bias, out, work)
        lanes = width()
        panels = self.f // (self.v * lanes)
        _, per_column, per_row = self.tiles
        first = weight.ctypes.data
        if self.flipped:  # weight[k, f, 2 - y, 2 - x]
            order = [first + 8 * 4, u.ctypes.data, panels, self.c, 9 * 4, self.f * 9 * 4, -4, self.u_far]
        else:
            order = [first, u.ctypes.data, panels, self.c, self.c * 9 * 4, 9 * 4, 4, self.u_far]
        code, name = _weight_code(self.m, self.v)
        calls = [call(code, name, order, self.threads, keep)]
        values = {
            "data": data.ctypes.data, "u": u.ctypes.data, "bias": 0 if bias is None else bias.ctypes.data,
            "out": out.ctypes.data, "work": own.ctypes.data, "tiles": self.n * per_column * per_row,
            "per_image": per_column * per_row, "per_row": per_row, "h": self.h, "w": self.w, "oh": self.oh,
            "ow": self.ow, "pad_y": self.pad[0], "pad_x": self.pad[1], "blocks": self.c // lanes,
            "panels": panels, "most": self.most, "u_far": self.u_far, "has_bias": int(bias is not None),
            **self.places(),
        }  # fmt: skip
        code, name = _convolve_code(self.m, self.v, self.dtype)
        calls.append(call(code, name, [values[s] for s in SLOTS], self.threads, keep))
        return in_turn(calls)


def fits(n: int, h: int, w: int, c: int, f: int, pad: Sequence[int], dtype: Any) -> bool:
    """Whether there are kernels for this convolution, fast or not."""
    if not usable() or 0 in (n, h, w, c, f) or width() < 8:
        return False
    if c % width() or f % width() or len(pad) != 2 or not all(0 <= p <= 2 for p in pad):
        return False
    if h + 2 * pad[0] < 3 or w + 2 * pad[1] < 3:
        return False
    return str(np.dtype(dtype)) in NBYTES.keys() & storable()


def forward(
    n: int, h: int, w: int, c: int, f: int, pad: Sequence[int], dtype: Any, m: int = 4, most: int = 14
) -> Convolution | None:
    """data (n, h, w, c), weight (f, c, 3, 3) and bias -> out."""
    if not fits(n, h, w, c, f, pad, dtype):
        return None
    return Convolution(n, h, w, c, f, (pad[0], pad[1]), str(np.dtype(dtype)), False, m, most, num_threads())


def d_data(
    n: int, h: int, w: int, c: int, f: int, pad: Sequence[int], dtype: Any, m: int = 4, most: int = 14
) -> Convolution | None:
    """The gradient of the data of `forward` with the same arguments: d_out and weight -> d_data."""
    if not fits(n, h, w, c, f, pad, dtype):
        return None
    back = (2 - pad[0], 2 - pad[1])
    oh, ow = h + 2 * pad[0] - 2, w + 2 * pad[1] - 2
    return Convolution(n, oh, ow, f, c, back, str(np.dtype(dtype)), True, m, most, num_threads())
