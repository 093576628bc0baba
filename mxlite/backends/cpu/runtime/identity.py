"""Facts on which kernel times depend besides the call: the processor, and the libraries."""

from __future__ import annotations

import functools
import platform

import numpy as np

from ....core import config
from ....core.machine_code import native
from ....core.process.cores import available_cores
from ..onednn import find

_LONGEST = 200  # characters of a processor's name


@functools.cache
def identity() -> tuple[str, ...]:
    """Facts of this machine, as `name=value`; equal facts mean equal times, as far as is known."""
    onednn = find().library
    return (
        f"system={platform.system()}",
        f"processor={processor()}",
        f"cores={available_cores()}",
        f"instructions={config.target()}",
        f"numpy={np.__version__}",
        f"onednn={'absent' if onednn is None else '.'.join(map(str, onednn.version))}",
        f"llvm={native.target().llvm if native.available() else 'absent'}",
    )


@functools.cache
def processor() -> str:
    """The processor's model name, else its kind."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith(("model name", "Model")):
                    return line.partition(":")[2].strip()[:_LONGEST]
    except OSError:
        pass
    return platform.processor() or platform.machine()
