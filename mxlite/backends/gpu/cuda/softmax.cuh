// Softmax along an axis, its logarithm, and cross-entropies computed from it without storing it.
//
// Types: X of the data, Y of the result, C to compute with. WIDTH elements are read at once. A group of threads has
// a line along the last axis; its first HELD packs of each thread stay in registers, so that a line of up to
// group * HELD * WIDTH elements is read once. The rest is reduced online (M. Milakov and N. Gimelshein, 2018,
// "Online normalizer calculation for softmax") and reread when results are written.
#pragma once

enum { SOFTMAX, LOG_SOFTMAX, LOSS, LOSS_GRADIENT };

struct Softmax {
    const X *data;
    Y *out;
    const void *limit;  // for each line: number of valid elements
    const void *label;  // for each line: its class
    const X *weight;    // for each class
    const X *head;      // gradient of the loss, one number or one for each line
    const double *counts;  // their sums are the divisor of a mean
    C *losses;
    uint64 *wrong;      // where an invalid label is recorded
    int64 lines, ignored;
    double scale;
    uint32 length, group;
    Divisor inner;
    int mode, vector, limit_kind, label_kind, checked, each, parts;
};

// The class of a line, or -1 if it has none.
__device__ __forceinline__ int64 class_of(const Softmax &s, int64 line) {
    int64 label = whole(s.label, s.label_kind, line);
    bool none = label < 0 || label >= s.length || (s.checked && label == s.ignored);
    return none ? -1 : label;
}

// If wrong labels are errors: nan for those, which are recorded.
__device__ __forceinline__ C none_of(const Softmax &s, int64 line) {
    bool wrong = s.checked && whole(s.label, s.label_kind, line) != s.ignored;
    if (wrong && s.wrong) note_first(s.wrong, line, whole(s.label, s.label_kind, line));
    return wrong ? infinity<C>() - infinity<C>() : C(0);
}

// Factor of a line's gradient.
__device__ __forceinline__ C factor_of(const Softmax &s, int64 line, int64 label) {
    if (label < 0) return none_of(s, line);
    C factor = to<C>(s.head[s.each ? line : 0]);
    if (s.parts) {
        double count = 0;
        for (int i = 0; i < s.parts; ++i) count += s.counts[i];
        factor = count != 0 ? (C)(factor / count) : C(0);
    }
    return s.weight ? factor * to<C>(s.weight[label]) : factor;
}

__device__ __forceinline__ C loss_of(const Softmax &s, int64 line, int64 label, C logarithm, C x) {
    if (label < 0) return none_of(s, line);
    C loss = logarithm - x;
    return s.weight ? loss * to<C>(s.weight[label]) : loss;
}

// The result for the number at index k: `shifted` is it minus the maximum, `power` its exponential.
__device__ __forceinline__ C result(const Softmax &s, C shifted, C power, C total, uint32 k, int64 label, C factor) {
    if (s.mode == LOG_SOFTMAX) return shifted - total;
    if (s.mode == LOSS_GRADIENT) return (power / total - (k == label ? C(1) : C(0))) * factor;
    return power / total;
}

// Numbers of a line, times the scale; -inf beyond its length.
template <int P> __device__ __forceinline__ void scaled(const Softmax &s, const X *x, uint32 k, uint32 limit, C *v) {
    take<P>(x + k, s.vector, v);
    #pragma unroll
    for (int e = 0; e < P; ++e) v[e] = k + e < limit ? v[e] * (C)s.scale : -infinity<C>();
}

template <int P> __device__ __forceinline__ void softmax_line(const Softmax &s) {
    const int HELD = P == 1 ? 8 : 64 / (P * (int)sizeof(C));
    __shared__ C room[32];
    uint32 group = s.group, lane = threadIdx.x % group;
    int64 line = (int64)blockIdx.x * (blockDim.x / group) + threadIdx.x / group;
    bool there = line < s.lines;
    uint32 packs = there ? s.length / P : 0;
    uint32 limit = there ? counted(s.limit, s.limit_kind, line, s.length) : 0;
    const X *x = s.data + line * s.length;
    bool logs = s.mode == LOG_SOFTMAX || s.mode == LOSS;
    C held[HELD][P], most = -infinity<C>(), peak = most, total = 0;
    #pragma unroll
    for (int h = 0; h < HELD; ++h) {
        uint32 p = lane + h * group;
        if (p < packs) {
            scaled<P>(s, x, p * P, limit, held[h]);
            #pragma unroll
            for (int e = 0; e < P; ++e) most = mx_max(most, held[h][e]);
        }
    }
    for (uint32 p = lane + HELD * group; p < packs; p += group) {
        C v[P], top = peak;
        scaled<P>(s, x, p * P, limit, v);
        #pragma unroll
        for (int e = 0; e < P; ++e) top = mx_max(top, v[e]);
        if (top != peak) total *= mx_exp(peak - top);
        peak = top;
        if (top != -infinity<C>()) {
            #pragma unroll
            for (int e = 0; e < P; ++e) total += mx_exp(v[e] - top);
        }
    }
    most = of_group(mx_max(most, peak), group, Largest(), room);
    if (s.limit && most < C(-3.4028234663852886e38)) most = C(-3.4028234663852886e38);
    total = peak == -infinity<C>() ? C(0) : total * mx_exp(peak - most);
    #pragma unroll
    for (int h = 0; h < HELD; ++h)
        if (lane + h * group < packs) {
            #pragma unroll
            for (int e = 0; e < P; ++e) {
                C shifted = held[h][e] - most, power = mx_exp(shifted);
                total += power;
                held[h][e] = logs ? shifted : power;
            }
        }
    total = of_group(total, group, Sum(), room);
    if (s.limit && total < C(1e-30)) total = C(1e-30);
    if (logs) total = mx_log(total);
    if (!there) return;
    int64 label = s.label ? class_of(s, line) : -1;
    if (s.mode == LOSS) {
        C own = label < 0 ? C(0) : to<C>(x[label]);
        if (lane == 0) s.losses[line] = loss_of(s, line, label, total + most, own);
        return;
    }
    C factor = s.mode == LOSS_GRADIENT ? factor_of(s, line, label) : C(0);
    Y *y = s.out + line * s.length;
    #pragma unroll
    for (int h = 0; h < HELD; ++h) {
        uint32 p = lane + h * group;
        if (p < packs) {
            #pragma unroll
            for (int e = 0; e < P; ++e) {
                C v = held[h][e];
                v = result(s, v, v, total, p * P + e, label, factor);
                held[h][e] = logs && p * P + e >= limit ? C(0) : v;
            }
            give<P>(y + p * P, s.vector, held[h]);
        }
    }
    for (uint32 p = lane + HELD * group; p < packs; p += group) {
        C v[P];
        scaled<P>(s, x, p * P, limit, v);
        #pragma unroll
        for (int e = 0; e < P; ++e) {
            C shifted = v[e] - most;
            v[e] = result(s, shifted, logs ? shifted : mx_exp(shifted), total, p * P + e, label, factor);
            if (logs && p * P + e >= limit) v[e] = 0;
        }
        give<P>(y + p * P, s.vector, v);
    }
}

extern "C" __global__ void __launch_bounds__(1024) softmax_wide(Softmax s) { softmax_line<WIDTH>(s); }

extern "C" __global__ void __launch_bounds__(1024) softmax_single(Softmax s) { softmax_line<1>(s); }

// Along an inner axis: neighbours in a warp have neighbouring lines, threadIdx.y shares a line.
extern "C" __global__ void __launch_bounds__(256) softmax_columns(Softmax s) {
    __shared__ C peaks[256], sums[256];
    int64 line = (int64)blockIdx.x * blockDim.x + threadIdx.x;
    bool there = line < s.lines;
    uint32 n = there ? (uint32)line / s.inner : 0;
    int64 start = (int64)n * s.length * s.inner.n + (line - (int64)n * s.inner.n);
    const X *x = s.data + start;
    uint32 length = there ? s.length : 0;
    uint32 limit = there ? counted(s.limit, s.limit_kind, line, s.length) : 0;
    C peak = -infinity<C>(), total = 0;
    for (uint32 k = threadIdx.y; k < length; k += blockDim.y) {
        C v = k < limit ? to<C>(x[(int64)k * s.inner.n]) * (C)s.scale : -infinity<C>();
        C top = mx_max(peak, v);
        if (top != peak) total *= mx_exp(peak - top);
        peak = top;
        if (top != -infinity<C>()) total += mx_exp(v - top);
    }
    uint32 own = threadIdx.y * blockDim.x + threadIdx.x;
    peaks[own] = peak;
    sums[own] = total;
    __syncthreads();
    if (!there) return;
    C most = peaks[threadIdx.x];
    for (uint32 y = 1; y < blockDim.y; ++y) {
        C other = peaks[y * blockDim.x + threadIdx.x];
        most = mx_max(most, other);
    }
    if (s.limit && most < C(-3.4028234663852886e38)) most = C(-3.4028234663852886e38);
    total = 0;
    for (uint32 y = 0; y < blockDim.y; ++y) {
        C other = peaks[y * blockDim.x + threadIdx.x];
        if (other != -infinity<C>()) total += sums[y * blockDim.x + threadIdx.x] * mx_exp(other - most);
    }
    bool logs = s.mode == LOG_SOFTMAX || s.mode == LOSS;
    if (s.limit && total < C(1e-30)) total = C(1e-30);
    if (logs) total = mx_log(total);
    int64 label = s.label ? class_of(s, line) : -1;
    if (s.mode == LOSS) {
        C mine = label < 0 ? C(0) : to<C>(x[label * s.inner.n]);
        if (threadIdx.y == 0) s.losses[line] = loss_of(s, line, label, total + most, mine);
        return;
    }
    C factor = s.mode == LOSS_GRADIENT ? factor_of(s, line, label) : C(0);
    Y *into = s.out + start;
    for (uint32 k = threadIdx.y; k < length; k += blockDim.y) {
        C shifted = k < limit ? to<C>(x[(int64)k * s.inner.n]) * (C)s.scale - most : -infinity<C>();
        C v = result(s, shifted, logs ? shifted : mx_exp(shifted), total, k, label, factor);
        into[(int64)k * s.inner.n] = from<Y>(logs && k >= limit ? C(0) : v);
    }
}

// Divisor of a mean, or the sum of losses: a part for each block, which has a fixed range of lines.
extern "C" __global__ void __launch_bounds__(256) class_totals(Softmax s, double *totals, int64 stretch) {
    __shared__ double room[32];
    int64 begin = blockIdx.x * stretch, end = begin + stretch;
    if (end > s.lines) end = s.lines;
    double total = 0, count = 0;
    for (int64 line = begin + threadIdx.x; line < end; line += blockDim.x) {
        int64 label = class_of(s, line);
        if (s.losses) total += (double)s.losses[line];
        if (label >= 0) count += s.weight ? to<double>(s.weight[label]) : 1.0;
    }
    total = of_group(total, blockDim.x, Sum(), room);
    count = of_group(count, blockDim.x, Sum(), room);
    if (threadIdx.x == 0) {
        totals[blockIdx.x] = count;
        totals[gridDim.x + blockIdx.x] = total;
    }
}

// Sum or mean from the parts.
extern "C" __global__ void __launch_bounds__(32) class_mean(const double *totals, int parts, int mean, X *out) {
    if (threadIdx.x) return;
    double count = 0, total = 0;
    for (int i = 0; i < parts; ++i) {
        count += totals[i];
        total += totals[parts + i];
    }
    if (mean) total = count != 0 ? total / count : (double)(infinity<float>() - infinity<float>());
    out[0] = from<X>((C)total);
}

extern "C" __global__ void __launch_bounds__(256) class_losses(const C *losses, int64 n, X *out) {
    MX_EACH(i, n) out[i] = from<X>(losses[i]);
}

// Losses and gradients for data that are logarithms: one number of each line counts. The rest of a gradient is
// set to zero before; for a wrong label it is nan at the first class.
extern "C" __global__ void __launch_bounds__(256) class_picked(Softmax s) {
    MX_EACH(line, s.lines) {
        uint32 n = (uint32)line / s.inner;
        int64 start = (int64)n * s.length * s.inner.n + (line - (int64)n * s.inner.n), label = class_of(s, line);
        int64 at = start + (label < 0 ? 0 : label) * s.inner.n;
        if (s.mode == LOSS) s.losses[line] = loss_of(s, line, label, C(0), label < 0 ? C(0) : to<C>(s.data[at]));
        else s.out[at] = from<Y>(-factor_of(s, line, label));
    }
}
