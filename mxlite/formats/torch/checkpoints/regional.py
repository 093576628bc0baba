"""Classes of modules whose forward is checkpointed: what autograd keeps inside of it is made again."""

from __future__ import annotations

from contextlib import nullcontext
from functools import cache, partial
from typing import Any

from ..package import torch_package
from .selective import Kept, selective_contexts

_KEPT = "checkpoint_keeps"
"""The attribute of a checkpointed module with its name and the calls whose results it keeps."""


def checkpointed(part: Any, name: str, kept: tuple[Kept, ...]) -> None:
    """Make a module a region: checkpointed in training. Copies of it are, too."""
    plain(part)
    part.__class__ = _checkpointed_class(part.__class__)
    part.__dict__[_KEPT] = (name, kept)


def plain(part: Any) -> None:
    """Make a region a module as it was; another stays as it is."""
    part.__class__ = getattr(type(part), "checkpointed", type(part))
    part.__dict__.pop(_KEPT, None)


@cache
def _checkpointed_class(kind: Any) -> Any:
    torch = torch_package()
    from torch.utils.checkpoint import checkpoint

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not (self.training and torch.is_grad_enabled()):
            return kind.forward(self, *args, **kwargs)
        # An argument that is given twice, as to attention, is one object in the second pass, too.
        leaves, tree = torch.utils._pytree.tree_flatten((args, kwargs))
        once = {id(leaf): leaf for leaf in leaves}
        numbers = {key: i for i, key in enumerate(once)}
        places = [numbers[id(leaf)] for leaf in leaves]

        def inside(*given: Any) -> Any:
            args, kwargs = torch.utils._pytree.tree_unflatten([given[i] for i in places], tree)
            return kind.forward(self, *args, **kwargs)

        contexts = partial(_contexts, torch, self)
        return checkpoint(inside, *once.values(), use_reentrant=False, context_fn=contexts)

    return type(
        kind.__name__, (kind,), {"forward": forward, "__module__": kind.__module__, "checkpointed": kind}
    )


def _contexts(torch: Any, part: Any) -> tuple[Any, Any]:
    """The contexts of the forward pass of a region and of its second one."""
    name, kept = part.__dict__[_KEPT]
    first, second = selective_contexts(name, kept) if kept else (nullcontext(), nullcontext())
    return first, _Second(torch, part, second)


class _Second:
    """The second pass of a region: its batch normalizations do not move their averages again.

    There is one for each backward of a graph that was retained.
    """

    def __init__(self, torch: Any, part: Any, context: Any) -> None:
        self._kind = torch.nn.modules.batchnorm._BatchNorm
        self._part, self._context = part, context
        self._before: list[tuple[Any, Any, Any]] = []

    def __enter__(self) -> None:
        norms = [m for m in self._part.modules() if isinstance(m, self._kind) and m.training]
        self._before = [(m, m.momentum, m.num_batches_tracked) for m in norms]
        for m, _, count in self._before:
            m.momentum = 0.0
            m.num_batches_tracked = None if count is None else count.clone()
        self._context.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._context.__exit__(*error)
        for m, momentum, count in self._before:
            m.momentum, m.num_batches_tracked = momentum, count
