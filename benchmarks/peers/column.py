"""The columns of the benchmark: a framework with its options, each in its own process."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TYPE_CHECKING

from harness import mxnet_python, Worker
from networks.suite import Net

import mxlite as mx

if TYPE_CHECKING:  # it imports PyTorch, which may be missing
    from networks.network import Case

HERE = Path(__file__).resolve().parent
REFERENCE = {"MXLITE_KERNELS": "reference"}


@dataclass(frozen=True)
class Column:
    """`options` are passed to the peer's `build`. `side`: ours, torch, jax or mxnet; `precision`: fp32, tf32,
    bf16, or narrow, which is bf16 without float32 parameters.

    `only`: "images", for a layout that does not matter for other data, or "inference". `alone`: too slow for
    rounds; only one step is measured, afterwards. `share`: ours within that fraction of PyTorch's least peak;
    measured when that is known, in separate rounds with the best of PyTorch.
    """

    name: str
    title: str
    side: str
    script: str
    options: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    precision: str = "fp32"
    only: str = ""
    alone: bool = False
    share: float = 0.0

    @property
    def in_rounds(self) -> bool:
        """True if it takes turns with the others of its precision."""
        return not self.alone and not self.share

    def fits(self, net: Net | Case) -> bool:
        wanted = {"": True, "images": net.is_image, "inference": not net.train}[self.only]
        return wanted and (not self.share or net.train)

    def options_for(self, net: Net | Case) -> dict[str, Any]:
        """Options for `net`: `channels_last` only for networks for images."""
        return {k: v for k, v in self.options.items() if k != "channels_last" or net.is_image}

    def missing(self) -> str:
        """Reason why it cannot be measured here; empty if it can."""
        if self.side == "mxnet" and mxnet_python() is None:
            return "MXLITE_MXNET_PYTHON does not name a Python that has MXNet"
        if self.side == "torch" and importlib.util.find_spec("torch") is None:
            return "PyTorch is not installed"
        if self.side == "jax" and importlib.util.find_spec("jax") is None:
            return "JAX is not installed"
        if "amp" in self.options and "amp" not in inspect.signature(mx.mod.Module.__init__).parameters:
            return "this mxlite has no mixed precision"
        return ""

    def start(self, threads: int) -> Worker:
        """Start its process, with nothing loaded yet."""
        python = mxnet_python() if self.side == "mxnet" else sys.executable
        assert python is not None
        number = str(threads)
        # Ours limits its BLAS and its OpenMP separately, unless OMP_NUM_THREADS is set.
        env = {"MXLITE_NUM_THREADS": number} if self.side == "ours" else {"OMP_NUM_THREADS": number}
        return Worker(python, str(HERE / self.script), env={**env, **self.env})


OURS, TORCH = "mxlite_peer.py", "torch_peer.py"
LAST = {"channels_last": True}

SHARE = 0.6
"""Fraction of PyTorch's least peak within which a step should be as fast as possible."""
MIXED = {"amp": "bfloat16"}

COLUMNS = [
    Column("mxlite", "mxlite", "ours", OURS),
    Column("eager", "PyTorch eager", "torch", TORCH),
    Column("channels_last", "channels_last", "torch", TORCH, LAST, only="images"),
    Column("compile", "compile", "torch", TORCH, {**LAST, "compiled": True}),
    Column("mxnet", "MXNet 1.9.1", "mxnet", "mxnet_peer.py"),
    Column("within", f"mxlite within {SHARE:g}", "ours", OURS, share=SHARE),
    Column("mxlite-bf16", "mxlite bf16", "ours", OURS, MIXED, precision="bf16"),
    Column("autocast", "PyTorch bf16", "torch", TORCH, {**LAST, "autocast": True}, precision="bf16"),
    Column(
        "within-bf16", f"mxlite bf16 within {SHARE:g}", "ours", OURS, MIXED, precision="bf16", share=SHARE
    ),
    Column(
        "mxlite-narrow",
        "mxlite bf16 parameters",
        "ours",
        OURS,
        {**MIXED, "narrow_params": True},
        precision="narrow",
        only="inference",
    ),
    Column(
        "narrow",
        "PyTorch bf16 parameters",
        "torch",
        TORCH,
        {**LAST, "narrow_params": True},
        precision="narrow",
        only="inference",
    ),
    Column("numpy", "numpy only", "ours", OURS, env=REFERENCE, alone=True),
]


def chosen(names: list[str] | None) -> list[Column]:
    """The columns with these names, and those of ours they are compared with; all of them for None.

    mxlite's first column is always included; mxlite's in bf16 if another in bf16 is requested.
    """
    known = {c.name: c for c in COLUMNS}
    for name in names or ():
        if name not in known:
            raise SystemExit(f"There is no column {name!r}; there are {', '.join(known)}.")
    if names is None:
        return list(COLUMNS)
    wanted = {"mxlite", *names}
    if any(known[n].precision == "bf16" for n in names):
        wanted.add("mxlite-bf16")
    if any(known[n].precision == "narrow" for n in names):
        wanted.add("mxlite-narrow")
    return [c for c in COLUMNS if c.name in wanted]
