"""Values for the parameters of a module: given ones, or an initializer's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...core import BindError, MXLiteError, nearest, ShapeError
from ...core.errors import ArgumentError
from ...core.wanted import wanted, wanted_function
from ...ndarray import NDArray
from ...ndarray.files.stored import StoredArray
from .initializer import InitDesc

Arrays = Mapping[str, NDArray]
Given = Mapping[str, NDArray | StoredArray]


def fill(
    targets: Arrays,
    given: Given | None,
    initializer: Any,
    attrs: Mapping[str, Mapping[str, str]],
    allow_missing: bool,
) -> None:
    """Give every target a value: that of its name in `given`, else by `initializer`, which sees `attrs`."""
    _check(given)
    wanted_function("init_params: initializer", initializer, "an Initializer")
    if isinstance(initializer, type):
        name = initializer.__name__
        raise ArgumentError(
            f"init_params: initializer must be an Initializer such as {name}(), got {name} itself."
        )
    for name, target in targets.items():
        if given is not None and name in given:
            _assign(name, given[name], target)
        elif given is not None and not allow_missing:
            raise MXLiteError(
                f"{name!r} is missing from the given parameters; allow_missing=True initialises it."
                f"{nearest(name, given)}"
            )
        else:
            initializer(InitDesc(name, attrs.get(name, {})), target)


def copy(given: Given | None, targets: Arrays) -> None:
    """Give every target whose name is given the value of that."""
    _check(given)
    for name, target in targets.items():
        if given is not None and name in given:
            _assign(name, given[name], target)


def refuse_missing(given: Given | None, names: Iterable[str]) -> None:
    """Raise MXLiteError if something is given, but no value for one of the names."""
    _check(given)
    if given is None:
        return
    if missing := [n for n in names if n not in given]:
        raise MXLiteError(
            f"set_params lacks {missing[0]!r}; allow_missing=True leaves it as it is."
            f"{nearest(missing[0], given)}"
        )


def refuse_unknown(given: Given | None, known: Iterable[str], names: Iterable[str]) -> None:
    """Raise BindError if something is given that is none of `known`; it may be meant for one of `names`."""
    _check(given)
    known = set(known)
    if given is not None and (extra := [n for n in given if n not in known]):
        raise BindError(f"{extra[0]!r} is no parameter of this symbol.{nearest(extra[0], list(names))}")


def _check(given: Any) -> None:
    if given is not None:
        wanted("Given parameters", given, "a dict of names and NDArrays", Mapping)


def _assign(name: str, value: NDArray | StoredArray, target: NDArray) -> None:
    wanted(f"The value of {name!r}", value, "an NDArray", NDArray, StoredArray)
    if value.shape != target.shape:
        raise ShapeError(f"{name!r} is {target.shape} here, but {value.shape} was given.")
    if isinstance(value, NDArray):
        value = value.astype(target.dtype, copy=False)
    value.copyto(target)
