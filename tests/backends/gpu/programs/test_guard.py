"""MXLITE_GUARD=1 on emulated GPUs: a kernel that writes outside its buffer is caught, and named."""

from __future__ import annotations

import pytest

import mxlite as mx
from mxlite.backends import backend_of, connected
from mxlite.backends.checks import guard
from mxlite.backends.gpu.handwritten.elements import fill
from mxlite.backends.gpu.runtime.array import DeviceArray
from mxlite.backends.gpu.runtime.device import InOrder
from mxlite.core import OperatorError
from mxlite.ops import find_op
from tests.backends.gpu.gpu_programs import bound, GPU, recorded_gpus, same, steps
from tests.emulators.emulated_device import compiler
from tests.networks.small_networks import mlp

needs_compiler = pytest.mark.skipif(compiler is None, reason="g++ is not installed")
sym = mx.sym
MLP = dict(data=(4, 8), softmax_label=(4,))


@needs_compiler
def test_a_guarded_program_gives_the_same_bits(monkeypatch):
    with recorded_gpus(late=0.3):
        want = steps(bound(mlp(), GPU, MLP))
        monkeypatch.setattr(guard, "on", True)
        executor = bound(mlp(), GPU, MLP)
        same(steps(executor), want)
        assert executor.guard_bytes > 0 and executor._train.graphs == 0
        assert set(executor._train.why_not.values()) == {
            "MXLITE_GUARD=1 looks at the arena behind every call"
        }


@needs_compiler
@pytest.mark.parametrize("at, where", [(-1, "4 bytes before its start"), (12, "at byte 48")])
def test_one_element_too_far_is_caught_and_named(monkeypatch, at, where):
    """A kernel that fills one element more, before or behind what it was asked for."""
    monkeypatch.setattr(guard, "on", True)
    op = find_op("exp")
    with recorded_gpus(late=0.3):
        backend = backend_of(GPU)
        device = backend.device

        def row(r):
            def connect(xp, a, data, *, out):
                wrong = DeviceArray(out.memory, out.address + 4 * at, (1,), out.dtype)
                return InOrder([fill(device, out, 2.0), fill(device, wrong, 3.0)])

            return connected(connect, 0, "spoilt", like=op.forward)

        monkeypatch.setitem(vars(backend), "kernels", {**backend.kernels, op: [row]})
        x = sym.softmax(sym.var("x"), name="before")
        net = sym.softmax(sym.exp(x, name="guilty"), name="after")
        executor = net.simple_bind(GPU, x=(3, 4))
        for _ in range(2):
            executor.forward()
            with pytest.raises(
                OperatorError, match=r"'guilty' \[spoilt\] wrote outside its arrays"
            ) as caught:
                executor.outputs[0].asnumpy()
            assert where in str(caught.value) and "'guilty'" in str(caught.value)
