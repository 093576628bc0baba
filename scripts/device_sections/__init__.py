"""The sections of device_check.py: contents, order and time limits."""

from __future__ import annotations

import argparse
import faulthandler
import importlib
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Section:
    """A group of checks: `run(checks)` of `module`. `seconds`: limit; `least`: not started with less.

    `shards`: number of processes that share its work. `tuning`: seconds for timing kernels in each process,
    limited because cuDNN spends seconds on compiling candidates.
    """

    name: str
    title: str
    module: str
    seconds: float
    least: float = 5
    shards: int = 1
    tuning: int = 10
    env: Mapping[str, str] = field(default_factory=dict)


ONE_THREAD = {"OMP_NUM_THREADS": "1"}  # on the host, in each of many processes

SECTIONS = (
    Section("about", "Machine and versions", "about", 40),
    Section("faults", "What goes wrong, and what is said", "faults", 40),
    Section("programs", "Programs: one graph, the CPU's numbers, the same bits", "programs", 100),
    Section("kernels", "Operators against the reference", "kernels", 100, shards=12, env=ONE_THREAD),
    Section("precision", "float32 means float32", "precision", 40, env={"MXLITE_ALLOW_TF32": "0"}),
    Section("tf32", "TF32 where it is allowed", "precision", 40, env={"MXLITE_ALLOW_TF32": "1"}),
    Section("ways", "Every way to compute a convolution or a product", "ways", 60),
    Section("generated", "Printed loop nests beside kernels written by hand", "generated", 40),
    Section("memory", "Planned bytes and real ones", "memory", 40),
    Section("budgets", "The same gradients in any budget", "budgets", 50),
    Section("races", "Arrays, copies and threads at random", "races", 25),
    Section("exchange", "Memory shared with CuPy and PyTorch", "exchange", 30),
    Section("ranks", "Ranks on several GPUs", "ranks", 90),
    Section("benchmark", "benchmarks/gpu.py, the quick part", "benchmark", 240, least=30, tuning=30),
)


def run_section(args: argparse.Namespace) -> int:
    """Run one section in this process, and write its rows to a file."""
    faulthandler.register(signal.SIGUSR1, all_threads=True)  # to show where it hangs
    from .checks import Checks

    root = Path(__file__).resolve().parents[2]
    sys.path[:0] = [str(root)]
    section = next(s for s in SECTIONS if s.name == args.section)
    module = importlib.import_module(f".{section.module}", __package__)
    shard, shards = map(int, args.shard.split("/"))
    checks = Checks(args.rows, args.out, args.small, args.emulated, args.seconds, shard, shards, args.after)
    with checks.device():
        module.run(checks)
    return 0
