"""AlexNet. Krizhevsky 2014, "One weird trick for parallelizing convolutional neural networks"."""

from __future__ import annotations

from typing import Any

from ... import nn
from ...blocks.hybrid_block import HybridBlock
from ..model_store import filled, HOME


class AlexNet(HybridBlock):
    """x: (N, 3, 224, 224) -> (N, classes)."""

    def __init__(self, classes: int = 1000, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        with self.name_scope():
            self.features = nn.HybridSequential(prefix="")
            with self.features.name_scope():
                for channels, kernel, strides, padding, pools in (
                    (64, 11, 4, 2, True), (192, 5, 1, 2, True), (384, 3, 1, 1, False),
                    (256, 3, 1, 1, False), (256, 3, 1, 1, True),
                ):  # fmt: skip
                    self.features.add(nn.Conv2D(channels, kernel, strides, padding, activation="relu"))
                    if pools:
                        self.features.add(nn.MaxPool2D(pool_size=3, strides=2))
                self.features.add(nn.Flatten())
                for _ in range(2):
                    self.features.add(nn.Dense(4096, activation="relu"), nn.Dropout(0.5))
            self.output = nn.Dense(classes)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """See the class."""
        return self.output(self.features(x))


def alexnet(pretrained: bool = False, ctx: Any = None, root: str = HOME, **kwargs: Any) -> AlexNet:
    """AlexNet."""
    made: AlexNet = filled(AlexNet(**kwargs), "alexnet", pretrained, ctx, root)
    return made
