"""Classes of modules whose forward is checkpointed: what autograd keeps inside of it is made again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import cache, partial
from typing import Any

from ..package import torch_package


def plain_class(kind: type) -> type:
    """The class that a checkpointed one was derived from; any other is itself."""
    return getattr(kind, "checkpointed", kind)


@cache
def checkpointed_class(kind: Any) -> Any:
    """The class of modules of a kind whose forward is checkpointed: copies of such a module are, too."""
    torch = torch_package()
    from torch.utils.checkpoint import checkpoint

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        inside = partial(kind.forward, self)
        if not (self.training and torch.is_grad_enabled()):
            return inside(*args, **kwargs)
        contexts = lambda: (nullcontext(), _averages_still(torch, self))  # noqa: E731
        return checkpoint(inside, *args, use_reentrant=False, context_fn=contexts, **kwargs)

    return type(
        kind.__name__, (kind,), {"forward": forward, "__module__": kind.__module__, "checkpointed": kind}
    )


@contextmanager
def _averages_still(torch: Any, part: Any) -> Iterator[None]:
    """While a region is run again its batch normalizations do not move their averages a second time."""
    norms = [m for m in part.modules() if isinstance(m, torch.nn.modules.batchnorm._BatchNorm) and m.training]
    kept = [(m, m.momentum, m.num_batches_tracked) for m in norms]
    for m, _, count in kept:
        m.momentum = 0.0
        m.num_batches_tracked = None if count is None else count.clone()
    try:
        yield
    finally:
        for m, momentum, count in kept:
            m.momentum, m.num_batches_tracked = momentum, count
