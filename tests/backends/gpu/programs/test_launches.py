"""How many kernels a call is, as its plan reckons: held against those that the program launches."""

from __future__ import annotations

import itertools

import pytest

import mxlite as mx
from mxlite.backends.gpu import drivers_of
from mxlite.backends.gpu.runtime.device import nothing
from mxlite.executor.run.program import Program
from tests.emulators.emulated_driver import EmulatedDriver


class Silent(EmulatedDriver):
    """Compiles nothing and launches nothing."""

    handles = itertools.count(1)

    def load(self, source):
        return None

    def function(self, module, name):
        return next(self.handles)

    def launch(self, *arguments):
        pass


def lstm():
    net = mx.sym.RNN(
        mx.sym.var("data"), mx.sym.var("weights"), mx.sym.var("state"), mx.sym.var("cell"),
        mode="lstm", state_size=32, num_layers=2, name="lstm",
    )  # fmt: skip
    net = mx.sym.FullyConnected(mx.sym.reshape(net, (-1, 32)), num_hidden=5, name="fc")
    return mx.sym.SoftmaxOutput(net, name="softmax")


def separable():
    """Convolutions of one group for each channel."""
    net = mx.sym.Convolution(mx.sym.var("data"), num_filter=16, kernel=(3, 3), name="first")
    net = mx.sym.Convolution(net, num_filter=16, num_group=16, kernel=(3, 3), name="depthwise")
    net = mx.sym.BatchNorm(net, name="norm")
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(net, num_hidden=5, name="fc"), name="softmax")


NETS = {
    "resnet": (lambda: mx.models.get("resnet20_cifar"), dict(data=(64, 3, 32, 32), softmax_label=(64,))),
    "resnet of one image": (
        lambda: mx.models.get("resnet20_cifar"),
        dict(data=(1, 3, 32, 32), softmax_label=(1,)),
    ),
    "lenet": (lambda: mx.models.get("lenet"), dict(data=(64, 1, 28, 28), softmax_label=(64,))),
    "mlp": (lambda: mx.models.get("mlp"), dict(data=(128, 784), softmax_label=(128,))),
    "separable": (separable, dict(data=(8, 3, 40, 40), softmax_label=(8,))),
    "lstm": (
        lstm,
        dict(data=(12, 4, 24), state=(2, 4, 32), cell=(2, 4, 32), softmax_label=(48,)),
    ),
}
EXACT = ("convolution", "correlation", "channel sums", "norm", "gemm", "recurrent")
"""Words in the names of kernels that may be several launches."""


@pytest.mark.parametrize("amp", [None, "bfloat16"])
@pytest.mark.parametrize("name", NETS)
def test_plans_reckon_with_the_kernels_that_are_launched(name, amp, monkeypatch):
    seen, link = [], Program._call

    def noted(self, s, *rest):
        run = link(self, s, *rest)
        task = self.lowered.problem.tasks[self.plan.schedule.task[s]]
        chosen = self.lowered.calls[self.plan.schedule.task[s]].kernel
        runs = [r for r in getattr(run, "runs", [run]) if r is not nothing]
        seen.append((task.name, chosen.name, chosen.launches, len(runs)))
        return run

    monkeypatch.setattr(Program, "_call", noted)
    make, shapes = NETS[name]
    with drivers_of(lambda index: Silent(index)):
        exe = make().simple_bind(mx.gpu(0), optimizer=mx.optimizer.SGD(momentum=0.9), amp=amp, **shapes)
        exe.step([[0.1, 0.0]] * len(exe.updated))
        mx.nd.waitall()
        del exe
    assert len(seen) > 5
    wrong = [x for x in seen if any(word in x[1] for word in EXACT) and x[2] != x[3]]
    assert not wrong, wrong
    assert sum(x[2] for x in seen) == pytest.approx(sum(x[3] for x in seen), rel=0.1)
