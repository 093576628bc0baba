"""mxlite's side of gluon_steps: Gluon call by call, hybridized, or with whole steps as programs."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
from harness.worker import serve

import mxlite as mx
from mxlite import gluon
from mxlite.gluon import nn
from peers.gluon_nets import CALLS, COLUMN, GluonNet, MOMENTUM, NETS, RATE, STEP
from peers.kernel_peer import Call, KernelPeer
from peers.mxlite_peer import MXLite


class Residual(gluon.HybridBlock):
    """x + relu(convolution(x))."""

    def __init__(self, channels: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        with self.name_scope():
            self.body = nn.Conv2D(channels, 3, padding=1, in_channels=channels, activation="relu")

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return x + self.body(x)


def network(net: GluonNet, arrays: list[np.ndarray]) -> Any:
    """The network with these parameters."""
    weights = arrays[::2]
    made = nn.HybridSequential(prefix="")
    for w in weights[:-1]:
        made.add(Residual(len(w)) if net.image else nn.Dense(len(w), in_units=w.shape[1], activation="relu"))
    if net.image:
        made.add(nn.GlobalAvgPool2D())
    made.add(nn.Dense(len(weights[-1]), in_units=weights[-1].shape[1]))
    made.initialize()
    for p, array in zip(made.collect_params().values(), arrays):
        p.set_data(mx.nd.array(array))
    return made


class Ours(KernelPeer):
    rows = NETS

    def versions(self) -> dict[str, str]:
        return MXLite().versions()

    def calls(self, row: GluonNet, arrays: list[np.ndarray]) -> dict[str, Call]:
        how = os.environ[COLUMN]
        data, label = map(mx.nd.array, arrays[:2])
        net, loss_of = network(row, arrays[2:]), gluon.loss.SoftmaxCELoss()
        if how != CALLS:
            net.hybridize()
        if how == STEP:
            loss_of.hybridize()
        optimizer = {"learning_rate": RATE, "momentum": MOMENTUM}
        trainer = gluon.Trainer(net.collect_params(), "sgd", optimizer)

        def step() -> Any:
            with mx.autograd.record():
                loss = loss_of(net(data), label)
            loss.backward()
            trainer.step(len(arrays[0]))
            mx.nd.waitall()
            return loss

        losses = [step().asnumpy() for _ in range(3)]
        kept = 0 if how == CALLS else net.memory_plan.problem.fixed_bytes.get("gradients", 0)
        return {"step": Call(step, "" if how == CALLS else f"{kept / 2**10:.0f}", lambda: losses)}


if __name__ == "__main__":
    serve(Ours().answer)
