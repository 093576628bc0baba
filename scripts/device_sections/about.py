"""Machine, versions, properties of the device, including those that cuDNN's deviceless plans need."""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import platform
import sys
from pathlib import Path
from typing import Any

import mxlite as mx
from mxlite.backends import backend_of
from mxlite.backends.gpu.compiler import nvrtc
from mxlite.backends.gpu.compiler.source import KernelSource

from .asking import ask
from .checks import Checks, Skip

PACKAGES = (
    "numpy",
    "ml_dtypes",
    "cupy-cuda13x",
    "cupy-cuda12x",
    "nvidia-cuda-nvrtc",
    "nvidia-cublas",
    "nvidia-cuda-runtime",
    "nvidia-cudnn-cu13",
    "nvidia-cudnn-frontend",
    "torch",
    "triton",
    "jax",
)


def run(checks: Checks) -> None:
    with checks.check("versions") as found:
        found["mxlite"], found["python"] = mx.__version__, platform.python_version()
        found["machine"] = platform.platform()
        for name in PACKAGES:
            try:
                found[name] = importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                found[name] = "absent"
    with checks.check("NVRTC") as found:
        if not nvrtc.available():
            raise Skip("it is not installed")
        found["version"], found["architectures"] = nvrtc.version(), nvrtc.architectures()
        made, _ = nvrtc.compile(KernelSource('extern "C" __global__ void nothing() {}'), "sm_90")
        found["bytes of a kernel"] = len(made)  # shows that the compiler finds its headers
    with checks.check("the device opens") as found:
        device = backend_of(mx.gpu(0)).device
        found["name"], found["architecture"] = device.name, device.architecture
        found["multiprocessors"], found["shared bytes"] = device.multiprocessors, device.shared_bytes
        found["free, total"] = device.memory()
    if not checks.emulated:
        cuda(checks)
    with checks.check("doctor") as found:
        root = Path(mx.__path__[0]).parent
        asked = ask([sys.executable, "-m", "mxlite", "doctor"], max(5, checks.left), root)
        (checks.out / "doctor.txt").write_text(asked.out + asked.err)
        assert asked.code == 0, asked.end
        found["file"] = "doctor.txt"


def cuda(checks: Checks) -> None:
    """Versions and properties reported by CUDA."""
    with checks.check("CUDA's versions and all properties") as found:
        from cupy_backends.cuda.api import runtime

        found["driver"], found["runtime"] = runtime.driverGetVersion(), runtime.runtimeGetVersion()
        found["properties"] = {k: _plain(v) for k, v in runtime.getDeviceProperties(0).items()}
        text = json.dumps(found["properties"], indent=1)
        (checks.out / "device_properties.json").write_text(text + "\n")
    with checks.check("properties for cuDNN's deviceless plans") as found:
        try:
            cudnn = importlib.import_module("cudnn")
        except ImportError as error:
            raise Skip(str(error)) from None
        found["cuDNN"] = cudnn.backend_version()
        text = cudnn.create_device_properties(0).serialize()
        found["properties"] = json.loads(text if isinstance(text, str) else bytes(text))
        written = json.dumps(found["properties"], indent=1)
        (checks.out / "cudnn_device_properties.json").write_text(written + "\n")
    with checks.check("nvidia-smi") as found:
        found["says"] = ask(["nvidia-smi"], 10).out[-3000:]


def _plain(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) and not value.isascii() else str(value)
