"""Attention and its gradient by kernels of our own that never store the scores in memory.

A block of threads takes a tile of queries and goes along the keys (for the gradients of keys and values: a
tile of keys, along the queries). Backward first writes delta = sum(d_out * out) of each query to scratch and
computes each gradient with a launch of its own, in which every block recomputes the weights: one product more
than the seven that a fused kernel would take, but no sums across blocks, so the same bits every time.

It reads queries once for each 64 (128 where values are wider) columns of the result, keys and values once for
each tile of queries; it writes each result once.
"""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass
from math import prod
from typing import Any

from ....graph.ir import Shape
from ....graph.opdef import DType
from ....ops.nn.attention_kernels import AttentionPlan
from ..compiler.kinds import FLOATS, wide
from ..compiler.source import kernel, KernelSource, NAMES, shared, structure
from ..handwritten.each import launch
from ..runtime.device import Device, InOrder, nothing, pointer, Run

TILE = {"float": 64, "double": 32}
BLOCKS = {64: 2, 128: 1}  # of a multiprocessor, at least, by columns of a tile
MOST = 2**31 - 1
DELTA_THREADS = 256


Sizes: Any = structure("attention", "Sizes")


@functools.lru_cache(maxsize=64)
def source(part: str, dtype: str, length: str, columns: int, drops: bool) -> KernelSource:
    """The kernels of a `part`: "forward", "gradient" (with that of delta), "mask" or "zero".

    columns: those of a tile of the result. drops: True if weights are dropped.
    """
    if part == "zero":
        body = ["MX_EACH(at, count) made[at] = 0;"]
        one = kernel("attention_zero", ["uint8 *made", "int64 count"], body, DELTA_THREADS)
        return KernelSource(shared("types", "index") + one)
    t = NAMES[dtype]
    c = wide(dtype)
    n, kind = TILE[c], NAMES[length]
    threads = n * n // 16
    given = [f"const {t} *{x}" for x in ("query", "key", "value")]
    masks = ["const void *mask", f"const {kind} *length"]
    text = shared("types", "math", "philox", "gemm") + f"constexpr bool DROPS = {str(drops).lower()};\n"
    text += shared("attention")
    if part == "forward":
        parameters = ["Sizes z", *given, *masks, "const uint64 *state", f"{t} *out", f"{c} *log_sum"]
        call = f"attend<{t}, {c}, {kind}, {n}, {columns}>("
        call += "z, query, key, value, mask, length, state, out, log_sum);"
        return KernelSource(
            text + kernel("attention", parameters, [call], threads, BLOCKS[columns] if not drops else 1),
            contract=True,
        )
    text += shared("attention_gradient")
    sums = [f"const {c} *log_sum", f"const {c} *delta", "const uint64 *state", f"{t} *made"]
    arguments = "d_out, query, key, value, mask, length, log_sum, delta, state, made"
    if part == "mask":
        parameters = ["Sizes z", f"const {t} *d_out", *given, *masks, *sums]
        call = f"attend_mask_gradient<{t}, {c}, {kind}, {n}>(z, {arguments});"
        return KernelSource(
            text + kernel("attention_mask_gradient", parameters, [call], threads), contract=True
        )
    parameters = ["Sizes z", "int of", f"const {t} *d_out", *given, *masks, *sums]
    call = f"attend_gradient<{t}, {c}, {kind}, {n}, {columns}>(z, of, {arguments});"
    text += kernel("attention_gradient", parameters, [call], threads, BLOCKS[columns] if not drops else 1)
    parameters = [f"const {t} *d_out", f"const {t} *out", f"{c} *delta", "int64 rows", "int columns"]
    call = f"attend_delta<{t}, {c}>(d_out, out, delta, rows, columns);"
    return KernelSource(text + kernel("attention_delta", parameters, [call], DELTA_THREADS), contract=True)


@dataclass(frozen=True)
class Attention:
    """The calls of one operator for arrays of these types. `p` is the dropout probability of weights."""

    device: Device
    plan: AttentionPlan
    dtype: str
    mask: Shape | None
    mask_type: str
    length_type: str
    p: float

    @classmethod
    def of(cls, device: Device, a: Any, shapes: Any, dtypes: tuple[DType, ...]) -> Attention | None:
        """The calls for these shapes and types; None if the kernels do not support them."""
        names = [str(d) for d in dtypes]
        mask = tuple(shapes[3]) if a.use_mask else None
        mask_type = names[3] if a.use_mask else ""
        length_type = names[-1] if a.use_length else "int32"
        plan = AttentionPlan.of(a, shapes)
        made = cls(device, plan, names[0], mask, mask_type, length_type, a.p)
        z = plan
        tiles = max(z.queries, z.keys) // 32 + 1
        if names[0] not in FLOATS or length_type not in NAMES:
            return None
        if mask_type not in ("", "bool", names[0]):
            return None
        blocks = z.batch * z.groups * z.shared * tiles
        if max(blocks, z.queries + 64, z.keys + 64, z.width, z.values) > MOST or z.values > 2**21:
            return None
        return made

    @property
    def item(self) -> int:
        """Size in bytes of an accumulator."""
        return 8 if self.dtype == "float64" else 4

    @property
    def tile(self) -> int:
        return TILE["double" if self.item == 8 else "float"]

    @property
    def delta_bytes(self) -> int:
        z = self.plan
        return z.batch * z.groups * z.shared * z.queries * self.item

    def _drops(self, train: bool) -> bool:
        return train and self.p > 0

    def sizes(self, rng: Any, train: bool, addresses: tuple[int, ...]) -> Sizes:
        """addresses: of arrays whose rows are queries, keys or values; packs are read if all are aligned."""
        z = self.plan
        drop = self.p if self._drops(train) else 0.0
        strides = [0, 0, 0, 0]
        if self.mask is not None:
            shape = (1,) * (4 - len(self.mask)) + self.mask
            strides = [prod(shape[i + 1 :]) if n > 1 else 0 for i, n in enumerate(shape)]
        size = 8 if self.item == 8 else 4 if self.dtype == "float32" else 2
        whole = all(x % 16 == 0 for x in addresses)
        packs = whole * ((z.width * size % 16 == 0) | (z.values * size % 16 == 0) << 1)
        return Sizes(
            z.batch, z.groups, z.shared, z.queries, z.keys, z.width, z.values, z.causal,
            0 if self.mask is None else 1 if self.mask_type == "bool" else 2, packs,
            z.heads, z.rows, z.columns, rng.stream if drop else 0, *strides, z.scale, drop,
        )  # fmt: skip

    def columns(self, width: int) -> int:
        """Columns of a tile for a result of this width."""
        return 128 if width > 64 and self.item == 4 else 64

    def state(self, rng: Any, train: bool) -> Any:
        return rng.state if self._drops(train) else None

    def forward(self, arrays: dict[str, Any], rng: Any, train: bool) -> Run:
        """arrays: by name; `out` or `log_sum` may be None."""
        z, device = self.plan, self.device
        if (arrays["out"] is None and arrays["log_sum"] is None) or not z.batch * z.shared * z.queries:
            return nothing
        given = [arrays[n] for n in ("query", "key", "value")]
        sizes = self.sizes(rng, train, tuple(map(device.address, given)))
        columns = self.columns(z.values)
        blocks = -(-z.queries // self.tile) * z.batch * z.groups * z.shared
        chunks = max(1, -(-z.values // columns)) if arrays["out"] is not None else 1
        values = [sizes, *given, arrays["mask"], arrays["length"], self.state(rng, train)]
        text = source("forward", self.dtype, self.length_type, columns, self._drops(train))
        grid, threads = (blocks, chunks), self.tile**2 // 16
        return launch(device, text, "attention", grid, threads, *values, arrays["out"], arrays["log_sum"])

    def _zero(self, x: Any) -> Run:
        if not x.size:
            return nothing
        text, blocks = source("zero", "", "", 0, False), min(-(-x.size // DELTA_THREADS), 2**16)
        return launch(self.device, text, "attention_zero", blocks, DELTA_THREADS, x, ctypes.c_int64(x.size))

    def backward(self, arrays: dict[str, Any], work: int, rng: Any, train: bool) -> Run:
        """arrays: by name; gradients that are not wanted are None. work: `delta_bytes`."""
        z, device = self.plan, self.device
        rows = [device.address(arrays[n]) for n in ("query", "key", "value", "d_out")]
        sizes = self.sizes(rng, train, tuple(rows))
        threads, heads = self.tile**2 // 16, z.groups * z.shared
        names = ("d_out", "query", "key", "value", "mask", "length", "log_sum")
        inputs = [*map(arrays.get, names), pointer(work), self.state(rng, train)]
        runs: list[Run] = []
        by_query = z.batch * heads * -(-z.queries // self.tile)
        by_key = z.batch * z.groups * -(-z.keys // self.tile)
        wanted = (("d_value", by_key, z.values), ("d_key", by_key, z.width), ("d_query", by_query, z.width))
        for of, (name, blocks, width) in enumerate(wanted):
            if arrays[name] is None or not blocks * width:
                continue
            columns = self.columns(width)
            text = source("gradient", self.dtype, self.length_type, columns, self._drops(train))
            grid, values = (blocks, -(-width // columns)), (sizes, of, *inputs, arrays[name])
            runs.append(launch(device, text, "attention_gradient", grid, threads, *values))
        if arrays["d_mask"] is not None and self.mask_type == "bool":
            runs.append(self._zero(arrays["d_mask"]))
        elif arrays["d_mask"] is not None and arrays["d_mask"].size:
            assert self.mask is not None
            *lead, q, k = (1,) * (4 - len(self.mask)) + self.mask
            blocks = prod(lead) * -(-q // self.tile) * -(-k // self.tile)
            text = source("mask", self.dtype, self.length_type, 64, self._drops(train))
            values = sizes, *inputs, arrays["d_mask"]
            runs.append(launch(device, text, "attention_mask_gradient", blocks, threads, *values))
        return InOrder([self.delta(arrays, work), *runs] if runs else [])

    def delta(self, arrays: dict[str, Any], work: int) -> Run:
        """The call that writes sum(d_out * out) of each query to `work`."""
        z, device = self.plan, self.device
        rows = z.batch * z.groups * z.shared * z.queries
        if not rows:
            return nothing
        text = source("gradient", self.dtype, self.length_type, 64, False)
        values = arrays["d_out"], arrays["out"], pointer(work), ctypes.c_int64(rows), z.values
        blocks = min(-(-rows // (DELTA_THREADS // 32)), 2**16)
        return launch(device, text, "attention_delta", blocks, DELTA_THREADS, *values)
