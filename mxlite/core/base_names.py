"""What MXNet's programs import from `mxnet.base` beside its error: types of Python and numpy."""

from __future__ import annotations

import numpy as np

mx_real_t = np.float32
"""The type of arrays that say nothing else."""
string_types = (str,)
numeric_types = (float, int, np.generic)
integer_types = (int, np.integer)


def py_str(text: bytes | str) -> str:
    """Text from MXNet's C strings; text of Python as it is."""
    return text.decode("utf-8") if isinstance(text, bytes) else text
