"""Where a model comes from: a Symbol JSON file, an ONNX file, or a name of the zoo.

No file is trusted: whatever is wrong with one ends in an MXLiteError.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .. import models, symbol
from ..core.errors import FormatError, MXLiteError, OpAttributeError, ShapeError
from ..graph import Shape
from ..symbol import Symbol

BATCH = 32  # of zoo networks, and for N in a shape, unless told otherwise
ZOO = "zoo:"

Dims = tuple[int | str, ...]
Shapes = dict[str, Shape]


@dataclass(frozen=True)
class Source:
    """A model and what its inputs are. `batch` None: shapes as they are written.

    In `given`, "N" stands for the batch; if no shape has one, the first axis of each is the batch.
    """

    text: str
    given: Mapping[str, Dims] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """What to call it in a table."""
        return self.text.removeprefix(ZOO) if self.text.startswith(ZOO) else os.path.basename(self.text)

    @property
    def has_batch(self) -> bool:
        """Whether a batch size can be chosen."""
        return self.text.startswith(ZOO) or bool(self.given)

    def batch_of(self, batch: int | None) -> int | None:
        """The batch that `read(batch)` has, if there is one."""
        if batch is not None:
            return batch
        if self.text.startswith(ZOO) or any("N" in dims for dims in self.given.values()):
            return BATCH
        return next((int(dims[0]) for dims in self.given.values() if dims), None)

    def read(self, batch: int | None = None) -> tuple[Symbol, Shapes]:
        """The network and the shapes of its inputs."""
        if batch is not None and not self.has_batch:
            raise ShapeError(
                f"{self.name} says the shapes of its inputs itself; name the batch's axis, as in "
                f"--shape data:N,3,224,224."
            )
        shapes = self._shapes(batch)
        if not self.text:
            raise FormatError("The name of the model is empty; it is a file (.json, .onnx) or zoo:NAME.")
        if self.text.startswith(ZOO):
            name, options = named_options(self.text.removeprefix(ZOO))
            net = models.get(name, **options)
            return net, {**models.shapes_of(name, batch or BATCH, **options), **shapes}
        if os.path.isdir(self.text):
            raise FormatError(f"{self.text} is a folder; a model is a file (.json, .onnx) or zoo:NAME.")
        if self.text.endswith(".onnx"):
            return self._onnx(shapes), shapes
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
        marked = any("N" in dims for dims in self.given.values())
        shapes: Shapes = {}
        for name, dims in self.given.items():
            if batch is not None and not marked and dims:
                dims = (batch, *dims[1:])
            shapes[name] = tuple((batch or BATCH) if d == "N" else int(d) for d in dims)
        return shapes

    def _onnx(self, shapes: Shapes) -> Symbol:
        from ..formats.onnx import import_model

        try:
            net, _, _ = import_model(self.text, shapes)
        except FormatError as error:
            if "import_model(" in str(error):
                what = str(error).partition(": give its shape")[0]
                raise FormatError(
                    f"{self.text}: {what}: give its shape, as in --shape NAME:N,3,224,224."
                ) from None
            named = str(error).startswith(self.text)
            raise FormatError(str(error) if named else f"{self.text}: {error}") from None
        return net


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


def parse_shapes(texts: Sequence[str]) -> dict[str, Dims]:
    """Name -> lengths of several `--shape`. Raises ShapeError, also for a name that comes twice."""
    found: dict[str, Dims] = {}
    for text in texts:
        name, dims = parse_shape(text)
        if name in found:
            raise ShapeError(f"--shape gives {name!r} twice.")
        found[name] = dims
    return found


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
