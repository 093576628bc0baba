"""Grouped parameters: kernels of many arrays take them in named tuples.

    class Statistics(NamedTuple):
        mean: Any
        var: Any
        shift: Any = None                  # may be left out

    @staticmethod
    @grouped
    def forward(xp, a, data, s: Statistics, *, out, work):
        xp.subtract(data, s.mean, out=out)

For its callers, this is `forward(xp, a, data, mean, var, shift=None, *, out, work)`: the fields take the
place of the parameter, in their order, and name inputs before the `*`, outputs behind it. A kernel may have
several groups. A program makes the tuples once, when it binds a call; `forward.kernel` is the function as it
was written, for kernels that run it as a part of theirs.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable, Mapping, Sequence
from types import CodeType, FunctionType
from typing import Any

from ..core.errors import ArgumentError, DefinitionError
from ..core.record import named_tuple
from .opdef import Signature


class Grouped:
    """A kernel whose parameters are in groups, called with one argument for each array."""

    def __init__(self, kernel: FunctionType, parameters: _Parameters) -> None:
        self.kernel, self._parameters = kernel, parameters
        self.__signature__, self.signature = parameters.shown, parameters.signature
        self.__name__, self.__qualname__, self.__doc__ = kernel.__name__, kernel.__qualname__, kernel.__doc__
        self.__module__ = kernel.__module__

    def __call__(self, xp: Any, a: Any, *given: Any, **rest: Any) -> Any:
        return self.kernel(xp, a, **self.arranged(given, rest))

    def arranged(self, given: Sequence[Any], rest: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments of `kernel` by name, from those that a caller gives in order and by name."""
        names = self._parameters.names
        if len(given) > len(names) or not rest.keys().isdisjoint(names[: len(given)]):
            raise ArgumentError(
                f"{self.__qualname__}() takes {names} once each, got {len(given)} and {[*rest]}."
            )
        have = {**dict(zip(names, given)), **rest}
        made = {
            name: group(**{f: have.pop(f) for f in group._fields if f in have})
            for name, group in self._parameters.groups
        }
        return have | made


class _Parameters:
    """Groups of a function, by parameter, and what callers see: a signature for Python's help and one for
    operators, and names in order.
    """

    def __init__(self, kernel: FunctionType) -> None:
        self.groups: list[tuple[str, Any]] = []
        if kernel.__code__.co_flags & inspect.CO_VARARGS:
            raise DefinitionError(
                f"{kernel.__qualname__} takes any number of arrays, which no group can hold."
            )
        parameters: dict[str, inspect.Parameter] = {}
        for p in inspect.signature(kernel).parameters.values():
            group = _group(kernel, p)
            if group is None:
                shown = [p.replace(annotation=p.empty)]
            else:
                self.groups.append((p.name, group))
                defaults = group._field_defaults
                shown = [
                    p.replace(name=f, default=defaults.get(f, p.empty), annotation=p.empty)
                    for f in group._fields
                ]
            for s in shown:
                if s.name in parameters:
                    raise DefinitionError(f"{kernel.__qualname__} has two parameters {s.name!r}.")
                parameters[s.name] = s
        if not self.groups:
            raise DefinitionError(
                f"{kernel.__qualname__} has no parameter that a NamedTuple class of its module annotates."
            )
        in_order = [p for p in parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
        least = max((i for i, p in enumerate(in_order) if p.default is p.empty), default=-1)
        for p in in_order[:least]:  # a default before a parameter that must be given has no effect
            parameters[p.name] = p.replace(default=p.empty)
        self.shown = inspect.Signature([*parameters.values()])
        self.names = tuple(p.name for p in in_order[2:])
        self.signature = Signature.sorted(self.names, [n for n in parameters if n not in self.names][2:])


def _group(kernel: FunctionType, parameter: inspect.Parameter) -> Any:
    """The NamedTuple class that annotates a parameter, or None."""
    found = parameter.annotation
    if isinstance(found, str):  # with `from __future__ import annotations`
        found = kernel.__globals__.get(found)
    return named_tuple(found)


_read: weakref.WeakKeyDictionary[CodeType, _Parameters] = weakref.WeakKeyDictionary()


def grouped(kernel: Callable[..., Any]) -> Any:
    """`kernel` as a `Grouped`, with a parameter for each field of its named tuples. A `def` is read once."""
    assert isinstance(kernel, FunctionType)
    parameters = _read.get(kernel.__code__)
    if parameters is None:
        parameters = _read[kernel.__code__] = _Parameters(kernel)
    return Grouped(kernel, parameters)
