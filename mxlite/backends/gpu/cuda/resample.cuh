// Weighted sums along two axes, (outer, a, b, inner): the maps of mxlite/ops/vision/resample.py. T is the type of the
// operator's arrays, A that of the intermediate array of two passes.
#pragma once

enum { NEAREST, LINEAR, CUBIC, MEAN };
enum { ROUND_FLOOR, ROUND_CEIL, PREFER_FLOOR, PREFER_CEIL };

struct Axis {
    double ratio, shift, cubic;
    int size, out, kind, rounding, exclude;
};

// Output o of an axis reads `count` elements from `begin` on, clamped to the range.
struct Taps {
    int begin, count;
    double weights[4];
    __device__ __forceinline__ A weight(int t) const {
        return (A)(t == 1 ? weights[1] : t == 2 ? weights[2] : t == 3 ? weights[3] : weights[0]);
    }
};

__device__ __forceinline__ double keys(double x, double a) {
    if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0.0;
}

__device__ __forceinline__ int nearest_end(double x, int last) { return x > 0 ? x < last ? (int)x : last : 0; }

__device__ __forceinline__ Taps taps_of(const Axis &axis, int o) {
    Taps taps;
    int last = axis.size - 1;
    taps.weights[0] = taps.weights[1] = taps.weights[2] = taps.weights[3] = 1;
    if (axis.kind == MEAN) {
        taps.begin = (int)((int64)o * axis.size / axis.out);
        taps.count = (int)(((int64)(o + 1) * axis.size + axis.out - 1) / axis.out) - taps.begin;
        for (int t = 0; t < 4; ++t) taps.weights[t] = 1.0 / taps.count;
        return taps;
    }
    double x = o * axis.ratio + axis.shift;
    if (axis.kind == NEAREST) {
        x = axis.rounding == ROUND_FLOOR    ? floor(x)
            : axis.rounding == ROUND_CEIL   ? ceil(x)
            : axis.rounding == PREFER_FLOOR ? ceil(x - 0.5)
                                            : floor(x + 0.5);
        taps.begin = nearest_end(x, last);
        taps.count = 1;
    } else if (axis.kind == LINEAR) {
        x = x > 0 ? x < last ? x : last : 0;
        taps.begin = (int)x;
        taps.count = 2;
        taps.weights[1] = x - taps.begin;
        taps.weights[0] = 1 - taps.weights[1];
    } else {
        double whole = floor(x), part = x - whole, total = 0;
        taps.begin = (int)whole - 1;
        taps.count = 4;
        for (int t = 0; t < 4; ++t) {
            bool outside = axis.exclude && (taps.begin + t < 0 || taps.begin + t > last);
            taps.weights[t] = outside ? 0 : keys(fabs(part + 1 - t), axis.cubic);
            total += taps.weights[t];
        }
        if (axis.exclude)
            for (int t = 0; t < 4; ++t) taps.weights[t] /= total;
    }
    return taps;
}

__device__ __forceinline__ int inside(int i, const Axis &axis) { return i < 0 ? 0 : i < axis.size ? i : axis.size - 1; }

template <typename X, typename Y>
__device__ __forceinline__ void resampled(int64 n, const X *x, Y *y, const Axis &a, const Axis &b, int inner) {
    MX_EACH(at, n) {
        uint32 rest = (uint32)at, column = rest % inner;
        rest /= inner;
        Taps right = taps_of(b, rest % b.out);
        rest /= b.out;
        Taps down = taps_of(a, rest % a.out);
        const X *image = x + (int64)(rest / a.out) * a.size * b.size * inner + column;
        A total = 0;
        for (int i = 0; i < down.count; ++i) {
            const X *row = image + (int64)inside(down.begin + i, a) * b.size * inner;
            A sum = 0;
            for (int j = 0; j < right.count; ++j)
                sum += to<A>(row[(int64)inside(right.begin + j, b) * inner]) * right.weight(j);
            total += sum * down.weight(i);
        }
        y[at] = from<Y>(total);
    }
}

// The outputs that read each element of an axis: [first, end), of axis a and then of b.
extern "C" __global__ void __launch_bounds__(256) resample_ranges(int64 n, int *first, int *end, Axis a, Axis b) {
    MX_EACH(at, n) {
        Axis axis = at < a.size ? a : b;
        int i = (int)at - (at < a.size ? 0 : a.size);
        for (int side = 0; side < 2; ++side) {
            int low = 0, high = axis.out;
            while (low < high) {
                int o = (low + high) / 2;
                Taps taps = taps_of(axis, o);
                bool there = side ? inside(taps.begin, axis) > i : inside(taps.begin + taps.count - 1, axis) >= i;
                if (there) high = o;
                else low = o + 1;
            }
            (side ? end : first)[at] = low;
        }
    }
}

// Weight of element i in output o.
__device__ __forceinline__ A share(const Axis &axis, int o, int i) {
    Taps taps = taps_of(axis, o);
    A sum = 0;
    for (int t = axis.kind == MEAN ? i - taps.begin : 0; t < taps.count; ++t) {
        if (inside(taps.begin + t, axis) == i) sum += taps.weight(t);
        if (axis.kind == MEAN) break;
    }
    return sum;
}

// y has the sizes, x the outs of the axes.
template <typename X, typename Y>
__device__ __forceinline__ void gathered(
    int64 n, const X *x, Y *y, const int *first, const int *end, const Axis &a, const Axis &b, int inner) {
    MX_EACH(at, n) {
        uint32 rest = (uint32)at, column = rest % inner;
        rest /= inner;
        int j = rest % b.size;
        rest /= b.size;
        int i = rest % a.size;
        const X *image = x + (int64)(rest / a.size) * a.out * b.out * inner + column;
        A total = 0;
        for (int p = first[i]; p < end[i]; ++p) {
            A sum = 0;
            for (int q = first[a.size + j]; q < end[a.size + j]; ++q)
                sum += to<A>(image[((int64)p * b.out + q) * inner]) * share(b, q, j);
            total += sum * share(a, p, i);
        }
        y[at] = from<Y>(total);
    }
}
