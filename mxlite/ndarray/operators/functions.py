"""`mx.nd.<operator>`: one function for each declaration in `mxlite.ops`, with its name, signature and help.

    mx.nd.FullyConnected(data, weight, bias, 10)            inputs first, then parameters, as declared
    mx.nd.FullyConnected(data=data, weight=w, num_hidden=10, no_bias=True, out=y)
    mx.nd.Concat(a, b, c, dim=0)                            any number of arrays

Operators run as for inference: Dropout passes its input on, BatchNorm uses the moving averages, which
are inputs like the others.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ...core import Context, nearest, OpAttributeError
from ...core.errors import ArgumentError
from ...graph.attrs import attr_fields
from ...graph.opdef import Op
from ...ops import TABLE
from ..calls.invoke import Call, call_of, invoke
from ..memory.storage import Storage
from ..ndarray import NDArray
from .operator_methods import NAMES, OperatorMethods

_NOTHING: Mapping[str, Any] = {}
_KEYWORD = inspect.Parameter.KEYWORD_ONLY
_EITHER = inspect.Parameter.POSITIONAL_OR_KEYWORD


def function_of(op: type[Op], name: str) -> Callable[..., Any]:
    """The imperative function of an operator; `name` is one of its names."""
    parameters = [f.name for f in dataclasses.fields(op.Attrs)]
    names = op.inputs
    variadic = bool(op.variadic)

    def function(*args: Any, out: Any = None, name: Any = None, ctx: Any = None, **keywords: Any) -> Any:
        # The common call first: all inputs by position, no parameters.
        if not keywords and args and not variadic and all(isinstance(a, Storage) for a in args):
            call = call_of(op, _NOTHING)
            if len(args) == len(call.inputs):
                return invoke(call, args, out)
        context = Context(ctx) if isinstance(ctx, str) else ctx
        if variadic:
            arrays, given = _gather_many(op, args, keywords)
        else:
            arrays, given = _gather(op, names, parameters, args, keywords)
        call = call_of(op, given)
        if variadic:  # most name their inputs arg0, arg1, ...; UpSampling's are data and weight
            arrays = {call.inputs[int(k[3:])] if k.startswith("arg") else k: x for k, x in arrays.items()}
        return invoke(call, _in_order(call, arrays), out, context, NDArray)

    function.__name__ = function.__qualname__ = name
    function.__module__ = "mxlite.ndarray"
    function.__doc__ = _help(op)
    function.__signature__ = _signature(op)  # type: ignore[attr-defined]
    return function


def _gather(
    op: type[Op],
    names: tuple[str, ...],
    parameters: list[str],
    args: tuple[Any, ...],
    keywords: dict[str, Any],
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Inputs by name, and parameters by name."""
    order = (*names, *parameters)
    if len(args) > len(order):
        raise OpAttributeError(
            f"{op.op_name} takes at most {len(order)} arguments ({', '.join(order)}), got {len(args)}."
        )
    arrays: dict[str, Any] = {}
    given: dict[str, Any] = {}
    for key, value in (*zip(order, args), *keywords.items()):
        if key in arrays or key in given:
            raise OpAttributeError(f"{op.op_name} got {key!r} twice.")
        if key in names:
            if value is not None:
                arrays[key] = _array(op, key, value)
        elif key in parameters:
            if isinstance(value, Storage):
                raise OpAttributeError(
                    f"{op.op_name}: {key!r} is a parameter, but got an array; its inputs are {list(names)}."
                )
            given[key] = value
        else:
            raise OpAttributeError(
                f"{op.op_name} has no input or parameter {key!r}; it has {', '.join(order)}."
                f"{nearest(key, order)}"
            )
    return arrays, given


def _gather_many(
    op: type[Op], args: tuple[Any, ...], keywords: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    arrays = list(args[0]) if len(args) == 1 and isinstance(args[0], (list, tuple)) else list(args)
    given = dict(keywords)
    while (key := f"arg{len(arrays)}") in given:
        arrays.append(given.pop(key))
    named = {k: given.pop(k) for k in list(given) if isinstance(given[k], Storage)}
    found = len(arrays) + len(named)
    count = given.setdefault("num_args", found)
    if str(count) != str(found):
        raise OpAttributeError(f"{op.op_name} got {found} arrays, but num_args is {count}.")
    if not found:
        raise OpAttributeError(f"{op.op_name} needs at least one array, got 0.")
    return {f"arg{i}": _array(op, f"arg{i}", a) for i, a in enumerate(arrays)} | named, given


def _array(op: type[Op], key: str, value: Any) -> Storage:
    if not isinstance(value, Storage):
        raise ArgumentError(
            f"{op.op_name} needs an NDArray for {key!r}, got {type(value).__name__}; "
            f"mx.nd.array(...) makes one of numbers, mx.sym.{op.op_name} takes symbols."
        )
    return value


def _in_order(call: Call, arrays: dict[str, Any]) -> list[Any]:
    """The arrays in the kernel's order: all that are in use, and no other."""
    if missing := [n for n in call.inputs if n not in arrays]:
        raise OpAttributeError(
            f"{call.op.op_name} needs the array {missing[0]!r} ({', '.join(call.inputs)})."
        )
    if extra := [n for n in arrays if n not in call.inputs]:
        raise OpAttributeError(f"{call.op.op_name} with {call.attrs} has no input {extra[0]!r}.")
    return [arrays[n] for n in call.inputs]


def _signature(op: type[Op]) -> inspect.Signature:
    fields = {f.name: f for f in dataclasses.fields(op.Attrs)}
    kinds = attr_fields(op)
    variadic = bool(op.variadic)
    parameters = []
    if variadic:
        parameters.append(inspect.Parameter(op.variadic, inspect.Parameter.VAR_POSITIONAL))
    else:
        parameters += [inspect.Parameter(n, _EITHER, default=None) for n in op.inputs]
    for key, (annotation, required) in kinds.items():
        if variadic and key == "num_args":
            continue
        field = fields[key]
        default = field.default if field.default is not dataclasses.MISSING else None
        kind = _KEYWORD if variadic else _EITHER
        if required and not variadic and not op.inputs:
            default = inspect.Parameter.empty
        parameters.append(inspect.Parameter(key, kind, default=default, annotation=annotation))
    parameters.append(inspect.Parameter("out", _KEYWORD, default=None))
    required_first = sorted(parameters, key=lambda p: (p.kind, p.default is not inspect.Parameter.empty))
    return inspect.Signature(required_first)


def _help(op: type[Op]) -> str:
    kinds = attr_fields(op)
    lines = [inspect.cleandoc(op.__doc__ or op.op_name)]
    if kinds:
        lines += ["", "Parameters:"]
        for field in dataclasses.fields(op.Attrs):
            kind = kinds[field.name][0]
            text = (
                getattr(kind, "__name__", None)
                if isinstance(kind, type)
                else str(kind).replace("typing.", "")
            )
            rest = "required" if kinds[field.name][1] else f"default {field.default!r}"
            lines.append(f"    {field.name}: {text}, {rest}")
    lines += ["", "out: an NDArray, or a list of them, that receives the result."]
    return "\n".join(lines)


class _Functions(Mapping[str, Callable[..., Any]]):
    """The functions by name, each built at its first use: few programs need many of them."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = dict.fromkeys(names)
        self._made: dict[str, Callable[..., Any]] = {}

    def __getitem__(self, name: str) -> Callable[..., Any]:
        function = self._made.get(name)
        if function is None:
            if name not in self._names:
                raise KeyError(name)
            function = self._made[name] = function_of(TABLE[name], name)
        return function

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


FUNCTIONS = _Functions(TABLE)
"""Every name of every operator."""


def _method(name: str) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **parameters: Any) -> Any:
        if not args and not parameters:  # the common call
            call = call_of(name, _NOTHING)
            if len(call.inputs) == 1:
                return invoke(call, (self,))
        return FUNCTIONS[name](self, *args, **parameters)

    method.__name__ = name
    method.__qualname__ = f"NDArray.{name}"
    method.__doc__ = f"`mx.nd.{name}` of this array; see there."
    return method


for _name in NAMES:
    setattr(OperatorMethods, _name, _method(_name))
