"""One function for each operator that can be written, in files by family."""

from collections.abc import Callable
from typing import Any

from ..exported_node import ExportedNode
from . import attention, elementwise, layers, recurrent, shape

WRITERS: dict[str, Callable[[ExportedNode], Any]] = {
    name: write
    for file in (attention, elementwise, layers, recurrent, shape)
    for name, write in file.WRITERS.items()
}
"""By the operator's name: the function that writes a node and returns the names of its outputs."""
