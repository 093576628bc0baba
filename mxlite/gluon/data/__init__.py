"""mx.gluon.data: data sets, samplers, and batches that workers make."""

from . import batchify as batchify, loader, vision as vision
from .dataset import (
    ArrayDataset as ArrayDataset,
    Dataset as Dataset,
    RecordFileDataset as RecordFileDataset,
    SimpleDataset as SimpleDataset,
)
from .loader import DataLoader as DataLoader
from .sampler import (
    BatchSampler as BatchSampler,
    FilterSampler as FilterSampler,
    RandomSampler as RandomSampler,
    Sampler as Sampler,
    SequentialSampler as SequentialSampler,
)

dataloader = loader
