// Batch normalization; parameters, and work split among threads: channels.cuh.
//
// Statistics are those of shifted data: a thread shifts by the first number it reads, two threads' are merged as in
// T. Chan, G. Golub, R. LeVeque, 1983, "Algorithms for computing the sample variance". So precision is kept if the
// mean is large.
#pragma once

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

__device__ __forceinline__ void moments_of(const T *x, const Size &n, const Part &part, int64 c0, Moments *m) {
    A shift[W], sum[W], square[W];
    int64 count = 0;
    Walk walk(n, part, c0);
    for (int w = 0; w < W; ++w) {
        shift[w] = walk.inside() ? to<A>(x[walk.at + w]) : A(0);
        sum[w] = square[w] = A(0);
    }
    while (walk.inside()) {
        Batch<4> batch(walk);
        Elements x_[4];
        _Pragma("unroll") for (int b = 0; b < 4; ++b)
            if (b < batch.count) x_[b] = load(x, batch.at[b]);
        _Pragma("unroll") for (int b = 0; b < 4; ++b)
            if (b < batch.count)
                for (int e = 0; e < V; ++e) {
                    A far = to<A>(x_[b].at[e]) - shift[OF(e)];
                    sum[OF(e)] += far;
                    square[OF(e)] = mx_fma(far, far, square[OF(e)]);
                }
        count += batch.count * (V / W);
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

// One channel's coefficients for the pass that writes.
struct Channel {
    A mean, scale, beta;
};

__device__ __forceinline__ void write_out(
    const T *x, const T *addend, T *out, const Size &n, const Part &part, int64 c0, const Channel *k, A below,
    int behind) {
    for (Walk walk(n, part, c0); walk.inside();) {
        Batch<2> batch(walk);
        Elements x_[2], plus_[2];
        _Pragma("unroll") for (int b = 0; b < 2; ++b)
            if (b < batch.count) {
                x_[b] = load(x, batch.at[b]);
                if (addend) plus_[b] = load(addend, batch.at[b]);
            }
        _Pragma("unroll") for (int b = 0; b < 2; ++b)
            if (b < batch.count) {
                for (int e = 0; e < V; ++e) {
                    const Channel &of = k[OF(e)];
                    A y = line(to<A>(x_[b].at[e]), of.mean, of.scale, of.beta);
                    if (addend && !behind) y += to<A>(plus_[b].at[e]);
                    if (y < A(0)) y = leaked(y, below);
                    if (addend && behind) y += to<A>(plus_[b].at[e]);
                    x_[b].at[e] = from<T>(y);
                }
                store(out, batch.at[b], x_[b]);
            }
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

// Mean and 1 / std of each channel, merged from those of its parts.
extern "C" __global__ void __launch_bounds__(1024) statistics(
    const A *means, const A *squares, SIZE, int64 parts, double eps, A *mean, A *var) {
    SIZE_OF(n);
    __shared__ Moments S[32 * ROWS];
    int64 c = blockIdx.x * (int64)32 + threadIdx.x;
    Moments m = {A(0), A(0), A(0)};
    const int AHEAD = 4;  // parts that are loaded ahead
    if (c < n.c)
        for (int64 first = threadIdx.y; first < parts; first += ROWS * AHEAD) {
            Moments other[AHEAD];
            _Pragma("unroll") for (int b = 0; b < AHEAD; ++b) {
                int64 part = first + b * ROWS < parts ? first + b * ROWS : first;
                other[b].count = Part(n, part).count();
                other[b].mean = means[part * n.c + c];
                other[b].square = squares[part * n.c + c];
            }
            _Pragma("unroll") for (int b = 0; b < AHEAD; ++b)
                if (first + b * ROWS < parts) m = merged(m, other[b]);
        }
    m = over_rows(m, S);
    if (threadIdx.y == 0 && c < n.c) {
        mean[c] = m.mean;
        var[c] = inverse_std(m.square / (m.count > A(1) ? m.count : A(1)), (A)eps);
    }
}

// out = (x - mean) * gamma * inverse + beta, + addend, rectified; or rectified, + addend. `moving`: `from_var` is a
// variance, and mean and inverse are written as well if `mean_out` and `var_out` are given.
extern "C" __global__ void __launch_bounds__(256) normalized(
    const T *x, const T *addend, const A *gamma, const A *beta, const A *from_mean, const A *from_var, SIZE, double eps,
    int moving, double below, int behind, T *out, A *mean_out, A *var_out) {
    SIZE_OF(n);
    Channel k[W];
    A inverse[W];
    int64 c0 = first_channel();
    for (int w = 0; w < W && c0 < n.c; ++w) {
        inverse[w] = moving ? inverse_std(from_var[c0 + w], (A)eps) : from_var[c0 + w];
        k[w] = channel(from_mean[c0 + w], inverse[w], gamma, beta, c0 + w);
    }
    // Separate from the loop above: loads must not be moved past stores.
    if (mean_out && blockIdx.x == 0 && threadIdx.y == 0 && (LAST || threadIdx.x == 0))
        for (int w = 0; w < W && c0 < n.c; ++w) mean_out[c0 + w] = k[w].mean;
    if (var_out && blockIdx.x == 0 && threadIdx.y == 0 && (LAST || threadIdx.x == 0))
        for (int w = 0; w < W && c0 < n.c; ++w) var_out[c0 + w] = inverse[w];
    if (out) write_out(x, addend, out, n, Part(n, blockIdx.x), c0, k, (A)below, behind);
}

// The whole computation if one part is enough: one launch instead of three.
extern "C" __global__ void __launch_bounds__(256) normalized_at_once(
    const T *x, const T *addend, const A *gamma, const A *beta, SIZE, double eps, double below, int behind, T *out, A *mean_out,
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
    if (out) write_out(x, addend, out, n, part, c0, k, (A)below, behind);
}
