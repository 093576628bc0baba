// Arrays of random numbers: those of mxlite/ops/random/random.py. T is the type of the array, BITS the number of the
// 32 random bits that a uniform number of this type uses.
#pragma once

// Number e of the four of block `at`, for e = 0 ... 3.
#define EACH_NUMBER(at, e, bits)                               \
    MX_EACH(at, (size + 3) / 4)                                \
    if (Four bits = drawn(state, stream, at); true)            \
        _Pragma("unroll") for (int e = 0; e < 4; ++e) if (at * 4 + e < size)

__device__ __forceinline__ double wide_uniform24(uint32 bits) { return (double)(int)(bits >> 8) * 5.9604644775390625e-8; }
