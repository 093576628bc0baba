"""mx.registry: classes that a program lets be named by text, as optimizers and initializers are here.

    register = mx.registry.get_register_func(Sampler, "sampler")
    create = mx.registry.get_create_func(Sampler, "sampler")
    register(Split)
    create("split", parts=4), create('["split", {"parts": 4}]'), create(sampler="split")

All functions of one base class share its registry, that of `mx.optimizer.Optimizer` for example.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core.errors import ArgumentError
from .registry import Registry


def get_registry(base_class: type) -> dict[str, type]:
    """The classes by name, in a dict of their own."""
    known = Registry.of(base_class, base_class.__name__.lower())
    return {name: known.get(name) for name in known}


def get_register_func(base_class: type, nickname: str) -> Callable[..., type]:
    """`register(cls, name=None)`, also a decorator: adds a subclass under a name, else its own."""
    return Registry.of(base_class, nickname).register


def get_alias_func(base_class: type, nickname: str) -> Callable[..., Callable[[type], type]]:
    """`alias(*names)`, a decorator that adds a subclass under further names."""
    return Registry.of(base_class, nickname).alias


def get_create_func(base_class: type, nickname: str) -> Callable[..., Any]:
    """`create(spec, **arguments)`; see `Registry.create`. The name may also be given as `nickname=`."""
    registry = Registry.of(base_class, nickname)

    def create(*args: Any, **kwargs: Any) -> Any:
        if args:
            return registry.create(*args, **kwargs)
        if nickname not in kwargs:
            raise ArgumentError(f"Which {nickname}? Give its name: {', '.join(registry)}.")
        return registry.create(kwargs.pop(nickname), **kwargs)

    return create
