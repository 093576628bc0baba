"""A model of speed that takes shapes as inputs, trained by mxlite, beside the nearest measured shape.

After Tillet and Cox, "Input-Aware Auto-Tuning of Compute-Bound HPC Kernels" (SC 2017): a network predicts the
speed of a schedule from the sizes and the knobs, in logarithms; for a new shape all schedules are predicted,
and the best few measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log2
from time import perf_counter

import numpy as np

import mxlite as mx

from .tables import Table

HIDDEN = (64, 64, 64)
EPOCHS, ROWS = 60, 256  # of training, and of a batch
RATE = 4e-3  # of learning, at the beginning
TOP = 16


@dataclass(frozen=True)
class Choice:
    """What a ranking of a table's schedules gives: speeds as parts of the best one's."""

    first: float
    top: float
    error: float = 0.0
    seconds: float = 0.0
    train_s: float = 0.0


def choice(table: Table, ranked: Sequence[int], **more: float) -> Choice:
    """The choice of a ranking, the fastest first: the first one, and the best of TOP measured ones."""
    speeds = [table.best / table.seconds[s] for s in table.schedules]
    return Choice(speeds[ranked[0]], max(speeds[k] for k in ranked[:TOP]), **more)


def sizes(table: Table) -> tuple[float, ...]:
    """Logarithms of M, N, K."""
    return tuple(log2(int(n)) for n in table.name.split("x"))


def nearest(table: Table, others: Sequence[Table]) -> Choice:
    """By the table of the nearest shape: the schedules that were fast there."""
    there = min(others, key=lambda t: sum((a - b) ** 2 for a, b in zip(sizes(t), sizes(table))))
    known = {s.knobs: there.seconds[s] for s in there.schedules}
    order = sorted(
        range(len(table.schedules)), key=lambda k: known.get(table.schedules[k].knobs, float("inf"))
    )
    return choice(table, order)


def by_network(table: Table, others: Sequence[Table], logs: bool = True, seed: int = 0) -> Choice:
    """By a network that has learned from the other tables. `logs`: features are logarithms."""
    x, y = _rows(others, logs)
    middle, spread = x.mean(0), x.std(0) + 1e-6
    target, scale = y.mean(), y.std()
    mx.random.seed(seed)
    net = mx.gluon.nn.HybridSequential()
    for width in HIDDEN:
        net.add(mx.gluon.nn.Dense(width, activation="relu"))
    net.add(mx.gluon.nn.Dense(1))
    net.initialize(mx.init.Xavier())
    net.hybridize()
    trainer = mx.gluon.Trainer(net.collect_params(), "adam", {"learning_rate": RATE})
    loss_of = mx.gluon.loss.L2Loss()
    data, wanted = (x - middle) / spread, (y - target) / scale
    random = np.random.default_rng(seed)
    start = perf_counter()
    for epoch in range(EPOCHS):
        trainer.set_learning_rate(RATE * (1 - epoch / EPOCHS))
        order = random.permutation(len(data))
        for k in range(0, len(order) - ROWS + 1, ROWS):
            some = order[k : k + ROWS]
            with mx.autograd.record():
                loss = loss_of(net(mx.nd.array(data[some])), mx.nd.array(wanted[some]))
            loss.backward()
            trainer.step(ROWS)
    train_s = perf_counter() - start
    own, truth = _rows([table], logs)
    net(mx.nd.array(data[: len(own)])).asnumpy()
    start = perf_counter()
    found = net(mx.nd.array((own - middle) / spread)).asnumpy().reshape(-1) * scale + target
    ranked = [int(k) for k in np.argsort(-found, kind="stable")]
    seconds = perf_counter() - start
    error = float(np.mean((found - truth) ** 2))
    return choice(table, ranked, error=error, seconds=seconds, train_s=train_s)


def _rows(found: Sequence[Table], logs: bool) -> tuple[np.ndarray, np.ndarray]:
    """Features, and logarithms of the multiplications in a second."""
    x = np.array([t.features[s] for t in found for s in t.schedules], np.float32)
    y = np.array([sum(sizes(t)) - log2(t.seconds[s]) for t in found for s in t.schedules], np.float32)
    if not logs:
        x[:, 3:] = 2 ** x[:, 3:] - 1
    return x, y
