"""PyTorch's parameters by the names of our symbol; imported only if PyTorch is installed.

A module is named after the corresponding node of our symbol, with dots for some underscores:
`stage1_block1.conv1` is `stage1_block1_conv1`. So one rule maps the weights of all networks.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import nn, Tensor

NORMS = (
    nn.BatchNorm1d,
    nn.BatchNorm2d,
    nn.BatchNorm3d,
    nn.LayerNorm,
    nn.GroupNorm,
    nn.RMSNorm,
)
NORMED = {
    "weight": "gamma",
    "bias": "beta",
    "running_mean": "moving_mean",
    "running_var": "moving_var",
}


def named(net: nn.Module) -> dict[str, list[Tensor]]:
    """Parameters and statistics by our names. A recurrent layer's are the parts of one vector: all weights,
    then all biases."""
    found: dict[str, list[Tensor]] = {}
    for dotted, module in net.named_modules():
        own = dict(module.named_parameters(recurse=False))
        left_out = {"num_batches_tracked", *module._non_persistent_buffers_set}
        own |= {n: b for n, b in module.named_buffers(recurse=False) if n not in left_out}
        name = dotted.replace(".", "_")
        if isinstance(module, nn.RNNBase):
            parts = [t for kind in ("weight", "bias") for n, t in own.items() if n.startswith(kind)]
            found[f"{name}_parameters"] = parts
            continue
        for n, t in own.items():
            ending = NORMED[n] if isinstance(module, NORMS) else n
            found[f"{name}_{ending}" if name else ending] = [t]
    return found


@torch.no_grad()
def load(net: nn.Module, arrays: Mapping[str, np.ndarray]) -> None:
    """Copy `arrays`, by the names of our symbol, into `net`; every array and parameter must be matched."""
    parts = named(net)
    assert set(parts) == set(arrays), (set(arrays) - set(parts), set(parts) - set(arrays))
    for name, own in parts.items():
        whole = torch.from_numpy(arrays[name])
        if len(own) == 1:
            assert own[0].shape == whole.shape, (name, own[0].shape, whole.shape)
            own[0].copy_(whole)
            continue
        assert whole.numel() == sum(t.numel() for t in own), name
        for t, part in zip(own, whole.split([t.numel() for t in own])):
            t.copy_(part.view(t.shape))


def joined(parts: list[Tensor]) -> np.ndarray:
    """The array of ours whose parts these are."""
    if len(parts) == 1:
        return parts[0].detach().contiguous().numpy()
    return torch.cat([t.detach().reshape(-1) for t in parts]).numpy()
