"""U-Net: down to coarse features and up, with skip connections between equal sizes."""

from __future__ import annotations

from .. import symbol as sym
from ..symbol import Symbol
from .layers import convolution, norm, pool, relu, require


def unet(classes: int = 2, *, width: int = 64, levels: int = 5, batch_norm: bool = True) -> Symbol:
    """U-Net (O. Ronneberger, P. Fischer, T. Brox 2015, "U-Net: convolutional networks for biomedical image
    segmentation").

    data: (N, 3, H, W), H and W multiples of 2^(`levels` - 1);  softmax_label: (N, H * W)  ->
    softmax: (N, `classes`, H, W).

    Convolutions are padded, so that the output is as large as the input, and have norms; the paper's have
    neither.  width: filters of the first level; each level down has twice as many.
    """
    require(levels >= 1, f"levels must be at least 1, got {levels!r}.")

    def twice(data: Symbol, filters: int, name: str) -> Symbol:
        for i in (1, 2):
            data = convolution(data, filters, 3, f"{name}_conv{i}", bias=not batch_norm)
            if batch_norm:
                data = norm(data, f"{name}_bn{i}")
            data = relu(data, f"{name}_relu{i}")
        return data

    data, bridges = sym.Variable("data"), []
    for level in range(levels):
        if level:
            bridges.append(data)
            data = pool(data, "max", 2, 2, f"down{level}_pool")
        data = twice(data, width << level, f"down{level}")
    for level in range(levels - 2, -1, -1):
        up = sym.Deconvolution(
            data, kernel=(2, 2), stride=(2, 2), num_filter=width << level, no_bias=False, name=f"up{level}"
        )
        data = twice(
            sym.Concat(bridges[level], up, dim=1, name=f"up{level}_concat"), width << level, f"up{level}"
        )
    score = convolution(data, classes, 1, "score", bias=True)
    return sym.SoftmaxOutput(score, multi_output=True, normalization="valid", name="softmax")
