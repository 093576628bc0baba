"""What NVRTC makes of a kernel's source: what tests of compiling share."""

from __future__ import annotations

from mxlite.backends.gpu.compiler import nvrtc

ARCHITECTURES = ("sm_80", "sm_90")
"""The ones that are promised."""


def compiled(source, architecture):
    """What each kernel takes."""
    cubin, log = nvrtc.compile(source, architecture)
    assert cubin[:4] == b"\x7fELF"
    found = nvrtc.usage(log)
    assert found, log
    return found
