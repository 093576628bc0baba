"""SyncBatchNorm on all ranks against BatchNorm of one process that has the batches of all.

    norms.py RANKS [cpu | gpu | emulated]
"""

from __future__ import annotations

import sys

import numpy as np

import mxlite as mx
from tests.dist.programs.devices import device_of_this_rank

STEPS, N = 4, 3


def net(norm, dtype="float32"):
    x = mx.sym.Variable("data")
    for i in range(2):
        x = mx.sym.Convolution(x, kernel=(3, 3), pad=(1, 1), num_filter=5, no_bias=True, name=f"conv{i}")
        x = norm(x, fix_gamma=i == 1, momentum=0.7, name=f"bn{i}")
        x = mx.sym.relu(x)
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(x, num_hidden=3, name="fc"), name="softmax")


def sync(x, **how):
    return mx.sym.contrib.SyncBatchNorm(x, key=how["name"], ndev=7, **how)


def batch(step, rank, n, apart):
    """Images whose means are `apart` from rank to rank."""
    rng = np.random.default_rng([step, rank])
    return rng.standard_normal((n, 2, 6, 6)) * (1 + rank) + apart * rank, rng.integers(0, 3, n)


def trained(symbol, batches, kvstore, **how):
    mx.random.seed(5)
    module = mx.mod.Module(symbol, context=CONTEXT, **how)
    x, y = batches[0]
    module.bind([("data", x.shape)], [("softmax_label", y.shape)])
    module.init_params(mx.init.Xavier())
    params = {"learning_rate": 0.1, "momentum": 0.9, "rescale_grad": 1 / (N * mx.dist.size())}
    module.init_optimizer(kvstore, "sgd", params)
    for x, y in batches:
        module.forward_backward(mx.io.DataBatch([mx.nd.array(x)], [mx.nd.array(y)]))
        module.update()
    args, aux = module.get_params()
    return module, {n: a.asnumpy() for n, a in (args | aux).items()}


def check(what, last=(N, N), amp=None, tolerance=2e-5, apart=30, **how):
    """`last`: sizes of the last batch on rank 0 and on the others."""
    size, rank = mx.dist.size(), mx.dist.rank()
    sizes = [(N, N)] * (STEPS - 1) + [last]
    each = [[batch(s, r, n[r > 0], apart) for r in range(size)] for s, n in enumerate(sizes)]
    module, found = trained(net(sync), [row[rank] for row in each], "dist_sync", amp=amp, **how)
    assert last != (N, N) or module.measured_bytes == module.memory_plan.peak_bytes
    if "memory_budget" in how:
        assert module.measured_bytes <= how["memory_budget"]
    mx.dist.agree(what, "".join(f"{n} {a.tobytes().hex()}\n" for n, a in sorted(found.items())))
    if rank:  # whose own initial values may be others
        return module.memory_plan
    whole = [tuple(map(np.concatenate, zip(*row))) for row in each]
    _, want = trained(net(mx.sym.BatchNorm), whole, None, amp=amp)
    for n, value in want.items():
        near = np.abs(found[n] - value).max() / np.abs(value).max()
        assert near <= tolerance, f"{what}: {n} differs by {near:.1e} of its largest"
    return module.memory_plan


def gluon_trained(norm, batches, kvstore):
    """Parameters and averages after these batches, of a network whose first pass comes before its Trainer."""
    mx.random.seed(5)
    net = mx.gluon.nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(mx.gluon.nn.Conv2D(5, 3, padding=1), norm(momentum=0.7), mx.gluon.nn.Activation("relu"))
        net.add(norm(momentum=0.7, scale=False), mx.gluon.nn.Dense(3))
    net.initialize(mx.init.Xavier(), ctx=CONTEXT)
    net.hybridize()
    net(mx.nd.array(batches[0][0], ctx=CONTEXT))
    loss_of = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    params = {"learning_rate": 0.1, "momentum": 0.9}
    trainer = mx.gluon.Trainer(net.collect_params(), "sgd", params, kvstore=kvstore)
    for x, y in batches:
        with mx.autograd.record():
            loss = loss_of(net(mx.nd.array(x, ctx=CONTEXT)), mx.nd.array(y, ctx=CONTEXT))
        loss.backward()
        trainer.step(N * mx.dist.size())
    return net, trainer, [p.data().asnumpy() for p in net.collect_params().values()]


def check_gluon():
    size, rank = mx.dist.size(), mx.dist.rank()
    each = [[batch(s, r, N, 30) for r in range(size)] for s in range(STEPS)]
    net, _trainer, found = gluon_trained(mx.gluon.contrib.nn.SyncBatchNorm, [row[rank] for row in each], "dist_sync")
    mx.dist.agree("Gluon's parameters", "".join(a.tobytes().hex() for a in found))
    whole = [tuple(map(np.concatenate, zip(*row))) for row in each]
    _, _, want = gluon_trained(mx.gluon.nn.BatchNorm, whole, None)
    for a, b in zip(found, want):
        near = np.abs(a - b).max() / max(np.abs(b).max(), 1e-3)
        assert near <= 1e-4, f"Gluon: {b.shape} differs by {near:.1e} of its largest"
    net.hybridize(False)
    try:
        with mx.autograd.record():
            net(mx.nd.array(each[0][rank][0], ctx=CONTEXT))
    except mx.StateError as error:
        assert "trains on 2 ranks, and is called by itself: hybridize()" in str(error), error
    else:
        raise AssertionError("nothing was raised")


mx.dist.init()
inside = device_of_this_rank((*sys.argv[2:3], "cpu")[0])
CONTEXT = inside.__enter__()
check_gluon()
plan = check("the update in the step", fused_update=True)
check("gradients that are seen", fused_update=False)
budget = (plan.peak_bytes + plan.lower_bound_bytes) // 2
check(f"{budget} bytes", fused_update=True, memory_budget=budget)
check("a smaller last batch", last=(2, 2), fused_update=True)
check("bfloat16", amp="bfloat16", tolerance=0.2, apart=1, fused_update=True)
try:
    check("a last batch of two sizes", last=(2, 1), fused_update=True)
except mx.OperatorError as error:
    assert "needs batches of one size on all ranks, but these have [72.0, 36.0" in str(error), error
else:
    raise AssertionError("nothing was raised")
inside.__exit__(None, None, None)
mx.dist.barrier()
if mx.dist.rank() == 0:
    print("norms agree")
