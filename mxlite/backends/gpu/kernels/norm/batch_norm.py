"""Batch normalization, alone or with the sum and the rectifier that follow it; channels anywhere.

Arrays are read as (I, C, P). With the channels last (P = 1) a block reads rows of packs of 16 bytes, else a
block has one channel. The forward reads data twice and writes out once, in three launches: moments of parts,
statistics of channels, normalized numbers. The gradient reads d_out and data (and out, if that tells
which elements were rectified) twice and writes once, in as many. If one block has all of a channel, one
launch does it all.

The parts follow from the shape alone, and so do the bits.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any

from .....core.cached import cached_property
from .....graph.grouped import grouped
from .....graph.ir import Shape
from .....ops.norm.norm import BatchNorm, BatchNorm_v1, ContribSyncBatchNorm
from .....ops.norm.norm_act import is_lined, NormAct
from .....ops.norm.norm_arrays import NormVectors
from .....ops.norm.norm_remat import NormRemat
from .....ops.norm.norm_statistics import NormStatistics
from .....ops.scratch import accumulator
from ....base import ChosenKernel, Request
from ...compiler.kinds import floating, wide
from ...compiler.source import assembled, KernelSource, NAMES, typedefs
from ...handwritten.channels import PARTS, Split, split, split_at_once
from ...handwritten.each import launch
from ...handwritten.fill import zeros
from ...rows import answer, table
from ...runtime.device import Device, InOrder, nothing, pointer, Run

MOST_BLOCKS = 65535  # of the second axis of a grid
ROWS = 32  # of threads of the blocks that combine parts; as in cuda/channels.cuh
MASK_NONE, MASK_LINE, MASK_OUT = range(3)


def source(dtype: str, last: bool, pack: int, aligned: bool, gradient: bool) -> KernelSource:
    """Kernels for data of `dtype`; see cuda/channels.cuh."""
    types = typedefs(T=NAMES[dtype], A=wide(dtype))
    types += f"#define LAST {int(last)}\n#define V {pack}\n#define ALIGNED {int(aligned)}\n"
    kernels = "batch_norm_gradient" if gradient else "batch_norm_forward"
    return assembled("types", "math", types, "elements", "channels", "batch_norm", kernels)


class Kernels:
    """The launches for one shape and type."""

    def __init__(self, device: Device, a: Any, data: Shape, dtype: str, behind: bool = False) -> None:
        """`behind`: True if the addend is added after the rectifier."""
        axis = a.axis % len(data)
        self.shape = _, c, p = prod(data[:axis]), data[axis], prod(data[axis + 1 :])
        self.device, self.a, self.dtype = device, a, dtype
        item = {"float64": 8, "float32": 4}.get(dtype, 2)
        self.wide = max(4, item)
        self.pack = 16 // item
        while (c if p == 1 else p) % self.pack:
            self.pack //= 2
        self.pack_bytes = self.pack * item
        self.relu = bool(getattr(a, "relu", False))
        below = float(getattr(a, "slope", 0.0) if self.relu else 1.0)
        self.eps, self.after = float(a.eps), (below, behind)

    @cached_property
    def at_once(self) -> Split | None:
        found = split_at_once(self.shape, self.pack)
        return found if found is None or found.channels <= MOST_BLOCKS else None

    @cached_property
    def sums(self) -> Split:
        return split(self.shape, self.pack, PARTS, 8)

    @cached_property
    def writes(self) -> Split:
        """Work split of the pass that writes."""
        return split(self.shape, self.pack, 1 << 30, 8 if self.shape[2] == 1 else 4)

    @property
    def fits(self) -> bool:
        return all(s.channels <= MOST_BLOCKS and s.num_parts < 2**31 for s in (self.sums, self.writes))

    @property
    def workspace(self) -> int:
        """Bytes of two numbers for each part and channel, and two statistics of each channel."""
        return 2 * self.wide * self.shape[1] * (self.sums.num_parts + 1)

    def forward(
        self, data: Any, gamma: Any, beta: Any, moving: Any, addend: Any, made: Sequence[Any], work: Any
    ) -> Run:
        """The call that writes `made`: out, mean and var; `moving`: statistics to use, if not the batch's."""
        out, mean, var = made
        launch = self._launcher((data, addend, out), gradient=False)
        rest = [data, addend, None if self.a.fix_gamma else gamma, beta]
        if moving:
            numbers = *self.writes.numbers, self.eps, 1, *self.after
            return launch("normalized", self.writes, *rest, *moving, *numbers, *made)
        if self.at_once is not None:
            numbers = *self.at_once.numbers, self.eps, *self.after
            return launch("normalized_at_once", self.at_once, *rest, *numbers, *made)
        s, base, row = self.sums, self.device.address(work), self.wide * self.shape[1]
        parts = s.num_parts
        means, squares = pointer(base), pointer(base + parts * row)
        sources = [
            pointer(base + 2 * parts * row) if mean is None else mean,
            pointer(base + (2 * parts + 1) * row) if var is None else var,
        ]
        count = ctypes.c_int64(parts)
        runs = [
            launch("moments", s, data, *s.numbers, means, squares),
            launch("statistics", None, means, squares, *s.numbers, count, self.eps, *sources),
        ]
        if out is not None:
            numbers = *self.writes.numbers, self.eps, 0, *self.after
            runs.append(launch("normalized", self.writes, *rest, *sources, *numbers, out, None, None))
        return InOrder(runs)

    def again(self, data: Any, gamma: Any, beta: Any, mean: Any, var: Any, addend: Any, out: Any) -> Run:
        """The call that recomputes `forward`'s `out`, from the mean and 1 / std that it found."""
        arrays = (data, addend, None if self.a.fix_gamma else gamma, beta, mean, var)
        numbers = *self.writes.numbers, self.eps, 0, *self.after
        launch = self._launcher((data, addend, out), gradient=False)
        return launch("normalized", self.writes, *arrays, *numbers, out, None, None)

    def backward(
        self, d_out: Any, data: Any, out: Any, vectors: Any, moving: Any, made: Any, work: Any, train: bool
    ) -> Run:
        """The call that writes `made`: d_data, d_gamma, d_beta, d_addend; `vectors`: gamma, beta, mean, var.

        `moving` are the moving averages, which are updated if `train` is true.
        """
        device, a = self.device, self.a
        moves = train and not a.use_global_stats
        d_data, d_gamma, d_beta, d_addend = made
        gamma, beta, mean, var = vectors
        runs: list[Run] = []
        if d_out is None:  # a gradient arrives only for a statistic; MXNet ignores it
            runs = [zeros(device, x) for x in made if x is not None]
            d_data = d_gamma = d_beta = d_addend = None
        launch = self._launcher((d_out, data, out, d_data, d_addend), gradient=True)
        mask = MASK_NONE if not self.relu else MASK_LINE if out is None else MASK_OUT
        ins = [d_out, data, out, None if a.fix_gamma else gamma, beta, mean, var, mask, self.after[0]]
        columns = [d_gamma, d_beta, *(moving if moves else (None, None)), self.eps, float(a.momentum)]
        columns += [int(a.fix_gamma), int(moves)]
        targets = [d_data, d_addend]
        s, base = self.sums, device.address(work)
        of_d, of_xd = pointer(base), pointer(base + s.num_parts * self.wide * self.shape[1])
        through = moves and d_data is not None
        summed = through or d_gamma is not None or d_beta is not None
        writes = d_data is not None or d_addend is not None
        if self.at_once is not None and d_out is not None and summed:
            numbers = *self.at_once.numbers, int(moves)
            return launch("gradient_at_once", self.at_once, *ins, *numbers, *columns, *targets)
        if summed:
            runs.append(launch("part_sums", s, *ins, *s.numbers, of_d, of_xd))
        if summed or moves:
            parts = ctypes.c_int64(s.num_parts if summed else 0)
            runs.append(launch("columns", None, *ins, *s.numbers, parts, of_d, of_xd, *columns))
        if writes:
            sums = [of_d, of_xd] if through else [None, None]
            runs.append(launch("gradient", self.writes, *ins, *self.writes.numbers, *sums, *targets))
        return InOrder(runs)

    def _launcher(self, arrays: Sequence[Any], gradient: bool) -> Any:
        """launch(kernel's name, split or None for one of columns, *values), for `arrays` read in packs."""
        aligned = all(x is None or self.device.address(x) % self.pack_bytes == 0 for x in arrays)
        text = source(self.dtype, self.shape[2] == 1, self.pack, aligned, gradient)

        def launched(name: str, s: Split | None, *values: Any) -> Run:
            grid = (-(-self.shape[1] // 32),) if s is None else (s.num_parts, s.channels)
            return launch(self.device, text, name, grid, (32, ROWS) if s is None else s.threads, *values)

        return launched


def _kernels(device: Device, r: Request) -> Kernels | None:
    data, acc = r.dtypes[0], accumulator(r.dtypes[0])
    if not floating(data) or any(d != acc for d in r.dtypes[1:5]):
        return None
    if (r.op.forward_op or r.op) is ContribSyncBatchNorm and r.attrs.output_mean_var:
        return None  # its variance output has another form
    behind = getattr(r.attrs, "plus", "") == "behind"
    found = Kernels(device, r.attrs, r.inputs[0], str(data), behind)
    return found if found.fits else None


def _by_batch(r: Request) -> bool:
    """True if the statistics are those of the batch."""
    return r.train and not r.attrs.use_global_stats


def _linked(device: Device, k: Kernels) -> Callable[..., Run]:
    """The calls that normalize, or write the statistics alone."""

    @grouped
    def connect(
        xp: Any, a: Any, data: Any, v: NormVectors, addend: Any = None, *, out: Any = None, mean: Any,
        var: Any, work: Any, train: bool, factor: Any = None, shift: Any = None,
    ) -> Run:  # fmt: skip
        if data.size == 0 and data.shape[a.axis] == 0:
            return nothing
        moving = () if train and not a.use_global_stats else (v.moving_mean, v.moving_var)
        return k.forward(data, v.gamma, v.beta, moving, addend, (out, mean, var), work)

    return partial(connect, device.xp)


def _forward(device: Device, r: Request) -> ChosenKernel | None:
    k = _kernels(device, r)
    if k is None:
        return None
    several = _by_batch(r) and k.at_once is None
    how: dict[str, Any] = {"twice": ("data",) if several else (), "launches": 3 if several else 1}
    return answer(r, _linked(device, k), k.workspace, f"cuda {_name(r)}", **how)


def _backward(device: Device, r: Request) -> ChosenKernel | None:
    k = None if getattr(r.attrs, "plus", "") == "behind" else _kernels(device, r)
    if k is None:
        return None

    def connect(
        a: Any, d_out: Any, data: Any, *rest: Any, d_data: Any, d_gamma: Any, d_beta: Any,
        work: Any, train: bool, d_addend: Any = None,
    ) -> Run:  # fmt: skip
        if data.size == 0 and data.shape[a.axis] == 0:
            return nothing
        have = dict(zip(r.op.signature.needs[2:], rest, strict=True))
        return k.backward(
            d_out, data, have.get("out"),
            (have["gamma"], have.get("beta"), have["mean"], have["var"]),
            (have["moving_mean"], have["moving_var"]),
            (d_data, d_gamma, d_beta, d_addend), work, train,
        )  # fmt: skip

    by_batch = _by_batch(r) and k.at_once is None and r.is_used("d_data")
    twice = ("d_out", "data", "out") if by_batch else ()
    launches = 1 if k.at_once is not None else 3 if by_batch else 2
    name = f"cuda {_name(r)}"
    return answer(r, connect, k.workspace, name, mutates=True, twice=twice, launches=launches)


def _statistics(device: Device, r: Request) -> ChosenKernel | None:
    k = _kernels(device, r)
    # A norm in one launch needs no split statistics.
    if k is None or k.at_once is not None or not r.train or r.is_used("factor") or r.is_used("shift"):
        return None
    return answer(r, _linked(device, k), k.workspace, "cuda norm statistics", launches=2)


def _again(device: Device, r: Request) -> ChosenKernel | None:
    k = None if is_lined(r.attrs.plus) else _kernels(device, r)
    if k is None:
        return None

    def connect(
        a: Any, data: Any, gamma: Any, beta: Any, mean: Any, var: Any, addend: Any = None,
        addend_factor: Any = None, addend_shift: Any = None, *, out: Any, work: Any,
    ) -> Run:  # fmt: skip
        return nothing if data.size == 0 else k.again(data, gamma, beta, mean, var, addend, out)

    return answer(r, connect, 0, "cuda norm again")


def _name(r: Request) -> str:
    words = "batch norm"
    if (r.op.forward_op or r.op) is NormAct:
        words = "norm, rectifier, sum" if r.attrs.plus == "behind" else "norm, sum, rectifier"
    return f"{words} gradient" if r.op.forward_op else words


_BATCH_NORMS = (BatchNorm, BatchNorm_v1, ContribSyncBatchNorm, NormAct)

rows = table(
    (NormRemat, _again, None),
    (NormStatistics, _statistics, None),
    *((op, _forward, _backward) for op in _BATCH_NORMS),
)
