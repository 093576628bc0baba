// Attention by tiles of N queries and N keys (T. Dao et al., 2022, "FlashAttention"; M. Milakov, N. Gimelshein, 2018,
// "Online normalizer calculation for softmax"). A thread has 4 x 4 scores of a tile; those of one query are held by
// N / 4 neighbouring lanes. Weights go through shared memory to be multiplied by values, 16 rows at a time.
//
// The including source defines whether dropout is applied: constexpr bool DROPS.
#pragma once

struct Sizes {
    int batch, groups, shared, queries, keys, width, values;  // shared: query heads of a key head
    int causal, mask_kind, packs;                             // mask_kind: 0 none, 1 bool, 2 added
    int heads, rows, columns;                                 // counter blocks of random numbers
    uint32 stream;
    int64 mask_b, mask_h, mask_q, mask_k;  // strides in elements, 0 for an axis of length 1
    double scale, p;
};

template <typename C> __device__ __forceinline__ C infinite() { return (C)bits_to_float(0x7f800000); }

// Number of keys of a sample that take part.
template <typename L> __device__ __forceinline__ int end_of(const Sizes &z, const L *length, int b) {
    if (!length) return z.keys;
    double n = to<double>(length[b]);
    return n < 0 ? 0 : n > z.keys ? z.keys : (int)n;
}

// A score, or -inf if the key is masked.
template <typename T, typename C>
__device__ __forceinline__ C masked(C x, const Sizes &z, const void *mask, int b, int h, int q, int k, int end) {
    bool seen = q < z.queries && k < end && !(z.causal && k > q);
    if (seen && z.mask_kind) {
        int64 at = b * z.mask_b + h * z.mask_h + q * z.mask_q + k * z.mask_k;
        if (z.mask_kind == 1) seen = ((const bool *)mask)[at];
        else x += to<C>(((const T *)mask)[at]);
    }
    return seen ? x : -infinite<C>();
}

// Scores of queries [q0, q0 + N) and keys [k0, k0 + N) of head h of sample b; -inf for masked keys.
template <typename T, typename C, int N>
__device__ __forceinline__ void make_scores(
    C (&s)[4][4], const Sizes &z, const T *query, const T *key, const void *mask, int b, int h, int q0, int k0, int end) {
    const T *q = query + ((int64)b * z.groups * z.shared + h) * z.queries * z.width;
    const T *k = key + ((int64)b * z.groups + h / z.shared) * z.keys * z.width;
    multiply_tile<T, C, N, N, 8, 4, 4>(
        s, q, k, z.queries, end, z.width, z.width, z.width, true, true, z.packs & 1, z.packs & 1, q0, k0, 0, 0, 0,
        (z.width + 7) / 8);
    int row = q0 + threadIdx.x / (N / 4) * 4, column = k0 + threadIdx.x % (N / 4) * 4;
    #pragma unroll
    for (int i = 0; i < 4; ++i)
        #pragma unroll
        for (int j = 0; j < 4; ++j) {
            s[i][j] = masked<T>(s[i][j] * (C)z.scale, z, mask, b, h, row + i, column + j, end);
        }
}

// Weight after dropout: 0, or 1 / (1 - p), with random numbers counted as in ops/nn/attention_kernels.py. Four
// neighbours along the keys come from one or two draws.
struct Drawer {
    const uint64 *state;
    uint32 last;
    bool any;
    Four words;

    template <typename C> __device__ __forceinline__ C kept(const Sizes &z, int b, int h, int q, int k, int end) {
        int g = h / z.shared, j = h % z.shared;
        int first = g / z.heads * z.heads, count = z.groups - first < z.heads ? z.groups - first : z.heads;
        int64 down = (z.queries + z.rows - 1) / z.rows, along = (z.keys + z.columns - 1) / z.columns;
        int r = q / z.rows, c = k / z.columns;
        // The last blocks are smaller; keys from `end` on are in none.
        int height = z.queries - r * z.rows < z.rows ? z.queries - r * z.rows : z.rows;
        int width = end - c * z.columns < z.columns ? end - c * z.columns : z.columns;
        int64 number = ((int64)b * z.groups + first) * z.shared + (int64)j * count;
        number = number * down + (int64)r * count;
        number = number * along + (int64)c * count;
        int64 at = number * z.rows * z.columns +
                   ((int64)(g - first) * height + (q - r * z.rows)) * width + (k - c * z.columns);
        uint32 block = (uint32)(at >> 2);
        if (!any || block != last) {
            words = drawn(state, z.stream, block);
            last = block;
            any = true;
        }
        int w = (int)at & 3;
        uint32 word = w == 0 ? words.at[0] : w == 1 ? words.at[1] : w == 2 ? words.at[2] : words.at[3];
        return (C)uniform24(word) >= (C)z.p ? (C)(1 / (1 - z.p)) : C(0);
    }
};

template <typename C, int N>
__device__ __forceinline__ void make_kept(
    C (&factor)[4][4], const Sizes &z, const uint64 *state, int b, int h, int q0, int k0, int end) {
    Drawer drawer = {state};
    #pragma unroll
    for (int i = 0; i < 4; ++i)
        #pragma unroll
        for (int e = 0; e < 4; ++e)
            factor[i][e] = drawer.kept<C>(
                z, b, h, q0 + threadIdx.x / (N / 4) * 4 + i, k0 + threadIdx.x % (N / 4) * 4 + e, end);
}

// Weights as tile[contracted][row] for the following product; `turned`: queries are contracted, else keys.
template <typename C, int N>
__device__ __forceinline__ void put_weights(C *tile, const C (&w)[4][4], bool turned) {
    int row = threadIdx.x / (N / 4) * 4, column = threadIdx.x % (N / 4) * 4;
    #pragma unroll
    for (int i = 0; i < 4; ++i)
        #pragma unroll
        for (int j = 0; j < 4; ++j)
            tile[turned ? (row + i) * (N + 4) + column + j : (column + j) * (N + 4) + row + i] = w[i][j];
}

// sum[row][column] += tile[r][row] * x[row0 + r][column0 + column] for V columns and the rows below `rows`.
template <typename T, typename C, int N, int V>
__device__ __forceinline__ void add_product(
    C (&sum)[4][V * 4 / N], const C *tile, const T *x, int pitch, bool packs, int column0, int row0, int rows) {
    constexpr int THREADS = N * N / 16, LANES = N / 4, RN = V * 4 / N, STEP = 16;
    typedef Side<T, C, V, STEP, THREADS> X;
    alignas(32) __shared__ C held[2][STEP * X::PITCH];
    int ty = threadIdx.x / LANES, tx = threadIdx.x % LANES;
    int left = rows - row0 < N ? rows - row0 : N, steps = (left + STEP - 1) / STEP;
    X side;
    side.fetch(x, pitch, false, packs, column0, pitch, row0, rows);
    side.store(held[0], false);
    __syncthreads();
    for (int step = 0; step < steps; ++step) {
        bool more = step + 1 < steps;
        if (more) side.fetch(x, pitch, false, packs, column0, pitch, row0 + (step + 1) * STEP, rows);
        #pragma unroll 2
        for (int r = 0; r < STEP; ++r) {
            Pack<C, 4> w = *(const Pack<C, 4> *)&tile[(step * STEP + r) * (N + 4) + ty * 4], y[RN / 4];
            #pragma unroll
            for (int j = 0; j < RN / 4; ++j)
                y[j] = *(const Pack<C, 4> *)&held[step & 1][r * X::PITCH + j * (V / (RN / 4)) + tx * 4];
            #pragma unroll
            for (int i = 0; i < 4; ++i)
                #pragma unroll
                for (int j = 0; j < RN; ++j) sum[i][j] += w.at[i] * y[j / 4].at[j % 4];
        }
        if (more) side.store(held[1 - (step & 1)], false);
        __syncthreads();
    }
}

// Rows [row0, ...) and columns [column0, ...) of `sum` times factor[row], into a matrix of `columns` columns.
template <typename T, typename C, int N, int V>
__device__ __forceinline__ void put_rows(
    T *out, const C (&sum)[4][V * 4 / N], const C (&factor)[4], int row0, int rows, int column0, int columns) {
    constexpr int RN = V * 4 / N;
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
        int row = row0 + threadIdx.x / (N / 4) * 4 + i;
        if (row >= rows) continue;
        #pragma unroll
        for (int j = 0; j < RN; ++j) {
            int column = column0 + j / 4 * (V / (RN / 4)) + threadIdx.x % (N / 4) * 4 + j % 4;
            if (column < columns) out[(int64)row * columns + column] = from<T>(sum[i][j] * factor[i]);
        }
    }
}

// Processes one tile of queries of one head, V columns of its result.
template <typename T, typename C, typename L, int N, int V>
__device__ __forceinline__ void attend(
    const Sizes &z, const T *query, const T *key, const T *value, const void *mask, const L *length,
    const uint64 *state, T *out, C *log_sum) {
    alignas(32) __shared__ C tile[N * (N + 4)];
    constexpr int RN = V * 4 / N;
    int down = (z.queries + N - 1) / N, heads = z.groups * z.shared;
    // The longest rows of a causal mask come first.
    int q0 = (down - 1 - (int)(blockIdx.x % down)) * N, h = blockIdx.x / down % heads, b = blockIdx.x / down / heads;
    int column0 = blockIdx.y * V, end = end_of(z, length, b), last = z.causal && q0 + N < end ? q0 + N : end;
    const T *v = value + ((int64)b * z.groups + h / z.shared) * z.keys * z.values;
    C most[4], total[4], sum[4][RN];
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
        most[i] = -infinite<C>();
        total[i] = C(0);
        #pragma unroll
        for (int j = 0; j < RN; ++j) sum[i][j] = C(0);
    }
    for (int k0 = 0; k0 < last; k0 += N) {
        C s[4][4];
        make_scores<T, C, N>(s, z, query, key, mask, b, h, q0, k0, end);
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            C high = mx_max(mx_max(s[i][0], s[i][1]), mx_max(s[i][2], s[i][3])), part = C(0);
            #pragma unroll
            for (int lane = N / 8; lane; lane /= 2) high = mx_max(high, __shfl_xor_sync(0xffffffffu, high, lane));
            high = mx_max(high, most[i]);
            C base = high == -infinite<C>() ? C(0) : high;  // all masked so far: -inf - 0, not -inf - -inf
            #pragma unroll
            for (int j = 0; j < 4; ++j) {
                s[i][j] = mx_exp(s[i][j] - base);
                part += s[i][j];
            }
            #pragma unroll
            for (int lane = N / 8; lane; lane /= 2) part += __shfl_xor_sync(0xffffffffu, part, lane);
            C factor = mx_exp(most[i] - base);
            most[i] = high;
            total[i] = total[i] * factor + part;
            #pragma unroll
            for (int j = 0; j < RN; ++j) sum[i][j] *= factor;
        }
        if (!out) continue;
        if (DROPS) {
            C kept[4][4];
            make_kept<C, N>(kept, z, state, b, h, q0, k0, end);
            #pragma unroll
            for (int i = 0; i < 4; ++i)
                #pragma unroll
                for (int j = 0; j < 4; ++j) s[i][j] *= kept[i][j];
        }
        put_weights<C, N>(tile, s, false);
        add_product<T, C, N, V>(sum, tile, v, z.values, z.packs & 2, column0, k0, end);
    }
    int64 row0 = ((int64)b * heads + h) * z.queries;
    C factor[4];
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
        factor[i] = total[i] == C(0) ? C(0) : C(1) / total[i];
        int row = q0 + threadIdx.x / (N / 4) * 4 + i;
        if (log_sum && column0 == 0 && threadIdx.x % (N / 4) == 0 && row < z.queries)
            log_sum[row0 + row] = total[i] == C(0) ? infinite<C>() : mx_log(total[i]) + most[i];  // backward: 0
    }
    if (out) put_rows<T, C, N, V>(out + row0 * z.values, sum, factor, q0, z.queries, column0, z.values);
}
