// Matrix products by tiles: a block computes BM x BN results, a thread RM x RN of them in registers.
//
// Each step loads BK numbers of every row and column of the tile into shared memory as numbers of type C, laid out
// as [k][row or column] for both sides, so that a thread reads them in packs of four. There are two buffers: the
// operands of the next step are being loaded into registers while this step is computed.
#pragma once

// One operand of the product: LINES rows of a, or columns of b. `along_k`: k is the contiguous axis.
template <typename T, typename C, int LINES, int BK, int THREADS> struct Side {
    static constexpr int SHARE = LINES * BK / THREADS;
    static constexpr int PACK = SHARE * sizeof(T) < 16 ? SHARE : 16 / sizeof(T);
    static constexpr int COUNT = LINES * BK / PACK / THREADS;
    static constexpr int PITCH = LINES + 4;  // packs of four stay aligned, and rows begin in different banks
    static_assert(COUNT * PACK * THREADS == LINES * BK, "every thread brings as much");

    Pack<T, PACK> held[COUNT];

    __device__ __forceinline__ void fetch(
        const T *base, int64 pitch, bool along_k, bool packs, int line0, int lines, int k0, int k) {
        #pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            int at = threadIdx.x + i * THREADS;
            if (along_k) {
                int line = line0 + at / (BK / PACK), begin = k0 + at % (BK / PACK) * PACK;
                get(held[i], base + line * pitch, begin, line < lines ? k : 0, packs);
            } else {
                int row = k0 + at / (LINES / PACK), begin = line0 + at % (LINES / PACK) * PACK;
                get(held[i], base + row * pitch, begin, row < k ? lines : 0, packs);
            }
        }
    }

    // Elements beyond the end count as 0 and are not accessed.
    static __device__ __forceinline__ void get(Pack<T, PACK> &to, const T *row, int begin, int end, bool packs) {
        if (packs && begin <= end - PACK) {
            to = *(const Pack<T, PACK> *)(row + begin);
        } else {
            #pragma unroll
            for (int e = 0; e < PACK; ++e) to.at[e] = begin < end - e ? row[begin + e] : T{};
        }
    }

    __device__ __forceinline__ void store(C *tile, bool along_k) const {
        #pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            int at = threadIdx.x + i * THREADS;
            int line = along_k ? at / (BK / PACK) : at % (LINES / PACK) * PACK;
            int row = along_k ? at % (BK / PACK) * PACK : at / (LINES / PACK);
            #pragma unroll
            for (int e = 0; e < PACK; ++e)
                tile[(along_k ? row + e : row) * PITCH + (along_k ? line : line + e)] = to<C>(held[i].at[e]);
        }
    }
};

// Epilogue applied to every result. It is selected in the source text: in the loop over a thread's results, which is
// unrolled, the code of all variants would take registers and seconds of compilation.
struct Plain { template <typename C> static __device__ __forceinline__ C of(C x) { return x; } };
struct Rectified { template <typename C> static __device__ __forceinline__ C of(C x) { return mx_max(x, C(0)); } };
struct Gelu { template <typename C> static __device__ __forceinline__ C of(C x) { return x * mx_normal(x); } };
struct GeluTanh {
    template <typename C> static __device__ __forceinline__ C of(C x) {
        return x * mx_sigmoid((x * x * C(0.044715) + C(1)) * x * C(1.59576912160573071176));
    }
};

// Factor of a gradient, from the output of forward (the rectifier) or from its input (the others).
struct One {
    static constexpr bool READS = false;
    template <typename C> static __device__ __forceinline__ C of(C x) { return C(1); }
};
struct RectifiedSlope {
    static constexpr bool READS = true;
    template <typename C> static __device__ __forceinline__ C of(C x) { return x > C(0) ? C(1) : x <= C(0) ? C(0) : x; }
};
struct GeluSlope {
    static constexpr bool READS = true;
    template <typename C> static __device__ __forceinline__ C of(C x) {
        return mx_normal(x) + mx_bell(x) * C(0.39894228040143267794) * x;
    }
};
struct GeluTanhSlope {
    static constexpr bool READS = true;
    template <typename C> static __device__ __forceinline__ C of(C x) {
        C share = mx_sigmoid((x * x * C(0.044715) + C(1)) * x * C(1.59576912160573071176));
        C bend = x * x * C(0.21406444881780073) + C(1.59576912160573071176);
        return (bend * x * (C(1) - share) + C(1)) * share;
    }
};

// Finishes a sum of products. bias_at: 0 no bias, 1 one for each column, 2 for each row. `added` and `known` have c's
// layout, and `added` may alias c: each thread reads the addend of an element before it writes the element.
template <typename O, typename C, typename Activation, typename Slope> struct Finish {
    const O *added, *bias, *known;
    int64 pitch;
    int bias_at;
    C alpha, beta;

    __device__ __forceinline__ O number(C sum, int row, int column) const {
        C value = alpha * sum;
        if (beta != C(0)) value += beta * to<C>(added[row * pitch + column]);
        if (bias_at) value += to<C>(bias[bias_at == 1 ? column : row]);
        value = Activation::of(value);
        if (Slope::READS) value *= Slope::of(to<C>(known[row * pitch + column]));
        return from<O>(value);
    }
};

// The sum over steps [first, last) into `sum`: step s is k from s % steps * BK on of the product s / steps of those
// that are summed, `more_a` and `more_b` elements apart.
template <typename T, typename C, int BM, int BN, int BK, int RM, int RN>
__device__ __forceinline__ void multiply_tile(
    C (&sum)[RM][RN], const T *a, const T *b, int m, int n, int k, int64 lda, int64 ldb, bool a_along_k,
    bool b_along_k, bool packs_a, bool packs_b, int row0, int column0, int64 more_a, int64 more_b, int first,
    int last) {
    constexpr int THREADS = (BM / RM) * (BN / RN);
    typedef Side<T, C, BM, BK, THREADS> A;
    typedef Side<T, C, BN, BK, THREADS> B;
    alignas(32) __shared__ C tile_a[2][BK * A::PITCH];
    alignas(32) __shared__ C tile_b[2][BK * B::PITCH];
    int ty = threadIdx.x / (BN / RN), tx = threadIdx.x % (BN / RN);
    #pragma unroll
    for (int i = 0; i < RM; ++i)
        #pragma unroll
        for (int j = 0; j < RN; ++j) sum[i][j] = C(0);
    if (first >= last) return;
    int steps = (k + BK - 1) / BK, k0 = first % steps * BK;
    a += first / steps * more_a;
    b += first / steps * more_b;
    A side_a;
    B side_b;
    side_a.fetch(a, lda, a_along_k, packs_a, row0, m, k0, k);
    side_b.fetch(b, ldb, b_along_k, packs_b, column0, n, k0, k);
    side_a.store(tile_a[0], a_along_k);
    side_b.store(tile_b[0], b_along_k);
    __syncthreads();
    for (int step = first; step < last; ++step) {
        int now = (step - first) & 1;
        bool more = step + 1 < last;
        if (more) {
            k0 += BK;
            if (k0 >= k) {
                k0 = 0;
                a += more_a;
                b += more_b;
            }
            side_a.fetch(a, lda, a_along_k, packs_a, row0, m, k0, k);
            side_b.fetch(b, ldb, b_along_k, packs_b, column0, n, k0, k);
        }
        #pragma unroll 2
        for (int kk = 0; kk < BK; ++kk) {
            Pack<C, 4> x[RM / 4], y[RN / 4];
            #pragma unroll
            for (int i = 0; i < RM / 4; ++i)
                x[i] = *(const Pack<C, 4> *)&tile_a[now][kk * A::PITCH + i * (BM / (RM / 4)) + ty * 4];
            #pragma unroll
            for (int j = 0; j < RN / 4; ++j)
                y[j] = *(const Pack<C, 4> *)&tile_b[now][kk * B::PITCH + j * (BN / (RN / 4)) + tx * 4];
            #pragma unroll
            for (int i = 0; i < RM; ++i)
                #pragma unroll
                for (int j = 0; j < RN; ++j) sum[i][j] += x[i / 4].at[i % 4] * y[j / 4].at[j % 4];
        }
        if (more) {
            side_a.store(tile_a[1 - now], a_along_k);
            side_b.store(tile_b[1 - now], b_along_k);
        }
        __syncthreads();
    }
}
