"""Bytes that PyTorch's kernels on the CPU allocate while they run, beyond their results.

Facts of PyTorch 2.13, by its allocator's events: oneDNN's convolutions copy their operands into a layout of
their own and their results out of it, and the backward of batch normalization holds a centred copy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..package import torch_package


def workspace_bytes(func: Any, args: Sequence[Any], results: Sequence[Any]) -> int:
    """Bytes of one call of an operator; 0 for those that are not known, and on other devices."""
    rule = _RULES.get(str(func))
    if rule is None or args[0].device.type != "cpu" or not torch_package().backends.mkldnn.enabled:
        return 0
    return rule(args, results)


def _nbytes(tensor: Any) -> int:
    return int(tensor.numel() * tensor.element_size())


_RULES: dict[str, Callable[[Sequence[Any], Sequence[Any]], int]] = {
    "aten.convolution.default": lambda args, results: max(_nbytes(args[0]), _nbytes(results[0])),
    "aten.convolution_backward.default": lambda args, results: _nbytes(args[0]) + _nbytes(args[1]),
    "aten.native_batch_norm_backward.default": lambda args, results: _nbytes(args[1]),
}
