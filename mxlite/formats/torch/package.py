"""PyTorch, imported when a module of it is given: mxlite does not depend on it."""

from __future__ import annotations

from typing import Any

from ...core import MXLiteError

OLDEST = (2, 6)
"""The first version whose exporter keeps composite operators: below it layer norm falls into pieces."""


def torch_package() -> Any:
    """The `torch` module. Raises MXLiteError with what to install where it is missing or too old."""
    remedy = f"Install it with: pip install 'torch>={OLDEST[0]}.{OLDEST[1]}'"
    try:
        import torch
        import torch.export
    except ImportError as error:
        raise MXLiteError(
            f"Modules of PyTorch are read with torch, which cannot be imported ({error}). {remedy}"
        ) from None
    version = str(torch.__version__)
    numbers = tuple(int(part) for part in version.split("+")[0].split(".")[:2] if part.isdigit())
    if numbers < OLDEST:
        raise MXLiteError(
            f"Modules of PyTorch are read by torch.export of version {OLDEST[0]}.{OLDEST[1]} or later, and "
            f"torch {version} is installed. {remedy}"
        )
    return torch
