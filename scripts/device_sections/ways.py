"""All candidates for convolutions and products against float64; cuDNN's batch normalization against ours.

Each candidate that is offered for a case is run twice, then captured and replayed: the bits must be equal,
and close to numpy's result in float64. So tensor cores, cuDNN's engines and cuBLASLt's algorithms are all
tested, and whether they can be captured. A candidate that faults takes the GPU from its process; a new
process continues after its case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

import mxlite as mx
from mxlite.backends import backend_of
from mxlite.backends.base import Request
from mxlite.backends.gpu.convolution import choice
from mxlite.backends.gpu.convolution.by_cudnn import DATA, OUT, Tail, WEIGHT
from mxlite.backends.gpu.kernels.cudnn.cudnn_batch_norm import Case, Norm, WIDE
from mxlite.backends.gpu.kernels.norm.batch_norm import Kernels
from mxlite.backends.gpu.matrix import blas_gemm, gemm
from mxlite.backends.gpu.matrix.blas_gemm import Addresses
from mxlite.backends.gpu.matrix.gemm import Product
from mxlite.backends.gpu.runtime import scratch
from mxlite.backends.gpu.runtime.device import Run
from mxlite.backends.gpu.vendor import cublaslt
from mxlite.backends.gpu.vendor.cudnn import Session, session, why_none
from mxlite.core import config
from mxlite.core.dtype import as_dtype, float32
from mxlite.memplan.problem import ALIGN
from mxlite.ops.nn.conv_kernels import Geometry
from mxlite.ops.norm.norm_act import NormAct

from .checks import Checks, Skip

DTYPES = ("float32", "float16", "bfloat16")
ALLOWED = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 1.6e-2}
"""Tolerances relative to the largest result: roundings of a long sum, or one of the result."""
TF32 = 3e-3

CONVOLUTIONS: dict[str, tuple[Any, ...]] = {  # n, c, size, f, kernel, stride, pad, dilate, groups
    "3x3": (4, 64, (14, 14), 64, (3, 3), 1, 1, 1, 1),
    "1x1": (4, 64, (14, 14), 128, (1, 1), 1, 0, 1, 1),
    "7x7 of 3 channels, stride 2": (2, 3, (45, 45), 64, (7, 7), 2, 3, 1, 1),
    "3x3, stride 2, odd": (3, 24, (17, 13), 40, (3, 3), 2, 1, 1, 1),
    "dilated": (2, 16, (15, 15), 32, (3, 3), 1, 2, 2, 1),
    "groups": (2, 64, (9, 9), 64, (3, 3), 1, 1, 1, 4),
    "depthwise": (2, 64, (15, 15), 64, (3, 3), 1, 1, 1, 64),
    "a row": (4, 32, (100,), 32, (5,), 1, 2, 1, 1),
}
NORMS = {"alone": {}, "rectified": {"relu": True}, "with a sum": {"relu": True, "plus": "array"}}
SMALL = ("1x1", "depthwise", "a vector")  # cases of an emulated run

PRODUCTS = {
    "plain": Product(256, 384, 512, ""),
    "transposed": Product(192, 256, 320, "", trans_a=True, trans_b=True),
    "odd": Product(77, 131, 65, "", trans_b=True),
    "bias and rectifier": Product(128, 256, 320, "", trans_b=True, bias="columns", activation="relu"),
    "bias and GELU": Product(128, 256, 320, "", trans_b=True, bias="columns", activation="gelu_tanh"),
    "slope of a rectifier": Product(128, 256, 320, "", slope="relu"),
    "slope of GELU": Product(128, 256, 320, "", slope="gelu_tanh"),
    "sums of rows": Product(128, 256, 640, "", trans_a=True, row_sums=True),
    "batches": Product(64, 96, 80, "", trans_b=True, batch=(1, 12), strides_a=(0, 64 * 80),
                       strides_b=(0, 96 * 80), strides_c=(0, 64 * 96), alpha=0.125),
    "a vector": Product(1, 1000, 512, "", trans_b=True),
}  # fmt: skip


def run(checks: Checks) -> None:
    device = backend_of(mx.gpu(0)).device
    if not checks.emulated and not checks.after:
        with checks.check("cuBLASLt") as found:
            if device.blas is None:
                raise Skip("it is not installed: products run on mxlite's own kernels.")
            found["version"], found["file"] = device.blas.version, device.blas.path
            with device.active():
                device.blas.handle(device.index)
        with checks.check("cuDNN") as found:
            there = session(device)
            if there is None:
                raise Skip(f"its ways are not checked: {why_none(device)}")
            found["version"] = there.cudnn.backend_version()
    dtypes = DTYPES[:1] if checks.emulated else DTYPES
    for dtype in dtypes:
        for name, case in CONVOLUTIONS.items():
            if checks.emulated and name not in SMALL:
                continue
            g = geometry(dtype, *((1, 8, *case[2:3], 8) if checks.emulated else case[:4]), *case[4:8],
                         groups=8 if checks.emulated and case[8] > 1 else case[8])  # fmt: skip
            for kind in (OUT, DATA, WEIGHT):
                tails = [Tail()]
                if kind == DATA:  # a data gradient may be accumulated
                    tails += [Tail(addend=True)]
                elif kind == OUT and name == "3x3":
                    tails += [Tail(True, False, True), Tail(True, True, True)]
                for tail in tails:
                    what = f"convolution {name}, {kind}{'' if tail == Tail() else f', {tail}'}, {dtype}"
                    if checks.is_done(what):
                        continue
                    with checks.check(what) as found:
                        checks.need(3)
                        convolution(device, kind, g, tail, found)
                    checks.go_on(device, what)
        for name, p in PRODUCTS.items():
            what = f"product, {name}, {dtype}"
            if (checks.emulated and name not in SMALL) or checks.is_done(what):
                continue
            with checks.check(what) as found:
                checks.need(2)
                multiplication(device, replace(p, dtype=dtype), found)
            checks.go_on(device, what)
        there = None if checks.emulated else session(device)
        for name, more in NORMS.items() if there is not None else ():
            for gradient in (False, True):
                what = f"batch norm {name}{', gradient' if gradient else ''}, {dtype}"
                case = norm_case(dtype, (8, 7, 9, 64), gradient, **more)
                if not case.fits or checks.is_done(what):
                    continue
                with checks.check(what) as found:
                    checks.need(5)
                    norm(device, there, case, found)
                checks.go_on(device, what)


def geometry(
    dtype: str,
    n: int,
    c: int,
    size: Sequence[int],
    f: int,
    kernel: Sequence[int],
    stride: int,
    pad: int,
    dilate: int,
    groups: int,
) -> Geometry:
    out = tuple((s + 2 * pad - (k - 1) * dilate - 1) // stride + 1 for s, k in zip(size, kernel))
    every = [(v,) * len(kernel) for v in (stride, dilate, pad)]
    return Geometry(n, c, tuple(size), f, out, tuple(kernel), *every, groups, np.dtype(as_dtype(dtype)))


def allowed(dtype: str) -> float:
    return TF32 if dtype == "float32" and config.allow_tf32() else ALLOWED[dtype]


def convolution(device: Any, kind: str, g: Geometry, tail: Tail, found: dict[str, Any]) -> None:
    """Check one direction with all candidates, channels last. The addend lies where the result is written."""
    rng, last = np.random.default_rng(0), (0, *range(2, len(g.size) + 2), 1)
    first = (0, len(g.size) + 1, *range(1, len(g.size) + 1))
    data, out = (g.n, g.c, *g.size), (g.n, g.f, *g.out)
    weight = (g.f, g.c // g.groups, *g.kernel)
    shapes = {OUT: (data, weight, out), DATA: (out, weight, data), WEIGHT: (data, out, weight)}[kind]
    given = [(rng.standard_normal(s) / 4).astype(g.dtype) for s in shapes[:2]]
    bias = (rng.standard_normal(g.f)).astype(g.dtype) if tail.bias else None
    addend = rng.standard_normal(shapes[2]).astype(g.dtype) if tail.addend else None
    want = reference(kind, g, *(x.astype(np.float64) for x in given))
    if bias is not None:
        want = want + bias.astype(np.float64).reshape(-1, *(1,) * len(g.size))
    if addend is not None:
        want = want + addend.astype(np.float64)
    want = np.maximum(want, 0) if tail.relu else want

    def turned(x: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(x.transpose(last))

    there = [
        sent(device, x if kind != WEIGHT and i == 1 else turned(x)).reshape(x.shape)
        for i, x in enumerate(given)
    ]
    more: dict[str, Any] = {} if bias is None else {"bias": sent(device, bias)}
    more |= {"relu": True} if tail.relu else {}
    ways = choice.ways(device, kind, g, True, tail, config.allow_tf32())
    assert ways, "there is no way"
    each = Each(str(g.dtype), found)
    for way in ways:
        with each.way(f"{way.name}, {way.nbytes} bytes") as name:
            made = placed(device, prod(shapes[2]) * g.dtype.itemsize).view(g.dtype).reshape(shapes[2])
            work = placed(device, way.nbytes, scratch.ALIGN)
            plus = {} if addend is None else {"addend": made}
            call = way.connect(*there, made, work, **more, **plus)
            result = thrice(device, call, made, None if addend is None else turned(addend))
            if kind != WEIGHT:
                result = result.reshape(tuple(shapes[2][i] for i in last)).transpose(first)
            each.compare(name, result, want)
    each.end()


def reference(kind: str, g: Geometry, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Reference in float64, tap by tap. a, b: data and weight, output gradient and weight, or data and it."""
    c, f = g.c // g.groups, g.f // g.groups
    weight = (g.f, c, *g.kernel)
    padded = np.zeros((g.n, g.c, *(s + 2 * p for s, p in zip(g.size, g.pad))))
    inner = (..., *(slice(p, p + s) for s, p in zip(g.size, g.pad)))
    made = np.zeros({OUT: (g.n, g.f, *g.out), DATA: padded.shape, WEIGHT: weight}[kind])
    if kind != DATA:
        padded[inner] = a
    for tap in np.ndindex(*g.kernel):
        begin = [t * d for t, d in zip(tap, g.dilate)]
        cut = tuple(slice(o, o + (n - 1) * s + 1, s) for o, n, s in zip(begin, g.out, g.stride))
        for i in range(g.groups):
            x, y = slice(i * c, (i + 1) * c), slice(i * f, (i + 1) * f)
            if kind == OUT:
                made[:, y] += np.einsum("nc...,fc->nf...", padded[(slice(None), x, *cut)], b[(y, ..., *tap)])
            elif kind == DATA:
                made[(slice(None), x, *cut)] += np.einsum("nf...,fc->nc...", a[:, y], b[(y, ..., *tap)])
            else:
                seen = padded[(slice(None), x, *cut)].reshape(g.n, c, -1)
                made[(y, ..., *tap)] = np.einsum("nfp,ncp->fc", b[:, y].reshape(g.n, f, -1), seen)
    return made[inner] if kind == DATA else made


def multiplication(device: Any, p: Product, found: dict[str, Any]) -> None:
    """Check a product with every algorithm that cuBLASLt offers, and with our own kernel."""
    rng, dtype, count = np.random.default_rng(0), np.dtype(as_dtype(p.dtype)), p.batch[1]
    a = rng.standard_normal((count, *((p.k, p.m) if p.trans_a else (p.m, p.k)))).astype(dtype)
    b = rng.standard_normal((count, *((p.n, p.k) if p.trans_b else (p.k, p.n)))).astype(dtype)
    bias, known = rng.standard_normal(p.n).astype(dtype), rng.standard_normal((p.m, p.n)).astype(dtype)
    x, y = (v.astype(np.float64) for v in (a, b))
    x, y = x.swapaxes(1, 2) if p.trans_a else x, y.swapaxes(1, 2) if p.trans_b else y
    want = p.alpha * (x @ y)
    want = want + bias.astype(np.float64) if p.bias else want
    if p.activation == "relu":
        want = np.maximum(want, 0)
    elif p.activation:
        want = 0.5 * want * (1 + np.tanh(np.sqrt(2 / np.pi) * (want + 0.044715 * want**3)))
    if p.slope:
        z = known.astype(np.float64)
        t = np.tanh(np.sqrt(2 / np.pi) * (z + 0.044715 * z**3))
        steep = 0.5 * z * (1 - t * t) * np.sqrt(2 / np.pi) * (1 + 3 * 0.044715 * z * z)
        want = want * ((z > 0) if p.slope == "relu" else 0.5 * (1 + t) + steep)
    arrays = [sent(device, v) for v in (a, b, bias, known)]
    c, sums = (placed(device, n * dtype.itemsize).view(dtype) for n in (want.size, p.m))
    plans = blas_gemm.plans(device, p)
    room = max([gemm._own_workspace(p), *(plan.choice.workspace for plan in plans)])
    work = placed(device, room, scratch.ALIGN)
    at = [device.address(v) for v in (*arrays, c, sums, work)]
    where = Addresses(at[0], at[1], at[4], at[2], at[3], at[5])
    ways: list[tuple[str, Callable[[], Run | None]]] = [
        (f"cublasLt {i}", lambda plan=plan: gemm._by_library(device, p, plan, where, at[6], room))
        for i, plan in enumerate(plans)
    ]
    ways.append(("ours", lambda: gemm._own(device, p, where, at[6])))
    each = Each(p.dtype, found)
    if device.blas is not None:
        with each.way("cublasLt offers") as name, device.active():
            form = blas_gemm._form(blas_gemm.merged(p), fused=not p.slope == "relu")
            offered = cublaslt.choices(device.blas, device.blas.handle(device.index), form, 32 << 20)
            found[name] = len(offered)
            assert offered, "nothing"
    for name, connect in ways:
        with each.way(name):
            call = connect()
            assert call is not None, "it takes no aligned addresses"
            each.compare(name, thrice(device, call, c).reshape(want.shape), want)
            if p.row_sums:
                each.compare(f"{name}, sums", fetched(device, sums), x[0].sum(1))
    each.end()


def norm_case(dtype: str, shape: tuple[int, ...], gradient: bool, **more: Any) -> Case:
    """A training batch normalization with channels last, or its gradient."""
    wide, narrow, add = np.dtype(as_dtype(dtype)), shape[-1:], "plus" in more
    a = NormAct.Attrs(fix_gamma=False, axis=-1, **more)
    shapes = (shape, *[narrow] * 4, *([shape] if add else []))
    kinds = (wide, *[float32] * 4, *([wide] if add else []))
    return Case(Request(NormAct, a, shapes, (shape, narrow, narrow), wide, kinds), gradient)


def norm(device: Any, cudnn: Session | None, case: Case, found: dict[str, Any]) -> None:
    """Compare all of cuDNN's norm plans with our kernels on the same arrays."""
    assert cudnn is not None and case.plan(cudnn) is not None, "cuDNN has no plan"
    rng, arrays = np.random.default_rng(0), {}
    for name in {*case.reads, *case.makes, "beta", "old_mean", "old_var"} - {"new_mean", "new_var"}:
        shape, dtype = (case.shape, case.dtype) if name in WIDE else (case.shape[-1:], float32)
        values = rng.uniform(0.5, 1.5, shape) if "var" in name else rng.standard_normal(shape)
        arrays[name] = sent(device, values.astype(dtype))
    both = Norm(device, cudnn, case, Kernels(device, case.a, case.shape, str(case.dtype)))
    work = placed(device, both.workspace)
    made = [n for n in case.makes if n in arrays]
    with device.active():
        both.by_own(arrays, work, (arrays["old_mean"], arrays["old_var"]))()
        want = {n: fetched(device, arrays[n]).astype(np.float64) for n in made}
        call = both.by_cudnn(arrays, work)
        for n in made:
            device.fill_bytes(arrays[n], 0xFF)
    assert call is not None, "it takes no aligned addresses"
    each = Each(str(case.dtype), found)
    with each.way("cudnn"):
        first = thrice(device, call, arrays[made[0]])
        for n in made:
            each.compare(n, first if n == made[0] else fetched(device, arrays[n]), want[n])
    each.end()


def placed(device: Any, nbytes: int, start: int = ALIGN) -> Any:
    """Device bytes at an odd multiple of `start`, the only alignment that an arena guarantees."""
    return device.empty(nbytes + start)[start:]


def sent(device: Any, values: np.ndarray) -> Any:
    """Copy of an array on the device."""
    made = placed(device, values.nbytes).view(values.dtype).reshape(values.shape)
    device.upload(made, values)
    return made


def fetched(device: Any, array: Any) -> np.ndarray:
    result = np.empty(array.shape, array.dtype)
    device.download(result, array, device.mark())
    return result


def thrice(device: Any, call: Run, made: Any, before: np.ndarray | None = None) -> np.ndarray:
    """Result of `call`: run twice and as a captured graph, each time with `made` set to nan, or to `before`.

    Checks that the bits are equal.
    """
    seen = []
    with device.active():
        for step in (call, call, None):
            step = step or device.capture([call])  # after everything it needs is loaded
            if before is None:
                device.fill_bytes(made, 0xFF)
            else:
                device.upload(made, before)
            step()
            seen.append(fetched(device, made))
    assert seen[0].tobytes() == seen[1].tobytes(), "other bits when it was run again"
    assert seen[0].tobytes() == seen[2].tobytes(), "other bits as a graph"
    return seen[0]


class Each:
    """Results of each candidate of one case, so that a failure does not hide the others."""

    def __init__(self, dtype: str, found: dict[str, Any]) -> None:
        self.dtype, self.found = dtype, found
        self.failed: list[str] = []

    @contextmanager
    def way(self, name: str) -> Iterator[str]:
        try:
            yield name
        except Exception as error:
            self.failed.append(name)
            self.found[name] = f"{type(error).__name__}: {error}"[:300]

    def compare(self, name: str, got: np.ndarray, want: np.ndarray) -> None:
        """Record the error relative to the largest result. Raises AssertionError if it is too large."""
        error = float(np.abs(got.astype(np.float64) - want).max() / np.abs(want).max())
        self.found[name] = f"{error:.1e}"
        assert error < allowed(self.dtype), f"error {error:.1e}"

    def end(self) -> None:
        assert not self.failed, f"failed: {', '.join(self.failed)}"
