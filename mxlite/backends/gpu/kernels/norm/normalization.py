"""LayerNorm, RMSNorm, GroupNorm and InstanceNorm, forward and backward, as row normalizations.

32 to 256 threads share a row and keep it in registers as far as it fits: then data is read once forward, and
data and d_out once backward. Longer rows are read three times, most of them from a cache. Gradients of
gamma and beta are added up by blocks of some rows each, then over the blocks; if gamma serves
several neighbours, in a pass of their own. Along an axis other than the last, a thread has a column.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from .....core.cached import cached_property
from .....graph.opdef import Op
from .....ops.norm import group_norm, layer_norm
from .....ops.norm.group_norm import GroupNorm, InstanceNorm
from .....ops.norm.layer_norm import LayerNorm, RMSNorm
from .....ops.norm.normalize import Rule
from ....base import ChosenKernel, connected, Request
from ...compiler.source import KernelSource, NAMES, shared
from ...handwritten.channels import PARTS, power_of_two, Split, split
from ...handwritten.fill import zeros
from ...runtime.device import Arguments, Device, InOrder, nothing, pointer, Run

THREADS = 256
ROW_BLOCKS = (
    264  # blocks that share the rows where columns are added up: two per multiprocessor of the largest GPUs
)
BLOCKS = 1 << 16
FLOATS = {"float32": 4, "float64": 8, "float16": 2, "bfloat16": 2}
LONGEST = 2**31 - 1  # of a row, counted in 32 bits


def _types(dtype: str, affine: str) -> str:
    wide = "double" if dtype == "float64" else "float"
    return f"typedef {NAMES[dtype]} T;\ntypedef {NAMES[affine]} G;\ntypedef {wide} A;\n"


@functools.lru_cache(maxsize=256)
def rows_source(
    dtype: str, affine: str, pack: int, aligned: bool, held: int, columns: bool, gradient: bool
) -> KernelSource:
    """The kernel "normalize" or "gradient" of rows; see cuda/rows.cuh."""
    types = _types(dtype, affine) + (
        f"#define V {pack}\n#define ALIGNED {int(aligned)}\n"
        f"#define HELD {held}\n#define COLUMNS {int(columns)}\n"
    )
    rows = shared("rows")
    if gradient:
        rows = rows[: rows.index("// out, mean and spread, each")] + shared("rows_gradient")
    return KernelSource(shared("types", "math") + types + shared("elements") + rows)


@functools.lru_cache(maxsize=64)
def columns_source(dtype: str, affine: str) -> KernelSource:
    """The kernels "normalize" and "gradient" of columns; see cuda/norm_columns.cuh."""
    return KernelSource(shared("types", "index", "math") + _types(dtype, affine) + shared("norm_columns"))


@functools.lru_cache(maxsize=64)
def affine_source(dtype: str, affine: str, last: bool, pack: int, aligned: bool) -> KernelSource:
    """The kernels "part_sums" and "affine_total"; see cuda/affine.cuh."""
    types = _types(dtype, affine) + (
        f"#define LAST {int(last)}\n#define V {pack}\n#define ALIGNED {int(aligned)}\n"
    )
    return KernelSource(
        shared("types", "math") + types + shared("elements", "channels", "affine", "affine_total")
    )


@dataclass(frozen=True)
class Threads:
    """Thread layout of a block: `across` for each of `down` rows; `held`: HELD of rows.cuh."""

    across: int
    down: int
    held: int


class Normalization:
    """The launches of one rule, for one shape and type."""

    def __init__(self, device: Device, rule: Rule, dtype: str, affine: str, has_gamma: bool) -> None:
        self.device, self.rule, self.dtype, self.affine = device, rule, dtype, affine
        n, g, c, s, p = rule.view
        self.rows, self.length, self.inner = n * g, c * s, p
        self.item = FLOATS[dtype]
        self.wide = max(4, self.item)
        self.pack = self._pack(self.length) if p == 1 else 1
        self.front, self.back = self._threads(4), self._threads(max(1, min(4, 16 // self.pack)))
        # Gradients of gamma are fused, or computed by a pass of its own over (samples, gammas, neighbours).
        gammas = g * rule.channels
        self.on_the_way = p == 1 and g == 1 and s == 1 and rule.channels == c and self.back.held > 0
        self.gammas = gammas if has_gamma else 0
        self.step = max(self.back.down, -(-self.rows // ROW_BLOCKS))
        self.shape = (n, gammas, prod(rule.view[2:]) // max(1, rule.channels))
        self.wave = self._pack(gammas if self.shape[2] == 1 else self.shape[2])

    def _threads(self, most: int) -> Threads:
        """Threads for a row with at most `most` packs in the registers of each."""
        held = 1 if self.length <= 32 * self.pack else most
        across = min(THREADS, max(32, power_of_two(-(-self.length // (self.pack * held)))))
        if self.length > across * self.pack * held:
            held = 0
        return Threads(across, THREADS // across, held)

    def _pack(self, length: int) -> int:
        pack = 16 // self.item
        while length % pack:
            pack //= 2
        return pack

    @cached_property
    def sums(self) -> Split:
        return split(self.shape, self.wave, PARTS, 8)

    @property
    def fits(self) -> bool:
        return self.length <= LONGEST and self.sums.channels <= 65535

    @property
    def parts(self) -> int:
        return -(-self.rows // self.step) if self.on_the_way else self.sums.num_parts

    @property
    def workspace(self) -> int:
        """Bytes for backward: two statistics of each row, and two sums of each part and gamma."""
        return 2 * self.wide * (self.rows * self.inner + self.parts * self.gammas)

    def forward(self, data: Any, gamma: Any, beta: Any, out: Any, mean: Any, spread: Any) -> Run:
        """The call for out, mean and spread, those that are not None."""
        if self.rows * self.inner == 0 or (out is None and mean is None and spread is None):
            return nothing
        values = [
            *self._pointers(data, gamma, beta),
            *self._rule_numbers(),
            *self._pointers(out, mean, spread),
        ]
        if self.inner > 1:
            return self._launch_columns("normalize", values)
        t, aligned = self.front, self._aligned(self.pack, data, out)
        text = rows_source(self.dtype, self.affine, self.pack, aligned, t.held, False, False)
        blocks = min(-(-self.rows // t.down), BLOCKS)
        return self._launch(text, "normalize", (blocks, 1, 1), (t.across, t.down, 1), values)

    def backward(
        self, d_out: Any, heads: Sequence[Any], data: Any, gamma: Any, made: Sequence[Any], work: Any
    ) -> Run:
        """Call for `made`: d_data, d_gamma, d_beta, if not None; `heads`: gradients of mean and spread."""
        d_data, *columns = made
        affine = [x for x in columns if x is not None]
        if data.size == 0 or d_out is None:
            runs = [zeros(self.device, x) for x in affine]
            affine = []
        else:
            runs = []
        if data.size == 0 or (d_data is None and not affine):
            return InOrder(runs)
        address = 0 if work is None else self.device.address(work)
        count = self.rows * self.inner * self.wide
        stats = [address, address + count]
        sums = [address + 2 * count, address + 2 * count + self.parts * self.gammas * self.wide]

        def each_row(into: Any, keep: bool, add: bool) -> Run:
            values = [*self._pointers(d_out, *heads, data, gamma), *self._rule_numbers()]
            kept = [pointer(x if keep else 0) for x in stats]
            if self.inner > 1:
                return self._launch_columns("gradient", [*values, *self._pointers(into), *kept])
            values += [ctypes.c_int64(self.step), *self._pointers(into), *kept]
            values += [pointer(x if add else 0) for x in sums]
            t, aligned = self.back, self._aligned(self.pack, d_out, data, into)
            text = rows_source(self.dtype, self.affine, self.pack, aligned, t.held, add, True)
            grid, block = (-(-self.rows // self.step), 1, 1), (t.across, t.down, 1)
            return self._launch(text, "gradient", grid, block, values)

        if not affine:
            return InOrder([*runs, each_row(d_data, False, False)])
        s = self.sums
        text = affine_source(
            self.dtype, self.affine, s.last, self.wave, self._aligned(self.wave, d_out, data)
        )
        if self.on_the_way:
            runs.append(each_row(d_data, False, True))
        else:  # the statistics first: d_data may overwrite what the sums read
            runs.append(each_row(None, True, False))
            view = [ctypes.c_int64(x) for x in (self.rule.view[1], self.rule.channels, self.inner)]
            values = [
                *self._pointers(d_out, data),
                *map(pointer, stats),
                *view,
                *s.numbers,
                *map(pointer, sums),
            ]
            runs.append(
                self._launch(text, "part_sums", (s.num_parts, s.channels, 1), (*s.threads, 1), values)
            )
            if d_data is not None:
                runs.append(each_row(d_data, False, False))
        values = [*map(pointer, sums), ctypes.c_int64(self.gammas), ctypes.c_int64(self.parts)]
        values += self._pointers(*columns)
        across = 32 if self.parts > 8 else 256
        grid, block = (-(-self.gammas // across), 1, 1), (across, 256 // across if self.parts > 8 else 1, 1)
        runs.append(self._launch(text, "affine_total", grid, block, values))
        return InOrder(runs)

    def _rule_numbers(self) -> list[Any]:
        """Arguments RULE of rows.cuh, SHAPE of norm_columns.cuh."""
        rule = self.rule
        _, g, c, s, p = rule.view
        positions = s if rule.channels > 1 or c == 1 else c * s
        counts = [self.rows * p, self.length, *((p,) if p > 1 else ()), rule.channels]
        counts += [*(() if p > 1 else (positions,)), g]
        numbers = [ctypes.c_int64(x) for x in counts]
        return [*numbers, ctypes.c_double(rule.eps), ctypes.c_double(rule.count), ctypes.c_int(rule.centre)]

    def _pointers(self, *arrays: Any) -> list[ctypes.c_void_p]:
        return [pointer(0 if x is None else self.device.address(x)) for x in arrays]

    def _aligned(self, pack: int, *arrays: Any) -> bool:
        return all(x is None or self.device.address(x) % (pack * self.item) == 0 for x in arrays)

    def _launch_columns(self, name: str, values: Sequence[Any]) -> Run:
        columns = self.rows * self.inner
        blocks = min(-(-columns // THREADS), BLOCKS)
        text = columns_source(self.dtype, self.affine)
        return self._launch(text, name, (blocks, 1, 1), (THREADS, 1, 1), values)

    def _launch(self, text: KernelSource, name: str, grid: Any, block: Any, values: Sequence[Any]) -> Run:
        return self.device.launch(self.device.function(text, name), grid, block, 0, Arguments(values))


RULES: dict[type[Op], Callable[[Request], Rule]] = {
    LayerNorm: lambda r: layer_norm._rule(r.attrs, r.inputs[0]),
    RMSNorm: lambda r: layer_norm._rule(r.attrs, r.inputs[0], centre=False),
    GroupNorm: lambda r: group_norm._rule(r.attrs, r.inputs[0], r.inputs[1]),
    InstanceNorm: lambda r: group_norm._each_channel(r.attrs, r.inputs[0]),
}


def rows(device: Device) -> dict[type[Op], list[Any]]:
    """Rows of the backend's table for one device."""

    def kernel(r: Request) -> Normalization | None:
        of = r.op.forward_op or r.op
        affine = str(r.dtypes[1] if len(r.dtypes) > 1 else r.dtypes[0])
        if str(r.dtypes[0]) not in FLOATS or affine not in FLOATS:
            return None
        k = Normalization(device, RULES[of](r), str(r.dtypes[0]), affine, len(r.inputs) > 1)
        return k if k.fits else None

    def forward(r: Request) -> ChosenKernel | None:
        k = kernel(r)
        if k is None:
            return None

        def connect(xp: Any, a: Any, data: Any, gamma: Any = None, beta: Any = None, **rest: Any) -> Run:
            return k.forward(data, gamma, beta, rest["out"], rest.get("mean"), rest.get("std"))

        return connected(connect, 0, f"cuda {r.op.op_name}", like=r.op.forward)

    def backward(r: Request) -> ChosenKernel | None:
        k = kernel(r)
        if k is None:
            return None

        def connect(xp: Any, a: Any, *inputs: Any, work: Any, d_data: Any, **rest: Any) -> Run:
            have = dict(zip(r.op.signature.needs, inputs, strict=True))
            heads = have.get("d_mean"), have.get("d_std")
            made = d_data, rest.get("d_gamma"), rest.get("d_beta")
            return k.backward(have["d_out"], heads, have["data"], have.get("gamma"), made, work)

        of = r.op.forward_op or r.op
        return connected(connect, k.workspace, f"cuda {of.op_name} gradient", like=r.op.forward)

    table: dict[type[Op], list[Any]] = {}
    for op in RULES:
        assert op.grad_op is not None
        table[op], table[op.grad_op] = [forward], [backward]
    return table
