"""A step of a module of PyTorch without numbers: the storages it would allocate, and when they are released.

The tensors are fake (shapes alone), and a mode counts their storages at each call of an operator. PyTorch's
allocator counts the same in a real step, and also what a kernel allocates inside of itself; workspace.py
knows the largest of these.
"""

from __future__ import annotations

import copy
import warnings
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...building import NotSupportedError
from ..package import torch_package
from .regional import checkpointed_class, plain_class
from .workspace import workspace_bytes

FLOPS_PER_S = 5e10
BYTES_PER_S = 1e10
"""Rates of a core of a processor: they weigh one call against another, and are no promise of a time."""


@dataclass
class Span:
    """The calls of one submodule in a step. Bytes are of storages made meanwhile.

    `start`, `stop` and `backward` are places in `Rehearsal.live`: of the forward pass, and where its output's
    gradient is complete (-1: it has none).
    """

    name: str
    calls: int = 0
    start: int = 0
    stop: int = 0
    seconds: float = 0.0
    out_bytes: int = 0
    saved_bytes: int = 0
    backward: int = -1


@dataclass
class Rehearsal:
    """Live bytes after each call of an operator, beyond those that were there before, by place.

    `seconds` are times so far, `forward` is the place where the forward pass ends. `births` has place and
    bytes of each storage that lives, at the end those of gradients above all. `fixed` was there before.
    """

    live: list[int] = field(default_factory=lambda: [0])
    seconds: list[float] = field(default_factory=lambda: [0.0])
    spans: dict[str, Span] = field(default_factory=dict)
    forward: int = 0
    births: dict[int, tuple[int, int]] = field(default_factory=dict)
    fixed: dict[str, int] = field(default_factory=dict)

    @property
    def peak_bytes(self) -> int:
        """The most bytes of tensors at one time of the step."""
        return sum(self.fixed.values()) + max(self.live)

    def born_since(self, place: int) -> int:
        """Bytes of the storages made after a place that live now."""
        return sum(nbytes for when, nbytes in self.births.values() if when > place)

    def see(self, tensors: list[Any], seconds: float, workspace: int) -> None:
        """The results of a call: their storages are counted if they are new, its workspace for a moment."""
        self._add(self.live[-1], seconds)
        for tensor in tensors:
            storage = tensor.untyped_storage()
            if storage._cdata not in self.births:
                self.births[storage._cdata] = (len(self.live) - 1, storage.nbytes())
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
            if storage._cdata not in self.births:
                self.births[storage._cdata] = (-1, 0)
                total += storage.nbytes()
        return total

    def _release(self, key: int) -> None:
        _, nbytes = self.births.pop(key)
        self._add(self.live[-1] - nbytes)

    def _add(self, live: int, seconds: float = 0.0) -> None:
        self.live.append(live)
        self.seconds.append(self.seconds[-1] + seconds)


def rehearse(
    module: Any,
    args: Any,
    kwargs: Mapping[str, Any] | None = None,
    state_bytes: int = 0,
    regions: Sequence[str] | None = None,
) -> Rehearsal:
    """A forward and a backward of a copy of `module` whose tensors have no numbers.

    state_bytes: of an optimizer.  regions: names of submodules that are checkpointed; None: those that are so
    in `module`.
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
                kind = plain_class(type(part))
                part.__class__ = checkpointed_class(kind) if name in regions else kind
        leaves = [mode.from_tensor(x) if isinstance(x, torch.Tensor) else x for x in leaves]
        seen.fixed = {
            "arguments": seen.hold([*fake.parameters()]),
            "auxiliary": seen.hold([*fake.buffers()]),
            "inputs": seen.hold([x for x in leaves if isinstance(x, torch.Tensor)]),
            "optimizer": state_bytes,
        }
        for name, part in fake.named_modules():
            if name:
                _watch(torch, seen, name, part)
        given, named = torch.utils._pytree.tree_unflatten(leaves, tree)
        try:
            with mode, _counting(torch, seen):
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
    from torch.utils.flop_counter import flop_registry

    class Counting(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            found = [t for t in torch.utils._pytree.tree_leaves(out) if isinstance(t, torch.Tensor)]
            flops = flop_registry.get(func._overloadpacket)
            count = 0 if flops is None else flops(*args, **(kwargs or {}), out_val=out)
            moved = 0 if func.is_view else sum(3 * t.numel() * t.element_size() for t in found)
            workspace = workspace_bytes(func, args, found)
            seen.see(found, max(count / FLOPS_PER_S, moved / BYTES_PER_S), workspace)
            return out

    return Counting()


def _watch(torch: Any, seen: Rehearsal, name: str, part: Any) -> None:
    """Note where the calls of a submodule begin and end, and what they leave."""
    span = seen.spans[name] = Span(name)

    def before(part: Any, args: Any) -> None:
        span.calls += 1
        span.start = len(seen.live) - 1

    def after(part: Any, args: Any, out: Any) -> None:
        span.stop = len(seen.live) - 1
        span.seconds = seen.seconds[-1] - seen.seconds[span.start]
        tensors = [t for t in torch.utils._pytree.tree_leaves(out) if isinstance(t, torch.Tensor)]
        own = {t.untyped_storage()._cdata for t in tensors}
        span.out_bytes = sum(seen.births[k][1] for k in own if seen.births[k][0] > span.start)
        span.saved_bytes = seen.born_since(span.start) - span.out_bytes
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
