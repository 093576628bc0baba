"""Regions that keep some of their results: the others are made again, in the order of the forward pass.

Both passes number the calls of operators in a region. The forward pass keeps the results of chosen calls;
the second pass takes them instead of calling. What is kept is always what the forward pass made, so a choice
that does not suit a step costs time or bytes, and changes no number.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, NamedTuple

from ....core import MXLiteError
from ..package import torch_package


class Kept(NamedTuple):
    """A call of a region whose results are kept: its number there, its operator and the module it is in."""

    number: int
    operator: str
    module: str


def selective_contexts(name: str, calls: Iterable[Kept]) -> tuple[Any, Any]:
    """The contexts of the forward pass and of the second one, for `torch.utils.checkpoint`.

    name: of the region, for errors. A number whose call is of another operator is recomputed.
    """
    pass_ = _Pass(name, torch_package(), {call.number: call.operator for call in calls})
    keeping, recalling = _modes()
    return keeping(pass_), recalling(pass_)


@cache
def _modes() -> tuple[Any, Any]:
    """The classes of both contexts: each call of an operator passes through them."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Keeping(TorchDispatchMode):
        def __init__(self, pass_: _Pass) -> None:
            super().__init__()
            self.pass_ = pass_

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            pass_, kind = self.pass_, _kind(func)
            if kind is _UNCOUNTED:
                return func(*args, **(kwargs or {}))
            index = pass_.count
            pass_.count = index + 1
            keep = index in pass_.wanted and pass_.wanted[index] == str(func)
            if kind is _RANDOM:
                pass_.before_random(index, args, keep)
            out = func(*args, **kwargs) if kwargs else func(*args)
            if keep:
                pass_.keep(index, func, out)
            return out

        def __exit__(self, *error: Any) -> None:
            super().__exit__(*error)
            self.pass_.close()

    class Recalling(TorchDispatchMode):
        def __init__(self, pass_: _Pass) -> None:
            super().__init__()
            self.pass_ = pass_

        def __enter__(self) -> Any:
            self.pass_.open()
            return super().__enter__()

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            pass_, kind = self.pass_, _kind(func)
            if kind is not _UNCOUNTED:
                index = pass_.count
                pass_.count = index + 1
                if index in pass_.results:
                    return pass_.recall(index, func)
                if kind is _RANDOM:
                    pass_.restore_random(index)
            return func(*args, **kwargs) if kwargs else func(*args)

    return Keeping, Recalling


_PLAIN, _RANDOM, _UNCOUNTED = "plain", "random", "uncounted"
"""Kinds of operators. Uncounted are those that a checkpoint itself calls, in one pass alone."""

_kinds: dict[Any, str] = {}  # of operators that were called; a look-up is part of each call


def _kind(func: Any) -> str:
    found = _kinds.get(func)
    if found is None:
        from torch.utils.checkpoint import SAC_IGNORED_OPS

        random = torch_package().Tag.nondeterministic_seeded in func.tags
        found = _UNCOUNTED if func in SAC_IGNORED_OPS else _RANDOM if random else _PLAIN
        _kinds[func] = found
    return found


class _Pass:
    """Results that one forward pass of a region keeps for the second."""

    def __init__(self, name: str, torch: Any, wanted: dict[int, str]) -> None:
        self.wanted = wanted
        self.results: dict[int, tuple[Any, Any]] = {}  # operator and result, by number
        self._name, self._torch = name, torch
        self.count = 0  # of the calls in this pass so far
        self._versions: dict[int, list[int]] = {}
        self._written: dict[int, list[tuple[int, int, bool]]] = {}  # by storage: number, version, if in place
        self._states: dict[int, tuple[Any, Any, Any]] = {}  # of random numbers, before a call
        self._random_kept = False
        self._opened = False

    def before_random(self, index: int, args: Any, keep: bool) -> None:
        """Note the state of random numbers where the second pass will not have drawn the same ones before."""
        if keep:
            self._random_kept = True
        elif self._random_kept:
            devices = [a.device for a in args if isinstance(a, self._torch.Tensor)]
            device = devices[0] if devices else self._torch.device("cpu")
            source = self._torch if device.type == "cpu" else self._torch.get_device_module(device.type)
            where = () if device.type == "cpu" else (device,)
            self._states[index] = (source, where, source.get_rng_state(*where))

    def restore_random(self, index: int) -> None:
        if index in self._states:
            source, where, state = self._states[index]
            source.set_rng_state(state, *where)

    def keep(self, index: int, func: Any, out: Any) -> None:
        self.results[index] = (func, self._alias(out))
        for tensor in self._tensors(out):
            written = self._written.setdefault(tensor.untyped_storage()._cdata, [])
            written.append((index, tensor._version, func._schema.is_mutable))

    def close(self) -> None:
        """The forward pass is over: from now on nobody writes what is kept.

        A result that was written within the region is what it was only if all calls that wrote it are kept.
        """
        kept = [t for _, out in self.results.values() for t in self._tensors(out)]
        last = {t.untyped_storage()._cdata: t._version for t in kept}
        for key, calls in self._written.items():
            (_, version, changed), writes = calls[0], sum(changes for _, _, changes in calls)
            if changed or last[key] != version + writes:
                for index, _, _ in calls:
                    self.results.pop(index, None)
        self._written.clear()
        self._versions = {i: self._versions_of(out) for i, (_, out) in self.results.items()}

    def open(self) -> None:
        """A second pass begins; those after it, of a graph that was retained, make everything again."""
        self.count = 0
        if self._opened:
            self.results.clear()
        self._opened = True
        for index, (func, out) in self.results.items():
            if self._versions_of(out) != self._versions[index]:
                raise MXLiteError(
                    f"{self._name} kept the result of {func}, its call {index}, and it was written after the "
                    f"forward pass of {self._name}. Plan the step as it is now."
                )

    def recall(self, index: int, func: Any) -> Any:
        made_by, out = self.results.pop(index)
        if made_by is not func:
            raise MXLiteError(
                f"{self._name} does not repeat itself: its call {index} was of {made_by} in the forward pass "
                f"and is of {func} when it is run again, and checkpoints need a module that does."
            )
        return out

    def _versions_of(self, out: Any) -> list[int]:
        return [t._version for t in self._tensors(out)]

    def _tensors(self, out: Any) -> list[Any]:
        found = out if isinstance(out, (tuple, list)) else [out]
        return [t for t in found if isinstance(t, self._torch.Tensor)]

    def _alias(self, out: Any) -> Any:
        if isinstance(out, (tuple, list)):
            return type(out)(self._alias(t) for t in out)
        if not isinstance(out, self._torch.Tensor):
            return out
        keys = self._torch._C
        # A tensor of its own, outside of autograd's graph, which sees each write to the other.
        with keys._SetExcludeDispatchKeyGuard(keys.DispatchKey.ADInplaceOrView, False):
            return out.detach()
