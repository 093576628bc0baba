"""mx.image.detection, also mx.image.det: the part of `mx.image` that varies images together with boxes."""

from .det_augmenter import (
    DetAugmenter as DetAugmenter,
    DetBorrowAug as DetBorrowAug,
    DetHorizontalFlipAug as DetHorizontalFlipAug,
    DetRandomCropAug as DetRandomCropAug,
    DetRandomPadAug as DetRandomPadAug,
    DetRandomSelectAug as DetRandomSelectAug,
)
from .det_create import (
    CreateDetAugmenter as CreateDetAugmenter,
    CreateMultiRandCropAugmenter as CreateMultiRandCropAugmenter,
)
from .det_iter import ImageDetIter as ImageDetIter
