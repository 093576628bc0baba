"""Predicates of tests about their platform."""

from __future__ import annotations

import os
import platform


def is_cd_run() -> bool:
    """True in a run of continuous delivery: the environment variable CD_JOB is 1."""
    return os.environ.get("CD_JOB", "0") == "1"


def is_aarch64_run() -> bool:
    """True if the processor is a 64-bit ARM."""
    return platform.machine() == "aarch64"


def has_tvm_ops() -> bool:
    """True if there are operators made by TVM: never here."""
    return False


def is_op_runnable() -> bool:
    """True if operators made by TVM can run on this device: always, as they are not needed here."""
    return True
