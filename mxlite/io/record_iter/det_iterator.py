"""mx.io.ImageDetRecordIter."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.errors import ShapeError
from ..box_label import parse_box_label
from ..image_codec import pillow
from ..recordio.image_record import unpack
from .decoder import RecordDecoder
from .det_augmentation import DetAugmentation
from .det_options import DetOptions, parse_det_options
from .iterator import RecordIter
from .source import Records

_SIZES = 4  # numbers before the label of an image


class ImageDetRecordIter(RecordIter):
    """Batches of the images in a file of records with their boxes, made ahead of their use by threads.

    data: (N, C, H, W) of float32, red green blue;  label: (N, 4 + label_pad_width): channels, rows and
    columns of the image, the number of its labels, then its label, then label_pad_value.

    The label of a record, or with path_imglist of the list, is A, W, A - 2 more numbers, and W for each
    object: class, x1, y1, x2, y2 as parts of the image's width and height, and W - 5 more. Objects of no
    width or height are dropped. label_pad_width is that of the longest label of all if it is not given;
    label_width other than -1 is what every label must have.

    - **Which images**, **the last batch**, **threads**, random choices, errors, `close()`: see
      `ImageRecordIter`.
    - **Size**: resize (the shorter side) at first; at the end resize_mode: "force" to H x W, "fit" as large
      as fits there, "shrink" only if it does not fit. What is left of H x W is 0. inter_method: as in
      `imresize`.
    - **Parts**, with rand_crop_prob: one of num_crop_sampler samplers, each with a value of its own in each
      of the lists, or one for all. A part's area is between min_crop_scales and max_crop_scales squared, its
      form between min_crop_aspect_ratios and max_crop_aspect_ratios; one object's intersection with it over
      their union is between min_crop_overlaps and max_crop_overlaps, over the part's area between
      min_crop_sample_coverages and max_crop_sample_coverages, over the object's between
      min_crop_object_coverages and max_crop_object_coverages. Tried max_crop_trials times. Objects stay
      whose centre is in the part, or with crop_emit_mode="overlap" more than emit_overlap_thresh of their
      area.
    - **Frames**, with rand_pad_prob: up to max_pad_scale times as wide and high, of fill_value.
    - **Form and colour**: rand_mirror_prob; max_random_hue, max_random_saturation, max_random_illumination
      and max_random_contrast, each with a probability such as random_hue_prob.
    - **Numbers**: (x - mean_r) / std_r * scale, and so for g, b, a; a std of 0 divides by nothing.
    """

    def __init__(self, **kwargs: Any) -> None:
        pillow()
        options = parse_det_options(kwargs)
        super().__init__(options, lambda records: _DetDecoder(options, records), "float32")


class _DetDecoder(RecordDecoder):
    """Decodes, varies and normalizes an image with its boxes into rows of a batch."""

    def __init__(self, options: DetOptions, records: Records) -> None:
        super().__init__(options)
        o = self.options = options
        self._augment = DetAugmentation(o)
        channels = o.data_shape[0]
        means, stds = (o.mean_r, o.mean_g, o.mean_b, o.mean_a), (o.std_r, o.std_g, o.std_b, o.std_a)
        self._mean = np.array(means[:channels], np.float32)[:, None, None]
        self._over_std = np.array([1 / s if s > 0 else 1 for s in stds[:channels]], np.float32)[:, None, None]
        longest = self._longest(records)
        if 0 < o.label_pad_width < longest:
            raise ShapeError(f"label_pad_width is {o.label_pad_width}, but a label has {longest} numbers.")
        self.width = _SIZES + max(longest, o.label_pad_width)

    def _longest(self, records: Records) -> int:
        """Numbers of the longest label."""
        longest = 0
        if self._labels is not None:
            return max((len(label) for label in self._labels.values()), default=0)
        records.start(0, 0)
        while (found := records.next()) is not None:
            record, at = found
            longest = max(longest, len(self.labels_of(unpack(record)[0], at)))
        records.start(0, 0)
        return longest

    def fill(
        self, record: bytes, at: int, place: tuple[int, int], out: np.ndarray, label: np.ndarray
    ) -> None:
        image, header = self.decode(record, at)
        labels = self.labels_of(header, at)
        head, objects = self._parsed(labels, at)
        image, objects = self._augment(image, objects, self.rng(place))
        rows, columns, channels = image.shape
        count = len(head) + objects.size
        label[_SIZES:] = self.options.label_pad_value
        label[:_SIZES] = channels, rows, columns, count
        label[_SIZES : _SIZES + len(head)] = head
        label[_SIZES + len(head) : _SIZES + count] = objects.reshape(-1)
        out.fill(0)
        target = out[:, :rows, :columns]
        np.subtract(image.transpose(2, 0, 1), self._mean, out=target, dtype=np.float32)
        target *= self._over_std * np.float32(self.options.scale)

    def _parsed(self, label: np.ndarray, at: int) -> tuple[np.ndarray, np.ndarray]:
        """The head of a label, and its objects (n, W)."""
        wanted = self.options.label_width
        if wanted > 0 and len(label) != wanted:
            raise ShapeError(f"{self.where(at)}: {len(label)} labels, but label_width is {wanted}.")
        return parse_box_label(label, self.where(at))
