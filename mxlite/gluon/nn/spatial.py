"""The base of layers over one, two or three spatial axes."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any, cast, ClassVar

from ...core.errors import ShapeError
from ..blocks.hybrid_block import HybridBlock

LAYOUTS = {1: "NCW", 2: "NCHW", 3: "NCDHW"}


def spread(value: Any, count: int, name: str) -> tuple[int, ...]:
    """One number for each of `count` axes: a number for all of them, or a tuple. ShapeError."""
    if hasattr(value, "__index__"):
        return (int(value),) * count
    values = tuple(int(v) for v in value)
    if len(values) != count:
        raise ShapeError(f"{name} must be a number or {count} of them, got {value!r}.")
    return values


class Spatial(HybridBlock):
    """Base. A constructor is written once, for one spatial axis; that of `class Conv2D(Base, axes=2)` has the
    defaults for two: MXNet's name of the `layout`, and a number for each axis in the parameters `each`.
    """

    each: ClassVar[tuple[str, ...]] = ()
    _spatial: ClassVar[int]

    def __init_subclass__(cls, axes: int = 0, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if axes:
            cls._spatial = axes
            cls.__init__ = _for_axes(cls.__init__, axes, cls.each)  # type: ignore[method-assign]


def _for_axes(init: Callable[..., None], count: int, each: tuple[str, ...]) -> Callable[..., None]:
    """A constructor for one spatial axis as one for `count` axes."""
    made = cast(FunctionType, init)
    given = made.__defaults__ or ()
    names = made.__code__.co_varnames[made.__code__.co_argcount - len(given) : made.__code__.co_argcount]
    mine = {"layout": LAYOUTS[count]} if count > 1 else {}
    defaults = tuple(
        mine.get(n, (d,) * count if n in each and count > 1 else d) for n, d in zip(names, given)
    )
    copy = FunctionType(made.__code__, made.__globals__, made.__name__, defaults, made.__closure__)
    copy.__annotations__ = made.__annotations__
    return copy
