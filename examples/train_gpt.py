"""Ranks train a small GPT in a budget that no single one could keep, on the source of Python's library.

    python -m mxlite.launch -n 2 examples/train_gpt.py

Each rank has its own sequences, and a part of Adam's states, because otherwise its budget would not do; the
plan found that out before the first step. `python examples/train_gpt.py` is refused, and told how many ranks
it takes.
"""

from __future__ import annotations

import argparse
import os
import sys

import numpy as np

import mxlite as mx


def source(characters: int) -> str:
    """The beginning of the modules of Python's library, one after another."""
    folder, text = os.path.dirname(os.__file__), ""
    for name in sorted(n for n in os.listdir(folder) if n.endswith(".py")):
        if len(text) >= characters:
            break
        with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
            text += file.read(characters - len(text))
    return text


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--characters", type=int, default=100_000, help="how much of it to learn from")
    parser.add_argument("--length", type=int, default=32, help="characters that the network sees at a time")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--width", type=int, default=192)
    parser.add_argument("--batch-size", type=int, default=4, help="sequences of each rank in a step")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--budget", default="10MiB", help="bytes of each rank (default 10MiB)")
    args = parser.parse_args()
    for name, value in vars(args).items():
        if type(value) is int and value < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1, got {value}")
    try:
        budget = mx.parse_bytes(args.budget)
    except mx.BudgetError as error:
        parser.error(str(error))

    store = mx.kv.create("dist_sync")
    rank, ranks = store.rank, store.num_workers
    text = source(args.characters)
    alphabet = sorted(set(text))
    place = {ch: i for i, ch in enumerate(alphabet)}
    codes = np.array([place[ch] for ch in text], np.float32)
    n, length = args.batch_size, args.length
    count = (len(codes) - 1) // length
    steps = count // (n * ranks)
    if not steps:
        parser.error(f"{count} sequences are fewer than {ranks} ranks have in a step, {n * ranks}")
    data = codes[: count * length].reshape(count, length)
    label = codes[1 : count * length + 1].reshape(count, length)

    net = mx.models.transformer_decoder(
        args.layers, args.width, 4, 4 * args.width, len(alphabet), length, dropout=0.1
    )
    module = mx.mod.Module(net, memory_budget=budget, fused_update=True)
    mx.random.seed(1 + rank)  # each rank drops other units; all begin with the weights of rank 0
    try:
        module.bind([("data", (n, length))], [("softmax_label", (n * length,))])
        module.init_params(mx.init.Xavier())
        module.init_optimizer(
            store, "adam", {"learning_rate": 0.002, "rescale_grad": 1 / (ranks * n * length)}
        )
    except mx.MemoryBudgetError as error:
        if rank == 0:
            print(error, file=sys.stderr)
        mx.dist.barrier()
        return 3
    if rank == 0:
        print(module.memory_plan.summary(), flush=True)

    order = np.random.default_rng(0)
    for epoch in range(args.epochs):
        nats, rows = 0.0, order.permutation(count)  # the same on all ranks, of which each takes its part
        for step in range(steps):
            own = rows[(step * ranks + rank) * n :][:n]
            batch = mx.io.DataBatch([mx.nd.array(data[own])], [mx.nd.array(label[own].reshape(-1))])
            module.forward_backward(batch)
            module.update()
            scores = module.get_outputs()[0].asnumpy()
            nats -= float(np.log(scores[np.arange(n * length), label[own].reshape(-1).astype(int)]).mean())
        mean = mx.dist.allreduce(mx.nd.array([nats / steps])).asscalar()
        if rank == 0:
            print(
                f"epoch {epoch + 1}: perplexity {np.exp(mean):.1f} of {len(alphabet)} characters", flush=True
            )
    mx.dist.barrier()
    if rank == 0:
        print(f"Ranks: {ranks}; planned bytes of each: {module.memory_plan.peak_bytes:,}")
        print(f"Measured bytes of rank 0: {module.measured_bytes:,}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
