"""`measured_bytes` is what was allocated, whatever was planned; the arena is there once and stays in use."""

from __future__ import annotations

import logging
import threading
from typing import Any

import numpy as np
import pytest

import mxlite as mx
from mxlite.backends import backend_of
from mxlite.engine import get_engine
from mxlite.executor.run.arena import Arena

NET = mx.sym.SoftmaxOutput(
    mx.sym.FullyConnected(
        mx.sym.Activation(
            mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=64, name="a"), act_type="tanh"
        ),
        num_hidden=4,
        name="b",
    ),
    name="softmax",
)


def module(**how: Any) -> Any:
    made = mx.mod.Module(NET, **how)
    made.bind([("data", (16, 8))], [("softmax_label", (16,))])
    made.init_params()
    made.init_optimizer()
    return made


def batch(n: int = 16) -> Any:
    return mx.io.DataBatch([mx.nd.ones((n, 8))], [mx.nd.zeros(n)])


def test_before_the_first_step_the_arena_is_not_measured() -> None:
    for made in (NET.simple_bind(mx.cpu(), data=(16, 8)), module()):
        plan = made.memory_plan
        assert plan.arena_bytes > 0
        assert made.measured_bytes == plan.peak_bytes - plan.arena_bytes
        if isinstance(made, mx.mod.Module):
            made.train_step(batch())
        else:
            made.forward(is_train=True)
            made.backward()
        assert made.measured_bytes == plan.peak_bytes


def test_an_arena_larger_than_planned_is_measured(monkeypatch: Any) -> None:
    backend = backend_of(mx.cpu())
    real = type(backend).arena
    monkeypatch.setattr(type(backend), "arena", lambda self, nbytes: real(self, nbytes + 4096))
    for made in (NET.simple_bind(mx.cpu(), data=(16, 8)), module()):
        if isinstance(made, mx.mod.Module):
            made.forward(batch())
        else:
            made.forward(is_train=True)
        assert made.measured_bytes == made.memory_plan.peak_bytes + 4096


def test_arrays_larger_than_planned_are_measured() -> None:
    exe = NET.simple_bind(mx.cpu(), data=(16, 8))
    before = exe.measured_bytes
    exe._arrays["grad", "a_weight"] = mx.nd.zeros((64, 8 + 100))
    assert exe.measured_bytes == before + 64 * 100 * 4


def test_the_arena_is_allocated_once_however_many_programs_take_turns(monkeypatch: Any) -> None:
    backend, asked = backend_of(mx.cpu()), []
    real = type(backend).arena
    monkeypatch.setattr(
        type(backend), "arena", lambda self, nbytes: asked.append(nbytes) or real(self, nbytes)
    )
    made = module()
    for n in (16, 8, 16, 4):
        made.train_step(batch(n))
        made.forward(batch(n), is_train=False)
    mx.nd.waitall()
    assert asked == sorted(set(asked)) and asked[-1] == made._binding.group.arena.nbytes  # it only grew
    assert made.measured_bytes == made.planned_bytes


@pytest.mark.parametrize("ask", ["give_back", "block"])
def test_an_arena_is_not_given_back_while_work_still_runs_in_it(ask: str) -> None:
    arena, over, go = Arena(backend_of(mx.cpu()), 256), [], threading.Event()
    first = arena.block

    def work() -> None:
        go.wait(10)
        first[:] = 7
        over.append(True)

    get_engine().push(work, (), (mx.nd.zeros(1).var,), name="work in the arena")
    arena.resize(512, 0)
    threading.Timer(0.05, go.set).start()
    if ask == "give_back":
        arena.give_back()
        assert arena.measured_bytes == 0
    else:
        assert arena.block.nbytes == 512
    assert over == [True]


@pytest.mark.parametrize("how, warns", [({}, True), ({"loss_scale": "dynamic"}, False)])
def test_float16_without_a_loss_scale_is_warned_of(how: Any, warns: bool, caplog: Any) -> None:
    with caplog.at_level(logging.WARNING):
        module(amp="float16", **how)
        module(amp="bfloat16")
    assert [("loss scale" in r.getMessage()) for r in caplog.records] == [True] * warns


def test_masters_are_in_checkpoints_and_come_back_to_the_bit(tmp_path: Any) -> None:
    def made() -> Any:
        net = mx.sym.FullyConnected(mx.sym.Variable("data", dtype="float16"), num_hidden=2, name="fc")
        found = mx.mod.Module(mx.sym.MakeLoss(mx.sym.sum(net)), label_names=None)
        found.bind([mx.io.DataDesc("data", (2, 3), "float16")])
        found.init_params(mx.init.One())
        found.init_optimizer(optimizer_params={"learning_rate": 1e-5, "multi_precision": True})
        return found

    def train(module: Any, steps: int) -> Any:
        for _ in range(steps):
            module.train_step(mx.io.DataBatch([mx.nd.ones((2, 3), dtype="float16")]))
        return {i: s[1].asnumpy() for i, s in module._training.updater.states.items()}

    expected = train(made(), 12)
    first, second, third = made(), made(), made()
    train(first, 7)
    first.save_resume_state(str(tmp_path / "r"), 0, 0, None)
    first.save_checkpoint(str(tmp_path / "c"), 1, True)
    second.load_resume_state(str(tmp_path / "r"), None)
    third.load_optimizer_states(str(tmp_path / "c-0001.states"))
    third.load_params(str(tmp_path / "c-0001.params"))  # in either order
    for module in (second, third):
        for index, master in train(module, 5).items():
            np.testing.assert_array_equal(master, expected[index])
