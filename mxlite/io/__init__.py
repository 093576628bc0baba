"""Iterators over batches: arrays, records, images, text."""

from . import image as image, recordio as recordio
from .csv_iter import CSVIter as CSVIter
from .datasets import load_digits as load_digits, load_fashion_mnist as load_fashion_mnist
from .iterator import (
    DataBatch as DataBatch,
    DataDesc as DataDesc,
    DataIter as DataIter,
    ResizeIter as ResizeIter,
)
from .libsvm_iter import LibSVMIter as LibSVMIter
from .mnist import MNISTIter as MNISTIter, read_idx as read_idx
from .ndarray_iter import NDArrayIter as NDArrayIter
from .prefetch import PrefetchingIter as PrefetchingIter
from .record_iter import (
    ImageDetRecordIter as ImageDetRecordIter,
    ImageRecordInt8Iter as ImageRecordInt8Iter,
    ImageRecordIter as ImageRecordIter,
    ImageRecordUInt8Iter as ImageRecordUInt8Iter,
)
from .sentences import BucketSentenceIter as BucketSentenceIter, encode_sentences as encode_sentences
