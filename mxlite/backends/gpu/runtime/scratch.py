"""Scratch in parts of 256 bytes, and aligned to so many for NVIDIA's libraries, wherever an arena has put it.

cuBLASLt refuses scratch that is less aligned, and cuDNN's engines are known to work with what cudaMalloc
returns. An arena's buffers are aligned to 64 bytes (`memplan.ALIGN`), so such a call requests some bytes
more than it uses.

Source: ml-explore/mlx, pull request 2466 (2025), and NVIDIA/TransformerEngine, pull request 2223 (2025): the
same on a Hopper GPU.
"""

from __future__ import annotations

from typing import Any

from .device import Device

ALIGN = 256  # bytes


def padded(nbytes: int) -> int:
    """`nbytes` rounded up, so that what follows them is aligned too."""
    return -(-nbytes // ALIGN) * ALIGN


class Scratch:
    """Parts of a workspace, of these sizes in bytes; each begins a multiple of 256 bytes after the first."""

    def __init__(self, **sizes: int) -> None:
        self.sizes = sizes
        self.nbytes = sum(map(padded, sizes.values()))

    def parts(self, work: Any) -> dict[str, Any]:
        """The parts of `work`, in their order."""
        found, begin = {}, 0
        for name, nbytes in self.sizes.items():
            found[name] = work[begin : begin + nbytes]
            begin += padded(nbytes)
        return found


def room(nbytes: int) -> int:
    """Bytes to request so that `nbytes` of them can be used."""
    return nbytes + ALIGN if nbytes else 0


def begin(device: Device, work: Any) -> int:
    """Address of the aligned scratch in the array `work`; 0 if there is none."""
    return padded(device.address(work)) if work is not None and work.size else 0


def aligned(device: Device, work: Any) -> Any:
    """The array `work` from the begin of its aligned scratch."""
    if work is None or not work.size:
        return work
    return work[begin(device, work) - device.address(work) :]
