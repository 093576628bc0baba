"""The driver for real GPUs, where there is none: its calls, their arguments, its errors."""

from __future__ import annotations

import ctypes
import gc
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mxlite.backends.gpu import gpu_backend
from mxlite.backends.gpu.compiler import cubins, nvrtc
from mxlite.backends.gpu.compiler.source import KernelSource
from mxlite.backends.gpu.handwritten.elements import convert, fill
from mxlite.backends.gpu.runtime.cuda_device import CudaDevice
from mxlite.backends.gpu.runtime.cupy_driver import count, CupyDriver, why_none
from mxlite.backends.gpu.runtime.device import Arguments
from mxlite.backends.gpu.runtime.driver import DriverError
from mxlite.core import DeviceError, OutOfMemoryError
from mxlite.engine import Var
from tests.emulators.emulated_device import compiler
from tests.emulators.fake_cupy import CONSTANTS, Cuda, fake_cupy, FakeError

ROOT = Path(__file__).parents[4]
EMULATORS = ROOT / "tests" / "emulators"

needs_compiler = pytest.mark.skipif(compiler is None, reason="g++ is not installed")


def cupy():
    """CuPy's modules."""
    runtime = pytest.importorskip("cupy_backends.cuda.api.runtime")
    driver = pytest.importorskip("cupy_backends.cuda.api.driver")
    return {"runtime": runtime, "driver": driver}


def everything(cuda):
    """Each method of the driver once, through what stands on it; the backend it was done on."""
    backend = gpu_backend(0)
    device = backend.device
    a, b = (backend.array((1000,), np.dtype("float32")) for _ in range(2))
    backend.from_host(a, np.arange(1000, dtype="f4"))
    var = Var()
    backend.issue(convert(device, b, a), (var,))()
    assert np.array_equal(backend.to_host(b, var), np.arange(1000, dtype="f4"))
    graph = device.capture([fill(device, a, 5), convert(device, b, a)])
    graph()
    assert (backend.to_host(b) == 5).all()
    with pytest.raises(DeviceError, match="captured"):
        device.capture([lambda: device.arena(4096)])
    device.fill_bytes(a)
    assert (backend.to_host(a) == 0).all()
    assert device.time(fill(device, a, 1)) >= 0
    pinned = device.pinned(100)
    device.upload(device.empty(100), pinned)
    arena = device.arena(4096)
    assert device.memory()[1] == cuda.device.capacity
    event = device.driver.event()
    device.driver.record(event, device.compute)
    device.driver.synchronize_event(event)
    assert device.driver.has_come(event)
    source = KernelSource('extern "C" __global__ void copy_one(int *to, int value) { *to = value; }')
    function = device.function(source, "copy_one")
    where = device.empty(4)
    values = Arguments([ctypes.c_void_p(where.address), ctypes.c_int(7)])
    device.launch(function, (1, 1, 1), (1, 1, 1), 100 * 1024, values)()
    assert backend.to_host(where.view("int32")) == 7
    device.synchronize()
    del arena, graph, pinned
    return backend


@needs_compiler
@pytest.mark.parametrize("late", [0.0, 0.5, 1.0])
def test_a_device_works_on_cupys_functions(late):
    with fake_cupy(late=late) as cuda:
        everything(cuda)


@needs_compiler
@pytest.mark.parametrize("current", [0, None])
def test_what_frees_memory_goes_to_its_device_and_back(current):
    """It may run on a thread of another library, or on one that has no device yet."""
    with fake_cupy(devices=2) as cuda:
        device = gpu_backend(1).device
        arena, pinned = device.arena(1 << 20), device.pinned(64)
        values = device.empty(64)
        graph = device.capture([lambda: device.fill_bytes(values)])
        cuda.contexts.discard(0)
        cuda.current = current
        del arena, pinned, graph
        gc.collect()
        assert cuda.current == current and 0 not in cuda.contexts
        there = cuda.devices[1]
        assert there.taken == device.pool.taken < 1 << 22 and not there.pinned_of and not there.graphs


@needs_compiler
def test_cupy_takes_the_arguments_that_it_is_given():
    """Without a driver, CuPy's functions look at their arguments and then find no driver."""
    modules = cupy()
    if modules["runtime"].driverGetVersion():
        pytest.skip("there is a driver here, and these calls name addresses of another device")
    with fake_cupy() as cuda:
        everything(cuda)
    seen = {(module, name) for module, name, _ in cuda.calls}
    assert len(seen) >= 28, sorted(seen)
    for module, name, arguments in cuda.calls:
        function = getattr(modules[module], name)
        if name in ("driverGetVersion", "runtimeGetVersion"):
            continue
        if name == "eventQuery":
            assert function(*arguments) not in (0, 600)
            continue
        with pytest.raises(RuntimeError):  # and not TypeError or OverflowError
            function(*arguments)
            raise AssertionError(f"{name} took no notice of a driver that is not there")


def test_cupys_constants_and_errors_are_those_that_are_written_here():
    modules = cupy()
    runtime, driver = modules["runtime"], modules["driver"]
    assert {name: getattr(runtime, name) for name in CONSTANTS} == CONSTANTS
    assert driver.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES == 1
    assert driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES == 8
    assert issubclass(runtime.CUDARuntimeError, RuntimeError)
    assert issubclass(driver.CUDADriverError, RuntimeError)
    for number, name in ((2, "cudaErrorMemoryAllocation"), (100, "cudaErrorNoDevice"),
                         (700, "cudaErrorIllegalAddress"), (46, "cudaErrorDevicesUnavailable"),
                         (600, "cudaErrorNotReady"), (719, "cudaErrorLaunchFailure")):  # fmt: skip
        assert str(runtime.CUDARuntimeError(number)).startswith(f"{name}: ")


@needs_compiler
def test_cupy_gives_a_kernel_its_arguments(tmp_path):
    """CuPy's own launchKernel on a libcuda.so.1 that calls what g++ compiled."""
    modules = cupy()
    if modules["runtime"].driverGetVersion():
        pytest.skip("there is a driver here")
    library = tmp_path / "libcuda.so.1"
    made = subprocess.run(
        [compiler, "-shared", "-fPIC", "-O0", str(EMULATORS / "cuda_on_cpu" / "libcuda.cpp"), "-ldl",
         "-o", str(library)], capture_output=True, text=True)  # fmt: skip
    assert made.returncode == 0, made.stderr
    paths = f"{tmp_path}{os.pathsep}{os.environ.get('LD_LIBRARY_PATH', '')}"
    found = subprocess.run(
        [sys.executable, str(EMULATORS / "launch_with_cupy.py")], capture_output=True, text=True,
        env={**os.environ, "LD_LIBRARY_PATH": paths, "PYTHONPATH": str(ROOT)})  # fmt: skip
    assert found.returncode == 0, found.stderr[-2000:]
    assert found.stdout.split() == ["ok"]


# -- what goes wrong -----------------------------------------------------------------------------------


def test_without_cupy_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy_backends.cuda.api", None)
    with pytest.raises(DeviceError, match=r"CuPy, which does not load .*mxlite\[gpu\].*mxlite\[gpu12\]"):
        gpu_backend(0)
    assert "CuPy" in why_none()


def test_without_a_driver_the_error_says_so():
    if cupy()["runtime"].driverGetVersion():
        pytest.skip("there is a driver here")
    with pytest.raises(DeviceError, match=r"driver, and there is none here \(libcuda.so.1\)"):
        gpu_backend(0)
    assert "there is none here" in why_none()


def refusal(**facts):
    """What opening gpu(0) says on a Cuda with these facts."""
    cuda = Cuda()
    for name, value in facts.items():
        setattr(cuda, name, value)
    with pytest.raises(DeviceError) as caught:
        CupyDriver(facts.get("index", 0), cuda.bindings())
    return str(caught.value)


def test_an_old_driver_and_cupy_for_another_cuda_are_named_with_their_numbers():
    text = refusal(driver_version=12080)
    assert "driver here is for CUDA 12.8, CuPy for CUDA 13.2" in text
    assert "pip uninstall cupy-cuda13x and install 'mxlite[gpu12]'" in text
    assert "CUDA 12 is the oldest" in refusal(driver_version=11080, runtime_version=12090)


def test_a_driver_of_an_older_minor_version_serves(monkeypatch):
    monkeypatch.setattr(nvrtc, "target", lambda major, minor: "sm_90")
    assert CupyDriver(0, Cuda().bindings()).architecture == "sm_90"  # 13.0 under CuPy for 13.2


def test_a_rank_without_a_gpu_of_its_own_hears_how_many_ranks_there_are(monkeypatch):
    monkeypatch.setenv("MPI_LOCALNRANKS", "2")
    assert refusal(index=1).endswith(
        "this machine has 1, numbered from 0. 2 ranks run here, and each needs a GPU of its own."
    )
    with fake_cupy(2) as cuda:
        places = {CupyDriver(i, cuda.bindings()).place() for i in range(2)}
    assert places == {("0000:00:00.0", 2), ("0000:01:00.0", 2)}


def test_a_gpu_that_is_not_there_is_refused_with_the_number_of_those_that_are():
    text = refusal(index=1)
    assert text == "There is no gpu(1): this machine has 1, numbered from 0."
    assert "has 0, numbered from 0; CUDA_VISIBLE_DEVICES may hide some" in refusal(
        fails={"getDeviceCount": FakeError("cudaErrorNoDevice", "no CUDA-capable device is detected")}
    )


def test_a_broken_driver_is_refused_with_cudas_words():
    fails = {"getDeviceCount": FakeError("cudaErrorSystemDriverMismatch", "system has unsupported")}
    text = refusal(fails=fails)
    assert "CUDA 13.0" in text and "cudaErrorSystemDriverMismatch: system has unsupported" in text


def test_an_old_gpu_is_refused():
    assert "fake, is of compute capability 7.0; mxlite's kernels need 8.0" in refusal(capability=(7, 0))


def test_a_gpu_that_others_hold_is_refused(monkeypatch):
    monkeypatch.setattr(nvrtc, "target", lambda major, minor: "sm_90")
    full = {"free": FakeError("cudaErrorMemoryAllocation", "out of memory")}
    assert "no room for a context" in refusal(fails=full)
    taken = {"setDevice": FakeError("cudaErrorDevicesUnavailable", "CUDA-capable device(s) is/are busy")}
    assert "taken by another process" in refusal(fails=taken)


def test_machine_code_that_the_driver_refuses_is_named_with_both_versions(monkeypatch):
    monkeypatch.setattr(nvrtc, "version", lambda: (13, 5))
    with fake_cupy() as cuda:
        driver = CupyDriver(0, cuda.bindings())
        cuda.fails["moduleLoadData"] = FakeError("CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image")
        with pytest.raises(DriverError, match=r"CUDA 13.0, does not take machine code of NVRTC 13.5") as e:
            driver.load(KernelSource(""))
    assert e.value.name == "CUDA_ERROR_NO_BINARY_FOR_GPU"


@needs_compiler
def test_no_room_is_told_apart_from_faults():
    with fake_cupy(capacity=4 * 2**20) as cuda:
        device = gpu_backend(0).device
        with pytest.raises(OutOfMemoryError, match="no room for 8388608"):
            device.arena(8 * 2**20)
        a = device.arena(2**20)
        cuda.fails["memsetAsync"] = FakeError("cudaErrorInvalidValue", "invalid argument")
        with (
            pytest.raises(DriverError, match=r"memsetAsync on gpu\(0\): cudaErrorInvalidValue"),
            device.active(),
        ):
            device.fill_bytes(a)
        assert device.fault is None
        cuda.fails["memsetAsync"] = FakeError("cudaErrorIllegalAddress", "an illegal memory access")
        with pytest.raises(DriverError, match="illegal memory access"), device.active():
            device.fill_bytes(a)
        with pytest.raises(DeviceError, match=r"gpu\(0\) cannot be used any more in this process"):
            device.empty(4)


@needs_compiler
def test_asking_for_an_event_after_a_fault_raises_it():
    with fake_cupy() as cuda:
        driver = gpu_backend(0).device.driver
        event = driver.event()
        cuda.device.fault = DriverError("lost", name="cudaErrorIllegalAddress")
        with pytest.raises(DriverError, match=r"illegal memory access.*launched before") as caught:
            driver.has_come(event)
        assert caught.value.is_lasting


@needs_compiler
def test_one_thread_may_use_several_gpus_in_turns():
    with fake_cupy(devices=2) as cuda:
        first, second = gpu_backend(0), gpu_backend(1)
        for _ in range(3):
            for backend, emulated in zip((first, second), cuda.devices):
                before = emulated.taken
                arena = backend.arena(12345)
                assert emulated.taken == before + 12345
                del arena


@needs_compiler
def test_shared_memory_beyond_48_kib_is_asked_for_with_the_kernels_own():
    with fake_cupy() as cuda:
        cuda.own_shared = 40 * 1024
        driver = gpu_backend(0).device.driver
        text = 'extern "C" __global__ void nothing() { }'
        function = driver.function(driver.load(KernelSource(text)), "nothing")
        stream = driver.stream()

        def asked(shared):
            cuda.calls.clear()
            driver.launch(function, (1, 1, 1), (1, 1, 1), shared, stream, Arguments([]))
            return [arguments[1:] for _, name, arguments in cuda.calls if name == "funcSetAttribute"]

        assert asked(0) == [] and asked(8 * 1024) == []
        assert asked(9 * 1024) == [(8, 9 * 1024)]
        assert asked(9 * 1024) == [] and asked(64 * 1024) == [(8, 64 * 1024)]


# -- compiled kernels on disk ----------------------------------------------------------------------------


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """A cache of its own, and the texts that were compiled."""
    compiled = []

    def compile(source, architecture):
        compiled.append((source.text, architecture))
        return b"\x7fELF" + f"{source.text} {architecture}".encode(), ""

    monkeypatch.setenv("MXLITE_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(nvrtc, "compile", compile)
    monkeypatch.setattr(nvrtc, "version", lambda: (13, 5))
    return tmp_path, compiled


def test_a_kernel_is_compiled_once_for_an_architecture_and_a_compiler(kept, monkeypatch):
    folder, compiled = kept
    for _ in range(3):
        assert cubins.compiled(KernelSource("a"), "sm_90") == b"\x7fELFa sm_90"
    assert len(compiled) == 1
    assert cubins.compiled(KernelSource("a"), "sm_80") == b"\x7fELFa sm_80"
    cubins.compiled(KernelSource("a", contract=True), "sm_90")
    cubins.compiled(KernelSource("b"), "sm_90")
    monkeypatch.setattr(nvrtc, "version", lambda: (13, 6))
    cubins.compiled(KernelSource("a"), "sm_90")
    assert len(compiled) == 5 and len(list((folder / "cuda").iterdir())) == 5


@pytest.mark.parametrize("harm", ["cut", "bit", "empty", "other", "not machine code"])
def test_a_broken_file_is_compiled_anew(kept, harm):
    folder, compiled = kept
    cubins.compiled(KernelSource("a"), "sm_90")
    (path,) = (folder / "cuda").iterdir()
    data = path.read_bytes()
    if harm == "other":
        cubins.compiled(KernelSource("b"), "sm_90")
        (other,) = {*(folder / "cuda").iterdir()} - {path}
        data = other.read_bytes()
    elif harm == "not machine code":
        key = path.stem
        cubins.kept.write(str(path), cubins._MAGIC, key, b"text")
        data = path.read_bytes()
    else:
        data = {"cut": data[:-1], "bit": data[:-1] + bytes([data[-1] ^ 1]), "empty": b""}[harm]
    path.write_bytes(data)
    compiled.clear()
    assert cubins.compiled(KernelSource("a"), "sm_90") == b"\x7fELFa sm_90"
    assert len(compiled) == 1
    assert cubins.compiled(KernelSource("a"), "sm_90") == b"\x7fELFa sm_90" and len(compiled) == 1


@pytest.mark.skipif(os.name == "nt", reason="file modes mean nothing there")
def test_a_directory_that_others_may_write_is_no_cache(kept):
    folder, compiled = kept
    (folder / "cuda").mkdir()
    (folder / "cuda").chmod(0o777)
    with pytest.warns(RuntimeWarning, match="other users may write there") as told:
        for _ in range(2):
            cubins.compiled(KernelSource("a"), "sm_90")
    assert len(told) == 1
    assert len(compiled) == 2 and not list((folder / "cuda").iterdir())


@pytest.mark.skipif(not nvrtc.available(), reason="NVRTC is not installed")
def test_the_machine_code_is_for_the_gpu_or_an_older_one_of_its_generation():
    assert nvrtc.target(9, 0) == "sm_90" and nvrtc.target(8, 9) == "sm_89"
    first = nvrtc.architectures()[0]
    with pytest.raises(DeviceError, match=rf"no machine code for .* 3.5, only for sm_{first} to"):
        nvrtc.target(3, 5)


NAMED = "libnvrtc-builtins.so.13.0"
LOADS = """
import ctypes, sys
from mxlite.backends.gpu.compiler import nvrtc
try:
    ctypes.CDLL(sys.argv[2])
    sys.exit("it was found before")
except OSError:
    nvrtc._load_builtins(sys.argv[1])
    print(ctypes.CDLL(sys.argv[2]).answer())
"""


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
def test_what_nvrtc_opens_by_its_bare_name_is_there(tmp_path):
    """As NVRTC 13.0 does when it first compiles, in a folder that the loader does not look into."""
    command = ["gcc", "-shared", "-fPIC", f"-Wl,-soname,{NAMED}", "-x", "c", "-", "-o", str(tmp_path / NAMED)]
    subprocess.run(command, input="int answer(void) { return 42; }", text=True, check=True)
    (tmp_path / "libnvrtc-builtins.so.12.9").write_text("no library")
    given = [sys.executable, "-c", LOADS, str(tmp_path), NAMED]
    done = subprocess.run(given, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "42\n"), done.stderr


def test_opening_without_nvrtc_says_what_to_install(monkeypatch):
    monkeypatch.setattr(nvrtc, "library", lambda: None)
    with pytest.raises(DeviceError, match=r"needs NVRTC .*mxlite\[gpu\]"):
        CupyDriver(0, Cuda().bindings())


def test_the_number_of_gpus_is_asked_without_opening_one():
    cuda = Cuda(devices=3)
    assert count(cuda.bindings()) == 3
    assert {name for _, name, _ in cuda.calls} <= {"driverGetVersion", "runtimeGetVersion", "getDeviceCount"}


def test_a_device_that_is_emulated_is_one_of_the_kind_that_is_real():
    """What tests run on has every method of the driver that is tested here."""
    names = {n for n in dir(CupyDriver) if not n.startswith("_")}
    assert {n for n in names if not hasattr(Cuda().devices[0], n)} == set()
    assert CudaDevice is not None
