// Gradient of SoftmaxOutput, element by element: the label's class is treated separately from the others.
// T is the arrays' type, C that of computation. Data is (N, K, P); WIDTH elements of the last axis are read at once.
#pragma once

struct ClassGradient {
    const T *out, *head;
    T *d_data;
    const void *label;
    const uint32 *counts;  // number of valid labels in each part, whose sum is the divisor, if there are parts
    int64 packs;
    double scale, spread, own, ignored;
    Divisor last, length;  // packs of the last axis; classes
    int label_kind, use_ignore, across, parts, vector;
};

__device__ __forceinline__ C gradient_of(const ClassGradient &s, C x, int64 k, int64 at, C scale) {
    int64 label = whole(s.label, s.label_kind, at);
    if (s.use_ignore && number(s.label, s.label_kind, at) == s.ignored) return C(0) * scale;
    C v = s.spread != 0 ? x - (C)s.spread : x;
    return (k == label ? v - (C)s.own : v) * scale;
}

template <int N> __device__ __forceinline__ void class_gradients(const ClassGradient &s) {
    C scale = (C)s.scale;
    if (s.parts) {
        int64 count = 0;
        for (int i = 0; i < s.parts; ++i) count += s.counts[i];
        scale = (C)(s.scale / (count > 1 ? (double)count : 1.0));
    }
    MX_EACH(at, s.packs) {
        uint32 row = (uint32)at / s.last, first = ((uint32)at - row * s.last.n) * N;
        uint32 n = s.across ? row / s.length : row, k = row - n * s.length.n;
        C x[N];
        take<N>(s.out + at * N, s.vector, x);
        #pragma unroll
        for (int e = 0; e < N; ++e)
            x[e] = s.across ? gradient_of(s, x[e], k, (int64)n * s.last.n * N + first + e, scale)
                            : gradient_of(s, x[e], first + e, row, scale);
        if (s.head) {
            C d[N];
            take<N>(s.head + at * N, s.vector, d);
            #pragma unroll
            for (int e = 0; e < N; ++e) x[e] *= d[e];
        }
        give<N>(s.d_data + at * N, s.vector, x);
    }
}

extern "C" __global__ void __launch_bounds__(256) class_gradient_wide(ClassGradient s) { class_gradients<WIDTH>(s); }

extern "C" __global__ void __launch_bounds__(256) class_gradient_single(ClassGradient s) { class_gradients<1>(s); }

// Number of labels of a chunk that are not `ignored`.
extern "C" __global__ void __launch_bounds__(256) count_labels(
    const void *label, int kind, double ignored, int64 n, int64 stretch, uint32 *counts) {
    __shared__ uint32 total;
    if (threadIdx.x == 0) total = 0;
    __syncthreads();
    int64 begin = blockIdx.x * stretch, end = begin + stretch;
    uint32 own = 0;
    for (int64 i = begin + threadIdx.x; i < end && i < n; i += blockDim.x) own += number(label, kind, i) != ignored;
    atomicAdd(&total, own);
    __syncthreads();
    if (threadIdx.x == 0) counts[blockIdx.x] = total;
}
