"""Matrix products by generated code, as `onednn.product` has them: those of 16-bit numbers above all."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .....core.dtype import float32
from .....core.errors import RangeError
from .....graph.opdef import DType
from .....ops.scratch import scratch_bytes
from ...onednn.primitive import address_of, Run
from ...onednn.product import Layout, Product, turned
from ...runtime.threads import num_threads
from ..calls.team import call, threads_for, usable
from ..codegen.emitter import storable
from . import matrices as code
from .schedule import default, MatricesForm, MatricesSchedule, MatricesTask

_byte = np.dtype("uint8")


class Line(NamedTuple):
    """Norm prologue of a factor of a product, "x" or "y": a factor and a shift, float32, for each of its
    columns, and if `relu` a rectifier. It must be row-major. addend: the addend of "y" before
    that, an array with the layout of "y"; see `ops.norm_act_line`.
    """

    of: str
    relu: bool
    addend: str = ""


def product(
    x: Layout,
    y: Layout,
    out: Layout,
    bias: DType | None = None,
    adds: bool = False,
    line: Line | None = None,
    schedule: MatricesSchedule | None = None,
) -> Product | None:
    """x (M, K) @ y (K, N), with a contiguous row of N numbers of type `bias` added, or `out` itself.

    With a `line` the product takes factors and shifts as `bind(..., line=(factor, shift))`, followed by the
    addend and its own line.

    schedule: how, if not by the default schedule of these sizes. Raises RangeError if it is not legal.

    Two-byte numbers are multiplied and accumulated in float32, and rounded once. None if there is no
    compiler, or if a matrix is neither row-major nor column-major.
    """
    task = task_of(x, y, out, bias, adds, line)
    if task is None:
        return None
    if out.is_turned:
        return turned(_made(num_threads(), task, y.turned, x.turned, out.turned, bias, adds, schedule))
    return _made(num_threads(), task, x, y, out, bias, adds, schedule)


def task_of(
    x: Layout,
    y: Layout,
    out: Layout,
    bias: DType | None = None,
    adds: bool = False,
    line: Line | None = None,
) -> MatricesTask | None:
    """What the schedules of a product depend on; None if there is no generated code for it."""
    if not usable() or len(x.shape) != 2 or 0 in (*x.shape, *y.shape):
        return None
    if line is not None and (out.is_turned or (x if line.of == "x" else y).is_turned):
        return None
    if out.is_turned:
        return None if bias is not None else task_of(y.turned, x.turned, out.turned, None, adds)
    kinds = x.dtype.name, y.dtype.name, out.dtype.name
    row = "" if bias is None else bias.name
    if not {*kinds, row or kinds[0]} <= storable() or None in (x.lead, y.lead, out.lead):
        return None
    if adds and out.dtype != float32:
        return None
    form = MatricesForm(*kinds, x.is_turned, y.is_turned, row)
    if line is not None:
        form = form._replace(line={"x": "a", "y": "b"}[line.of], relu=line.relu, addend=line.addend)
    (m, k), n = x.shape, y.shape[1]
    return MatricesTask(form, m, n, k)


def team_of(task: MatricesTask) -> int:
    """Threads for a product: a vector is multiplied about as fast as it is moved."""
    return threads_for(4 * task.m * task.n * task.k // 16)


@functools.lru_cache(maxsize=1024)
def _made(
    threads: int,
    task: MatricesTask,
    x: Layout,
    y: Layout,
    out: Layout,
    bias: DType | None,
    adds: bool,
    schedule: MatricesSchedule | None,
) -> Product:
    form, m, n, k = task
    threads = team_of(task)
    s = default(task, threads) if schedule is None else schedule
    if not s.allows(task):
        raise RangeError(
            f"There is no generated product of {task} by {s}; `schedule.legal` lists what there is."
        )
    most = code.most_of(s, m, n, threads)
    pieces = code.pieces(form, s, *most)
    own = scratch_bytes([((nbytes,), _byte) for nbytes in pieces])
    chunks = -(-k // s.depth)
    slots = {
        code.WORK_STEP: own, code.M: m, code.N: n, code.K: k, code.CHUNK: -(-k // chunks // 16) * 16,
        code.A_ROW: x.strides[0] * x.dtype.itemsize, code.A_STEP: x.strides[1] * x.dtype.itemsize,
        code.B_STEP: y.strides[0] * y.dtype.itemsize, code.B_COLUMN: y.strides[1] * y.dtype.itemsize,
        code.C_ROW: out.strides[0] * out.dtype.itemsize, code.BY_ROWS: s.by_rows, code.ADDS: int(adds),
        code.AT_A: pieces[0], code.A_NBYTES: pieces[1], code.BLOCK_ROWS: min(most[0], s.block_rows),
        code.BLOCK_COLUMNS: min(most[1], s.block_columns), code.SUM_ROWS: min(most[0], 2 * s.block_rows),
    }  # fmt: skip

    def bound(
        x_at: Any, y_at: Any, out_at: Any, bias_at: Any = None, work: Any = None, line: Sequence[Any] = ()
    ) -> Run:
        addresses = {code.A: x_at, code.B: y_at, code.C: out_at, code.WORK: work}
        pair, added, more = line[:2], line[2:3], line[3:]
        addresses |= dict(zip((code.FACTOR, code.SHIFT), pair))
        addresses |= dict(zip((code.ADDEND_FACTOR, code.ADDEND_SHIFT), more))
        if bias is not None:
            addresses[code.BIAS] = bias_at
        given = slots | {i: address_of(a) for i, a in addresses.items()}
        for array in added:
            given[code.GAP] = address_of(array) - address_of(y_at)
        args = [given.get(i, 0) for i in range(code.COUNT)]
        return call(code.code(form, s), "multiply", args, threads, keep=(*addresses.values(), *line))

    return Product("compiled product", own * threads, bound)
