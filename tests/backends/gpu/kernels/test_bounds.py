"""The emulated GPU catches what a kernel may not touch: beside its arrays or shared memory, or unaligned."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from mxlite.backends.gpu.compiler.source import KernelSource, shared
from mxlite.backends.gpu.runtime.device import Arguments, pointer
from mxlite.backends.gpu.runtime.driver import DriverError
from tests.emulators.emulated_device import compiler, EmulatedDevice, refusal
from tests.emulators.emulated_driver import EmulatedDriver

pytestmark = pytest.mark.skipif(compiler is None, reason="g++ is not installed")

TEXT = """
struct Table { float *rows[2]; int n; };
template <typename T> __device__ __forceinline__ T turned(const T *x, int at) {
    __shared__ T room[32], behind[32];
    room[threadIdx.x] = x[threadIdx.x];
    behind[threadIdx.x] = T(7);
    __syncthreads();
    return room[at];
}
extern "C" __global__ void reads(const float *x, float *y, int at) { y[0] = x[at]; }
extern "C" __global__ void writes(const float *x, float *y, int at) { y[at] = x[0]; }
extern "C" __global__ void reads_packs(const float *x, float *y, int at) {
    *(Pack<float, 4> *)y = *(const Pack<float, 4> *)(x + at);
}
extern "C" __global__ void reads_shared(const float *x, float *y, int at) { y[threadIdx.x] = turned(x, at); }
extern "C" __global__ void writes_rows(Table t, int at) { t.rows[threadIdx.x % 2][at] = 1; }
extern "C" __global__ void keeps_locals(const float *x, float *y, int at) {
    float own[8];
    for (int i = 0; i < 8; ++i) own[(i + at) % 8] = x[i];
    float *p = own + at % 8;
    y[threadIdx.x] = *p;
    __syncwarp();
}
extern "C" __global__ void leaves_shared(const float *x, float *y, int at) {
    __shared__ float room[4];
    if ((int)threadIdx.x < at) room[threadIdx.x] = 1;
    __syncthreads();
    y[blockIdx.x] = room[3];
}
"""
SOURCE = KernelSource(shared("types") + TEXT)


def test_a_launch_with_more_arguments_than_cuda_takes_is_refused():
    """Parameters of all kernels together, where their types may begin: 4 KiB."""
    device, driver = EmulatedDevice(), EmulatedDriver()
    number, most = ctypes.c_int(0), (ctypes.c_uint64 * 511)()
    one, kernel = (1, 1, 1), device.function(SOURCE, "reads")
    assert refusal(kernel, one, one, 0, 0, Arguments([number, most])) is None
    too_many = Arguments([number, most, number])
    with pytest.raises(AssertionError, match="reads: 4100 bytes of arguments"):
        device.launch(kernel, one, one, 0, too_many)
    with pytest.raises(DriverError, match="reads: 4100 bytes of arguments"):
        driver.launch(driver.function(driver.load(SOURCE), "reads"), one, one, 0, 0, too_many)


LIMITED = KernelSource(
    "enum { ROWS = 64 };\n"
    'extern "C" __global__ void __launch_bounds__(ROWS, 2) named(int n) {}\n'
    'extern "C" __global__ void __launch_bounds__(128) numbered(int n) {}\n'
)


@pytest.mark.parametrize(
    ("name", "grid", "block"),
    [
        ("named", (1, 1, 1), (65, 1, 1)),
        ("numbered", (1, 1, 1), (64, 3, 1)),
        ("numbered", (1, 65536, 1), (1, 1, 1)),
        ("numbered", (1, 1, 65536), (1, 1, 1)),
        ("numbered", (2**31, 1, 1), (1, 1, 1)),
        ("numbered", (0, 1, 1), (1, 1, 1)),
        ("numbered", (1, 1, 1), (1, 1, 65)),
    ],
)
def test_what_cuda_would_not_launch_is_refused(name, grid, block):
    device, driver = EmulatedDevice(), EmulatedDriver()
    values = Arguments([ctypes.c_int(1)])
    with pytest.raises(AssertionError, match=name):
        device.launch(device.function(LIMITED, name), grid, block, 0, values)
    function = driver.function(driver.load(LIMITED), name)
    with pytest.raises(DriverError, match=name):
        driver.launch(function, grid, block, 0, 1, values)
    device.launch(device.function(LIMITED, name), (3, 2, 1), (16, 2, 2), 0, values)()


def run(name, at, x=None, threads=1, blocks=1):
    """`name` on two arrays of 40 elements; what it made."""
    device = EmulatedDevice()
    x = np.arange(40, dtype=np.float32) if x is None else x
    y = np.zeros(40, np.float32)
    values = Arguments([pointer(device.address(x)), pointer(device.address(y)), ctypes.c_int(at)])
    device.launch(device.function(SOURCE, name), (blocks, 1, 1), (threads, 1, 1), 0, values)()
    return y


@pytest.mark.parametrize(
    "name, at, why",
    [
        (
            "reads",
            40,
            "reads: thread .0, 0, 0. of block .0, 0, 0. reads 4 bytes, 0 behind the end of an array of 160",
        ),
        ("reads", -1, "reads 4 bytes, 4 before the start of an array of 160 bytes"),
        ("writes", 41, "writes 4 bytes, 4 behind the end of an array of 160 bytes"),
        ("writes", 10**7, "writes 4 bytes"),
        ("reads_packs", 40, "reads 16 bytes, 0 behind the end"),
        ("reads_packs", 38, "wants a multiple of 16 bytes"),
        (
            "reads_packs",
            1,
            "wants a multiple of 16 bytes .line .*, 4 behind the start of an array of 160",
        ),
    ],
)
def test_what_lies_outside_of_arrays(name, at, why):
    with pytest.raises(AssertionError, match=why):
        run(name, at)


def test_a_pack_that_lies_across_the_end():
    whole = np.arange(44, dtype=np.float32)
    x = whole[-whole.ctypes.data % 16 // 4 :][:38]
    assert (run("reads_packs", 32, x)[:4] == x[32:36]).all()
    with pytest.raises(AssertionError, match="reads 16 bytes, 144 behind the start of an array of 152 bytes"):
        run("reads_packs", 36, x)


def test_shared_memory_within_each_variable():
    """Another one, which lies beside it, is not its own, also in a template."""
    assert (run("reads_shared", 5, threads=32)[:32] == 5).all()
    # 39 is as near to the next variable, and which one that is the compiler decides.
    for at, nearest in ((32, "room"), (-1, "room"), (39, "(room|behind)")):
        with pytest.raises(AssertionError, match=rf"reads 4 bytes, .* of {nearest} of"):
            run("reads_shared", at, threads=32)


def test_locals_are_free_and_nothing_is_left_in_shared_memory():
    assert (run("keeps_locals", 3, threads=40) == 0).all()
    assert (run("leaves_shared", 4, threads=4, blocks=2)[:2] == 1).all()
    assert np.isnan(run("leaves_shared", 3, threads=4, blocks=2)[:2]).all()


class Table(ctypes.Structure):
    _fields_ = (("rows", ctypes.c_void_p * 2), ("n", ctypes.c_int))


def test_arrays_that_a_structure_names_and_parts_of_one():
    device, room = EmulatedDevice(), np.zeros(64, np.float32)
    rows = room[:8], room[32:40]
    table = Table((ctypes.c_void_p * 2)(*map(device.address, rows)), 2)

    def write(at):
        function = device.function(SOURCE, "writes_rows")
        values = Arguments([table, ctypes.c_int(at)])
        device.launch(function, (1, 1, 1), (2, 1, 1), 0, values)()

    write(7)
    assert room[7] == room[39] == 1 and room.sum() == 2
    with pytest.raises(AssertionError, match="writes 4 bytes, 0 behind the end of an array of 32"):
        write(8)


def test_the_driver_allows_what_is_allocated_when_a_kernel_runs():
    driver = EmulatedDriver(late=0.0)
    stream = driver.stream()
    function = driver.function(driver.load(SOURCE), "writes")
    x, y = driver.malloc(160), driver.malloc(160)

    def write(at):
        values = Arguments([pointer(x), pointer(y), ctypes.c_int(at)])
        driver.launch(function, (1, 1, 1), (1, 1, 1), 0, stream, values)
        driver.synchronize(stream)

    write(39)
    with pytest.raises(
        DriverError, match=r"writes: thread .* writes 4 bytes, 0 behind the end of an array"
    ) as e:
        write(40)
    assert e.value.is_lasting
    driver.fault = None
    driver.free(y)
    with pytest.raises(DriverError, match="writes 4 bytes"):
        write(0)


RACES = KernelSource("""
extern "C" __global__ void __launch_bounds__(64) from_before(float *y) {
    __shared__ float room[64];
    room[threadIdx.x] = threadIdx.x;
    y[threadIdx.x] = threadIdx.x ? room[threadIdx.x - 1] : 0;
}
extern "C" __global__ void __launch_bounds__(64) written_too_soon(float *y) {
    __shared__ float room[64];
    room[threadIdx.x] = threadIdx.x;
    __syncthreads();
    y[threadIdx.x] = threadIdx.x ? room[threadIdx.x - 1] : 0;
    room[threadIdx.x] = -1;
}
extern "C" __global__ void __launch_bounds__(64) with_barriers(float *y) {
    __shared__ float room[64];
    room[threadIdx.x] = threadIdx.x;
    __syncthreads();
    y[threadIdx.x] = threadIdx.x ? room[threadIdx.x - 1] : 0;
    __syncthreads();
    room[threadIdx.x] = -1;
}
""")


@pytest.mark.parametrize("name", ["from_before", "written_too_soon", "with_barriers"])
def test_a_barrier_that_is_missing_shows_in_one_block_or_the_other(name):
    device = EmulatedDevice()
    y, want = np.zeros(64, np.float32), np.maximum(np.arange(64) - 1, 0)
    values = Arguments([pointer(device.address(y))])
    right = []
    for blocks in (1, 2):  # the last block is the one that is seen
        device.launch(device.function(RACES, name), (blocks, 1, 1), (64, 1, 1), 0, values)()
        right.append(bool(np.array_equal(y, want)))
    assert right.count(True) == (2 if name == "with_barriers" else 1)


MEETINGS = KernelSource(
    shared("types", "math")
    + """
#define LARGER(a, b) ((b) != (b) ? (b) : mx_max(a, b))
extern "C" __global__ void __launch_bounds__(64) largest(const float *x, float *y) {
    float most = x[threadIdx.x];
    for (int by = 16; by; by /= 2) most = mx_max(most, __shfl_xor_sync(0xffffffffu, most, by));
    y[threadIdx.x] = most;
}
extern "C" __global__ void __launch_bounds__(64) by_a_macro(const float *x, float *y) {
    float most = x[threadIdx.x];
    for (int by = 16; by; by /= 2) most = LARGER(most, __shfl_xor_sync(0xffffffffu, most, by));
    y[threadIdx.x] = most;
}
extern "C" __global__ void __launch_bounds__(64) two_barriers(const float *x, float *y) {
    __shared__ float room[64];
    room[threadIdx.x] = x[threadIdx.x];
    if (x[threadIdx.x] > 0) __syncthreads();
    else __syncthreads();
    y[threadIdx.x] = room[threadIdx.x ^ 1];
}
extern "C" __global__ void __launch_bounds__(64) from_who_has_ended(const float *x, float *y) {
    if (threadIdx.x == 3) return;
    y[threadIdx.x] = __shfl_xor_sync(0xffffffffu, x[threadIdx.x], 1);
}
"""
)


def meet(name, x, threads=64):
    device = EmulatedDevice()
    y = np.zeros(64, np.float32)
    values = Arguments([pointer(device.address(x)), pointer(device.address(y))])
    device.launch(device.function(MEETINGS, name), (1, 1, 1), (threads, 1, 1), 0, values)()
    return y


@pytest.mark.parametrize("name", ["largest", "by_a_macro"])
def test_lanes_that_shuffle_in_different_branches_are_an_error(name):
    """An argument that a macro repeats is a shuffle in each of its branches."""
    x = np.arange(64, dtype=np.float32)
    np.testing.assert_array_equal(meet(name, x), np.repeat([31, 63], 32))
    x[5] = np.nan
    if name == "largest":
        np.testing.assert_array_equal(meet(name, x), np.repeat([np.nan, 63], 32))
    else:
        with pytest.raises(AssertionError, match="threads of one warp meet in different calls"):
            meet(name, x)


def test_threads_that_wait_at_two_barriers_are_an_error():
    x = np.ones(64, np.float32)
    np.testing.assert_array_equal(meet("two_barriers", x), x)
    x[7] = -1
    with pytest.raises(AssertionError, match="threads of one block wait at different barriers"):
        meet("two_barriers", x)


def test_what_a_lane_hands_over_that_is_not_there_is_nan():
    x = np.arange(64, dtype=np.float32)
    found = meet("from_who_has_ended", x)
    assert np.isnan(found[2]) and found[4] == 5
    found = meet("largest", x, threads=40)
    assert np.isnan(found[32:40]).all() and found[31] == 31
