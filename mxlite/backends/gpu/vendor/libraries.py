"""Search for NVIDIA's libraries: files that the driver can run come first.

Wheels for CUDA 12 and for CUDA 13 may lie in one Python. A library of a newer major version than the driver's
loads there, and then fails, or emits machine code that the driver does not accept.
"""

from __future__ import annotations

import ctypes
import functools
import os
import re
import sys
import sysconfig
from collections.abc import Sequence

_MAJOR = re.compile(r"\.so\.(\d+)|64_(\d{2})\d*(?:_\d+)?\.dll")


@functools.cache
def driver_version() -> int | None:
    """CUDA version of the driver, such as 13020; None without a driver. Needs no GPU, and opens none."""
    number = ctypes.c_int()
    for name in ("libcuda.so.1", "nvcuda.dll"):
        try:
            if ctypes.CDLL(name).cuDriverGetVersion(ctypes.byref(number)) == 0:
                return number.value
        except (OSError, AttributeError):
            continue
    return None


def major(path: str) -> int:
    """Major CUDA version of a file, by its name; 0 if the name does not say."""
    found = _MAJOR.search(os.path.basename(path))
    return int(found[1] or found[2]) if found else 0


def candidates(folders: Sequence[str], names: Sequence[str]) -> list[str]:
    """Files to try, one after the other: in these folders of this Python's wheels, then by name alone.

    Wheels are also searched in all of `sys.path`: a user's own, those below a virtual environment,
    PYTHONPATH's.
    """
    site = dict.fromkeys((sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *sys.path))
    tried = [os.path.join(s, f, n) for s in site if os.path.isabs(s) for f in folders for n in names]
    found = [path for path in tried if os.path.isfile(path)]
    there = driver_version()
    return sorted((*found, *names), key=lambda path: there is not None and major(path) > there // 1000)


def is_loaded(folders: Sequence[str], names: Sequence[str]) -> bool:
    """Load the first candidate that loads, so that it is found by its bare name later; True if one did.

    Its symbols stay local: CuPy has a CUDA runtime linked in, whose functions must not be shadowed.
    """
    for path in candidates(folders, names):
        try:
            ctypes.CDLL(path)
        except OSError:
            continue
        return True
    return False
