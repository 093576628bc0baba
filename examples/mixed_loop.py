"""Symbolic network, imperative update: the loop is yours, the order is the engine's.

    python examples/mixed_loop.py

`forward` and `backward` push segments of a planned program, `w -= eta * g` pushes an operation on
arrays. Each names what it reads and writes, so each update starts as soon as its gradient is there,
while backward is still busy with the layers below. Nothing waits until somebody looks at a number.

The same training is then run as one fused, planned step. The weights must be equal to the last bit.
"""

from __future__ import annotations

import argparse

import numpy as np

import mxlite as mx


def lenet(classes: int) -> mx.sym.Symbol:
    """LeNet for 8x8 images (Y. LeCun et al. 1998, "Gradient-based learning applied to document "
    "recognition")."""
    data = mx.sym.Variable("data")
    for i, filters in enumerate((16, 32)):
        data = mx.sym.Convolution(data, kernel=(3, 3), pad=(1, 1), num_filter=filters, name=f"conv{i + 1}")
        data = mx.sym.Activation(data, act_type="tanh", name=f"tanh{i + 1}")
        data = mx.sym.Pooling(data, kernel=(2, 2), stride=(2, 2), pool_type="max", name=f"pool{i + 1}")
    data = mx.sym.FullyConnected(mx.sym.Flatten(data), num_hidden=64, name="fc1")
    data = mx.sym.Activation(data, act_type="tanh", name="tanh3")
    data = mx.sym.FullyConnected(data, num_hidden=classes, name="fc2")
    return mx.sym.SoftmaxOutput(data, name="softmax")


def start(arrays: dict[str, mx.nd.NDArray], seed: int) -> None:
    """The same first weights for every executor."""
    mx.random.seed(seed)
    for name, array in arrays.items():
        if name not in ("data", "softmax_label"):
            mx.init.Xavier()(mx.init.InitDesc(name), array)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--eta", type=float, default=0.1, help="learning rate (default 0.1)")
    args = parser.parse_args()
    for name, value in vars(args).items():
        if type(value) is int and value < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1, got {value}")

    train_x, train_y, test_x, test_y = mx.io.load_digits()
    net = lenet(10)
    n = args.batch_size
    shapes = dict(data=(n, *train_x.shape[1:]), softmax_label=(n,))
    batches = [(train_x[i : i + n], train_y[i : i + n]) for i in range(0, len(train_x) - n + 1, n)]

    # SoftmaxOutput's gradient is the sum over the batch: divide, as Module does.
    eta = args.eta / n
    exe = net.simple_bind(
        mx.cpu(), grad_req={k: "write" for k in net.list_arguments() if k not in shapes}, **shapes
    )
    start(exe.arg_dict, seed=7)
    for epoch in range(args.epochs):
        hits = 0
        for x, y in batches:
            exe.forward(is_train=True, data=x, softmax_label=y)
            exe.backward()
            for name, g in exe.grad_dict.items():
                if g is not None:
                    w = exe.arg_dict[name]
                    w -= eta * g
            hits += int((exe.outputs[0].asnumpy().argmax(axis=1) == y).sum())
        print(f"epoch {epoch + 1}: {100 * hits / (len(batches) * n):.2f} % of the training images")

    fused = net.simple_bind(mx.cpu(), optimizer=mx.optimizer.SGD(), **shapes)
    start(fused.arg_dict, seed=7)
    rates = np.tile([eta, 0.0], (len(fused.updated), 1))  # learning rate and weight decay of each parameter
    for _ in range(args.epochs):
        for x, y in batches:
            fused.step(rates, data=x, softmax_label=y)
    same = all(np.array_equal(exe.arg_dict[k].asnumpy(), fused.arg_dict[k].asnumpy()) for k in fused.updated)
    print(
        f"The fused step owns {fused.memory_plan.peak_bytes:,} bytes, the loop "
        f"{exe.memory_plan.peak_bytes:,}."
    )
    print(f"Weights of loop and fused step are bitwise equal: {same}")

    hits = 0
    for i in range(0, len(test_x) - n + 1, n):
        exe.forward(data=test_x[i : i + n])
        hits += int((exe.outputs[0].asnumpy().argmax(axis=1) == test_y[i : i + n]).sum())
    print(f"held out: {100 * hits / (len(test_x) // n * n):.2f} %")
    if not same:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
