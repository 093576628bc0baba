"""Data sets that programs ask for. Nothing is downloaded: MXNet's old addresses do not answer any more."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from ..core.errors import MissingFileError
from ..io import DataBatch, DataIter, MNISTIter, read_idx

_PARTS = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


def _mnist_files(path: str | os.PathLike[str] | None) -> list[Path]:
    """The four files of MNIST, plain or .gz, in `path`, or else here or in ./data."""
    folders = [Path(p) for p in ((".", "data") if path is None else (path,))]
    for folder in folders:
        files = [next((f for f in (folder / n, folder / f"{n}.gz") if f.is_file()), None) for n in _PARTS]
        if all(files):
            return [f for f in files if f is not None]
    raise MissingFileError(
        f"MNIST is not in {' or '.join(str(f) for f in folders)}, and nothing is downloaded. Put its four "
        f"files there, plain or .gz ({', '.join(_PARTS)}); or use mx.io.load_digits() or "
        f"mx.io.load_fashion_mnist(), which need no download."
    )


def get_mnist(path: str | os.PathLike[str] | None = None) -> dict[str, np.ndarray]:
    """MNIST: train_data (60000, 1, 28, 28) float32 in [0, 1], train_label, test_data, test_label.

    From the four idx files in `path`, or else in the current folder or ./data; MissingFileError says how
    to get them.
    """
    images, labels, test_images, test_labels = _mnist_files(path)

    def pixels(file: Path) -> np.ndarray:
        return read_idx(file, axes=3)[:, None].astype(np.float32) / 255

    return {
        "train_data": pixels(images),
        "train_label": read_idx(labels, axes=1).astype(np.int8),
        "test_data": pixels(test_images),
        "test_label": read_idx(test_labels, axes=1).astype(np.int8),
    }


def get_mnist_iterator(
    batch_size: int,
    input_shape: tuple[int, ...],
    num_parts: int = 1,
    part_index: int = 0,
    path: str | os.PathLike[str] | None = None,
) -> tuple[MNISTIter, MNISTIter]:
    """MNISTIters for training and test; flat unless `input_shape` has three axes. Files: see `get_mnist`."""
    files = _mnist_files(path)
    train, test = (
        MNISTIter(
            files[i],
            files[i + 1],
            batch_size=batch_size,
            flat=len(input_shape) != 3,
            num_parts=num_parts,
            part_index=part_index,
        )
        for i in (0, 2)
    )
    return train, test


class DummyIter(DataIter):
    """An endless iterator that repeats the first batch of another one; to measure speed."""

    def __init__(self, real_iter: Any) -> None:
        super().__init__(real_iter.batch_size)
        self.real_iter = real_iter
        self.provide_data = real_iter.provide_data
        self.provide_label = real_iter.provide_label
        self.the_batch = next(real_iter)

    def next(self) -> DataBatch:
        return self.the_batch
