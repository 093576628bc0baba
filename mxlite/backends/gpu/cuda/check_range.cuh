// Indices that have to be in a range.
#pragma once

// One block: where not all indices are in [begin, end), the least and the most of them.
extern "C" __global__ void __launch_bounds__(1024) check_range(
    const void *indices, uint64 *slot, int64 n, int64 begin, int64 end, int kind) {
    __shared__ int64 room[2][32];
    int64 least = end, most = begin - 1;
    bool any = false;
    for (int64 i = threadIdx.x; i < n; i += blockDim.x) {
        int64 k = whole(indices, kind, i);
        least = any && least < k ? least : k;
        most = any && most > k ? most : k;
        any = true;
    }
    if (!any) {
        least = whole(indices, kind, 0);
        most = least;
    }
    for (int by = 16; by; by /= 2) {
        int64 low = __shfl_xor_sync(0xffffffffu, least, by), high = __shfl_xor_sync(0xffffffffu, most, by);
        least = low < least ? low : least;
        most = high > most ? high : most;
    }
    if (threadIdx.x % 32 == 0) {
        room[0][threadIdx.x / 32] = least;
        room[1][threadIdx.x / 32] = most;
    }
    __syncthreads();
    if (threadIdx.x) return;
    for (int w = 1; w < (int)blockDim.x / 32; ++w) {
        least = room[0][w] < least ? room[0][w] : least;
        most = room[1][w] > most ? room[1][w] : most;
    }
    if ((least < begin || most >= end) && slot[0]) {
        slot[0] = 0;
        slot[1] = (uint64)least;
        slot[2] = (uint64)most;
    }
}
