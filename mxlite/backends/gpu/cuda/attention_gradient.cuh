// Gradients of attention: every block recomputes its tile of weights. There are no sums across blocks.
#pragma once

// w: weights after dropout (`of_scores` false), or gradients of scores, for a tile as in make_scores.
template <typename T, typename C, int N>
__device__ __forceinline__ void make_weights(
    C (&w)[4][4], bool of_scores, const Sizes &z, const T *d_out, const T *query, const T *key, const T *value,
    const void *mask, const C *log_sum, const C *delta, const uint64 *state, int b, int h, int q0, int k0, int end) {
    make_scores<T, C, N>(w, z, query, key, mask, b, h, q0, k0, end);
    int64 row0 = ((int64)b * z.groups * z.shared + h) * z.queries;
    int row = q0 + threadIdx.x / (N / 4) * 4;
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
        C base = row + i < z.queries ? log_sum[row0 + row + i] : infinite<C>();
        #pragma unroll
        for (int j = 0; j < 4; ++j) w[i][j] = mx_exp(w[i][j] - base);
    }
    C kept[4][4];
    if (DROPS) make_kept<C, N>(kept, z, state, b, h, q0, k0, end);
    if (!of_scores) {
        if (DROPS)
            #pragma unroll
            for (int i = 0; i < 4; ++i)
                #pragma unroll
                for (int j = 0; j < 4; ++j) w[i][j] *= kept[i][j];
        return;
    }
    C d[4][4];
    const T *v = value + ((int64)b * z.groups + h / z.shared) * z.keys * z.values;
    multiply_tile<T, C, N, N, 8, 4, 4>(
        d, d_out + row0 * z.values, v, z.queries, end, z.values, z.values, z.values, true, true, z.packs & 2,
        z.packs & 2, q0, k0, 0, 0, 0, (z.values + 7) / 8);
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
        C base = row + i < z.queries ? delta[row0 + row + i] : C(0);
        #pragma unroll
        for (int j = 0; j < 4; ++j) w[i][j] *= (DROPS ? d[i][j] * kept[i][j] : d[i][j]) - base;
    }
}

// `of`: 0 values, 1 keys, 2 queries. A tile of N rows and V columns of the gradient.
template <typename T, typename C, typename L, int N, int V>
__device__ __forceinline__ void attend_gradient(
    const Sizes &z, int of, const T *d_out, const T *query, const T *key, const T *value, const void *mask,
    const L *length, const C *log_sum, const C *delta, const uint64 *state, T *made) {
    alignas(32) __shared__ C tile[N * (N + 4)];
    constexpr int RN = V * 4 / N;
    bool of_queries = of == 2;
    int rows = of_queries ? z.queries : z.keys, columns = of ? z.width : z.values, column0 = blockIdx.y * V;
    int per = of_queries ? z.groups * z.shared : z.groups, down = (rows + N - 1) / N;
    int row0 = (int)(blockIdx.x % down) * N, head = blockIdx.x / down % per, b = blockIdx.x / down / per;
    if (of_queries) row0 = (down - 1) * N - row0;
    int end = end_of(z, length, b);
    C sum[4][RN], factor[4];
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
        factor[i] = of ? (C)z.scale : C(1);
        #pragma unroll
        for (int j = 0; j < RN; ++j) sum[i][j] = C(0);
    }
    int first = 0, last = z.queries;
    if (of_queries) last = z.causal && row0 + N < end ? row0 + N : end;
    else if (row0 >= end) last = 0;
    else if (z.causal) first = row0;
    for (int shared = 0; shared < (of_queries ? 1 : z.shared); ++shared) {
        int h = of_queries ? head : head * z.shared + shared;
        const T *x = of_queries ? key + ((int64)b * z.groups + h / z.shared) * z.keys * z.width
                                : (of ? query : d_out) + ((int64)b * z.groups * z.shared + h) * z.queries * columns;
        for (int at = first; at < last; at += N) {
            C w[4][4];
            int q0 = of_queries ? row0 : at, k0 = of_queries ? at : row0;
            make_weights<T, C, N>(
                w, of != 0, z, d_out, query, key, value, mask, log_sum, delta, state, b, h, q0, k0, end);
            put_weights<C, N>(tile, w, !of_queries);
            add_product<T, C, N, V>(sum, tile, x, columns, of ? z.packs & 1 : z.packs & 2, column0, at,
                                    of_queries ? end : z.queries);
        }
    }
    T *to_ = made + ((int64)b * per + head) * rows * columns;
    put_rows<T, C, N, V>(to_, sum, factor, row0, rows, column0, columns);
}

// delta[row] = sum of d_out * out along a row, a warp for each.
template <typename T, typename C>
__device__ __forceinline__ void attend_delta(const T *d_out, const T *out, C *delta, int64 rows, int columns) {
    int lane = threadIdx.x % 32, warps = blockDim.x / 32;
    for (int64 row = (int64)blockIdx.x * warps + threadIdx.x / 32; row < rows; row += (int64)gridDim.x * warps) {
        C sum = C(0);
        for (int i = lane; i < columns; i += 32) sum += to<C>(d_out[row * columns + i]) * to<C>(out[row * columns + i]);
        for (int by = 16; by; by /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, by);
        if (lane == 0) delta[row] = sum;
    }
}

// A tile of the gradient of an added mask: the sum over all samples, heads, queries and keys that read its elements.
template <typename T, typename C, typename L, int N>
__device__ __forceinline__ void attend_mask_gradient(
    const Sizes &z, const T *d_out, const T *query, const T *key, const T *value, const void *mask, const L *length,
    const C *log_sum, const C *delta, const uint64 *state, T *made) {
    __shared__ C tile[N][N + 1];
    int heads = z.groups * z.shared, across = z.mask_k ? (z.keys + N - 1) / N : 1;
    int down = z.mask_q ? (z.queries + N - 1) / N : 1, own_heads = z.mask_h ? heads : 1;
    int rest = blockIdx.x, own_k = rest % across * N;
    rest /= across;
    int own_q = rest % down * N;
    rest /= down;
    int own_h = rest % own_heads, own_b = rest / own_heads;
    C sum[4][4] = {};
    for (int b = z.mask_b ? own_b : 0; b < (z.mask_b ? own_b + 1 : z.batch); ++b) {
        int end = end_of(z, length, b);
        for (int h = z.mask_h ? own_h : 0; h < (z.mask_h ? own_h + 1 : heads); ++h)
            for (int q0 = own_q; q0 < (z.mask_q ? own_q + 1 : z.queries); q0 += N) {
                int last = z.mask_k ? own_k + 1 : z.keys;
                if (last > end) last = end;
                if (z.causal && last > q0 + N) last = q0 + N;
                for (int k0 = own_k; k0 < last; k0 += N) {
                    C w[4][4];
                    make_weights<T, C, N>(
                        w, true, z, d_out, query, key, value, mask, log_sum, delta, state, b, h, q0, k0, end);
                    #pragma unroll
                    for (int i = 0; i < 4; ++i)
                        #pragma unroll
                        for (int j = 0; j < 4; ++j) sum[i][j] += w[i][j];
                }
            }
    }
    #pragma unroll
    for (int i = 0; i < 4; ++i)
        #pragma unroll
        for (int j = 0; j < 4; ++j) tile[threadIdx.x / (N / 4) * 4 + i][threadIdx.x % (N / 4) * 4 + j] = sum[i][j];
    __syncthreads();
    if (!z.mask_q) {  // all queries share an element: sum over the tile's columns
        if (threadIdx.x < N)
            for (int q = 1; q < N; ++q) tile[0][threadIdx.x] += tile[q][threadIdx.x];
        __syncthreads();
    }
    if (!z.mask_k) {
        if (threadIdx.x < N)
            for (int k = 1; k < N; ++k) tile[threadIdx.x][0] += tile[threadIdx.x][k];
        __syncthreads();
    }
    for (int at = threadIdx.x; at < N * N; at += blockDim.x) {
        int q = at / N, k = at % N;
        if (z.mask_q ? own_q + q >= z.queries : q > 0) continue;
        if (z.mask_k ? own_k + k >= z.keys : k > 0) continue;
        int64 to_ = own_b * z.mask_b + own_h * z.mask_h + (own_q + q) * z.mask_q + (own_k + k) * z.mask_k;
        made[to_] = from<T>(tile[q][k]);
    }
}
