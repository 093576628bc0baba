"""Constants of oneDNN's C API, version 3: `dnnl_types.h` and `dnnl.h` of 3.2, equal in 3.13."""

from __future__ import annotations

import ml_dtypes
import numpy as np

DTYPES = {
    np.dtype("float16"): 1,
    np.dtype(ml_dtypes.bfloat16): 2,
    np.dtype("float32"): 3,
    np.dtype("int32"): 4,
    np.dtype("int8"): 5,
    np.dtype("uint8"): 6,
}
"""dnnl_data_type_t of numpy's types; float64 has almost no kernels on a CPU and is left out."""

ANY = 1  # dnnl_format_tag_any: the primitive chooses

# dnnl_prop_kind_t
TRAINING, INFERENCE = 64, 96

# dnnl_alg_kind_t
DIRECT, RELU, ADD, MUL = 1, 0x20, 0x1FFF0, 0x1FFF1
MAX_POOL, AVERAGE_INCLUDING_PADDING, AVERAGE_EXCLUDING_PADDING = 0x1FF, 0x2FF, 0x3FF

# arguments of a primitive
SRC, SRC_1, DST = 1, 2, 17
WEIGHTS, BIAS = 33, 41
WORKSPACE, SCRATCHPAD = 64, 80
DIFF_SRC, DIFF_DST, DIFF_WEIGHTS, DIFF_BIAS = 129, 145, 161, 169
SCALES = 4096  # SCALES | argument: the factor of an argument
POST_OP = 32768  # POST_OP * (i + 1) | SRC_1: the operand of post-operation i

# dnnl_query_t
QUERY_IMPLEMENTATION = 8
QUERY_MD = {
    SRC: 129, DIFF_SRC: 130, WEIGHTS: 131, DIFF_WEIGHTS: 132, DST: 133, DIFF_DST: 134,
    WORKSPACE: 135, SCRATCHPAD: 136,
}  # fmt: skip
"""Argument -> the query for its memory descriptor."""

STATUS = {
    1: "out of memory", 2: "invalid arguments", 3: "unimplemented", 4: "last implementation reached",
    5: "runtime error", 6: "not required", 7: "invalid graph", 8: "invalid graph op",
    9: "invalid shape", 10: "invalid data type",
}  # fmt: skip

CPU_ISA = {
    0x0: "none in particular", 0x1: "SSE4.1", 0x3: "AVX", 0x7: "AVX2", 0xF: "AVX2, VNNI",
    0x1F: "AVX2, VNNI, 16-bit floats", 0x27: "AVX-512", 0x67: "AVX-512, VNNI", 0xE7: "AVX-512, bfloat16",
    0x1EF: "AVX-512, bfloat16, float16", 0xFEF: "AVX-512, AMX", 0x1FEF: "AVX-512, AMX with float16",
}  # fmt: skip
"""dnnl_cpu_isa_t of 3.2. Each number includes the bits of the sets that it contains."""
