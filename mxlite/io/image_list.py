"""Lists of images with labels, the .lst files of MXNet: `number TAB label [TAB label ...] TAB path`."""

from __future__ import annotations

import os
from typing import NamedTuple

import numpy as np

from ..core.disk.files import opened
from ..core.errors import FormatError
from .keys import whole_key

_LONGEST_LINE = 1 << 20


class ListedImage(NamedTuple):
    """One line: the image's number, labels (n,) float32, and path."""

    number: int
    labels: np.ndarray
    path: str


def read_image_list(path: str | os.PathLike[str]) -> list[ListedImage]:
    """All lines of a list; FormatError names the one that is malformed."""
    name = os.fspath(path)
    images = []
    with opened(name, "r", encoding="utf-8", errors="surrogateescape") as file:
        count = 0
        while line := file.readline(_LONGEST_LINE):
            count += 1
            fields = line.strip("\r\n ").split("\t")
            if fields == [""]:
                continue
            try:
                if len(fields) < 3:
                    raise ValueError
                images.append(
                    ListedImage(
                        whole_key(int(fields[0])),
                        np.array(fields[1:-1], dtype=np.float32),
                        fields[-1].strip(),
                    )
                )
            except ValueError:
                raise FormatError(
                    f"{name}, line {count}: should be a number, one or more labels and a path, with tabs "
                    f"between them, but is {line[:80]!r}."
                ) from None
    return images
