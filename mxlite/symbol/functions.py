"""`mx.sym.Convolution` and all other operator functions, made from the operators' declarations."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import types
import typing
from collections.abc import Callable
from typing import Any, Literal, Union

import numpy as np

from ..core.errors import MXLiteError, OpAttributeError
from ..graph import attr_fields, Entry, Op
from ..ops import find_op
from . import symbol
from .arithmetic import single
from .compose import call
from .symbol import Symbol


class _Required:
    """The default, in a signature, of a parameter that has none."""

    def __repr__(self) -> str:
        return "<required>"


def operator_function(name: str) -> Callable[..., Symbol]:
    """The function `mx.sym.<name>`. Raises UnknownNameError if no operator has that name or alias."""
    return _function(find_op(name), name)  # type: ignore[arg-type]


@functools.cache
def _function(op: type[Op], name: str) -> Callable[..., Symbol]:
    hint = name.lower()

    def function(*args: Any, **kwargs: Any) -> Symbol:
        return apply(op, hint, args, kwargs)

    function.__name__ = function.__qualname__ = name
    function.__module__ = "mxlite.symbol"
    function.__doc__ = _help(op)
    function.__signature__ = _signature(op)  # type: ignore[attr-defined]
    return function


def apply(op: type[Op], hint: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Symbol:
    """One call of an operator function.

    Positional arguments are the inputs, then the parameters, in the order of the signature; an operator
    of any number of inputs takes symbols only. None stands for an input that is not given.
    """
    name, attr = kwargs.pop("name", None), kwargs.pop("attr", None)
    who = f"{op.op_name} {name!r}" if name else op.op_name
    if kwargs.pop("out", None) is not None:
        raise OpAttributeError(f"{who}: symbols have no 'out'; the result is a new symbol.")
    inputs = args if op.variadic else args[: len(op.inputs)]
    positional = [_input(x, who, i) for i, x in enumerate(inputs)]
    while positional and positional[-1] is None:
        positional.pop()
    parameters: dict[str, Any] = {}
    fields = list(attr_fields(op))
    rest = args[len(inputs) :]
    if len(rest) > len(fields) or any(isinstance(x, Symbol) for x in rest):
        raise MXLiteError(
            f"{who} takes {len(op.inputs)} inputs {op.inputs} and {len(fields)} parameters {tuple(fields)}; "
            f"got {len(args)} positional arguments."
        )
    parameters.update(zip(fields, rest))
    named: dict[str, Entry] = {}
    for key, value in kwargs.items():
        if key in parameters:
            raise MXLiteError(f"{who} got its parameter {key!r} twice: by position and by name.")
        if isinstance(value, Symbol):
            named[key] = single(value, who)
        elif key not in op.inputs:
            parameters[key] = value
        elif value is not None:
            _input(value, who, key)
    if op.variadic and positional and named:
        raise MXLiteError(f"{who} takes its inputs all by position or all by name, not mixed.")
    node = call(op, hint, positional, named, parameters, name, attr)
    return Symbol(tuple(Entry(node, i) for i in range(node.num_visible_outputs)))


def _input(value: Any, who: str, place: int | str) -> Entry | None:
    if value is None:
        return None
    if not isinstance(value, Symbol):
        hint = " Spread a list with *." if isinstance(value, (list, tuple)) else ""
        raise OpAttributeError(f"{who}: input {place!r} must be a Symbol, got {type(value).__name__}.{hint}")
    return single(value, who)


def _signature(op: type[Op]) -> inspect.Signature:
    kind = inspect.Parameter
    parameters = [kind(i, kind.POSITIONAL_OR_KEYWORD, default=None) for i in op.inputs]
    if op.variadic:
        parameters = [kind(op.variadic, kind.VAR_POSITIONAL)]
    by = kind.KEYWORD_ONLY if op.variadic else kind.POSITIONAL_OR_KEYWORD
    parameters += [kind(k, by, default=d) for k, d in _defaults(op).items()]
    parameters += [kind(k, by, default=None) for k in ("name", "attr")]
    return inspect.Signature(parameters, return_annotation=Symbol)


def _defaults(op: type[Op]) -> dict[str, Any]:
    fields = dataclasses.fields(op.Attrs)
    defaults = {f.name: f.default if f.default is not dataclasses.MISSING else _Required() for f in fields}
    if op.variadic:
        defaults.pop("num_args", None)  # it is the number of inputs
    return defaults


def arguments_of(op: type[Op], one: str = "NDArray-or-Symbol", many: str = "[]") -> dict[str, str]:
    """The type of each input and parameter as MXNet words it; `one` is an input, `many` added for several."""
    told = {op.variadic: one + many} if op.variadic else dict.fromkeys(op.inputs, one)
    kinds = attr_fields(op)
    for key, default in _defaults(op).items():
        kind = _kind(kinds[key][0])
        if isinstance(default, _Required):
            told[key] = f"{kind}, required"
        else:
            is_chosen = kind.startswith("{")
            value = f"'{default}'" if is_chosen or kind.startswith("int") else _value(default)
            told[key] = f"{kind},{'' if is_chosen else ' '}optional, default={value}"
    return told


def _help(op: type[Op]) -> str:
    """The declaration's docstring, then its inputs and parameters."""
    lines = [inspect.cleandoc(op.__doc__ or ""), "", "Parameters", "----------"]
    lines += [f"{key} : {words}" for key, words in arguments_of(op, "Symbol", "s").items()]
    lines += [
        "name : str, optional",
        "    Name of the node; counted up if it is not given.",
        "attr : dict of str, optional",
        "    Attributes such as {'__lr_mult__': '2'}.",
        "",
        "Inputs that are not given become variables called NAME_INPUT.",
    ]
    return "\n".join(lines)


_KINDS: dict[Any, str] = {
    bool: "boolean",
    str: "string",
    types.NoneType: "None",
    tuple[int, ...]: "Shape(tuple)",
}


def _kind(annotation: Any) -> str:
    """A parameter's type as MXNet words it."""
    if annotation in _KINDS:
        return _KINDS[annotation]
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (Union, types.UnionType):
        if typing.get_origin(parts[0]) is Literal:
            return _kind(parts[0]).replace("{", "{None, ")
        return " or ".join(map(_kind, parts)).replace("Shape(tuple)", "Shape")
    if origin is Literal:
        return "{" + ", ".join(map(repr, sorted(parts))) + "}"
    if origin is tuple:
        return f"tuple of <{parts[0].__name__}>"
    return str(annotation.__name__)


def _value(default: Any, digits: int = 9) -> str:
    """A default as MXNet words it: a float32 with the nine digits that tell it from others, six in tuples."""
    if isinstance(default, tuple):
        return f"[{','.join(_value(x, digits=6) for x in default)}]"
    if isinstance(default, float):
        return format(float(np.float32(default)), f".{digits}g")
    return repr(int(default) if isinstance(default, bool) else default)


symbol.operator_function.supply(operator_function)
