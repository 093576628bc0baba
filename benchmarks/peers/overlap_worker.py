"""One rank of benchmarks/overlap.py: overlap_worker.py LINK STEPS, started by mpiexec. Rank 0 tells."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
from harness.ranks import tell

import mxlite as mx
from mxlite.dist import Sums
from mxlite.models.resnet import resnet

SHAPES = dict(data=(16, 3, 64, 64), softmax_label=(16,))
LAYERS, WIDTH = 6, 768


def network(name: str) -> mx.Symbol:
    """A perceptron, whose last gradient is the largest, or a residual network, where that is the first."""
    if name == "ResNet-18":
        return resnet(18, classes=10)
    x = mx.sym.Flatten(mx.sym.Variable("data"))
    for i in range(LAYERS):
        x = mx.sym.Activation(mx.sym.FullyConnected(x, num_hidden=WIDTH, name=f"fc{i}"), act_type="relu")
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(x, num_hidden=10, name="head"), name="softmax")


def median(run: Callable[[], object], count: int) -> float:
    """Median seconds of a call, which all ranks begin together."""
    found = []
    for i in range(count + 2):
        mx.dist.barrier()
        start = time.perf_counter()
        run()
        mx.nd.waitall()
        found += [time.perf_counter() - start] if i >= 2 else []
    return statistics.median(found)


def main(name: str, batch: str, link: str, steps: str) -> None:
    mx.dist.init()
    count, shapes = int(steps), {n: (int(batch), *s[1:]) for n, s in SHAPES.items()}
    net, sgd = network(name), mx.optimizer.SGD(momentum=0.9)
    inputs = {n: mx.nd.array(np.random.default_rng(1).random(s)) for n, s in shapes.items()}

    def bound(**how: object) -> mx.Executor:
        return net.simple_bind(mx.cpu(), optimizer=sgd, **how, **shapes)  # type: ignore[arg-type]

    def step(exe: mx.Executor) -> Callable[[], object]:
        rates = np.tile([0.0, 0.0], (len(exe.updated), 1))
        return lambda: exe.step(rates, **inputs)

    ranks = mx.memplan.Ranks(mx.dist.size(), link, "none")
    alone, both = bound(), bound(ranks=ranks)
    least = bound(ranks=ranks, memory_budget=both.memory_plan.peak_bytes - 1)
    weights = [alone.arg_dict[n] for n in alone.updated]
    sums = Sums(weights)
    found = {
        "kernels": median(step(alone), count),
        "forward": median(lambda: alone.forward(is_train=False, **inputs), count),
        "messages": median(sums.push, count),
        "together": median(step(both), count),
        "waiting": median(step(least), count),
        "plan": least.memory_plan.problem.instead,
        "nbytes": sum(a.size * 4 for a in weights),
        "peak": both.memory_plan.peak_bytes,
        "least": least.memory_plan.peak_bytes,
    }
    if mx.dist.rank() == 0:
        tell(found)


if __name__ == "__main__":
    main(*sys.argv[1:])
