"""The columns of benchmarks/gpu.py: a framework, a precision, options; each in a process of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from peers.column import Column

OURS, TORCH = "../gpu_columns/mxlite_gpu.py", "../gpu_columns/torch_gpu.py"
PRECISIONS = {"fp32": "float32", "tf32": "float32 by TF32", "bf16": "bfloat16, float32 weights"}
TOLERANCE = {"fp32": 1e-3, "tf32": 2e-2, "bf16": 0.08}
"""Of losses, relative to PyTorch eager in float32."""


def columns() -> list[Column]:
    """All of them: mxlite's first in each precision."""
    made = []
    for precision in PRECISIONS:
        own = {"amp": "bfloat16"} if precision == "bf16" else {}
        theirs = {"bf16": {"autocast": True, "tf32": True}, "tf32": {"tf32": True}, "fp32": {}}[precision]
        env = {"MXLITE_ALLOW_TF32": str(int(precision != "fp32"))}
        made.append(Column(f"mxlite-{precision}", "mxlite", "ours", OURS, own, env, precision))
        last = {**theirs, "channels_last": True}
        made += [
            Column(f"eager-{precision}", "PyTorch eager", "torch", TORCH, theirs, precision=precision),
            Column(f"last-{precision}", "channels_last", "torch", TORCH, last, {}, precision, "images"),
            Column(f"compile-{precision}", "max-autotune", "torch", TORCH, {**last, "compiled": True},
                   precision=precision),
        ]  # fmt: skip
    return made


def quick() -> list[Column]:
    """mxlite in all precisions, PyTorch in those that are used: no compiling."""
    return [c for c in columns() if c.side == "ours" or c.name in ("eager-tf32", "last-bf16", "eager-bf16")]


def small() -> list[Column]:
    """For the emulated GPU: PyTorch on the CPU."""
    return [c for c in columns() if c.name in ("mxlite-fp32", "eager-fp32", "mxlite-bf16")]


def emulated(column: Column) -> Column:
    """The column on the emulated GPU, if it is ours."""
    return replace(column, env={**column.env, "MXLITE_BENCHMARK_EMULATED": "1"})


def within(nbytes: Mapping[str, int], precision: str = "tf32") -> list[Column]:
    """ResNet-1001: mxlite without a budget and within some, PyTorch with a checkpoint around every block."""
    env = {"MXLITE_ALLOW_TF32": "1"}
    theirs = {"tf32": True, "channels_last": True}
    made = [Column("mxlite", "mxlite, no budget", "ours", OURS, {}, env, precision)]
    for name, limit in nbytes.items():
        made.append(
            Column(name, f"mxlite within {name}", "ours", OURS, {"memory_budget": limit}, env, precision)
        )
    made.append(Column("eager", "PyTorch channels_last", "torch", TORCH, theirs, {}, precision))
    again = {**theirs, "checkpointed": True}
    made.append(Column("checkpointed", "PyTorch, checkpointed", "torch", TORCH, again, {}, precision))
    segments = {**theirs, "checkpointed": "segments"}
    made.append(Column("segments", "the same, sqrt(n) stretches", "torch", TORCH, segments, {}, precision))
    return made
