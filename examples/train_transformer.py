"""A transformer reads digits row by row, trained inside a named budget.

    python examples/train_transformer.py --budget 5MiB

Attention never holds its table of scores: its memory grows with the length of the sequence, not with the
square. The plan is printed before anything is allocated; at the end planned and measured bytes stand side by
side.
"""

from __future__ import annotations

import argparse
import logging
import sys

import numpy as np

import mxlite as mx

CLASSES = 10


def encoder(rows: int, width: int, heads: int, layers: int, dropout: float) -> mx.sym.Symbol:
    """Pre-norm transformer encoder over `rows` rows of an image; the mean over them is classified.

    A. Vaswani et al. 2017, "Attention is all you need"; R. Xiong et al. 2020, "On layer normalization in the
    transformer architecture". data: (N, rows, columns); softmax_label: (N,).
    """

    def dense(x: mx.sym.Symbol, units: int, name: str) -> mx.sym.Symbol:
        return mx.sym.FullyConnected(x, num_hidden=units, flatten=False, name=name)

    def split_heads(x: mx.sym.Symbol) -> mx.sym.Symbol:
        return mx.sym.transpose(mx.sym.Reshape(x, shape=(0, 0, heads, -1)), axes=(0, 2, 1, 3))

    position = mx.sym.Variable("position_weight", shape=(1, rows, width))
    x = mx.sym.broadcast_add(dense(mx.sym.Variable("data"), width, "embed"), position, name="positioned")
    for i in range(layers):
        name = f"layer{i}"
        normal = mx.sym.LayerNorm(x, name=f"{name}_norm1")
        query, key, value = (split_heads(dense(normal, width, f"{name}_{part}")) for part in "qkv")
        seen = mx.sym.scaled_dot_product_attention(query, key, value, name=f"{name}_attention")
        seen = mx.sym.Reshape(mx.sym.transpose(seen, axes=(0, 2, 1, 3)), shape=(0, 0, -3))
        x = x + mx.sym.Dropout(dense(seen, width, f"{name}_out"), p=dropout)
        normal = mx.sym.LayerNorm(x, name=f"{name}_norm2")
        hidden = mx.sym.gelu(dense(normal, 4 * width, f"{name}_wide"))
        x = x + mx.sym.Dropout(dense(hidden, width, f"{name}_narrow"), p=dropout)
    pooled = mx.sym.mean(mx.sym.LayerNorm(x, name="norm"), axis=1)
    return mx.sym.SoftmaxOutput(
        mx.sym.FullyConnected(pooled, num_hidden=CLASSES, name="scores"), name="softmax"
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--lr", type=float, default=0.002)
    parser.add_argument("--budget", default="5MiB", help="bytes for everything, or 'none'")
    args = parser.parse_args()
    for name, value in vars(args).items():
        if type(value) is int and value < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1, got {value}")
    try:
        mx.parse_bytes("1" if args.budget.lower() == "none" else args.budget)
    except mx.BudgetError as error:
        parser.error(str(error))
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    mx.random.seed(1)
    np.random.seed(1)

    images, classes, held_images, held_classes = mx.io.load_digits()
    rows, columns = images.shape[-2:]
    train = mx.io.NDArrayIter(
        images.reshape(-1, rows, columns), classes, batch_size=args.batch_size, shuffle=True
    )
    held = mx.io.NDArrayIter(held_images.reshape(-1, rows, columns), held_classes, batch_size=args.batch_size)

    net = encoder(rows, args.width, args.heads, args.layers, args.dropout)
    optimizer = mx.optimizer.AdamW(learning_rate=args.lr, wd=0.01, rescale_grad=1.0 / args.batch_size)
    budget = None if args.budget.lower() == "none" else args.budget
    module = mx.mod.Module(net, context=mx.cpu(), memory_budget=budget)
    try:
        module.fit(
            train,
            eval_data=held,
            optimizer=optimizer,
            initializer=mx.init.Xavier(),
            num_epoch=args.epochs,
        )
    except mx.MemoryBudgetError as error:
        print(error, file=sys.stderr)
        return 3
    print(module.memory_plan.summary())
    print(f"Held-out accuracy: {100 * dict(module.score(held, 'acc'))['accuracy']:.2f} %")
    print(f"Planned peak:  {module.memory_plan.peak_bytes:>12,} bytes")
    print(f"Measured peak: {module.measured_bytes:>12,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
