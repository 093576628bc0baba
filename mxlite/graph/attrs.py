"""Operator parameters: from values of a user or a file to the typed `Attrs` of an operator.

Values come as Python objects (`kernel=(3, 3)`) or, from a Symbol file, as text (`"(3, 3)"`). The
grammar of the text is MXNet's: `(3, 3)`, `[3,3]`, `(3L, 3L)`, `3`; `True`, `true`, `1`; `None`. It is read
by hand, never evaluated.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import types
import typing
from collections.abc import Mapping
from typing import Any, get_args, get_origin, Literal, Union

import numpy as np

from ..core.dtype import as_dtype
from ..core.errors import DTypeError, nearest, OpAttributeError, ShapeError
from .opdef import Op

MOST_ARRAYS = 65536
"""Inputs or outputs that one node may have: a number in a file must not decide how much is allocated."""

_TRUE, _FALSE = ("true", "True", "TRUE", "1"), ("false", "False", "FALSE", "0")


def parse_attrs(op: type[Op], given: Mapping[str, Any]) -> Any:
    """`op.Attrs` from parameters by name.

    Raises OpAttributeError for an unknown parameter (with the nearest name), a missing required one,
    or a value of the wrong kind.
    """
    attrs = parse_fields(op.op_name, op.Attrs, given)
    _bound_arrays(op, attrs)
    return attrs


def parse_fields(what: str, kind: Any, given: Mapping[str, Any]) -> Any:
    """The dataclass `kind` from parameters by name, each converted to the type of its field.

    Raises OpAttributeError, which begins with `what`, as `parse_attrs` does.
    """
    kinds = _fields(kind)
    values: dict[str, Any] = {}
    for key, value in given.items():
        if key not in kinds:
            raise OpAttributeError(
                f"{what} has no parameter {key!r}; it has {sorted(kinds)}.{nearest(key, kinds)}"
            )
        try:
            values[key] = _convert(kinds[key][0], value)
        except (ValueError, TypeError, OverflowError) as error:
            raise OpAttributeError(f"{what}: parameter {key!r} {error}") from None
    if missing := [k for k, (_, required) in kinds.items() if required and k not in values]:
        raise OpAttributeError(f"{what} needs the parameter {missing[0]!r}.")
    try:
        return kind(**values)
    except (OpAttributeError, DTypeError, ShapeError) as error:
        raise OpAttributeError(f"{what}: {error}") from None


def _bound_arrays(op: type[Op], attrs: Any) -> None:
    """Raise OpAttributeError if `attrs` ask for no input or output, or for more than MOST_ARRAYS."""
    outs = op.num_outputs_of(attrs) if op.variadic_outputs else 1
    ins = (attrs.num_args or getattr(attrs, "num_arrays", 0)) if op.variadic else 1
    if op.variadic_outputs and not ins:  # parameters that are not given follow from the outputs
        ins = outs
    for count, what in ((ins, "inputs"), (outs, "outputs")):
        if not 1 <= count <= MOST_ARRAYS:
            raise OpAttributeError(
                f"{op.op_name} cannot have {count} {what}; between 1 and {MOST_ARRAYS} are possible."
            )


def attr_text(value: Any) -> str:
    """How a parameter is written in a file: `str()` of what the user passed, dtypes by their name."""
    if isinstance(value, (type, np.dtype)):
        return str(as_dtype(value))
    return str(value)


@functools.cache
def _fields(attrs: type) -> dict[str, tuple[Any, bool]]:
    """name -> (annotation, required) of an Attrs dataclass."""
    hints = typing.get_type_hints(attrs)
    return {
        f.name: (
            hints[f.name],
            f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING,
        )
        for f in dataclasses.fields(attrs)
    }


def attr_fields(op: type[Op]) -> dict[str, tuple[Any, bool]]:
    """name -> (annotation, required) of an operator's parameters."""
    return _fields(op.Attrs)


def attrs_by_name(attrs: Any) -> dict[str, Any]:
    """The values of an operator's parameters. They cannot change, so nothing is copied, as `asdict` does."""
    return {f.name: getattr(attrs, f.name) for f in dataclasses.fields(attrs)}


def attrs_from(kind: Any, attrs: Any, **given: Any) -> Any:
    """Parameters of the class `kind`: those given, and what `attrs` has of the others by name."""
    names = {f.name for f in dataclasses.fields(kind)}
    return kind(**{n: x for n, x in attrs_by_name(attrs).items() if n in names} | given)


def _convert(kind: Any, value: Any) -> Any:
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        options = [k for k in get_args(kind) if k is not type(None)]
        if value is None or (isinstance(value, str) and value == "None"):
            if len(options) < len(get_args(kind)):
                return None
        errors = []
        for option in options:
            try:
                return _convert(option, value)
            except (ValueError, TypeError) as error:
                errors.append(str(error))
        raise ValueError(" or ".join(dict.fromkeys(errors)))
    if origin is Literal:
        options = list(get_args(kind))
        text = value.__name__ if isinstance(value, type) else str(value)  # numpy.int32 names a dtype
        for option in options:
            if value == option or text == str(option):
                return option
        raise ValueError(f"must be one of {options}, got {value!r}.{nearest(str(value), map(str, options))}")
    if origin is tuple:
        return parse_tuple(value, get_args(kind)[0])
    if kind is bool:
        return _bool(value)
    if kind is int:
        return _int(value)
    if kind is float:
        return _float(value)
    if kind is str:
        return attr_text(value)
    if hasattr(kind, "from_text"):  # a class of its own: a Subgraph
        return value if isinstance(value, kind) else kind.from_text(value)
    raise TypeError(f"is declared as {kind!r}, which no parser knows.")


def _int(value: Any) -> int:
    if isinstance(value, str):
        if not re.fullmatch(r"\s*[+-]?[0-9]{1,19}\s*", value):
            raise ValueError(f"must be a whole number, got {value!r}.")
        number = int(value)
    elif isinstance(value, bool) or (isinstance(value, float) and value.is_integer()):
        number = int(value)
    elif hasattr(value, "__index__"):
        number = int(value.__index__())
    else:
        raise ValueError(f"must be a whole number, got {value!r}.")
    if not -(2**63) <= number < 2**63:
        raise ValueError(f"must be a whole number of 64 bits, got {value!r}.")
    return number


def _float(value: Any) -> float:
    if value is None:
        raise ValueError("must be a number, got None.")
    try:
        return float(value)
    except (ValueError, TypeError):
        raise ValueError(f"must be a number, got {value!r}.") from None


def _bool(value: Any) -> bool:
    if isinstance(value, str):
        if value in _TRUE:
            return True
        if value in _FALSE:
            return False
    elif isinstance(value, (bool, int)) or type(value).__name__ in ("bool", "bool_"):
        if value in (0, 1):
            return bool(value)
    raise ValueError(f"must be True or False, got {value!r}.")


def parse_tuple(value: Any, item: Any) -> tuple[Any, ...]:
    convert = _float if item is float else _int
    if isinstance(value, str):
        text = value.strip()
        if text[:1] in ("(", "[") and text[-1:] in (")", "]"):
            text = text[1:-1]
        parts = [p.strip() for p in text.split(",")]
        if parts and parts[-1] == "":
            parts.pop()  # "(3,)" and "()"
        return tuple(convert(re.sub(r"(?<=[0-9])L$", "", p)) for p in parts)
    if hasattr(value, "__iter__"):
        return tuple(convert(v) for v in value)
    return (convert(value),)
