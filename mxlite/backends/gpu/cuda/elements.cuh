// Packs of V elements of type T; accessed element by element if not ALIGNED.
#pragma once

typedef Pack<T, V> Elements;

__device__ __forceinline__ Elements load(const T *x, int64 at) {
#if ALIGNED
    return *(const Elements *)(x + at);
#else
    Elements found;
    for (int e = 0; e < V; ++e) found.at[e] = x[at + e];
    return found;
#endif
}
__device__ __forceinline__ void store(T *y, int64 at, const Elements &x) {
#if ALIGNED
    *(Elements *)(y + at) = x;
#else
    for (int e = 0; e < V; ++e) y[at + e] = x.at[e];
#endif
}
