"""One operator on the GPU's kernels, run on the CPU, against the reference kernels in float64."""

from __future__ import annotations

import numpy as np

from mxlite.ops import find_op
from tests.backends.gpu.gpu_case import BACKEND, close, numpy_type, TOLERANCE
from tests.conformance.case import Case
from tests.conformance.conformance import Call, kernels_of, same_bits, stages


def narrowed(x, dtype):
    """`x` as `dtype` has it, where it is floating."""
    return x.astype(numpy_type(dtype)) if np.asarray(x).dtype.kind == "f" else x


def agree(op, attrs, inputs, dtype="float32", gradient=True, forward=True, tolerance=None, unaligned=False):
    """Forward and gradient of `op` on `inputs`, floating ones in `dtype`; gives what was made.

    `unaligned`: also on arrays that begin at odd elements, where the bits must be the same.
    """
    op = find_op(op)
    wide = [np.asarray(narrowed(x, dtype), np.float64) if x.dtype.kind == "f" else x for x in inputs]
    made = {}
    calls = []
    for numbers in (wide, [narrowed(x, dtype) for x in wide]):
        names = op.input_names(Case(op, attrs).parsed)
        kinds = {n: str(x.dtype) for n, x in zip(names, numbers)}
        calls.append(Call.of(Case(op, attrs, [x.shape for x in numbers], dtypes=kinds)))
    for stage, given in stages(calls[0], wide):
        if not (forward if stage is op else gradient):
            continue
        want, _ = calls[0].execute(stage, given)
        own = {n: None if x is None else narrowed(x, dtype) for n, x in given.items()}
        call = calls[1]
        kernel = BACKEND.choose(stage, call.attrs, *call.shapes, call.dtypes[0][0], call.dtypes[0])
        assert not kernel.is_reference, stage.op_name
        with kernels_of(BACKEND):
            got, _ = call.execute(stage, own)
            if unaligned:
                moved = {n: None if x is None else odd(x) for n, x in own.items()}
                again, _ = call.execute(stage, moved)
                for n in got:
                    same_bits(again[n], got[n], n)
        for n, y in want.items():
            close(got[n], y, tolerance or TOLERANCE[dtype], f"{stage.op_name} {n}")
        made |= got
    return made


def run(op, attrs, arrays):
    """What the kernels of `op` and of its gradient make of these arrays, by name."""
    op = find_op(op)
    names = op.input_names(Case(op, attrs).parsed)
    kinds = {n: str(arrays[n].dtype) for n in names}
    call = Call.of(Case(op, attrs, [arrays[n].shape for n in names], dtypes=kinds))
    with kernels_of(BACKEND):
        made, _ = call.execute(op, {n: arrays[n] for n in names})
        if op.grad_op is not None:
            have = arrays | made
            made |= call.execute(op.grad_op, {n: have[n] for n in op.grad_op.input_names(call.attrs)})[0]
    return made


def odd(x):
    """A copy that lies one element behind a multiple of 64 bytes."""
    block = np.zeros(x.nbytes + 128, np.uint8)
    start = -block.ctypes.data % 64 + x.dtype.itemsize
    made = block[start : start + x.nbytes].view(x.dtype).reshape(x.shape)
    made[...] = x
    return made
