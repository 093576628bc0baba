// Random integers; see random.cuh.
#pragma once

// An integer below `span`, which is at most 2^32: the upper half of bits * span.
extern "C" __global__ void __launch_bounds__(256) below(
    T *out, int64 size, const uint64 *state, uint32 stream, uint64 span, uint64 low) {
    EACH_NUMBER(at, e, bits) out[at * 4 + e] = (T)(((uint64)bits.at[e] * span >> 32) + low);
}

// The same for a larger `span`: 64 random bits modulo `span`.
extern "C" __global__ void __launch_bounds__(256) below_wide(
    T *out, int64 size, const uint64 *state, uint32 stream, uint64 span, uint64 low) {
    MX_EACH(at, (size + 1) / 2) {
        Four bits = drawn(state, stream, at);
        _Pragma("unroll") for (int e = 0; e < 2; ++e) {
            uint64 number = (uint64)bits.at[2 * e + 1] << 32 | bits.at[2 * e];
            if (at * 2 + e < size) out[at * 2 + e] = (T)(number % span + low);
        }
    }
}
