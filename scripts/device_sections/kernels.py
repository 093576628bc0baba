"""Each row of the operator conformance table on the device: its rules, and its numbers against the reference.

A row whose kernel faults takes the GPU from its process; a new process continues after it.
"""

from __future__ import annotations

import random
import traceback
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

import mxlite as mx
from mxlite.backends import backend_of
from mxlite.backends.base import Backend, ChosenKernel
from mxlite.ops.random.philox import RandomStream
from tests.conformance.cases import CASES
from tests.conformance.conformance import (
    Call,
    check_in_place,
    check_inputs_are_untouched,
    check_missing_head_gradients,
    check_unwanted_outputs,
    check_writes_all_and_reads_no_garbage,
    kernels_of,
    NOTHING_BUT_ROUNDINGS,
    stages,
    takes,
)

from .checks import AGAIN, Checks

GUARD = 1024  # bytes around workspace on the device
TOLERANCE = {"float64": 1e-12, "float32": 3e-5, "float16": 4e-3, "bfloat16": 3e-2}
FEW = 12  # rows of an emulated run


class Remote(Backend):
    """GPU kernels applied to numpy arrays: each call copies them to the device and back."""

    there: Any

    def choose(self, op: Any, attrs: Any, *rest: Any, **more: Any) -> ChosenKernel:
        kernel = self.there.choose(op, attrs, *rest, **more)

        def link(
            run: Callable[..., None], xp: Any, a: Any, *inputs: Any, **outputs: Any
        ) -> Callable[[], None]:
            return lambda: self._call(kernel, a, inputs, outputs)

        return replace(kernel, link=link)

    def _call(self, kernel: ChosenKernel, a: Any, inputs: Any, outputs: Any) -> None:
        device, sent = self.there.device, {}

        def send(x: Any) -> Any:
            if isinstance(x, tuple):
                return tuple(map(send, x))
            if isinstance(x, RandomStream):
                return RandomStream(send(x.state), x.stream)
            if not isinstance(x, np.ndarray):
                return x
            key = (x.ctypes.data, x.nbytes) if x.nbytes else id(x)
            if key not in sent:
                block = device.arena(x.nbytes + 2 * GUARD)
                self.there.from_host(block, np.uint8(0x3C))
                part = block[GUARD : GUARD + x.nbytes]
                if x.nbytes:
                    self.there.from_host(part, np.ascontiguousarray(x).reshape(-1).view(np.uint8))
                sent[key] = (x, block, part)
            return sent[key][2].view(x.dtype).reshape(x.shape)

        there = [send(x) for x in inputs]
        made = {n: send(x) for n, x in outputs.items()}
        self.there.issue(kernel.link(kernel.run, self.there.xp, a, *there, **made), ())()
        device.synchronize()
        for x, block, _ in sent.values():
            whole = self.there.to_host(block)
            guards = np.concatenate([whole[:GUARD], whole[GUARD + x.nbytes :]])
            assert (guards == 0x3C).all(), f"{kernel.name} wrote outside an array of {x.nbytes} bytes"
            if x.nbytes:
                x[...] = whole[GUARD : GUARD + x.nbytes].view(x.dtype).reshape(x.shape)


def run(checks: Checks) -> None:
    there = backend_of(mx.gpu(0))
    remote = Remote("remote", np, {})
    object.__setattr__(remote, "there", there)
    names = sorted(CASES)
    random.Random(1).shuffle(names)
    names = names[checks.shard :: checks.shards]
    names = names[names.index(checks.after) + 1 :] if checks.after else names
    passed, hosted, failed, lost = [], 0, 0, ""
    for name in names:
        if checks.left < 2 or (checks.emulated and len(passed) >= FEW):
            break
        print(name, flush=True)  # the last output, if this is where it hangs
        try:
            if row(CASES[name], remote, 1.0 if name in NOTHING_BUT_ROUNDINGS else 1e-30):
                passed.append(name)
            else:
                hosted += 1
        except Exception as error:
            failed += 1
            place = traceback.format_exception(error)[-2].strip()
            checks.row(name, f"{type(error).__name__}: {error} {place}"[:1200], "FAIL")
            if there.device.fault is not None:
                lost = name
                break
    found = {"rows passed": len(passed), "failed": failed, "on the host": hosted, "of": len(names)}
    fault = there.device.fault
    if fault is not None:
        found["fault"] = str(fault)
    found["not reached"] = len(names) - len(passed) - hosted - failed
    checks.row(f"shard {checks.shard}", found, "FAIL" if failed or fault or not passed else "PASS")
    if lost and checks.left > AGAIN:
        checks.begin_again(lost)


def row(case: Any, remote: Remote, least: float) -> bool:
    """True if a stage of the row has a kernel on the device; checks the rules in that case. Raises.

    least: see `close`.
    """
    call = Call.of(case)
    with kernels_of(remote):
        names = [_kernel(remote, call, op).name for op, _ in stages_of(call, case)]
        if all(n.startswith("host: ") for n in names):
            return False
        check_writes_all_and_reads_no_garbage(case)
        check_inputs_are_untouched(case)
        check_in_place(case)
        check_unwanted_outputs(case)
        check_missing_head_gradients(case)
    for dtype in (None, "float32") if takes(case, "float32") else (None,):
        compare(case, dtype, remote, least)
    return True


def stages_of(call: Call, case: Any, dtype: str | None = None) -> list[Any]:
    """The operator and its gradient, with inputs from the reference: nothing is on the device yet."""
    from mxlite.backends.cpu.backend import CPU

    with kernels_of(CPU):
        return list(stages(call, case.inputs(dtype=dtype)))


def _kernel(backend: Backend, call: Call, op: Any) -> ChosenKernel:
    first = call.dtypes[0][0] if call.dtypes[0] else call.dtypes[1][0]
    return backend.choose(op, call.attrs, *call.shapes, first, call.dtypes[0])


def compare(case: Any, dtype: str | None, remote: Remote, least: float) -> None:
    """Compare both kernels on the row, in its own types or with float64 replaced by `dtype`; see `close`."""
    call = Call.of(case, dtype=dtype)
    for op, inputs in stages(call, case.inputs(dtype=dtype)):
        want, wanted_after = call.execute(op, inputs)
        with kernels_of(remote):
            got, after = call.execute(op, inputs)
        for n in op.mutated(call.attrs):
            if n in after:
                got[n], want[n] = after[n], wanted_after[n]
        for n, y in want.items():
            close(got[n], y, f"{op.op_name} {n}", least)


def close(got: Any, want: Any, what: str, least: float) -> None:
    """Check equality: integers exactly; others to a few roundings of the largest element, or of `least`."""
    if want is None:
        assert got is None, what
        return
    assert got.dtype == want.dtype, what
    if want.dtype.kind in "iub":
        np.testing.assert_array_equal(got, want, what)
        return
    tolerance = TOLERANCE[want.dtype.name]
    a, b = np.asarray(got, np.float64), np.asarray(want, np.float64)
    scale = float(np.max(np.abs(b[np.isfinite(b)]), initial=least))
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * scale, err_msg=what)
