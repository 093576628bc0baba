"""What tests ask about where they run."""

from __future__ import annotations

import os
import platform


def is_cd_run() -> bool:
    """Whether this is a run of continuous delivery: the environment variable CD_JOB is 1."""
    return os.environ.get("CD_JOB", "0") == "1"


def is_aarch64_run() -> bool:
    """Whether the processor is a 64-bit ARM."""
    return platform.machine() == "aarch64"


def has_tvm_ops() -> bool:
    """Whether there are operators made by TVM: never here."""
    return False


def is_op_runnable() -> bool:
    """Whether operators made by TVM run on this device: they are not needed here."""
    return True
