"""Records of the conformance rows: kernels chosen, results, and texts asked for."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any

from .digest import digest_of_array
from .texts import text_device, Texts

DTYPES = ("float32", "float64", "bfloat16")  # besides the row's own


def record_rows(own: SimpleNamespace, match: re.Pattern[str], record: dict[str, Any], texts: Texts) -> None:
    """Sections `kernels` and `results` of the conformance rows, and the texts of their kernels."""
    import numpy as np

    gpu = own.backend("emulated", np, own.gpu_table(text_device(own.emulated_device, texts)))
    for name, case in own.cases.items():
        for dtype in dict.fromkeys((case.dtype, *DTYPES)) if match.fullmatch(name) else ():
            if dtype != case.dtype and not own.takes(case, dtype):
                continue
            call = own.call(case, dtype=dtype)
            texts.at = f"{name} {dtype}"
            if "kernels" in record:
                for op in own.operators(call):
                    key = f"{name} {dtype} {'forward' if op is case.op else 'gradient'}"
                    record["kernels"][f"{key} cpu"] = _kernel(partial(call.kernel, op))
                    with own.kernels_of(own.planning_backend()):
                        record["kernels"][f"{key} gpu"] = _kernel(partial(call.kernel, op))
            if "results" in record:
                for op, given in own.stages(call, case.inputs(dtype=dtype)):
                    outs, ins = call.execute(op, given)
                    made = {**outs, **{n: ins[n] for n in op.mutated(call.attrs) if n in ins}}
                    key = f"{name} {dtype} {'forward' if op is case.op else 'gradient'}"
                    record["results"][key] = {
                        n: digest_of_array(np.asarray(x)) for n, x in made.items() if x is not None
                    }
                    if "code" in record:
                        with own.kernels_of(gpu):
                            _connect(call, op, given, outs, texts)


def _kernel(choose: Callable[[], Any]) -> dict[str, Any]:
    """A kernel's name and workspace, or the error if there is none."""
    try:
        kernel = choose()
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return {"kernel": kernel.name, "workspace": kernel.workspace}


def _connect(call: Any, op: Any, given: Mapping[str, Any], outs: Mapping[str, Any], texts: Texts) -> None:
    """Make the call on the backend in use without running it: its kernels' texts are asked for."""
    try:
        if not call.kernel(op).is_reference:
            call.bind(op, dict(given), {n: None if x is None else x.copy() for n, x in outs.items()}, 0)
    except Exception as error:  # a row is not to stop the record; that it failed is part of it
        texts.note("cuda refused", f"{type(error).__name__}: {error}")
