// Random numbers as mxlite/ops/philox.py draws them, bit for bit: number `at` of a stream in a step.
#pragma once

struct Words { uint32 at[4]; };

// Ten rounds of Philox4x32 on the counter (block, stream, step low, step high). state: seed and step.
__device__ __forceinline__ Words philox(const uint64 *state, uint32 stream, uint32 block) {
    uint64 seed = state[0], step = state[1];
    uint32 c0 = block, c1 = stream, c2 = (uint32)step, c3 = (uint32)(step >> 32);
    uint32 k0 = (uint32)seed, k1 = (uint32)(seed >> 32);
    #pragma unroll
    for (int round = 0; round < 10; ++round) {
        uint32 high0 = __umulhi(0xD2511F53u, c0), low0 = 0xD2511F53u * c0;
        uint32 high1 = __umulhi(0xCD9E8D57u, c2), low1 = 0xCD9E8D57u * c2;
        c0 = high1 ^ c1 ^ k0;
        c1 = low1;
        c2 = high0 ^ c3 ^ k1;
        c3 = low0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return {{c0, c1, c2, c3}};
}

// In [0, 1), of 24 bits.
__device__ __forceinline__ float uniform24(uint32 word) { return (float)(word >> 8) * 5.9604644775390625e-8f; }
