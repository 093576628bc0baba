"""Rules that ask others: PyTorch while the test runs, MXNet 1.9.1 through its stored results.

`scripts/make_operator_oracles.py` makes `golden/mxnet/operators.npz`: for each row, under `row|out<i>` and
`row|d_<input>`, what MXNet gave for `row|in_<input>` and the head gradients `row|head<i>`, all in float32
(or the row's own type).
"""

from __future__ import annotations

import functools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mxlite.core.dtype import is_floating
from tests.conformance.case import Case
from tests.conformance.conformance import Call, forward_run, gradient_inputs, gradients_of

ORACLES = Path(__file__).parent.parent / "golden" / "mxnet" / "operators.npz"


def check_torch(case: Case) -> None:
    """Outputs and gradients are PyTorch's, in float64."""
    if case.torch is None:
        return
    torch = pytest.importorskip("torch", reason="PyTorch is the peer of this rule")
    call = Call.of(case)
    arrays = case.inputs()
    tensors = [torch.tensor(x, requires_grad=is_floating(x.dtype)) for x in arrays]
    result = case.torch(call.attrs, *tensors)
    theirs = list(result) if isinstance(result, tuple | list) else [result]
    ours, grads, heads = gradients_of(call, arrays)
    names = call.names()[1][: len(theirs)]
    for name, tensor in zip(names, theirs, strict=True):
        got = ours[name]
        want = tensor.detach().numpy()
        assert got.shape == want.shape, f"{name} is {got.shape}, PyTorch's {want.shape}"
        close(got, want, case, f"{call.op.op_name}: {name} against PyTorch")
    if call.op.is_loss or not grads or not case.train:
        return
    total = sum((t * torch.tensor(heads["d_" + n])).sum() for n, t in zip(names, theirs) if t.requires_grad)
    if not torch.is_tensor(total):
        return
    total.backward()
    wanted = case.grad_inputs
    for name, tensor in zip(call.names()[0], tensors):
        if name in grads and tensor.grad is not None and (wanted is None or name in wanted):
            close(grads[name], tensor.grad.numpy(), case, f"{call.op.op_name}: d_{name} against PyTorch")


def close(got: Any, want: Any, case: Case, what: str, least: float = 1e-9) -> None:
    scale = float(np.max(np.abs(want.astype(np.float64)), initial=0)) if want.size else 0.0
    tolerance = max(case.tolerance * 1e-1, least)
    np.testing.assert_allclose(
        np.asarray(got, np.float64),
        np.asarray(want, np.float64),
        rtol=tolerance,
        atol=tolerance * max(scale, 1e-2),
        err_msg=what,
    )


@functools.cache
def stored_rows() -> dict[str, dict[str, np.ndarray]]:
    """Row -> name -> array."""
    rows: dict[str, dict[str, np.ndarray]] = {}
    with np.load(ORACLES, allow_pickle=False) as file:
        flat = {k: file[k] for k in file.files}
    for key, dtype, shape, start in json.loads(flat["index"].tobytes()):
        row, _, name = key.rpartition("|")
        rows.setdefault(row, {})[name] = flat[dtype][start : start + math.prod(shape)].reshape(shape)
    return rows


def check_mxnet(case: Case, row: str = "") -> None:
    """Outputs and gradients are what MXNet 1.9.1 gave."""
    stored = stored_rows().get(row)
    if stored is None or case.mxnet is not True:
        return
    kind = "float32" if case.dtype == "float64" else case.dtype
    call = Call.of(case, dtype=kind)
    names = call.names()
    arrays = [stored["in_" + n].astype(d) for n, d in zip(names[0], call.dtypes[0])]
    outs, after = forward_run(call, arrays)
    tolerance = max(case.tolerance32, 2e-5)

    def compare(got: Any, want: Any, what: str) -> None:
        assert got.shape == want.shape, f"{what}: shape {got.shape}, MXNet's {want.shape}"
        assert got.dtype == want.dtype, f"{what}: {got.dtype}, MXNet's {want.dtype}"
        scale = float(np.max(np.abs(want.astype(np.float64)), initial=0))
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * max(scale, 1e-2), err_msg=what)

    for i, name in enumerate(names[1]):
        if f"out{i}" in stored:
            compare(outs[name], stored[f"out{i}"], f"{call.op.op_name}: {name}")
    for name in names[0]:
        if f"after_{name}" in stored:
            compare(after[name], stored[f"after_{name}"], f"{call.op.op_name}: {name} afterwards")
    wanted = [n for n in names[0] if f"d_{n}" in stored]
    if not wanted:
        return
    heads = {f"d_{n}": stored[f"head{i}"] for i, n in enumerate(names[1]) if f"head{i}" in stored}
    for i, n in enumerate(names[1]):
        heads.setdefault(f"d_{n}", np.zeros(call.shapes[1][i], call.dtypes[1][i]))
    grads = {}
    for name, head in call.op.gradient_is.items():
        for n in names[0] if name == call.op.variadic else (name,):
            grads["d_" + n] = heads[head]
    if call.op.grad_op is not None:
        grads |= call.execute(call.op.grad_op, gradient_inputs(call, arrays, heads))[0]
    for n in wanted:
        if grads.get(f"d_{n}") is not None and (case.grad_inputs is None or n in case.grad_inputs):
            compare(grads[f"d_{n}"], stored[f"d_{n}"], f"{call.op.op_name}: gradient of {n}")


RULES = {"is what PyTorch says": check_torch}
