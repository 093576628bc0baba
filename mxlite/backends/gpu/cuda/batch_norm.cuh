// Batch normalization, forward and backward, of arrays read as (I, C, P): samples, channels, positions.
//
// Given before: T, the type of data; A, that of statistics (float or double); LAST, whether P is 1 and a pack lies
// along the channels, else it lies along the positions; V, elements of a pack; ALIGNED, whether packs lie on their own
// size (where not, the same threads read the same elements one by one, so that bits stay). A block of (TX, TY) threads has some
// channels and a part of the samples and positions:
//
//     LAST    TX packs of channels side by side, TY samples at a time       W = V channels of a thread
//     else    one channel, TX packs of positions, TY samples at a time      W = 1
//
// Statistics are those of shifted data: a thread shifts by the first number it sees, two threads' are merged as in
// T. Chan, G. Golub, R. LeVeque, 1983, "Algorithms for computing the sample variance". So digits are kept where
// the mean is large. Parts follow from the shape alone, and so do the bits.
#pragma once

#define W (LAST ? V : 1)
#define OF(e) (LAST ? (e) : 0)
constexpr int UNROLL_I = LAST ? 4 : 1, UNROLL_J = LAST ? 1 : 4;

// Shape, and what one part has: `step_i` samples and `step_j` positions, `parts_j` parts side by side.
struct Size {
    int64 i, c, p, step_i, step_j, parts_j;
};
#define SIZE int64 n_i, int64 n_c, int64 n_p, int64 step_i, int64 step_j, int64 parts_j
#define SIZE_OF(n) Size n = {n_i, n_c, n_p, step_i, step_j, parts_j}

struct Part {
    int64 i0, i1, j0, j1;
    __device__ Part(const Size &n, int64 part) {
        i0 = part / n.parts_j * n.step_i;
        j0 = part % n.parts_j * n.step_j;
        i1 = i0 + n.step_i < n.i ? i0 + n.step_i : n.i;
        j1 = j0 + n.step_j < n.p ? j0 + n.step_j : n.p;
    }
    __device__ A count() const { return (A)((i1 - i0) * (j1 - j0)); }
};

__device__ __forceinline__ int64 first_channel() {
    return LAST ? ((int64)blockIdx.y * blockDim.x + threadIdx.x) * V : (int64)blockIdx.y;
}

// The offset `at` of every pack of this thread.
#define EACH_PACK(at, n, part, c0)                                                                   \
    _Pragma("unroll UNROLL_I") for (int64 i_ = (part).i0 + threadIdx.y; i_ < (part).i1; i_ += blockDim.y) \
        _Pragma("unroll UNROLL_J") for (int64 j_ = LAST ? 0 : (part).j0 + (int64)threadIdx.x * V,     \
                                             at = LAST ? i_ * (n).c + (c0) : (i_ * (n).c + (c0)) * (n).p + j_; \
                                        j_ < (LAST ? 1 : (part).j1);                                  \
                                        j_ += LAST ? 1 : (int64)blockDim.x * V, at += LAST ? 0 : (int64)blockDim.x * V)

typedef Pack<T, V> Elements;
__device__ __forceinline__ Elements load(const T *x, int64 at) {
    if (ALIGNED) return *(const Elements *)(x + at);
    Elements found;
    for (int e = 0; e < V; ++e) found.at[e] = x[at + e];
    return found;
}
__device__ __forceinline__ void store(T *y, int64 at, const Elements &x) {
    if (ALIGNED) *(Elements *)(y + at) = x;
    else
        for (int e = 0; e < V; ++e) y[at + e] = x.at[e];
}

struct Moments {
    A count, mean, square;
};

__device__ __forceinline__ Moments merged(const Moments &a, const Moments &b) {
    A count = a.count + b.count;
    if (count == A(0)) return a;
    A share = b.count / count, far = b.mean - a.mean;
    Moments m = {count, a.mean + far * share, a.square + b.square + far * far * a.count * share};
    return m;
}

struct Sums {
    A d, xd;
};

__device__ __forceinline__ Sums merged(const Sums &a, const Sums &b) {
    Sums s = {a.d + b.d, a.xd + b.xd};
    return s;
}

// What all threads of a channel come to, returned to all of them. `S` is shared memory for 256 * W.
template <typename M> __device__ __forceinline__ void reduce(M *mine, M *S) {
    int thread = threadIdx.y * blockDim.x + threadIdx.x, group = LAST ? blockDim.x : 1;
    for (int w = 0; w < W; ++w) S[thread * W + w] = mine[w];
    for (int half = blockDim.x * blockDim.y / group / 2; half; half /= 2) {
        __syncthreads();
        if (thread < half * group)
            for (int w = 0; w < W; ++w) S[thread * W + w] = merged(S[thread * W + w], S[(thread + half * group) * W + w]);
    }
    __syncthreads();
    for (int w = 0; w < W; ++w) mine[w] = S[(LAST ? threadIdx.x : 0) * W + w];
}

__device__ __forceinline__ void moments_of(const T *x, const Size &n, const Part &part, int64 c0, Moments *m) {
    A shift[W], sum[W], square[W];
    int64 count = 0;
    for (int w = 0; w < W; ++w) shift[w] = sum[w] = square[w] = A(0);
    if (c0 < n.c) {
        EACH_PACK(at, n, part, c0) {
            Elements x_ = load(x, at);
            if (count == 0)
                for (int w = 0; w < W; ++w) shift[w] = to<A>(x_.at[w]);
            for (int e = 0; e < V; ++e) {
                A far = to<A>(x_.at[e]) - shift[OF(e)];
                sum[OF(e)] += far;
                square[OF(e)] = mx_fma(far, far, square[OF(e)]);
            }
            count += V / W;
        }
    }
    A share = count ? A(1) / (A)count : A(0);
    for (int w = 0; w < W; ++w) {
        A far = sum[w] * share, rest = square[w] - sum[w] * far;
        m[w].count = (A)count;
        m[w].mean = shift[w] + far;
        m[w].square = rest < A(0) ? A(0) : rest;
    }
}

__device__ __forceinline__ A inverse_std(A var, A eps) { return A(1) / mx_sqrt(var + eps); }

// The normalized number, before anything follows; forward and backward must agree on its sign.
__device__ __forceinline__ A line(A x, A mean, A scale, A beta) { return (x - mean) * scale + beta; }

// One channel's numbers for the pass that writes.
struct Channel {
    A mean, scale, beta;
};

__device__ __forceinline__ void write_out(
    const T *x, const T *addend, T *out, const Size &n, const Part &part, int64 c0, const Channel *k, int relu) {
    if (c0 >= n.c) return;
    EACH_PACK(at, n, part, c0) {
        Elements x_ = load(x, at), y_, plus_;
        if (addend) plus_ = load(addend, at);
        for (int e = 0; e < V; ++e) {
            const Channel &of = k[OF(e)];
            A y = line(to<A>(x_.at[e]), of.mean, of.scale, of.beta);
            if (addend) y += to<A>(plus_.at[e]);
            if (relu && y < A(0)) y = A(0);
            y_.at[e] = from<T>(y);
        }
        store(out, at, y_);
    }
}

__device__ __forceinline__ Channel channel(A mean, A inverse, const A *gamma, const A *beta, int64 c) {
    Channel k = {mean, gamma ? inverse * gamma[c] : inverse, beta[c]};
    return k;
}

// Moments of every part: arrays (parts, C) of means and of squares.
extern "C" __global__ void __launch_bounds__(256) moments(const T *x, SIZE, A *means, A *squares) {
    SIZE_OF(n);
    __shared__ Moments S[256 * W];
    Moments m[W];
    int64 c0 = first_channel();
    moments_of(x, n, Part(n, blockIdx.x), c0, m);
    reduce(m, S);
    int thread = threadIdx.y * blockDim.x + threadIdx.x;
    if (thread < (LAST ? blockDim.x : 1) && c0 < n.c)
        for (int w = 0; w < W; ++w) {
            means[blockIdx.x * n.c + c0 + w] = m[w].mean;
            squares[blockIdx.x * n.c + c0 + w] = m[w].square;
        }
}

// What 8 rows of a block of (32, 8) threads come to, in row 0. A row is a share of the parts.
template <typename M> __device__ __forceinline__ M over_rows(M mine, M *S) {
    int thread = threadIdx.y * 32 + threadIdx.x;
    S[thread] = mine;
    for (int half = 4; half; half /= 2) {
        __syncthreads();
        if (threadIdx.y < half) S[thread] = merged(S[thread], S[thread + half * 32]);
    }
    return S[threadIdx.x];
}

// Mean and 1 / std of each channel from those of its parts.
extern "C" __global__ void __launch_bounds__(256) statistics(
    const A *means, const A *squares, SIZE, int64 parts, double eps, A *mean, A *var) {
    SIZE_OF(n);
    __shared__ Moments S[256];
    int64 c = blockIdx.x * (int64)32 + threadIdx.x;
    Moments m = {A(0), A(0), A(0)};
    if (c < n.c)
        for (int64 part = threadIdx.y; part < parts; part += 8) {
            Moments other = {Part(n, part).count(), means[part * n.c + c], squares[part * n.c + c]};
            m = merged(m, other);
        }
    m = over_rows(m, S);
    if (threadIdx.y == 0 && c < n.c) {
        mean[c] = m.mean;
        var[c] = inverse_std(m.square / (m.count > A(1) ? m.count : A(1)), (A)eps);
    }
}

// out = (x - mean) * gamma * inverse + beta, + addend, rectified. `moving`: `from_var` is a variance, and mean and
// inverse are written as well where `mean_out` and `var_out` are there.
extern "C" __global__ void __launch_bounds__(256) normalized(
    const T *x, const T *addend, const A *gamma, const A *beta, const A *from_mean, const A *from_var, SIZE, double eps,
    int moving, int relu, T *out, A *mean_out, A *var_out) {
    SIZE_OF(n);
    Channel k[W];
    int64 c0 = first_channel();
    for (int w = 0; w < W && c0 < n.c; ++w) {
        A mean = from_mean[c0 + w], inverse = from_var[c0 + w];
        if (moving) inverse = inverse_std(inverse, (A)eps);
        k[w] = channel(mean, inverse, gamma, beta, c0 + w);
        if (blockIdx.x == 0 && threadIdx.y == 0 && (LAST || threadIdx.x == 0)) {
            if (mean_out) mean_out[c0 + w] = mean;
            if (var_out) var_out[c0 + w] = inverse;
        }
    }
    if (out) write_out(x, addend, out, n, Part(n, blockIdx.x), c0, k, relu);
}

// All of it where one part is enough: a launch in the place of three.
extern "C" __global__ void __launch_bounds__(256) normalized_at_once(
    const T *x, const T *addend, const A *gamma, const A *beta, SIZE, double eps, int relu, T *out, A *mean_out,
    A *var_out) {
    SIZE_OF(n);
    __shared__ Moments S[256 * W];
    Moments m[W];
    Channel k[W];
    int64 c0 = first_channel();
    Part part(n, 0);
    moments_of(x, n, part, c0, m);
    reduce(m, S);
    for (int w = 0; w < W && c0 < n.c; ++w) {
        A inverse = inverse_std(m[w].square / (m[w].count > A(1) ? m[w].count : A(1)), (A)eps);
        k[w] = channel(m[w].mean, inverse, gamma, beta, c0 + w);
        if (threadIdx.y == 0 && (LAST || threadIdx.x == 0)) {
            if (mean_out) mean_out[c0 + w] = m[w].mean;
            if (var_out) var_out[c0 + w] = inverse;
        }
    }
    if (out) write_out(x, addend, out, n, part, c0, k, relu);
}
