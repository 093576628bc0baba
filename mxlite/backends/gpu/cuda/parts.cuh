// Selection of parts of arrays: sequences by their lengths, triangles of matrices. U is an unsigned type of the
// element's size: 1, 2, 4 or 8 bytes.
#pragma once

// Data of (T, B, rest), or (B, T, rest) if the samples come first; `lengths` has B numbers, or is absent.
struct Sequences {
    const void *data, *lengths;
    void *out;
    uint64 value;
    int steps, samples, rest, kind, samples_first;
};

__device__ __forceinline__ int64 length_of(const Sequences &s, int sample) {
    return s.lengths ? whole(s.lengths, s.kind, sample) : s.steps;
}

__device__ __forceinline__ int64 place_of(const Sequences &s, int64 step, int sample) {
    return s.samples_first ? sample * (int64)s.steps + step : step * s.samples + sample;
}

template <typename U> __device__ __forceinline__ void masked(int64 n, const Sequences &s) {
    MX_EACH(at, n) {
        uint32 row = (uint32)at / s.rest;
        int step = s.samples_first ? row % s.steps : row / s.samples;
        int sample = s.samples_first ? row / s.steps : row % s.samples;
        ((U *)s.out)[at] = step >= length_of(s, sample) ? (U)s.value : ((const U *)s.data)[at];
    }
}

// out[sample] = the last element of its sequence
template <typename U> __device__ __forceinline__ void last_of(int64 n, const Sequences &s) {
    MX_EACH(at, n) {
        int sample = (uint32)at / s.rest, column = (uint32)at % s.rest;
        int64 length = length_of(s, sample);
        if (length > s.steps) length = s.steps;
        int64 from = length < 1 ? 0 : place_of(s, length - 1, sample) * s.rest + column;
        ((U *)s.out)[at] = length < 1 ? U(0) : ((const U *)s.data)[from];
    }
}

// The gradient: data has the samples' last elements, out all.
template <typename U> __device__ __forceinline__ void to_last(int64 n, const Sequences &s) {
    MX_EACH(at, n) {
        uint32 row = (uint32)at / s.rest, column = (uint32)at - row * s.rest;
        int step = s.samples_first ? row % s.steps : row / s.samples;
        int sample = s.samples_first ? row / s.steps : row % s.samples;
        int64 length = length_of(s, sample);
        bool is_last = step + 1 == length || (step + 1 == s.steps && length > s.steps);
        ((U *)s.out)[at] = is_last ? ((const U *)s.data)[(int64)sample * s.rest + column] : U(0);
    }
}

template <typename U> __device__ __forceinline__ void turned(int64 n, const Sequences &s) {
    MX_EACH(at, n) {
        uint32 row = (uint32)at / s.rest, column = (uint32)at - row * s.rest;
        int step = s.samples_first ? row % s.steps : row / s.samples;
        int sample = s.samples_first ? row / s.steps : row % s.samples;
        int64 length = length_of(s, sample);
        if (length > s.steps) length = s.steps;
        int64 from = step < length ? length - 1 - step : step;
        ((U *)s.out)[at] = ((const U *)s.data)[place_of(s, from, sample) * s.rest + column];
    }
}

// Matrices of which one side of the diagonal k is kept.
template <typename U>
__device__ __forceinline__ void triangle(int64 n, const U *data, U *out, int rows, int columns, int k, int lower) {
    MX_EACH(at, n) {
        int64 j = (uint32)at % columns, i = (uint32)at / columns % rows;
        out[at] = (lower ? j <= i + k : j >= i + k) ? data[at] : U(0);
    }
}
