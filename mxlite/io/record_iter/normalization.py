"""Normalization of a uint8 image into its row of a batch: mean, scale, mirror."""

from __future__ import annotations

import numpy as np

from ...core.errors import ShapeError
from .options import Options


class Normalization:
    """Writes (H, W, C) as (C, H, W): (image - mean) * contrast / std + illumination / std.

    contrast is `scale`, times a random factor from [1 - max_random_contrast, 1 + max_random_contrast];
    illumination from [-max_random_illumination, max_random_illumination] * scale. `mean`: (C, H, W) instead
    of the means of channels. A batch of uint8 takes the image as it is, one of int8 less the rounded mean.
    """

    def __init__(self, options: Options, mean: np.ndarray | None = None) -> None:
        o = self.options = options
        channels = o.data_shape[0]
        if mean is not None and mean.shape != tuple(o.data_shape):
            raise ShapeError(
                f"The mean image {o.mean_img} is of shape {mean.shape}, but data_shape is {o.data_shape}."
            )
        means, stds = (o.mean_r, o.mean_g, o.mean_b, o.mean_a), (o.std_r, o.std_g, o.std_b, o.std_a)
        if 0 in stds[:channels]:
            raise ShapeError(f"A standard deviation of 0 cannot be divided by, got {stds[:channels]}.")
        self._mean = np.array(means[:channels], np.float32)[:, None, None] if mean is None else mean
        self._over_std = (1 / np.array(stds[:channels], np.float32))[:, None, None]

    def write(self, image: np.ndarray, out: np.ndarray, rng: np.random.Generator) -> None:
        """Fill `out`, (C, H, W)."""
        o = self.options
        planes = image.transpose(2, 0, 1)
        if o.mirror or (o.rand_mirror and rng.random() < 0.5):
            out = out[..., ::-1]
        if out.dtype == np.uint8:
            out[...] = planes
        elif out.dtype == np.int8:
            out[...] = np.clip(planes - np.rint(self._mean).astype(np.int32), -128, 127)
        else:
            contrast, illumination = o.scale, 0.0
            if o.max_random_contrast:
                contrast *= 1 + rng.uniform(-o.max_random_contrast, o.max_random_contrast)
            if o.max_random_illumination:
                illumination = rng.uniform(-o.max_random_illumination, o.max_random_illumination) * o.scale
            np.subtract(planes, self._mean, out=out, dtype=np.float32)
            out *= np.float32(contrast) * self._over_std
            if illumination:
                out += np.float32(illumination) * self._over_std
