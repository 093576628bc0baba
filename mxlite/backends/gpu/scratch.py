"""Scratch for NVIDIA's libraries, which begins at a multiple of 256 bytes wherever an arena has put it.

cuBLASLt refuses scratch that begins elsewhere, and cuDNN's engines are known to work with what cudaMalloc
gives. An arena's buffers begin at multiples of 64 (`memplan.ALIGN`), so that such a call asks for some bytes
more than it uses.

Source: ml-explore/mlx, pull request 2466 (2025), and NVIDIA/TransformerEngine, pull request 2223 (2025): the
same on a Hopper GPU.
"""

from __future__ import annotations

from typing import Any

from .device import Device

ALIGN = 256  # bytes


def padded(nbytes: int) -> int:
    """`nbytes` rounded up, so that what lies behind them is aligned too."""
    return -(-nbytes // ALIGN) * ALIGN


def room(nbytes: int) -> int:
    """What to ask for where so many bytes of it are used."""
    return nbytes + ALIGN if nbytes else 0


def begin(device: Device, work: Any) -> int:
    """Where the scratch in the array `work` begins; 0 where there is none."""
    return padded(device.address(work)) if work is not None and work.size else 0


def aligned(device: Device, work: Any) -> Any:
    """The array `work` from where the scratch in it begins."""
    if work is None or not work.size:
        return work
    return work[begin(device, work) - device.address(work) :]
