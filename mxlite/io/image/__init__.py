"""mx.image: images read, resized, cropped and varied, and an iterator over them. Also `mx.img`.

Images are NDArrays (H, W, C), uint8 as they are read, red green blue. Random choices are those of Python's
`random` and, for noise, of numpy's global generator, as in MXNet: with equal seeds the crops are MXNet's.
"""

import sys

from . import detection as detection
from .augmenter import (
    Augmenter as Augmenter,
    CastAug as CastAug,
    CenterCropAug as CenterCropAug,
    ForceResizeAug as ForceResizeAug,
    HorizontalFlipAug as HorizontalFlipAug,
    RandomCropAug as RandomCropAug,
    RandomOrderAug as RandomOrderAug,
    RandomSizedCropAug as RandomSizedCropAug,
    ResizeAug as ResizeAug,
    SequentialAug as SequentialAug,
)
from .color import (
    BrightnessJitterAug as BrightnessJitterAug,
    color_normalize as color_normalize,
    ColorJitterAug as ColorJitterAug,
    ColorNormalizeAug as ColorNormalizeAug,
    ContrastJitterAug as ContrastJitterAug,
    HueJitterAug as HueJitterAug,
    LightingAug as LightingAug,
    RandomGrayAug as RandomGrayAug,
    SaturationJitterAug as SaturationJitterAug,
)
from .create import CreateAugmenter as CreateAugmenter
from .crop import (
    center_crop as center_crop,
    copyMakeBorder as copyMakeBorder,
    fixed_crop as fixed_crop,
    random_crop as random_crop,
    random_size_crop as random_size_crop,
    scale_down as scale_down,
)
from .detection import (
    CreateDetAugmenter as CreateDetAugmenter,
    CreateMultiRandCropAugmenter as CreateMultiRandCropAugmenter,
    DetAugmenter as DetAugmenter,
    DetBorrowAug as DetBorrowAug,
    DetHorizontalFlipAug as DetHorizontalFlipAug,
    DetRandomCropAug as DetRandomCropAug,
    DetRandomPadAug as DetRandomPadAug,
    DetRandomSelectAug as DetRandomSelectAug,
    ImageDetIter as ImageDetIter,
)
from .image_iter import ImageIter as ImageIter
from .reading import imdecode as imdecode, imread as imread
from .resize import imresize as imresize, resize_short as resize_short
from .rotate import imrotate as imrotate, random_rotate as random_rotate

det = detection
image = sys.modules[__name__]  # MXNet has a module of this name for everything but detection
