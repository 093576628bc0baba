// Normalization of rows, forward and backward: (x - mean) / spread * gamma + beta.
//
// Defined before: T, the type of data; G, that of gamma and beta; A, that of sums; V, elements of a pack; ALIGNED,
// whether packs are aligned to their own size; HELD, packs that a thread keeps of its row (0: a row is longer, and
// is reread from the cache); COLUMNS, whether gradients of gamma and beta are accumulated in the same pass.
//
// A block of (TX, TY) threads has TY rows at a time, TX threads each, TX a multiple of 32. The statistics take two
// passes over a thread's registers, the second over centred numbers, so that precision is kept if the mean is large.
// Element j of row r has the gamma with index r % groups * channels + j / positions.
#pragma once

struct Rule {
    int64 rows, length, channels, positions, groups;
    double eps, count;
    int centre;
};
#define RULE                                                                                             \
    int64 rows, int64 length, int64 channels, int64 positions, int64 groups, double eps, double count, int centre
#define RULE_OF(n) Rule n = {rows, length, channels, positions, groups, eps, count, centre}

// The packs `p` of a thread that begin at element `j` of its row.
#if HELD
#define EACH(p, j)                                                                                       \
    _Pragma("unroll") for (int p = 0; p < HELD; ++p)                                                     \
        if (int64 j = (threadIdx.x + (int64)p * blockDim.x) * V; j < n.length)
#define SLOTS HELD
#define SLOT(p) p
#else
#define EACH(p, j) for (int64 j = (int64)threadIdx.x * V, p = 0; j < n.length; j += (int64)blockDim.x * V)
#define SLOTS 1
#define SLOT(p) 0
#endif

// The sum over all threads of a row, known to each. `slots` is shared memory, one number per warp.
__device__ __forceinline__ A over_row(A x, A *slots) {
    for (int by = 16; by; by /= 2) x += __shfl_xor_sync(0xffffffffu, x, by);
    int warps = blockDim.x / 32;
    if (warps == 1) return x;
    A *mine = slots + threadIdx.y * warps;
    __syncthreads();
    if (threadIdx.x % 32 == 0) mine[threadIdx.x / 32] = x;
    __syncthreads();
    x = mine[0];
    for (int w = 1; w < warps; ++w) x += mine[w];
    return x;
}

struct Row {
    const T *x;
    Elements held[SLOTS];
    A mean, spread;

    __device__ Row(const T *x, const Rule &n, A *slots) : x(x) {
        A sum = A(0), square = A(0);
        if (HELD) EACH(p, j) held[SLOT(p)] = load(x, j);
        if (n.centre) {
            EACH(p, j) {
                Elements v = at(p, j);
                for (int e = 0; e < V; ++e) sum += to<A>(v.at[e]);
            }
            sum = over_row(sum, slots) / (A)(n.length > 0 ? n.length : 1);
        }
        EACH(p, j) {
            Elements v = at(p, j);
            for (int e = 0; e < V; ++e) {
                A far = to<A>(v.at[e]) - sum;
                square = mx_fma(far, far, square);
            }
        }
        mean = sum;
        spread = mx_sqrt(over_row(square, slots) / (A)n.count + (A)n.eps);
    }
    __device__ Elements at(int p, int64 j) const { return HELD ? held[SLOT(p)] : load(x, j); }
};

// Gamma of a row begins here; element j of it has the gamma at index `of(n, j)`.
__device__ __forceinline__ int64 first_gamma(const Rule &n, int64 row) {
    return n.groups == 1 ? 0 : row % n.groups * n.channels;
}
__device__ __forceinline__ int64 of(const Rule &n, int64 j) {
    return n.positions == 1 ? j : n.positions == n.length ? 0 : (uint32)j / (uint32)n.positions;
}

// Gamma of the elements [j, j + V) of a row: loaded by 16 bytes if each element has its own and they are aligned;
// otherwise the loads would take many times as long as those of the elements.
__device__ __forceinline__ void numbers_of(const G *gamma, const Rule &n, int64 c, int64 j, A *to_) {
    const int P = V * sizeof(G) >= 16 ? 16 / sizeof(G) : V;
    const G *from_ = gamma + c + j;
    if (n.positions == 1 && (uint64)from_ % (P * sizeof(G)) == 0) {
        for (int k = 0; k < V / P; ++k) {
            Pack<G, P> pack = ((const Pack<G, P> *)from_)[k];
            for (int e = 0; e < P; ++e) to_[k * P + e] = to<A>(pack.at[e]);
        }
    } else {
        for (int e = 0; e < V; ++e) to_[e] = to<A>(gamma[c + of(n, j + e)]);
    }
}

// out, mean and spread, each if not null. A block loops over its rows.
extern "C" __global__ void __launch_bounds__(256) normalize(
    const T *x, const G *gamma, const G *beta, RULE, T *out, G *mean, G *spread) {
    __shared__ A slots[32];
    RULE_OF(n);
    for (int64 first = blockIdx.x * (int64)blockDim.y; first < n.rows; first += (int64)gridDim.x * blockDim.y) {
        int64 row = first + threadIdx.y, here = row < n.rows ? row : n.rows - 1;  // all threads reach the barriers
        Row r(x + here * n.length, n, slots);
        if (row >= n.rows) continue;
        if (threadIdx.x == 0) {
            if (mean) mean[row] = from<G>(r.mean);
            if (spread) spread[row] = from<G>(r.spread);
        }
        if (!out) continue;
        A inverse = A(1) / r.spread;
        int64 c = first_gamma(n, row);
        EACH(p, j) {
            Elements v = r.at(p, j);
            A y[V], of_gamma[V];
            for (int e = 0; e < V; ++e) y[e] = (to<A>(v.at[e]) - r.mean) * inverse;
            if (gamma) {
                numbers_of(gamma, n, c, j, of_gamma);
                for (int e = 0; e < V; ++e) y[e] *= of_gamma[e];
            }
            if (beta) {
                numbers_of(beta, n, c, j, of_gamma);
                for (int e = 0; e < V; ++e) y[e] += of_gamma[e];
            }
            for (int e = 0; e < V; ++e) v.at[e] = from<T>(y[e]);
            store(out, row * n.length + j, v);
        }
    }
}
