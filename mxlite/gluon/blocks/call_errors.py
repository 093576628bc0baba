"""Errors of calls of hybrid blocks, told with the name of the block."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...core import as_dtype, DTypeError, ShapeError
from ...core.errors import ArgumentError, OpAttributeError

NAMED = (ShapeError, DTypeError, OpAttributeError, TypeError)
"""Errors that `explained` says more about."""


def explained(block: Any, error: Exception, args: Sequence[Any], inputs: Sequence[Any]) -> Exception:
    """An error that `block.hybrid_forward(F, *args)` raised, with the name of the block if that tells more.

    A block with children says nothing: the error is that of one of them. `inputs` are the arrays in `args`.
    """
    name = f"{type(block).__name__} {block.name!r}"
    if not isinstance(error, NAMED[:3]):
        return _of_arguments(block, name, args) or error
    if block._children or type(error) not in NAMED:
        return error
    hint = ""
    if isinstance(error, DTypeError):
        kinds = {as_dtype(p.dtype) for p in block._reg_params.values()}
        given = {np.dtype(a.dtype) for a in inputs}
        if len(kinds) == len(given) == 1 and kinds != given:
            (kind,), (have,) = kinds, given
            hint = f" Its parameters are of {kind}, the input of {have}: x.astype({kind.name!r}) converts an "
            hint += f"input, cast({have.name!r}) of the network its parameters."
    return type(error)(f"{name}: {error}{hint}")


def _of_arguments(block: Any, name: str, args: Sequence[Any]) -> ArgumentError | None:
    """The error if `hybrid_forward` does not take so many arguments."""
    parameters = dict.fromkeys(block._reg_params)
    takes = inspect.signature(block.hybrid_forward)
    try:
        takes.bind(None, *args, **parameters)
    except TypeError as wrong:
        wants = [n for n in list(takes.parameters)[1:] if n not in parameters]
        return ArgumentError(f"{name} takes ({', '.join(wants)}), but was given {len(args)} inputs: {wrong}.")
    return None
