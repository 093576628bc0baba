// Philox4x32-10, bit by bit that of mxlite/ops/random/philox.py, where its source is named.
//
//     counter = (block, stream, step low, step high)      key = (seed low, seed high)
//
// `state` is [seed, step] in device memory, read when a kernel runs: so each replay of a captured step draws anew.
#pragma once

struct Four {
    uint32 at[4];
};

__device__ __forceinline__ Four philox(uint32 block, uint32 stream, uint64 step, uint64 seed) {
    uint32 c0 = block, c1 = stream, c2 = (uint32)step, c3 = (uint32)(step >> 32);
    uint32 k0 = (uint32)seed, k1 = (uint32)(seed >> 32);
    _Pragma("unroll") for (int round = 0; round < 10; ++round) {
        uint32 high0 = __umulhi(0xD2511F53u, c0), low0 = 0xD2511F53u * c0;
        uint32 high1 = __umulhi(0xCD9E8D57u, c2), low1 = 0xCD9E8D57u * c2;
        c0 = high1 ^ c1 ^ k0;
        c1 = low1;
        c2 = high0 ^ c3 ^ k1;
        c3 = low0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    Four found = {{c0, c1, c2, c3}};
    return found;
}

// Numbers [4 * block, 4 * block + 4) of a stream.
__device__ __forceinline__ Four drawn(const uint64 *state, uint32 stream, int64 block) {
    return philox((uint32)block, stream, state[1], state[0]);
}

// A number in [0, 1) from the upper 24 bits.
__device__ __forceinline__ float uniform24(uint32 bits) { return (float)(int)(bits >> 8) * 5.9604644775390625e-8f; }
