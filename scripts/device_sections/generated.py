"""Kernels printed from loop nests beside those written by hand: the same numbers, both times and their ratio.

What has both runs in training steps, so only these times can decide which of the two stays.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import mxlite as mx
from mxlite import ops
from mxlite.backends import backend_of, bind_call
from mxlite.backends.base import ChosenKernel, Request
from mxlite.backends.gpu.kernels.generated.computed import row
from tests.conformance.case import Case, integers
from tests.conformance.conformance import Call

from .checks import Checks
from .kernels import stages_of
from .ways import Each, fetched, placed, sent

DTYPES = ("float32", "bfloat16")
TOKENS, WIDTH, WORDS, PIXELS = (4096, 128), (1024, 32), (32768, 64), (28, 5)
"""Lengths of a real run, and of a small one."""
EMULATED = ("softmax", "bias", "pick")  # cases of an emulated run


def cases(small: bool) -> dict[str, Case]:
    """Operators that have both kernels, in the shapes of training steps."""
    n, c, words, side = (pair[small] for pair in (TOKENS, WIDTH, WORDS, PIXELS))
    image = (32, c // 8, side, side)
    rows, line = (n, c), (c,)
    return {
        "softmax": Case(ops.softmax, {}, [rows]),
        "softmax of channels": Case(ops.softmax, {"axis": 1}, [image]),
        "log_softmax": Case(ops.log_softmax, {}, [(n // 8, words)]),
        "LayerNorm": Case(ops.LayerNorm, {}, [rows, line, line]),
        "RMSNorm": Case(ops.RMSNorm, {}, [rows, line]),
        "GroupNorm": Case(ops.GroupNorm, {"num_groups": 2}, [image, (2,), (2,)]),
        "sum of columns": Case(ops.sum, {"axis": 0}, [rows]),
        "mean of rows": Case(ops.mean, {"axis": 1}, [rows]),
        "sum of all": Case(ops.sum, {}, [rows]),
        "bias": Case(ops.broadcast_add, {}, [rows, (1, c)]),
        "scale": Case(ops.broadcast_mul, {}, [rows, (1, c)]),
        "Embedding": Case(ops.Embedding, {"input_dim": words, "output_dim": c}, [(n,), (words, c)],
                          make={"data": integers(0, words)}),
        "pick": Case(ops.pick, {}, [rows, (n,)], make={"index": integers(0, c)}),
        "argmax": Case(ops.argmax, {"axis": 1}, [rows]),
        "BilinearSampler": Case(ops.BilinearSampler, {}, [image, (32, 2, side, side)]),
    }  # fmt: skip


def run(checks: Checks) -> None:
    backend = backend_of(mx.gpu(0))
    for dtype in DTYPES[:1] if checks.emulated else DTYPES:
        for name, case in cases(checks.small).items():
            what = f"{name}, {dtype}"
            if (checks.emulated and name not in EMULATED) or checks.is_done(what):
                continue
            with checks.check(what) as found:
                checks.need(2)
                beside(backend, case, dtype, found)
            checks.go_on(backend.device, what)


def beside(backend: Any, case: Case, dtype: str, found: dict[str, Any]) -> None:
    """Run an operator and its gradient on both kernels. `found`: times of both, and their ratio."""
    call, each = Call.of(case, dtype=dtype), Each(dtype, found)
    for op, inputs in stages_of(call, case, dtype):
        name = "gradient" if op.forward_op else "forward"
        r = Request(op, call.attrs, *call.shapes, call.dtypes[0][0], call.dtypes[0])
        kernels = {"by hand": backend.kernel(r), "generated": row(backend.device, r)}
        given = [None if x is None else sent(backend.device, x) for x in inputs.values()]
        times, made = [], {}
        for way, kernel in kernels.items():
            with each.way(f"{name}, {way}"):
                assert kernel is not None, "there is none"
                seconds, made[way] = timed(backend, call, op, kernel, given)
                times.append(seconds)
        if len(times) == 2:
            found[name] = f"{1e6 * times[0]:.1f} us, {1e6 * times[1]:.1f} us, {times[1] / times[0]:.2f}"
            for n, want in made["by hand"].items():
                with each.way(f"{name}, {n}"):
                    each.compare(f"{name}, {n}", made["generated"][n], want.astype(np.float64))
    each.end()


def timed(
    backend: Any, call: Call, op: Any, kernel: ChosenKernel, inputs: list[Any]
) -> tuple[float, dict[str, Any]]:
    """Seconds of a call on a kernel, and its outputs."""
    device, layout, outs = backend.device, call.layout(), {}
    for n in op.output_names(call.attrs):
        shape, kind = layout[n]
        outs[n] = placed(device, int(np.prod(shape)) * kind.itemsize).view(kind).reshape(shape)
    work = placed(device, kernel.workspace)
    link = bind_call(kernel, backend.xp, op, call.attrs, inputs, list(outs.values()), work=work,
                     train=True, shapes=call.shapes)  # fmt: skip
    seconds = device.time(link)
    return seconds, {n: fetched(device, x) for n, x in outs.items()}
