"""Imports one of the two frameworks by name inside a worker; needs only Python 3.8 or later."""

from __future__ import annotations

import platform
from typing import Any


def load(name: str) -> tuple[Any, dict[str, str]]:
    """(framework as `mx`, its versions)."""
    if name == "mxnet":
        import mxnet as mx
    else:
        import mxlite as mx
    import numpy as np

    return mx, {name: mx.__version__, "python": platform.python_version(), "numpy": np.__version__}
