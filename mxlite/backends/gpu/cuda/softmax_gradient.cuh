// Gradients of softmax and of its logarithm. Types, packs and groups as in softmax.cuh: Y of `out` and its gradient,
// X of the data's gradient.
//
//     softmax      d_data = scale * out * (d_out - sum of d_out * out)
//     logarithm    d_data = scale * (d_out - exp(out) * sum of d_out)
#pragma once

struct SoftmaxGradient {
    const Y *d_out, *out;
    X *d_data;
    const void *limit;
    int64 lines;
    double scale;
    uint32 length, group;
    Divisor inner;
    int logarithm, vector, limit_kind;
};

// Summand of one number, and its gradient.
__device__ __forceinline__ C term(const SoftmaxGradient &s, C d, C y) { return s.logarithm ? d : d * y; }

__device__ __forceinline__ C slope(const SoftmaxGradient &s, C d, C y, C total) {
    C v = s.logarithm ? d - mx_exp(y) * total : (d - total) * y;
    return v * (C)s.scale;
}

template <int P> __device__ __forceinline__ void gradient_line(const SoftmaxGradient &s) {
    const int HELD = P == 1 ? 8 : 64 / (P * (int)sizeof(C));
    __shared__ C room[32];
    uint32 group = s.group, lane = threadIdx.x % group;
    int64 line = (int64)blockIdx.x * (blockDim.x / group) + threadIdx.x / group;
    bool there = line < s.lines;
    uint32 packs = there ? s.length / P : 0;
    uint32 limit = there ? counted(s.limit, s.limit_kind, line, s.length) : 0;
    const Y *heads = s.d_out + line * s.length, *outs = s.out + line * s.length;
    C d[HELD][P], y[HELD][P], total = 0;
    #pragma unroll
    for (int h = 0; h < HELD; ++h) {
        uint32 p = lane + h * group;
        if (p < packs) {
            take<P>(heads + p * P, s.vector, d[h]);
            take<P>(outs + p * P, s.vector, y[h]);
            #pragma unroll
            for (int e = 0; e < P; ++e)
                if (p * P + e < limit) total += term(s, d[h][e], y[h][e]);
        }
    }
    for (uint32 p = lane + HELD * group; p < packs; p += group) {
        C u[P], v[P];
        take<P>(heads + p * P, s.vector, u);
        take<P>(outs + p * P, s.vector, v);
        #pragma unroll
        for (int e = 0; e < P; ++e)
            if (p * P + e < limit) total += term(s, u[e], v[e]);
    }
    total = of_group(total, group, Sum(), room);
    X *into = s.d_data + line * s.length;
    #pragma unroll
    for (int h = 0; h < HELD; ++h) {
        uint32 p = lane + h * group;
        if (p < packs) {
            #pragma unroll
            for (int e = 0; e < P; ++e) y[h][e] = p * P + e < limit ? slope(s, d[h][e], y[h][e], total) : C(0);
            give<P>(into + p * P, s.vector, y[h]);
        }
    }
    for (uint32 p = lane + HELD * group; p < packs; p += group) {
        C u[P], v[P];
        take<P>(heads + p * P, s.vector, u);
        take<P>(outs + p * P, s.vector, v);
        #pragma unroll
        for (int e = 0; e < P; ++e) v[e] = p * P + e < limit ? slope(s, u[e], v[e], total) : C(0);
        give<P>(into + p * P, s.vector, v);
    }
}

extern "C" __global__ void __launch_bounds__(512) gradient_wide(SoftmaxGradient s) { gradient_line<WIDTH>(s); }

extern "C" __global__ void __launch_bounds__(512) gradient_single(SoftmaxGradient s) { gradient_line<1>(s); }

extern "C" __global__ void __launch_bounds__(256) gradient_columns(SoftmaxGradient s) {
    __shared__ C sums[256];
    int64 line = (int64)blockIdx.x * blockDim.x + threadIdx.x;
    bool there = line < s.lines;
    uint32 n = there ? (uint32)line / s.inner : 0;
    int64 start = (int64)n * s.length * s.inner.n + (line - (int64)n * s.inner.n);
    uint32 length = there ? s.length : 0;
    uint32 limit = there ? counted(s.limit, s.limit_kind, line, s.length) : 0;
    C total = 0;
    for (uint32 k = threadIdx.y; k < limit; k += blockDim.y) {
        int64 at = start + (int64)k * s.inner.n;
        total += term(s, to<C>(s.d_out[at]), to<C>(s.out[at]));
    }
    sums[threadIdx.y * blockDim.x + threadIdx.x] = total;
    __syncthreads();
    total = 0;
    for (uint32 y = 0; y < blockDim.y; ++y) total += sums[y * blockDim.x + threadIdx.x];
    for (uint32 k = threadIdx.y; k < length; k += blockDim.y) {
        int64 at = start + (int64)k * s.inner.n;
        C v = slope(s, to<C>(s.d_out[at]), to<C>(s.out[at]), total);
        s.d_data[at] = from<X>(k < limit ? v : C(0));
    }
}
