"""The networks of benchmarks/gpu.py, and small ones to test it."""

from __future__ import annotations

from functools import partial

from networks.suite import by_name, cifar, Net

import mxlite as mx

VOCABULARY = 10_000
DEEP = (3, 131, 196, 3)  # blocks of the stages of mx.models' ResNet-1001


def resnet(depth: int, batch: int, stages: tuple[int, ...]) -> Net:
    """ResNet version 1 with bottlenecks for 224x224."""
    return Net(
        f"resnet{depth}",
        f"ResNet-{depth} 224 B{batch}",
        partial(mx.models.get, f"resnet{depth}"),
        (batch, 3, 224, 224),
        (batch,),
        1000,
        ("ResNet", dict(stages=stages, width=64, classes=1000, bottleneck=True)),
        rate=0.004,
    )


def memonger(stages: tuple[int, ...], batch: int, rate: float) -> Net:
    """The topology of dmlc's memonger example, 224x224."""
    depth = 3 * sum(stages) + 2
    return Net(
        f"resnet{depth}",
        f"ResNet-{depth} (memonger) 224 B{batch}",
        partial(mx.models.resnet, version="memonger", stages=stages),
        (batch, 3, 224, 224),
        (batch,),
        1000,
        ("Memonger", dict(stages=stages, classes=1000)),
        rate=rate,
    )


def lstm(layers: int, hidden: int, length: int, batch: int) -> Net:
    """A language model of words; like PyTorch's it ends in the cross-entropy, a scalar."""
    states = dict.fromkeys(("lstm_state", "lstm_state_cell"), (layers, batch, hidden))
    return Net(
        "lstm",
        f"LSTM {layers}x{hidden} T{length} B{batch}",
        partial(
            mx.models.get,
            "lstm",
            layers=layers,
            hidden=hidden,
            vocabulary=VOCABULARY,
            dropout=0.0,
            loss="cross_entropy",
        ),
        (length, batch),
        (length * batch,),
        VOCABULARY,
        ("LSTM", dict(layers=layers, hidden=hidden, vocabulary=VOCABULARY)),
        rate=0.5,
        is_image=False,
        high=VOCABULARY,
        inputs=states,
    )


def decoder(layers: int, width: int, heads: int, length: int, batch: int, vocabulary: int) -> Net:
    """A GPT-2-like language model of tokens; it ends in the cross-entropy, too."""
    options = dict(
        layers=layers, width=width, heads=heads, hidden=4 * width, vocabulary=vocabulary, length=length
    )
    return Net(
        "decoder",
        f"Transformer LM {layers}x{width} T{length} B{batch}",
        partial(mx.models.get, "gpt2", **options, dropout=0.0, loss="cross_entropy"),
        (batch, length),
        (batch * length,),
        vocabulary,
        ("Decoder", options),
        rate=0.05,
        is_image=False,
        high=vocabulary,
    )


def nets() -> list[Net]:
    """Networks at the sizes of the targets; launch-bound ones last."""
    return [
        resnet(50, 256, (3, 4, 6, 3)),
        resnet(152, 128, (3, 8, 36, 3)),
        cifar(110, 128),
        lstm(4, 1024, 64, 64),
        decoder(12, 768, 12, 1024, 16, 50257),
        *by_name(["mlp", "lenet"]),
    ]


LAUNCH_BOUND = ("mlp", "lenet")
QUICK = ("mlp", "resnet50", "decoder", "lenet")
"""Networks that take seconds come first, so that there is a result in any case."""


def small() -> list[Net]:
    """Small networks, which run on the emulated GPU in seconds."""
    widths = (12, 16, 10)
    mlp = Net(
        "mlp",
        "MLP 12-16-10 B8",
        partial(mx.models.get, "mlp", hidden=(16,)),
        (8, 12),
        (8,),
        10,
        ("MLP", dict(widths=widths)),
        rate=0.01,
        is_image=False,
    )
    return [mlp, decoder(1, 16, 2, 8, 2, 50)]


def deep() -> Net:
    """ResNet with 1001 layers."""
    return memonger(DEEP, 32, rate=2e-6)
