"""Memory of a GPU shared with other libraries, both ways: DLPack capsules and the CUDA array interface."""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys
import weakref

import ml_dtypes
import numpy as np
import pytest

import mxlite as mx
from mxlite import nd
from mxlite.backends.gpu import gpu_backend
from mxlite.backends.gpu.runtime import dlpack
from mxlite.core import DTypeError
from mxlite.engine import get_engine
from tests.emulators.emulated_device import compiler
from tests.emulators.emulated_driver import emulated_gpus

emulated = pytest.mark.skipif(compiler is None, reason="g++ is not installed")


@pytest.fixture
def driver():
    with emulated_gpus(late=0.0) as opened:
        nd.zeros(1, mx.gpu(0)).wait_to_read()
        yield opened[0]


def same(a, b):
    np.testing.assert_array_equal(a.asnumpy(), b)


# -- what we give ----------------------------------------------------------------------------------------


def words(capsule, name, count):
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return np.ctypeslib.as_array((ctypes.c_uint8 * count).from_address(pointer(capsule, name)))


def numbers(address, count):
    return list((ctypes.c_int64 * count).from_address(address))


@emulated
@pytest.mark.parametrize(
    "dtype, code",
    [("float32", 2), ("float16", 2), ("float64", 2), ("bfloat16", 4), ("int8", 0), ("int64", 0), ("uint8", 1),
     ("bool", 6)],
)  # fmt: skip
@pytest.mark.parametrize("is_versioned", [False, True])
def test_a_capsule_has_the_layout_of_dlpack_h(driver, dtype, code, is_versioned):
    a = nd.zeros((3, 4, 5), mx.gpu(0), dtype)[1]
    version = (1, 1) if is_versioned else None
    capsule = a.__dlpack__(stream=-1, max_version=version)
    name = b"dltensor_versioned" if is_versioned else b"dltensor"
    raw = words(capsule, name, 80).tobytes()
    if is_versioned:
        assert np.frombuffer(raw[:8], "u4").tolist() == [1, 0] and np.frombuffer(raw[24:32], "u8") == [0]
        raw = raw[32:]
    data, where = np.frombuffer(raw[:8], "u8")[0], np.frombuffer(raw[8:20], "i4").tolist()
    assert data == a.storage.address and where == [2, 0, 2]  # CUDA, number 0, two axes
    assert (raw[20], raw[21], int.from_bytes(raw[22:24], "little")) == (code, 8 * a.storage.itemsize, 1)
    shape, strides, offset = np.frombuffer(raw[24:48], "u8").tolist()
    assert numbers(shape, 2) == [4, 5] and numbers(strides, 2) == [5, 1] and offset == 0
    assert a.__dlpack_device__() == (2, 0)


@emulated
def test_memory_lives_as_long_as_a_capsule_that_nobody_took(driver):
    a = nd.ones(1000, mx.gpu(0))
    alive = weakref.ref(a.storage.memory)
    capsule = a.__dlpack__()
    nd.waitall()
    del a
    gc.collect()
    assert alive() is not None
    del capsule
    gc.collect()
    assert alive() is None


@emulated
def test_memory_lives_until_the_consumer_gives_it_back(driver):
    a = nd.ones(1000, mx.gpu(0))
    alive = weakref.ref(a.storage.memory)
    given = dlpack.take(a.__dlpack__(max_version=(1, 0)))
    assert (given.shape, given.device, given.dtype, given.is_read_only) == (
        (1000,),
        (2, 0),
        np.float32,
        False,
    )
    nd.waitall()
    del a
    gc.collect()
    assert alive() is not None
    given.release()
    assert alive() is None


# Holds a tensor until the process ends, as a static object of C++ does: Python has ended by then.
LATE_CONSUMER = """
#include <cstdio>
static char *kept;
static int where;
extern "C" void keep(char *managed, int deleter) { kept = managed; where = deleter; }
__attribute__((destructor)) static void give_back() {
    void (*deleter)(void *) = *(void (**)(void *))(kept + where);
    if (deleter) deleter(kept);
    std::puts("given back");
}
"""
LENDER = """
import ctypes, sys
import numpy as np
from types import SimpleNamespace
from mxlite.backends.gpu.runtime import dlpack

library, versioned = ctypes.CDLL(sys.argv[1]), sys.argv[2] == "1"
array = SimpleNamespace(address=4096, shape=(2, 3), strides=(12, 4), dtype=np.dtype("float32"), size=6)
capsule = dlpack.capsule_of(array, (2, 0), array, versioned)
pointer = ctypes.pythonapi.PyCapsule_GetPointer
pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
address = pointer(capsule, b"dltensor_versioned" if versioned else b"dltensor")
dlpack.take(capsule)
library.keep(ctypes.c_void_p(address), 16 if versioned else 56)
"""


@pytest.mark.skipif(compiler is None, reason="g++ is not installed")
def test_memory_may_be_given_back_when_python_has_ended(tmp_path):
    (tmp_path / "late.cpp").write_text(LATE_CONSUMER)
    library = str(tmp_path / "late.so")
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-o", library, str(tmp_path / "late.cpp")], check=True, timeout=60
    )
    for versioned in "01":
        ended = subprocess.run(
            [sys.executable, "-c", LENDER, library, versioned], capture_output=True, text=True, timeout=60
        )
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, "given back\n", "")


@emulated
@pytest.mark.parametrize("stream", [None, 1, 2, "own"])
def test_the_consumers_stream_waits_for_what_was_pushed(driver, stream):
    a = nd.zeros(100, mx.gpu(0))
    a += 7
    own = driver.stream()
    a.__dlpack__(stream=own if stream == "own" else stream)
    seen = np.zeros(100, "f4")
    handle = own if stream == "own" else 1 if stream is None else stream
    driver.copy(seen.ctypes.data, a.storage.address, 400, handle)
    driver.synchronize(handle)
    assert (seen == 7).all()


@emulated
def test_memory_is_not_used_again_while_the_consumers_kernels_run(driver):
    a = nd.ones(100, mx.gpu(0))
    own, seen = driver.stream(), np.zeros(100, "f4")
    given = dlpack.take(a.__dlpack__(stream=own))
    driver.copy(seen.ctypes.data, given.address, 400, own)  # is under way when the consumer lets go
    get_engine().wait_all()
    address = a.storage.address
    given.release()
    del a
    gc.collect()
    b = nd.full(100, 5, mx.gpu(0))
    nd.waitall()
    assert b.storage.address == address
    driver.synchronize(own)
    assert (seen == 1).all()


@emulated
def test_wishes_of_the_consumer(driver):
    a = nd.arange(6, ctx=mx.gpu(0))
    given = dlpack.take(a.__dlpack__(copy=True))
    a[:] = 0
    seen = np.zeros(6, "f4")
    driver.copy(seen.ctypes.data, given.address, 24, 1)
    driver.synchronize(1)
    assert seen.tolist() == [0, 1, 2, 3, 4, 5]
    host = dlpack.take(a.__dlpack__(dl_device=(1, 0)))
    assert host.device == (1, 0)
    host.release()
    for wish in ({"stream": 0}, {"dl_device": (2, 1)}, {"dl_device": (1, 0), "copy": False}):
        with pytest.raises(BufferError):
            a.__dlpack__(**wish)
    given.release()


@emulated
def test_the_cuda_array_interface_names_our_stream(driver):
    a = nd.zeros((2, 3), mx.gpu(0))[1]
    a += 3
    told = a.__cuda_array_interface__
    assert told["shape"] == (3,) and told["typestr"] == "<f4" and told["version"] == 3
    assert told["data"] == (a.storage.address, False) and told["strides"] is None
    event, own, seen = driver.event(), driver.stream(), np.zeros(3, "f4")
    driver.record(event, told["stream"])  # as the interface asks of a consumer
    driver.wait(own, event)
    driver.copy(seen.ctypes.data, told["data"][0], 12, own)
    driver.synchronize(own)
    assert seen.tolist() == [3, 3, 3]
    assert not hasattr(nd.zeros(3), "__cuda_array_interface__")
    assert not hasattr(nd.zeros(3, mx.gpu(0), "bfloat16"), "__cuda_array_interface__")
    assert nd.zeros(0, mx.gpu(0)).__cuda_array_interface__["data"] == (0, False)


# -- what we take ----------------------------------------------------------------------------------------


class Foreign:
    """An array of another library, whose work on a stream of its own is not done."""

    def __init__(self, driver, values, strides=None, versioned=True, read_only=False):
        self.driver, self.versioned, self.read_only = driver, versioned, read_only
        self.shape, self.dtype = values.shape, values.dtype
        self.strides = strides or values.strides
        self.address = driver.malloc(values.nbytes)
        self.own = driver.stream()
        self.values = np.ascontiguousarray(values)
        driver.copy(self.address, self.values.ctypes.data, values.nbytes, self.own)
        self.size, self.is_free, self.asked = values.size, False, None

    def __dlpack_device__(self):
        return (2, 0)

    def __dlpack__(self, *, stream, **version):
        if version and not self.versioned:
            raise TypeError("unexpected keyword argument 'max_version'")
        event = self.driver.event()
        self.driver.record(event, self.own)
        self.driver.wait(stream, event)
        self.asked = stream
        return dlpack.capsule_of(self, (2, 0), Owner(self), self.versioned)

    @property
    def __cuda_array_interface__(self):
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.address, self.read_only),
            "version": 3,
            "strides": self.strides,
            "stream": self.own,
        }


class Owner:
    def __init__(self, foreign):
        self.foreign = foreign

    def __del__(self):
        self.foreign.is_free = True


@emulated
@pytest.mark.parametrize("versioned", [True, False])
def test_foreign_memory_is_shared_and_given_back_when_our_work_is_done(driver, versioned):
    given = Foreign(driver, np.arange(12, dtype="f4").reshape(3, 4), versioned=versioned)
    a = nd.from_dlpack(given)
    device = gpu_backend(0).device
    assert given.asked == device.compute
    assert a.context == mx.gpu(0) and a.storage.address == given.address
    same(a + 1, np.arange(12).reshape(3, 4) + 1)
    a[1] = 7
    seen = np.zeros(12, "f4")
    nd.waitall()
    driver.copy(seen.ctypes.data, given.address, 48, given.own)
    driver.synchronize(given.own)
    assert seen[4:8].tolist() == [7, 7, 7, 7]
    a += 1
    get_engine().wait_all()
    del a
    gc.collect()
    assert not given.is_free  # a kernel may still use it
    device.empty(64)
    assert given.is_free
    assert driver.memory_of[given.address].view("f4")[4:8].tolist() == [8, 8, 8, 8]


@emulated
def test_foreign_memory_is_downloaded_after_the_others_work(driver):
    same(nd.from_dlpack(Foreign(driver, np.arange(5, dtype="i8"))), np.arange(5))
    given = Foreign(driver, np.arange(6, dtype="f8").reshape(2, 3))
    a = nd.from_cuda_array_interface(given)
    assert a.storage.address == given.address and a.dtype == np.float64
    same(a, given.values)


@emulated
def test_what_is_not_in_c_order_or_read_only_is_copied(driver):
    values = np.arange(12, dtype="f4").reshape(3, 4)
    for read in (nd.from_dlpack, nd.from_cuda_array_interface):
        given = Foreign(driver, values, strides=(4, 12))  # the memory of a (4, 3) array, its axes exchanged
        a = read(given)
        same(a, np.lib.stride_tricks.as_strided(values, (3, 4), (4, 12)))
        assert a.storage.address != given.address
    given = Foreign(driver, values, read_only=True)
    a = nd.from_cuda_array_interface(given)
    same(a, values)
    assert a.storage.address != given.address


@emulated
def test_capsules_pass_through_our_own_hands(driver):
    a = nd.arange(4, ctx=mx.gpu(0))
    b = nd.from_dlpack(a)
    c = nd.from_dlpack(nd.to_dlpack_for_write(a))
    b += 1
    get_engine().wait_all()  # the engine does not know that they share
    c *= 2
    same(c, [2, 4, 6, 8])
    assert b.storage.address == c.storage.address == a.storage.address
    capsule = nd.to_dlpack_for_read(a)
    nd.from_dlpack(capsule)
    with pytest.raises(DTypeError, match="nobody has used"):
        nd.from_dlpack(capsule)
    with pytest.raises(DTypeError, match="complex"):
        nd.from_cuda_array_interface(Foreign(driver, np.zeros(3, "c8")))
    same(nd.from_dlpack(nd.to_dlpack_for_read(nd.ones(3))), [1, 1, 1])
    zeros = nd.from_dlpack(nd.zeros((0, 3), mx.gpu(0)))
    assert zeros.shape == (0, 3) and nd.from_dlpack(nd.ones((), mx.gpu(0))).asscalar() == 1
    half = nd.from_dlpack(nd.ones(3, mx.gpu(0), "bfloat16"))
    assert half.dtype == ml_dtypes.bfloat16


# -- on a real GPU ---------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("library", ["cupy", "torch"])
def test_other_libraries_share_memory_with_us_on_a_gpu(library):
    module = pytest.importorskip(library)
    if library == "torch" and not module.cuda.is_available():
        pytest.skip("PyTorch sees no GPU")
    if not mx.num_gpus():
        pytest.skip("there is no GPU")
    a = nd.arange(12, ctx=mx.gpu(0)).reshape((3, 4))
    theirs = module.from_dlpack(a)
    theirs += 1
    (module.cuda.Device().synchronize if library == "cupy" else module.cuda.synchronize)()
    same(a, np.arange(12).reshape(3, 4) + 1)
    ours = nd.from_dlpack(theirs * 2)
    same(ours, 2 * (np.arange(12).reshape(3, 4) + 1))
    again = module.asarray(a) if library == "cupy" else module.as_tensor(a, device="cuda")
    assert float(again.sum()) == float(a.sum().asscalar())
    b = nd.from_cuda_array_interface(theirs.T)
    same(b, (np.arange(12).reshape(3, 4) + 1).T)
