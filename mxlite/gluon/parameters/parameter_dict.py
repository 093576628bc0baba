"""ParameterDict: parameters by name, with a prefix for new ones and those of another block to share."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from typing import Any

import numpy as np

from ... import ndarray as nd
from ...core import nearest, UnknownNameError
from ...core.errors import ArgumentError, FormatError, OpAttributeError
from ...module.initial import initializer
from ...ndarray import NDArray
from .constant import Constant
from .parameter import Parameter


class ParameterDict:
    """Parameters by full name, in the order in which they were made.

    `get(name)` makes `prefix + name`, unless it is here already, or in `shared`.
    """

    def __init__(self, prefix: str = "", shared: ParameterDict | None = None) -> None:
        self._prefix = prefix
        self._params: dict[str, Parameter] = {}
        self._shared = shared

    def __repr__(self) -> str:
        lines = "\n".join(f"  {p}" for p in self.values())
        return f"{self._prefix} (\n{lines}\n)" if self._prefix else f"(\n{lines}\n)"

    def __getitem__(self, key: str) -> Parameter:
        try:
            return self._params[key]
        except KeyError:
            raise UnknownNameError(
                f"There is no parameter {key!r} here.{nearest(key, self._params)}"
            ) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._params)

    def __len__(self) -> int:
        return len(self._params)

    def __contains__(self, key: object) -> bool:
        return key in self._params

    def items(self) -> ItemsView[str, Parameter]:
        """Names and parameters."""
        return self._params.items()

    def keys(self) -> KeysView[str]:
        """Names."""
        return self._params.keys()

    def values(self) -> ValuesView[Parameter]:
        """Parameters."""
        return self._params.values()

    @property
    def prefix(self) -> str:
        """What stands before the names of new parameters."""
        return self._prefix

    @property
    def shared(self) -> ParameterDict | None:
        """The parameters that `get` finds, too."""
        return self._shared

    def _found(self, name: str) -> Parameter | None:
        if name not in self._params and self._shared is not None and name in self._shared:
            self._params[name] = self._shared[name]
        return self._params.get(name)

    def get(self, name: str, **kwargs: Any) -> Parameter:
        """The parameter `prefix + name`: one that is here or shared, else a new one, made with `kwargs`.

        OpAttributeError if the one that is here differs from `kwargs`.
        """
        name = self.prefix + name
        found = self._found(name)
        if found is None:
            found = self._params[name] = Parameter(name, **kwargs)
            return found
        for key, value in kwargs.items():
            have = getattr(found, key, None)
            if have is None:
                setattr(found, key, value)
            elif key == "shape":
                found.shape = _merged(name, have, value)
            elif value is not None and not _same(key, have, value):
                raise OpAttributeError(
                    f"Parameter {name!r} has {key}={have!r}, and not {value!r} as is asked."
                )
        return found

    def get_constant(self, name: str, value: Any = None) -> Constant:
        """The constant `prefix + name`, a new one if there is a `value` and none of the name is here."""
        name = self.prefix + name
        found = self._found(name)
        if found is None:
            if value is None:
                raise UnknownNameError(f"There is no constant {name!r}; with a value, one is made.")
            made = self._params[name] = Constant(name, value)
            return made
        if not isinstance(found, Constant):
            raise OpAttributeError(f"Parameter {name!r} is here already, and no constant.")
        if value is not None:
            value = value.asnumpy() if isinstance(value, NDArray) else np.asarray(value)
            if value.shape != found.shape or not np.array_equal(value, found.value.asnumpy()):
                raise OpAttributeError(f"Constant {name!r} is here already, with other values.")
        return found

    def update(self, other: ParameterDict | Mapping[str, Parameter]) -> None:
        """Take the parameters of another one. OpAttributeError if two different ones have one name."""
        for key, value in other.items():
            if self._params.get(key, value) is not value:
                raise OpAttributeError(f"Two different parameters are called {key!r}.")
        self._params.update(other.items())

    def initialize(
        self, init: Any = None, ctx: Any = None, verbose: bool = False, force_reinit: bool = False
    ) -> None:
        """Initialize all of them; `init` (Uniform(0.07)) is for those without an initializer of their own."""
        init = initializer.Uniform() if init is None else initializer.create(init)
        if verbose:
            init.set_verbosity(verbose)
        for parameter in self.values():
            parameter.initialize(None, ctx, init, force_reinit=force_reinit)

    def zero_grad(self) -> None:
        """Set all gradients to 0."""
        for parameter in self.values():
            parameter.zero_grad()

    def reset_ctx(self, ctx: Any) -> None:
        """Move all of them to one device, or have copies on each of a list."""
        for parameter in self.values():
            parameter.reset_ctx(ctx)

    def list_ctx(self) -> list[Any]:
        """All devices that they are on."""
        return list(dict.fromkeys(c for p in self.values() for c in p.list_ctx()))

    def setattr(self, name: str, value: Any) -> None:
        """Set an attribute of all of them: `setattr('grad_req', 'null')` freezes a network."""
        for parameter in self.values():
            setattr(parameter, name, value)

    # -- files ---------------------------------------------------------------------------------

    def save(self, filename: str, strip_prefix: str = "") -> None:
        """Write all values by name, without `strip_prefix`, which every name must begin with."""
        for name in self:
            if not name.startswith(strip_prefix):
                raise ArgumentError(
                    f"save: strip_prefix is {strip_prefix!r}, but there is a parameter {name!r}: it may be "
                    f"shared with another block, or made outside of `with name_scope()`."
                )
        nd.save(filename, {n[len(strip_prefix) :]: p.mean() for n, p in self.items()})

    def load(
        self,
        filename: str,
        ctx: Any = None,
        allow_missing: bool = False,
        ignore_extra: bool = False,
        restore_prefix: str = "",
        cast_dtype: bool = False,
        dtype_source: str = "current",
    ) -> None:
        """Read values by name, with `restore_prefix` before the file's names. Nothing is changed if one is
        missing (unless `allow_missing`), or is in the file only (unless `ignore_extra`): UnknownNameError."""
        arrays = nd.load(filename)
        if not isinstance(arrays, dict):
            raise FormatError(f"{filename} holds {len(arrays)} arrays without names, so no parameters.")
        self.load_dict(
            arrays, ctx, allow_missing, ignore_extra, restore_prefix, filename, cast_dtype, dtype_source
        )

    def load_dict(
        self,
        param_dict: Mapping[str, NDArray],
        ctx: Any = None,
        allow_missing: bool = False,
        ignore_extra: bool = False,
        restore_prefix: str = "",
        filename: str | None = None,
        cast_dtype: bool = False,
        dtype_source: str = "current",
    ) -> None:
        """`load` from a dict. Names may begin with `arg:` or `aux:`, as in checkpoints."""
        where = "the dict" if filename is None else str(filename)
        found = {restore_prefix + _bare(n): a for n, a in param_dict.items()}
        if not allow_missing and (missing := [n for n in self if n not in found]):
            raise UnknownNameError(
                f"Parameter {missing[0]!r} is not in {where}, nor are {len(missing) - 1} others."
                f"{nearest(missing[0], found)} allow_missing=True leaves them as they are."
            )
        if not ignore_extra and (extra := [n for n in found if n not in self]):
            raise UnknownNameError(
                f"{where} has {extra[0]!r} and {len(extra) - 1} others that are no parameters here."
                f"{nearest(extra[0], self)} ignore_extra=True leaves them out."
            )
        for name, array in found.items():
            if name in self:
                self[name].take(array, ctx, cast_dtype, dtype_source)


def _bare(name: str) -> str:
    return name[4:] if name.startswith(("arg:", "aux:")) else name


def _merged(name: str, have: tuple[int, ...], wanted: Any) -> tuple[int, ...]:
    """A shape with what either of two shapes knows."""
    asked = (wanted,) if isinstance(wanted, int) else tuple(wanted)
    if len(asked) != len(have) or any(a > 0 and b > 0 and a != b for a, b in zip(asked, have)):
        raise OpAttributeError(f"Parameter {name!r} has shape={have}, and not {asked} as is asked.")
    return tuple(max(a, b) for a, b in zip(asked, have))


def _same(key: str, have: Any, asked: Any) -> bool:
    return np.dtype(have) == np.dtype(asked) if key == "dtype" else bool(have == asked)
