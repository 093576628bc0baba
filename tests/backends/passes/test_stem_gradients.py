"""First layers for images without their largest array: what is found, the kernels, and the same training."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mxlite as mx
from mxlite import ops
from mxlite.backends import Backend
from mxlite.backends.cpu.backend import CPU
from mxlite.backends.cpu.compiled import usable
from mxlite.core.dtype import as_dtype
from mxlite.memplan import check
from mxlite.memplan.remat.split import kept_bytes
from tests.backends.passes.pass_lists import left_out
from tests.cases.image_gradient import ROWS
from tests.networks.small_networks import fill_by_kind

pytestmark = pytest.mark.skipif(not usable(), reason="there is no compiler (llvmlite)")

SGD = mx.optimizer.SGD(momentum=0.9)
NEW = ("_image_sums", "_image_gradient")


def network(*, more: str = "", **norm: Any) -> Any:
    """As a network for images begins, and a classifier."""
    norm = dict(fix_gamma=False) | norm
    x = mx.sym.Convolution(
        mx.sym.var("data"), kernel=(5, 5), stride=(2, 2), pad=(2, 2), num_filter=20, no_bias=more != "bias",
        name="stem",
    )  # fmt: skip
    y = mx.sym.Activation(mx.sym.BatchNorm(x, name="bn", **norm), act_type="relu", name="relu")
    z = mx.sym.Pooling(y, kernel=(3, 3), stride=(2, 2), pad=(1, 1), pool_type="max", name="pool")
    z = mx.sym.Convolution(z, kernel=(3, 3), pad=(1, 1), num_filter=16, name="conv")
    if more in ("x", "y"):
        z = mx.sym.Concat(
            z,
            mx.sym.Pooling({"x": x, "y": y}[more], kernel=(3, 3), stride=(2, 2), pad=(1, 1), pool_type="avg"),
        )
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(z, num_hidden=5, name="fc"), name="softmax")


def bound(symbol: Any, **how: Any) -> Any:
    how = dict(optimizer=SGD) | how
    exe = symbol.simple_bind(mx.cpu(), data=(5, 3, 22, 19), softmax_label=(5,), **how)
    fill_by_kind(exe, 0.2)
    gamma = exe.arg_dict["bn_gamma"]
    gamma[:] = np.where(np.arange(gamma.size) % 3, 1.0, -0.7)  # where it is below 0, minima are the maxima
    return exe


def operators(exe: Any) -> list[str]:
    return [t.op for t in exe._planned.train.problem.tasks]


def trained(exe: Any, steps: int = 2) -> dict[str, np.ndarray]:
    for _ in range(steps):
        exe.step([[0.1, 0.01]] * len(exe.updated))
    assert exe.measured_bytes == exe.memory_plan.peak_bytes
    return {n: a.asnumpy() for n, a in {**exe.arg_dict, **exe.aux_dict}.items()}


def without(monkeypatch: Any) -> None:
    """Steps are combined without the pass from here on."""
    left_out(monkeypatch, "stem_gradients")


@pytest.mark.parametrize("amp", [None, "bfloat16", "float16"])
def test_a_step_learns_the_same_in_fewer_bytes(amp, monkeypatch):
    found = bound(network(), amp=amp)
    assert [n for n in operators(found) if n in NEW] == list(NEW)
    within = bound(network(), amp=amp, memory_budget=2**40)
    assert [n for n in operators(within) if n in NEW] == list(NEW)
    check(found.memory_plan)
    steps = 1 if amp else 2  # in 16 bits small differences grow
    got, same = trained(found, steps), trained(within, steps)
    without(monkeypatch)
    plain = bound(network(), amp=amp)
    assert not set(NEW).intersection(operators(plain))
    # In place of the convolution's result there is what pooling took of it, and the sums, in float32.
    less = (2 if amp else 4) * (5 * 11 * 10 - 5 * 6 * 5) * 20 - 4 * (20 + 1) * 3 * 5 * 5
    assert kept(plain) - kept(found) > 0.95 * less > 0
    want = trained(plain, steps)
    for name, x in want.items():
        np.testing.assert_array_equal(got[name], same[name], err_msg=name)
        # In 16 bits several of a window may be alike once they are normalized, and then not before.
        most = (3e-2 if amp else 2e-5) * np.linalg.norm(x)
        assert np.linalg.norm(got[name] - x) <= most, name


def kept(exe: Any) -> int:
    return kept_bytes(exe.memory_plan.problem)


@pytest.mark.parametrize(
    ("more", "norm"),
    [("bias", {}), ("x", {}), ("y", {}), ("", {"fix_gamma": True}), ("", {"use_global_stats": True})],
)
def test_what_others_read_and_other_norms_stay(more, norm):
    assert not set(NEW).intersection(operators(bound(network(more=more, **norm))))


def test_a_gradient_in_the_images_needs_all():
    exe = bound(network(), optimizer=None, grad_req={"data": "write", "stem_weight": "write"})
    assert not set(NEW).intersection(operators(exe))


def test_gradients_that_are_asked_for_are_found_where_they_are_asked_for(monkeypatch):
    names = ("stem_weight", "bn_gamma", "bn_beta", "fc_weight")
    exes = [bound(network(), optimizer=None, grad_req=dict.fromkeys(names, "write"))]
    assert NEW[1] in operators(exes[0])
    without(monkeypatch)
    exes.append(bound(network(), optimizer=None, grad_req=dict.fromkeys(names, "write")))
    for exe in exes:
        exe.forward(is_train=True)
        exe.backward()
    for n in names:
        x, y = (exe.grad_dict[n].asnumpy() for exe in exes)
        np.testing.assert_allclose(x, y, rtol=0, atol=2e-5 * np.abs(y).max(), err_msg=n)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("row", ROWS)
def test_kernels_make_what_the_references_make_in_float64(row, dtype):
    case = ROWS[row]
    op, kind = case.op, as_dtype(dtype)
    is_sums = op is ops.ImageSums
    small = {0, 1} if is_sums else {0, 1, 9}
    ins = [
        x if x.dtype == np.uint8 else x.astype(kind if i in small else np.float32)
        for i, x in enumerate(case.inputs())
    ]
    wide = [x if x.dtype == np.uint8 else x.astype(np.float64) for x in ins]
    shapes = op.infer_shape(case.parsed, *(x.shape for x in ins))
    kinds = op.infer_type(case.parsed, *(x.dtype for x in ins))[1]
    chosen = CPU.choose(op, case.parsed, *shapes, kind, tuple(x.dtype for x in ins))
    reference = Backend.reference(op, case.parsed, *shapes, np.dtype("float64"))
    assert not chosen.is_reference and reference.is_reference
    got = [np.full(s, np.nan, t) for s, t in zip(shapes[1], kinds)]
    want = [np.full(s, np.nan) for s in shapes[1]]
    run(chosen, op, case.parsed, ins, got, shapes)
    run(reference, op, case.parsed, wide, want, shapes)
    for name, x, y in zip(op.outputs, got, want):
        rounded = np.float32 if x.dtype == np.float32 else x.dtype
        atol = {np.dtype("float32"): 1e-5, as_dtype("float16"): 1e-3}.get(np.dtype(rounded), 2**-8)
        np.testing.assert_allclose(x.astype("d"), y, rtol=0, atol=atol * np.abs(y).max(), err_msg=name)
    for x, y in zip(ins, wide):  # the moving averages too
        np.testing.assert_allclose(x.astype("d"), y, rtol=1e-5)


def run(kernel: Any, op: Any, attrs: Any, ins: list[Any], outs: list[Any], shapes: Any) -> None:
    """The call, twice with the same bits; it keeps to its scratch."""
    from mxlite.backends.call import bind_call

    block = np.full(64 + kernel.workspace + 64, 0xFF, np.uint8)
    work = block[64 : 64 + kernel.workspace]
    again = [x.copy() for x in ins]
    with CPU.running(CPU.threads()):
        bind_call(kernel, np, op, attrs, again, outs, work=work, shapes=shapes)()
        first = [x.copy() for x in outs]
        bind_call(kernel, np, op, attrs, ins, outs, work=work, shapes=shapes)()
    assert (block[:64] == 0xFF).all() and (block[-64:] == 0xFF).all()
    for x, y in zip(first, outs):
        np.testing.assert_array_equal(x, y)


def test_windows_of_nan_alone_read_nothing_else():
    """Their index numbers no element of them."""
    case = ROWS["_image_gradient-stem"]
    ins = [x if x.dtype == np.uint8 else x.astype(np.float32) for x in case.inputs()]
    shapes = case.op.infer_shape(case.parsed, *(x.shape for x in ins))
    ins[8][0, 0, 0] = 9
    ins[0][0, 0, 0] = 0
    chosen = CPU.choose(case.op, case.parsed, *shapes, ins[0].dtype, tuple(x.dtype for x in ins))
    outs = [np.full(s, np.nan, np.float32) for s in shapes[1]]
    run(chosen, case.op, case.parsed, ins, outs, shapes)
    assert all(np.isfinite(x).all() for x in outs)
