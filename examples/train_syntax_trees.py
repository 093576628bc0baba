"""Syntax trees of Python's standard library: from the tree of a function, which package is it from?

    python examples/train_syntax_trees.py --budget 64MiB

A Tree-LSTM over trees that differ in every sample, which mx.dynamic runs in batches, inside a byte budget. A
node of the syntax tree is a word (its kind, and its name where that is a frequent one) with two states: that
of its first child, and that of its next sibling.
"""

from __future__ import annotations

import argparse
import ast
import random
import sysconfig
from collections import Counter
from pathlib import Path

import mxlite as mx

sym = mx.sym
PACKAGES = ("asyncio", "email", "http", "importlib", "logging", "multiprocessing", "unittest", "xml")
WORDS = 400  # that are told apart

Tree = tuple[str, list]


def tree_of(node: ast.AST) -> Tree:
    """The word of a node, and the trees of its children."""
    word = type(node).__name__
    name = next((n for f in ("id", "attr", "arg") if isinstance(n := getattr(node, f, None), str)), "")
    return f"{word} {name}".rstrip(), [tree_of(c) for c in ast.iter_child_nodes(node)]


def size(tree: Tree) -> int:
    return 1 + sum(map(size, tree[1]))


def functions(most_nodes: int) -> list[tuple[Tree, int]]:
    """The functions of each package, with its number."""
    library, found = Path(sysconfig.get_path("stdlib")), []
    for label, package in enumerate(PACKAGES):
        for path in sorted((library / package).rglob("*.py")):
            module = ast.parse(path.read_text("utf-8"))
            for node in ast.walk(module):
                if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    tree = ("function", [tree_of(c) for c in ast.iter_child_nodes(node)])
                    if size(tree) <= most_nodes:
                        found.append((tree, label))
    return found


def words_of(samples: list[tuple[Tree, int]]) -> dict[str, int]:
    """Numbers of the most frequent words; 0 is for all others."""
    count: Counter[str] = Counter()
    for tree, _ in samples:
        stack = [tree]
        while stack:
            word, children = stack.pop()
            count[word] += 1
            stack += children
    return {word: i + 1 for i, (word, _) in enumerate(count.most_common(WORDS - 1))}


def network(width: int, words: dict[str, int], budget: str) -> mx.dynamic.Network:
    """Results for a sample: the logarithms of the packages' probabilities."""
    word = sym.Embedding(sym.var("word"), input_dim=WORDS, output_dim=width, name="words")
    word = sym.Dropout(word, p=0.3)
    both = sym.concat(word, sym.var("h1"), sym.var("h2"), dim=1)
    gates = sym.FullyConnected(both, num_hidden=5 * width, name="gates")
    i, f1, f2, o, u = sym.SliceChannel(gates, num_outputs=5)
    c = sym.sigmoid(i) * sym.tanh(u) + sym.sigmoid(f1) * sym.var("c1") + sym.sigmoid(f2) * sym.var("c2")
    states = dict.fromkeys(("h1", "c1", "h2", "c2"), width)
    node = mx.dynamic.Cell("node", sym.Group([sym.sigmoid(o) * sym.tanh(c), c]), states, {"word": ()})
    logits = sym.FullyConnected(sym.var("h"), num_hidden=len(PACKAGES), name="package")
    package = mx.dynamic.Cell("package", sym.log_softmax(logits), {"h": width})

    def of(tree: Tree) -> mx.dynamic.Handle:
        def states_of(trees: list[Tree]) -> tuple[mx.dynamic.Handle, mx.dynamic.Handle]:
            h, c = zero, zero
            for name, children in reversed(trees):
                h, c = node(*states_of(children), h, c, words.get(name, 0))
            return h, c

        return package(states_of([tree])[0])

    net = mx.dynamic.Network(of, [node, package], memory_budget=budget)
    zero = net.zeros(width)
    net.initialize(mx.init.Xavier())
    return net


def batches(samples: list[tuple[Tree, int]], nodes: int) -> list[list[tuple[Tree, int]]]:
    """Mini-batches of up to so many nodes."""
    found: list[list[tuple[Tree, int]]] = [[]]
    there = 0
    for sample in samples:
        there += size(sample[0])
        if there > nodes or len(found[-1]) == 32:
            found.append([])
            there = size(sample[0])
        found[-1].append(sample)
    return found


def accuracy(net: mx.dynamic.Network, samples: list[tuple[Tree, int]], nodes: int) -> float:
    right = 0
    for batch in batches(samples, nodes):
        found = net([tree for tree, _ in batch]).asnumpy().argmax(1)
        right += int((found == [label for _, label in batch]).sum())
    return right / len(samples)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--width", type=int, default=96)
    parser.add_argument("--functions", type=int, default=100000, help="the most that are read")
    parser.add_argument("--nodes", type=int, default=200, help="the most of a function")
    parser.add_argument("--budget", default="64MiB", help="bytes, or text such as 64MiB (the default)")
    args = parser.parse_args()
    for name, value in vars(args).items():
        if type(value) is int and value < 1:
            parser.error(f"--{name} must be at least 1, got {value}")
    draw = random.Random(7)
    mx.random.seed(7)
    samples = functions(args.nodes)
    draw.shuffle(samples)
    samples = samples[: args.functions]
    held_out, samples = samples[: len(samples) // 5], samples[len(samples) // 5 :]
    try:
        net = network(args.width, words_of(samples), args.budget)
        nodes = net.max_nodes["node"]
    except (mx.BudgetError, mx.MemoryBudgetError) as error:
        parser.error(str(error))
    if nodes < args.nodes:
        parser.error(f"{args.budget} have room for {nodes} nodes, and a function may have {args.nodes}")
    print(f"{len(samples)} functions to learn from, {len(held_out)} held out; {nodes} nodes fit")
    print(f"Planned: {net.planned_bytes:,} bytes; allocated: {net.measured_bytes:,} bytes")
    trainer = mx.gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.003})
    pick = mx.gluon.loss.SoftmaxCrossEntropyLoss(from_logits=True)
    for epoch in range(args.epochs):
        draw.shuffle(samples)
        total = 0.0
        for batch in batches(samples, nodes):
            labels = mx.nd.array([label for _, label in batch])
            with mx.autograd.record():
                loss = pick(net([tree for tree, _ in batch]), labels)
            loss.backward()
            trainer.step(len(batch))
            total += float(loss.sum().asscalar())
        right = accuracy(net, held_out, nodes)
        print(f"epoch {epoch}: loss {total / len(samples):.3f}, held-out accuracy {right:.3f}")
    common = Counter(label for _, label in held_out).most_common(1)[0][1] / len(held_out)
    print(f"Held-out accuracy: {right:.3f}; always the most frequent package: {common:.3f}")


if __name__ == "__main__":
    main()
