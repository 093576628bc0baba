"""Stores that ranks share, gradient compression, and Gluon's Trainer, against numpy and one process."""

from __future__ import annotations

import sys

import numpy as np

import mxlite as mx
from mxlite import gluon
from mxlite.dist import compression

kv = mx.kv.create("dist_sync")
me, size = kv.rank, kv.num_workers
assert (size, kv.type) == (int(sys.argv[1]), "dist_sync")


def same(got, want, what):
    assert np.array_equal(got, want), f"{what} on rank {me}:\n{got}\n{want}"


def of(rank, *shape, seed=0):
    return np.random.default_rng([rank, seed]).standard_normal(shape).astype("float32")


# A store: rank 0 gives the first value, what all push is added up, and an updater sees the sum.
kv.init("w", mx.nd.array(of(me, 3, 2)))
out = mx.nd.zeros((3, 2))
kv.pull("w", out=out)
same(out.asnumpy(), of(0, 3, 2), "init")
total = of(0, 3, 2, seed=1)
for r in range(1, size):
    total = total + of(r, 3, 2, seed=1)
kv.pushpull("w", mx.nd.array(of(me, 3, 2, seed=1)), out=out)
same(out.asnumpy(), total, "pushpull")
kv.push("w", [mx.nd.ones((3, 2)) * me, mx.nd.ones((3, 2))])  # as of two devices
kv.pull("w", out=out)
same(out.asnumpy(), np.full((3, 2), sum(range(size)) + size), "push of two")
kv.broadcast("b", mx.nd.array([me + 5.0]), out=mx.nd.zeros((1,)))
kv.init("table", mx.nd.ones((2 * size + 1, 2)))
kv.set_optimizer(mx.optimizer.SGD(learning_rate=1.0, momentum=0.5))
for _ in range(2):  # each rank reaches the rows 2 r and 2 r + 1; the last row stays, momentum or not
    rows = mx.nd.sparse.row_sparse_array(
        (np.ones((2, 2), np.float32), [2 * me, 2 * me + 1]), shape=(2 * size + 1, 2)
    )
    kv.push("table", rows)
picked = mx.nd.sparse.zeros("row_sparse", (2 * size + 1, 2))
kv.row_sparse_pull("table", out=picked, row_ids=mx.nd.array([0, 2 * size - 1, 2 * size]))
wanted = np.zeros((2 * size + 1, 2))
wanted[[0, 2 * size - 1]], wanted[2 * size] = 1 - 1 - 1.5, 1
same(picked.asnumpy(), wanted, "rows")
kv.barrier()

# Compression: numpy's model of MXNet's documentation, for lengths that end in a byte or a piece, or do not.
compression.PIECE = 64
kv = mx.kv.create("dist_sync")
kv.set_gradient_compression({"type": "2bit", "threshold": 0.5})
for n in (1, 4, 63, 64, 130):
    kv.init(f"g{n}", mx.nd.zeros((n,)))
    residual = np.zeros((size, n), np.float32)
    for i in range(4):
        kv.push(f"g{n}", mx.nd.array(of(me, n, seed=i)))
        out, sent = mx.nd.zeros((n,)), np.zeros(n, np.float32)
        for r in range(size):
            residual[r] += of(r, n, seed=i)
            some = np.where(residual[r] >= 0.5, 0.5, np.where(residual[r] <= -0.5, -0.5, 0)).astype("float32")
            residual[r] -= some
            sent += some
        kv.pull(f"g{n}", out=out)
        same(out.asnumpy(), sent, f"2 bits of {n}, push {i}")
for wrong in ({"type": "1bit"}, {"threshold": 0}, {"thresold": 1}, 3):
    try:
        kv.set_gradient_compression(wrong)
    except mx.MXLiteError:
        continue
    raise AssertionError(wrong)

# Module: the same numbers as by hand, in the bytes that were planned, with an update behind the step.
mx.random.seed(me)
net = mx.sym.SoftmaxOutput(
    mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3, name="fc"), name="softmax"
)
module = mx.mod.Module(net, fused_update=True, compression_params={"type": "2bit", "threshold": 0.25})
module.bind([("data", (4, 5))], [("softmax_label", (4,))])
module.init_params(mx.init.Xavier())
module.init_optimizer("dist_sync", "sgd", {"learning_rate": 0.5, "rescale_grad": 1.0})
before = {n: a.asnumpy() for n, a in module.get_params()[0].items()}
module.forward_backward(mx.io.DataBatch([mx.nd.array(of(me, 4, 5))], [mx.nd.array(np.arange(4) % 3)]))
module.update()
assert not module.is_fused and module.measured_bytes == module.memory_plan.peak_bytes
moved = {n: a.asnumpy() - before[n] for n, a in module.get_params()[0].items()}
assert all(np.isclose(m / 0.125, np.round(m / 0.125), atol=1e-5).all() for m in moved.values()), moved
mx.dist.agree("Compressed", repr({n: a.asnumpy().tobytes() for n, a in module.get_params()[0].items()}))

# A store that a fused module fills: its states come back into the step's own arrays.
kv = mx.kv.create("dist_sync")
module = mx.mod.Module(net, fused_update=True)
module.bind([("data", (4, 5))], [("softmax_label", (4,))])
module.init_params(mx.init.Xavier())
module.init_optimizer(kv, "sgd", {"learning_rate": 0.5, "momentum": 0.9})
data = mx.io.DataBatch([mx.nd.array(of(me, 4, 5))], [mx.nd.array(np.arange(4) % 3)])


def moved():
    """How far the next step moves the weight from where it is set to."""
    module.set_params({n: mx.nd.zeros(a.shape) for n, a in module.get_params()[0].items()}, {})
    module.forward_backward(data)
    module.update()
    return module.get_params()[0]["fc_weight"].asnumpy()


moved()
file = f"{sys.argv[2]}/{me}.states"
kv.save_optimizer_states(file)
second = moved()
moved()
kv.load_optimizer_states(file)
assert module.is_fused
same(moved(), second, "states of a fused module from a store")

# Gluon: deferred parameters begin as rank 0's; a hybridized step gives the bits of one that is not.


def train(kvstore, hybrid, batches):
    """Parameters after a step with each of `batches`, several of which one process adds up."""
    mx.random.seed(me + 1)
    net = gluon.nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(gluon.nn.Embedding(20, 4, sparse_grad=not hybrid))
        net.add(gluon.nn.Dense(8, activation="relu"), gluon.nn.Dense(3))
    net.initialize(mx.init.Xavier())
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    if hybrid:
        net.hybridize()
        loss_of.hybridize()
    params = net.collect_params()
    trainer = gluon.Trainer(params, "sgd", {"learning_rate": 0.2, "momentum": 0.9}, kvstore=kvstore)
    for batch in batches:
        sums = {}
        for x, y in batch:
            with mx.autograd.record():
                loss = loss_of(net(mx.nd.array(x)), mx.nd.array(y))
            loss.backward()
            if kvstore is None:
                for n, p in params.items():
                    grad = p.grad()
                    sums[n] = sums[n] + grad if n in sums else grad.copy()
        for n, total in sums.items():
            total.copyto(params[n].grad())
        trainer.step(4 * size)
    return {n: p.data().asnumpy() for n, p in params.items()}


def batch(i, rank):
    rng = np.random.default_rng([i, rank])
    return rng.integers(0, 20, (4, 3)), rng.integers(0, 3, 4)


for hybrid in (True, False):
    found = train("dist_sync", hybrid, [[batch(i, me)] for i in range(6)])
    mx.dist.agree("Gluon's parameters", *(f"{n} {a.tobytes().hex()}" for n, a in found.items()))
    if me == 0:
        wanted = train(None, hybrid, [[batch(i, r) for r in range(size)] for i in range(6)])
        for n, value in wanted.items():
            same(found[n], value, f"Trainer, hybrid {hybrid}: {n}")
mx.dist.barrier()
if me == 0:
    print("stores agree")
