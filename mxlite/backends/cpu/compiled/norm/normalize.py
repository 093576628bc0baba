"""Normalization of rows of channels by given factors and shifts."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from .....core.machine_code import native
from .....graph.opdef import DType
from .....ops.norm.norm_arrays import PrologueArrays
from ...onednn.primitive import address_of, Run
from ...runtime.threads import num_threads
from ..calls.team import call, load, threads_for
from . import norm_rows as rows
from .norm_form import NormForm


class Normalize:
    """out = relu(data * factor + shift + added), all of (`count`, `channels`); see `norm_form`.

    `nbytes` is its scratch.
    """

    def __init__(self, count: int, channels: int, dtype: DType, relu: bool, addend: str = "") -> None:
        numbers = count * channels
        copies = rows.copies(channels, numbers, dtype.itemsize)
        length = copies * channels
        self.form = NormForm(dtype.name, batch=False, gamma=False, relu=relu, addend=addend)
        self.nbytes = rows.work_bytes(length, num_threads())
        self.threads = threads_for(3 * numbers * dtype.itemsize)
        self.slots = {
            rows.ROWS: numbers // length,
            rows.LENGTH: length,
            rows.CHANNELS: channels,
            rows.REST: numbers % length,
            rows.COPIES: copies,
            rows.STRIDE: rows.stride(length),
        }

    def connect(self, data: Any, prologue: PrologueArrays, out: Any, work: Any) -> Run:
        """The call."""
        arrays = {getattr(rows, name.upper()): x for name, x in prologue._asdict().items()}
        arrays |= {rows.DATA: data, rows.OUT: out, rows.WORK: work}
        given = self.slots | {i: address_of(x) for i, x in arrays.items() if x is not None}
        args = [given.get(i, 0) for i in range(rows.COUNT)]
        return call(_code(self.form), "norm", args, self.threads, keep=tuple(arrays.values()))


@lru_cache(maxsize=64)
def _code(form: NormForm) -> native.Code:
    return load(rows.apply(form))
