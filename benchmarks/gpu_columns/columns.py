"""The columns of benchmarks/gpu.py: a framework, a precision, options; each in a process of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from peers.column import Column

OURS, TORCH, JAX = (f"../gpu_columns/{side}_gpu.py" for side in ("mxlite", "torch", "jax"))
JAX_ENV = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
JAX_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "fp32": {"precision": "highest"},
    "tf32": {"precision": "tensorfloat32"},
    "bf16": {"precision": None, "dtype": "bfloat16"},
}
PRECISIONS = {"fp32": "float32", "tf32": "float32 by TF32", "bf16": "bfloat16, float32 weights"}
PLENTY = 64 * 2**30
"""Bytes in which ResNet-1001 keeps all: without a budget a step makes again what is cheap, and holds less."""
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
            *jax(precision),
        ]  # fmt: skip
    return made


def jax(precision: str) -> list[Column]:
    """JAX's step compiled, and the same with `jax.checkpoint` around every block."""
    options = JAX_OPTIONS[precision]
    again = {**options, "again": True}
    return [
        Column(f"jit-{precision}", "JAX jit", "jax", JAX, options, JAX_ENV, precision),
        Column(f"remat-{precision}", "JAX remat", "jax", JAX, again, JAX_ENV, precision),
    ]


def quick() -> list[Column]:
    """In the precisions that are used, those first that matter most; nothing that takes long to compile."""
    names = ("mxlite-bf16", "eager-bf16", "last-bf16", "mxlite-tf32", "eager-tf32")
    return sorted((c for c in columns() if c.name in names), key=lambda c: names.index(c.name))


def small() -> list[Column]:
    """For the emulated GPU: PyTorch and JAX on the CPU."""
    names = ("mxlite-fp32", "eager-fp32", "jit-fp32", "remat-fp32", "mxlite-bf16")
    return [c for c in columns() if c.name in names]


def emulated(column: Column) -> Column:
    """The column on the emulated GPU, if it is ours, or on the CPU."""
    env = {**column.env, "MXLITE_BENCHMARK_EMULATED": "1", "JAX_PLATFORMS": "cpu"}
    return replace(column, env=env)


def within(nbytes: Mapping[str, int], precision: str = "tf32") -> list[Column]:
    """ResNet-1001: mxlite without a budget, with plenty and within some, PyTorch and JAX with and without a
    checkpoint around every block.
    """
    env = {"MXLITE_ALLOW_TF32": "1"}
    theirs = {"tf32": True, "channels_last": True}
    made = [
        Column("mxlite", "mxlite, no budget", "ours", OURS, {}, env, precision),
        Column("kept", "mxlite, all kept", "ours", OURS, {"memory_budget": PLENTY}, env, precision),
    ]
    for name, limit in nbytes.items():
        made.append(
            Column(name, f"mxlite within {name}", "ours", OURS, {"memory_budget": limit}, env, precision)
        )
    made.append(Column("eager", "PyTorch channels_last", "torch", TORCH, theirs, {}, precision))
    again = {**theirs, "checkpointed": True}
    made.append(Column("checkpointed", "PyTorch, checkpointed", "torch", TORCH, again, {}, precision))
    segments = {**theirs, "checkpointed": "segments"}
    made.append(Column("segments", "the same, sqrt(n) stretches", "torch", TORCH, segments, {}, precision))
    return made + jax(precision)
