// Common parts of LAMB's kernels (see kernels/optim/lamb.py): sums over the threads of a block, and a layer's factor.
#pragma once

#define WARPS (THREADS / 32)

// The sums of a and of b over all threads, known to each; always added in the same order. Ends with a
// barrier before shared memory may be overwritten.
__device__ __forceinline__ void block_sums(double &a, double &b) {
    __shared__ double kept[2 * WARPS];
    for (int by = 16; by; by /= 2) {
        a += __shfl_xor_sync(0xffffffffu, a, by);
        b += __shfl_xor_sync(0xffffffffu, b, by);
    }
    if (threadIdx.x % 32 == 0) {
        kept[threadIdx.x / 32] = a;
        kept[WARPS + threadIdx.x / 32] = b;
    }
    __syncthreads();
    a = b = 0;
    for (int w = 0; w < WARPS; ++w) {
        a += kept[w];
        b += kept[WARPS + w];
    }
}

// |weight| / |direction|, the first clamped to nonnegative bounds; 1 if one of both is 0.
__device__ __forceinline__ double layer_ratio(double weight, double direction, double lower, double upper) {
    if (lower >= 0) weight = weight < lower ? lower : weight;
    if (upper >= 0) weight = weight > upper ? upper : weight;
    return weight != 0 && direction != 0 ? weight / direction : 1.0;
}
