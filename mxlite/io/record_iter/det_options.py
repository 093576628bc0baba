"""Parameters of `ImageDetRecordIter`: MXNet's names and defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ...core.errors import OpAttributeError
from ...graph.attrs import parse_fields
from .options import ReadOptions, refuse

_LISTS = (
    "min_crop_scales",
    "max_crop_scales",
    "min_crop_aspect_ratios",
    "max_crop_aspect_ratios",
    "min_crop_overlaps",
    "max_crop_overlaps",
    "min_crop_sample_coverages",
    "max_crop_sample_coverages",
    "min_crop_object_coverages",
    "max_crop_object_coverages",
    "max_crop_trials",
)
"""Parameters with a value for each crop sampler, or one for all."""


@dataclass(frozen=True)
class DetOptions(ReadOptions):
    """Parameters of `ImageDetRecordIter` by name; its docstring explains them."""

    label_width: int = -1
    label_pad_width: int = 0
    label_pad_value: float = -1.0
    dtype: Literal["float32"] | None = None

    rand_crop_prob: float = 0.0
    num_crop_sampler: int = 1
    min_crop_scales: tuple[float, ...] = (0.0,)
    max_crop_scales: tuple[float, ...] = (1.0,)
    min_crop_aspect_ratios: tuple[float, ...] = (1.0,)
    max_crop_aspect_ratios: tuple[float, ...] = (1.0,)
    min_crop_overlaps: tuple[float, ...] = (0.0,)
    max_crop_overlaps: tuple[float, ...] = (1.0,)
    min_crop_sample_coverages: tuple[float, ...] = (0.0,)
    max_crop_sample_coverages: tuple[float, ...] = (1.0,)
    min_crop_object_coverages: tuple[float, ...] = (0.0,)
    max_crop_object_coverages: tuple[float, ...] = (1.0,)
    max_crop_trials: tuple[int, ...] = (25,)
    crop_emit_mode: Literal["center", "overlap"] = "center"
    emit_overlap_thresh: float = 0.3
    rand_pad_prob: float = 0.0
    max_pad_scale: float = 1.0
    fill_value: int = 127
    rand_mirror_prob: float = 0.0
    resize_mode: Literal["force", "shrink", "fit"] = "force"

    max_random_hue: int = 0
    random_hue_prob: float = 0.0
    max_random_saturation: int = 0
    random_saturation_prob: float = 0.0
    max_random_illumination: int = 0
    random_illumination_prob: float = 0.0
    max_random_contrast: float = 0.0
    random_contrast_prob: float = 0.0

    std_r: float = 0.0
    std_g: float = 0.0
    std_b: float = 0.0
    std_a: float = 0.0

    # Not supported: anything but this is refused.
    aug_seq: str = "det_aug_default"

    def __post_init__(self) -> None:
        refuse(self.aug_seq != "det_aug_default", "aug_seq other than 'det_aug_default' is not supported.")
        refuse(bool(self.mean_img), "mean_img is not supported; mean_r, mean_g and mean_b are.")
        super().__post_init__()
        self.require("fill_value", 0, 255)
        self.require("num_crop_sampler", 0, 1 << 10)
        for name in _LISTS:
            count = len(getattr(self, name))
            refuse(
                count not in (1, self.num_crop_sampler),
                f"{name} needs one value, or {self.num_crop_sampler} as num_crop_sampler, got {count}.",
            )
        for s in self.samplers:
            sound = 0 <= s.scales[0] < s.scales[1] <= 1 and 0 <= s.ratios[0] <= s.ratios[1]
            if not sound or any(low > high for low, high in (s.overlaps, s.sample, s.objects)):
                raise OpAttributeError(
                    f"A crop sampler has a least value above the largest, or scales outside [0, 1]: {s}."
                )

    @property
    def samplers(self) -> list[Sampler]:
        """The samplers of crops: one of them is chosen at a time."""
        count = self.num_crop_sampler
        columns = [getattr(self, name) for name in _LISTS]
        rows = zip(*(c * count if len(c) == 1 else c for c in columns)) if count else ()
        return [
            Sampler((a, b), (c, d), (e, f), (g, h), (i, j), t) for a, b, c, d, e, f, g, h, i, j, t in rows
        ]


@dataclass(frozen=True)
class Sampler:
    """Bounds of a crop: the root of its area, width over height, and for at least one object intersection
    over union, over the crop's area, over the object's; and the number of tries."""

    scales: tuple[float, float]
    ratios: tuple[float, float]
    overlaps: tuple[float, float]
    sample: tuple[float, float]
    objects: tuple[float, float]
    trials: int


def parse_det_options(given: Mapping[str, Any]) -> DetOptions:
    """Parameters from keywords. OpAttributeError names a wrong one: unknown, missing or not supported."""
    return parse_fields("ImageDetRecordIter", DetOptions, given)
