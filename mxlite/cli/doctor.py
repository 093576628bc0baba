"""`mxlite doctor`: what is installed, and what serves here."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
from typing import Any

import numpy as np

from .. import models
from ..backends import backend_of
from ..core import config, cpu
from ..core.device import Context
from ..core.errors import DeviceError
from ..ops import ALL
from .table import table

REQUIRED = ("numpy", "ml_dtypes", "tqdm")

EXTRAS = {
    "matplotlib": ("viz", "frontier --svg, --png"),
    "graphviz": ("viz", "plot_network"),
    "onnx": ("onnx", "ONNX files"),
    "scikit-learn": ("examples", "the digits data set"),
}
"""Package -> extra, what for."""


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
        *((name, _version(name)) for name in REQUIRED),
        ("BLAS of numpy", _blas()),
        ("engine", f"{config.engine_kind()}, {config.cpu_workers()} workers"),
        ("BLAS threads", config.blas_threads() or "as OPENBLAS_NUM_THREADS or OMP_NUM_THREADS say"),
        ("plans judged before they run", "yes" if config.check_plan() else "no; MXLITE_CHECK_PLAN=1 does"),
        *((f"backend of {device}", _backend(device)) for device in (cpu(), Context("gpu"))),
        ("operators", len(ALL)),
        ("models of the zoo", len(models.list_models())),
    ]  # fmt: skip
    print(table(("what", "found"), rows, left=(0, 1)))
    extras = [(name, extra, _version(name), use) for name, (extra, use) in EXTRAS.items()]
    print(
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
        backend = backend_of(device)
    except DeviceError:
        return "none"
    faster = len(backend.kernels)
    return f"{backend.name}: numpy reference kernels" + (
        f", {faster} operators with faster ones" if faster else ""
    )
