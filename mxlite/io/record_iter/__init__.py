"""mx.io.ImageRecordIter: images out of a file of records, decoded and varied by threads ahead of use."""

from .det_iterator import ImageDetRecordIter as ImageDetRecordIter
from .iterator import (
    ImageRecordInt8Iter as ImageRecordInt8Iter,
    ImageRecordIter as ImageRecordIter,
    ImageRecordUInt8Iter as ImageRecordUInt8Iter,
)
