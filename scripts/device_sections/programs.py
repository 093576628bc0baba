"""Bound programs: captured as graphs, replayed with the same bits, near what the CPU computes."""

from __future__ import annotations

from typing import Any

import numpy as np

import mxlite as mx

from .checks import Checks
from .nets import bound, difference, networks, same, steps


def run(checks: Checks) -> None:
    gpu = mx.gpu(0)
    for name, (net, shapes) in networks(checks).items():
        with checks.check(f"{name}: replayed and bound anew, the same bits") as found:
            checks.need(8)
            executor = bound(net, shapes, gpu)
            first = steps(executor, 5)
            found |= graphs_of(executor)
            assert same(steps(bound(net, shapes, gpu), 5), first)
            assert all(np.isfinite(a.astype(np.float64)).all() for one in first for a in one), "not finite"
            found["steps"] = 5
            assert found["graphs"] and not found["outside"], "not all of it was captured"
        if name not in ("mlp", "residual"):
            continue
        plain, its_shapes = without_dropout(name, checks)
        with checks.check(f"{name}: the same bits one by one, captured and replayed") as found:
            executor = bound(plain, its_shapes, gpu)
            seen = [_without_states(executor, one) for one in steps(executor, 4)]
            found["arrays"] = len(seen[0])
            for one in seen[1:]:
                assert same([one], seen[:1])
        with checks.check(f"{name}: the same bits on three streams, captured") as found:
            executor = bound(plain, its_shapes, gpu, streams=3)
            first = steps(bound(plain, its_shapes, gpu), 3)
            assert same(steps(executor, 3), first), "other bits"
            found |= graphs_of(executor)
            found["streams used"] = len(set(executor._training_program().order.stream))
            assert found["graphs"] and not found["outside"], "not all of it was captured"
        with checks.check(f"{name}: the CPU's numbers") as found:
            a = steps(bound(plain, its_shapes, gpu), 3)
            found["largest difference"] = difference(a, steps(bound(plain, its_shapes, mx.cpu()), 3))
            assert found["largest difference"] < 2e-3, found
        with checks.check(f"{name}: in bfloat16, near the CPU's float32") as found:
            executor = bound(plain, its_shapes, gpu, amp="bfloat16")
            a = [_without_states(executor, one) for one in steps(executor, 3)]
            b = [_without_states(executor, one) for one in steps(bound(plain, its_shapes, mx.cpu()), 1)]
            found |= graphs_of(executor)
            count = len(executor.outputs)
            found["outputs"] = difference([a[2][:count]], [b[0][:count]])
            found["gradients"] = difference([a[2][count:]], [b[0][count:]])
            assert found["outputs"] < 5e-2, found
            assert same([a[2]], [a[0]]), "other bits"
    with checks.check("training by Module, beside the CPU") as found:
        a, b = train(mx.gpu(0)), train(mx.cpu())
        found["largest difference"] = max(float(np.abs(a[n] - b[n]).max()) for n in a)
        assert found["largest difference"] < 1e-3, found
    with checks.check("random numbers have the CPU's bits") as found:
        drawn = masks(mx.gpu(0))
        found["drawn"] = drawn.size
        assert np.array_equal(drawn, masks(mx.cpu()))


def _without_states(executor: Any, arrays: list[np.ndarray]) -> list[np.ndarray]:
    """Outputs and gradients: what is the same in each step as long as weights are."""
    return arrays[: len(arrays) - len(executor.aux_arrays)]


def graphs_of(executor: Any) -> dict[str, Any]:
    """How many CUDA graphs a step is, and what is outside of them."""
    program = executor._training_program()
    return {"graphs": program.graphs, "outside": program.why_not}


def without_dropout(name: str, checks: Checks) -> tuple[Any, Any]:
    """Each device draws its own masks, so that a comparison of two has none."""
    net, shapes = networks(checks)[name]
    text = net.tojson().replace('"p": "0.2"', '"p": "0.0"')
    return mx.sym.load_json(text), shapes


def train(ctx: Any) -> dict[str, np.ndarray]:
    """Weights after two epochs of SGD with momentum."""
    rng = np.random.default_rng(0)
    x, y = rng.random((64, 12), np.float32), rng.integers(0, 5, 64).astype(np.float32)
    batches = mx.io.NDArrayIter(x, y, 16)
    h = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=16, name="a")
    net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(mx.sym.relu(h), num_hidden=5, name="b"), name="softmax")
    module = mx.mod.Module(net, context=ctx)
    module.bind(batches.provide_data, batches.provide_label)
    values = {
        n: mx.nd.array(rng.standard_normal(s) * 0.3)
        for n, s in (("a_weight", (16, 12)), ("a_bias", (16,)), ("b_weight", (5, 16)), ("b_bias", (5,)))
    }
    module.init_params(arg_params=values, aux_params={})
    module.init_optimizer(optimizer="sgd", optimizer_params={"learning_rate": 0.1, "momentum": 0.9})
    for _ in range(2):
        batches.reset()
        for batch in batches:
            module.forward_backward(batch)
            module.update()
    return {n: a.asnumpy() for n, a in module.get_params()[0].items()}


def masks(ctx: Any) -> np.ndarray:
    mx.random.seed(11, ctx)
    return mx.nd.random.uniform(shape=(1000,), ctx=ctx).asnumpy()
