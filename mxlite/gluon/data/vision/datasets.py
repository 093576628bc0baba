"""Data sets of images in local files. Nothing is downloaded.

Images are uint8, (H, W, C); labels int32. A `transform(image, label)` changes each sample.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from .... import ndarray as nd
from ....core.errors import FormatError, MissingFileError
from ....io import image, recordio
from ....io.datasets import FASHION_MNIST
from ....io.mnist import read_idx
from ..dataset import Dataset, RecordFileDataset

_HOME = os.path.join("~", ".mxnet", "datasets")


class _InMemory(Dataset):
    """Images and labels in memory."""

    _files: str  # what to look for, for people

    def __init__(self, root: str, train: bool, transform: Callable[..., Any] | None) -> None:
        self._root = Path(os.path.expanduser(root))
        self._train = train
        self._transform = transform
        self._images, self._labels = self._read()

    def _read(self) -> tuple[np.ndarray, np.ndarray]:
        raise NotImplementedError

    def _file(self, *names: str) -> Path:
        """The first of these files that is there, plain or gzip."""
        for name in names:
            for path in (self._root / name, self._root / f"{name}.gz"):
                if path.exists():
                    return path
        raise MissingFileError(
            f"{type(self).__name__}: {self._root / names[0]} is not there, and mxlite downloads nothing. "
            f"Put the "
            f"files of the data set ({self._files}) into that folder, or name theirs with root=."
        )

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, idx: int) -> Any:
        x, y = nd.array(self._images[idx], dtype=np.uint8), self._labels[idx]
        return (x, y) if self._transform is None else self._transform(x, y)


class MNIST(_InMemory):
    """Handwritten digits, (28, 28, 1) in 10 classes: 60,000 to train, 10,000 to test. LeCun et al. 1998."""

    _files = "the four idx files, plain or .gz"

    def __init__(
        self, root: str = os.path.join(_HOME, "mnist"), train: bool = True, transform: Any = None
    ) -> None:
        super().__init__(root, train, transform)

    def _read(self) -> tuple[np.ndarray, np.ndarray]:
        part = "train" if self._train else "t10k"
        images = read_idx(self._file(f"{part}-images-idx3-ubyte", f"{part}-images.idx3-ubyte"), axes=3)
        labels = read_idx(self._file(f"{part}-labels-idx1-ubyte", f"{part}-labels.idx1-ubyte"), axes=1)
        if len(images) != len(labels):
            raise FormatError(f"{self._root}: {len(images)} {part} images, but {len(labels)} labels.")
        return images[..., None], labels.astype(np.int32)


class FashionMNIST(MNIST):
    """Clothes in MNIST's form; by default where Debian's package dataset-fashion-mnist puts them."""

    def __init__(
        self, root: str = os.path.join(_HOME, "fashion-mnist"), train: bool = True, transform: Any = None
    ) -> None:
        if root == os.path.join(_HOME, "fashion-mnist") and not os.path.exists(os.path.expanduser(root)):
            root = FASHION_MNIST if os.path.exists(FASHION_MNIST) else root
        super().__init__(root, train, transform)


class CIFAR10(_InMemory):
    """Photographs, (32, 32, 3) in 10 classes: 50,000 to train, 10,000 to test; its binary form. Krizhevsky
    2009.
    """

    _files = "data_batch_1.bin to data_batch_5.bin and test_batch.bin"
    _label_bytes = 1

    def __init__(
        self, root: str = os.path.join(_HOME, "cifar10"), train: bool = True, transform: Any = None
    ) -> None:
        super().__init__(root, train, transform)

    def _names(self) -> list[str]:
        return [f"data_batch_{i}.bin" for i in range(1, 6)] if self._train else ["test_batch.bin"]

    def _label(self, rows: np.ndarray) -> np.ndarray:
        return rows[:, 0]

    def _read(self) -> tuple[np.ndarray, np.ndarray]:
        size = self._label_bytes + 3 * 32 * 32
        parts = []
        for name in self._names():
            file = self._file(name)
            raw = np.fromfile(file, np.uint8)
            if not raw.size or raw.size % size:
                raise FormatError(f"{file} has {raw.size} bytes, which are no whole samples of {size} bytes.")
            parts.append(raw.reshape(-1, size))
        rows = np.concatenate(parts)
        images = rows[:, self._label_bytes :].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        return np.ascontiguousarray(images), self._label(rows).astype(np.int32)


class CIFAR100(CIFAR10):
    """Photographs as in CIFAR10, in 20 classes, or in 100 with `fine_label`."""

    _files = "train.bin and test.bin"
    _label_bytes = 2

    def __init__(
        self,
        root: str = os.path.join(_HOME, "cifar100"),
        fine_label: bool = False,
        train: bool = True,
        transform: Any = None,
    ) -> None:
        self._fine = fine_label
        super().__init__(root, train, transform)

    def _names(self) -> list[str]:
        return ["train.bin" if self._train else "test.bin"]

    def _label(self, rows: np.ndarray) -> np.ndarray:
        return rows[:, int(self._fine)]


class ImageRecordDataset(RecordFileDataset):
    """Images and labels of a RecordIO file with an index. flag: 1 for colour, 0 for grey."""

    def __init__(self, filename: str, flag: int = 1, transform: Any = None) -> None:
        super().__init__(filename)
        self._flag = flag
        self._transform = transform

    def __getitem__(self, idx: int) -> Any:
        header, raw = recordio.unpack(super().__getitem__(idx))
        x, y = image.imdecode(raw, self._flag), header.label
        return (x, y) if self._transform is None else self._transform(x, y)


class ImageFolderDataset(Dataset):
    """Images in a folder for each class, `root/cat/1.png`: classes are numbered in the order of their names.

    `synsets` are their names, `items` the pairs of file and label.
    """

    def __init__(self, root: str, flag: int = 1, transform: Any = None) -> None:
        self._root = os.path.expanduser(root)
        self._flag = flag
        self._transform = transform
        self._exts = (".jpg", ".jpeg", ".png")
        self.synsets: list[str] = []
        self.items: list[tuple[str, int]] = []
        if not os.path.isdir(self._root):
            raise MissingFileError(f"ImageFolderDataset: there is no folder {self._root}.")
        for folder in sorted(os.listdir(self._root)):
            path = os.path.join(self._root, folder)
            if not os.path.isdir(path):
                warnings.warn(f"{path} is no folder of a class, and is left out.", stacklevel=2)
                continue
            label = len(self.synsets)
            self.synsets.append(folder)
            for name in sorted(os.listdir(path)):
                if name.lower().endswith(self._exts):
                    self.items.append((os.path.join(path, name), label))
                else:
                    warnings.warn(f"{os.path.join(path, name)} is no image, and is left out.", stacklevel=2)

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, idx: int) -> Any:
        file, y = self.items[idx]
        x = image.imread(file, self._flag)
        return (x, y) if self._transform is None else self._transform(x, y)
