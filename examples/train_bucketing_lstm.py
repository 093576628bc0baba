"""A language model on sentences of many lengths: buckets that share parameters, one arena and one budget.

    python examples/train_bucketing_lstm.py --budget 2MiB

Each batch has sentences of about one length, and a network unrolled just so far. The sentences come from a
little grammar, so nothing has to be fetched; a file of yours does as well, one sentence a line.
"""

from __future__ import annotations

import argparse
import random
import sys

import numpy as np

import mxlite as mx

GRAMMAR = {
    "S": ["NP VP .", "NP VP and NP VP .", "when NP VP , NP VP ."],
    "NP": ["the N", "the A N", "a N", "a A N", "the N that VP"],
    "VP": ["V", "V NP", "V P NP", "V NP P NP"],
    "N": ["dog", "tree", "ship", "teacher", "river", "machine", "story"],
    "A": ["old", "green", "quiet", "large", "curious"],
    "V": ["sees", "follows", "forgets", "carries", "likes"],
    "P": ["near", "with", "behind", "under"],
}


def sentence(rng: random.Random) -> list[str]:
    """Words drawn from the grammar, leftmost symbol first."""
    open_, words = ["S"], []
    while open_:
        symbol = open_.pop(0)
        if symbol in GRAMMAR:
            open_ = rng.choice(GRAMMAR[symbol]).split() + open_
        else:
            words.append(symbol)
    return words


def generator(words: int, hidden: int, layers: int):
    """sym_gen(length): an LSTM unrolled over `length` words, and the names of its data and labels."""

    def sym_gen(length: int) -> tuple[mx.sym.Symbol, tuple[str, ...], tuple[str, ...]]:
        parts = ("i2h_weight", "i2h_bias", "h2h_weight", "h2h_bias")
        weights = [{p: mx.sym.Variable(f"l{n}_{p}") for p in parts} for n in range(layers)]
        embed = mx.sym.Embedding(mx.sym.Variable("data"), input_dim=words, output_dim=hidden, name="embed")
        inputs = mx.sym.SliceChannel(embed, num_outputs=length, axis=1, squeeze_axis=True)
        states: list[tuple[mx.sym.Symbol, mx.sym.Symbol] | None] = [None] * layers
        outputs = []
        for t in range(length):
            x = inputs[t]
            for n, w in enumerate(weights):
                gates = mx.sym.FullyConnected(x, w["i2h_weight"], w["i2h_bias"], num_hidden=4 * hidden)
                state = states[n]
                if state is not None:
                    gates = gates + mx.sym.FullyConnected(
                        state[1], w["h2h_weight"], w["h2h_bias"], num_hidden=4 * hidden
                    )
                i, f, c, o = mx.sym.SliceChannel(gates, num_outputs=4)
                cell = mx.sym.sigmoid(i) * mx.sym.tanh(c)
                if state is not None:
                    cell = mx.sym.sigmoid(f) * state[0] + cell
                x = mx.sym.sigmoid(o) * mx.sym.tanh(cell)
                states[n] = (cell, x)
            outputs.append(mx.sym.expand_dims(x, axis=1))
        joined = mx.sym.Reshape(mx.sym.Concat(*outputs, dim=1), shape=(-1, hidden))
        scores = mx.sym.FullyConnected(joined, num_hidden=words, name="scores")
        label = mx.sym.Reshape(mx.sym.Variable("softmax_label"), shape=(-1,))
        # Padding has label 0: it is not learnt. 'valid' divides by the number of words.
        net = mx.sym.SoftmaxOutput(
            scores, label, use_ignore=True, ignore_label=0, normalization="valid", name="softmax"
        )
        return net, ("data",), ("softmax_label",)

    return sym_gen


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--text", help="a text file, one sentence a line (default: the grammar's)")
    parser.add_argument("--sentences", type=int, default=3000)
    parser.add_argument("--buckets", type=int, nargs="+", default=[6, 10, 16, 24])
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--budget", default="4MiB", help="bytes for everything, or 'none'")
    args = parser.parse_args()
    for name, value in vars(args).items():
        if type(value) is int and value < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1, got {value}")
    try:
        mx.parse_bytes("1" if args.budget.lower() == "none" else args.budget)
    except mx.BudgetError as error:
        parser.error(str(error))
    rng = random.Random(1)
    random.seed(1)
    np.random.seed(1)
    mx.random.seed(1)

    if args.text:
        with open(args.text, encoding="utf-8", errors="replace") as file:
            text = [line.split() for line in file if line.strip()][: args.sentences]
    else:
        text = [sentence(rng) for _ in range(args.sentences)]
    coded, words = mx.rnn.encode_sentences(text, invalid_label=0, start_label=1)
    held_out = len(coded) // 10
    options = dict(batch_size=args.batch_size, buckets=args.buckets, invalid_label=0)
    train = mx.rnn.BucketSentenceIter(coded[held_out:], **options)
    test = mx.rnn.BucketSentenceIter(coded[:held_out], **options)

    budget = None if args.budget.lower() == "none" else args.budget
    module = mx.mod.BucketingModule(
        generator(len(words), args.hidden, args.layers),
        default_bucket_key=train.default_bucket_key,
        context=mx.cpu(),
        memory_budget=budget,
    )

    def report(epoch: int, *_: object) -> None:
        score = dict(module.score(test, mx.metric.Perplexity(0)))
        print(f"epoch {epoch + 1}: perplexity {score['perplexity']:.2f} of {len(words)} words", flush=True)

    try:
        module.fit(
            train,
            eval_metric=mx.metric.Perplexity(0),
            optimizer="adam",
            optimizer_params={"learning_rate": args.lr, "rescale_grad": 1.0},
            initializer=mx.init.Xavier(),
            epoch_end_callback=report,
            num_epoch=args.epochs,
        )
    except mx.MemoryBudgetError as error:
        print(error, file=sys.stderr)
        return 3
    print(f"Buckets {sorted(module.bucket_keys)} share parameters, states and one arena.")
    print(f"Planned {module.planned_bytes:,} bytes, measured {module.measured_bytes:,} bytes")
    return 0 if module.measured_bytes == module.planned_bytes else 1


if __name__ == "__main__":
    sys.exit(main())
