"""Cheap results that the backward pass makes again: which, with which numbers, in how many bytes."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

import mxlite as mx
from mxlite.memplan import check
from mxlite.memplan.problem import padded
from mxlite.memplan.remat.split import kept_bytes
from tests.backends.passes.pass_lists import left_out

ROWS, WIDTH, HIDDEN = 256, 520, 840


@pytest.fixture(autouse=True)
def alone(monkeypatch: Any) -> None:
    """The step has so little besides that the pass for its fullest moment would take all of it, too."""
    monkeypatch.setattr(importlib.import_module("mxlite.backends.passes.remat.remat_at_peak"), "SHARE", 1e-30)


def dense(x: Any, units: int = HIDDEN, name: str = "fc") -> Any:
    return mx.sym.FullyConnected(x, num_hidden=units, flatten=False, name=name)


def norm(x: Any, **more: Any) -> Any:
    return mx.sym.LayerNorm(x, name="n", **more)


def first() -> Any:
    return dense(mx.sym.var("data"), WIDTH, "first")


def loss(x: Any) -> Any:
    return mx.sym.make_loss(mx.sym.mean(x * x), name="loss")


def network() -> Any:
    return loss(dense(norm(first())))


def turned() -> Any:
    """What one layer makes is kept for its square, and for a product with its axes in another order."""
    x = mx.sym.Reshape(first(), shape=(4, 64, 8, 65))
    y = mx.sym.transpose(x, axes=(0, 2, 1, 3), name="t")
    return loss(mx.sym.sum(dense(mx.sym.Reshape(y, shape=(ROWS, WIDTH), name="r"))) + mx.sym.sum(x * x))


def turned_rows(x: Any) -> Any:
    """A square, and a product of what lies turned over."""
    return mx.sym.sum(dense(mx.sym.transpose(x, axes=(1, 0)))) + mx.sym.sum(x * x)


def bound(symbol: Any, **how: Any) -> Any:
    exe = symbol.simple_bind(mx.cpu(), data=(ROWS, 40), **how)
    rng = np.random.default_rng(0)
    for x in exe.arg_dict.values():
        x[:] = rng.standard_normal(x.shape) / 4
    return exe


def rematerialized(exe: Any) -> list[str]:
    tasks = exe._planned.train.problem.tasks
    return [t.name.removesuffix("_remat") for t in tasks if t.name.endswith("_remat")]


def without(monkeypatch: Any) -> None:
    left_out(monkeypatch, "cheap_remat")


def step(exe: Any) -> dict[str, np.ndarray]:
    made = {"out": exe.forward(is_train=True)[0].asnumpy()}
    exe.backward()
    return made | {n: g.asnumpy() for n, g in exe.grad_dict.items() if g is not None}


NETS = {"a norm": (network, ["n"]), "a transposition and a reshape": (turned, ["t", "r"])}


@pytest.mark.parametrize("net", NETS)
def test_it_is_made_again_with_the_same_bits_in_fewer_bytes(net, monkeypatch):
    symbol, names = NETS[net]
    exe = bound(symbol())
    assert rematerialized(exe) == names
    got, plan = step(exe), exe.memory_plan
    check(plan)
    assert exe.measured_bytes == plan.peak_bytes
    try:
        tight = bound(symbol(), memory_budget=plan.lower_bound_bytes)
    except mx.MemoryBudgetError as error:
        tight = bound(symbol(), memory_budget=error.least_feasible_bytes)
    without(monkeypatch)
    plain = bound(symbol())
    assert not rematerialized(plain)
    for other in (tight, plain):
        for name, x in step(other).items():
            np.testing.assert_array_equal(x, got[name], err_msg=name)
    kept, before = (kept_bytes(p.problem) for p in (plan, plain.memory_plan))
    assert before - kept == padded(4 * ROWS * WIDTH)
    assert plan.arena_bytes <= plain.memory_plan.arena_bytes


def test_weights_that_change_meanwhile_are_read_before(monkeypatch):
    """The update of gamma has all it needs before the norm is made again."""

    def trained() -> dict[str, np.ndarray]:
        exe = bound(network(), optimizer=mx.optimizer.SGD(momentum=0.9))
        for _ in range(3):
            exe.step([[0.5, 0.01]] * len(exe.updated))
        assert exe.measured_bytes == exe.memory_plan.peak_bytes
        return {n: a.asnumpy() for n, a in exe.arg_dict.items()}

    got = trained()
    without(monkeypatch)
    for name, x in trained().items():
        np.testing.assert_array_equal(x, got[name], err_msg=name)


def test_it_waits_for_the_gradient_that_its_reader_reads():
    problem = bound(network())._planned.train.problem
    (task,) = (t for t in problem.tasks if t.name == "n_remat")
    (waits,) = (v for v in task.inputs if problem.producer[v] >= problem.num_forward)
    reader = next(t for t in problem.tasks if task.outputs[0] in t.inputs)
    assert waits in reader.inputs


def test_what_is_kept():
    x, y = first(), mx.sym.var("y", shape=(512, 512))
    shown = norm(x)
    cases = {
        "nobody keeps what it is made of": loss(dense(mx.sym.relu(x))),
        "no row stays one": loss(turned_rows(x)),
        "its readers do little": loss(dense(norm(x), 40)),
        "it draws random numbers": loss(dense(mx.sym.Dropout(y))),
        "it is an output": mx.sym.Group([loss(dense(shown)), shown]),
        "it is the end of a stage": loss(dense(norm(x, attr={"__mirror_stage__": "True"}))),
        "it changes an array": loss(dense(mx.sym.BatchNorm(x, axis=1, fix_gamma=False))),
    }
    for why, symbol in cases.items():
        assert not rematerialized(bound(symbol)), why
    small = network().simple_bind(mx.cpu(), data=(ROWS // 4, 40))
    assert not rematerialized(small)
    assert not [t for t in small._planned.infer.problem.tasks if t.name.endswith("_remat")]
