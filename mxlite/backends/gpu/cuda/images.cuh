// Images (N, C, H, W): upsampling, im2col, and normalization across neighbouring channels.
#pragma once

enum { MOST_IMAGES = 8 };

// A number of images whose pixel (i, j) becomes rows x columns pixels of the larger image.
struct Images {
    T *at[MOST_IMAGES];
    int rows[MOST_IMAGES], columns[MOST_IMAGES];
    int count;
};

// Sums of the images; each sample's `plane` elements are those from `start` on of out_plane elements.
extern "C" __global__ void __launch_bounds__(256) repeat_pixels(
    int64 n, T *out, Images images, int h, int w, int plane, int out_plane, int start) {
    MX_EACH(at, n) {
        uint32 sample = (uint32)at / plane, rest = (uint32)at - sample * plane;
        uint32 j = rest % w, row = (uint32)at / w, i = row % h, map = row / h;
        A total = 0;
        for (int k = 0; k < images.count; ++k) {
            int hk = h / images.rows[k], wk = w / images.columns[k];
            int64 from = ((int64)map * hk + i / images.rows[k]) * wk + j / images.columns[k];
            total += to<A>(images.at[k][from]);
        }
        out[(int64)sample * out_plane + start + rest] = from<T>(total);
    }
}

// The gradient: sums of rows x columns pixels; `plane` elements of each sample come from (h * rows, w * columns) ones.
extern "C" __global__ void __launch_bounds__(256) sum_pixels(
    int64 n, const T *d_out, T *d_x, int rows, int columns, int h, int w, int plane, int out_plane, int start) {
    MX_EACH(at, n) {
        uint32 sample = (uint32)at / plane, rest = (uint32)at - sample * plane;
        uint32 j = rest % w, row = rest / w, i = row % h, c = row / h;
        const T *image = d_out + (int64)sample * out_plane + start + (int64)c * h * rows * w * columns;
        A total = 0;
        for (int y = 0; y < rows; ++y)
            for (int x = 0; x < columns; ++x)
                total += to<A>(image[((int64)i * rows + y) * (w * columns) + j * columns + x]);
        d_x[at] = from<T>(total);
    }
}

// -- windows, of up to three axes

struct Windows {
    int size[3], out[3], kernel[3], stride[3], dilate[3], pad[3];
};

// columns[map, tap, window] = the element of the image, 0 outside.
extern "C" __global__ void __launch_bounds__(256) columns_of(int64 n, const T *images, T *columns, Windows w) {
    MX_EACH(at, n) {
        uint32 rest = (uint32)at;
        int place[3];
        for (int axis = 2; axis >= 0; --axis) {
            place[axis] = rest % w.out[axis] * w.stride[axis] - w.pad[axis];
            rest /= w.out[axis];
        }
        for (int axis = 2; axis >= 0; --axis) {
            place[axis] += rest % w.kernel[axis] * w.dilate[axis];
            rest /= w.kernel[axis];
        }
        bool inside = true;
        int64 from = rest;
        for (int axis = 0; axis < 3; ++axis) {
            inside = inside && place[axis] >= 0 && place[axis] < w.size[axis];
            from = from * w.size[axis] + place[axis];
        }
        columns[at] = inside ? images[from] : ::from<T>(A(0));
    }
}

// images[map, place] = the sum of the columns that were taken from there, tap by tap.
extern "C" __global__ void __launch_bounds__(256) images_of(int64 n, const T *columns, T *images, Windows w) {
    MX_EACH(at, n) {
        uint32 rest = (uint32)at;
        int place[3];
        for (int axis = 2; axis >= 0; --axis) {
            place[axis] = rest % w.size[axis] + w.pad[axis];
            rest /= w.size[axis];
        }
        A total = 0;
        int taps = w.kernel[0] * w.kernel[1] * w.kernel[2];
        for (int tap = 0; tap < taps; ++tap) {
            int left = tap, window[3];
            bool there = true;
            for (int axis = 2; axis >= 0; --axis) {
                int begin = place[axis] - left % w.kernel[axis] * w.dilate[axis];
                left /= w.kernel[axis];
                window[axis] = begin / w.stride[axis];
                there = there && begin >= 0 && begin % w.stride[axis] == 0 && window[axis] < w.out[axis];
            }
            if (!there) continue;
            int64 from = (int64)rest * taps + tap;
            for (int axis = 0; axis < 3; ++axis) from = from * w.out[axis] + window[axis];
            total += to<A>(columns[from]);
        }
        images[at] = from<T>(total);
    }
}

// -- local response normalization, (outer, channels, inner)

template <typename X, bool SQUARE>
__device__ __forceinline__ A near_sum(const X *x, int64 at, int channels, int inner, int reach) {
    int c = (int)((uint32)at / inner % channels);
    A own = to<A>(x[at]), total = SQUARE ? own * own : own;
    for (int k = 1; k <= reach; ++k) {
        if (c >= k) {
            A y = to<A>(x[at - (int64)k * inner]);
            total += SQUARE ? y * y : y;
        }
        if (c + k < channels) {
            A y = to<A>(x[at + (int64)k * inner]);
            total += SQUARE ? y * y : y;
        }
    }
    return total;
}

// factor = (knorm + share * sum of squares nearby) ** -beta; out = data * factor, where arrays are given for them.
extern "C" __global__ void __launch_bounds__(256) lrn_factor(
    int64 n, const T *data, T *out, A *factor, int channels, int inner, int reach, double share, double knorm,
    double beta) {
    MX_EACH(at, n) {
        A base = near_sum<T, true>(data, at, channels, inner, reach) * (A)share + (A)knorm;
        A power = mx_pow(base, (A)-beta);
        if (out) out[at] = from<T>(to<A>(data[at]) * power);
        else factor[at] = power;
    }
}

extern "C" __global__ void __launch_bounds__(256) lrn_scale(int64 n, const T *data, T *out, const A *factor) {
    MX_EACH(at, n) out[at] = from<T>(to<A>(data[at]) * factor[at]);
}

// near = d * data * s ** (-beta - 1), own = d * s ** -beta
extern "C" __global__ void __launch_bounds__(256) lrn_parts(
    int64 n, const T *d_out, const T *data, A *near, A *own, int channels, int inner, int reach, double share,
    double knorm, double beta) {
    MX_EACH(at, n) {
        A base = near_sum<T, true>(data, at, channels, inner, reach) * (A)share + (A)knorm;
        A power = mx_pow(base, (A)-beta) * to<A>(d_out[at]);
        own[at] = power;
        near[at] = power / base * to<A>(data[at]);
    }
}

extern "C" __global__ void __launch_bounds__(256) lrn_gradient(
    int64 n, const T *data, const A *near, const A *own, T *d_data, int channels, int inner, int reach, double scale) {
    MX_EACH(at, n) {
        A spread = near_sum<A, false>(near, at, channels, inner, reach) * to<A>(data[at]) * (A)scale;
        d_data[at] = from<T>(own[at] - spread);
    }
}
