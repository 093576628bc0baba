// Running sums and products along an axis. Types: X of the data, Y of the result, C to compute with.
#pragma once

struct Scan {
    const X *data;
    Y *out;
    uint32 lines, length;
    Divisor inner;
    int product, exclusive, reverse;
};

__device__ __forceinline__ C joined(const Scan &s, C a, C b) {
#ifdef WHOLE
    return (C)(s.product ? (uint64)a * (uint64)b : (uint64)a + (uint64)b);
#else
    return s.product ? a * b : a + b;
#endif
}

__device__ __forceinline__ int64 position(const Scan &s, uint32 line, uint32 k) {
    uint32 n = line / s.inner;
    return ((int64)n * s.length + (s.reverse ? s.length - 1 - k : k)) * s.inner.n + (line - n * s.inner.n);
}

// A block for each line: 1024 numbers at a time, four per thread.
extern "C" __global__ void __launch_bounds__(256) scan_lines(Scan s) {
    __shared__ C sums[256];
    const C nothing = s.product ? C(1) : C(0);
    C carry = nothing;
    for (uint32 begin = 0; begin < s.length; begin += 1024) {
        uint32 first = begin + threadIdx.x * 4;
        C v[4], own = nothing;
        #pragma unroll
        for (int u = 0; u < 4; ++u) {
            v[u] = first + u < s.length ? to<C>(s.data[position(s, blockIdx.x, first + u)]) : nothing;
            own = joined(s, own, v[u]);
        }
        sums[threadIdx.x] = own;
        for (uint32 step = 1; step < 256; step *= 2) {
            __syncthreads();
            C before = threadIdx.x >= step ? sums[threadIdx.x - step] : nothing;
            __syncthreads();
            sums[threadIdx.x] = joined(s, before, sums[threadIdx.x]);
        }
        __syncthreads();
        C run = threadIdx.x ? joined(s, carry, sums[threadIdx.x - 1]) : carry;
        carry = joined(s, carry, sums[255]);
        #pragma unroll
        for (int u = 0; u < 4; ++u) {
            C next = joined(s, run, v[u]);
            if (first + u < s.length) s.out[position(s, blockIdx.x, first + u)] = from<Y>(s.exclusive ? run : next);
            run = next;
        }
        __syncthreads();
    }
}

// A thread for each line, neighbouring threads for neighbouring lines.
extern "C" __global__ void __launch_bounds__(256) scan_columns(Scan s) {
    MX_EACH(line, s.lines) {
        C run = s.product ? C(1) : C(0);
        for (uint32 k = 0; k < s.length; ++k) {
            int64 at = position(s, (uint32)line, k);
            C next = joined(s, run, to<C>(s.data[at]));
            s.out[at] = from<Y>(s.exclusive ? run : next);
            run = next;
        }
    }
}
