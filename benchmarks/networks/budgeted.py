"""The networks that benchmarks/planner.py runs within budgets."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import mxlite as mx
from networks.suite import by_name, cifar, deep_resnet, Net

CIFAR = dict(image=(3, 32, 32), title="CIFAR, pre-activation", width=64)


def _deep(depth: int, batch: int) -> Net:
    net = deep_resnet(depth, batch, **CIFAR)  # type: ignore[arg-type]
    return replace(net, name=f"resnet{depth}", rate=2e-4 if depth < 1001 else 5e-7)


def lstm_in_one(steps: int, **options: Any) -> Any:
    """The unrolled LSTM with one input for all steps, (T, N, features)."""
    data = mx.sym.SliceChannel(mx.sym.Variable("data"), num_outputs=steps, axis=0, squeeze_axis=True)
    net = mx.models.get("lstm_unrolled", steps=steps, **options)
    return net(**{f"t{t}_data": data[t] for t in range(steps)})


def lstm(steps: int, layers: int, hidden: int, batch: int, classes: int = 500) -> Net:
    options = dict(steps=steps, layers=layers, hidden=hidden, classes=classes)
    return Net(
        "lstm",
        f"LSTM {layers}x{hidden} T{steps} B{batch}",
        partial(lstm_in_one, **options),
        (steps, batch, 50),
        (steps * batch,),
        classes,
        ("UnrolledLSTM", dict(layers=layers, hidden=hidden, inputs=50, classes=classes)),
        rate=0.1,
        is_image=False,
        inputs={f"l{k}_init_{n}": (batch, hidden) for k in range(layers) for n in "ch"},
    )


def _unet(width: int, side: int, batch: int) -> Net:
    return Net(
        "unet",
        f"U-Net of width {width}, {side}x{side} B{batch}",
        partial(mx.models.get, "unet", width=width),
        (batch, 3, side, side),
        (batch, side * side),
        2,
        ("UNet", dict(classes=2, width=width)),
        rate=0.01,
        averaged=True,
    )


def networks(quick: bool, full: bool) -> list[Net]:
    """Networks in the order of execution."""
    if quick:
        return [cifar(20, 8), lstm(8, 2, 64, 8), _unet(8, 64, 2)]
    nets = [cifar(56, 32), _deep(164, 16), _deep(1001, 2), lstm(32, 2, 256, 32), _unet(32, 128, 4)]
    return [*nets, by_name(["resnet50"])[0]] if full else nets
