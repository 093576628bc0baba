"""mx.gluon.block and mx.gluon.parameter: blocks, parameters, and how nested arrays are put into one list."""

from __future__ import annotations

from typing import Any

from ..core import DeferredInitializationError as DeferredInitializationError
from ..core.errors import RangeError
from ..ndarray import NDArray
from ..symbol import Symbol
from .blocks.block import Block as Block
from .blocks.hybrid_block import HybridBlock as HybridBlock
from .blocks.nested import flat, Form
from .blocks.symbol_block import SymbolBlock as SymbolBlock
from .parameters.constant import Constant as Constant
from .parameters.parameter import Parameter as Parameter
from .parameters.parameter_dict import ParameterDict as ParameterDict


def flattened(args: Any, inout_str: str) -> tuple[list[Any], Form]:
    """The arrays or symbols of nested lists in one, None for each None, and how they were nested.

    RangeError for anything else among them; it calls them `inout_str`.
    """
    found, form = flat(args)
    for value in found:
        if not isinstance(value, (NDArray, Symbol)):
            raise RangeError(f"{inout_str}: nested lists of NDArrays or Symbols, got {type(value).__name__}.")
    return found, form


# MXNet's name, which GluonTS imports.
_flatten = flattened
