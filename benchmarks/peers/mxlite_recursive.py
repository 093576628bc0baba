"""mxlite's side of benchmarks/dynamic.py: cells of mx.dynamic."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from harness.worker import serve

import mxlite as mx
from peers.recursive_peer import RATE, RecursivePeer
from peers.recursive_samples import (
    CLASSES,
    HIDDEN,
    LETTER,
    LETTER_STATE,
    LETTERS,
    MLP,
    parameters,
    TAGS,
    WORD,
    WORDS,
)

sym = mx.sym
Made = tuple[Callable[[mx.dynamic.Network, Any], Any], list[mx.dynamic.Cell]]
"""What a network does with a sample, and its cells."""


def dense(data: Any, units: int, name: str) -> Any:
    return sym.FullyConnected(data, num_hidden=units, name=name)


def lookup(what: str, count: int, width: int) -> Any:
    return sym.Embedding(sym.var("number"), input_dim=count, output_dim=width, name=what)


def cross_entropy(logits: Any) -> Any:
    return -sym.pick(sym.log_softmax(logits), sym.var("label"), axis=1)


def root() -> mx.dynamic.Cell:
    loss = cross_entropy(dense(sym.var("h"), CLASSES, "out"))
    return mx.dynamic.Cell("root", loss, {"h": HIDDEN}, {"label": ()})


def tree() -> Made:
    i, o, u = sym.SliceChannel(dense(lookup("words", WORDS, HIDDEN), 3 * HIDDEN, "leaf"), num_outputs=3)
    c = sym.sigmoid(i) * sym.tanh(u)
    leaf = mx.dynamic.Cell("leaf", sym.Group([sym.sigmoid(o) * sym.tanh(c), c]), data={"number": ()})
    hl, cl, hr, cr = (sym.var(n) for n in ("hl", "cl", "hr", "cr"))
    i, fl, fr, o, u = sym.SliceChannel(dense(sym.concat(hl, hr, dim=1), 5 * HIDDEN, "join"), num_outputs=5)
    c = sym.sigmoid(i) * sym.tanh(u) + sym.sigmoid(fl) * cl + sym.sigmoid(fr) * cr
    states = dict.fromkeys(("hl", "cl", "hr", "cr"), HIDDEN)
    join = mx.dynamic.Cell("join", sym.Group([sym.sigmoid(o) * sym.tanh(c), c]), states)
    loss = root()

    def states_of(t: Any) -> Any:
        return leaf(t) if isinstance(t, int) else join(*states_of(t[0]), *states_of(t[1]))

    def of(net: mx.dynamic.Network, sample: Any) -> Any:
        return loss(states_of(sample[0])[0], sample[1])

    return of, [leaf, join, loss]


def rvnn() -> Made:
    leaf = mx.dynamic.Cell("leaf", lookup("words", WORDS, HIDDEN), data={"number": ()})
    both = sym.concat(sym.var("left"), sym.var("right"), dim=1)
    join = mx.dynamic.Cell("join", sym.tanh(dense(both, HIDDEN, "join")), {"left": HIDDEN, "right": HIDDEN})
    loss = root()

    def state_of(t: Any) -> Any:
        return leaf(t) if isinstance(t, int) else join(state_of(t[0]), state_of(t[1]))

    def of(net: mx.dynamic.Network, sample: Any) -> Any:
        return loss(state_of(sample[0]), sample[1])

    return of, [leaf, join, loss]


def lstm(name: str, data: int, state: int) -> mx.dynamic.Cell:
    x, h, c = sym.var("x"), sym.var("h"), sym.var("c")
    i, f, o, u = sym.SliceChannel(dense(sym.concat(x, h, dim=1), 4 * state, name), num_outputs=4)
    c = sym.sigmoid(i) * sym.tanh(u) + sym.sigmoid(f) * c
    out = sym.Group([sym.sigmoid(o) * sym.tanh(c), c])
    return mx.dynamic.Cell(name, out, {"x": data, "h": state, "c": state})


def tagger() -> Made:
    word = mx.dynamic.Cell("word", lookup("words", WORDS, WORD), data={"number": ()})
    letter = mx.dynamic.Cell("letter", lookup("letters", LETTERS, LETTER), data={"number": ()})
    letters = [lstm(f"letters_{way}", LETTER, LETTER_STATE) for way in ("fore", "back")]
    fore, back = (lstm(way, WORD, HIDDEN) for way in ("fore", "back"))
    halves = {"a": LETTER_STATE, "b": LETTER_STATE}
    spelt = mx.dynamic.Cell("spelt", sym.concat(sym.var("a"), sym.var("b"), dim=1), halves)
    both = sym.concat(sym.var("f"), sym.var("b"), dim=1)
    loss = cross_entropy(dense(sym.tanh(dense(both, MLP, "mlp")), TAGS, "out"))
    tag = mx.dynamic.Cell("tag", loss, {"f": HIDDEN, "b": HIDDEN}, {"label": ()})
    cells = [word, letter, *letters, fore, back, spelt, tag]

    def along(cell: mx.dynamic.Cell, rows: Sequence[Any], zero: Any) -> list[Any]:
        states, h, c = [], zero, zero
        for x in rows:
            h, c = cell(x, h, c)
            states.append(h)
        return states

    def vector(w: Any, zero: Any) -> Any:
        if isinstance(w, int):
            return word(w)
        rows = [letter(k) for k in w]
        return spelt(along(letters[0], rows, zero)[-1], along(letters[1], rows[::-1], zero)[-1])

    def of(net: mx.dynamic.Network, sample: Any) -> Any:
        small, large = net.zeros(LETTER_STATE), net.zeros(HIDDEN)
        rows = [vector(w, small) for w in sample[0]]
        f, b = along(fore, rows, large), along(back, rows[::-1], large)[::-1]
        return [tag(x, y, label) for x, y, label in zip(f, b, sample[1])]

    return of, cells


class MXLiteRecursive(RecursivePeer):
    """Plain SGD by a Trainer."""

    def versions(self) -> dict[str, str]:
        return {"mxlite": mx.__version__}

    def build(self, net: str, batch: int) -> Callable[[Sequence[Any]], float]:
        function, cells = {"tree": tree, "rvnn": rvnn, "tagger": tagger}[net]()
        most = {"tree": 33, "rvnn": 33, "tagger": 28}[net] * batch
        limits = {c.name: most * 3 if c.name.startswith("letter") else most for c in cells}
        made = self.net = mx.dynamic.Network(lambda sample: function(made, sample), cells, limits)
        made.initialize()
        for name, values in parameters(net).items():
            made.collect_params()[name].set_data(mx.nd.array(values))
        trainer = mx.gluon.Trainer(made.collect_params(), "sgd", {"learning_rate": RATE})

        def step(samples: Sequence[Any]) -> float:
            losses = made.forward_backward(samples)
            trainer.step(1)
            return float(losses.asnumpy().sum())

        return step

    def facts(self) -> dict[str, float]:
        """Bytes, the share of recording in a step, and how often a weight is read in a pass."""
        net, batch = self.net, self._batches[0]
        mx.nd.waitall()
        times = []
        for run in (lambda: net._recorded(batch, True, True), lambda: self._step(batch)):
            start = time.perf_counter()
            for _ in range(5):
                run()
            times.append(time.perf_counter() - start)
        read, once = net.weight_bytes(batch)
        return {
            "planned": net.planned_bytes,
            "measured": net.measured_bytes,
            "record": times[0] / times[1],
            "reads": read / once,
        }


if __name__ == "__main__":
    serve(MXLiteRecursive().answer)
