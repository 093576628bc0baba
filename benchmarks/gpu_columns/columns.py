"""The columns of benchmarks/gpu.py: a framework, a precision and options, each in its own process.

A column's name consists of the framework, the precision and its options: `mxlite-bf16-whole`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from peers.column import Column

OURS, TORCH, JAX = (f"../gpu_columns/{side}_gpu.py" for side in ("mxlite", "torch", "jax"))
JAX_ENV = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
JAX_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "fp32": {"precision": "highest"},
    "tf32": {"precision": "tensorfloat32"},
    "bf16": {"precision": None, "dtype": "bfloat16"},
}
TORCH_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "fp32": {},
    "tf32": {"tf32": True},
    "bf16": {"autocast": True, "tf32": True},
}
PRECISIONS = {"fp32": "float32", "tf32": "float32 by TF32", "bf16": "bfloat16, float32 weights"}
PLENTY = 64 * 2**30
"""Budget in which a network keeps everything: without a budget a step recomputes cheap results."""
BUDGETS = {"7 GB": 7 * 10**9, "4 GB": 4 * 10**9}
"""Memory budgets of ResNet-1001."""
ROOM, MOST_EXTRA = 8 * 10**9, 0.15
"""Bytes for the largest batch of ResNet-50, and the fraction of a step that recomputation may add."""
TOLERANCE = {"fp32": 1e-3, "tf32": 2e-2, "bf16": 0.08}
"""Tolerances of losses, relative to PyTorch eager in float32."""


def columns() -> list[Column]:
    """All columns: mxlite's first in each precision."""
    made = []
    for p in PRECISIONS:
        made += [
            ours(p, "", "mxlite"),
            ours(p, "-whole", "mxlite, all memory", PLENTY),
            torch("eager", p, "PyTorch eager", channels_last=False),
            replace(torch("last", p, "channels_last"), only="images"),
            torch("compile", p, "max-autotune", compiled=True),
            *jax(p),
        ]
    return made


def ours(precision: str, name: str, title: str, budget: int | None = None) -> Column:
    """mxlite's step, within `budget` bytes if given."""
    options: dict[str, Any] = {} if budget is None else {"memory_budget": budget}
    if precision == "bf16":
        options["amp"] = "bfloat16"
    env = {"MXLITE_ALLOW_TF32": str(int(precision != "fp32"))}
    return Column(f"mxlite-{precision}{name}", title, "ours", OURS, options, env, precision)


def torch(name: str, precision: str, title: str, channels_last: bool = True, **more: Any) -> Column:
    """PyTorch's step."""
    options = {**TORCH_OPTIONS[precision], **({"channels_last": True} if channels_last else {}), **more}
    return Column(f"{name}-{precision}", title, "torch", TORCH, options, precision=precision)


def jax(precision: str) -> list[Column]:
    """JAX's compiled step, and the same with `jax.checkpoint` around every block."""
    options = JAX_OPTIONS[precision]
    again = {**options, "again": True}
    return [
        Column(f"jit-{precision}", "JAX jit", "jax", JAX, options, JAX_ENV, precision),
        Column(f"remat-{precision}", "JAX remat", "jax", JAX, again, JAX_ENV, precision),
    ]


QUICK = ("mxlite-bf16", "mxlite-bf16-whole", "eager-bf16", "last-bf16", "mxlite-tf32", "eager-tf32")
"""Columns in the precisions used in practice, most important first; nothing that takes long to compile."""

SMALL = ("mxlite-fp32", "mxlite-fp32-whole", "eager-fp32", "jit-fp32", "remat-fp32", "mxlite-bf16")
"""Columns for the emulated GPU: PyTorch and JAX run on the CPU."""


def picked(columns: Sequence[Column], names: Sequence[str]) -> list[Column]:
    """Columns matched by `names`, in the order of the names; "*" in a name matches anything."""
    found = [c for name in names for c in columns if fnmatchcase(c.name, name)]
    return list({c.name: c for c in found}.values())


def emulated(column: Column) -> Column:
    """The column on the emulated GPU if it is ours, otherwise on the CPU."""
    env = {**column.env, "MXLITE_BENCHMARK_EMULATED": "1", "JAX_PLATFORMS": "cpu"}
    return replace(column, env=env)


def checkpointed(precision: str) -> list[Column]:
    """PyTorch with a checkpoint around every block, and with the number of checkpoints of least memory."""
    return [
        torch("again", precision, "PyTorch, checkpointed", checkpointed=True),
        torch("segments", precision, "the same, sqrt(n) stretches", checkpointed="segments"),
    ]


def within(budgets: Mapping[str, int], precision: str) -> list[Column]:
    """Columns of ResNet-1001: mxlite without a budget, with an ample one and within some, PyTorch and JAX
    with and without a checkpoint around every block.
    """
    limits = [
        ours(precision, f"-{name.replace(' ', '')}", f"mxlite within {name}", limit)
        for name, limit in budgets.items()
    ]
    return [
        ours(precision, "", "mxlite, no budget"),
        ours(precision, "-whole", "mxlite, all kept", PLENTY),
        *limits,
        torch("last", precision, "PyTorch channels_last"),
        *checkpointed(precision),
        *jax(precision),
    ]


def batches(precision: str) -> list[Column]:
    """Columns for which the largest batch is searched."""
    return [
        ours(precision, "", "mxlite"),
        torch("last", precision, "PyTorch channels_last"),
        *checkpointed(precision),
    ]
