// Depthwise convolutions, channels last. A block has `lanes` neighbouring packs of P channels, whose weights are in
// shared memory, and 256 / lanes positions at a time. Needs convolution.cuh.
#pragma once

#define MX_WEIGHTS 4096  // numbers of weights that a block keeps

// Index of the element of x that window `at` along an axis reads at tap t, or a number outside of it.
__device__ __forceinline__ int met(const Convolution &g, int axis, int at, int t) {
    if (!g.transposed) return at * g.stride[axis] - g.pad[axis] + t * g.dilate[axis];
    int from = at + g.pad[axis] - t * g.dilate[axis], stride = g.stride[axis];
    return stride == 1 ? from : from < 0 || from % stride ? -1 : from / stride;
}

// Position `at` of y as sample, z, y and x.
__device__ __forceinline__ uint32 placed(const Convolution &g, uint32 at, int place[3]) {
    #pragma unroll
    for (int axis = 2; axis >= 0; --axis) {
        uint32 left = divided(at, g.divisor[axis][0], g.divisor[axis][1]);
        place[axis] = (int)(at - left * g.to[axis]);
        at = left;
    }
    return at;
}

// y = x convolved with w, or transposed; plus bias, plus addend, rectified, if given.
template <typename T, typename C, int P>
__device__ __forceinline__ void depthwise_gathered(
    const Convolution &g, int lanes, const T *x, const T *w, const T *bias, const T *addend, T *y) {
    __shared__ C weights[MX_WEIGHTS];
    int taps = g.kernel[0] * g.kernel[1] * g.kernel[2], wide = lanes * P;
    int first = (int)blockIdx.x * wide, own = (int)threadIdx.x % lanes * P, c = first + own;
    for (int i = threadIdx.x; i < wide * taps; i += blockDim.x)
        weights[i % taps * wide + i / taps] = first + i / taps < g.groups ? to<C>(w[(int64)first * taps + i]) : C(0);
    __syncthreads();
    if (c >= g.groups) return;
    C start[P];
    #pragma unroll
    for (int e = 0; e < P; ++e) start[e] = bias ? to<C>(bias[c + e]) : C(0);
    int rows = blockDim.x / lanes;
    for (int64 p = (int64)blockIdx.y * rows + threadIdx.x / lanes; p < g.positions; p += (int64)gridDim.y * rows) {
        int at[3];
        uint32 n = placed(g, (uint32)p, at);
        C sum[P];
        #pragma unroll
        for (int e = 0; e < P; ++e) sum[e] = start[e];
        const T *sample = x + (n * g.x_sample + c);
        int tap = 0;
        for (int tz = 0; tz < g.kernel[0]; ++tz) {
            int iz = met(g, 0, at[0], tz);
            for (int ty = 0; ty < g.kernel[1]; ++ty) {
                int iy = met(g, 1, at[1], ty);
                bool inside = (unsigned)iz < (unsigned)g.from[0] && (unsigned)iy < (unsigned)g.from[1];
                for (int tx = 0; tx < g.kernel[2]; ++tx, ++tap) {
                    int ix = met(g, 2, at[2], tx);
                    if (!inside || (unsigned)ix >= (unsigned)g.from[2]) continue;
                    Pack<T, P> v = *(const Pack<T, P> *)(sample + (iz * g.x_axis[0] + iy * g.x_axis[1] + ix * g.x_axis[2]));
                    #pragma unroll
                    for (int e = 0; e < P; ++e) sum[e] += to<C>(v.at[e]) * weights[tap * wide + own + e];
                }
            }
        }
        Pack<T, P> made, added;
        if (addend) {
            added = *(const Pack<T, P> *)(addend + (p * g.groups + c));
            #pragma unroll
            for (int e = 0; e < P; ++e) sum[e] += to<C>(added.at[e]);
        }
        #pragma unroll
        for (int e = 0; e < P; ++e) made.at[e] = from<T>(g.relu && sum[e] < C(0) ? C(0) : sum[e]);
        *(Pack<T, P> *)(y + (p * g.groups + c)) = made;
    }
}

// sums[slice, channel, tap]: one tap for each block of the second axis of the grid, one slice for each of the third.
template <typename T, typename C, int P>
__device__ __forceinline__ void depthwise_correlated(const Convolution &g, int lanes, const T *x, const T *y, C *sums) {
    __shared__ C total[256 * P];
    int taps = g.kernel[0] * g.kernel[1] * g.kernel[2], tap = blockIdx.y, rows = blockDim.x / lanes;
    int tx = tap % g.kernel[2], ty = tap / g.kernel[2] % g.kernel[1], tz = tap / g.kernel[2] / g.kernel[1];
    int c = ((int)blockIdx.x * lanes + (int)threadIdx.x % lanes) * P;
    int64 begin = (int64)blockIdx.z * g.slice, end = begin + g.slice < g.positions ? begin + g.slice : g.positions;
    C sum[P];
    #pragma unroll
    for (int e = 0; e < P; ++e) sum[e] = C(0);
    if (c < g.groups)
        for (int64 p = begin + threadIdx.x / lanes; p < end; p += rows) {
            int at[3];
            uint32 n = placed(g, (uint32)p, at);
            int iz = met(g, 0, at[0], tz), iy = met(g, 1, at[1], ty), ix = met(g, 2, at[2], tx);
            if ((unsigned)iz >= (unsigned)g.from[0] || (unsigned)iy >= (unsigned)g.from[1] || (unsigned)ix >= (unsigned)g.from[2])
                continue;
            Pack<T, P> left = *(const Pack<T, P> *)(x + (n * g.x_sample + iz * g.x_axis[0] + iy * g.x_axis[1] + ix * g.x_axis[2] + c));
            Pack<T, P> right = *(const Pack<T, P> *)(y + (p * g.groups + c));
            #pragma unroll
            for (int e = 0; e < P; ++e) sum[e] += to<C>(left.at[e]) * to<C>(right.at[e]);
        }
    #pragma unroll
    for (int e = 0; e < P; ++e) total[e * 256 + threadIdx.x] = sum[e];
    for (int half = rows / 2; half > 0; half /= 2) {
        __syncthreads();
        if ((int)threadIdx.x < half * lanes)
            #pragma unroll
            for (int e = 0; e < P; ++e) total[e * 256 + threadIdx.x] += total[e * 256 + threadIdx.x + half * lanes];
    }
    if ((int)threadIdx.x < lanes && c < g.groups)
        #pragma unroll
        for (int e = 0; e < P; ++e) sums[((int64)blockIdx.z * g.groups + c + e) * taps + tap] = total[e * 256 + threadIdx.x];
}
