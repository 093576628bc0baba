"""`mxlite doctor`: what is installed, and which kernels run here."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
from typing import Any

import numpy as np

from .. import models
from ..backends import backend_of
from ..backends.cpu import kernels as cpu_kernels
from ..backends.cpu.compiled.codegen.emitter import width
from ..backends.cpu.onednn import find
from ..backends.cpu.runtime.threads import num_threads
from ..core import config, cpu
from ..core.device import Context
from ..core.disk import kept
from ..core.errors import DeviceError, MXLiteError
from ..core.machine_code import native
from ..core.process.cores import available_cores
from ..core.table import table
from ..ops import ALL
from . import doctor_gpu
from .words import show

REQUIRED = ("numpy", "ml_dtypes", "tqdm")
WHEELS = "onednn-cpu-gomp on Linux, onednn-cpu-vcomp on Windows, both for x86-64 processors"

EXTRAS = {
    "matplotlib": ("viz", "plan --image, frontier --svg, --png"),
    "graphviz": ("viz", "plot_network"),
    "onnx": ("onnx", "ONNX files"),
    "pillow": ("image", "mx.image, ImageRecordIter"),
    "cupy-cuda13x": ("gpu", "GPUs with a driver of CUDA 13"),
    "cupy-cuda12x": ("gpu12", "GPUs with a driver of CUDA 12"),
    "scikit-learn": ("examples", "the digits data set"),
    "mpi4py": ("mpi", "ranks that train together: mx.dist, kvstore='dist_sync'"),
    "mpich": ("mpi", "the MPI that mpi4py calls, and its mpiexec"),
    "impi-rt": ("mpi", "the same on Windows"),
    "safetensors": ("safetensors", "mx.formats.load_safetensors, save_safetensors"),
    "xgboost-cpu": ("tune", "the cost model of mxlite tune"),
    "ortools": ("exact", "proofs of the planner's tests"),
}
"""Package -> its extra and its purpose."""


def add(commands: Any) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(
        "doctor", help="versions, engine, cores, backends, extras"
    )
    return command


def run(arguments: argparse.Namespace) -> int:
    from .. import __version__

    rows = [
        ("mxlite", __version__),
        ("python", f"{platform.python_version()} ({platform.python_implementation()})"),
        ("machine", f"{platform.system()} {platform.machine()}, {os.cpu_count() or 'unknown'} cores"),
        ("cores for this process", available_cores()),
        *((name, _version(name)) for name in REQUIRED),
        ("BLAS of numpy", _blas()),
        ("engine", _setting(lambda: f"{config.engine_kind()}, {config.cpu_workers()} workers")),
        ("threads of one kernel", _setting(num_threads)),
        ("BLAS threads", _setting(config.blas_threads) or "as OPENBLAS_NUM_THREADS or OMP_NUM_THREADS say"),
        ("plans judged before they run",
         _setting(lambda: "yes" if config.check_plan() else "no; MXLITE_CHECK_PLAN=1 does")),
        ("passes checked at bind",
         _setting(lambda: "yes" if config.check_rewrites() else "no; MXLITE_CHECK_REWRITES=1 does")),
        ("guard bytes", "yes" if config.guard() else "no; MXLITE_GUARD=1 puts them around arrays"),
        *((f"backend of {device}", _backend(device)) for device in (cpu(), Context("gpu"))),
        ("cache folder", _cache()),
        ("operators", len(ALL)),
        ("models of the zoo", len(models.list_models())),
    ]  # fmt: skip
    show(table(("what", "found"), rows, left=(0, 1)))
    show("\n" + table(("kernels", "found"), _kernels(), left=(0, 1)))
    show("\n" + table(("GPU", "found"), doctor_gpu.rows(), left=(0, 1)))
    extras = [(name, extra, _version(name), use) for name, (extra, use) in EXTRAS.items()]
    show(
        "\n" + table(("extra package", "pip install mxlite[...]", "found", "for"), extras, left=(0, 1, 2, 3))
    )
    return 0


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "absent"


def _blas() -> str:
    try:
        blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
        return f"{blas['name']} {blas.get('version', '')}".strip()
    except (KeyError, TypeError):
        return "unknown"


def _backend(device: Context) -> str:
    try:
        return backend_of(device).name
    except DeviceError:
        return "none"


def _setting(ask: Any) -> object:
    """The value of a setting, or what is wrong with it: the doctor reports errors and goes on."""
    try:
        return ask()
    except MXLiteError as error:
        return f"ERROR: {error}"


def _cache() -> str:
    """The folder of cached files, and why it cannot be written if so."""
    root = config.cache_dir()
    if root is None:
        return "none: MXLITE_CACHE_DIR=off, or no home directory"
    fault = kept.fault()
    return root if fault is None else f"{root}: NOT USED: {fault}"


def _kernels() -> list[tuple[str, object]]:
    """The faster kernels that are available, and what would have to be installed for more."""
    try:
        kinds = config.kernel_kinds()
    except MXLiteError as error:
        return [("MXLITE_KERNELS", f"ERROR: {error}")]
    rows: list[tuple[str, object]] = [
        ("kinds that may be used", ", ".join(sorted(kinds)) or "none: MXLITE_KERNELS=reference")
    ]
    usable: set[str] = set()
    try:
        found = find()
    except MXLiteError as error:
        rows.append(("oneDNN", f"ERROR: {error}"))
    else:
        if (lib := found.library) is not None:
            version = ".".join(map(str, lib.version))
            rows += [
                ("oneDNN", f"{version}, {lib.threading} threads"),
                ("  its file", lib.path),
                ("  instructions in use", lib.instructions),
                ("  bfloat16 multiplied by", lib.bf16_by),
            ]
            usable.add("onednn")
        else:
            rows.append(("oneDNN", "refused" if found.troubles else f"absent (wheels: {WHEELS})"))
        rows += [("  refused", trouble) for trouble in found.troubles]
        if found.troubles and lib is None:
            rows.append(("  what would help", _remedy()))
    if (compiler := _compiler()) is not None:
        rows.append(("LLVM", compiler))
        usable |= set() if compiler.startswith("ERROR") else {"compiled"}
    else:
        rows.append(("LLVM", "absent; pip install 'llvmlite>=0.50' brings generated kernels"))
    tuned: dict[str, set[Any]] = {}
    for op, listed in cpu_kernels.table().items():
        for row in listed:
            for kind in row.kinds & usable & kinds:
                tuned.setdefault(kind, set()).add(op.forward_op or op)
    rows += [(f"operators with {kind} kernels", len(ops)) for kind, ops in sorted(tuned.items())]
    faster = {op for ops in tuned.values() for op in ops} & set(ALL)
    rows.append(("operators on the reference path alone", f"{len(ALL) - len(faster)} of {len(ALL)}"))
    return rows


def _remedy() -> str:
    if config.dnnl_lib():
        return "unset MXLITE_DNNL_LIB, or let it name a oneDNN of version 3 that is built for OpenMP"
    return f"pip install one of the wheels that mxlite asks for: {WHEELS}"


def _compiler() -> str | None:
    """LLVM's version and the processor it compiles for; None if llvmlite is absent or broken."""
    try:
        at = native.target()
    except MXLiteError as error:
        return f"ERROR: {error}"
    except (ImportError, OSError, RuntimeError):
        return None
    return (
        f"{at.llvm} (llvmlite {_version('llvmlite')}), for {at.cpu}, {width()} float32 numbers in a register"
    )
