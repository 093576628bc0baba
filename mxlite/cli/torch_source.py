"""A module of PyTorch as the source of a model: `torch:PACKAGE.MODULE:FUNCTION`, which makes the module.

The function is the user's own code, and is called without arguments.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

from ..core.errors import FormatError, MXLiteError, ShapeError
from ..graph import Shape
from ..symbol import Symbol

TORCH = "torch:"
FLOATS = ("float32",)
WHOLE = ("int64", "int32")


def parse_inputs(texts: Sequence[str], parse: Callable[[str], tuple[str, Any]]) -> dict[str, Any]:
    """`"8,3,224,224"` or `"int64:N,128"`, one for each input -> "TYPE:NUMBER" and lengths, in their order."""
    found = {}
    for i, text in enumerate(texts):
        kind, colon, dims = text.rpartition(":")
        if kind not in (*FLOATS, *WHOLE, ""):
            raise ShapeError(
                f"--input {text!r} has the type {kind!r}; there are {', '.join(FLOATS + WHOLE)}."
            )
        try:
            found[f"{kind or FLOATS[0]}:{i}"] = parse(f"input:{dims if colon else text}")[1]
        except ShapeError:
            raise ShapeError(
                f"--input {text!r} must be LENGTH,LENGTH,... or TYPE:LENGTH,LENGTH,... with lengths of at "
                f"least 1 or N for the batch, such as 8,3,224,224 or int64:N,128."
            ) from None
    return found


def read_torch(text: str, inputs: Mapping[str, Shape]) -> tuple[Symbol, dict[str, Shape], frozenset[str]]:
    """The network of a module for inputs of these shapes, the shapes by name, and what is not trained."""
    net, shapes, frozen = _read(text, tuple(inputs.items()))
    return net, dict(shapes), frozen


@lru_cache(maxsize=16)
def _read(
    text: str, inputs: tuple[tuple[str, Shape], ...]
) -> tuple[Symbol, Mapping[str, Shape], frozenset[str]]:
    from ..formats.torch.importer import network_of
    from ..formats.torch.package import torch_package

    torch = torch_package()
    module = _module(text)
    if not inputs:
        raise ShapeError(f"{text}: give the shape of each input of the module, as in --input N,3,224,224.")
    args = tuple(torch.zeros(shape, dtype=getattr(torch, name.partition(":")[0])) for name, shape in inputs)
    symbol, reader = network_of(module, args, None)
    names = symbol.list_arguments()
    trained = {n for n, p in module.named_parameters() if p.requires_grad}
    shapes = {n: shape for n, shape in reader.inputs.items() if n in names}
    return symbol, shapes, frozenset(n for n in names if n not in trained)


@cache
def _module(text: str) -> Any:
    """The module that the function makes; once for each text."""
    where, colon, function = text.removeprefix(TORCH).rpartition(":")
    if not colon or not where or not function:
        raise FormatError(f"{text!r} must be torch:PACKAGE.MODULE:FUNCTION, such as torch:models:make_model.")
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)  # as `python -m` does, and a console script does not
    try:
        make = getattr(importlib.import_module(where), function)
    except (ImportError, AttributeError) as error:
        raise FormatError(f"{text}: {error}.") from None
    try:
        module = make()
    except MXLiteError:
        raise
    except Exception as error:  # of any kind: it is the user's code
        raise FormatError(f"{text}: {function}() raised {type(error).__name__}: {error}.") from error
    return module
