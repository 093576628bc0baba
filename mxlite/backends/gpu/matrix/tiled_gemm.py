"""Matrix products by our own kernel: tiles in shared memory, long sums split into two stages (split-K).

It reads each operand once for every tile of the result that it meets, and writes the result once. If the
result has too few tiles to fill a GPU and the sum is long, the sum is cut into parts that are written to
scratch in the accumulation type and added up in order by a second launch: the same bits every time. The cut
depends on the shape alone, never on the device.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any, NamedTuple, TYPE_CHECKING

from ....core.dtype import as_dtype
from ..compiler.source import kernel, KernelSource, NAMES, shared
from ..handwritten.each import launch
from ..runtime.device import Device, InOrder, nothing, pointer, Run

if TYPE_CHECKING:
    from .blas_gemm import Addresses
    from .gemm import Product

COMPUTE = {
    "float16": "float",
    "bfloat16": "float",
    "float32": "float",
    "float64": "double",
    "int8": "uint32",
    "uint8": "uint32",
    "int32": "uint32",
    "int64": "uint64",
}
"""The type in which products are accumulated; integers wrap around as numpy's do."""

SIZE = {dtype: as_dtype(dtype).itemsize for dtype in COMPUTE}
ACTIVATIONS = {"": "Plain", "relu": "Rectified", "gelu": "Gelu", "gelu_tanh": "GeluTanh"}
SLOPES = {"": "One", "relu": "RectifiedSlope", "gelu": "GeluSlope", "gelu_tanh": "GeluTanhSlope"}
BIASES = {"": 0, "columns": 1, "rows": 2}

SMALL = {"float": (32, 32, 4, 16), "double": (32, 32, 4, 8)}
LARGE = {"float": (128, 128, 8, 8), "double": (64, 64, 4, 8)}
"""Sizes of tiles by accumulation type (integers as floats of their size); see Tiling."""
BLOCKS = 264
"""Least number of blocks wanted: two for each multiprocessor of an H200. A constant, since bits must not
depend on the device."""
LEAST = 256  # terms of a part of a split sum
LONG = 2048  # terms of a sum for which large tiles pay even if they are few
MOST_PARTS = 64
MOST_SCRATCH = 32 << 20  # bytes of partial sums
BAND = 8  # rows of tiles that blocks go through together, so that shared operands stay in the cache
MOST = 2**31 - 1
SUM_THREADS = 256


class Tiling(NamedTuple):
    """Tiles of `rows` x `columns`, `each` x `each` numbers for a thread, `step` of k at a time.

    The sum is cut into `parts`.
    """

    rows: int
    columns: int
    each: int
    step: int
    parts: int

    @property
    def threads(self) -> int:
        return self.rows * self.columns // self.each**2


def _item(p: Product) -> int:
    """Bytes of an accumulator."""
    return 8 if COMPUTE[p.dtype] in ("double", "uint64") else 4


def tiling(p: Product) -> Tiling:
    """The tiling of a product, chosen by its shape."""
    item = _item(p)
    compute = "double" if item == 8 else "float"
    batch = p.batch[0] * p.batch[1]

    def tiles(size: int) -> int:
        return -(-p.m // size) * -(-p.n // size) * batch

    large = LARGE[compute]
    wide = min(p.m, p.n) > large[0] // 2 and (tiles(large[0]) >= BLOCKS // 2 or p.summed * p.k >= LONG)
    rows, columns, each, step = large if wide else SMALL[compute]
    steps = p.summed * -(-p.k // step)
    room = MOST_SCRATCH // max(1, batch * p.m * p.n * item)
    parts = min(BLOCKS // max(1, tiles(rows)), steps * step // LEAST, MOST_PARTS, room)
    if batch * p.m * p.n > MOST:
        parts = 1
    return Tiling(rows, columns, each, step, parts if parts > 1 else 1)


def fits(p: Product) -> bool:
    """True if this kernel can compute the product: types that it knows, sizes that it can count."""
    if p.dtype not in COMPUTE or p.made not in COMPUTE or COMPUTE[p.dtype] != COMPUTE[p.made]:
        return False
    if (p.activation or p.slope) and COMPUTE[p.dtype] not in ("float", "double"):
        return False
    t, batch = tiling(p), p.batch[0] * p.batch[1]
    blocks = -(-p.m // t.rows) * -(-p.n // t.columns) * batch * t.parts
    return max(p.m, p.n, p.k, blocks, batch, p.summed * -(-p.k // t.step)) <= MOST - 1024


def workspace(p: Product) -> int:
    """Bytes of partial sums, 0 if the sum is not split."""
    parts = tiling(p).parts
    return parts * p.batch[0] * p.batch[1] * p.m * p.n * _item(p) if parts > 1 else 0


def launches(p: Product) -> int:
    """Number of kernels of a call."""
    return 1 + (tiling(p).parts > 1)


@functools.lru_cache(maxsize=256)
def source(
    dtype: str,
    made: str,
    rows: int,
    columns: int,
    each: int,
    step: int,
    activation: str = "",
    slope: str = "",
) -> KernelSource:
    """The kernels "gemm" and, for the second stage of a split sum, "gemm_sum"."""
    c, t, o = COMPUTE[dtype], NAMES[dtype], NAMES[made]
    threads, applied = rows * columns // each**2, f"{ACTIVATIONS[activation]}, {SLOPES[slope]}"
    finish = [f"{o} *c", *(f"const {o} *{x}" for x in ("added", "bias", "known")), "int64 ldc", "int bias_at"]
    finish += ["double alpha", "double beta"]
    batch = ["int m", "int n", "uint32 inner", "int64 outer_c", "int64 inner_c"]
    numbers = "ldc, bias_at, (C)alpha, (C)beta"
    made_finish = f"Finish<{o}, C, {applied}> finish = {{added, bias, known, {numbers}}};"
    product = [f"const {t} *a", f"const {t} *b", "C *partial", *batch, *finish]
    product += ["int k", "int64 lda", "int64 ldb", "int a_along_k", "int b_along_k", "int packs"]
    product += ["int64 outer_a", "int64 inner_a", "int64 outer_b", "int64 inner_b"]
    product += ["int64 more_a", "int64 more_b", "uint32 parts", "int steps"]
    body = [
        f"uint32 down = (m + {rows - 1}) / {rows}, along = (n + {columns - 1}) / {columns};",
        "uint32 tiles = down * along, tile = blockIdx.x % tiles, rest = blockIdx.x / tiles;",
        "uint32 part = rest % parts, sample = rest / parts;",
        f"uint32 band = tile / ({BAND} * along), in_band = tile % ({BAND} * along);",
        f"uint32 high = down - band * {BAND} < {BAND} ? down - band * {BAND} : {BAND};",
        f"int row0 = (band * {BAND} + in_band % high) * {rows}, column0 = in_band / high * {columns};",
        "uint32 outer = sample / inner, within = sample % inner;",
        "a += outer * outer_a + within * inner_a;",
        "b += outer * outer_b + within * inner_b;",
        "c += outer * outer_c + within * inner_c;",
        "added += outer * outer_c + within * inner_c;",
        "known += outer * outer_c + within * inner_c;",
        "int first = (int64)steps * part / parts, last = (int64)steps * (part + 1) / parts;",
        f"C sum[{each}][{each}];",
        f"multiply_tile<{t}, C, {rows}, {columns}, {step}, {each}, {each}>(",
        "    sum, a, b, m, n, k, lda, ldb, a_along_k, b_along_k, packs & 1, packs & 2, row0, column0,",
        "    more_a, more_b, first, last);",
        made_finish,
        f"int ty = threadIdx.x / {columns // each}, tx = threadIdx.x % {columns // each};",
        "#pragma unroll",
        f"for (int i = 0; i < {each}; ++i) {{",
        f"    int row = row0 + i / 4 * {rows // (each // 4)} + ty * 4 + i % 4;",
        "    if (row >= m) continue;",
        "    #pragma unroll",
        f"    for (int j = 0; j < {each}; j += 4) {{",
        f"        int column = column0 + j / 4 * {columns // (each // 4)} + tx * 4;",
        "        if (parts > 1) {",
        "            C *to = partial + (((int64)sample * parts + part) * m + row) * n + column;",
        "            #pragma unroll",
        "            for (int e = 0; e < 4; ++e) if (column < n - e) to[e] = sum[i][j + e];",
        "            continue;",
        "        }",
        f"        Pack<{o}, 4> made = {{}};",
        "        #pragma unroll",
        "        for (int e = 0; e < 4; ++e)",
        "            if (column < n - e) made.at[e] = finish.number(sum[i][j + e], row, column + e);",
        f"        {o} *to = c + row * ldc + column;",
        f"        if ((packs & 4) && column <= n - 4) *(Pack<{o}, 4> *)to = made;",
        "        else {",
        "            #pragma unroll",
        "            for (int e = 0; e < 4; ++e) if (column < n - e) to[e] = made.at[e];",
        "        }",
        "    }",
        "}",
    ]
    adding = [
        "MX_EACH(at, count) {",
        "    uint32 column = (uint32)at % n, rest = (uint32)at / n, row = rest % m, sample = rest / m;",
        "    const C *from = partial + ((int64)sample * parts * m + row) * n + column;",
        "    C sum = from[0];",
        "    for (uint32 part = 1; part < parts; ++part) sum += from[(int64)part * m * n];",
        "    int64 begin = sample / inner * outer_c + sample % inner * inner_c;",
        f"    Finish<{o}, C, {applied}> finish = {{added + begin, bias, known + begin, {numbers}}};",
        "    c[begin + row * ldc + column] = finish.number(sum, row, column);",
        "}",
    ]
    text = shared("types", "math", "index", "gemm") + f"typedef {c} C;\n"
    text += kernel("gemm", product, body, threads, 512 // threads)
    text += kernel(
        "gemm_sum", ["const C *partial", *batch, *finish, "uint32 parts", "int64 count"], adding, SUM_THREADS
    )
    return KernelSource(text, contract=True)


@functools.lru_cache(maxsize=64)
def finish_source(made: str, activation: str, slope: str = "") -> KernelSource:
    """The kernel "gemm_finish": a separate pass for the epilogue of a finished product."""
    o, c = NAMES[made], COMPUTE[made]
    batch = ["int m", "int n", "uint32 inner", "int64 outer_c", "int64 inner_c", "int64 ldc", "int64 count"]
    body = [
        "MX_EACH(at, count) {",
        "    int64 rest = at / n, sample = rest / m;",
        "    int column = (int)(at - rest * n), row = (int)(rest - sample * m);",
        "    int64 begin = sample / inner * outer_c + sample % inner * inner_c;",
        f"    Finish<{o}, C, {ACTIVATIONS[activation]}, {SLOPES[slope]}> finish = {{",
        "        c + begin, bias, known + begin, ldc, bias_at, C(1), C(0)};",
        f"    {o} *to_ = c + begin + row * ldc + column;",
        "    *to_ = finish.number(to<C>(*to_), row, column);",
        "}",
    ]
    parameters = [f"{o} *c", f"const {o} *bias", f"const {o} *known", "int bias_at", *batch]
    text = shared("types", "math", "index", "gemm") + f"typedef {c} C;\n"
    return KernelSource(text + kernel("gemm_finish", parameters, body, SUM_THREADS), contract=True)


def finish(device: Device, p: Product, c: int, bias: int, known: int) -> Run:
    """Bias, activation and slope of `p`, in place in the product at `c`."""
    u, q = ctypes.c_uint32, ctypes.c_int64
    count = p.batch[0] * p.batch[1] * p.m * p.n
    values = *map(pointer, (c, bias, known)), BIASES[p.bias], p.m, p.n, u(p.batch[1])
    sizes = map(q, (*p.strides_c, p.pitch_c, count))
    text = finish_source(p.made, p.activation, p.slope)
    return launch(device, text, "gemm_finish", _blocks(count), SUM_THREADS, *values, *sizes)


def _blocks(count: int) -> int:
    return min(-(-count // SUM_THREADS), BLOCKS * 8)


def packs(p: Product, t: Tiling, a: int, b: int, c: int) -> int:
    """Bit set of a (1), b (2), c (4) accessed in packs: rows of all their matrices are aligned."""
    item, made = SIZE[p.dtype], SIZE[p.made]
    pack = min(16 // item, t.rows * t.step // t.threads)  # as Side::PACK
    return (
        _whole(a, item, pack, p.pitch_a, *p.strides_a, p.more_a)
        | _whole(b, item, pack, p.pitch_b, *p.strides_b, p.more_b) << 1
        | _whole(c, made, 4, p.pitch_c, *p.strides_c) << 2
    )


def connect(device: Device, p: Product, where: Addresses, work: int) -> Run:
    """The call for matrices at these addresses; `work` is `workspace(p)` bytes."""
    if not (p.m and p.n and p.batch[0] and p.batch[1]):
        return nothing
    a, b, c, bias, known, _, added = where
    t = tiling(p)
    text = source(p.dtype, p.made, t.rows, t.columns, t.each, t.step, p.activation, p.slope)
    steps = p.summed * -(-p.k // t.step)
    u, q = ctypes.c_uint32, ctypes.c_int64
    finish: tuple[Any, ...] = *map(pointer, (c, added or c, bias, known)), q(p.pitch_c), BIASES[p.bias]
    finish += float(p.alpha), float(p.beta)
    batch = p.m, p.n, u(p.batch[1]), q(p.strides_c[0]), q(p.strides_c[1])
    values: tuple[Any, ...] = *map(pointer, (a, b, work)), *batch, *finish, p.k, q(p.pitch_a), q(p.pitch_b)
    values += int(not p.trans_a), int(p.trans_b), packs(p, t, a, b, c)
    values += *map(q, (*p.strides_a, *p.strides_b, p.more_a, p.more_b)), u(t.parts), steps
    samples = p.batch[0] * p.batch[1]
    blocks = -(-p.m // t.rows) * -(-p.n // t.columns) * samples * t.parts
    first = launch(device, text, "gemm", blocks, t.threads, *values)
    if t.parts == 1:
        return first
    count = samples * p.m * p.n
    values = pointer(work), *batch, *finish, u(t.parts), q(count)
    return InOrder([first, launch(device, text, "gemm_sum", _blocks(count), SUM_THREADS, *values)])


def _whole(address: int, item: int, pack: int, *strides: int) -> bool:
    """True if every row of every matrix is aligned to a pack."""
    return address % (item * pack) == 0 and all(s % pack == 0 for s in strides)
