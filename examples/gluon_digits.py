"""Gluon inside a byte budget: the same network as a program without a budget, and within one.

    python examples/gluon_digits.py --budget 1.2MiB

A residual network of handwritten digits. `hybridize(memory_budget=...)` makes its plan recompute what it
has no room to keep; the weights must be equal to the last bit with and without a budget.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np

import mxlite as mx
from mxlite import autograd, gluon
from mxlite.gluon import nn


class Residual(gluon.HybridBlock):
    """x + convolution(relu(norm(x)))."""

    def __init__(self, channels, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.norm = nn.BatchNorm()
            self.convolution = nn.Conv2D(channels, 3, padding=1)

    def hybrid_forward(self, F, x):
        return x + self.convolution(F.relu(self.norm(x)))


def network(blocks: int) -> nn.HybridSequential:
    """The network, with the same first weights each time."""
    mx.random.seed(7)
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(nn.Conv2D(16, 3, padding=1), *[Residual(16) for _ in range(blocks)])
        net.add(nn.BatchNorm(), nn.Activation("relu"), nn.GlobalAvgPool2D(), nn.Dense(10))
    net.initialize(mx.init.Xavier())
    return net


def train(net: nn.HybridSequential, epochs: int, batch_size: int) -> tuple[float, int]:
    """Accuracy on images that it has not seen, and the planned bytes of training."""
    train_x, train_y, test_x, test_y = mx.io.load_digits()
    np.random.seed(7)  # the loader's order
    data = gluon.data.ArrayDataset(train_x, train_y)
    batches = gluon.data.DataLoader(data, batch_size, shuffle=True, last_batch="discard")
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    loss_of.hybridize()  # so a step with its update is one program
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.01})
    for _ in range(epochs):
        for x, y in batches:
            with autograd.record():
                loss = loss_of(net(x), y)
            loss.backward()
            trainer.step(batch_size)
    planned = net.memory_plan.peak_bytes
    images = gluon.data.DataLoader(gluon.data.ArrayDataset(test_x), batch_size)
    found = np.concatenate([net(x).asnumpy().argmax(1) for x in images])
    return float((found == test_y).mean()), planned


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--blocks", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--budget", default="1.2MiB", help="bytes, or text such as 1.2MiB (the default)")
    args = parser.parse_args()
    for name, value in vars(args).items():
        if type(value) is int and value < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1, got {value}")
    try:
        mx.parse_bytes(args.budget)
    except mx.BudgetError as error:
        parser.error(str(error))

    weights = []
    for budget in (None, args.budget):
        net = network(args.blocks)
        net.hybridize(memory_budget=budget)
        try:
            accuracy, planned = train(net, args.epochs, args.batch_size)
        except mx.MemoryBudgetError as error:
            sys.exit(str(error))
        print(f"Budget {budget}: {planned:,} bytes planned, held-out accuracy {100 * accuracy:.1f} %")
        weights.append([p.data().asnumpy() for p in net.collect_params().values()])
    print("bitwise equal:", all(np.array_equal(a, b) for a, b in zip(*weights)))


if __name__ == "__main__":
    main()
