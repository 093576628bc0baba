"""Parameters of `ImageRecordIter`: MXNet's names and defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ...core.errors import OpAttributeError, ShapeError
from ...graph.attrs import parse_fields

_CHANNELS = (1, 3, 4)
_ANY = 2**31 - 1


@dataclass(frozen=True)
class ReadOptions:
    """Parameters that all iterators over records share: which images, in which order, by how many threads."""

    path_imgrec: str
    data_shape: tuple[int, ...]
    batch_size: int
    path_imgidx: str = ""
    path_imglist: str = ""
    label_width: int = 1
    data_name: str = "data"
    label_name: str = "softmax_label"

    shuffle: bool = False
    seed: int = 0
    seed_aug: int | None = None
    part_index: int = 0
    num_parts: int = 1
    round_batch: bool = True
    preprocess_threads: int = 4
    prefetch_buffer: int = 4

    resize: int = -1
    inter_method: Literal[0, 1, 2, 3, 4, 9, 10] = 1
    mean_img: str = ""
    mean_r: float = 0.0
    mean_g: float = 0.0
    mean_b: float = 0.0
    mean_a: float = 0.0
    scale: float = 1.0

    verbose: bool = True
    # Details of MXNet's own implementation; nothing here depends on them.
    ctx: str = "gpu"
    device_id: int = -1
    # Not supported: anything but these is refused.
    shuffle_chunk_size: int = 0
    shuffle_chunk_seed: int = 0

    def __post_init__(self) -> None:
        refuse(
            bool(self.shuffle_chunk_size or self.shuffle_chunk_seed),
            "shuffle_chunk_size and shuffle_chunk_seed are not supported: shuffle=True shuffles all records.",
        )
        if len(self.data_shape) != 3 or min(self.data_shape) < 1 or self.data_shape[0] not in _CHANNELS:
            raise ShapeError(
                f"data_shape is (channels, height, width) with 1, 3 or 4 channels, got {self.data_shape}."
            )
        for name, least, most in (
            ("batch_size", 1, _ANY),
            ("num_parts", 1, _ANY),
            ("preprocess_threads", 1, 64),
            ("prefetch_buffer", 1, 64),
        ):
            self.require(name, least, most)
        if not 0 <= self.part_index < self.num_parts:
            raise OpAttributeError(
                f"part_index is in [0, num_parts) = [0, {self.num_parts}), got {self.part_index}."
            )
        refuse(self.resize != -1 and self.resize < 1, f"resize is at least 1, or -1, got {self.resize}.")

    def require(self, name: str, least: float, most: float) -> None:
        """Raise OpAttributeError unless the parameter is in [least, most]."""
        value = getattr(self, name)
        refuse(not least <= value <= most, f"{name} must be in [{least}, {most}], got {value}.")


@dataclass(frozen=True)
class Options(ReadOptions):
    """Parameters of `ImageRecordIter` by name; its docstring explains them."""

    dtype: Literal["float32", "uint8", "int8"] | None = None

    rand_crop: bool = False
    max_crop_size: int = -1
    min_crop_size: int = -1
    random_resized_crop: bool = False
    max_random_area: float = 1.0
    min_random_area: float = 1.0
    max_aspect_ratio: float = 0.0
    min_aspect_ratio: float | None = None
    max_rotate_angle: int = 0
    rotate: int = -1
    max_shear_ratio: float = 0.0
    max_random_scale: float = 1.0
    min_random_scale: float = 1.0
    max_img_size: float = 1e10
    min_img_size: float = 0.0
    pad: int = 0
    fill_value: int = 255
    mirror: bool = False
    rand_mirror: bool = False

    brightness: float = 0.0
    contrast: float = 0.0
    saturation: float = 0.0
    pca_noise: float = 0.0
    random_h: int = 0
    random_s: int = 0
    random_l: int = 0
    max_random_contrast: float = 0.0
    max_random_illumination: float = 0.0

    std_r: float = 1.0
    std_g: float = 1.0
    std_b: float = 1.0
    std_a: float = 1.0
    # Not supported: anything but these is refused.
    aug_seq: str = "aug_default"
    rotate_list: str = ""

    def __post_init__(self) -> None:
        refuse(self.aug_seq != "aug_default", "aug_seq other than 'aug_default' is not supported.")
        refuse(bool(self.rotate_list), "rotate_list is not supported; rotate and max_rotate_angle are.")
        super().__post_init__()
        self.require("label_width", 1, _ANY)
        self.require("pad", 0, 1 << 14)
        self.require("fill_value", 0, 255)
        self._check_crops()

    def _check_crops(self) -> None:
        if (self.max_crop_size == -1) != (
            self.min_crop_size == -1
        ) or self.max_crop_size < self.min_crop_size:
            raise OpAttributeError(
                f"min_crop_size and max_crop_size go together, the smaller first, got "
                f"{self.min_crop_size} and {self.max_crop_size}."
            )
        refuse(0 in (self.max_crop_size, self.min_crop_size), "A crop has at least 1 pixel.")
        if self.random_resized_crop:
            clash = self.max_crop_size != -1 or self.rand_crop or self.scaled
            refuse(
                clash,
                "random_resized_crop goes without rand_crop, min_crop_size, max_crop_size and random scales.",
            )
            refuse(
                not 0 < self.min_random_area <= self.max_random_area <= 1,
                f"0 < min_random_area <= max_random_area <= 1, got {self.min_random_area} and "
                f"{self.max_random_area}.",
            )
            least = 1.0 if self.min_aspect_ratio is None else self.min_aspect_ratio
            most = self.max_aspect_ratio or 1.0
            refuse(not 0 < least <= most, f"0 < min_aspect_ratio <= max_aspect_ratio, got {least}, {most}.")
        else:
            refuse(
                self.min_aspect_ratio is not None
                or (self.min_random_area, self.max_random_area) != (1.0, 1.0),
                "min_aspect_ratio and random areas are of random_resized_crop: set it to True.",
            )

    @property
    def scaled(self) -> bool:
        """True if images are scaled at random."""
        return (self.min_random_scale, self.max_random_scale) != (1.0, 1.0)


def refuse(wrong: bool, message: str) -> None:
    """Raise OpAttributeError with `message` if `wrong`."""
    if wrong:
        raise OpAttributeError(message)


def parse_options(given: Mapping[str, Any]) -> Options:
    """Parameters from keywords. OpAttributeError names a wrong one: unknown, missing or not supported."""
    return parse_fields("ImageRecordIter", Options, given)
