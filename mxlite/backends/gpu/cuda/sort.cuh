// Stable radix sort of indices by 8 bits at a time, the lowest first.
//
// A tile of 2048 pairs (index, original position) belongs to a block, 256 of them to each of its warps, which
// processes them 32 at a time: lanes with the same digit are matched, and their ranks counted. The digits of a tile
// are counted by integers in shared memory, the tiles of a digit are summed by one block.
// D. Merrill and A. Grimshaw, 2011, "High performance and scalable radix sorting".
#pragma once

enum { TILE = 2048, DIGITS = 256, WARPS = 8 };

struct Sort {
    const void *indices;  // for the first pass; later ones read keys and places
    const uint32 *keys, *places;
    uint32 *keys_out, *places_out;
    uint32 *counts;       // count of each digit in each tile: [digit][tile]; after the scan, the offset of its pairs
    int64 length;         // length of the axis, which bounds indices
    uint32 n, tiles;
    int shift, kind, wrap;
};

__device__ __forceinline__ uint32 key_of(const Sort &s, uint32 i) {
    return s.indices ? (uint32)bounded(whole(s.indices, s.kind, i), s.length, s.wrap) : s.keys[i];
}

__device__ __forceinline__ uint32 digit_of(const Sort &s, uint32 key) { return key >> s.shift & (DIGITS - 1); }

extern "C" __global__ void __launch_bounds__(256) sort_count(Sort s) {
    __shared__ uint32 counts[DIGITS];
    counts[threadIdx.x] = 0;
    __syncthreads();
    uint32 begin = blockIdx.x * TILE;
    for (uint32 i = begin + threadIdx.x; i < begin + TILE && i < s.n; i += 256)
        atomicAdd(&counts[digit_of(s, key_of(s, i))], 1u);
    __syncthreads();
    s.counts[threadIdx.x * s.tiles + blockIdx.x] = counts[threadIdx.x];
}

// Exclusive prefix sum in place: over the threads' chunks first, then over all.
extern "C" __global__ void __launch_bounds__(1024) sort_scan(uint32 *counts, uint32 n) {
    __shared__ uint32 sums[1024];
    uint32 each = (n + blockDim.x - 1) / blockDim.x, begin = threadIdx.x * each, end = begin + each;
    if (end > n) end = n;
    uint32 total = 0;
    for (uint32 i = begin; i < end; ++i) total += counts[i];
    sums[threadIdx.x] = total;
    for (uint32 step = 1; step < blockDim.x; step *= 2) {
        __syncthreads();
        uint32 before = threadIdx.x >= step ? sums[threadIdx.x - step] : 0;
        __syncthreads();
        sums[threadIdx.x] += before;
    }
    __syncthreads();
    uint32 before = threadIdx.x ? sums[threadIdx.x - 1] : 0;
    for (uint32 i = begin; i < end; ++i) {
        uint32 count = counts[i];
        counts[i] = before;
        before += count;
    }
}

// Scatters pairs to their positions. If there is a single tile, it is counted here.
extern "C" __global__ void __launch_bounds__(256) sort_move(Sort s) {
    __shared__ uint32 counts[WARPS][DIGITS];
    __shared__ uint32 starts[DIGITS];
    uint32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, begin = blockIdx.x * TILE + warp * (TILE / WARPS);
    for (uint32 w = 0; w < WARPS; ++w) counts[w][threadIdx.x] = 0;
    __syncthreads();
    for (uint32 at = 0; at < TILE / WARPS; at += 32) {
        uint32 i = begin + at + lane;
        if (i < s.n) atomicAdd(&counts[warp][digit_of(s, key_of(s, i))], 1u);
    }
    __syncthreads();
    uint32 total = 0;  // for this thread's digit: the warps' counts become prefix sums
    for (uint32 w = 0; w < WARPS; ++w) {
        uint32 count = counts[w][threadIdx.x];
        counts[w][threadIdx.x] = total;
        total += count;
    }
    if (s.tiles > 1) starts[threadIdx.x] = s.counts[threadIdx.x * s.tiles + blockIdx.x];
    else {
        starts[threadIdx.x] = total;
        for (uint32 step = 1; step < DIGITS; step *= 2) {
            __syncthreads();
            uint32 before = threadIdx.x >= step ? starts[threadIdx.x - step] : 0;
            __syncthreads();
            starts[threadIdx.x] += before;
        }
        starts[threadIdx.x] -= total;
    }
    __syncthreads();
    for (uint32 w = 0; w < WARPS; ++w) counts[w][threadIdx.x] += starts[threadIdx.x];
    __syncthreads();
    for (uint32 at = 0; at < TILE / WARPS; at += 32) {
        uint32 i = begin + at + lane;
        uint32 key = i < s.n ? key_of(s, i) : 0, digit = i < s.n ? digit_of(s, key) : DIGITS;
        uint32 same = __match_any_sync(0xffffffffu, digit), before = __popc(same & ((1u << lane) - 1));
        uint32 to = i < s.n ? counts[warp][digit] + before : 0;
        __syncwarp();
        if (i < s.n) {
            if (!before) counts[warp][digit] += __popc(same);
            s.keys_out[to] = key;
            s.places_out[to] = s.indices ? i : s.places[i];
        }
        __syncwarp();
    }
}
