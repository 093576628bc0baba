"""LayerNorm, RMSNorm, GroupNorm and InstanceNorm, forward and backward, as row normalizations.

32 to 256 threads share a row and keep it in registers as far as it fits: then data is read once forward, and
data and d_out once backward. Longer rows are read three times, most of them from a cache. Gradients of
gamma and beta are added up by blocks of some rows each, then over the blocks; if gamma serves
several neighbours, in a pass of their own. Along an axis other than the last, a thread has a column.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from .....core.cached import cached_property
from .....core.dtype import as_dtype
from .....graph.opdef import Op
from .....ops.norm import group_norm, layer_norm
from .....ops.norm.group_norm import GroupNorm, InstanceNorm
from .....ops.norm.layer_norm import LayerNorm, RMSNorm
from .....ops.norm.normalize import Rule
from ....base import Request
from ...compiler.kinds import floating, wide
from ...compiler.source import assembled, KernelSource, NAMES, shared, typedefs
from ...handwritten.channels import PARTS, Split, split
from ...handwritten.each import launch, THREADS
from ...handwritten.fill import zeros
from ...handwritten.layout import power_of_two
from ...rows import row, table
from ...runtime.device import Device, InOrder, nothing, pointer, Run

ROW_BLOCKS = 264  # that share the rows where columns are added up: two per multiprocessor of the largest GPUs
BLOCKS = 1 << 16
LONGEST = 2**31 - 1  # of a row, counted in 32 bits


def _types(dtype: str, affine: str, **numbers: int) -> str:
    defined = "".join(f"#define {name} {number}\n" for name, number in numbers.items())
    return typedefs(T=NAMES[dtype], G=NAMES[affine], A=wide(dtype)) + defined


def rows_source(
    dtype: str, affine: str, pack: int, aligned: bool, held: int, columns: bool, gradient: bool
) -> KernelSource:
    """The kernel "normalize" or "gradient" of rows; see cuda/rows.cuh."""
    types = _types(dtype, affine, V=pack, ALIGNED=int(aligned), HELD=held, COLUMNS=int(columns))
    rows = shared("rows")
    if gradient:
        rows = rows[: rows.index("// out, mean and spread, each")] + shared("rows_gradient")
    return assembled("types", "math", types, "elements", rows)


def columns_source(dtype: str, affine: str) -> KernelSource:
    """The kernels "normalize" and "gradient" of columns; see cuda/norm_columns.cuh."""
    return assembled("types", "index", "math", _types(dtype, affine), "norm_columns")


def affine_source(dtype: str, affine: str, last: bool, pack: int, aligned: bool) -> KernelSource:
    """The kernels "part_sums" and "affine_total"; see cuda/affine.cuh."""
    types = _types(dtype, affine, LAST=int(last), V=pack, ALIGNED=int(aligned))
    return assembled("types", "math", types, "elements", "channels", "affine", "affine_total")


@dataclass(frozen=True)
class Threads:
    """Thread layout of a block: `across` for each of `down` rows; `held`: HELD of rows.cuh."""

    across: int
    down: int
    held: int


class Normalization:
    """The launches of one rule, for one shape and type."""

    needs: tuple[str, ...] = ()  # names of the inputs

    def __init__(self, device: Device, rule: Rule, dtype: str, affine: str, has_gamma: bool) -> None:
        self.device, self.rule, self.dtype, self.affine = device, rule, dtype, affine
        n, g, c, s, p = rule.view
        self.rows, self.length, self.inner = n * g, c * s, p
        self.item = as_dtype(dtype).itemsize
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
        values = [data, gamma, beta, *self._rule_numbers(), out, mean, spread]
        if self.inner > 1:
            return self._launch_columns("normalize", *values)
        t, aligned = self.front, self._aligned(self.pack, data, out)
        text = rows_source(self.dtype, self.affine, self.pack, aligned, t.held, False, False)
        blocks = min(-(-self.rows // t.down), BLOCKS)
        return launch(self.device, text, "normalize", blocks, (t.across, t.down), *values)

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
            values = [d_out, *heads, data, gamma, *self._rule_numbers()]
            kept = [pointer(x if keep else 0) for x in stats]
            if self.inner > 1:
                return self._launch_columns("gradient", *values, into, *kept)
            values += [ctypes.c_int64(self.step), into, *kept, *(pointer(x if add else 0) for x in sums)]
            t, aligned = self.back, self._aligned(self.pack, d_out, data, into)
            text = rows_source(self.dtype, self.affine, self.pack, aligned, t.held, add, True)
            grid, block = -(-self.rows // self.step), (t.across, t.down)
            return launch(self.device, text, "gradient", grid, block, *values)

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
            values = [d_out, data, *map(pointer, stats), *view, *s.numbers, *map(pointer, sums)]
            grid = s.num_parts, s.channels
            runs.append(launch(self.device, text, "part_sums", grid, s.threads, *values))
            if d_data is not None:
                runs.append(each_row(d_data, False, False))
        values = [*map(pointer, sums), ctypes.c_int64(self.gammas), ctypes.c_int64(self.parts), *columns]
        across, down = (32, 8) if self.parts > 8 else (256, 1)
        blocks = -(-self.gammas // across)
        return InOrder([*runs, launch(self.device, text, "affine_total", blocks, (across, down), *values)])

    def _rule_numbers(self) -> list[Any]:
        """Arguments RULE of rows.cuh, SHAPE of norm_columns.cuh."""
        rule = self.rule
        _, g, c, s, p = rule.view
        positions = s if rule.channels > 1 or c == 1 else c * s
        counts = [self.rows * p, self.length, *((p,) if p > 1 else ()), rule.channels]
        counts += [*(() if p > 1 else (positions,)), g]
        numbers = [ctypes.c_int64(x) for x in counts]
        return [*numbers, float(rule.eps), float(rule.count), int(rule.centre)]

    def _aligned(self, pack: int, *arrays: Any) -> bool:
        return all(x is None or self.device.address(x) % (pack * self.item) == 0 for x in arrays)

    def _launch_columns(self, name: str, *values: Any) -> Run:
        blocks = min(-(-self.rows * self.inner // THREADS), BLOCKS)
        text = columns_source(self.dtype, self.affine)
        return launch(self.device, text, name, blocks, THREADS, *values)


RULES: dict[type[Op], Callable[[Request], Rule]] = {
    LayerNorm: lambda r: layer_norm._rule(r.attrs, r.inputs[0]),
    RMSNorm: lambda r: layer_norm._rule(r.attrs, r.inputs[0], centre=False),
    GroupNorm: lambda r: group_norm._rule(r.attrs, r.inputs[0], r.inputs[1]),
    InstanceNorm: lambda r: group_norm._each_channel(r.attrs, r.inputs[0]),
}


def _kernel(device: Device, r: Request) -> Normalization | None:
    of = r.op.forward_op or r.op
    affine = r.dtypes[1] if len(r.dtypes) > 1 else r.dtypes[0]
    if not floating(r.dtypes[0], affine):
        return None
    k = Normalization(device, RULES[of](r), str(r.dtypes[0]), str(affine), len(r.inputs) > 1)
    k.needs = r.op.signature.needs
    return k if k.fits else None


@row(_kernel, "cuda {op}")
def _forward(k: Normalization, a: Any, data: Any, gamma: Any = None, beta: Any = None, **rest: Any) -> Run:
    return k.forward(data, gamma, beta, rest["out"], rest.get("mean"), rest.get("std"))


@row(_kernel, "cuda {op} gradient", lambda k: k.workspace)
def _backward(k: Normalization, a: Any, *inputs: Any, work: Any = None, d_data: Any, **rest: Any) -> Run:
    have = dict(zip(k.needs, inputs, strict=True))
    made, heads = (d_data, rest.get("d_gamma"), rest.get("d_beta")), (have.get("d_mean"), have.get("d_std"))
    return k.backward(have["d_out"], heads, have["data"], have.get("gamma"), made, work)


rows = table(*((op, _forward, _backward) for op in RULES))
