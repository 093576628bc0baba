"""A plan counts every byte before anything is allocated, and refuses what does not fit before it runs."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

import mxlite as mx
from mxlite.dynamic.sizes import padded, sizes

from .oracle import agrees, tree_network, trees


def test_sizes_waste_no_more_than_an_eighth():
    offered = sizes(5000)
    assert offered[:17] == [*range(1, 17), 18]
    for n in range(1, 5000):
        size = padded(n)
        assert size in offered and n <= size <= n * 9 / 8


def test_what_is_planned_is_what_is_allocated():
    net = tree_network(max_nodes={"leaf": 40, "join": 40, "loss": 8})
    planned = net.planned_bytes
    assert planned == sum(net.plan.breakdown.values()) == net.measured_bytes
    assert net.max_nodes == {"leaf": 40, "join": 40, "loss": 8}
    before = net.program
    for seed in range(20):
        net.forward_backward(trees(3, seed=seed))
    assert net.program is before and net.measured_bytes == planned


def test_a_pass_allocates_no_rows():
    width = 512
    net = tree_network(width, max_nodes=64)
    samples = trees(6, 9, seed=1)
    net.forward_backward(samples)
    mx.nd.waitall()
    _, call = net._recorded(samples, True, True)
    result = np.empty(len(call.returned), "float32")
    net.program._forward(call, True, result)
    net.program._backward(call, True, None)
    tracemalloc.start()
    net.program._forward(call, True, result)
    net.program._backward(call, True, None)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 5 * width * 4  # a few indices and views; no more than five rows


def test_more_nodes_than_planned_are_refused_with_their_number_and_bytes():
    net = tree_network(max_nodes={"leaf": 8, "join": 8, "loss": 4})
    large = [(((0, 1), (2, 3)), 0)] * 3
    net.forward_backward(large[:2])
    there = {n: p.grad().asnumpy().copy() for n, p in net.collect_params().items()}
    with pytest.raises(
        mx.MemoryBudgetError, match="12 nodes of cell 'leaf', and the plan has room for 8"
    ) as caught:
        net.forward_backward(large)
    error = caught.value
    assert error.budget_bytes == net.planned_bytes < error.least_feasible_bytes
    assert str(error.least_feasible_bytes) in str(error)
    for name, before in there.items():
        assert (net.collect_params()[name].grad().asnumpy() == before).all()
    roomy = tree_network(max_nodes=net.count_nodes(large) | {"loss": 4})
    assert roomy.planned_bytes == error.least_feasible_bytes
    agrees(net, large[:2])


def test_a_budget_that_is_too_small_names_what_is_needed_and_that_works():
    needed = tree_network(max_nodes=16).planned_bytes
    with pytest.raises(mx.MemoryBudgetError, match=f"take {needed} bytes"):
        _ = tree_network(max_nodes=16, memory_budget=needed - 1).planned_bytes
    assert tree_network(max_nodes=16, memory_budget=needed).planned_bytes == needed


def test_a_budget_alone_gives_as_many_nodes_as_fit():
    exact = tree_network(max_nodes=20)
    budget = exact.planned_bytes + 64
    found = tree_network(max_nodes=None, memory_budget=budget)
    assert found.max_nodes == exact.max_nodes and found.planned_bytes == exact.planned_bytes
    with pytest.raises(mx.MemoryBudgetError, match="one node of each cell"):
        _ = tree_network(max_nodes=None, memory_budget=1000).planned_bytes


def test_random_trees_stay_inside_the_budget_and_right():
    budget = 50_000
    net = tree_network(max_nodes=None, memory_budget=budget)
    most = net.max_nodes["leaf"]
    refused = 0
    for seed in range(60):
        samples = trees(1 + seed % 7, 14, seed=seed)
        fits = max(net.count_nodes(samples).values()) <= most
        if fits:
            agrees(net, samples[:2]) if seed % 10 == 0 else net.forward_backward(samples)
        else:
            refused += 1
            with pytest.raises(mx.MemoryBudgetError):
                net.forward_backward(samples)
        assert net.measured_bytes == net.planned_bytes <= budget
    assert 0 < refused < 60
