// Row operations between the products of attention with scores in memory, a block of them at a time: a warp takes a
// row. Row `first` + r of all (sample, head, query) is row r of the block; the row stride is `pitch`.
#pragma once

struct Row {
    int b, h, q, end, last;  // last: number of keys of the row to process

    template <typename L>
    __device__ __forceinline__ Row(const Sizes &z, int64 row, const L *length) {
        int heads = z.groups * z.shared;
        q = (int)(row % z.queries);
        h = (int)(row / z.queries % heads);
        b = (int)(row / z.queries / heads);
        end = end_of(z, length, b);
        last = z.causal && q + 1 < end ? q + 1 : end;
    }
};

__device__ __forceinline__ float warp_largest(float x) {
    for (int by = 16; by; by /= 2) x = mx_max(x, __shfl_xor_sync(0xffffffffu, x, by));
    return x;
}

__device__ __forceinline__ float warp_sum(float x) {
    for (int by = 16; by; by /= 2) x += __shfl_xor_sync(0xffffffffu, x, by);
    return x;
}

// Weights of rows of scores (which are scaled), and log_sum. Four neighbours go to one lane.
template <typename T, typename L>
__device__ __forceinline__ void weigh_rows(
    const Sizes &z, int64 first, int64 rows, int pitch, const float *scores, const void *mask, const L *length,
    const uint64 *state, T *weights, float *log_sum) {
    int lane = threadIdx.x % 32, warps = blockDim.x / 32;
    for (int64 r = (int64)blockIdx.x * warps + threadIdx.x / 32; r < rows; r += (int64)gridDim.x * warps) {
        Row row(z, first + r, length);
        const float *s = scores + r * pitch;
        float most = -infinite<float>(), total = 0;
        for (int k0 = lane * 4; k0 < row.last; k0 += 128)
            for (int e = 0; e < 4; ++e)
                if (k0 + e < row.last)
                    most = mx_max(most, masked<T>(s[k0 + e], z, mask, row.b, row.h, row.q, k0 + e, row.end));
        most = warp_largest(most);
        float base = most == -infinite<float>() ? 0 : most;
        for (int k0 = lane * 4; k0 < row.last; k0 += 128)
            for (int e = 0; e < 4; ++e)
                if (k0 + e < row.last)
                    total += mx_exp(masked<T>(s[k0 + e], z, mask, row.b, row.h, row.q, k0 + e, row.end) - base);
        total = warp_sum(total);
        float factor = total == 0 ? 0 : 1 / total;
        if (weights) {
            Drawer drawer = {state};
            for (int k0 = lane * 4; k0 < z.keys; k0 += 128)
                for (int e = 0; e < 4; ++e) {
                    int k = k0 + e;
                    if (k >= z.keys) break;
                    float w = 0;
                    if (k < row.last)
                        w = mx_exp(masked<T>(s[k], z, mask, row.b, row.h, row.q, k, row.end) - base) * factor;
                    if (DROPS) w *= drawer.kept<float>(z, row.b, row.h, row.q, k, row.end);
                    weights[r * pitch + k] = from<T>(w);
                }
        }
        if (log_sum && lane == 0) log_sum[first + r] = total == 0 ? infinite<float>() : mx_log(total) + most;
    }
}

// From scores and d_weights: the weights after dropout, and the gradients of scores.
template <typename T, typename L>
__device__ __forceinline__ void weigh_rows_again(
    const Sizes &z, int64 first, int64 rows, int pitch, const float *scores, const float *d_weights,
    const void *mask, const L *length, const uint64 *state, const float *log_sum, const float *delta, T *weights,
    T *d_scores) {
    int lane = threadIdx.x % 32, warps = blockDim.x / 32;
    for (int64 r = (int64)blockIdx.x * warps + threadIdx.x / 32; r < rows; r += (int64)gridDim.x * warps) {
        Row row(z, first + r, length);
        float base = log_sum[first + r], own = delta[first + r];
        Drawer drawer = {state};
        for (int k0 = lane * 4; k0 < z.keys; k0 += 128)
            for (int e = 0; e < 4; ++e) {
                int k = k0 + e;
                if (k >= z.keys) break;
                int64 at = r * pitch + k;
                float w = 0, d = 0;
                if (k < row.last) {
                    w = mx_exp(masked<T>(scores[at], z, mask, row.b, row.h, row.q, k, row.end) - base);
                    float kept = DROPS ? drawer.kept<float>(z, row.b, row.h, row.q, k, row.end) : 1;
                    d = w * (d_weights[at] * kept - own);
                    w *= kept;
                }
                weights[at] = from<T>(w);
                d_scores[at] = from<T>(d);
            }
    }
}
