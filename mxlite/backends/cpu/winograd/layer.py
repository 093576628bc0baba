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
from .correlate import correlate_entry, FINISH_SLOTS, finish_entry, SLOTS as CORRELATE_SLOTS
from .kernels import weight_entry
from .routine import Program
from .tiles import Epilogue, NBYTES

_byte = np.dtype("uint8")


def _up(nbytes: int, to: int = 64) -> int:
    return -(-nbytes // to) * to


@functools.lru_cache(maxsize=64)
def _weight_code(m: int, v: int) -> tuple[native.Code, str]:
    p = Program()
    name = weight_entry(p, m, v)
    return load(p), name


@functools.lru_cache(maxsize=64)
def _convolve_code(m: int, v: int, dtype: str, epilogue: Epilogue) -> tuple[native.Code, str]:
    p = Program()
    name = convolve_entry(p, m, v, dtype, epilogue)
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
    epilogue: Epilogue
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
        line = 4 * width()
        found = {"v_far": self.most * self.c * 4 + line, "m_far": self.most * self.v * line + line}
        # zeros for a row of a tile, or in place of a bias
        found["at_zero"] = _up(self.v * line)
        zeros = max((self.m + 2) * self.c * NBYTES[self.dtype], 4 * self.f)
        found["at_m"] = found["at_zero"] + _up(zeros)
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

    def connect(self, data: Any, weight: Any, bias: Any, out: Any, work: Any, addend: Any = None) -> Run:
        """The call that computes `out`."""
        u, own = carve(work, self.pieces())
        keep = (data, weight, bias, out, work, addend)
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
            "out": out.ctypes.data,
            "addend": 0 if addend is None else addend.ctypes.data, "work": own.ctypes.data, "tiles": self.n * per_column * per_row,
            "per_image": per_column * per_row, "per_row": per_row, "h": self.h, "w": self.w, "oh": self.oh,
            "ow": self.ow, "pad_y": self.pad[0], "pad_x": self.pad[1], "blocks": self.c // lanes,
            "panels": panels, "most": self.most, "u_far": self.u_far, "has_bias": int(bias is not None),
            **self.places(),
        }  # fmt: skip
        code, name = _convolve_code(self.m, self.v, self.dtype, self.epilogue)
        calls.append(call(code, name, [values[s] for s in SLOTS], self.threads, keep))
        return in_turn(calls)


@functools.lru_cache(maxsize=64)
def _correlate_code(m: int, v: int, dtype: str) -> tuple[native.Code, str]:
    p = Program()
    name = correlate_entry(p, m, v, dtype)
    return load(p), name


@functools.lru_cache(maxsize=64)
def _finish_code(m: int, v: int) -> tuple[native.Code, str]:
    p = Program()
    name = finish_entry(p, m, v)
    return load(p), name


@dataclass(frozen=True)
class Correlation:
    """The gradient of the weights. `parts`: input and output channels of a part; `splits`: by tiles."""

    n: int
    h: int
    w: int
    c: int
    f: int
    pad: tuple[int, int]
    dtype: str
    m: int
    most: int
    parts: tuple[int, int]
    splits: int
    threads: int

    @property
    def oh(self) -> int:
        return self.h + 2 * self.pad[0] - 2

    @property
    def ow(self) -> int:
        return self.w + 2 * self.pad[1] - 2

    @property
    def v(self) -> int:
        """Vectors in a panel of inputs."""
        return 2 if self.parts[0] % (2 * width()) == 0 else 1

    def places(self) -> dict[str, int]:
        """Offsets in one thread's scratch, and distances in it."""
        products = (self.m + 2) ** 2
        cs, fs = self.parts
        found = {far: 4 * self.most * k + 64 for far, k in (("v_far", cs), ("y_far", fs))}
        found["s_far"] = 4 * cs * fs + 64
        found["s_size"] = products * found["s_far"]
        # zeros for a row of a tile
        found["at_v"] = _up(max((self.m + 2) * self.c, self.m * self.f) * NBYTES[self.dtype])
        found["at_y"] = _up(found["at_v"] + products * found["v_far"])
        found["at_s"] = _up(found["at_y"] + products * found["y_far"])
        found["share"] = _up(found["at_s"] + (found["s_size"] if self.splits == 1 else 0), 4096) + 64
        return found

    def pieces(self) -> list[Piece]:
        """What is in `work`: each thread's own, and the sums of all splits."""
        places = self.places()
        count = self.splits * (self.c // self.parts[0]) * (self.f // self.parts[1]) if self.splits > 1 else 0
        return [((self.threads * places["share"],), _byte), ((count * places["s_size"],), _byte)]

    @property
    def workspace(self) -> int:
        return scratch_bytes(self.pieces())

    def connect(self, d_out: Any, data: Any, d_weight: Any, work: Any) -> Run:
        """The call that computes `d_weight`."""
        own, sums = carve(work, self.pieces())
        keep = (d_out, data, d_weight, work)
        per_column, per_row = -(-self.oh // self.m), -(-self.ow // self.m)
        values = {
            "data": data.ctypes.data, "d_out": d_out.ctypes.data, "d_weight": d_weight.ctypes.data,
            "work": own.ctypes.data, "sums": sums.ctypes.data, "tiles": self.n * per_column * per_row,
            "per_image": per_column * per_row, "per_row": per_row, "h": self.h, "w": self.w, "oh": self.oh,
            "ow": self.ow, "pad_y": self.pad[0], "pad_x": self.pad[1], "c": self.c, "f": self.f,
            "cs": self.parts[0], "fs": self.parts[1], "c_parts": self.c // self.parts[0],
            "f_parts": self.f // self.parts[1], "splits": self.splits, "most": self.most, **self.places(),
        }  # fmt: skip
        code, name = _correlate_code(self.m, self.v, self.dtype)
        calls = [call(code, name, [values[s] for s in CORRELATE_SLOTS], self.threads, keep)]
        if self.splits > 1:
            code, name = _finish_code(self.m, self.v)
            calls.append(call(code, name, [values[s] for s in FINISH_SLOTS], self.threads, keep))
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
    n: int,
    h: int,
    w: int,
    c: int,
    f: int,
    pad: Sequence[int],
    dtype: Any,
    add: bool = False,
    relu: bool = False,
    m: int = 4,
    most: int = 14,
) -> Convolution | None:
    """data (n, h, w, c), weight (f, c, 3, 3) and bias -> out."""
    if not fits(n, h, w, c, f, pad, dtype):
        return None
    return Convolution(
        n, h, w, c, f, (pad[0], pad[1]), str(np.dtype(dtype)), False, Epilogue(add, relu), m, most, num_threads()
    )


def d_data(
    n: int, h: int, w: int, c: int, f: int, pad: Sequence[int], dtype: Any, m: int = 4, most: int = 14
) -> Convolution | None:
    """The gradient of the data of `forward` with the same arguments: d_out and weight -> d_data."""
    if not fits(n, h, w, c, f, pad, dtype):
        return None
    back = (2 - pad[0], 2 - pad[1])
    oh, ow = h + 2 * pad[0] - 2, w + 2 * pad[1] - 2
    return Convolution(n, oh, ow, f, c, back, str(np.dtype(dtype)), True, Epilogue(), m, most, num_threads())


def d_weight(
    n: int,
    h: int,
    w: int,
    c: int,
    f: int,
    pad: Sequence[int],
    dtype: Any,
    m: int = 4,
    most: int = 28,
    parts: tuple[int, int] | None = None,
    splits: int | None = None,
) -> Correlation | None:
    """The gradient of the weights of `forward` with the same arguments: d_out and data -> d_weight."""
    if not fits(n, h, w, c, f, pad, dtype):
        return None
    threads = num_threads()
    if parts is None:
        parts = _part(c, 64), _part(f, 64)
    if splits is None:
        items = (c // parts[0]) * (f // parts[1])
        splits = 1 if items % threads == 0 or items > 8 * threads else threads
    tiles = n * -(-(h + 2 * pad[0] - 2) // m) * -(-(w + 2 * pad[1] - 2) // m)
    splits = min(splits, tiles)  # each has something to add
    return Correlation(
        n, h, w, c, f, (pad[0], pad[1]), str(np.dtype(dtype)), m, most, parts, splits, threads
    )


def _part(channels: int, most: int) -> int:
    """The largest part of `channels`, in whole vectors, that is not above `most`."""
    lanes = width()
    return next(k for k in range(most // lanes * lanes, 0, -lanes) if channels % k == 0)
