"""The label of an image with boxes: A, W, A - 2 more numbers, and W numbers for each object."""

from __future__ import annotations

import numpy as np

from ..core.errors import FormatError

_MOST = 2**24  # float32 counts no further


def parse_box_label(label: np.ndarray, where: str) -> tuple[np.ndarray, np.ndarray]:
    """The first A numbers of a label (n,) float32, and its objects (m, W).

    Objects whose box has no width or height, or is not finite, are left out. FormatError, which begins with
    `where`, unless A and W are numbers such that the label consists of whole objects.
    """
    head, width = (float(label[0]), float(label[1])) if len(label) > 6 else (0.0, 0.0)
    # Numbers that are NaN or infinite fail these comparisons, so that int() below takes them.
    if not (2 <= head <= len(label) and 5 <= width < _MOST) or (len(label) - int(head)) % int(width):
        raise FormatError(
            f"{where}: the label {label[:8].tolist()}... of {len(label)} numbers should be A, W, A - 2 more "
            f"numbers, and W of at least 5 for each object."
        )
    objects = label[int(head) :].reshape(-1, int(width))
    sound = (objects[:, 3] > objects[:, 1]) & (objects[:, 4] > objects[:, 2])
    return label[: int(head)], objects[sound & np.isfinite(objects[:, 1:5]).all(axis=1)]
