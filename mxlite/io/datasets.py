"""Real data that needs no download. Each loader gives (train_x, train_y, test_x, test_y), numpy arrays:

x: (N, 1, H, W) float32 in [0, 1];  y: (N,) int32, the class.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from ..core.errors import FormatError, MissingFileError
from .mnist import read_idx

Arrays = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]

FASHION_MNIST = "/usr/share/datasets/fashion-mnist"
"""The folder of Debian's package dataset-fashion-mnist."""


def load_digits() -> Arrays:
    """Handwritten digits, 8x8 in 10 classes, from scikit-learn's wheel: 1437 to train, 360 to test.

    Every fifth image, counted class by class, is a test image: the same split everywhere, in which each class
    has its share to within one image. Pixels are 0 to 16 there and divided by 16 here.
    """
    try:
        from sklearn.datasets import load_digits as load
    except ImportError:
        raise ImportError(
            "The digits come with scikit-learn, which is not installed: pip install mxlite[examples]"
        ) from None
    pixels, classes = load(return_X_y=True)
    images = (pixels.reshape(-1, 1, 8, 8) / 16).astype(np.float32)
    test = np.zeros(len(classes), bool)
    test[np.argsort(classes, kind="stable")[::5]] = True
    labels = classes.astype(np.int32)
    return images[~test], labels[~test], images[test], labels[test]


def load_fashion_mnist(path: str | os.PathLike[str] | None = None) -> Arrays:
    """Fashion-MNIST, 28x28 in 10 classes: 60,000 to train, 10,000 to test (Xiao, Rasul and Vollgraf, 2017).

    `path` is a directory with the four idx files, plain or .gz, by default where Debian's package puts them.
    MissingFileError says how to get them; FormatError if one is damaged. The training images take 188 MB.
    """
    folder = Path(FASHION_MNIST if path is None else path)
    arrays = []
    for part in ("train", "t10k"):
        images = read_idx(_existing(folder, f"{part}-images-idx3-ubyte"), axes=3)
        labels = read_idx(_existing(folder, f"{part}-labels-idx1-ubyte"), axes=1)
        if len(images) != len(labels):
            raise FormatError(f"{folder}: {len(images)} {part} images, but {len(labels)} labels.")
        pixels = images[:, None].astype(np.float32)
        pixels /= 255
        arrays += [pixels, labels.astype(np.int32)]
    return arrays[0], arrays[1], arrays[2], arrays[3]


def _existing(folder: Path, name: str) -> Path:
    for candidate in (folder / f"{name}.gz", folder / name):
        if candidate.is_file():
            return candidate
    raise MissingFileError(
        f"{folder} has neither {name}.gz nor {name}. Fashion-MNIST is in Debian's and Ubuntu's package "
        f"dataset-fashion-mnist (apt-get install dataset-fashion-mnist); or give the directory that has them."
    )
