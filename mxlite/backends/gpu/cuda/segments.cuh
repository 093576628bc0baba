// Sums of rows with the same sorted key: target[key] (+)= sum of source[place] over the places of the key, in
// order. Types: T of the arrays, C of sums; WIDTH elements are read at once.
//
//     sorted keys      3 3 5 5 | 5 5 5 5 | 5 8 8 9        | between chunks
//     chunk 0          writes 3, leaves its 5 as `last`
//     chunk 1          is all 5: leaves it as `first`
//     chunk 2          leaves its 5 as `first`, writes 8 and 9
//     then             last of 0 + first of 1 + first of 2 is written to 5
#pragma once

struct Segments {
    const uint32 *keys, *places;
    const T *source;
    T *target;
    C *first, *last;   // a row of `width` per chunk: sums shared with other chunks
    int64 length;      // rows of the target for each index of the outer axes
    uint32 n, width, chunk;  // pairs, packs of all rows of one index, pairs of a chunk
    Divisor inner;     // packs of a row
    int add, vector;   // add: to the content of the target, else overwrite
};


template <int N> __device__ __forceinline__ void write_row(const Segments &s, uint32 key, uint32 o, uint32 column, C *x) {
    T *into = s.target + ((o * s.length + key) * s.inner.n + column) * N;
    if (s.add) {
        C have[N];
        take<N>(into, s.vector, have);
        #pragma unroll
        for (int e = 0; e < N; ++e) x[e] = have[e] + x[e];
    }
    give<N>(into, s.vector, x);
}

template <int N> __device__ __forceinline__ void keep(C *rows, uint32 chunk, uint32 width, uint32 pack, const C *x) {
    #pragma unroll
    for (int e = 0; e < N; ++e) rows[((int64)chunk * width + pack) * N + e] = x[e];
}

// A chunk for each blockIdx.x, four of its rows loaded at once.
template <int N> __device__ __forceinline__ void add_chunk(const Segments &s) {
    uint32 pack = blockIdx.y * blockDim.x + threadIdx.x;
    uint32 begin = blockIdx.x * s.chunk, end = begin + s.chunk;
    if (pack >= s.width) return;
    if (end > s.n) end = s.n;
    uint32 o = pack / s.inner, column = pack - o * s.inner.n;
    const T *source = s.source + ((int64)o * s.n * s.inner.n + column) * N;
    bool open = begin > 0 && s.keys[begin - 1] == s.keys[begin];  // the run began in an earlier chunk
    uint32 key = s.keys[begin];
    C total[N];
    #pragma unroll
    for (int e = 0; e < N; ++e) total[e] = 0;
    for (uint32 i = begin; i < end; i += 4) {
        C rows[4][N];
        uint32 keys[4];
        #pragma unroll
        for (int u = 0; u < 4; ++u)
            if (i + u < end) {
                keys[u] = s.keys[i + u];
                take<N>(source + (int64)s.places[i + u] * s.inner.n * N, s.vector, rows[u]);
            }
        #pragma unroll
        for (int u = 0; u < 4; ++u)
            if (i + u < end) {
                if (keys[u] != key) {
                    if (open) keep<N>(s.first, blockIdx.x, s.width, pack, total);
                    else write_row<N>(s, key, o, column, total);
                    open = false;
                    key = keys[u];
                    #pragma unroll
                    for (int e = 0; e < N; ++e) total[e] = 0;
                }
                #pragma unroll
                for (int e = 0; e < N; ++e) total[e] += rows[u][e];
            }
    }
    if (open) keep<N>(s.first, blockIdx.x, s.width, pack, total);
    else if (end < s.n && s.keys[end] == key) keep<N>(s.last, blockIdx.x, s.width, pack, total);
    else write_row<N>(s, key, o, column, total);
}

// The run that begins in a chunk and extends to the next.
template <int N> __device__ __forceinline__ void add_across(const Segments &s) {
    uint32 pack = blockIdx.y * blockDim.x + threadIdx.x, chunk = blockIdx.x;
    uint32 begin = chunk * s.chunk, end = begin + s.chunk;
    if (pack >= s.width || end >= s.n) return;
    uint32 key = s.keys[end];
    bool began_before = begin > 0 && s.keys[begin - 1] == key;
    if (s.keys[end - 1] != key || began_before) return;
    uint32 o = pack / s.inner, column = pack - o * s.inner.n;
    C total[N];
    #pragma unroll
    for (int e = 0; e < N; ++e) total[e] = s.last[((int64)chunk * s.width + pack) * N + e];
    for (uint32 next = chunk + 1; next * s.chunk < s.n && s.keys[next * s.chunk] == key; ++next) {
        #pragma unroll
        for (int e = 0; e < N; ++e) total[e] += s.first[((int64)next * s.width + pack) * N + e];
    }
    write_row<N>(s, key, o, column, total);
}

extern "C" __global__ void __launch_bounds__(256) add_chunk_wide(Segments s) { add_chunk<WIDTH>(s); }

extern "C" __global__ void __launch_bounds__(256) add_chunk_single(Segments s) { add_chunk<1>(s); }

extern "C" __global__ void __launch_bounds__(256) add_across_wide(Segments s) { add_across<WIDTH>(s); }

extern "C" __global__ void __launch_bounds__(256) add_across_single(Segments s) { add_across<1>(s); }
