"""Bound programs: captured as graphs, replayed with the same bits, close to the CPU's results."""

from __future__ import annotations

from typing import Any

import numpy as np

import mxlite as mx

from .checks import Checks
from .nets import bound, difference, mlp, networks, same, steps

SMALL = ("mlp", "residual")


def run(checks: Checks) -> None:
    found = networks(checks)
    small = {n: net for n, net in found.items() if n in SMALL}
    nets(checks, small)
    with checks.check("training by Module, beside the CPU") as found:
        a, b = train(mx.gpu(0)), train(mx.cpu())
        found["largest difference"] = max(float(np.abs(a[n] - b[n]).max()) for n in a)
        assert found["largest difference"] < 1e-3, found
    with checks.check("fit with metrics that the step computes, beside the CPU") as found:
        a, b = fit(mx.gpu(0)), fit(mx.cpu())
        found["the GPU's"], found["the CPU's"] = a, b
        assert all(abs(a[n] - b[n]) < 0.02 for n in b), found  # one of 64 may be classified differently
    with checks.check("float16 with a loss scale that the step decides, beside the CPU") as found:
        a, b = scaled(mx.gpu(0)), scaled(mx.cpu())
        found["the GPU's"], found["the CPU's"] = a[0], b[0]
        assert a[0] == b[0] and len(set(a[0])) > 1, found
        found["largest difference"] = max(float(np.abs(x - y).max()) for x, y in zip(a[1], b[1]))
        assert found["largest difference"] < 2e-2, found
    with checks.check("random numbers have the CPU's bits") as found:
        drawn = masks(mx.gpu(0))
        found["drawn"] = drawn.size
        assert np.array_equal(drawn, masks(mx.cpu()))
    with checks.check("the profiler's device times of each call") as found:
        found["seconds"], found["stamps"] = profiled(checks)
        assert found["stamps"] > 3 and 0 <= found["seconds"] < 5, found
    nets(checks, {n: net for n, net in networks(checks).items() if n not in SMALL})


def nets(checks: Checks, which: dict[str, tuple[Any, Any]]) -> None:
    """Check each of these networks; small ones more thoroughly."""
    gpu = mx.gpu(0)
    for name, (net, shapes) in which.items():
        with checks.check(f"{name}: replayed and bound anew, the same bits") as found:
            checks.need(8)
            executor = bound(net, shapes, gpu)
            first = steps(executor, 5)
            found |= graphs_of(executor)
            assert same(steps(bound(net, shapes, gpu), 5), first)
            assert all(np.isfinite(a.astype(np.float64)).all() for one in first for a in one), "not finite"
            found["steps"] = 5
            assert found["graphs"] and not found["outside"], "not all of it was captured"
        if name not in SMALL:
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


def _without_states(executor: Any, arrays: list[np.ndarray]) -> list[np.ndarray]:
    """Outputs and gradients, which are the same in each step as long as weights are."""
    return arrays[: len(arrays) - len(executor.aux_arrays)]


def graphs_of(executor: Any) -> dict[str, Any]:
    """Number of CUDA graphs of a step, and tasks outside of them."""
    program = executor._training_program()
    return {"graphs": program.graphs, "outside": program.why_not}


def without_dropout(name: str, checks: Checks) -> tuple[Any, Any]:
    """The network without dropout, as masks differ between devices."""
    net, shapes = networks(checks)[name]
    text = net.tojson().replace('"p": "0.2"', '"p": "0.0"')
    return mx.sym.load_json(text), shapes


def module_of(ctx: Any, **options: Any) -> tuple[Any, Any]:
    """A Module of two layers with values, and its batches."""
    rng = np.random.default_rng(0)
    x, y = rng.random((64, 12), np.float32), rng.integers(0, 5, 64).astype(np.float32)
    batches = mx.io.NDArrayIter(x, y, 16)
    h = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=16, name="a")
    net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(mx.sym.relu(h), num_hidden=5, name="b"), name="softmax")
    module = mx.mod.Module(net, context=ctx, **options)
    module.bind(batches.provide_data, batches.provide_label)
    values = {
        n: mx.nd.array(rng.standard_normal(s) * 0.3)
        for n, s in (("a_weight", (16, 12)), ("a_bias", (16,)), ("b_weight", (5, 16)), ("b_bias", (5,)))
    }
    module.init_params(arg_params=values, aux_params={})
    return module, batches


def fit(ctx: Any) -> dict[str, float]:
    """Metrics of the last of three epochs with changing learning rates: batches are uploaded during steps."""
    module, batches = module_of(ctx)
    metric = mx.metric.create(["acc", "ce"])
    rates = mx.lr_scheduler.FactorScheduler(step=3, factor=0.9)
    module.fit(
        batches, num_epoch=3, eval_metric=metric, optimizer="adam",
        optimizer_params={"learning_rate": 0.01, "lr_scheduler": rates},
    )  # fmt: skip
    return {n: float(v) for n, v in metric.get_name_value()}


def scaled(ctx: Any) -> tuple[list[float], list[np.ndarray]]:
    """Loss scales after each of five steps, two of which overflow, and the weights at the end."""
    net, shapes = mlp()
    how = dict(optimizer=mx.optimizer.SGD(momentum=0.9), amp="fp16", loss_scale="dynamic")
    executor = bound(net, shapes, ctx, **how)
    executor.loss_scale = 256.0
    data = executor.arg_dict["data"].asnumpy()
    rates = np.full((len(executor.updated), 2), [0.1, 0.01])
    scales = []
    for is_bad in (False, True, False, True, False):
        executor.step(rates, data=data * (1e6 if is_bad else 1))
        scales.append(float(executor.loss_scale))
    return scales, [executor.arg_dict[n].asnumpy() for n in executor.updated]


def profiled(checks: Checks) -> tuple[float, int]:
    """Seconds between the first and the last event around the calls of one step, and their number."""
    executor = bound(*mlp(), mx.gpu(0))
    steps(executor, 1)
    executor.forward_backward()
    mx.nd.waitall()
    seen: list[list[int]] = []
    whole = executor._training_program().whole
    whole.operation((), ()).timed(lambda sheet, first, stamps: seen.append(stamps))()
    (stamps,) = seen
    assert stamps == sorted(stamps), stamps
    return (stamps[-1] - stamps[0]) * 1e-9, len(stamps)


def train(ctx: Any) -> dict[str, np.ndarray]:
    """Weights after two epochs of SGD with momentum."""
    module, batches = module_of(ctx)
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
