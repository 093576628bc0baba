"""A step of a module of PyTorch without numbers: the storages it would allocate, and when they are released.

The tensors are fake (shapes alone), and a mode counts their storages at each call of an operator. PyTorch's
allocator counts the same in a real step, and also what a kernel allocates inside of itself; workspace.py
knows the largest of these.
"""

from __future__ import annotations

import copy
import warnings
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...building import NotSupportedError
from ..package import torch_package
from .rates import seconds_of
from .regional import checkpointed, plain
from .selective import Kept
from .workspace import workspace_bytes


@dataclass(slots=True)
class Storage:
    """Bytes of tensors: the places in `Rehearsal.live` at which they were made and released.

    A place of -1: there before the step, and still there.
    """

    made: int
    nbytes: int
    released: int = -1


@dataclass(frozen=True, slots=True)
class Call:
    """A call of an operator in the forward pass, at a place in `Rehearsal.live`, within a submodule.

    `reads` and `writes` are numbers of storages; a view writes none.
    """

    place: int
    operator: str
    module: str
    reads: frozenset[int]
    writes: frozenset[int]


@dataclass
class Span:
    """The calls of one submodule in a step. Bytes are of storages made meanwhile.

    `start`, `stop` and `backward` are places in `Rehearsal.live`: of the forward pass, and where its output's
    gradient is complete (-1: it has none). `out` are numbers of the storages that it returns.
    """

    name: str
    calls: int = 0
    start: int = 0
    stop: int = 0
    out: frozenset[int] = frozenset()
    saved_bytes: int = 0
    backward: int = -1


@dataclass
class Rehearsal:
    """Live bytes after each call of an operator, beyond those that were there before, by place.

    `seconds` are times so far, `forward` is the place where the forward pass ends, `calls` are its calls.
    `fixed` was there before. `inside` are the submodules that are being called, from the outermost on.
    `counters` are storages of numbers that a second run of a region does not move. `saves` are (number of
    calls until then, submodule, storage) where autograd saves a tensor, outside of checkpoints.
    """

    live: list[int] = field(default_factory=lambda: [0])
    seconds: list[float] = field(default_factory=lambda: [0.0])
    spans: dict[str, Span] = field(default_factory=dict)
    forward: int = 0
    storages: list[Storage] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    fixed: dict[str, int] = field(default_factory=dict)
    counters: frozenset[int] = frozenset()
    saves: list[tuple[int, str, int]] = field(default_factory=list)
    inside: list[str] = field(default_factory=lambda: [""])
    _numbers: dict[int, int] = field(default_factory=dict)  # of the storages that live now

    @property
    def peak_bytes(self) -> int:
        """The most bytes of tensors at one time of the step."""
        return sum(self.fixed.values()) + max(self.live)

    def made_in(self, start: int, stop: int) -> dict[int, Storage]:
        """The storages made at places [start, stop), by number."""
        return {i: s for i, s in enumerate(self.storages) if start <= s.made < stop}

    def calls_of(self, span: Span) -> range:
        """The numbers of a submodule's calls."""
        inside = [i for i, call in enumerate(self.calls) if span.start <= call.place < span.stop]
        return range(inside[0], inside[-1] + 1) if inside else range(0)

    def save(self, tensor: Any) -> Any:
        """Note a tensor that autograd saves."""
        self.saves += [(len(self.calls), self.inside[-1], n) for n in self.numbers_of([tensor])]
        return tensor.detach()  # the tensor itself may be the result of what saves it

    def numbers_of(self, tensors: list[Any]) -> frozenset[int]:
        """The numbers of the storages of tensors, as far as they are known."""
        found = (self._numbers.get(t.untyped_storage()._cdata) for t in tensors)
        return frozenset(n for n in found if n is not None)

    def see(self, tensors: list[Any], seconds: float, workspace: int) -> None:
        """The results of a call: their storages are counted if they are new, its workspace for a moment."""
        place = len(self.live) - 1
        self._add(self.live[-1], seconds)
        for tensor in tensors:
            storage = tensor.untyped_storage()
            if storage._cdata not in self._numbers:
                self._number(storage, place, storage.nbytes())
                self.live[-1] += storage.nbytes()
                weakref.finalize(storage, self._release, storage._cdata)
        if workspace:
            now = self.live[-1]
            self._add(now + workspace)
            self._add(now)

    def hold(self, tensors: list[Any]) -> int:
        """Bytes of tensors that were there before the step."""
        total = 0
        for tensor in tensors:
            storage = tensor.untyped_storage()
            if storage._cdata not in self._numbers:
                self._number(storage, -1, 0)
                total += storage.nbytes()
        return total

    def _number(self, storage: Any, place: int, nbytes: int) -> None:
        self._numbers[storage._cdata] = len(self.storages)
        self.storages.append(Storage(place, nbytes))

    def _release(self, key: int) -> None:
        storage = self.storages[self._numbers.pop(key)]
        self._add(self.live[-1] - storage.nbytes)
        storage.released = len(self.live) - 1

    def _add(self, live: int, seconds: float = 0.0) -> None:
        self.live.append(live)
        self.seconds.append(self.seconds[-1] + seconds)


def rehearse(
    module: Any,
    args: Any,
    kwargs: Mapping[str, Any] | None = None,
    state_bytes: int = 0,
    regions: Mapping[str, tuple[Kept, ...]] | None = None,
) -> Rehearsal:
    """A forward and a backward of a copy of `module` whose tensors have no numbers.

    state_bytes: of an optimizer.  regions: submodules that are checkpointed, and what they keep; None: those
    that are so in `module`.
    """
    torch = torch_package()
    from torch._subclasses.fake_tensor import FakeCopyMode, FakeTensorMode

    leaves, tree = torch.utils._pytree.tree_flatten(
        ((args,) if isinstance(args, torch.Tensor) else args, kwargs or {})
    )
    mode, seen = FakeTensorMode(), Rehearsal()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of PyTorch's own code
        with FakeCopyMode(mode):
            fake = copy.deepcopy(module)
        if regions is not None:
            for name, part in fake.named_modules():
                plain(part)
                if name in regions:
                    checkpointed(part, name, regions[name])
        leaves = [mode.from_tensor(x) if isinstance(x, torch.Tensor) else x for x in leaves]
        seen.fixed = {
            "arguments": seen.hold([*fake.parameters()]),
            "auxiliary": seen.hold([*fake.buffers()]),
            "inputs": seen.hold([x for x in leaves if isinstance(x, torch.Tensor)]),
            "optimizer": state_bytes,
        }
        counted = [b for n, b in fake.named_buffers() if n.endswith("num_batches_tracked")]
        seen.counters = seen.numbers_of(counted)
        for name, part in fake.named_modules():
            if name:
                _watch(torch, seen, name, part)
        given, named = torch.utils._pytree.tree_unflatten(leaves, tree)
        try:
            saving = torch.autograd.graph.saved_tensors_hooks(seen.save, lambda tensor: tensor)
            with mode, _counting(torch, seen), saving:
                out = torch.utils._pytree.tree_leaves(fake(*given, **named))
                out = [t for t in out if isinstance(t, torch.Tensor) and t.requires_grad]
                seen.forward = len(seen.live) - 1
                torch.autograd.backward(out, [None if t.ndim == 0 else torch.ones_like(t) for t in out])
        except Exception as error:  # of many kinds: it is the user's code, without numbers
            raise NotSupportedError(
                f"A step of {type(module).__name__} cannot be rehearsed without numbers: "
                f"{type(error).__name__}: {error}"
            ) from error
    return seen


def _counting(torch: Any, seen: Rehearsal) -> Any:
    """A mode that shows each call's results to `seen`."""
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils.checkpoint import SAC_IGNORED_OPS

    class Counting(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            place = len(seen.live) - 1
            out = func(*args, **kwargs)
            given, found = _tensors_in(torch, (args, kwargs)), _tensors_in(torch, out)
            workspace = workspace_bytes(func, args, found)
            seen.see(found, seconds_of(func, args, kwargs, out, found), workspace)
            if not seen.forward and func not in SAC_IGNORED_OPS:
                reads = seen.numbers_of(given)
                writes = seen.numbers_of(found) - reads
                if func._schema.is_mutable:
                    writes |= seen.numbers_of(_written(torch, func, args, kwargs))
                seen.calls.append(Call(place, str(func), seen.inside[-1], reads, writes))
            return out

    return Counting()


def _tensors_in(torch: Any, tree: Any) -> list[Any]:
    return [t for t in torch.utils._pytree.tree_leaves(tree) if isinstance(t, torch.Tensor)]


def _written(torch: Any, func: Any, args: Any, kwargs: Any) -> list[Any]:
    """The arguments that a call writes."""
    found = []
    for i, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            found.append(args[i] if i < len(args) else kwargs.get(argument.name))
    return _tensors_in(torch, found)


def _watch(torch: Any, seen: Rehearsal, name: str, part: Any) -> None:
    """Note where the calls of a submodule begin and end, and what they leave."""
    span = seen.spans[name] = Span(name)

    def before(part: Any, args: Any) -> None:
        span.calls += 1
        span.start = len(seen.live) - 1
        seen.inside.append(name)

    def after(part: Any, args: Any, out: Any) -> None:
        seen.inside.pop()
        span.stop = len(seen.live) - 1
        tensors = _tensors_in(torch, out)
        made = seen.made_in(span.start, span.stop)
        span.out = seen.numbers_of(tensors) & made.keys()
        live = sum(s.nbytes for s in made.values() if s.released < 0)
        span.saved_bytes = live - sum(made[n].nbytes for n in span.out)
        for t in tensors:
            if t.requires_grad:
                t.register_hook(reached)
                break

    def reached(gradient: Any) -> None:
        span.backward = len(seen.live) - 1

    part.register_forward_pre_hook(before)
    part.register_forward_hook(after)


def state_bytes_of(optimizer: Any) -> int:
    """Bytes of an optimizer's states: those it has, or those that a step without numbers makes."""
    if optimizer is None:
        return 0
    torch = torch_package()
    from torch._subclasses.fake_tensor import FakeTensorMode

    mode, tried = FakeTensorMode(), optimizer
    if not _tensors(torch, optimizer):
        groups = []
        for group in optimizer.param_groups:
            fakes = [mode.from_tensor(p).detach().requires_grad_() for p in group["params"]]
            for p in fakes:
                p.grad = torch.empty_like(p)
            groups.append({**group, "params": fakes, "fused": None, "foreach": False})
        with mode:
            tried = type(optimizer)(groups, **{k: v for k, v in optimizer.defaults.items() if k == "lr"})
            tried.step()
    return sum(int(t.untyped_storage().nbytes()) for t in _tensors(torch, tried))


def _tensors(torch: Any, optimizer: Any) -> list[Any]:
    return [t for s in optimizer.state.values() for t in s.values() if isinstance(t, torch.Tensor)]
