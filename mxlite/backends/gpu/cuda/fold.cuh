// Reductions (sum, product, maximum, minimum) over any axes of an expression of one or two broadcast arrays.
//
//     out[k] = finish(combine over f of map(x[k, f], y[k, f]))
//
// k stands for up to three kept axes, f for up to three reduced ones. Types: T of the arrays, C to compute with; WIDTH
// elements are read at once. map, combine and finish are given as numbers: the branch is the same for all threads,
// and is taken once per pack of 16 bytes. blockIdx.y is one of several chunks of f, each with its own result, if
// there are few results and many inputs.
#pragma once

enum { SAME, SQUARE, SIZE, KNOWN_OR_0, KNOWN_OR_1, TRUTH, ABOVE, POWER, SPREAD, PRODUCT };
enum { ADD, MULTIPLY, LARGEST, SMALLEST };
enum { PLAIN, DIVIDED, ROOT, LOGARITHM, NEGATED, TRUE_OR_NOT, FINITE };

struct Operand {
    const T *at;
    int64 kept[3], folded[3];  // strides in elements along each axis, 0 where it is broadcast
};

struct Fold {
    Operand x, y;    // y may be absent; x is never broadcast
    const C *shift;  // a number for each result, or none
    void *out;
    double number;
    uint32 outputs, length, stretch, group;  // length and chunk of f, in packs if f has the last axis
    Divisor kept1, kept2, folded1, folded2;  // lengths of all axes but the first; the last one in packs
    int kind, map, combine, finish, vector, simple;  // simple: x alone, and one reduced axis
};

struct Combine {
    int how;
    __device__ __forceinline__ C operator()(C a, C b) const {
        switch (how) {
#ifdef WHOLE
            case ADD: return (C)((uint64)a + (uint64)b);
            case MULTIPLY: return (C)((uint64)a * (uint64)b);
            case LARGEST: return a > b ? a : b;
            default: return a < b ? a : b;
#else
            case ADD: return a + b;
            case MULTIPLY: return a * b;
            // nan is handled by a separate branch: otherwise registers are spilled around the division
            case LARGEST: if (b != b) return b; return mx_max(a, b);
            default: if (b != b) return b; return mx_min(a, b);
#endif
        }
    }
    template <int N> __device__ __forceinline__ void into(C *a, const C *b) const {
        #pragma unroll
        for (int e = 0; e < N; ++e) a[e] = (*this)(a[e], b[e]);
    }
    __device__ __forceinline__ C of_nothing() const {
#ifdef WHOLE
        const C most = (C)(~0ull >> 1);
        return how == ADD ? 0 : how == MULTIPLY ? 1 : how == LARGEST ? -most - 1 : most;
#else
        return how == ADD ? C(0) : how == MULTIPLY ? C(1) : how == LARGEST ? -infinity<C>() : infinity<C>();
#endif
    }
};

#define MX_PACK(expression)                         \
    _Pragma("unroll") for (int e = 0; e < N; ++e) { \
        C a = x[e], b = y[e];                       \
        x[e] = (expression);                        \
        (void)a, (void)b;                           \
    }                                               \
    break

template <int N> __device__ __forceinline__ void mapped(const Fold &f, C *x, const C *y, C shift) {
    switch (f.map) {
        case SAME: break;
        case TRUTH: MX_PACK(a != C(0) ? C(1) : C(0));
#ifndef WHOLE
        case SQUARE: MX_PACK(a * a);
        case SIZE: MX_PACK(mx_abs(a));
        case KNOWN_OR_0: MX_PACK(a != a ? C(0) : a);
        case KNOWN_OR_1: MX_PACK(a != a ? C(1) : a);
        case ABOVE: MX_PACK(a > (C)f.number ? C(1) : C(0));
        case POWER: MX_PACK(mx_exp(a - shift));
        case SPREAD: MX_PACK((a - shift) * (a - shift));
        case PRODUCT: MX_PACK(a * b);
#endif
    }
}

__device__ __forceinline__ void finished(const Fold &f, int64 at, C total, C shift) {
    switch (f.finish) {
#ifdef WHOLE
        case DIVIDED:
            if (f.kind == INT8) total = (signed char)total;
            else if (f.kind == UINT8) total = (uint8)total;
            else if (f.kind == INT32) total = (int)total;
            total = cut((double)total / f.number);
            break;
#else
        case DIVIDED: total /= (C)f.number; break;
        case ROOT: total = mx_sqrt(total); break;
        case LOGARITHM: total = mx_log(total) + shift; break;
        case NEGATED: total = -total; break;
        case FINITE: total = mx_abs(total) == infinity<C>() ? C(0) : total; break;
#endif
        case TRUE_OR_NOT: total = total != C(0) ? C(1) : C(0); break;
    }
    put(f.out, f.kind, at, total);
}

struct Place { uint32 first, second, third; };

__device__ __forceinline__ Place place(uint32 i, const Divisor &second, const Divisor &third) {
    uint32 rest = i / third;
    Place p;
    p.third = i - rest * third.n;
    p.first = rest / second;
    p.second = rest - p.first * second.n;
    return p;
}

__device__ __forceinline__ int64 offset(const int64 *strides, const Place &p, int width) {
    return p.first * strides[0] + p.second * strides[1] + (int64)p.third * width * strides[2];
}

// N elements that follow each other, or N times one.
template <int N> __device__ __forceinline__ void elements(const T *at, int64 inner, int vector, C *x) {
    if (inner) take<N>(at, vector, x);
    else {
        C one = to<C>(*at);
        #pragma unroll
        for (int e = 0; e < N; ++e) x[e] = one;
    }
}

// One pack of the expression, `width` of its elements along the last axis of f.
template <int N>
__device__ __forceinline__ void pack_of(const Fold &f, const int64 *start, uint32 i, int width, int columns, C shift,
                                        C *x) {
    C y[N];
    Place p = {0, 0, i};
    if (!f.simple) p = place(i, f.folded1, f.folded2);
    take<N>(f.x.at + start[0] + offset(f.x.folded, p, width), f.vector, x);
    if (f.y.at) {
        const T *at = f.y.at + start[1] + offset(f.y.folded, p, width);
        elements<N>(at, columns ? f.y.kept[2] : f.y.folded[2], f.vector, y);
    }
    mapped<N>(f, x, y, shift);
}

// Packs i, i + step, ... below `end`, combined into `total` one after another; for sums and sums of squares, the most
// frequent cases, four are loaded at once.
template <int N>
__device__ __forceinline__ void folded(const Fold &f, const int64 *start, uint32 i, uint32 end, uint32 step, int width,
                                       int columns, C shift, C *total) {
    const Combine combine = {f.combine}, add = {ADD};
    if (f.simple && f.combine == ADD && f.map <= SQUARE)
        for (; i + 3 * step < end; i += 4 * step) {
            C x[4][N];
            #pragma unroll
            for (int u = 0; u < 4; ++u)
                take<N>(f.x.at + start[0] + (int64)(i + u * step) * width * f.x.folded[2], f.vector, x[u]);
            #pragma unroll
            for (int u = 0; u < 4; ++u) {
                #pragma unroll
                for (int e = 0; e < N; ++e) total[e] = add(total[e], f.map ? x[u][e] * x[u][e] : x[u][e]);
            }
        }
    for (; i < end; i += step) {
        C x[N];
        pack_of<N>(f, start, i, width, columns, shift, x);
        combine.into<N>(total, x);
    }
}

__device__ __forceinline__ void starts(const Fold &f, uint32 output, int width, int64 *start) {
    Place p = place(output, f.kept1, f.kept2);
    start[0] = offset(f.x.kept, p, width);
    start[1] = offset(f.y.kept, p, width);
}

// The last axis is reduced: a group of threads for each result.
template <int N> __device__ __forceinline__ void fold_lines(const Fold &f) {
    __shared__ C room[32];
    uint32 lane = threadIdx.x % f.group;
    int64 output = (int64)blockIdx.x * (blockDim.x / f.group) + threadIdx.x / f.group;
    bool there = output < f.outputs;
    uint32 begin = blockIdx.y * f.stretch, end = begin + f.stretch;
    if (end > f.length) end = f.length;
    Combine combine = {f.combine};
    C total[N], shift = 0;
    #pragma unroll
    for (int e = 0; e < N; ++e) total[e] = combine.of_nothing();
    if (there) {
        int64 start[2];
        starts(f, (uint32)output, 1, start);
        if (f.shift) shift = f.shift[output];
        folded<N>(f, start, begin + lane, end, f.group, N, 0, shift, total);
    }
    #pragma unroll
    for (int e = 1; e < N; ++e) total[0] = combine(total[0], total[e]);
    C whole = of_group(total[0], f.group, combine, room);
    if (there && lane == 0) finished(f, (int64)blockIdx.y * f.outputs + output, whole, shift);
}

// The last axis is kept: a thread has N neighbouring results, threadIdx.y shares the reduced axes.
template <int N> __device__ __forceinline__ void fold_columns(const Fold &f) {
    __shared__ C room[256 * N];
    uint32 pack = blockIdx.x * blockDim.x + threadIdx.x, packs = f.outputs / N;
    bool there = pack < packs;
    uint32 begin = blockIdx.y * f.stretch, end = begin + f.stretch;
    if (end > f.length) end = f.length;
    Combine combine = {f.combine};
    C total[N];
    #pragma unroll
    for (int e = 0; e < N; ++e) total[e] = combine.of_nothing();
    if (there) {
        int64 start[2];
        starts(f, pack, N, start);
        C shift = f.shift ? f.shift[pack] : C(0);
        folded<N>(f, start, begin + threadIdx.y, end, blockDim.y, 1, 1, shift, total);
    }
    #pragma unroll
    for (int e = 0; e < N; ++e) room[(threadIdx.y * blockDim.x + threadIdx.x) * N + e] = total[e];
    __syncthreads();
    if (!there || threadIdx.y) return;
    for (uint32 y = 1; y < blockDim.y; ++y) combine.into<N>(total, room + (y * blockDim.x + threadIdx.x) * N);
    #pragma unroll
    for (int e = 0; e < N; ++e) {
        int64 at = (int64)pack * N + e;
        finished(f, (int64)blockIdx.y * f.outputs + at, total[e], f.shift ? f.shift[at] : C(0));
    }
}

extern "C" __global__ void __launch_bounds__(256) fold_lines_wide(Fold f) { fold_lines<WIDTH>(f); }

extern "C" __global__ void __launch_bounds__(256) fold_lines_single(Fold f) { fold_lines<1>(f); }

extern "C" __global__ void __launch_bounds__(256) fold_columns_wide(Fold f) { fold_columns<WIDTH>(f); }

extern "C" __global__ void __launch_bounds__(256) fold_columns_single(Fold f) { fold_columns<1>(f); }
