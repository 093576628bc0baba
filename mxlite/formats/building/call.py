"""One call of an operator while importing: its shapes, or its results if all inputs are known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ... import ndarray as nd
from ...core import DTypeError, FormatError, MXLiteError, ShapeError
from ...graph import Op
from ...symbol import Symbol
from .value import GraphValue


def inferred(op: type[Op], attrs: Any, inputs: tuple[GraphValue, ...]) -> tuple[Any, Any]:
    """Shapes and types of all outputs. Raises ShapeError or DTypeError for inputs that do not fit."""
    shapes, dtypes = [v.shape for v in inputs], [v.dtype for v in inputs]
    names = op.input_names(attrs)
    if len(names) != len(inputs):
        raise FormatError(f"{op.op_name} takes {len(names)} inputs {names}, got {len(inputs)}.")
    outputs = op.output_names(attrs)
    if op.same_shape and shapes:
        if any(s != shapes[0] for s in shapes):
            raise ShapeError(f"all arrays must have one shape, got {shapes}.")
        out_shapes: Any = (shapes[0],) * len(outputs)
    else:
        in_shapes, out_shapes = op.infer_shape(attrs, *shapes)
        for name, inferred, wanted in zip(names, shapes, in_shapes):
            if inferred != wanted:
                raise ShapeError(f"{name} must be {wanted}, got {inferred}.")
    in_dtypes, out_dtypes = op.infer_type(attrs, *dtypes)
    for name, have, want in zip(names, dtypes, in_dtypes):
        if want is not None and have != want:
            raise DTypeError(f"needs {name} to be {want}, got {have}.")
    return tuple(map(tuple, out_shapes)), out_dtypes


def computed(name: str, inputs: tuple[GraphValue, ...], parameters: Mapping[str, Any]) -> list[np.ndarray]:
    """The visible outputs for inputs that are constants."""
    arrays = [nd.array(v.array, dtype=v.dtype) for v in inputs]
    result = getattr(nd, name)(*arrays, **parameters_given(parameters))
    try:
        return [r.asnumpy() for r in (result if isinstance(result, (list, tuple)) else [result])]
    except MXLiteError as error:
        raise FormatError(f"{name} of constants failed: {error}") from None


def evaluate(symbol: Symbol, arrays: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """The outputs of a symbol whose inputs are all in `arrays`."""
    states = set(symbol.list_auxiliary_states())
    have = {n: nd.array(arrays[n], dtype=arrays[n].dtype) for n in symbol.list_inputs()}
    executor = symbol.bind(
        None,
        {n: a for n, a in have.items() if n not in states},
        grad_req="null",
        aux_states={n: a for n, a in have.items() if n in states},
    )
    return [out.asnumpy() for out in executor.forward()]


def parameters_given(parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in parameters.items() if v is not None}
