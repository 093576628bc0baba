"""cuBLASLt, through a strict stand-in that computes on the CPU: layouts, descriptors, scratch, streams."""

from __future__ import annotations

import ctypes
import gc
import os
import shutil
import subprocess
import sysconfig
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mxlite import ops
from mxlite.backends import Backend, bind_call
from mxlite.backends.gpu.kernels.nn import convolution
from mxlite.backends.gpu.matrix import blas_gemm, gemm
from mxlite.backends.gpu.matrix.gemm import kernel_name, Product, product, workspace
from mxlite.backends.gpu.runtime.cuda_device import CudaDevice
from mxlite.backends.gpu.vendor import cublaslt
from mxlite.core import MXLiteError
from mxlite.core.dtype import as_dtype
from tests.backends.gpu.kernels.test_gemm import check
from tests.emulators.emulated_device import _made, compiler, EmulatedDevice
from tests.emulators.emulated_driver import EmulatedDriver

pytestmark = pytest.mark.skipif(compiler is None, reason="g++ is not installed")

STUB = Path(__file__).parents[3] / "emulators" / "cublaslt_stub" / "cublaslt_stub.cpp"


class BlasDevice(EmulatedDevice):
    """The emulated device with the stand-in, and a stream."""

    index = 0
    stream = 77

    def __init__(self, lib):
        super().__init__()
        self.blas = lib

    def log(self):
        """What was called since the last time, without what is refused."""
        lines = self.blas.lib.stub_log().decode().splitlines()
        self.blas.lib.stub_clear()
        assert not [x for x in lines if x.startswith("refused")], lines
        return lines


@pytest.fixture(scope="module")
def lib():
    made = cublaslt.Library(str(_made(STUB.read_text(), "so", ("-shared",))))
    made.lib.stub_log.restype = ctypes.c_char_p
    return made


@pytest.fixture
def device(lib):
    lib.lib.stub_clear()
    lib.lib.stub_without(0)
    return BlasDevice(lib)


def runs(device):
    return [x for x in device.log() if x.startswith("matmul")]


@pytest.mark.parametrize("trans_a", [False, True])
@pytest.mark.parametrize("trans_b", [False, True])
def test_layouts(device, trans_a, trans_b):
    for m, n, k in [(1, 1, 1), (5, 3, 7), (8, 16, 4)]:
        p = Product(m, n, k, "float32", trans_a=trans_a, trans_b=trans_b)
        assert kernel_name(device, p) == "cublasLt"
        check(p, device=device)
        check(replace(p, lda=p.pitch_a + 3, ldb=p.pitch_b + 5, ldc=p.pitch_c + 1, beta=0.5), device=device)
    assert len(runs(device)) == 9  # once with beta, twice without
    assert device.launched == []


@pytest.mark.parametrize(
    "dtype, out, compute",
    [
        ("float32", "", 68),
        ("float64", "", 70),
        ("float16", "", 68),
        ("bfloat16", "", 68),
        ("bfloat16", "float32", 68),
    ],
)
def test_types(device, dtype, out, compute):
    check(Product(6, 8, 10, dtype, out=out, alpha=0.5), device=device)
    assert all(f"compute {compute} " in x for x in runs(device))


def test_float32_is_rounded_to_tf32_only_where_that_is_allowed(device, monkeypatch):
    p = Product(4, 4, 4, "float32")
    for allowed, tf32, compute in ((None, None, 68), ("1", None, 77), ("1", False, 68), (None, True, 77)):
        if allowed is None:
            monkeypatch.delenv("MXLITE_ALLOW_TF32", raising=False)
        else:
            monkeypatch.setenv("MXLITE_ALLOW_TF32", allowed)
        check(replace(p, tf32=tf32), device=device)
        assert f"compute {compute} " in runs(device)[0]
    check(Product(4, 4, 4, "float64", tf32=True), device=device)
    assert "compute 70 " in runs(device)[0]


@pytest.mark.parametrize("activation", ["", "relu", "gelu", "gelu_tanh"])
@pytest.mark.parametrize("bias", ["", "columns", "rows"])
def test_epilogues(device, activation, bias):
    """In the call where cuBLASLt has them, else in a pass over the result."""
    for dtype in ("float32", "float64") if activation == "relu" else ("float32",):
        check(Product(7, 12, 5, dtype, activation=activation, bias=bias, alpha=0.3, beta=0.5), device=device)
        simple = not activation and not bias
        inside = dtype == "float32" and bias != "rows" and activation != "gelu"
        assert device.launched == ([] if simple or inside else ["gemm_finish"])
        (line,) = runs(device)
        number = {"": 0, "relu": 2, "gelu_tanh": 32}.get(activation, 0) | (4 if bias else 0)
        assert f"epilogue {(number if inside else 0) or 1} " in line
        device.launched.clear()


def test_epilogues_that_no_algorithm_has(device, lib):
    lib.lib.stub_without(2)
    blas_gemm._choices.cache_clear()
    p = Product(9, 8, 6, "float32", activation="relu", bias="columns", batch=(1, 3))
    check(replace(p, strides_a=(0, 54), strides_b=(0, 48), strides_c=(0, 72)), device=device)
    assert device.launched[0] == "gemm_finish" and runs(device)[0].split()[4] == "1"
    blas_gemm._choices.cache_clear()


def test_slopes(device, lib):
    """That of the GELU in the call, where a row is whole packs; others in a pass over the result."""
    for slope, n, epilogue in (
        ("gelu_tanh", 16, 192),
        ("gelu_tanh", 12, 1),
        ("gelu", 16, 1),
        ("relu", 16, 1),
    ):
        check(Product(7, n, 5, "bfloat16", slope=slope), device=device)
        assert all(f"epilogue {epilogue} " in line for line in runs(device))
        assert set(device.launched) == (set() if epilogue > 1 else {"gemm_finish"})
        device.launched.clear()
    batch = {"batch": (2, 3), "strides_a": (200, 35), "strides_b": (0, 80), "strides_c": (400, 112)}
    check(Product(7, 16, 5, "float32", slope="gelu_tanh", beta=1.0, **batch), device=device)
    assert len(runs(device)) == 2 and device.launched == []
    check(Product(7, 16, 5, "float32", slope="gelu_tanh", bias="columns", beta=1.0), device=device)
    assert "epilogue 1 " in runs(device)[0] and device.launched == ["gemm_finish"]


def test_sums_of_rows(device, lib):
    p = Product(10, 12, 30, "float16", trans_a=True, row_sums=True, beta=1.0)
    check(p, device=device)
    assert "epilogue 512 " in runs(device)[0] and device.launched == []
    check(replace(p, activation="relu"), device=device)
    assert "epilogue 1 " in runs(device)[0] and device.launched == ["gemm_finish", "column_sum"]
    device.launched.clear()
    plans = blas_gemm.plans(device, p)
    assert {x.form.row_sums for x in plans} == {True, False}  # apart may be faster: that is measured
    assert len({gemm._name(p, x) for x in plans}) == len(plans)
    lib.lib.stub_without(512)
    blas_gemm._choices.cache_clear()
    gemm._choose.cache_clear()
    check(p, device=device)
    assert "epilogue 1 " in runs(device)[0] and device.launched == ["column_sum"]
    blas_gemm._choices.cache_clear()
    gemm._choose.cache_clear()


def test_batches_and_sums(device):
    p = Product(6, 7, 10, "float32", strides_a=(180, 60), strides_b=(0, 70), strides_c=(126, 42))
    for batch, calls in (((1, 3), 1), ((2, 1), 1), ((2, 3), 2)):
        check(replace(p, batch=batch, beta=1.0), device=device)
        assert len(runs(device)) == calls
    check(replace(p, batch=(2, 3), strides_b=(210, 70), beta=1.0), device=device)
    assert len(runs(device)) == 1
    check(replace(p, batch=(20, 3), beta=1.0), device=device)
    assert runs(device) == [] and device.launched == ["gemm"]
    # Terms that lie one behind the other are one long sum, others are left to our own kernel.
    one = Product(6, 7, 4, "float32", trans_a=True, summed=5, more_a=24, more_b=28, beta=1.0)
    check(one, device=device)
    assert len(runs(device)) == 1
    check(replace(one, trans_a=False), device=device)
    assert runs(device) == []


def test_more_matrices_than_a_grid_counts_are_several_calls(device, monkeypatch):
    monkeypatch.setattr(blas_gemm, "MOST_BATCH", 5)
    p = Product(2, 3, 4, "float32", strides_a=(0, 8), strides_b=(0, 12), strides_c=(0, 6), beta=1.0)
    for count, calls in ((5, 1), (6, 2), (15, 3), (40, 8), (7, 7), (11, 0), (45, 0)):  # 0: our own kernel
        check(replace(p, batch=(1, count)), device=device)
        assert len(runs(device)) == calls, count
    check(replace(p, batch=(2, 6), strides_a=(100, 8), strides_b=(72, 12), strides_c=(36, 6)), device=device)
    assert runs(device) == []


@pytest.mark.parametrize("apart", [False, True])
def test_what_is_added_lies_in_the_result_or_elsewhere(device, apart):
    p = Product(
        6, 7, 10, "float32", batch=(2, 3), strides_a=(180, 60), strides_b=(0, 70), strides_c=(126, 42)
    )
    for one in (replace(p, beta=1.0), replace(p, beta=0.5, bias="columns", activation="gelu")):
        check(one, device=device, apart=apart)
        assert len(runs(device)) == 2


def test_whole_numbers_and_empty_sums_are_left_to_our_own_kernel(device):
    for p in (Product(4, 5, 6, "int32"), Product(4, 5, 0, "float32")):
        assert kernel_name(device, p) == "cuda gemm"
        check(p, device=device)
    assert device.log() == []


def test_scratch_is_what_the_algorithm_asks_for_and_not_above_the_limit(device, monkeypatch):
    p = Product(40, 30, 8, "float32", beta=1.0)
    assert workspace(device, p) == 40 * 30 * 4 + 13
    check(p, device=device)
    assert "algorithm 0 " in runs(device)[0]
    monkeypatch.setattr(blas_gemm, "MOST_SCRATCH", 100)
    gemm._choose.cache_clear()
    assert workspace(device, p) == 0
    check(p, device=device)
    assert "algorithm 1 " in runs(device)[0]


def test_scratch_is_a_small_part_of_large_matrices_and_little_beside_small_ones(device, monkeypatch):
    asked = []
    monkeypatch.setattr(blas_gemm, "_choices", lambda device, form, limit: asked.append(limit) or ())
    for m, n, k, count in ((40, 30, 8, 1), (1024, 1024, 1024, 1), (256, 256, 256, 64), (8192, 8192, 8192, 1)):
        blas_gemm.plans(device, Product(m, n, k, "bfloat16", batch=(1, count), strides_a=(0, m * k),
                                        strides_b=(0, k * n), strides_c=(0, m * n)))  # fmt: skip
    assert asked == [256 << 10, 3 << 19, 6 << 20, 32 << 20]


def test_what_the_library_refuses_to_hear_of_is_left_to_our_own_kernel(device, monkeypatch, caplog):
    def refuse(*_):
        raise cublaslt.CublasError("cublasLtMatmulAlgoGetHeuristic failed with status 7: an invalid value.")

    monkeypatch.setattr(blas_gemm, "choices", refuse)
    blas_gemm._choices.cache_clear()
    gemm._choose.cache_clear()
    check(Product(24, 16, 8, "float32"), device=device)
    assert gemm.kernel_name(device, Product(24, 16, 8, "float32")) == "cuda gemm"
    assert "status 7" in caplog.text and len(caplog.records) == 1
    blas_gemm._choices.cache_clear()
    gemm._choose.cache_clear()


def scratch_in_an_arena(device, nbytes, place):
    """Bytes that begin at a multiple of 64, as buffers of an arena do."""
    return device.empty(nbytes + place)[place:]


@pytest.mark.parametrize("place", [0, 64, 128, 192])
@pytest.mark.parametrize("kernel, dtype", [((1, 1), "float32"), ((3, 3), "bfloat16")])
def test_scratch_of_convolutions_begins_where_the_library_wants_it(device, place, kernel, dtype):
    """As a product, and as columns and products."""
    op, kind = ops.ConvolutionChannelsLast, as_dtype(dtype)
    a = op.Attrs(kernel=kernel, num_filter=16, no_bias=True)
    ins, outs = op.infer_shape(a, (4, 6, 6, 16), None)
    backend, rng = Backend("emulated", np, convolution.rows(device)), np.random.default_rng(0)
    host = Backend("host", np, {})
    inputs = [rng.standard_normal(s).astype(kind) for s in (*ins, *outs)]
    for which in (op, op.grad_op):
        given = inputs[:2] if which is op else [inputs[2], *inputs[:2]]
        made = {}
        for name, one in (("ours", backend), ("reference", host)):
            chosen = one.choose(which, a, ins, outs, kind)
            assert name != "ours" or ("cublasLt" in chosen.name and chosen.workspace), chosen
            shapes = outs if which is op else ins
            made[name] = [np.zeros(s, kind) for s in shapes]
            work = scratch_in_an_arena(device, chosen.workspace, place)
            bind_call(chosen, np, which, a, given, made[name], work=work, shapes=(ins, outs))()
        for x, y in zip(made["ours"], made["reference"]):
            tolerance = 1e-5 if dtype == "float32" else 2e-2
            x, y = x.astype(float), y.astype(float)
            np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance * np.abs(y).max())
    assert runs(device)


def test_algorithms_are_asked_for_while_nobody_captures_a_graph(lib, monkeypatch):
    """Also where a capture is under way on this thread, which would wait for itself."""
    there, locked = CudaDevice(EmulatedDriver(late=0.0), 0), []
    there.blas = lib
    asked = blas_gemm.choices

    def noted(*arguments):
        locked.append(there._capture.locked())
        return asked(*arguments)

    monkeypatch.setattr(blas_gemm, "choices", noted)
    assert blas_gemm.plans(there, Product(3, 4, 5, "float32"))
    there.capture([lambda: blas_gemm.plans(there, Product(4, 4, 5, "float32"))])
    assert locked == [True, True] and not there._capture.locked()


def test_the_stream_is_the_one_that_is_current_when_it_runs(device):
    x = np.zeros((8, 8), np.float32)
    address = device.address(x)
    work = device.empty(1024)
    p = Product(8, 8, 8, "float32")
    run = product(device, p, address, address, address, 0, device.address(work))
    run()
    device.stream = 5
    run()
    assert [x.split()[-1] for x in runs(device)] == ["77", "5"]


def test_addresses_less_aligned_than_their_strides(device):
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(400).astype(np.float32) for _ in range(2))
    p = Product(16, 16, 16, "float32")
    work = device.empty(workspace(device, p))
    for skip in (0, 1, 2, 3):
        a, b = x[skip : skip + 256].reshape(16, 16), y[skip : skip + 256].reshape(16, 16)
        c = np.zeros(400, np.float32)[skip : skip + 256].reshape(16, 16)
        product(device, p, *(device.address(v) for v in (a, b, c)), 0, device.address(work))()
        np.testing.assert_allclose(c, a.astype(float) @ b, rtol=1e-5, atol=1e-5)
    assert len(runs(device)) == 4


def test_descriptors_are_gone_when_their_call_is(device, lib):
    gc.collect()
    before = lib.lib.stub_live()
    x = np.zeros((64,), np.float32)
    p = Product(8, 8, 8, "float32", bias="columns")
    calls = [
        product(device, p, *[device.address(x)] * 4, device.address(device.empty(1024))) for _ in range(3)
    ]
    assert lib.lib.stub_live() == before + 3 * 4
    del calls
    gc.collect()
    assert lib.lib.stub_live() == before


def test_an_error_has_the_functions_name_and_the_librarys_words(device, lib, caplog):
    with pytest.raises(cublaslt.CublasError, match="cublasLtMatrixLayoutCreate failed with status 7: an inv"):
        lib.create("cublasLtMatrixLayoutCreate", 0, 8, 8, 4)
    a, b, c = np.ones((8, 8), "f"), np.ones((8, 8), "f"), np.empty((8, 8), "f")
    p = Product(8, 8, 8, "float32")
    addresses = [device.address(x) for x in (a, b, c)]
    product(device, p, *addresses, 0, device.address(device.empty(1024)) + 1)()
    assert "cublasLtMatmul failed with status 7: an invalid value" in caplog.text
    assert (c == 8).all()  # by our own kernel
    lib.lib.stub_clear()


def test_vectors_less_aligned_than_the_heuristic_was_told_are_left_to_our_own_kernel(device):
    p = Product(8, 8, 8, "float32", bias="columns")
    values = np.zeros(20, "f")
    bias = device.address(values)
    bias += -bias % 16 + 4
    a, b, c = (np.ones((8, 8), "f") for _ in range(3))
    run = product(device, p, *[device.address(x) for x in (a, b, c)], bias)
    device.launched.clear()
    run()
    assert runs(device) == [] and device.launched == ["gemm"] and (c == 8).all()


def test_a_library_that_is_not_there(monkeypatch, tmp_path):
    monkeypatch.setenv("MXLITE_CUBLASLT_LIB", str(tmp_path / "nothing.so"))
    cublaslt.library.cache_clear()
    with pytest.raises(MXLiteError, match=r"MXLITE_CUBLASLT_LIB .*nothing.so' is no cuBLASLt"):
        cublaslt.library()
    monkeypatch.setenv("MXLITE_CUBLASLT_LIB", "")
    monkeypatch.setattr(cublaslt, "NAMES", ("libthereisnone.so",))
    cublaslt.library.cache_clear()
    assert cublaslt.library() is None
    cublaslt.library.cache_clear()


HEADERS = [
    Path(f)
    for f in (
        *os.environ.get("MXLITE_TEST_CUBLASLT_INCLUDE", "").split(":"),
        sysconfig.get_path("purelib") + "/nvidia/cu13/include",
    )
    if f and (Path(f) / "cublasLt.h").exists()
]


@pytest.mark.skipif(not HEADERS, reason="cublasLt.h is not installed")
def test_numbers_and_layouts_are_those_of_the_header(tmp_path):
    checks = [f"static_assert({name} == {value});" for name, value in cublaslt.NUMBERS.items()]
    for made, real in (
        (cublaslt.Heuristic, "cublasLtMatmulHeuristicResult_t"),
        (cublaslt.Algorithm, "cublasLtMatmulAlgo_t"),
    ):
        checks.append(f"static_assert(sizeof({real}) == {ctypes.sizeof(made)});")
    h = cublaslt.Heuristic
    for ours, real in (
        ("algorithm", "algo"),
        ("workspace", "workspaceSize"),
        ("state", "state"),
        ("waves", "wavesCount"),
    ):
        checks.append(
            f"static_assert(offsetof(cublasLtMatmulHeuristicResult_t, {real}) == {getattr(h, ours).offset});"
        )
    includes = [f"-I{f}" for f in os.environ.get("MXLITE_TEST_CUBLASLT_INCLUDE", str(HEADERS[0])).split(":")]
    check = [str(shutil.which("g++")), "-std=c++17", "-fsyntax-only", *includes]
    rest = tmp_path / "rest.cpp"  # of the toolkit, which comes apart from cuBLASLt
    rest.write_text("#include <crt/host_defines.h>\n")
    if subprocess.run([*check, str(rest)], capture_output=True).returncode:
        pytest.skip("cublasLt.h is installed, but crt/host_defines.h, which it includes, is not")
    file = tmp_path / "header.cpp"
    file.write_text("#include <cstddef>\n#include <cublasLt.h>\n" + "\n".join(checks))
    subprocess.run([*check, str(file)], check=True)
