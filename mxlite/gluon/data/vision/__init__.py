"""mx.gluon.data.vision: data sets of images, from local files, and transforms."""

from . import transforms as transforms
from .datasets import (
    CIFAR10 as CIFAR10,
    CIFAR100 as CIFAR100,
    FashionMNIST as FashionMNIST,
    ImageFolderDataset as ImageFolderDataset,
    ImageRecordDataset as ImageRecordDataset,
    MNIST as MNIST,
)
