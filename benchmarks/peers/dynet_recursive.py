"""DyNet's side of benchmarks/dynamic.py: one sample after another in Python, batched by its autobatch.

DyNet reads `--dynet-autobatch 1` and the like from the command line when it is imported.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import dynet as dy
from harness.worker import serve

from peers.recursive_peer import RATE, RecursivePeer
from peers.recursive_samples import HIDDEN, LETTER_STATE, parameters


class DyNetRecursive(RecursivePeer):
    """Plain SGD with sparse updates of tables, as it does by default, without clipping."""

    def versions(self) -> dict[str, str]:
        return {"DyNet": version("dynet38")}

    def build(self, net: str, batch: int) -> Callable[[Sequence[Any]], float]:
        model = self.model = dy.ParameterCollection()  # which does not outlive its last reference
        self.of: dict[str, Any] = {}
        for name, values in parameters(net).items():
            if name in ("words_weight", "letters_weight"):
                self.of[name] = model.lookup_parameters_from_numpy(values)
            else:
                self.of[name] = model.parameters_from_numpy(values)
        trainer = dy.SimpleSGDTrainer(model, RATE)
        trainer.set_clip_threshold(0)
        loss = {"tree": self.tree, "rvnn": self.rvnn, "tagger": self.tagger}[net]

        def step(samples: Sequence[Any]) -> float:
            dy.renew_cg()
            total = dy.esum([loss(s) for s in samples])
            value = float(total.value())
            total.backward()
            trainer.update()
            return value

        return step

    def dense(self, name: str, x: Any) -> Any:
        return dy.affine_transform([self.of[f"{name}_bias"], self.of[f"{name}_weight"], x])

    def tree(self, sample: Any) -> Any:
        def states(t: Any) -> tuple[Any, Any]:
            if isinstance(t, int):
                pre = self.dense("leaf", dy.lookup(self.of["words_weight"], t))
                i, o, u = (dy.pick_range(pre, k * HIDDEN, (k + 1) * HIDDEN) for k in range(3))
                c = dy.cmult(dy.logistic(i), dy.tanh(u))
                return dy.cmult(dy.logistic(o), dy.tanh(c)), c
            (hl, cl), (hr, cr) = states(t[0]), states(t[1])
            pre = self.dense("join", dy.concatenate([hl, hr]))
            i, fl, fr, o, u = (dy.pick_range(pre, k * HIDDEN, (k + 1) * HIDDEN) for k in range(5))
            c = (
                dy.cmult(dy.logistic(i), dy.tanh(u))
                + dy.cmult(dy.logistic(fl), cl)
                + dy.cmult(dy.logistic(fr), cr)
            )
            return dy.cmult(dy.logistic(o), dy.tanh(c)), c

        return dy.pickneglogsoftmax(self.dense("out", states(sample[0])[0]), sample[1])

    def rvnn(self, sample: Any) -> Any:
        def state(t: Any) -> Any:
            if isinstance(t, int):
                return dy.lookup(self.of["words_weight"], t)
            return dy.tanh(self.dense("join", dy.concatenate([state(t[0]), state(t[1])])))

        return dy.pickneglogsoftmax(self.dense("out", state(sample[0])), sample[1])

    def along(self, name: str, rows: Sequence[Any], size: int) -> list[Any]:
        h = c = dy.zeros(size)
        states = []
        for x in rows:
            pre = self.dense(name, dy.concatenate([x, h]))
            i, f, o, u = (dy.pick_range(pre, k * size, (k + 1) * size) for k in range(4))
            c = dy.cmult(dy.logistic(i), dy.tanh(u)) + dy.cmult(dy.logistic(f), c)
            h = dy.cmult(dy.logistic(o), dy.tanh(c))
            states.append(h)
        return states

    def vector(self, w: Any) -> Any:
        if isinstance(w, int):
            return dy.lookup(self.of["words_weight"], w)
        rows = [dy.lookup(self.of["letters_weight"], k) for k in w]
        ends = [
            self.along(f"letters_{way}", r, LETTER_STATE)[-1]
            for way, r in (("fore", rows), ("back", rows[::-1]))
        ]
        return dy.concatenate(ends)

    def tagger(self, sample: Any) -> Any:
        rows = [self.vector(w) for w in sample[0]]
        fore, back = self.along("fore", rows, HIDDEN), self.along("back", rows[::-1], HIDDEN)[::-1]
        losses = []
        for f, b, label in zip(fore, back, sample[1]):
            logits = self.dense("out", dy.tanh(self.dense("mlp", dy.concatenate([f, b]))))
            losses.append(dy.pickneglogsoftmax(logits, label))
        return dy.esum(losses)


if __name__ == "__main__":
    serve(DyNetRecursive().answer)
