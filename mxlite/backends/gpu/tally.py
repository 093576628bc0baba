"""What a batch adds to a metric, as kernels: nothing of it comes to the host until somebody asks.

Each adds (sum, count) to two doubles in device memory, `sums`. Rows are added up by one block, thread t those
of numbers t, t + 256, ..., and then the threads in a fixed order: the same bits every time.

    hits        one warp for each row of predictions finds the first of the largest, and writes 1 if it is the
                label; then one block adds up. Reads every prediction once, 4 bytes of scratch a row.
    chosen      one block. Reads one prediction of each row.
    all         one block. Reads every element once: for losses, one number for a sample or fewer.
"""

from __future__ import annotations

import ctypes
import functools
from math import prod
from typing import Any

from .array import DeviceArray
from .cuda_device import CudaDevice
from .device import Arguments, InOrder, pointer, Run
from .source import kernel, NAMES, shared, Source

THREADS = 256
ROWS = 8  # of a block of "hits": one for each warp
MOST_SUMMED = 2**20  # elements that one block adds up

PREDICTIONS = ("float32", "float16", "bfloat16", "float64")
LABELS = ("float32", "int32", "int64", "float64", "uint8", "int8")


def fits(label: Any, pred: Any) -> bool:
    """Whether there are kernels for these types, and the elements of each array follow each other."""
    return (
        pred.dtype.name in PREDICTIONS
        and label.dtype.name in LABELS
        and pred.flags.c_contiguous
        and label.flags.c_contiguous
    )


def hits(sums: DeviceArray, label: DeviceArray, pred: DeviceArray) -> Run:
    """label: (N,), pred: (N, K). Adds how many labels are where their row is largest, and N."""
    device: CudaDevice = pred.device
    rows, classes = pred.shape
    found = device.empty(4 * rows)
    source = _source(pred.dtype.name, label.dtype.name)
    address = device.address
    values: list[Any] = [pointer(address(pred)), pointer(address(label)), pointer(address(found))]
    values += [ctypes.c_int64(rows), ctypes.c_int64(classes)]
    blocks = max(1, min(-(-rows // ROWS), 65536))
    look = _launch(device, source, "hits", blocks, values)
    return InOrder([_keeping(look, found), _all(sums, source, "add_up", found, rows)])


def chosen(
    sums: DeviceArray,
    label: DeviceArray,
    pred: DeviceArray,
    *,
    floor: float = 0.0,
    eps: float = 0.0,
    ignore: float | None = None,
) -> Run:
    """label: (N,), pred: (N, K). Adds -log(max(pred[i, label[i]], floor) + eps) of all rows, and how many.

    Rows of the label `ignore` are left out. A label that is no class adds nan.
    """
    device: CudaDevice = pred.device
    rows, classes = pred.shape
    address = device.address
    values: list[Any] = [pointer(address(pred)), pointer(address(label)), pointer(address(sums))]
    values += [ctypes.c_int64(rows), ctypes.c_int64(classes), ctypes.c_double(floor), ctypes.c_double(eps)]
    values += [ctypes.c_int(ignore is not None), ctypes.c_double(ignore or 0.0)]
    return _launch(device, _source(pred.dtype.name, label.dtype.name), "chosen", 1, values)


def total(sums: DeviceArray, pred: DeviceArray) -> Run:
    """pred: any shape, of at most MOST_SUMMED elements. Adds their sum and their number."""
    return _all(sums, _source(pred.dtype.name, "float32"), "sum_of", pred, prod(pred.shape))


def _all(sums: DeviceArray, source: Source, name: str, array: DeviceArray, size: int) -> Run:
    device: CudaDevice = sums.device
    addresses = [pointer(device.address(array)), pointer(device.address(sums))]
    return _launch(device, source, name, 1, [*addresses, ctypes.c_int64(size)])


def _launch(device: CudaDevice, source: Source, name: str, blocks: int, values: list[Any]) -> Run:
    function = device.function(source, name)
    return device.launch(function, (blocks, 1, 1), (THREADS, 1, 1), 0, Arguments(values))


def _keeping(run: Run, array: DeviceArray) -> Run:
    """`run`, which keeps its scratch alive as long as it is kept itself."""

    def kept() -> None:
        assert array is not None
        run()

    return kept


@functools.cache
def _source(pred: str, label: str) -> Source:
    p, t = NAMES[pred], NAMES[label]
    wide = "double" if pred == "float64" else "float"
    classes = f"(int64)to<{_wide(label)}>(label[row])" if label.startswith("float") else "(int64)label[row]"
    number = f"(double)to<{_wide(label)}>(label[row])" if label.startswith("float") else "(double)label[row]"
    tail = ["add_to(sum, count, sums);"]
    head = ["double sum = 0, count = 0;"]
    text = shared("types", "index") + _ADD
    text += kernel("hits", [f"const {p} *pred", f"const {t} *label", "float *found", "int64 rows",
                            "int64 classes"], [
        "int lane = threadIdx.x % 32;",
        f"int64 warp = blockIdx.x * (int64){ROWS} + threadIdx.x / 32;",
        f"for (int64 row = warp; row < rows; row += (int64)gridDim.x * {ROWS}) {{",
        f"    const {p} *mine = pred + row * classes;",
        f"    {wide} best = 0;",
        "    int64 at = classes;",
        "    for (int64 k = lane; k < classes; k += 32) {",
        f"        {wide} x = to<{wide}>(mine[k]);",
        "        if (at == classes || x > best || (x != x && best == best)) { best = x; at = k; }",
        "    }",
        "    for (int by = 16; by; by /= 2) {",
        f"        {wide} x = __shfl_xor_sync(0xffffffffu, best, by);",
        "        int64 k = __shfl_xor_sync(0xffffffffu, at, by);",
        "        bool wins = k < classes && (at == classes || x > best || (x != x && best == best)",
        "                                    || ((x == best || (x != x && best != best)) && k < at));",
        "        if (wins) { best = x; at = k; }",
        "    }",
        f"    if (lane == 0) found[row] = (int)({classes}) == (int)at ? 1.0f : 0.0f;",
        "}",
    ], THREADS)  # fmt: skip
    text += kernel("chosen", [f"const {p} *pred", f"const {t} *label", "double *sums", "int64 rows",
                              "int64 classes", "double floor", "double eps", "int ignores",
                              "double ignore"], [
        *head,
        f"for (int64 row = threadIdx.x; row < rows; row += {THREADS}) {{",
        f"    if (ignores && {number} == ignore) continue;",
        f"    int64 k = {classes};",
        "    count += 1;",
        f"    {wide} x = k >= 0 && k < classes ? to<{wide}>(pred[row * classes + k])",
        f"                                     : ({wide})bits_to_float(0x7fc00000u);",
        f"    if (x < ({wide})floor) x = ({wide})floor;",
        f"    sum -= log((double)(x + ({wide})eps));",
        "}",
        *tail,
    ], THREADS)  # fmt: skip
    for name, kind in (("add_up", "float"), ("sum_of", p)):
        each = [f"for (int64 i = threadIdx.x; i < size; i += {THREADS}) sum += to<double>(values[i]);"]
        counted = "if (threadIdx.x == 0) count = (double)size;"
        parameters = [f"const {kind} *values", "double *sums", "int64 size"]
        text += kernel(name, parameters, [*head, *each, counted, *tail], THREADS)
    return Source(text)


def _wide(dtype: str) -> str:
    return "double" if dtype == "float64" else "float"


_ADD = f"""
// Adds the sums and counts of all threads of a block of {THREADS} to sums[0] and sums[1].
__device__ __forceinline__ void add_to(double sum, double count, double *sums) {{
    __shared__ double room[2][{THREADS // 32}];
    for (int by = 16; by; by /= 2) {{
        sum += __shfl_xor_sync(0xffffffffu, sum, by);
        count += __shfl_xor_sync(0xffffffffu, count, by);
    }}
    if (threadIdx.x % 32 == 0) {{
        room[0][threadIdx.x / 32] = sum;
        room[1][threadIdx.x / 32] = count;
    }}
    __syncthreads();
    if (threadIdx.x == 0) {{
        for (int w = 1; w < {THREADS // 32}; ++w) {{
            sum += room[0][w];
            count += room[1][w];
        }}
        sums[0] += sum;
        sums[1] += count;
    }}
}}
"""
