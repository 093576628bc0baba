"""Training that is stopped and goes on, on all ranks; checkpoints that all ranks write to one prefix."""

from __future__ import annotations

import sys

import numpy as np

import mxlite as mx

folder = sys.argv[1]
store = mx.kv.create("dist_sync")
rank = store.rank


def fitted(epochs, **how):
    mx.random.seed(3 + rank)
    np.random.seed(5 + rank)
    rng = np.random.default_rng(rank)
    data = mx.io.NDArrayIter(
        rng.standard_normal((32, 6)).astype("float32"), rng.integers(0, 3, 32), 8, shuffle=True
    )
    x = mx.sym.BatchNorm(mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=16, name="fc1"), name="bn")
    x = mx.sym.FullyConnected(mx.sym.Dropout(mx.sym.tanh(x), p=0.5), num_hidden=3, name="fc2")
    module = mx.mod.Module(mx.sym.SoftmaxOutput(x, name="softmax"), amp="float16", loss_scale="dynamic")
    module.fit(
        data, num_epoch=epochs, kvstore="dist_sync", optimizer="adam", initializer=mx.init.Xavier(), **how
    )
    args, aux = module.get_params()
    return {n: a.asnumpy() for n, a in (args | aux).items()}, module.loss_scale


own = f"{folder}/rank{rank}"
straight = fitted(4, epoch_end_callback=mx.callback.do_checkpoint(f"{folder}/all"))
for prefix in (own, f"{folder}/together"):
    fitted(2, checkpoint_prefix=prefix)
    resumed = fitted(4, checkpoint_prefix=prefix, resume=True)
    assert resumed[1] == straight[1]
    for n, value in straight[0].items():
        assert np.array_equal(value, resumed[0][n]), n
mx.dist.barrier()
_, args, _ = mx.model.load_checkpoint(f"{folder}/all", 4)
assert all(np.array_equal(a.asnumpy(), straight[0][n]) for n, a in args.items())
try:  # the last rank has nothing to go on from
    fitted(4, checkpoint_prefix=own if rank < store.num_workers - 1 else f"{folder}/nothing", resume=True)
except mx.BindError as error:
    assert "The position to go on from of rank 1 differs" in str(error), error
    assert "Rank 1: none. Rank 0: epoch 4" in str(error), error
else:
    raise AssertionError("nothing was raised")

mx.dist.barrier()
if rank == 0:
    print("resumed")
