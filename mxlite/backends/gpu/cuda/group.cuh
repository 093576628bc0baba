// Reductions over several threads. A group is 1, 2, 4, ..., 32 neighbours of a warp, or a whole block of full
// warps. The order is fixed, and every thread of the group gets the same bits.
#pragma once

struct Sum {
    template <typename C> __device__ __forceinline__ C operator()(C a, C b) const { return a + b; }
};

struct Largest {
    template <typename C> __device__ __forceinline__ C operator()(C a, C b) const { return mx_max(a, b); }
};

template <typename C> __device__ __forceinline__ C infinity() { return (C)bits_to_float(0x7f800000); }

// room: 32 numbers of shared memory, the same at each call.
template <typename F, typename C> __device__ __forceinline__ C of_group(C x, uint32 group, F f, C *room) {
    for (uint32 d = (group < 32 ? group : 32) >> 1; d; d >>= 1) {
        C other = __shfl_xor_sync(0xffffffffu, x, (int)d);
        x = f(x, other);
    }
    if (group > 32) {
        __syncthreads();  // the previous content may still be read
        if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = x;
        __syncthreads();
        x = room[0];
        for (uint32 w = 1; w < blockDim.x / 32; ++w) x = f(x, room[w]);
    }
    return x;
}

// N elements as numbers: one instruction if they are aligned to their size.
template <int N, typename C, typename T> __device__ __forceinline__ void take(const T *from, int vector, C *x) {
    if (vector) {
        Pack<T, N> pack = *(const Pack<T, N> *)from;
        #pragma unroll
        for (int e = 0; e < N; ++e) x[e] = to<C>(pack.at[e]);
    } else {
        #pragma unroll
        for (int e = 0; e < N; ++e) x[e] = to<C>(from[e]);
    }
}

template <int N, typename C, typename T> __device__ __forceinline__ void give(T *into, int vector, const C *x) {
    if (vector) {
        Pack<T, N> pack;
        #pragma unroll
        for (int e = 0; e < N; ++e) pack.at[e] = from<T>(x[e]);
        *(Pack<T, N> *)into = pack;
    } else {
        #pragma unroll
        for (int e = 0; e < N; ++e) into[e] = from<T>(x[e]);
    }
}
