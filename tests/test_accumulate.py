"""Sums of gradients lie in the array that the gradient is kept in."""

from __future__ import annotations

from typing import Any

import numpy as np
from small_networks import fill

import mxlite as mx
from mxlite.backends import guard
from mxlite.executor import lower as lower_module

OPTIONS: dict[str, Any] = dict(steps=5, layers=2, hidden=32, classes=5, features=4)


def recurrent(**more: Any) -> tuple[Any, dict[str, tuple[int, ...]]]:
    net = mx.models.get("lstm_unrolled", **OPTIONS, **more)
    return net, mx.models.shapes_of("lstm_unrolled", 2, **OPTIONS)


def gradients(grad_req: str = "write", **more: Any) -> tuple[Any, dict[str, bytes]]:
    net, shapes = recurrent(joined=False, loss="cross_entropy")
    executor = net.simple_bind(mx.cpu(), grad_req=grad_req, **shapes, **more)
    fill(executor)
    for _ in range(2):
        executor.forward(is_train=True)
        executor.backward()
    found = {n: g.asnumpy().tobytes() for n, g in executor.grad_dict.items() if g is not None}
    return executor, found


def apart(found: Any, num_forward: int) -> Any:
    return found


def test_sums_are_made_where_the_gradient_is_kept_and_equal_to_the_bit(monkeypatch):
    executor, found = gradients()
    problem = executor.memory_plan.problem
    sums = [t for t in problem.tasks if t.op == "_grad_add" and "weight" in t.name]
    assert sums and all(problem.values[t.outputs[0]].fixed for t in sums)
    mx.memplan.check(executor.memory_plan, executor.memory_plan.predecessors)
    least = executor.memory_plan.arena_bytes
    monkeypatch.setattr(lower_module, "accumulated", apart)
    executor, expected = gradients()
    assert found == expected and least < executor.memory_plan.arena_bytes


def test_sums_are_the_same_under_a_budget():
    executor, expected = gradients()
    plan = executor.memory_plan
    budget = plan.problem.fixed_total + plan.arena_bytes // 2
    executor, found = gradients(memory_budget=budget)
    assert executor.memory_plan.recomputed and found == expected


def test_gradients_that_are_added_to_get_the_same_sums():
    _, once = gradients()
    _, twice = gradients("add")
    for name, data in twice.items():
        double = 2 * np.frombuffer(once[name], np.float32)
        np.testing.assert_allclose(np.frombuffer(data, np.float32), double, rtol=1e-5, atol=1e-6)


def test_guards_leave_sums_alone(monkeypatch):
    _, expected = gradients()
    monkeypatch.setattr(guard, "on", True)
    assert gradients()[1] == expected
