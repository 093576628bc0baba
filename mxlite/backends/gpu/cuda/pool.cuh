// Pooling of arrays read as (rows, D, H, W, channels), forward and backward, each number by one thread.
//
// Defined before: T, the type of data; A, that of sums; I, that of indices; KIND of window; V channels of a pack (1
// if there is 1 channel); ALIGNED, whether packs are aligned to their own size. A thread takes a pack of channels at
// one position: forward it iterates over the window, backward over the windows that contain its position, the later
// window first, so that sums have the order of the window's elements.
#pragma once

#define MAX 0
#define AVG 1
#define SUM 2
#define LP 3

struct Axis {
    int size, kernel, stride, pad, out;
};
#define AXIS(n) int size_##n, int kernel_##n, int stride_##n, int pad_##n, int out_##n
#define AXIS_OF(n) Axis n = {size_##n, kernel_##n, stride_##n, pad_##n, out_##n}

// Positions of a window inside the data.
struct Range {
    int from, to, start;
    __device__ Range(const Axis &n, int o) {
        start = o * n.stride - n.pad;
        from = start < 0 ? 0 : start;
        to = start + n.kernel < n.size ? start + n.kernel : n.size;
    }
};

// Number of a window's positions along one axis that a mean counts.
__device__ __forceinline__ int counted(const Axis &n, int o, int padded) {
    int start = o * n.stride - n.pad, end = start + n.kernel;
    if (padded) end = end < n.size + n.pad ? end : n.size + n.pad;
    else {
        end = end < n.size ? end : n.size;
        start = start < 0 ? 0 : start;
    }
    return end - start < 1 ? 1 : end - start;
}

// Windows that contain position i.
struct Windows {
    int from, to;
    __device__ Windows(const Axis &n, int i) {
        int first = i + n.pad - n.kernel + 1, last = (i + n.pad) / n.stride;
        from = first <= 0 ? 0 : (first + n.stride - 1) / n.stride;
        to = last < n.out ? last + 1 : n.out;
    }
};

template <typename E> __device__ __forceinline__ Pack<E, V> load(const E *x, int64 at) {
#if ALIGNED
    return *(const Pack<E, V> *)(x + at);
#else
    Pack<E, V> found;
    for (int e = 0; e < V; ++e) found.at[e] = x[at + e];
    return found;
#endif
}
template <typename E> __device__ __forceinline__ void store(E *y, int64 at, const Pack<E, V> &x) {
#if ALIGNED
    *(Pack<E, V> *)(y + at) = x;
#else
    for (int e = 0; e < V; ++e) y[at + e] = x.at[e];
#endif
}

__device__ __forceinline__ A power(A x, int p) { return p == 1 ? x : p == 2 ? x * x : x * x * x; }

// Location of a pack: `rest` counts packs of one position, then positions.
struct Place {
    int64 row;
    int x, y, z, pack;
    __device__ Place(int64 at, int packs, int w, int h, int d) {
        int64 rest = at;
        if (rest < 0x7fffffff) {
            unsigned n = (unsigned)rest, next = n / packs;
            pack = n - next * packs;
            n = next, next = n / w, x = n - next * w;
            n = next, next = n / h, y = n - next * h;
            n = next, next = n / d, z = n - next * d;
            row = next;
        } else {
            pack = rest % packs, rest /= packs;
            x = rest % w, rest /= w;
            y = rest % h, rest /= h;
            z = rest % d, row = rest / d;
        }
    }
};

// `total` packs of outputs. index is null if it is not requested, and so is out.
extern "C" __global__ void __launch_bounds__(256) pool(
    const T *in, T *out, I *index, int64 total, int packs, AXIS(d), AXIS(h), AXIS(w), int padded, int p) {
    AXIS_OF(d);
    AXIS_OF(h);
    AXIS_OF(w);
    int64 channels = (int64)packs * V;
    MX_EACH(at, total) {
        Place o(at, packs, w.out, h.out, d.out);
        Range rd(d, o.z), rh(h, o.y), rw(w, o.x);
        A best[V];
        I where[V];
        for (int e = 0; e < V; ++e) {
            best[e] = KIND == MAX ? -A(bits_to_float(0x7f800000u)) : A(0);
            where[e] = (I)(d.kernel * h.kernel * w.kernel);
        }
        for (int z = rd.from; z < rd.to; ++z)
            for (int y = rh.from; y < rh.to; ++y) {
                int64 line = ((o.row * d.size + z) * h.size + y) * w.size;
                int k = ((z - rd.start) * h.kernel + y - rh.start) * w.kernel - rw.start;
                for (int x = rw.from; x < rw.to; ++x) {
                    Pack<T, V> v = load(in, (line + x) * channels + o.pack * V);
                    for (int e = 0; e < V; ++e) {
                        A n = to<A>(v.at[e]);
                        if (KIND == MAX) {
                            if (best[e] != best[e]) continue;  // the first nan wins
                            if (n != n || n > best[e] || (n == best[e] && where[e] == (I)(d.kernel * h.kernel * w.kernel))) {
                                best[e] = n;
                                where[e] = (I)(k + x);
                            }
                        } else best[e] += KIND == LP ? power(n, p) : n;
                    }
                }
            }
        Pack<T, V> y;
        Pack<I, V> chosen;
        A count = KIND == AVG ? A(counted(d, o.z, padded)) * A(counted(h, o.y, padded)) * A(counted(w, o.x, padded)) : A(1);
        for (int e = 0; e < V; ++e) {
            A n = best[e];
            if (KIND == AVG) n = n / count;
            if (KIND == LP) n = p == 1 ? n : p == 2 ? mx_sqrt(n) : mx_cbrt(n);
            y.at[e] = from<T>(n);
            chosen.at[e] = where[e];
        }
        if (out) store(out, at * V, y);
        if (KIND == MAX && index) store(index, at * V, chosen);
    }
}

// `total` packs of d_data. Only LP reads data and out, only MAX index.
extern "C" __global__ void __launch_bounds__(256) spread(
    const T *d_out, const T *data, const T *out, const I *index, T *d_data, int64 total, int packs, AXIS(d), AXIS(h),
    AXIS(w), int padded, int p) {
    AXIS_OF(d);
    AXIS_OF(h);
    AXIS_OF(w);
    int64 channels = (int64)packs * V;
    MX_EACH(at, total) {
        Place i(at, packs, w.size, h.size, d.size);
        Windows wd(d, i.z), wh(h, i.y), ww(w, i.x);
        A sum[V];
        for (int e = 0; e < V; ++e) sum[e] = A(0);
        for (int z = wd.to - 1; z >= wd.from; --z)
            for (int y = wh.to - 1; y >= wh.from; --y)
                for (int x = ww.to - 1; x >= ww.from; --x) {
                    int64 from_ = (((i.row * d.out + z) * h.out + y) * w.out + x) * channels + i.pack * V;
                    Pack<T, V> g = load(d_out, from_), norm = g;
                    Pack<I, V> chosen;
                    if (KIND == MAX) chosen = load(index, from_);
                    if (KIND == LP) norm = load(out, from_);
                    int k = ((i.z - (z * d.stride - d.pad)) * h.kernel + i.y - (y * h.stride - h.pad)) * w.kernel + i.x -
                            (x * w.stride - w.pad);
                    A count = KIND == AVG ? A(counted(d, z, padded)) * A(counted(h, y, padded)) * A(counted(w, x, padded))
                                          : A(1);
                    for (int e = 0; e < V; ++e) {
                        A term = to<A>(g.at[e]);
                        if (KIND == MAX) {
                            if (chosen.at[e] != (I)k) continue;
                        } else if (KIND == AVG) term = term / count;
                        else if (KIND == LP && p > 1) {
                            A size = to<A>(norm.at[e]);
                            term = size == A(0) ? term : term / power(size, p - 1);
                        }
                        sum[e] += term;
                    }
                }
        Pack<T, V> x_, y_;
        if (KIND == LP && p > 1) x_ = load(data, at * V);
        for (int e = 0; e < V; ++e) {
            A n = sum[e];
            if (KIND == LP && p > 1) n *= power(to<A>(x_.at[e]), p - 1);
            y_.at[e] = from<T>(n);
        }
        store(d_data, at * V, y_);
    }
}
