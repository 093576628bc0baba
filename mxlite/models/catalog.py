"""Every network by name, with the options that the name implies and the shapes of its inputs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import Any

from ..core.errors import nearest, OpAttributeError, UnknownNameError
from ..graph import Shape
from ..symbol import Symbol
from .densenet import densenet
from .inception import inception_bn
from .lstm import lstm, lstm_unrolled
from .mobilenet import mobilenet
from .resnet import PLAIN, resnet, resnet_cifar, STAGES as RESNETS
from .small import lenet, mlp
from .transformer import transformer, transformer_decoder, transformer_encoder
from .unet import unet
from .vgg import STAGES as VGGS, vgg

Shapes = dict[str, Shape]


@dataclass(frozen=True)
class Model:
    """A named network: `build` with `options`, for inputs of the `shapes` of a batch.

    `shapes(batch, **options)` may have options of its own, such as the size of images.
    """

    name: str
    build: Callable[..., Symbol]
    shapes: Callable[..., Shapes]
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def description(self) -> str:
        """The network in words: its paper, inputs, outputs and options."""
        return inspect.getdoc(self.build) or ""

    @property
    def option_names(self) -> tuple[str, ...]:
        """The options that `get` and `shapes_of` take for this network."""
        own = inspect.signature(self.shapes).parameters.values()
        named = [p.name for p in own if p.kind is not p.VAR_KEYWORD and p.name != "batch"]
        return tuple(dict.fromkeys([*inspect.signature(self.build).parameters, *named]))

    def symbol(self, **options: Any) -> Symbol:
        """The network. Options of the shapes are ignored, so that one set serves both."""
        taken = inspect.signature(self.build).parameters
        return self.build(**{k: v for k, v in self._all(options).items() if k in taken})

    def shapes_of(self, batch: int, **options: Any) -> Shapes:
        """Shapes of the inputs except labels, which follow."""
        shapes = self.shapes(batch, **self._all(options))
        for name, shape in shapes.items():
            if min(shape) < 1:
                raise OpAttributeError(f"{name!r} of {self.name} would be {shape}; lengths are at least 1.")
        return shapes

    def parameters(self, **options: Any) -> int:
        """The number of trainable elements; statistics of batch normalization do not count."""
        net, shapes = self.symbol(**options), self.shapes_of(1, **options)
        argument_shapes, _, _ = net.infer_shape(**shapes)
        assert argument_shapes is not None
        data = set(shapes) | {n for n in net.list_arguments() if n.endswith("_label")}
        return sum(prod(s) for n, s in zip(net.list_arguments(), argument_shapes) if n not in data)

    def _all(self, options: Mapping[str, Any]) -> dict[str, Any]:
        for name in options:
            if name not in self.option_names:
                raise OpAttributeError(
                    f"{self.name} has no option {name!r}.{nearest(name, self.option_names)} "
                    f"It takes {', '.join(self.option_names)}."
                )
        return {**self.options, **options}


def get(name: str, **options: Any) -> Symbol:
    """The network called `name`, with a softmax at its end: `get("resnet50", classes=10)`.

    Raises UnknownNameError for a name that is not in `list_models()`, OpAttributeError for a wrong option.
    """
    return about(name).symbol(**options)


def shapes_of(name: str, batch: int = 32, **options: Any) -> Shapes:
    """The shapes of a network's inputs: `get(name).memory_plan(**shapes_of(name, batch=64))`."""
    return about(name).shapes_of(batch, **options)


def parameters_of(name: str, **options: Any) -> int:
    """How many trainable numbers a network has."""
    return about(name).parameters(**options)


def list_models() -> list[str]:
    """The names that `get` knows."""
    return sorted(_MODELS)


def about(name: str) -> Model:
    """The entry of a network: its description, options and shapes."""
    if not isinstance(name, str) or name not in _MODELS:
        raise UnknownNameError(f"There is no model {name!r}.{nearest(str(name), _MODELS)} See list_models().")
    return _MODELS[name]


# -- shapes of inputs --------------------------------------------------------------------------


def _image(batch: int, image: Shape = (3, 224, 224), **_: Any) -> Shapes:
    whole = isinstance(image, (tuple, list)) and all(isinstance(n, int) and n > 0 for n in image)
    if not whole or len(image) != 3:
        raise OpAttributeError(f"image must be (channels, height, width), got {image!r}.")
    return {"data": (batch, *image)}


_small_image = partial(_image, image=(3, 32, 32))
_grey_image = partial(_image, image=(1, 28, 28))
_segmented = partial(_image, image=(3, 256, 256))


def _flat(batch: int, features: int = 784, **_: Any) -> Shapes:
    return {"data": (batch, features)}


def _sequence(batch: int, steps: int = 35, layers: int = 2, hidden: int = 650, **_: Any) -> Shapes:
    states = dict.fromkeys(("lstm_state", "lstm_state_cell"), (layers, batch, hidden))
    return {"data": (steps, batch), **states}


def _steps(
    batch: int, steps: int = 64, layers: int = 4, hidden: int = 1024, features: int = 50, **_: Any
) -> Shapes:
    states = {f"l{k}_init_{n}": (batch, hidden) for k in range(layers) for n in "ch"}
    return {**states, **{f"t{t}_data": (batch, features) for t in range(steps)}}


def _encoded(batch: int, length: int = 512, segments: int = 2, padded: bool = True, **_: Any) -> Shapes:
    shapes: Shapes = {"data": (batch, length)}
    if segments:
        shapes["segment"] = (batch, length)
    if padded:
        shapes["length"] = (batch,)
    return shapes


def _decoded(batch: int, length: int = 1024, **_: Any) -> Shapes:
    return {"data": (batch, length)}


def _translated(batch: int, source_length: int = 128, length: int = 128, **_: Any) -> Shapes:
    return {"source": (batch, source_length), "source_count": (batch,), "data": (batch, length)}


# -- names -------------------------------------------------------------------------------------


def _entries() -> list[Model]:
    entries = [Model("mlp", mlp, _flat), Model("lenet", lenet, _grey_image)]
    for depth in RESNETS:
        entries.append(Model(f"resnet{depth}", resnet, _image, {"depth": depth}))
        entries.append(Model(f"resnet{depth}_v2", resnet, _image, {"depth": depth, "version": 2}))
        if depth >= PLAIN:
            options = {"depth": depth, "version": "memonger"}
            entries.append(Model(f"resnet{depth}_memonger", resnet, _image, options))
    for depth in (20, 32, 44, 56, 110):
        entries.append(Model(f"resnet{depth}_cifar", resnet_cifar, _small_image, {"depth": depth}))
    for depth in (56, 110, 164, 1001):
        options = {"depth": depth, "version": 2}
        entries.append(Model(f"resnet{depth}_cifar_v2", resnet_cifar, _small_image, options))
    for depth in VGGS:
        entries.append(Model(f"vgg{depth}", vgg, _image, {"depth": depth}))
        entries.append(Model(f"vgg{depth}_bn", vgg, _image, {"depth": depth, "batch_norm": True}))
    entries.append(Model("inception_bn", inception_bn, _image))
    entries += [Model(f"mobilenet_v{v}", mobilenet, _image, {"version": v}) for v in (1, 2)]
    entries += [Model(f"densenet{d}", densenet, _image, {"depth": d}) for d in (121, 161, 169, 201)]
    entries.append(Model("unet", unet, _segmented))
    entries += [Model("lstm", lstm, _sequence), Model("lstm_unrolled", lstm_unrolled, _steps)]
    large = {"layers": 24, "width": 1024, "heads": 16, "hidden": 4096}
    entries += [
        Model("bert_base", transformer_encoder, _encoded),
        Model("bert_large", transformer_encoder, _encoded, large),
        Model("gpt2", transformer_decoder, _decoded),
        Model("gpt2_medium", transformer_decoder, _decoded, large),
        Model("transformer", transformer, _translated),
    ]
    return entries


_MODELS = {m.name: m for m in _entries()}
