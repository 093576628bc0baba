// What the kernels of loop nests call: lengths, places, and reductions by threads that have neighbouring columns.
#pragma once

struct Product {
    template <typename N> __device__ __forceinline__ N operator()(N a, N b) const { return a * b; }
};

struct Smallest {
    template <typename N> __device__ __forceinline__ N operator()(N a, N b) const { return mx_min(a, b); }
};

__device__ __forceinline__ uint32 count(const Divisor &n) { return n.n; }
__device__ __forceinline__ int64 count(int64 n) { return n; }

// An index, which is a whole number; a nan counts as 0.
template <typename N> __device__ __forceinline__ int64 place(N x) { return x == x ? (int64)x : 0; }

// The join of x over threadIdx.y, in its order. room: a number for each thread of the block.
template <typename F, typename N> __device__ __forceinline__ N of_columns(N x, F f, N *room) {
    __syncthreads();  // the previous content may still be read
    room[threadIdx.y * blockDim.x + threadIdx.x] = x;
    __syncthreads();
    x = room[threadIdx.x];
    for (uint32 y = 1; y < blockDim.y; ++y) x = f(x, room[y * blockDim.x + threadIdx.x]);
    return x;
}
