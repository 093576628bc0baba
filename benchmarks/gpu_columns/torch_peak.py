"""Peak bytes of a step of PyTorch eager on a GPU, estimated without one.

The step runs on tensors without data, and each storage counts from its creation until it is freed, rounded up
to 512 bytes as PyTorch's allocator does. So the tensors saved for backward, and those alive at the peak, are
those of PyTorch's own formulas. Some properties of a GPU are assumed:

- workspace is not counted: cuBLAS (32 MiB on Hopper) and cuDNN allocate it from the same allocator;
- attention is the kernel that PyTorch selects on a GPU, memory-efficient in float32 and flash in bfloat16;
- cuDNN's LSTM is assumed to keep four gates and a cell per unit and step besides its results, in its type;
- autocast is that of the CPU, which has the same operators in bfloat16; the loss is in float32, as on a GPU.
"""

from __future__ import annotations

import weakref
from typing import Any
from unittest import mock

import torch
from networks import twins
from networks.suite import Net
from torch import nn, Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from gpu_columns.decoder import Decoder
from gpu_columns.memonger import Memonger
from gpu_columns.search import bisected

KINDS = {**twins.TWINS, "Decoder": Decoder, "Memonger": Memonger}
BLOCK = 512  # bytes: the allocator's smallest block, and the multiple that sizes are rounded up to
CELLS = 5  # numbers that cuDNN keeps per unit and step of an LSTM besides its result


class Storages(TorchDispatchMode):
    """Counter of the bytes of all live storages, and of their peak."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._sizes: dict[int, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(made):
            if isinstance(tensor, Tensor):
                self._note(tensor.untyped_storage())
        return made

    def _note(self, storage: Any) -> None:
        key = storage._cdata
        if key not in self._sizes:
            self._sizes[key] = -(-storage.nbytes() // BLOCK) * BLOCK
            self.now += self._sizes[key]
            self.peak = max(self.peak, self.now)
            weakref.finalize(storage, self._gone, key)

    def _gone(self, key: int) -> None:
        self.now -= self._sizes.pop(key)


class _Layer(torch.autograd.Function):
    """Memory model of one LSTM layer: its result, and what is saved for backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, *weights: Tensor) -> Tensor:
        hidden = weights[1].shape[1]
        out, kept = (x.new_empty(*x.shape[:2], n) for n in (hidden, CELLS * hidden))
        ctx.save_for_backward(x, *weights, out, kept)
        return out

    @staticmethod
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor, ...]:
        return tuple(torch.empty_like(t) for t in ctx.saved_tensors[:-2])


def _lstm(self: nn.LSTM, x: Tensor) -> tuple[Tensor, None]:
    kind = torch.bfloat16 if torch.is_autocast_enabled("cpu") else x.dtype
    x = x.to(kind)
    for weights in self.all_weights:
        x = _Layer.apply(x, *(w.to(kind) for w in weights))
    return x, None


def _attention(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False) -> Tensor:
    if q.dtype == torch.float32:
        found = torch.ops.aten._scaled_dot_product_efficient_attention(q, k, v, None, True, 0.0, is_causal)
    else:
        found = torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, is_causal)
    out: Tensor = found[0]
    return out


def peak(net: Net, autocast: bool = False, batch: int | None = None, checkpointed: bool = False) -> int:
    """Peak bytes of a step with momentum, parameters and batch included.

    batch: number of samples, if not that of `net`. Gradients are freed before the step, and the update is
    PyTorch's fused one, which allocates nothing.
    """
    kind, options = net.twin
    data, labels = net.data, net.labels
    if batch is not None:
        data, labels = (batch, *data[1:]), (batch, *labels[1:])
    storages = Storages()
    with (
        mock.patch.object(F, "scaled_dot_product_attention", _attention),
        mock.patch.object(nn.LSTM, "forward", _lstm),
        FakeTensorMode(),
        storages,
    ):
        model = KINDS[kind](**options, **({"checkpointed": True} if checkpointed else {})).train()
        x = torch.zeros(data, dtype=torch.long if net.high else torch.float32)
        y = torch.zeros(labels, dtype=torch.long)
        momentum = [torch.zeros_like(p) for p in model.parameters()]
        storages.peak = storages.now
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            scores = model(x)
            # In autocast the loss casts its input to float32 while the caller still holds it.
        loss = F.cross_entropy(scores.float() if autocast else scores, y)
        if not autocast:
            del scores
        else:
            scores = None
        loss.backward()
        del momentum
    return storages.peak


def largest(net: Net, nbytes: int, checkpointed: bool = False, most: int = 4096) -> int:
    """The largest batch whose step is estimated to fit in `nbytes`."""
    return bisected(lambda batch: peak(net, False, batch, checkpointed) <= nbytes, most)
