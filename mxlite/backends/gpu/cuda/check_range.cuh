// Range checks of indices.
#pragma once

struct Extremes {
    int64 least, most;

    __device__ __forceinline__ void take(int64 low, int64 high) {
        least = low < least ? low : least;
        most = high > most ? high : most;
    }
};

// Total over the threads of a block of whole warps, in thread 0.
__device__ __forceinline__ Extremes of_block(Extremes mine) {
    __shared__ Extremes room[32];
    for (int by = 16; by; by /= 2)
        mine.take(__shfl_xor_sync(0xffffffffu, mine.least, by), __shfl_xor_sync(0xffffffffu, mine.most, by));
    if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = mine;
    __syncthreads();
    if (threadIdx.x == 0)
        for (int w = 1; w < (int)blockDim.x / 32; ++w) mine.take(room[w].least, room[w].most);
    return mine;
}

// Minimum and maximum of all indices that a block reads; n > 0.
__device__ __forceinline__ Extremes of_indices(const void *indices, int64 n, int kind) {
    Extremes mine = {whole(indices, kind, 0), whole(indices, kind, 0)};
    MX_EACH(i, n) {
        int64 k = whole(indices, kind, i);
        mine.take(k, k);
    }
    return of_block(mine);
}

__device__ __forceinline__ void noted(const Extremes &found, uint64 *slot, int64 begin, int64 end) {
    if ((found.least < begin || found.most >= end) && slot[0]) {
        slot[0] = 0;
        slot[1] = (uint64)found.least;
        slot[2] = (uint64)found.most;
    }
}

// One block: records the minimum and maximum if not all indices are in [begin, end).
extern "C" __global__ void __launch_bounds__(1024) check_range(
    const void *indices, uint64 *slot, int64 n, int64 begin, int64 end, int kind) {
    Extremes found = of_indices(indices, n, kind);
    if (threadIdx.x == 0) noted(found, slot, begin, end);
}

// Many blocks, each with its own minimum and maximum, for `check_parts`.
extern "C" __global__ void __launch_bounds__(256) range_parts(
    const void *indices, Extremes *parts, int64 n, int kind) {
    Extremes found = of_indices(indices, n, kind);
    if (threadIdx.x == 0) parts[blockIdx.x] = found;
}

// One block: check_range, from the parts' minima and maxima.
extern "C" __global__ void __launch_bounds__(256) check_parts(
    const Extremes *parts, uint64 *slot, int count, int64 begin, int64 end) {
    Extremes mine = parts[0];
    for (int i = threadIdx.x; i < count; i += blockDim.x) mine.take(parts[i].least, parts[i].most);
    Extremes found = of_block(mine);
    if (threadIdx.x == 0) noted(found, slot, begin, end);
}
