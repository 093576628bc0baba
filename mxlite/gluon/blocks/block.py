"""Block: a part of a network, with parameters and children, whose forward pass is Python code."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from ... import ndarray as nd
from ...core import nearest, UnknownNameError
from ...core.errors import ArgumentError, FormatError, MissingMethodError
from ...core.wanted import wanted, wanted_function
from ..parameters.parameter import Parameter
from ..parameters.parameter_dict import ParameterDict
from . import model_file
from .hook_handle import HookHandle
from .name_scope import named, NameScope
from .summary import print_summary

_MOST_LOOKED_AT = 1000
"""Most things in a container that is no child that are looked at for blocks: it may be a table of data."""


class Block:
    """Base of all parts of networks: override `forward(*args)`, which works with arrays.

        class Net(gluon.Block):
            def __init__(self, **kwargs):
                super().__init__(**kwargs)
                with self.name_scope():
                    self.hidden = nn.Dense(20, activation="relu")
                    self.output = nn.Dense(10)

            def forward(self, x):
                return self.output(self.hidden(x))

    Blocks that are assigned to attributes are children, parameters are its own. `prefix` stands before
    the names of its parameters, by default the class's name and a number. `params`: those of another block,
    which it shares.
    """

    _children: dict[str, Block]
    _reg_params: dict[str, Parameter]

    def __init__(self, prefix: str | None = None, params: ParameterDict | None = None) -> None:
        self._children = {}
        self._reg_params = {}
        self._forward_hooks: dict[int, Any] = {}
        self._forward_pre_hooks: dict[int, Any] = {}
        self._prefix, self._params = named(prefix, params, self._alias())
        self._scope = NameScope(self, is_empty=prefix == "")

    def _alias(self) -> str:
        """The word in names of blocks of this kind."""
        return type(self).__name__.lower()

    def __repr__(self) -> str:
        children = "\n".join(f"  ({n}): {_indented(repr(c))}" for n, c in self._children.items())
        return f"{type(self).__name__}(\n{children}\n)"

    def __setattr__(self, name: str, value: Any) -> None:
        have = getattr(self, name, None)
        if isinstance(have, (Parameter, Block)) and not isinstance(value, (type(have), Block, Parameter)):
            raise ArgumentError(
                f"{type(self).__name__}.{name} is a {type(have).__name__} of the network and cannot become "
                f"{value!r}."
            )
        if isinstance(value, Block):
            self.register_child(value, name)
        elif isinstance(value, Parameter):
            self._reg_params[name] = value
        super().__setattr__(name, value)

    # -- names and parameters ------------------------------------------------------------------

    @property
    def prefix(self) -> str:
        """What stands before the names of its parameters."""
        return self._prefix

    @property
    def name(self) -> str:
        """Its prefix without the last underscore."""
        return self._prefix.removesuffix("_")

    def name_scope(self) -> NameScope:
        """`with self.name_scope():` blocks made inside have this one's prefix before their own."""
        return self._scope

    @property
    def params(self) -> ParameterDict:
        """Its own parameters, without those of children; `params.get` makes one."""
        return self._params

    def collect_params(self, select: str | None = None) -> ParameterDict:
        """Its parameters and those of all children; `select`: a regular expression, only names it matches.

        `collect_params('.*weight|dense0_bias')`. It warns of blocks in lists and dicts: they are no children.
        """
        found = ParameterDict(self._params.prefix)
        pattern = None if select is None else re.compile(select)
        for block in self._below():
            if (name := block._holds_strangers()) is not None:
                warnings.warn(
                    f"{type(block).__name__}.{name} of {block.name!r} holds blocks that are not its "
                    f"children, so their parameters are not the network's: make it a Sequential, or call "
                    f"register_child.",
                    stacklevel=2,
                )
            for name, parameter in block.params.items():
                if pattern is None or pattern.match(name):
                    found.update({name: parameter})
        return found

    def _holds_strangers(self) -> str | None:
        """An attribute whose list, tuple or dict holds a block that is no child; None if there is none."""
        children = set(map(id, self._children.values()))
        for name, value in vars(self).items():
            if not isinstance(value, (list, tuple, dict)) or value is self._children:
                continue
            todo: list[Any] = [value]
            for _ in range(_MOST_LOOKED_AT):
                if not todo:
                    break
                item = todo.pop()
                if isinstance(item, Block) and id(item) not in children:
                    return name
                if isinstance(item, (list, tuple, dict)):
                    inner = item.values() if isinstance(item, dict) else item
                    todo += islice(inner, _MOST_LOOKED_AT)
        return None

    def _below(self) -> Iterator[Block]:
        """This block and all below it, each before its children."""
        todo: list[Block] = [self]
        while todo:
            block = todo.pop()
            yield block
            todo += reversed(block._children.values())

    def _structured(self) -> dict[str, Parameter]:
        """Parameters by where they are in the network: `0.weight`, `body.1.gamma`."""
        found: dict[str, Parameter] = {}
        todo: list[tuple[str, Block]] = [("", self)]
        while todo:
            path, block = todo.pop()
            found.update((path + n, p) for n, p in block._names_in_files().items())
            todo += reversed([(f"{path}{n}.", c) for n, c in block._children.items()])
        return found

    def _names_in_files(self) -> dict[str, Parameter]:
        """Its own parameters by the names that files have below its place in the network."""
        return self._reg_params

    # -- files ---------------------------------------------------------------------------------

    def save_parameters(self, filename: str, deduplicate: bool = False) -> None:
        """Write all values, by where the parameters are in the network (`0.weight`), whatever they are
        called.

        `deduplicate`: a parameter that is shared is written once.
        """
        arrays, seen = {}, set()
        for name, parameter in self._structured().items():
            if not (deduplicate and parameter in seen):
                arrays[name] = parameter.mean()
            seen.add(parameter)
        nd.save(filename, arrays)

    def load_parameters(
        self,
        filename: str,
        ctx: Any = None,
        allow_missing: bool = False,
        ignore_extra: bool = False,
        cast_dtype: bool = False,
        dtype_source: str = "current",
    ) -> None:
        """Read values that `save_parameters` has written, or by full name those of `collect_params().save`.

        UnknownNameError, before anything is changed, if one is missing (unless `allow_missing`) or in the
        file only (unless `ignore_extra`).
        """
        loaded = nd.load(filename)
        if not isinstance(loaded, dict):
            raise FormatError(f"{filename} holds {len(loaded)} arrays without names, so no parameters.")
        mine = self._structured()
        if loaded and mine and not any("." in n for n in loaded) and any("." in n for n in mine):
            prefix = "" if any(n in self.collect_params() for n in loaded) else self.prefix
            self.collect_params().load_dict(
                loaded, ctx, allow_missing, ignore_extra, prefix, filename, cast_dtype, dtype_source
            )
            return
        if not allow_missing:
            held = {mine[n] for n in loaded if n in mine}
            if missing := [n for n, p in mine.items() if n not in loaded and p not in held]:
                raise UnknownNameError(
                    f"Parameter {missing[0]!r} is not in {filename}, nor are {len(missing) - 1} others."
                    f"{nearest(missing[0], loaded)} allow_missing=True leaves them as they are."
                )
        if not ignore_extra and (extra := [n for n in loaded if n not in mine]):
            raise UnknownNameError(
                f"{filename} has {extra[0]!r} and {len(extra) - 1} others that are no parameters of this "
                f"block."
                f"{nearest(extra[0], mine)} ignore_extra=True leaves them out."
            )
        for name, array in loaded.items():
            if name in mine:
                mine[name].take(array, ctx, cast_dtype, dtype_source)

    def save(self, prefix: str) -> None:
        """Write `prefix-model.json`, which describes the blocks, and `prefix-model.params`."""
        model_file.save(self, prefix)

    def load(self, prefix: str) -> None:
        """Read what `save` has written of a network that the same code made: values, names of children, and
        which blocks were hybridized. FormatError if it is of another network.
        """
        model_file.load(self, prefix)

    def save_params(self, filename: str) -> None:
        """The old name of saving: values by full name, without this block's prefix. `save_parameters` is
        better.
        """
        warnings.warn("save_params is deprecated: call save_parameters.", DeprecationWarning, stacklevel=2)
        self.collect_params().save(filename, strip_prefix=self.prefix)

    def load_params(
        self, filename: str, ctx: Any = None, allow_missing: bool = False, ignore_extra: bool = False
    ) -> None:
        """The old name of `load_parameters`."""
        warnings.warn("load_params is deprecated: call load_parameters.", DeprecationWarning, stacklevel=2)
        self.load_parameters(filename, ctx, allow_missing, ignore_extra)

    # -- children and hooks --------------------------------------------------------------------

    def register_child(self, block: Block, name: str | None = None) -> None:
        """Make `block` a child; blocks that are assigned to attributes are already."""
        self._children[str(len(self._children)) if name is None else name] = block

    def register_forward_pre_hook(self, hook: Callable[..., Any]) -> HookHandle:
        """Call `hook(block, args)` before each forward pass."""
        return HookHandle(self._forward_pre_hooks, wanted_function("register_forward_pre_hook: hook", hook))

    def register_forward_hook(self, hook: Callable[..., Any]) -> HookHandle:
        """Call `hook(block, args, outputs)` after each forward pass."""
        return HookHandle(self._forward_hooks, wanted_function("register_forward_hook: hook", hook))

    def register_op_hook(self, callback: Callable[..., Any], monitor_all: bool = False) -> None:
        """Let the hybridized blocks below show what their operators compute; see
        `HybridBlock.register_op_hook`.
        """
        for child in self._children.values():
            child.register_op_hook(callback, monitor_all)

    def apply(self, fn: Callable[[Block], Any]) -> Block:
        """Call `fn` with each child, its children before it, and with this block last; returns this block."""
        for block in reversed(list(self._below_last())):
            fn(block)
        return self

    def _below_last(self) -> Iterator[Block]:
        """This block and all below it, in the reverse of `apply`'s order."""
        todo: list[Block] = [self]
        while todo:
            block = todo.pop()
            yield block
            todo += block._children.values()

    def initialize(
        self, init: Any = None, ctx: Any = None, verbose: bool = False, force_reinit: bool = False
    ) -> None:
        """Initialize all parameters; `init` (Uniform(0.07)) is for those without an initializer of their
        own.
        """
        self.collect_params().initialize(init, ctx, verbose, force_reinit)

    def hybridize(self, active: bool = True, **kwargs: Any) -> None:
        """Let all hybrid blocks below run as bound programs; see `HybridBlock.hybridize`."""
        for child in self._children.values():
            child.hybridize(active, **kwargs)

    def cast(self, dtype: Any) -> None:
        """Convert all parameters to another type."""
        for child in self._children.values():
            child.cast(dtype)
        for parameter in self.params.values():
            parameter.cast(dtype)

    def zero_grad(self) -> None:
        """Set the gradients of all parameters to 0."""
        self.collect_params().zero_grad()

    def reset_ctx(self, ctx: Any) -> None:
        """Move all parameters to one device, or have copies on each of a list."""
        self.collect_params().reset_ctx(ctx)

    # -- running -------------------------------------------------------------------------------

    def __call__(self, *args: Any) -> Any:
        for hook in list(self._forward_pre_hooks.values()):
            hook(self, args)
        out = self.forward(*args)
        for hook in list(self._forward_hooks.values()):
            hook(self, args, out)
        return out

    def forward(self, *args: Any) -> Any:
        """The outputs for these arrays."""
        raise MissingMethodError(f"{type(self).__name__} has no forward.")

    def summary(self, *inputs: Any) -> None:
        """Run once on `inputs` and print a table of layers: output shapes and numbers of parameters."""
        print_summary(self, inputs)


def _indented(text: str) -> str:
    first, *rest = text.split("\n")
    return "\n".join([first, *(f"  {line}" for line in rest)])


def wanted_block(name: str, value: Any) -> Block:
    """`value`, if it is a block. Raises ArgumentError."""
    block: Block = wanted(name, value, "a Block", Block)
    return block
