// Normalization along an axis that is not the last, forward and backward: a thread for each column of (rows, length,
// inner), which reads it three times. Neighbouring threads read neighbouring numbers. Types: rows.cuh.
// Element j of column (r, p) has the gamma with index r % groups * channels + j.
#pragma once

struct Column {
    int64 base, row;
    A mean, spread;
    __device__ Column(const T *x, int64 at, int64 length, int64 inner, double eps, double count, int centre) {
        row = at / inner;
        base = row * length * inner + at - row * inner;
        A sum = A(0), square = A(0);
        if (centre) {
            for (int64 j = 0; j < length; ++j) sum += to<A>(x[base + j * inner]);
            sum = sum / (A)(length > 0 ? length : 1);
        }
        for (int64 j = 0; j < length; ++j) {
            A far = to<A>(x[base + j * inner]) - sum;
            square = mx_fma(far, far, square);
        }
        mean = sum;
        spread = mx_sqrt(square / (A)count + (A)eps);
    }
};

#define SHAPE                                                                                                  \
    int64 columns, int64 length, int64 inner, int64 channels, int64 groups, double eps, double count, int centre

extern "C" __global__ void __launch_bounds__(256) normalize(
    const T *x, const G *gamma, const G *beta, SHAPE, T *out, G *mean, G *spread) {
    MX_EACH(at, columns) {
        Column k(x, at, length, inner, eps, count, centre);
        if (mean) mean[at] = from<G>(k.mean);
        if (spread) spread[at] = from<G>(k.spread);
        if (!out) continue;
        A inverse = A(1) / k.spread;
        for (int64 j = 0; j < length; ++j) {
            int64 c = k.row % groups * channels + (channels > 1 ? j : 0);
            A y = (to<A>(x[k.base + j * inner]) - k.mean) * inverse;
            if (gamma) y *= to<A>(gamma[c]);
            if (beta) y += to<A>(beta[c]);
            out[k.base + j * inner] = from<T>(y);
        }
    }
}

extern "C" __global__ void __launch_bounds__(256) gradient(
    const T *d, const G *d_mean, const G *d_spread, const T *x, const G *gamma, SHAPE, T *d_data, A *means, A *inverses) {
    MX_EACH(at, columns) {
        Column k(x, at, length, inner, eps, count, centre);
        A inverse = A(1) / k.spread, sum = A(0), dot = A(0);
        if (means) {
            means[at] = k.mean;
            inverses[at] = inverse;
        }
        if (!d_data) continue;
        for (int64 j = 0; d && j < length; ++j) {
            A scaled = (to<A>(x[k.base + j * inner]) - k.mean) * inverse, head = to<A>(d[k.base + j * inner]);
            if (gamma) head *= to<A>(gamma[k.row % groups * channels + (channels > 1 ? j : 0)]);
            sum += head;
            dot = mx_fma(head, scaled, dot);
        }
        sum = centre ? sum / (A)count * inverse : A(0);
        dot = dot / (A)count * inverse;
        if (d_mean) sum -= to<A>(d_mean[at]) / (A)count;
        if (d_spread) dot -= to<A>(d_spread[at]) / (A)count;
        for (int64 j = 0; j < length; ++j) {
            A scaled = (to<A>(x[k.base + j * inner]) - k.mean) * inverse;
            A head = d ? to<A>(d[k.base + j * inner]) : A(0);
            if (gamma) head *= to<A>(gamma[k.row % groups * channels + (channels > 1 ? j : 0)]);
            d_data[k.base + j * inner] = from<T>(head * inverse - (scaled * dot + sum));
        }
    }
}
