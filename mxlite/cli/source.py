"""The source of a model: a Symbol JSON file, an ONNX file, a name of the zoo, or a module of PyTorch.

No file is trusted: whatever is wrong with one ends in an MXLiteError.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .. import models, symbol
from ..core.cached import cached_property
from ..core.errors import FormatError, MXLiteError, OpAttributeError, ShapeError
from ..formats.building.losses import with_loss
from ..graph import Entry, infer_shapes, Shape
from ..symbol import Symbol
from .torch_source import parse_inputs, read_torch, TORCH

BATCH = 32  # the default batch of zoo networks, and for N in a shape
ZOO = "zoo:"
ONNX = ".onnx"

Dims = tuple[int | str, ...]
Shapes = dict[str, Shape]


@dataclass(frozen=True)
class ModelSource:
    """A model and the shapes of its inputs. `batch` None: shapes as they are written.

    `loss`, if given, is put on the model's output. In `given`, "N" stands for the batch. Where no shape has
    one, the batch stands where the zoo puts it, and in a file's inputs on the first axis if that is as long
    in all of them.
    """

    text: str
    given: Mapping[str, Dims] = field(default_factory=dict)
    loss: str | None = None

    @property
    def name(self) -> str:
        """The model's name in a table."""
        if self.text.startswith(TORCH):
            return self.text
        return self.text.removeprefix(ZOO) if self.text.startswith(ZOO) else os.path.basename(self.text)

    @property
    def has_batch(self) -> bool:
        """True if a batch size can be chosen."""
        return self._marked[1] is not None

    def batch_of(self, batch: int | None) -> int | None:
        """The batch that `read(batch)` has, if it is known."""
        return self._marked[1] if batch is None else batch

    def no_batch(self, net: Symbol, shapes: Shapes) -> str:
        """Advice for a model whose batch size cannot be chosen, given the result of `read`."""
        why = f"{self.name} says the shapes of its inputs itself"
        if self.text.endswith(ONNX) and not self.given:
            fixed = ", ".join(f"{n!r} {dims}" for n, dims in list(shapes.items())[:4])
            return f"{why} ({fixed}): export it with a batch that is left open (`dynamic_axes` in PyTorch)."
        inferred = infer_shapes(net.graph, shapes).shapes
        said = {n.name: inferred[Entry(n)] for n in net.graph.arguments if "__shape__" in n.annotations}
        if self.given:
            why = f"The shapes of {', '.join(map(repr, self.given))} do not agree on one batch"
        marked = {n: ("N", *dims[1:]) for n, dims in (self.given or said).items() if dims}
        return f"{why}: write N where it stands, as in {shape_options(marked)}."

    @cached_property
    def _marked(self) -> tuple[dict[str, Dims], int | None]:
        """Shapes with "N" for the batch, and the batch in the shapes as written; None: not known."""
        zoo: Mapping[str, Dims] = {} if self._zoo is None else self._zoo[1]
        if any("N" in dims for dims in self.given.values()):
            return {**zoo, **self.given}, BATCH
        axes = {n: zoo[n].index("N") if n in zoo else 0 for n in self.given}
        lengths = {dims[axes[n]] for n, dims in self.given.items() if axes[n] < len(dims)}
        if not lengths:
            return {**zoo, **self.given}, BATCH if zoo else None
        if len(lengths) > 1:
            return {**zoo, **self.given}, None
        marked = {
            n: tuple("N" if axis == axes[n] else length for axis, length in enumerate(dims))
            for n, dims in self.given.items()
        }
        return {**zoo, **marked}, int(lengths.pop())

    @cached_property
    def _zoo(self) -> tuple[Symbol, dict[str, Dims]] | None:
        """A network of the zoo and its inputs: "N" is a length that grows with the batch."""
        if not self.text.startswith(ZOO):
            return None
        name, options = named_options(self.text.removeprefix(ZOO))
        net = call(self.name, models.get, name, **options)
        one, two = (call(self.name, models.shapes_of, name, batch, **options) for batch in (1, 2))
        return net, {n: tuple("N" if x != y else x for x, y in zip(one[n], two[n])) for n in one}

    def read(self, batch: int | None = None) -> tuple[Symbol, Shapes]:
        """The network, with its loss, and the shapes of its inputs."""
        net, shapes = self._bare(batch)
        return (net if self.loss is None else with_loss(net, self.loss, shapes)), shapes

    def _bare(self, batch: int | None) -> tuple[Symbol, Shapes]:
        """The network as the model has it, and the shapes of its inputs."""
        if not self.text:
            raise FormatError(
                "The name of the model is empty; it is a file (.json, .onnx), zoo:NAME or torch:..."
            )
        shapes = self._shapes(batch)
        if self._zoo is not None:
            return self._zoo[0], shapes
        if self.text.startswith(TORCH):
            return read_torch(self.text, shapes)[:2]
        if os.path.isdir(self.text):
            raise FormatError(f"{self.text} is a folder; a model is a file (.json, .onnx) or zoo:NAME.")
        if self.text.endswith(ONNX):
            return self._onnx(shapes)
        if not os.path.exists(self.text) and self.text in models.list_models():
            raise FormatError(f"There is no file {self.text!r}. Did you mean {ZOO + self.text!r}?")
        try:
            return symbol.load(self.text), shapes
        except FormatError as error:
            if "'mxlite_memory_plan'" in str(error):
                raise FormatError(
                    f"{self.text} is a memory plan, not a model: `mxlite diff` reads it."
                ) from None
            raise

    def _shapes(self, batch: int | None) -> Shapes:
        """The given shapes with a batch in them."""
        marked, known = self._marked
        chosen = batch or known or BATCH
        return {n: tuple(chosen if d == "N" else int(d) for d in dims) for n, dims in marked.items()}

    def frozen(self, net: Symbol, batch: int | None = None) -> frozenset[str]:
        """Arguments of `net`, the result of `read`, that training does not change, as far as the model says
        so."""
        if self.text.startswith(TORCH):
            return read_torch(self.text, self._shapes(batch))[2]
        if not self.text.endswith(ONNX):
            return frozenset()
        return frozenset(n for n, said in net.attr_dict().items() if said.get("__lr_mult__") == "0.0")

    def _onnx(self, shapes: Shapes) -> tuple[Symbol, Shapes]:
        from ..formats.onnx import get_model_metadata, import_model, OpenShapeError

        try:
            net, _, _ = import_model(self.text, shapes)
        except OpenShapeError as error:
            example = shape_options(error.example("N"))
            raise FormatError(f"{self.text}: {error.wanted}, as in {example}.") from None
        except FormatError as error:
            named = str(error).startswith(self.text)
            raise FormatError(str(error) if named else f"{self.text}: {error}") from None
        names = set(net.list_arguments())
        said = get_model_metadata(self.text)["input_tensor_data"]
        return net, {**{n: shape for n, shape in said if n in names and all(shape)}, **shapes}


def shape_options(shapes: Mapping[str, Dims]) -> str:
    """The options that give these shapes, the first four of them."""
    return " ".join(f"--shape {n}:{','.join(map(str, dims))}" for n, dims in list(shapes.items())[:4])


def parse_shape(text: str) -> tuple[str, Dims]:
    """`"data:32,3,224,224"` or `"data:N,3,224,224"` -> name and lengths."""
    name, colon, listed = text.rpartition(":")
    dims: list[int | str] = []
    for part in listed.split(","):
        part = part.strip()
        if part == "N":
            dims.append(part)
        elif part.isascii() and part.isdigit() and 0 < len(part) <= 18 and int(part) > 0:
            dims.append(int(part))
        else:
            colon = ""
    if not colon or not name:
        raise ShapeError(
            f"--shape {text!r} must be NAME:LENGTH,LENGTH,... with lengths of at least 1 or N for the batch, "
            f"such as data:32,3,224,224 or data:N,3,224,224."
        )
    return name, tuple(dims)


def given_shapes(model: str, shapes: Sequence[str], inputs: Sequence[str]) -> dict[str, Dims]:
    """The shapes by `--shape` or, for modules of PyTorch, `--input`. Raises MXLiteError for the other one."""
    if model.startswith(TORCH):
        if shapes:
            raise MXLiteError(
                f"{model}: a module's inputs are given by --input, in their order, not --shape."
            )
        return parse_inputs(inputs, parse_shape)
    if inputs:
        raise MXLiteError(f"--input is for modules of PyTorch ({TORCH}...); {model} takes --shape NAME:DIMS.")
    return parse_shapes(shapes)


def parse_shapes(texts: Sequence[str]) -> dict[str, Dims]:
    """Name -> lengths of several `--shape`. Raises ShapeError, also for a name that comes twice."""
    shapes: dict[str, Dims] = {}
    for text in texts:
        name, dims = parse_shape(text)
        if name in shapes:
            raise ShapeError(f"--shape gives {name!r} twice.")
        shapes[name] = dims
    return shapes


def named_options(text: str) -> tuple[str, dict[str, Any]]:
    """`"sgd,momentum=0.9"` -> name and options; values are Python literals, anything else is text.

    Commas inside brackets separate nothing.
    """
    parts, depth = [""], 0
    for c in text:
        depth += (c in "([{") - (c in ")]}")
        if c == "," and depth <= 0:
            parts.append("")
        else:
            parts[-1] += c
    options: dict[str, Any] = {}
    for part in parts[1:]:
        key, equals, value = part.partition("=")
        if not equals or not key.strip().isidentifier():
            raise OpAttributeError(f"{text!r} must be NAME,OPTION=VALUE,...; {part!r} is no OPTION=VALUE.")
        options[key.strip()] = _literal(value.strip())
    return parts[0].strip(), options


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


def call(what: str, function: Any, /, *args: Any, **options: Any) -> Any:
    """`function(...)`, where a wrong kind of option is an error of the user's: strings arrive from
    outside."""
    try:
        return function(*args, **options)
    except MXLiteError:
        raise
    except (TypeError, ValueError, OverflowError) as error:
        raise OpAttributeError(f"{what}: {error}") from None
