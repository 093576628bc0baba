"""An unrolled LSTM learns to spell, with full back-propagation through time inside a named budget.

    python examples/train_lstm.py --steps 64 --budget 12MiB
    python examples/train_lstm.py --devices 2 --budget 8MiB

With several devices the layers are spread over them: a layer computes a time step while the one below it is
at the next step. Each device has a plan of its own, within the budget.

The text is the reference manual that comes with Python (pydoc's topics), or any file of yours.
"""

from __future__ import annotations

import argparse
import math
import pydoc_data.topics
import sys

import numpy as np

import mxlite as mx


def unrolled_lstm(steps: int, layers: int, hidden: int, vocabulary: int, dropout: float) -> mx.sym.Symbol:
    """`steps` copies of an LSTM with shared weights; one softmax over all time steps.

    S. Hochreiter, J. Schmidhuber 1997, "Long short-term memory"; gates in the order i, f, c, o.
    data: (N, T) characters; label: (N, T) the ones that follow; init_c, init_h: (L, N, H). Each layer is in a
    group of its own, the scores are in that of the last one.
    """
    kinds = ("i2h_weight", "i2h_bias", "h2h_weight", "h2h_bias")
    weights = []
    for layer in range(layers):
        with mx.AttrScope(ctx_group=f"layer{layer}"):
            weights.append({kind: mx.sym.Variable(f"lstm{layer}_{kind}") for kind in kinds})
    embed = mx.sym.Embedding(mx.sym.Variable("data"), input_dim=vocabulary, output_dim=hidden, name="embed")
    inputs = mx.sym.SliceChannel(embed, num_outputs=steps, axis=1, squeeze_axis=True, name="inputs")
    state = {
        s: mx.sym.SliceChannel(
            mx.sym.Variable(f"init_{s}"), num_outputs=layers, axis=0, squeeze_axis=True, name=s
        )
        for s in "ch"
    }
    c = [state["c"][layer] for layer in range(layers)]
    h = [state["h"][layer] for layer in range(layers)]
    outputs = []
    for t in range(steps):
        x = inputs[t]
        for layer in range(layers):
            name = f"t{t}_l{layer}"
            with mx.AttrScope(ctx_group=f"layer{layer}"):
                if dropout and layer:
                    x = mx.sym.Dropout(x, p=dropout, name=f"{name}_drop")
                c[layer], h[layer] = cell(x, c[layer], h[layer], weights[layer], hidden, name)
            x = h[layer]
        outputs.append(x)
    with mx.AttrScope(ctx_group=f"layer{layers - 1}"):
        scores = mx.sym.FullyConnected(mx.sym.Concat(*outputs, dim=0), num_hidden=vocabulary, name="scores")
        label = mx.sym.Reshape(mx.sym.transpose(mx.sym.Variable("softmax_label")), shape=(-1,))
        return mx.sym.SoftmaxOutput(scores, label, name="softmax")


def cell(x, c, h, w: dict[str, mx.sym.Symbol], hidden: int, name: str) -> tuple[mx.sym.Symbol, mx.sym.Symbol]:
    """The states c and h after one time step of one layer."""
    i2h = mx.sym.FullyConnected(x, w["i2h_weight"], w["i2h_bias"], num_hidden=4 * hidden, name=f"{name}_i2h")
    h2h = mx.sym.FullyConnected(h, w["h2h_weight"], w["h2h_bias"], num_hidden=4 * hidden, name=f"{name}_h2h")
    gates = mx.sym.SliceChannel(i2h + h2h, num_outputs=4, name=f"{name}_gates")
    keep = mx.sym.Activation(gates[1], act_type="sigmoid") * c
    new = mx.sym.Activation(gates[0], act_type="sigmoid") * mx.sym.Activation(gates[2], act_type="tanh")
    c = keep + new
    return c, mx.sym.Activation(gates[3], act_type="sigmoid") * mx.sym.Activation(c, act_type="tanh")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--text", help="a text file (default: Python's reference manual)")
    parser.add_argument("--characters", type=int, default=60_000, help="how much of it to learn from")
    parser.add_argument("--steps", type=int, default=64, help="characters that the network is unrolled over")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--hidden", type=int, default=96)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--lr", type=float, default=0.005)
    parser.add_argument("--budget", default="12MiB", help="bytes for everything on each device, or 'none'")
    parser.add_argument("--devices", type=int, default=1, help="CPUs over which the layers are spread")
    args = parser.parse_args()
    for name, value in vars(args).items():
        if type(value) is int and value < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1, got {value}")
    try:
        mx.parse_bytes("1" if args.budget.lower() == "none" else args.budget)
    except mx.BudgetError as error:
        parser.error(str(error))
    mx.random.seed(1)
    np.random.seed(1)

    if args.text:
        with open(args.text, encoding="utf-8", errors="replace") as file:
            text = file.read(args.characters)
    else:
        text = "\n".join(v for _, v in sorted(pydoc_data.topics.topics.items()))[: args.characters]
    alphabet = sorted(set(text))
    codes = np.array([alphabet.index(ch) for ch in text], np.float32)
    count = (len(codes) - 1) // args.steps
    if count < args.batch_size:
        raise SystemExit(
            f"{len(codes)} characters make {count} sequences, fewer than a batch of {args.batch_size}."
        )
    data = codes[: count * args.steps].reshape(count, args.steps)
    label = codes[1 : count * args.steps + 1].reshape(count, args.steps)

    net = unrolled_lstm(args.steps, args.layers, args.hidden, len(alphabet), args.dropout)
    n, states = args.batch_size, (args.layers, args.batch_size, args.hidden)
    shapes = dict(data=(n, args.steps), softmax_label=(n, args.steps), init_c=states, init_h=states)
    # SoftmaxOutput sums its gradient over batch and time: take the mean.
    optimizer = mx.optimizer.Adam(learning_rate=args.lr, rescale_grad=1.0 / (n * args.steps))
    budget = None if args.budget.lower() == "none" else args.budget
    places = {f"layer{n}": mx.cpu(n * args.devices // args.layers) for n in range(args.layers)}
    try:
        exe = net.simple_bind(mx.cpu(), group2ctx=places, memory_budget=budget, optimizer=optimizer, **shapes)
    except mx.MemoryBudgetError as error:
        print(error, file=sys.stderr)
        return 3
    print(
        f"{count} sequences of {args.steps} characters out of {len(alphabet)}; {args.layers} x "
        f"{args.hidden} units"
    )
    for device in exe.devices:
        print(f"{device.context}: {device.memory_plan.summary()}", flush=True)
    initializer = mx.init.Xavier()
    for name in exe.updated:
        initializer(mx.init.InitDesc(name), exe.arg_dict[name])
    for layer in range(args.layers):  # an open forget gate lets gradients through from the start
        exe.arg_dict[f"lstm{layer}_i2h_bias"][args.hidden : 2 * args.hidden] = 1.0

    rng = np.random.default_rng(0)
    index = {name: i for i, name in enumerate(exe.updated)}
    perplexity = float("inf")
    for epoch in range(args.epochs):
        order, nats, seen = rng.permutation(count), 0.0, 0
        for i in range(0, count - n + 1, n):
            rows = order[i : i + n]
            hyper = [optimizer.hyper(index[name]) for name in exe.updated]
            exe.step(hyper, data=data[rows], softmax_label=label[rows])
            p = exe.outputs[0].asnumpy()[np.arange(n * args.steps), label[rows].T.reshape(-1).astype(int)]
            nats -= float(np.log(np.maximum(p, 1e-12)).sum())
            seen += p.size
        perplexity = math.exp(nats / seen)
        print(f"epoch {epoch + 1}: perplexity {perplexity:.2f} of {len(alphabet)}", flush=True)
    for d in exe.devices:
        print(f"{d.context}: planned peak {d.planned_bytes:,} bytes, measured {d.measured_bytes:,} bytes")
    return 0 if all(d.planned_bytes == d.measured_bytes for d in exe.devices) else 1


if __name__ == "__main__":
    sys.exit(main())
