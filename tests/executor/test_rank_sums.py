"""Sums over ranks as nodes of a step: planned without a job, in one order, beside the kernels."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import mxlite as mx
from mxlite.comm import WIRE
from mxlite.executor.run import link


@pytest.fixture
def job(monkeypatch):
    """Let a step for several ranks be bound here, which cannot run it."""
    return lambda ranks: monkeypatch.setattr(link, "current", lambda: SimpleNamespace(size=ranks))


def bound(layers=3, hidden=64, **how):
    x = mx.sym.Variable("data")
    for i in range(layers):
        x = mx.sym.Activation(mx.sym.FullyConnected(x, num_hidden=hidden, name=f"fc{i}"), act_type="tanh")
    net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(x, num_hidden=4, name="score"), name="softmax")
    return net.simple_bind(mx.cpu(), optimizer=mx.optimizer.SGD(momentum=0.9), data=(8, hidden), **how)


def test_every_gradient_is_in_one_sum_and_sums_have_one_order(job):
    job(3)
    exe = bound(layers=4, hidden=256, ranks=3)  # weights of 256 KiB travel alone, the others together
    problem = exe.memory_plan.problem
    sums = [t for t in problem.tasks if t.exchanges]
    assert len(sums) > 4
    token, summed = None, []
    for task in sums:
        inputs = list(task.inputs)
        if token is not None:
            assert inputs.pop() == token  # of the sum before
        token = task.outputs[-1]
        summed += task.outputs[:-1]
        assert len(inputs) == len(task.outputs) - 1
    updates = [t for t in problem.tasks if t.name.endswith("_update")]
    assert {t.inputs[1] for t in updates} == set(summed) and len(summed) == len(exe.updated)


def test_a_sum_is_a_segment_of_its_own_that_has_the_wire(job):
    """In another process than a job of two ranks the step does not run, and says why."""
    job(2)
    exe = bound(ranks=2)
    rates = np.tile([0.1, 0.0], (len(exe.updated), 1))
    exe.step(rates, data=np.ones((8, 64)), softmax_label=np.zeros(8))
    with pytest.raises(mx.MXLiteError, match="planned for 2 ranks, but the job has 1"):
        exe.arg_dict["fc0_weight"].asnumpy()
    segments = exe._train.segments
    alone = [s for s in segments if any("over_ranks" in n for n in s.names)]
    assert len(alone) == sum(t.exchanges > 0 for t in exe.memory_plan.problem.tasks)
    for segment in segments:
        is_sum = segment in alone
        assert (segment.kind == "io") == is_sum
        assert (WIRE in segment.held[1]) == is_sum
        assert len(segment.names) == 1 or not is_sum


@pytest.mark.parametrize("ranks", [0, True, 2.0, 1 << 20])
def test_numbers_of_ranks_that_cannot_be(ranks):
    with pytest.raises(mx.BindError, match="ranks must be a number from 1 to 65536"):
        bound(ranks=ranks)
