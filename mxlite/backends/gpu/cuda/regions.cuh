// Pooling over regions of interest, rows (image, x1, y1, x2, y2): see mxlite/ops/vision/roi.py. A region with image
// -1 is skipped; one with an invalid image gives nan, as a kernel cannot raise errors.
#pragma once

struct Regions {
    double scale;
    int count, images, channels, h, w, ph, pw, samples, aligned, by_position;
};

// The image of a region; -1: none, -2: invalid.
__device__ __forceinline__ int image_of(const T *rois, int r, const Regions &m) {
    double image = to<double>(rois[(int64)r * 5]);
    return image >= m.images ? -2 : image >= 0 ? (int)image : -1;
}

// -- maxima

__device__ __forceinline__ int64 corner_of(const T *rois, int r, int k, const Regions &m) {
    double x = to<double>(rois[(int64)r * 5 + k]) * m.scale;
    double nearest = floor(fabs(x) + 0.5) * (x >= 0 ? 1 : -1), most = 2147483648.0;
    return x != x ? 0 : (int64)(nearest < -most ? -most : nearest > most ? most : nearest);
}

struct Part {
    int begin, end;
};

__device__ __forceinline__ Part part_of(int64 first, int64 last, int i, int count, int size) {
    float step = (float)(last - first + 1 > 1 ? last - first + 1 : 1) / (float)count;
    int64 begin = (int64)floorf(i * step) + first, end = (int64)ceilf((i + 1) * step) + first;
    Part part = {(int)(begin < 0 ? 0 : begin > size ? size : begin), (int)(end < 0 ? 0 : end > size ? size : end)};
    return part;
}

extern "C" __global__ void __launch_bounds__(256) roi_max(
    int64 n, const T *data, const T *rois, T *out, int *index, Regions m) {
    MX_EACH(at, n) {
        uint32 rest = (uint32)at;
        int j = rest % m.pw, i = rest / m.pw % m.ph, c = rest / m.pw / m.ph % m.channels;
        int r = rest / m.pw / m.ph / m.channels, image = image_of(rois, r, m), place = -1;
        A best = image == -2 ? (A)(0.0 / 0.0) : (A)0;
        if (image >= 0) {
            Part columns = part_of(corner_of(rois, r, 1, m), corner_of(rois, r, 3, m), j, m.pw, m.w);
            Part rows = part_of(corner_of(rois, r, 2, m), corner_of(rois, r, 4, m), i, m.ph, m.h);
            const T *plane = data + ((int64)image * m.channels + c) * m.h * m.w;
            if (columns.begin < columns.end)
                for (int y = rows.begin; y < rows.end; ++y) {
                    A row = to<A>(plane[(int64)y * m.w + columns.begin]);
                    int column = columns.begin;
                    for (int x = columns.begin + 1; x < columns.end; ++x) {
                        A value = to<A>(plane[(int64)y * m.w + x]);
                        if (value > row) {
                            row = value;
                            column = x;
                        }
                    }
                    if (y == rows.begin || row > best) {
                        best = row;
                        place = y * m.w + column;
                    }
                }
        }
        if (out) out[at] = from<T>(best);
        if (index) index[at] = place;
    }
}

// Each pixel gathers from the bins whose maximum it was, region after region.
extern "C" __global__ void __launch_bounds__(256) roi_max_gradient(
    int64 n, const T *d_out, const T *rois, const int *index, T *d_data, Regions m) {
    MX_EACH(at, n) {
        uint32 plane = m.h * m.w, map = (uint32)at / plane, pixel = (uint32)at - map * plane;
        int c = map % m.channels, image = map / m.channels;
        int64 y = pixel / m.w, x = pixel % m.w;
        A total = 0;
        for (int r = 0; r < m.count; ++r) {
            if (image_of(rois, r, m) != image) continue;
            int64 x1 = corner_of(rois, r, 1, m), y1 = corner_of(rois, r, 2, m);
            if (x < x1 || y < y1) continue;
            int64 x2 = corner_of(rois, r, 3, m), y2 = corner_of(rois, r, 4, m);
            if (x > (x2 < x1 ? x1 : x2) + 1 || y > (y2 < y1 ? y1 : y2) + 1) continue;
            int64 first = ((int64)r * m.channels + c) * m.ph * m.pw;
            for (int k = 0; k < m.ph * m.pw; ++k)
                if (index[first + k] == (int)pixel) total += to<A>(d_out[first + k]);
        }
        d_data[at] = from<T>(total);
    }
}

// -- means

// The weights of all rows (or columns) in each bin of each region, and the range of nonzero ones.
extern "C" __global__ void __launch_bounds__(256) roi_weights(
    int64 n, const T *rois, A *weights_y, A *weights_x, int *ranges, Regions m) {
    MX_EACH(at, n) {
        int parts = m.ph + m.pw, r = (int)(at / parts), p = (int)(at % parts);
        bool across = p >= m.ph;
        int i = across ? p - m.ph : p, count = across ? m.pw : m.ph, size = across ? m.w : m.h;
        A *weights = across ? weights_x + ((int64)r * m.pw + i) * m.w : weights_y + ((int64)r * m.ph + i) * m.h;
        for (int k = 0; k < size; ++k) weights[k] = 0;
        double offset = m.aligned ? 0.5 : 0.0;
        double begin = to<double>(rois[(int64)r * 5 + (across ? 1 : 2)]) * m.scale - offset;
        double length = to<double>(rois[(int64)r * 5 + (across ? 3 : 4)]) * m.scale - offset - begin;
        if (!m.aligned && !(length > 1)) length = length != length ? length : 1;
        double step = length / count, first = 0, last = 0;
        int low = size, high = 0;
        if (image_of(rois, r, m) >= 0 && fabs(step) < 1099511627776.0) {
            double samples = m.samples > 0 ? m.samples : ceil(step), gap = step / samples, start = begin + i * step;
            last = samples;
            if (gap > 0) {
                first = floor((-1 - start) / gap) - 2;
                last = ceil((size - start) / gap) + 2;
                if (last > samples) last = samples;
            }
            for (double k = first > 0 ? first : 0; k < last; k += 1) {
                double place = start + (k + 0.5) * step / samples;
                if (!(place >= -1 && place <= size)) continue;
                place = place > 0 ? place : 0;
                int below = (int)place < size - 1 ? (int)place : size - 1;
                int above = below + 1 < size ? below + 1 : size - 1;
                double share = below == size - 1 ? 0.0 : place - below;
                weights[below] += (A)((1 - share) / samples);
                weights[above] += (A)(share / samples);
                if (below < low) low = below;
                if (above >= high) high = above + 1;
            }
        }
        ranges[2 * at] = low;
        ranges[2 * at + 1] = high;
    }
}

extern "C" __global__ void __launch_bounds__(256) roi_mean(
    int64 n, const T *data, const T *rois, const A *weights_y, const A *weights_x, const int *ranges, T *out,
    Regions m) {
    MX_EACH(at, n) {
        uint32 rest = (uint32)at;
        int j = rest % m.pw, i = rest / m.pw % m.ph, made = m.by_position ? m.channels / m.ph / m.pw : m.channels;
        int c = rest / m.pw / m.ph % made, r = rest / m.pw / m.ph / made, image = image_of(rois, r, m);
        A total = image == -2 ? (A)(0.0 / 0.0) : (A)0;
        if (image >= 0) {
            if (m.by_position) c = (c * m.ph + i) * m.pw + j;
            const T *plane = data + ((int64)image * m.channels + c) * m.h * m.w;
            const int *rows = ranges + 2 * ((int64)r * (m.ph + m.pw) + i);
            const int *columns = ranges + 2 * ((int64)r * (m.ph + m.pw) + m.ph + j);
            for (int y = rows[0]; y < rows[1]; ++y) {
                A sum = 0;
                for (int x = columns[0]; x < columns[1]; ++x)
                    sum += to<A>(plane[(int64)y * m.w + x]) * weights_x[((int64)r * m.pw + j) * m.w + x];
                total += sum * weights_y[((int64)r * m.ph + i) * m.h + y];
            }
        }
        out[at] = from<T>(total);
    }
}

extern "C" __global__ void __launch_bounds__(256, 4) roi_mean_gradient(
    int64 n, const T *d_out, const T *rois, const A *weights_y, const A *weights_x, T *d_data, Regions m) {
    MX_EACH(at, n) {
        uint32 plane = m.h * m.w, map = (uint32)at / plane, pixel = (uint32)at - map * plane;
        int c = map % m.channels, image = map / m.channels, y = pixel / m.w, x = pixel % m.w;
        int parts = m.ph * m.pw, own = m.by_position ? c % parts : -1;
        int made = m.by_position ? m.channels / parts : m.channels;
        if (m.by_position) c /= parts;
        A total = 0;
        for (int r = 0; r < m.count; ++r) {
            if (image_of(rois, r, m) != image) continue;
            for (int i = 0; i < m.ph; ++i) {
                A down = weights_y[((int64)r * m.ph + i) * m.h + y], sum = 0;
                if (down == (A)0 || (own >= 0 && own / m.pw != i)) continue;
                for (int j = 0; j < m.pw; ++j)
                    if (own < 0 || own % m.pw == j)
                        sum += to<A>(d_out[(((int64)r * made + c) * m.ph + i) * m.pw + j]) *
                               weights_x[((int64)r * m.pw + j) * m.w + x];
                total += sum * down;
            }
        }
        d_data[at] = from<T>(total);
    }
}
