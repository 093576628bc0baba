"""The table of layers that `Block.summary` prints."""

from __future__ import annotations

from math import prod
from typing import Any

from ...core import StateError
from ...symbol import autograd
from .nested import flat


def print_summary(block: Any, inputs: tuple[Any, ...]) -> None:
    """Run `block` on `inputs` and print each layer's kind, output shapes and numbers of parameters.

    StateError for a network that is hybridized: its layers do not run one by one.
    """
    if any(getattr(b, "_active", False) for b in block._below()):
        raise StateError(
            "summary: the network is hybridized, so its layers do not run one by one; call it before."
        )
    rows: list[tuple[str, str, int]] = []
    seen: set[Any] = set()
    trained = shared = total = 0

    def note(layer: Any, args: Any, out: Any) -> None:
        nonlocal trained, shared, total
        own = 0
        for p in layer._reg_params.values():
            size = prod(p.shape)
            own += size
            if p in seen:
                shared += size
                continue
            seen.add(p)
            total += size
            trained += size if p.grad_req != "null" else 0
        shapes = [str(tuple(a.shape)) for a in flat(out)[0] if hasattr(a, "shape")]
        rows.append((f"{type(layer).__name__}-{len(rows) + 1}", ", ".join(shapes), own))

    handles = [b.register_forward_hook(note) for b in block._below()]
    try:
        with autograd.pause():
            block(*inputs)
    finally:
        for handle in handles:
            handle.detach()
    arrays = ", ".join(str(tuple(a.shape)) for a in flat(inputs)[0])
    print(f"{'layer':<24} {'outputs':<40} {'parameters':>12}")
    for kind, shape, size in [("inputs", arrays, 0), *rows]:
        print(f"{kind:<24} {shape:<40} {size:>12}")
    print(f"{total} parameters, {trained} of them trained; {shared} more uses of shared ones")
