"""Classes that a user may name by text: `create("sgd", momentum=0.9)`; mx.registry, for classes of others.

    register = mx.registry.get_register_func(Sampler, "sampler")
    create = mx.registry.get_create_func(Sampler, "sampler")
    register(Split)
    create("split", parts=4), create('["split", {"parts": 4}]'), create(sampler="split")

All functions of one base class share its registry, that of `mx.optimizer.Optimizer` for example.
"""

from __future__ import annotations

import inspect
import json
import warnings
from collections.abc import Callable, Iterator
from typing import Any, cast, ClassVar, Generic, TypeVar

from ..core.errors import ArgumentError, nearest, OpAttributeError, UnknownNameError

T = TypeVar("T")
Class = TypeVar("Class", bound=type)


class Registry(Generic[T]):
    """Name -> subclass of one base class. Names are matched without regard to case."""

    _made: ClassVar[dict[type, Registry[Any]]] = {}

    def __init__(self, kind: str, base: type[T]) -> None:
        self.kind = kind
        self.base = base
        self._classes: dict[str, type[T]] = {}
        self._made[base] = self

    @classmethod
    def of(cls, base: type, kind: str) -> Registry[Any]:
        """The registry of a base class: that of mxlite, or the one made here before, or a new one."""
        return cls._made[base] if base in cls._made else cls(kind, base)

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._classes))

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.lower() in self._classes

    def register(self, cls: Class, name: str | None = None) -> Class:
        """Add `cls` under `name`, else under its own name; gives `cls` back, so it serves as a decorator."""
        fits = isinstance(cls, type) and issubclass(cls, self.base)
        if not fits:
            raise ArgumentError(f"Only a subclass of {self.base.__name__} can be registered, got {cls!r}.")
        key = (name or cls.__name__).lower()
        old = self._classes.get(key)
        if old is not None and old is not cls:
            warnings.warn(
                f"{self.kind} {key!r} was {old.__module__}.{old.__qualname__}; from now on it is "
                f"{cls.__module__}.{cls.__qualname__}.",
                stacklevel=2,
            )
        self._classes[key] = cast("type[T]", cls)
        return cls

    def alias(self, *names: str) -> Callable[[Class], Class]:
        """Decorator: further names of a class."""

        def add(cls: Class) -> Class:
            for name in names:
                self.register(cls, name)
            return cls

        return add

    def get(self, name: str) -> type[T]:
        """The class of that name; UnknownNameError suggests the nearest one."""
        if not isinstance(name, str):
            raise UnknownNameError(f"The {self.kind} must be named by text, got {name!r}.")
        found = self._classes.get(name.lower())
        if found is None:
            raise UnknownNameError(
                f"There is no {self.kind} {name!r}.{nearest(name.lower(), self._classes)} "
                f"Known: {', '.join(self)}."
            )
        return found

    def create(self, spec: Any, *args: Any, **kwargs: Any) -> T:
        """An instance from a name and arguments; an instance is given back as it is.

        Text that starts with `[` is JSON `["name", {arguments}]`, as `dumps` of an initializer writes it; a
        dict, or such text of one, holds the name under the kind and the arguments beside it.
        Raises UnknownNameError for an unknown name and OpAttributeError for an unknown argument.
        """
        if isinstance(spec, self.base):
            if args or kwargs:
                raise OpAttributeError(
                    f"{spec!r} is a {self.kind} already; arguments {args or sorted(kwargs)} come too late."
                )
            return spec
        if isinstance(spec, dict) or (isinstance(spec, str) and spec.startswith(("[", "{"))):
            spec, kwargs = self._from_description(spec)
        cls = self.get(spec)
        accepted = _keywords(cls)
        if accepted is not None:
            for name in kwargs:
                if name not in accepted:
                    raise OpAttributeError(
                        f"{self.kind} {spec!r} has no parameter {name!r}.{nearest(name, accepted)} "
                        f"It takes {', '.join(accepted)}."
                    )
        return cls(*args, **kwargs)

    def _from_description(self, text: Any) -> tuple[str, dict[str, Any]]:
        try:
            found = json.loads(text) if isinstance(text, str) else text
            if isinstance(found, dict):
                return found[self.kind], {k: v for k, v in found.items() if k != self.kind}
            name, kwargs = found
            if isinstance(name, str) and isinstance(kwargs, dict):
                return name, kwargs
        except (KeyError, ValueError, TypeError):
            pass
        forms = f'["name", {{arguments}}] or {{"{self.kind}": "name", arguments}}'
        raise UnknownNameError(f"A {self.kind} as JSON is {forms}, got {text!r}.")


def _keywords(cls: type) -> list[str] | None:
    """Names that the constructor takes, looking through `**kwargs` into its bases; None: it takes any."""
    names: list[str] = []
    for base in cls.__mro__:
        init = base.__dict__.get("__init__")
        if init is None or base is object:
            continue
        passes_on = False
        for parameter in list(inspect.signature(init).parameters.values())[1:]:
            if parameter.kind is parameter.VAR_KEYWORD:
                passes_on = True
            elif parameter.kind is not parameter.VAR_POSITIONAL and parameter.name not in names:
                names.append(parameter.name)
        if not passes_on:
            return names
    return None


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
