"""mx.recordio: files of records, and images with labels inside them; MXNet's format in both directions."""

from .files import MXIndexedRecordIO as MXIndexedRecordIO, MXRecordIO as MXRecordIO
from .image_record import (
    IRHeader as IRHeader,
    pack as pack,
    pack_img as pack_img,
    unpack as unpack,
    unpack_img as unpack_img,
)
