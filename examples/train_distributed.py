"""Ranks that train together: each has a part of the images, and all have the same bits.

    python -m mxlite.launch -n 2 examples/train_distributed.py --budget 1.2MiB

A residual network of handwritten digits. Each rank plans the same step inside the same budget of bytes; sums
of gradients over the ranks are part of it, and run while backward goes on. Without a launcher the program
trains alone.
"""

from __future__ import annotations

import argparse
import logging
import sys

import numpy as np

import mxlite as mx


def network(blocks: int) -> mx.sym.Symbol:
    """A residual network for 8x8 images."""
    x = mx.sym.Convolution(mx.sym.Variable("data"), kernel=(3, 3), pad=(1, 1), num_filter=16, name="stem")
    for i in range(blocks):
        y = mx.sym.BatchNorm(x, fix_gamma=False, name=f"norm{i}")
        y = mx.sym.Activation(y, act_type="relu", name=f"relu{i}")
        x = x + mx.sym.Convolution(y, kernel=(3, 3), pad=(1, 1), num_filter=16, name=f"convolution{i}")
    x = mx.sym.Pooling(x, global_pool=True, pool_type="avg", kernel=(1, 1), name="pool")
    x = mx.sym.FullyConnected(mx.sym.Flatten(x), num_hidden=10, name="classes")
    return mx.sym.SoftmaxOutput(x, name="softmax")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=32, help="images of each rank in a step")
    parser.add_argument("--blocks", type=int, default=8, help="residual blocks (default 8)")
    parser.add_argument("--budget", default="none", help="bytes of each rank, such as 1.2MiB (default: none)")
    args = parser.parse_args()
    for name, value in vars(args).items():
        if type(value) is int and value < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1, got {value}")
    try:
        budget = None if args.budget == "none" else mx.parse_bytes(args.budget)
    except mx.BudgetError as error:
        parser.error(f"--budget: {error}")

    store = mx.kv.create("dist_sync")
    rank, ranks = store.rank, store.num_workers
    logging.basicConfig(level=logging.INFO if rank == 0 else logging.WARNING, format="%(message)s")
    train_x, train_y, test_x, test_y = mx.io.load_digits()
    each = len(train_x) // ranks  # as many images for every rank, and so as many steps
    part = slice(rank * each, (rank + 1) * each)
    np.random.seed(7 + rank)
    batches = mx.io.NDArrayIter(
        train_x[part], train_y[part], args.batch_size, shuffle=True, last_batch_handle="discard"
    )
    held_out = mx.io.NDArrayIter(test_x, test_y, args.batch_size)

    module = mx.mod.Module(network(args.blocks), memory_budget=budget)
    try:
        module.fit(
            batches,
            num_epoch=args.epochs,
            kvstore=store,
            optimizer="adam",
            optimizer_params={"learning_rate": 0.01},
            initializer=mx.init.Xavier(),
        )
    except mx.MemoryBudgetError as error:
        sys.exit(f"train_distributed: {error}")
    accuracy = module.score(held_out, "acc")[0][1]
    of_first = {n: mx.dist.broadcast(a) for n, a in sorted(module.get_params()[0].items())}
    same = all(np.array_equal(a.asnumpy(), module.get_params()[0][n].asnumpy()) for n, a in of_first.items())
    differing = mx.dist.allreduce(mx.nd.array([0 if same else 1]), average=False)
    mx.dist.barrier()
    if rank == 0:
        print(f"Ranks: {ranks}; planned bytes of each: {module.memory_plan.peak_bytes:,}")
        print(f"Measured bytes of rank 0: {module.measured_bytes:,}")
        print(f"Held-out accuracy: {100 * accuracy:.2f} %")
        print(f"Parameters of all ranks are bitwise equal: {differing.asnumpy()[0] == 0}")


if __name__ == "__main__":
    main()
