"""The timed networks: their mxlite symbol, PyTorch counterpart, and initial weights."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

import mxlite as mx
from networks.transformer_block import transformer_block
from networks.values import first_values, MOMENTUM, Shape

ROOT = Path(__file__).resolve().parent.parent.parent


@dataclass(frozen=True)
class Net:
    """A network with the shapes of its batch.

    `twin`: class and options in networks/twins.py. `rate`: the learning rate, so low that rounding
    differences (for example in the argmax of a pool) do not affect the losses visibly. `high`: number of
    tokens, 0 for real-valued data. `inputs` are zeros besides the data (states of an LSTM). `is_image`:
    whether channels_last is meaningful. `layouts` name the axes where the batch (N) is not the first, for
    MXNet. `rebuild`: arguments with which MXNet builds the transformer by itself. `averaged`: whether
    gradients are those of the mean over all rows. `step_s`: approximate seconds of a step of PyTorch eager on
    two cores, from which durations of runs are estimated.
    """

    name: str
    title: str
    symbol: Callable[[], Any]
    data: Shape
    labels: Shape
    classes: int
    twin: tuple[str, dict[str, Any]]
    rate: float = 0.05
    train: bool = True
    is_image: bool = True
    high: int = 0
    inputs: Mapping[str, Shape] = field(default_factory=dict)
    layouts: Mapping[str, str] = field(default_factory=dict)
    rebuild: Mapping[str, Any] | None = None
    averaged: bool = False
    step_s: float = 1.0

    @property
    def shapes(self) -> dict[str, Shape]:
        """Shapes of all inputs, labels included."""
        return {"data": self.data, **self.inputs, "softmax_label": self.labels}

    def prepare(self, folder: Path) -> dict[str, Any]:
        """Write the symbol, initial weights and one batch into `folder`; returns settings for the peer."""
        symbol, arrays = folder / f"{self.name}.json", folder / f"{self.name}.npz"
        net = self.symbol()
        symbol.write_text(net.tojson(), encoding="utf-8")
        np.savez(arrays, **self.first_values(net))
        return dict(
            symbol=str(symbol),
            arrays=str(arrays),
            train=self.train,
            is_image=self.is_image,
            is_tokens=self.high > 0,
            rows=1 if self.averaged else prod(self.labels),
            rate=self.rate,
            momentum=MOMENTUM,
            twin=self.twin,
            layouts=self.layouts,
            rebuild=self.rebuild,
        )

    def least_budget(self, nbytes: int) -> int:
        """`nbytes`, or the least larger budget for which a plan is known."""
        sgd = mx.optimizer.SGD(momentum=MOMENTUM)
        try:
            self.symbol().memory_plan(mx.cpu(), memory_budget=nbytes, optimizer=sgd, **self.shapes)
        except mx.MemoryBudgetError as error:
            return error.least_feasible_bytes
        return nbytes

    def first_values(self, net: Any) -> dict[str, np.ndarray]:
        """Initial arrays by name, prefixed with `arg:`, `aux:`, `data:` or `label:`."""
        rng = np.random.default_rng(1)
        last = ("_c_bn_gamma", "_bn3_gamma" if self.twin[1].get("bottleneck") else "_bn2_gamma")
        arrays = first_values(net, self.shapes, rng, last)
        arrays["data:data"] = (
            rng.integers(0, self.high, self.data) if self.high else rng.standard_normal(self.data)
        ).astype(np.float32)
        arrays |= {f"data:{n}": np.zeros(s, np.float32) for n, s in self.inputs.items()}
        arrays["label:softmax_label"] = rng.integers(0, self.classes, self.labels).astype(np.float32)
        return arrays


def _resnet(name: str, title: str, depth: int, batch: int, **more: Any) -> Net:
    stages = (2, 2, 2, 2) if depth == 18 else (3, 4, 6, 3)
    options = dict(stages=stages, width=64, classes=1000, bottleneck=depth >= 50)
    symbol = partial(mx.models.get, f"resnet{depth}")
    return Net(
        name, title, symbol, (batch, 3, 224, 224), (batch,), 1000, ("ResNet", options), rate=0.004, **more
    )


def cifar(depth: int, batch: int) -> Net:
    options = dict(stages=(depth // 6,) * 3, width=16, classes=10, small=True)
    title = f"ResNet-{depth} CIFAR B{batch}"
    symbol = partial(mx.models.get, f"resnet{depth}_cifar")
    return Net(
        f"resnet{depth}", title, symbol, (batch, 3, 32, 32), (batch,), 10, ("ResNet", options), rate=0.02,
        step_s=depth * batch * 2.2e-4,
    )  # fmt: skip


BLOCK = dict(width=512, heads=8, hidden=2048, classes=10)
STEPS, HIDDEN, VOCABULARY = 35, 512, 10_000

NETS = [
    cifar(20, 32),
    cifar(110, 128),
    _resnet("resnet18", "ResNet-18 224 B16", 18, 16, step_s=1.6),
    _resnet("resnet50", "ResNet-50 224 B8", 50, 8, step_s=2.2),
    Net(
        "vgg11",
        "VGG-11 224 B8",
        partial(mx.models.get, "vgg11", dropout=0.0),
        (8, 3, 224, 224),
        (8,),
        1000,
        ("VGG", dict(counts=(1, 1, 2, 2, 2), classes=1000)),
        rate=2e-5,
        step_s=3.0,
    ),
    Net(
        "lenet",
        "LeNet B64",
        partial(mx.models.get, "lenet"),
        (64, 1, 28, 28),
        (64,),
        10,
        ("LeNet", dict(classes=10)),
        rate=0.01,
        step_s=0.024,
    ),
    Net(
        "mlp",
        "MLP 784-1024-1024-10 B128",
        partial(mx.models.get, "mlp", hidden=(1024, 1024)),
        (128, 784),
        (128,),
        10,
        ("MLP", dict(widths=(784, 1024, 1024, 10))),
        rate=0.01,
        is_image=False,
        step_s=0.008,
    ),
    Net(
        "lstm",
        "LSTM 2x512 T35 B32",
        partial(
            mx.models.get,
            "lstm",
            layers=2,
            hidden=HIDDEN,
            vocabulary=VOCABULARY,
            dropout=0.0,
            loss="cross_entropy",
        ),
        (STEPS, 32),
        (STEPS * 32,),
        VOCABULARY,
        ("LSTM", dict(layers=2, hidden=HIDDEN, vocabulary=VOCABULARY)),
        rate=0.5,
        is_image=False,
        high=VOCABULARY,
        inputs=dict.fromkeys(("lstm_state", "lstm_state_cell"), (2, 32, HIDDEN)),
        layouts=dict(data="TN", lstm_state="LNC", lstm_state_cell="LNC", softmax_label="C"),
        step_s=0.34,
    ),
    Net(
        "transformer",
        "Transformer block B8 T128 D512",
        partial(transformer_block, mx.sym, length=128, **BLOCK),
        (8, 128, 512),
        (8,),
        10,
        ("TransformerBlock", BLOCK),
        is_image=False,
        rebuild=dict(length=128, **BLOCK),
        step_s=0.1,
    ),
    _resnet("inference", "ResNet-50 224 B1, inference", 50, 1, train=False, step_s=0.1),
]
"""The LSTM is a language model: a table of 10,000 words, as in Penn Treebank, at either end. Like PyTorch's
it ends in the cross-entropy, a scalar; the others output probabilities."""


def deep_resnet(
    depth: int = 1001,
    batch: int = 32,
    width: int = 32,
    image: Shape = (1, 8, 8),
    title: str = "on 8x8 digits",
) -> Net:
    """The network that `make demo` trains, from its own file; for images of other sizes too."""
    path = ROOT / "examples" / "train_resnet.py"
    spec = importlib.util.spec_from_file_location("train_resnet", path)
    assert spec is not None and spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    return Net(
        "deep",
        f"ResNet-{depth} {title}, B{batch}",
        partial(example.preactivation_resnet, depth, width, 10),
        (batch, *image),
        (batch,),
        10,
        ("DeepResNet", dict(depth=depth, width=width, classes=10, channels=image[0])),
        rate=2e-6,
        step_s=depth * batch * 7e-5,
    )


DIGITS = 1437
"""Number of images in an epoch of `make demo`."""


def by_name(names: list[str] | None) -> list[Net]:
    """The networks with these names, in the order of NETS; all of them for None."""
    known = {n.name: n for n in NETS}
    for name in names or ():
        if name not in known:
            raise SystemExit(f"There is no network {name!r}; there are {', '.join(known)}.")
    return [n for n in NETS if names is None or n.name in names]
