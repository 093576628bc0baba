// The gradient of batch normalization; parameters, and work split among threads: channels.cuh.
//
//     d_data = factor * (d - sum(d) / M - (x - mean) * inverse^2 * sum(d * (x - mean)) / M),   factor = gamma * inverse
//
// with M numbers in a channel; d is the head gradient where the rectifier is active, else its slope times that. The
// moving averages are updated here.
#pragma once

// Mask of the rectifier: MASK_LINE recomputes it, MASK_OUT reads it from the output.
enum { MASK_NONE, MASK_LINE, MASK_OUT };

struct Inputs {
    const T *d, *x, *out;
    const A *gamma, *beta, *mean, *var;
    int mask;
    A below;
};
#define INPUTS const T *in_d, const T *in_x, const T *in_out, const A *gamma, const A *beta, const A *mean, const A *var, int mask, double below
#define INPUTS_OF(in) Inputs in = {in_d, in_x, in_out, gamma, beta, mean, var, mask, (A)below}

struct Slope {
    A mean, factor, beta, slope, offset;
};

// A batch of the elements that the gradient reads.
template <int N> struct Loaded {
    Batch<N> batch;
    Elements x[N], d[N], out[N];
    __device__ Loaded(const Inputs &in, Walk &walk) : batch(walk) {
        _Pragma("unroll") for (int b = 0; b < N; ++b)
            if (b < batch.count) {
                x[b] = load(in.x, batch.at[b]);
                d[b] = load(in.d, batch.at[b]);
                if (in.mask == MASK_OUT) out[b] = load(in.out, batch.at[b]);
            }
    }
    // The head gradient after the rectifier.
    __device__ A head(const Inputs &in, int b, int e, const Slope &of) const {
        A d_ = to<A>(d[b].at[e]);
        if (in.mask == MASK_NONE) return d_;
        A y = in.mask == MASK_OUT ? to<A>(out[b].at[e]) : line(to<A>(x[b].at[e]), of.mean, of.factor, of.beta);
        return y <= A(0) ? leaked(d_, in.below) : d_;  // nan passes
    }
};

__device__ __forceinline__ void slopes_of(const Inputs &in, const Size &n, int64 c0, Slope *k) {
    for (int w = 0; w < W && c0 < n.c; ++w) {
        A inverse = in.var[c0 + w];
        k[w].mean = in.mean[c0 + w];
        k[w].factor = in.gamma ? inverse * in.gamma[c0 + w] : inverse;
        k[w].beta = in.mask == MASK_LINE ? in.beta[c0 + w] : A(0);
        k[w].slope = k[w].offset = A(0);
    }
}

// `sums` are of the whole channel, xd is not yet divided by std.
__device__ __forceinline__ void through_statistics(const Inputs &in, const Size &n, int64 c, const Sums &sums, Slope &k) {
    A count = (A)(n.i * n.p);
    if (count < A(1)) count = A(1);
    k.slope = -(sums.xd * in.var[c] * in.var[c] * k.factor / count);
    k.offset = -(sums.d * k.factor / count);
}

__device__ __forceinline__ void sums_of(
    const Inputs &in, const Size &n, const Part &part, int64 c0, const Slope *k, Sums *s) {
    for (int w = 0; w < W; ++w) s[w].d = s[w].xd = A(0);
    for (Walk walk(n, part, c0); walk.inside();) {
        Loaded<2> m(in, walk);
        _Pragma("unroll") for (int b = 0; b < 2; ++b)
            if (b < m.batch.count)
                for (int e = 0; e < V; ++e) {
                    const Slope &of = k[OF(e)];
                    A x = to<A>(m.x[b].at[e]), d = m.head(in, b, e, of);
                    s[OF(e)].d += d;
                    s[OF(e)].xd = mx_fma(d, x - of.mean, s[OF(e)].xd);
                }
    }
}

__device__ __forceinline__ void write_gradient(
    const Inputs &in, const Size &n, const Part &part, int64 c0, const Slope *k, T *d_data, T *d_addend) {
    for (Walk walk(n, part, c0); walk.inside();) {
        Loaded<2> m(in, walk);
        _Pragma("unroll") for (int b = 0; b < 2; ++b)
            if (b < m.batch.count) {
                for (int e = 0; e < V; ++e) {
                    const Slope &of = k[OF(e)];
                    A x = to<A>(m.x[b].at[e]), d = m.head(in, b, e, of);
                    m.d[b].at[e] = from<T>(d);
                    m.x[b].at[e] = from<T>(mx_fma(of.factor, d, mx_fma(of.slope, x - of.mean, of.offset)));
                }
                if (d_addend) store(d_addend, m.batch.at[b], m.d[b]);
                if (d_data) store(d_data, m.batch.at[b], m.x[b]);
            }
    }
}

// Results per channel: gradients of gamma and beta, and the moving averages.
struct Columns {
    A *d_gamma, *d_beta, *moving_mean, *moving_var;
    double eps, momentum;
    int fix_gamma, moves;
};
#define COLUMNS                                                                                              \
    A *d_gamma, A *d_beta, A *moving_mean, A *moving_var, double eps, double momentum, int fix_gamma, int moves
#define COLUMNS_OF(to_) Columns to_ = {d_gamma, d_beta, moving_mean, moving_var, eps, momentum, fix_gamma, moves}

__device__ __forceinline__ void write_columns(const Columns &to_, const Inputs &in, int64 c, const Sums &sums) {
    A mean = in.mean[c], inverse = in.var[c];
    if (to_.d_gamma) to_.d_gamma[c] = to_.fix_gamma ? A(0) : sums.xd * inverse;
    if (to_.d_beta) to_.d_beta[c] = sums.d;
    if (to_.moves) {
        A keep = (A)to_.momentum, step = (A)(1.0 - to_.momentum);
        A batch = A(1) / (inverse * inverse) - (A)to_.eps;  // recompute the variance
        to_.moving_mean[c] = to_.moving_mean[c] * keep + mean * step;
        to_.moving_var[c] = to_.moving_var[c] * keep + batch * step;
    }
}

// Sums of every part: arrays (parts, C).
extern "C" __global__ void __launch_bounds__(256) part_sums(INPUTS, SIZE, A *of_d, A *of_xd) {
    INPUTS_OF(in);
    SIZE_OF(n);
    __shared__ Sums S[256 * W];
    Sums s[W];
    Slope k[W];
    int64 c0 = first_channel();
    slopes_of(in, n, c0, k);
    sums_of(in, n, Part(n, blockIdx.x), c0, k, s);
    reduce(s, S);
    int thread = threadIdx.y * blockDim.x + threadIdx.x;
    if (thread < (LAST ? blockDim.x : 1) && c0 < n.c)
        for (int w = 0; w < W; ++w) {
            of_d[blockIdx.x * n.c + c0 + w] = s[w].d;
            of_xd[blockIdx.x * n.c + c0 + w] = s[w].xd;
        }
}

// Total of each channel's parts, into part 0; and the results per channel. Without parts only the
// latter.
extern "C" __global__ void __launch_bounds__(1024) columns(INPUTS, SIZE, int64 parts, A *of_d, A *of_xd, COLUMNS) {
    INPUTS_OF(in);
    SIZE_OF(n);
    COLUMNS_OF(to_);
    __shared__ Sums S[32 * ROWS];
    int64 c = blockIdx.x * (int64)32 + threadIdx.x;
    Sums s = {A(0), A(0)};
    if (c < n.c)
        for (int64 part = threadIdx.y; part < parts; part += ROWS) {
            s.d += of_d[part * n.c + c];
            s.xd += of_xd[part * n.c + c];
        }
    s = over_rows(s, S);
    if (threadIdx.y == 0 && c < n.c) {
        if (parts) {
            of_d[c] = s.d;
            of_xd[c] = s.xd;
        }
        write_columns(to_, in, c, s);
    }
}

// The gradients of data and addend; `of_d` is null if the statistics were not computed from the data.
extern "C" __global__ void __launch_bounds__(256) gradient(
    INPUTS, SIZE, const A *of_d, const A *of_xd, T *d_data, T *d_addend) {
    INPUTS_OF(in);
    SIZE_OF(n);
    Slope k[W];
    int64 c0 = first_channel();
    slopes_of(in, n, c0, k);
    for (int w = 0; w < W && c0 < n.c && of_d; ++w) {
        Sums s = {of_d[c0 + w], of_xd[c0 + w]};
        through_statistics(in, n, c0 + w, s, k[w]);
    }
    write_gradient(in, n, Part(n, blockIdx.x), c0, k, d_data, d_addend);
}

// The whole computation if one part is enough: one launch instead of three.
extern "C" __global__ void __launch_bounds__(256) gradient_at_once(
    INPUTS, SIZE, int through, COLUMNS, T *d_data, T *d_addend) {
    INPUTS_OF(in);
    SIZE_OF(n);
    COLUMNS_OF(to_);
    __shared__ Sums S[256 * W];
    Sums s[W];
    Slope k[W];
    int64 c0 = first_channel();
    Part part(n, 0);
    slopes_of(in, n, c0, k);
    sums_of(in, n, part, c0, k, s);
    reduce(s, S);
    for (int w = 0; w < W && c0 < n.c; ++w) {
        if (through) through_statistics(in, n, c0 + w, s[w], k[w]);
        if (threadIdx.y == 0 && (LAST || threadIdx.x == 0)) write_columns(to_, in, c0 + w, s[w]);
    }
    if (d_data || d_addend) write_gradient(in, n, part, c0, k, d_data, d_addend);
}
