"""mx.io.ImageRecordIter: images from a file of records, decoded and varied ahead of use by threads."""

from .det_iterator import ImageDetRecordIter as ImageDetRecordIter
from .iterator import (
    ImageRecordInt8Iter as ImageRecordInt8Iter,
    ImageRecordIter as ImageRecordIter,
    ImageRecordUInt8Iter as ImageRecordUInt8Iter,
)
