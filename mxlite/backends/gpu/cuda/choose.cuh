// Selection of one element along an axis for each index of the others. Arrays are (outer, length, inner), the selection
// is (outer, inner); elements are copied unchanged, as units of 1, 2, 4 or 8 bytes.
#pragma once

enum { CLIP, WRAP };

struct Choose {
    const void *data, *chosen, *indices;
    void *out;
    int64 n;  // number of elements to write
    Divisor inner, length;
    int kind, mode;
};

__device__ __forceinline__ int64 index_of(const Choose &s, int64 at) {
    return bounded(whole(s.indices, s.kind, at), s.length.n, s.mode == WRAP);
}

// out[o, i] = data[o, index[o, i], i]
template <typename U> __device__ __forceinline__ void picked(const Choose &s) {
    MX_EACH(at, s.n) {
        uint32 o = (uint32)at / s.inner, i = (uint32)at - o * s.inner.n;
        int64 from = ((int64)o * s.length.n + index_of(s, at)) * s.inner.n + i;
        ((U *)s.out)[at] = ((const U *)s.data)[from];
    }
}

// out[o, k, i] = chosen[o, i] where k is index[o, i], elsewhere data[o, k, i], or 0 if there is none
template <typename U> __device__ __forceinline__ void replaced(const Choose &s) {
    MX_EACH(at, s.n) {
        uint32 row = (uint32)at / s.inner, i = (uint32)at - row * s.inner.n;
        uint32 o = row / s.length, k = row - o * s.length.n;
        int64 which = (int64)o * s.inner.n + i;
        U x = s.data ? ((const U *)s.data)[at] : U(0);
        ((U *)s.out)[at] = index_of(s, which) == k ? ((const U *)s.chosen)[which] : x;
    }
}
