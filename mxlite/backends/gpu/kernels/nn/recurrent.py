"""RNN, LSTM and GRU: the reference's loops over layers, segments and steps, traced into launches.

Products of inputs and weights are one launch for a segment of steps, those of hidden states one for each
step, and the work between them one more; a dropout mask between layers is one for a segment.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .....ops import RNN
from .....ops.rnn.rnn_wide import RnnWide
from ....base import ChosenKernel, Request
from ...compiler.kinds import FLOATS
from ...handwritten.numpy_calls import Calls, Drops, ghost, ghost_at, Unsupported
from ...matrix.recurrent_cells import FUSED_CELLS
from ...rows import answer, table
from ...runtime.device import Device, Run
from ...runtime.rates import precision_of
from ...runtime.scratch import begin, padded, room

_FAR = 1 << 40  # an address for arrays that are not allocated yet
_BYTE = np.dtype("uint8")


def _row(device: Device, r: Request) -> ChosenKernel | None:
    a, op = r.attrs, r.op
    forward = op.forward_op or op
    if not {d.name for d in r.dtypes} <= FLOATS | {"int32", "int64"}:
        return None
    if 0 in r.inputs[0] or r.dtypes[0].name not in FLOATS:
        return None
    ask = op.workspace if op is forward else forward.backward_workspace
    own = padded(ask(a, r.inputs, r.outputs, r.dtypes[0]))
    found = _products(device, r, own)
    if found is None:
        return None
    more, count = found

    def connect(a: Any, *args: Any, work: Any, rng: Any = None, train: bool = False, **made: Any) -> Run:
        base = begin(device, work)
        calls = Calls(device, base + own)
        calls.cells = FUSED_CELLS
        outs = {n: ghost(device, x) for n, x in made.items()}
        scratch = ghost_at(base, (own,), work.dtype)
        drops = None if rng is None else Drops(calls, device.address(rng.state), rng.stream)
        given = (ghost(device, x) for x in args)
        op.forward(calls, a, *given, **outs, work=scratch, rng=drops, train=train)
        return calls.run()

    # Two-byte floats are multiplied as float32.
    precision = precision_of("float32") if r.dtype.itemsize <= 4 else ""
    return answer(r, connect, room(own + more), "cuda recurrent", precision=precision, launches=count)


def _products(device: Device, r: Request, own: int) -> tuple[int, int] | None:
    """Bytes of scratch for the products of a call, and its number of kernels; None if it cannot be traced."""
    forward = r.op.forward_op or r.op
    _, dtypes = forward.infer_type(r.attrs, *r.dtypes)
    names = (*forward.input_names(r.attrs), *forward.output_names(r.attrs))
    have: dict[str, Any] = {}
    at = _FAR
    for name, shape, dtype in zip(names, (*r.inputs, *r.outputs), (*r.dtypes, *dtypes)):
        for key in (name, f"d_{name}"):
            have[key] = ghost_at(at, tuple(shape), dtype)  # type: ignore[arg-type]
            at += room(padded(have[key].nbytes))
    calls = Calls(device, 0, launches=False)
    calls.cells = FUSED_CELLS
    signature = r.op.signature
    made = {n: have.get(n) if r.is_used(n) else None for n in signature.makes}
    inputs = [have.get(n) if r.is_used(n) else None for n in signature.needs]
    work = ghost_at(at, (own,), _BYTE)
    try:
        r.op.forward(calls, r.attrs, *inputs, **made, work=work, rng=Drops(calls, 0, 0), train=r.train)
    except Unsupported:
        return None
    return calls.workspace, calls.count


rows = table((RNN, _row, _row), (RnnWide, _row, _row))
