"""CTCLoss and WarpCTC: a block of threads for each sample walks through the steps.

The sums over the classes of a step are computed first. Data is read twice forward and three times backward;
states live in scratch, those of all steps for the gradient.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

from .....ops.loss.ctc import CTCLoss
from .....ops.loss.softmax import softmax
from .....ops.loss.warp_ctc import SOFTMAX_ATTRS, WarpCTC
from ....base import ChosenKernel, Request
from ...compiler.kinds import floating, kind, known
from ...compiler.source import assembled, structure
from ...handwritten.each import addresses, launch, THREADS
from ...handwritten.layout import MOST
from ...rows import answer, first_kernel, table
from ...runtime.device import Device, InOrder, Run
from ...runtime.scratch import Scratch
from ..nn.softmax import rows as softmax_rows

_Paths: Any = structure("ctc", "Paths")


SOURCE = assembled("types", "index", "whole", "ctc")


def _row(device: Device, r: Request) -> ChosenKernel | None:
    if (r.op.forward_op or r.op) is WarpCTC:
        steps, labels = r.attrs.input_length, r.attrs.label_length
        samples, classes = r.inputs[0][0] // steps, r.inputs[0][1]
    else:
        (steps, samples, classes), (_, labels) = r.inputs[:2]
    states, back = 2 * labels + 1, r.op.forward_op is not None
    rows_of_alpha = max(1, steps) if back else 2
    scratch = Scratch(
        stats=16 * steps * samples,
        alpha=8 * rows_of_alpha * samples * states,
        log_p=8 * samples * states,
        beta=16 * samples * states,
        at=4 * samples * states,
        next=4 * samples * states,
    )
    if not floating(r.dtype) or not known(*r.dtypes) or prod(r.inputs[0]) > MOST or states > MOST:
        return None

    def connect(a: Any, *inputs: Any, out: Any = None, d_data: Any = None, work: Any) -> Run:
        given = {n: x for n, x in zip(r.op.signature.needs, inputs) if x is not None}
        arrays = {n: x for n, x in (given | scratch.parts(work)).items() if x.size}
        p = _Paths(**addresses(device, out=d_data if back else out, **arrays))
        p.kind, p.keeps_alpha = kind(r.dtype), back
        for name in given.keys() - {"data", "d_out"}:
            setattr(p, f"{name}_kind", kind(given[name].dtype))
        p.steps, p.samples, p.classes, p.labels, p.states = steps, samples, classes, labels, states
        first = getattr(a, "blank_label", "first") == "first"
        p.blank, p.padding = (0, 0) if first else (classes - 1, -1)
        runs = [launch(device, SOURCE, "ctc_stats", steps * samples, 128, p)] if steps else []
        walk = "ctc_gradient" if back else "ctc_loss"
        return InOrder([*runs, launch(device, SOURCE, walk, samples, THREADS, p)])

    return answer(r, connect, scratch.nbytes, f"cuda ctc{' gradient' if back else ''}")


def _warp(device: Device, r: Request) -> ChosenKernel | None:
    """Softmax of the data of WarpCTC."""
    made = replace(r, op=softmax, attrs=SOFTMAX_ATTRS, inputs=r.inputs[:1], dtypes=r.dtypes[:1])
    one = replace(made, used=frozenset(("data", "out")))
    inner = first_kernel(softmax_rows, device, one)
    if inner is None:
        return None

    def connect(a: Any, data: Any, label: Any, *, out: Any, work: Any) -> Run:
        services: dict[str, Any] = dict.fromkeys(inner.signature.services)
        run = partial(inner.link, inner.run, device.xp, SOFTMAX_ATTRS, data)
        return run(**services | {"work": work}, out=out)

    return answer(r, connect, inner.workspace, inner.name)


rows = table((CTCLoss, _row, _row), (WarpCTC, _warp, _row))
