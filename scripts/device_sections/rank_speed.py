"""Run on several ranks: seconds of a sum over GPUs, of an array of KIBIBYTES, and of a fused step with such a
weight.

    rank_speed.py gpu | emulated KIBIBYTES
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

import mxlite as mx
from mxlite import dist
from tests.dist.programs.devices import device_of_this_rank

TIMES = 5


def seconds(call: Callable[[], object]) -> float:
    """The least of several times of a call, behind two for warming up, from when all ranks are here."""
    best = float("inf")
    for turn in range(TIMES + 2):
        dist.barrier()
        start = time.perf_counter()
        call()
        mx.nd.waitall()
        if turn > 1:
            best = min(best, time.perf_counter() - start)
    return best


def main(device: str, kibibytes: int) -> None:
    dist.init()
    found = {}
    with device_of_this_rank(device) as context:
        array = mx.nd.ones((kibibytes << 8,), ctx=context)
        sums = dist.Sums([array])
        found["seconds of a sum"] = took = seconds(sums.push)
        # Each rank sends and receives (N - 1) / N of the array twice.
        share = 2 * (dist.size() - 1) / dist.size()
        found["GB/s each way"] = share * array.size * 4 / took / 1e9
        width = int((kibibytes << 8) ** 0.5)
        net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=width, name="fc")
        for shard in ("none", "optimizer", "weights"):
            module = mx.mod.Module(
                mx.sym.SoftmaxOutput(net, name="softmax"),
                context=context,
                ranks=mx.memplan.Ranks(shard=shard),
            )
            module.bind([("data", (8, width))], [("softmax_label", (8,))])
            module.init_params(mx.init.Xavier())
            module.init_optimizer("dist_sync", "adam")
            x = mx.nd.ones((8, width), ctx=context)
            batch = mx.io.DataBatch([x], [mx.nd.zeros((8,), ctx=context)])

            def step(module: mx.mod.Module = module, batch: mx.io.DataBatch = batch) -> None:
                module.forward_backward(batch)
                module.update()

            found[f"seconds of a step, shared: {shard}"] = seconds(step)
            assert module.measured_bytes == module.memory_plan.peak_bytes
            del module, step
    if dist.rank() == 0:
        print(json.dumps(found))


main(sys.argv[1], int(sys.argv[2]))
