"""CTCLoss and WarpCTC: a block of threads for each sample walks through the steps.

The sums over the classes of a step are computed first. Data is read twice forward and three times backward;
states live in scratch, those of all steps for the gradient.
"""

from __future__ import annotations

import ctypes
import functools
from dataclasses import replace
from math import prod
from typing import Any

from .....graph.opdef import Op
from .....ops.loss.ctc import CTCLoss
from .....ops.loss.softmax import softmax
from .....ops.loss.warp_ctc import SOFTMAX_ATTRS, WarpCTC
from ....base import ChosenKernel, connected, Request
from ...compiler.kinds import floating, kind, known
from ...compiler.source import KernelSource, shared
from ...compiler.structure import declared
from ...handwritten.layout import MOST
from ...runtime.device import Arguments, Device, InOrder, Run
from ..nn.softmax import rows as softmax_rows

THREADS = 256
ARRAYS = "data label data_lengths label_lengths"


class _Paths(ctypes.Structure):
    """The structure Paths of ctc.cuh."""

    _fields_ = declared("ctc", "Paths")


@functools.cache
def source() -> KernelSource:
    return KernelSource(shared("types", "index", "whole", "ctc"))


def rows(device: Device) -> dict[type[Op], list[Any]]:
    """Rows of the backend's table for one device."""

    def row(r: Request) -> ChosenKernel | None:
        if (r.op.forward_op or r.op) is WarpCTC:
            steps, labels = r.attrs.input_length, r.attrs.label_length
            samples, classes = r.inputs[0][0] // steps, r.inputs[0][1]
        else:
            (steps, samples, classes), (_, labels) = r.inputs[:2]
        states, back = 2 * labels + 1, r.op.forward_op is not None
        rows_of_alpha = max(1, steps) if back else 2
        sizes = {
            "stats": 16 * steps * samples,
            "alpha": 8 * rows_of_alpha * samples * states,
            "log_p": 8 * samples * states,
            "beta": 16 * samples * states,
            "at": 4 * samples * states,
            "next": 4 * samples * states,
        }
        if not floating(r.dtype) or not known(*r.dtypes) or prod(r.inputs[0]) > MOST or states > MOST:
            return None

        def connect(xp: Any, a: Any, *inputs: Any, out: Any = None, d_data: Any = None, work: Any) -> Run:
            target = d_data if back else out
            if target is None or not target.size:
                return InOrder([])
            given = dict(zip(r.op.signature.needs, inputs))
            p = _Paths(out=device.address(target), kind=kind(r.dtype), keeps_alpha=back)
            begin = 0
            for name, nbytes in sizes.items():
                setattr(p, name, device.address(work[begin : begin + nbytes]) if nbytes else None)
                begin += -(-nbytes // 256) * 256
            for name in (*ARRAYS.split(), "d_out"):
                x = given.get(name)
                setattr(p, name, None if x is None or not x.size else device.address(x))
                if x is not None and name not in ("data", "d_out"):
                    setattr(p, f"{name}_kind", kind(x.dtype))
            p.steps, p.samples, p.classes, p.labels, p.states = steps, samples, classes, labels, states
            first = getattr(a, "blank_label", "first") == "first"
            p.blank, p.padding = (0, 0) if first else (classes - 1, -1)
            runs = []
            if steps:
                stats = device.function(source(), "ctc_stats")
                runs.append(device.launch(stats, (steps * samples, 1, 1), (128, 1, 1), 0, Arguments([p])))
            walk = device.function(source(), "ctc_gradient" if back else "ctc_loss")
            runs.append(device.launch(walk, (samples, 1, 1), (THREADS, 1, 1), 0, Arguments([p])))
            return InOrder(runs)

        nbytes = sum(-(-n // 256) * 256 for n in sizes.values())
        return connected(connect, nbytes, f"cuda ctc{' gradient' if back else ''}", like=r.op.forward)

    def warp(r: Request) -> ChosenKernel | None:
        """Softmax of the data of WarpCTC."""
        one = replace(
            r,
            op=softmax,
            attrs=SOFTMAX_ATTRS,
            inputs=r.inputs[:1],
            dtypes=r.dtypes[:1],
            used=frozenset(("data", "out")),
        )
        inner = next((k for k in (row(one) for row in softmaxes[softmax]) if k is not None), None)
        if inner is None:
            return None

        def connect(xp: Any, a: Any, data: Any, label: Any, *, out: Any, work: Any) -> Run:
            services: dict[str, Any] = dict.fromkeys(inner.signature.services)
            return inner.link(inner.run, xp, SOFTMAX_ATTRS, data, **services | {"work": work}, out=out)

        return connected(connect, inner.workspace, inner.name, like=r.op.forward)

    softmaxes = softmax_rows(device)
    assert CTCLoss.grad_op is not None and WarpCTC.grad_op is not None
    table: dict[type[Op], list[Any]] = {op: [row] for op in (CTCLoss, CTCLoss.grad_op, WarpCTC.grad_op)}
    return table | {WarpCTC: [warp]}
