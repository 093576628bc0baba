"""Sums of gradients lie in the array that the gradient is kept in."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mxlite as mx
from mxlite.backends import backend_of
from mxlite.backends.checks import guard
from mxlite.backends.lower import lower_graph
from mxlite.executor.plan import lower as lower_module
from mxlite.graph import Entry, Graph, Node, variable
from mxlite.graph.gradient import GradAdd
from mxlite.ops.elementwise.unary import Copy
from tests.networks.small_networks import fill

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


def test_sums_are_the_same_at_the_least_budget():
    _, expected = gradients()
    with pytest.raises(mx.MemoryBudgetError) as error:
        gradients(memory_budget=1)
    executor, found = gradients(memory_budget=error.value.least_feasible_bytes)
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


def sums(*more):
    """total = (a + b) + c, kept as the gradient of `w`, and nodes `more` that read a + b as well."""
    a, b, c = (variable(n) for n in "abc")
    first = Entry(Node(GradAdd, GradAdd.Attrs(), (a, b), "first"))
    total = Entry(Node(GradAdd, GradAdd.Attrs(), (first, c), "total"))
    others = tuple(Entry(make(first)) for make in more)
    graph = Graph((total, *others))
    shapes, dtypes = (dict.fromkeys(graph.entries(), x) for x in ((3,), np.dtype("float32")))
    graph = Graph(graph.outputs, shapes=shapes, dtypes=dtypes)
    storage = {total: ("grad", "w"), **{e: ("out", i) for i, e in enumerate(others)}}
    found = lower_module.accumulated(lower_graph(graph, storage, backend_of(mx.cpu())), 0)
    return {v.name: key for v, key in zip(found.values, found.key)}


@pytest.mark.parametrize("kernels", ["onednn,compiled", "reference"])
def test_a_sum_of_another_shape_stays_where_it_is(kernels, monkeypatch):
    """An array has one shape; a gradient that is reshaped in place comes from a value of another."""
    monkeypatch.setenv("MXLITE_KERNELS", kernels)
    w = mx.sym.Variable("w", shape=(2, 3))
    parts = [mx.sym.Reshape(w, shape=(6,)) * mx.sym.Variable(n) for n in "abc"]
    net = mx.sym.MakeLoss(mx.sym.add_n(*parts))
    exe = net.simple_bind(mx.cpu(), grad_req={"w": "write"}, a=(6,), b=(6,), c=(6,))
    for value, name in enumerate("abc", 1):
        exe.arg_dict[name][:] = value * np.arange(6)
    exe.forward(is_train=True)
    exe.backward()
    np.testing.assert_array_equal(exe.grad_dict["w"].asnumpy(), 6 * np.arange(6).reshape(2, 3))


def test_a_sum_that_somebody_else_reads_stays_where_it_is():
    """The gradient is written over its first sum: who reads that afterwards would see the gradient."""
    assert sums()["first"] == ("grad", "w")
    for op in (GradAdd, Copy):
        reads = {GradAdd: 2, Copy: 1}[op]
        found = sums(lambda e, op=op, n=reads: Node(op, op.Attrs(), (e,) * n, "other"))
        assert found["total"] == ("grad", "w") and found["first"] is None
