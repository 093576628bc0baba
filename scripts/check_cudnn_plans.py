#!/usr/bin/env python3
"""Build every kind of cuDNN plan that mxlite uses for an H200, on a machine without one.

    make cudnn-plans                       in .venv, with mxlite[gpu]: 1.3 GB to download
        scripts/check_cudnn_plans.py           where those are installed
        scripts/check_cudnn_plans.py norm      only plans whose names contain a word

Needs nvidia-cudnn-frontend, a cuDNN wheel and cuBLAS besides mxlite's requirements (but not CuPy), and gcc:
cuDNN looks up functions of the driver while it plans, so a stub library of that name is built in which most
of them return "no device". Prints one line for each plan, with its workspace in bytes and the seconds it
took; the exit status is 1 if one of them cannot be built. Takes about five minutes on one core.
"""

from __future__ import annotations

import glob
import json
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

H200 = {
    "name": "NVIDIA H200",
    "deviceName": "NVIDIA H200",
    "deviceVer": 900,
    "driverVer": 13000,
    "cudaDeviceId": 0,
    "pciDeviceId": 0x2335,
    "multiProcessorCount": 132,
    "smCountOrigin": 0,
    "warpSize": 32,
    "isTccDriver": 0,
    "supportCoopLaunch": 1,
    "maxGridSize": [2147483647, 65535, 65535],
    "maxBlockSize": [1024, 1024, 64],
    "maxThreadsPerBlock": 1024,
    "maxThreadsPerSM": 2048,
    "maxCtasPerSM": 32,
    "regsPerBlock": 65536,
    "maxRegistersPerSM": 65536,
    "maxSharedMemoryPerBlock": 49152,
    "maxSharedMemoryPerBlockOptin": 232448,
    "oversizedSharedMemoryPerBlock": 0,
    "reservedSharedMemoryPerBlock": 1024,
    "smClockRateKHz": 1980000,
    "memClockRateKHz": 3201000,
    "memoryBusWidth": 6144,
    "l2CacheSize": 62914560,
    "totalGlobalMem": 150110011392,
    "totalConstMem": 65536,
}
"""Public figures; varying the unknown ones (clocks, cache sizes) did not affect cuDNN's choices."""

STORES = (
    "cuLibraryLoadData cuLibraryLoadFromFile cuLibraryGetKernel cuKernelGetFunction cuModuleLoadData "
    "cuModuleLoadDataEx cuModuleGetFunction"
).split()
SUCCEEDS = "cuKernelSetAttribute cuFuncSetAttribute cuLibraryUnload cuModuleUnload".split()


def stub(folder: Path) -> None:
    """Build a libcuda.so.1 in `folder` with every function that cuDNN's libraries reference."""
    names: set[str] = set()
    for path in glob.glob(f"{sysconfig.get_path('purelib')}/nvidia/cudnn/lib/libcudnn*.so*"):
        found = re.findall(rb"(cu[A-Z][A-Za-z0-9]+(?:_v[0-9])?)\x00", Path(path).read_bytes())
        names |= {name.decode() for name in found}
    lines = []
    for name in sorted(names):
        body = "return 100;"  # no device
        if name in STORES:
            body = "*(void **)a = (void *)0x1000; return 0;"
        elif name == "cuKernelGetAttribute":
            body = "*(int *)a = 0; return 0;"
        elif name in SUCCEEDS:
            body = "return 0;"
        elif name in ("cuGetErrorName", "cuGetErrorString"):
            body = '*(const char **)b = "stub"; return 0;'
        lines.append(f"int {name}(void *a, void *b, void *c, void *d, void *e) {{ {body} }}\n")
    (folder / "stub.c").write_text("".join(lines))
    command = ["gcc", "-shared", "-fPIC", "-w", "-Wl,-soname,libcuda.so.1", "stub.c", "-o", "libcuda.so.1"]
    subprocess.run(command, cwd=folder, check=True)


def main() -> int:
    """Build the plans; see above."""
    if "MXLITE_CUDNN_STUB" not in os.environ:
        with tempfile.TemporaryDirectory() as folder:
            stub(Path(folder))
            site = sysconfig.get_path("purelib")
            paths = (folder, f"{site}/nvidia/cu13/lib", f"{site}/nvidia/cublas/lib")
            found = os.environ | {"LD_LIBRARY_PATH": ":".join(paths), "MXLITE_CUDNN_STUB": folder}
            return subprocess.run([sys.executable, *sys.argv], env=found, check=False).returncode

    from mxlite.backends.gpu.vendor import cudnn

    library = cudnn.library()
    if library is None:
        print("cuDNN, its front end or cuBLAS is not installed.")
        return 1
    properties = library.create_device_properties(json.dumps(H200))
    place = {"device_property": properties, "sm_version": 90, "sm_count": 132}
    session = cudnn.Session(library, lambda: 0, place)
    print(f"front end {library.__version__}, cuDNN {library.backend_version()}")
    words, begin = sys.argv[1:], time.perf_counter()
    count = missing = 0
    for name, make in patterns(session):
        if any(word not in name for word in words):
            continue
        start = time.perf_counter()
        plan = make()
        took = time.perf_counter() - start
        count, missing = count + 1, missing + (plan is None)
        print(f"{name:70} {'none' if plan is None else plan.workspace:>12} {took:8.3f} s", flush=True)
    print(f"{count} plans, {missing} of them cannot be built; {time.perf_counter() - begin:.0f} s")
    return 1 if missing or not count else 0


def patterns(session):
    """(name, function that plans it): every graph that kernels of mxlite request, by type and limit."""
    import numpy as np

    from mxlite.backends.gpu.convolution.by_cudnn import DATA, OUT, planned, Tail, WEIGHT
    from mxlite.core.dtype import as_dtype
    from mxlite.ops.nn.conv_kernels import Geometry

    def geometry(dtype, n, c, size, f, kernel, stride=1, pad=0, dilate=1, groups=1):
        rank = len(kernel)
        every = [(v,) * rank for v in (stride, dilate, pad)]
        out = tuple((s + 2 * pad - (k - 1) * dilate - 1) // stride + 1 for s, k in zip(size, kernel))
        return Geometry(n, c, size, f, out, kernel, *every, groups, np.dtype(as_dtype(dtype)))

    cases = {
        "3x3": (64, 64, (56, 56), 64, (3, 3), 1, 1),
        "stem 7x7": (64, 3, (224, 224), 64, (7, 7), 2, 3),
        "1x1": (64, 256, (14, 14), 1024, (1, 1)),
        "3x3 stride 2": (64, 128, (56, 56), 128, (3, 3), 2, 1),
        "odd channels": (4, 5, (9, 11), 7, (3, 3), 1, 1),
        "depthwise": (32, 64, (28, 28), 64, (3, 3), 1, 1, 1, 64),
        "groups": (32, 128, (28, 28), 128, (3, 3), 1, 1, 1, 32),
        "a row": (16, 64, (256,), 64, (5,), 1, 2),
        "a volume": (2, 16, (16, 16, 16), 32, (3, 3, 3), 1, 1),
    }
    # A gradient with a sum: not with strides, groups or few channels, and hardly any in true float32.
    adds = ("3x3", "a row", "a volume")
    for dtype in ("float32", "float16", "bfloat16"):
        for name, case in cases.items():
            g = geometry(dtype, *case)
            for kind in (OUT, DATA, WEIGHT):
                yield (
                    f"convolution {name}, {kind}, {dtype}",
                    lambda kind=kind, g=g: planned(session, kind, g, True, Tail()),
                )
            if name in ("1x1", "depthwise") or (name in adds and dtype != "float32"):
                yield (
                    f"convolution {name}, {DATA}, added, {dtype}",
                    lambda g=g: planned(session, DATA, g, True, Tail(addend=True)),
                )
        g = geometry(dtype, *cases["3x3"])
        tails = [Tail(bias=True), Tail(True, False, True), Tail(True, True, True)]
        for tail in tails[: 2 if dtype == "float32" else 3]:  # the last does not exist in true float32
            yield f"{tail}, {dtype}", lambda tail=tail, g=g: planned(session, OUT, g, True, tail)
    yield from norms(session)
    from mxlite.backends.gpu.kernels.cudnn.cudnn_attention import _within_limit, forward_plan
    from mxlite.ops.nn.attention import scaled_dot_product_attention as attention

    for dtype in ("float16", "bfloat16"):
        for heads, positions, causal in ((16, 1024, True), (16, 1024, False), (4, 77, True)):
            shape, few = (16, 16, positions, 64), (16, heads, positions, 64)
            shapes = {"query": shape, "key": few, "value": few, "out": shape, "log_sum": (*shape[:3], 1)}
            shapes |= {f"d_{n}": s for n, s in shapes.items()}
            a = attention.Attrs(causal=causal)
            what = f"{heads} heads of keys, {positions} positions{', causal' if causal else ''}, {dtype}"
            yield (
                f"attention, {what}",
                lambda a=a, s=shapes, dtype=dtype: forward_plan(session, a, s, dtype, True),
            )
            yield (
                f"its gradient, {what}",
                lambda a=a, s=shapes, dtype=dtype: _within_limit(session, a, s, dtype),
            )


def norms(session):
    """(name, function that plans it) for the norms of ResNet-50, 256 images."""
    import numpy as np

    from mxlite.backends.base import Request
    from mxlite.backends.gpu.kernels.cudnn.cudnn_batch_norm import Case
    from mxlite.core.dtype import as_dtype, float32
    from mxlite.ops.norm.norm_act import NormAct

    for dtype in ("float32", "float16", "bfloat16"):
        wide = np.dtype(as_dtype(dtype))
        for c, size in ((64, 112), (64, 56), (256, 56), (512, 28), (1024, 14), (2048, 7)):
            for relu, add in ((False, False), (True, False), (True, True)):
                a = NormAct.Attrs(fix_gamma=False, axis=-1, relu=relu, plus="array" * add)
                data = (256, size, size, c)
                shapes = (data, *[(c,)] * 4, *([data] if add else []))
                kinds = (wide, *[float32] * 4, *([wide] if add else []))
                r = Request(NormAct, a, shapes, (data, (c,), (c,)), wide, kinds)
                for gradient in (False, True):
                    case = Case(r, gradient)
                    if case.fits:
                        what = f"norm{' gradient' if gradient else ''}, {data}"
                        what += f"{', rectified' * relu}{', with a sum' * add}, {dtype}"
                        yield what, lambda case=case: case.plan(session)


if __name__ == "__main__":
    sys.exit(main())
