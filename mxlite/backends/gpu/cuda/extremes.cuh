// Mask of the elements that are their group's maximum or minimum, or nan, one bit each (the first in the most
// significant bit of a byte); and index of the first one. Types: T of the arrays, C to compute with.
#pragma once

struct Axes {
    Divisor lengths[6];
    int64 strides[6];  // of the reduced array, 0 along axes that it lacks
};

__device__ __forceinline__ int64 reduced(const Axes &axes, uint32 at) {
    int64 where = 0;
    for (int i = 5; at; --i) {
        uint32 rest = at / axes.lengths[i];
        where += (int64)(at - rest * axes.lengths[i].n) * axes.strides[i];
        at = rest;
    }
    return where;
}

extern "C" __global__ void __launch_bounds__(256) bits_of_equals(
    const T *data, const T *kept, uint8 *bits, int64 n, const __grid_constant__ Axes axes) {
    MX_EACH(byte, (n + 7) / 8) {
        int made = 0;
        for (int e = 0; e < 8; ++e) {
            int64 at = byte * 8 + e;
            if (at >= n) continue;
            C x = to<C>(data[at]);
            if (x != x || x == to<C>(kept[reduced(axes, (uint32)at)])) made |= 128 >> e;
        }
        bits[byte] = (uint8)made;
    }
}

// The bits as 0 and 1, times the reduced array if there is one.
extern "C" __global__ void __launch_bounds__(256) numbers_of_bits(
    const uint8 *bits, const T *kept, T *out, int64 n, const __grid_constant__ Axes axes) {
    MX_EACH(at, n) {
        C x = bits[at / 8] >> (7 - at % 8) & 1 ? C(1) : C(0);
        out[at] = from<T>(kept ? x * to<C>(kept[reduced(axes, (uint32)at)]) : x);
    }
}

// True if element a at i comes before b at j: nan first, then the larger (or smaller), then the lower index.
__device__ __forceinline__ bool ahead(C a, int64 i, C b, int64 j, int smallest) {
    bool wild = a != a, other = b != b;
    if (wild != other) return wild;
    if (!wild && a != b) return smallest ? a < b : a > b;
    return i < j;
}

struct Positions {
    const T *data;
    T *out;           // result if there is only one chunk
    C *values;        // otherwise the best of each chunk
    int64 *places;
    uint32 lines, length, stretch;
    Divisor inner;
    int smallest, across;  // across: threadIdx.x counts neighbouring lines, else it shares one
};

// The best of a line: threads of a block, a power of two of them, read it with a stride, then a tree reduction
// keeps the better of each two.
extern "C" __global__ void __launch_bounds__(256) extreme_positions(Positions s) {
    __shared__ C values[256];
    __shared__ int64 places[256];
    uint32 own = threadIdx.y * blockDim.x + threadIdx.x;
    uint32 column = s.across ? threadIdx.x : threadIdx.y, share = s.across ? threadIdx.y : threadIdx.x;
    uint32 width = s.across ? blockDim.x : blockDim.y, shares = s.across ? blockDim.y : blockDim.x;
    int64 line = (int64)blockIdx.x * width + column;
    bool there = line < s.lines;
    uint32 n = there ? (uint32)line / s.inner : 0;
    const T *x = s.data + (int64)n * s.length * s.inner.n + (line - (int64)n * s.inner.n);
    uint32 begin = blockIdx.y * s.stretch, end = begin + s.stretch;
    if (end > s.length) end = s.length;
    C best = 0;
    int64 place = -1;
    for (uint32 k = begin + share; there && k < end; k += shares) {
        C v = to<C>(x[(int64)k * s.inner.n]);
        if (place < 0 || ahead(v, k, best, place, s.smallest)) {
            best = v;
            place = k;
        }
    }
    values[own] = best;
    places[own] = place;
    for (uint32 half = shares / 2; half; half /= 2) {
        __syncthreads();
        if (share >= half) continue;
        uint32 other = own + half * (s.across ? blockDim.x : 1);
        if (places[other] >= 0 && (place < 0 || ahead(values[other], places[other], best, place, s.smallest))) {
            values[own] = best = values[other];
            places[own] = place = places[other];
        }
    }
    if (!there || share) return;
    if (gridDim.y == 1) s.out[line] = from<T>((C)place);
    else {
        s.values[(int64)blockIdx.y * s.lines + line] = best;
        s.places[(int64)blockIdx.y * s.lines + line] = place;
    }
}

// The best of the chunks.
extern "C" __global__ void __launch_bounds__(256) best_positions(Positions s, int stretches) {
    MX_EACH(line, s.lines) {
        C best = s.values[line];
        int64 place = s.places[line];
        for (int i = 1; i < stretches; ++i) {
            int64 at = i * (int64)s.lines + line;
            if (ahead(s.values[at], s.places[at], best, place, s.smallest)) {
                best = s.values[at];
                place = s.places[at];
            }
        }
        s.out[line] = from<T>((C)place);
    }
}
