"""Seconds of PyTorch's calls, by which one choice of checkpoints is weighed against another.

They are of one core of a processor, measured with PyTorch 2.13, and no promise of a time: what counts are
the ratios, such as that random numbers take fifty times as long as a sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..package import torch_package

FLOPS_PER_S = 9e10
ATTENTION_FLOPS_PER_S = 4.5e10
NS_PER_ELEMENT = 0.4
NS_PER_RANDOM_ELEMENT = 5.0
CALL_S = 4e-6
"""Seconds of each call, however small its tensors are."""

SELECTIVE_CALL_S = 6e-6
"""Seconds of each call in a region that keeps some results, in either pass: Python looks at it."""

REGION_S = 65e-6
"""Seconds of each checkpoint."""

_NS = {
    "copy_": 0.9,
    "clone": 0.9,
    "exp": 1.2,
    "erf": 1.3,
    "gelu": 1.6,
    "index": 2.0,
    "max_pool2d_with_indices": 8.0,
    "mish": 4.0,
    "native_batch_norm": 1.9,
    "native_group_norm": 0.9,
    "native_layer_norm": 0.6,
    "pow": 2.5,
    "_log_softmax": 0.8,
    "_softmax": 0.7,
    "tanh": 3.6,
    "where": 3.0,
}
"""Nanoseconds of each element of the largest tensor, by operator; backward's are the same."""


def seconds_of(func: Any, args: Sequence[Any], kwargs: Any, out: Any, results: Sequence[Any]) -> float:
    """Seconds of one call of an operator, whose tensors need no numbers."""
    if func.is_view:
        return CALL_S
    torch = torch_package()
    from torch.utils.flop_counter import flop_registry

    flops = flop_registry.get(func._overloadpacket)
    count = 0 if flops is None else flops(*args, **kwargs, out_val=out)
    name = func._schema.name.removeprefix("aten::").removesuffix("_backward")
    if not count and "attention" in name:
        count = _attention_flops(func, args)
    ns = NS_PER_ELEMENT
    if torch.Tag.nondeterministic_seeded in func.tags and not count:
        ns = NS_PER_RANDOM_ELEMENT
    ns = _NS.get(name, _NS.get(name.removesuffix("_"), ns))
    given = (a for a in args if isinstance(a, torch.Tensor)) if results else ()
    most = max((t.numel() for t in (*given, *results)), default=0)
    rate = ATTENTION_FLOPS_PER_S if "attention" in name else FLOPS_PER_S
    return max(count / rate, 1e-9 * ns * most) + CALL_S


def _attention_flops(func: Any, args: Sequence[Any]) -> int:
    """Operations of a kernel that PyTorch's own counter does not know, such as that of a processor."""
    backward = func._schema.name.endswith("_backward")
    query, key = args[1:3] if backward else args[:2]
    return int((10 if backward else 4) * query.numel() * key.shape[-2])
