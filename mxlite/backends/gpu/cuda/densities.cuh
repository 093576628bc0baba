// Densities of random numbers and their gradients, in double: the laws of mxlite/ops/random/random_pdf.py. Each
// parameter belongs to `each` neighbouring samples.
#pragma once

enum { UNIFORM, NORMAL, GAMMA, EXPONENTIAL, POISSON, NEGATIVE_BINOMIAL, GENERALIZED_NEGATIVE_BINOMIAL };

struct Law {
    double value, by_sample, by_first, by_second;  // log p and its derivatives
};

__device__ inline Law negative_binomial(double x, double k, double p) {
    Law law;
    law.value = lgamma(x + k) - lgamma(x + 1) - lgamma(k) + k * log(p) + x * log1p(-p);
    law.by_sample = 0;
    law.by_first = mx_polygamma(0, x + k) - mx_polygamma(0, k) + log(p);
    law.by_second = k / p - x / (1 - p);
    return law;
}

__device__ inline Law law_of(int kind, double x, double a, double b) {
    Law law = {0, 0, 0, 0};
    if (kind == UNIFORM) {
        bool inside = x >= a && x <= b;
        law.value = inside ? -log(b - a) : -1.0 / 0.0;
        law.by_first = inside ? 1 / (b - a) : 0;
        law.by_second = -law.by_first;
    } else if (kind == NORMAL) {
        double z = (x - a) / b;
        law.value = -0.5 * z * z - log(b) - 0.91893853320467274;
        law.by_sample = -z / b;
        law.by_first = z / b;
        law.by_second = (z * z - 1) / b;
    } else if (kind == GAMMA) {
        law.value = a * log(b) + (a - 1) * log(x) - b * x - lgamma(a);
        law.by_sample = (a - 1) / x - b;
        law.by_first = log(b) + log(x) - mx_polygamma(0, a);
        law.by_second = a / b - x;
    } else if (kind == EXPONENTIAL) {
        law.value = log(a) - a * x;
        law.by_sample = -a;
        law.by_first = 1 / a - x;
    } else if (kind == POISSON) {
        law.value = x * log(a) - a - lgamma(x + 1);
        law.by_first = x / a - 1;
    } else if (kind == NEGATIVE_BINOMIAL) {
        law = negative_binomial(x, a, b);
    } else {
        double k = 1 / b, p = 1 / (1 + a * b);
        Law own = negative_binomial(x, k, p);
        law.value = own.value;
        law.by_first = own.by_second * -b * p * p;
        law.by_second = own.by_first * -k * k + own.by_second * -a * p * p;
    }
    return law;
}

struct Density {
    const void *sample, *first, *second, *d_out;
    void *out, *d_first, *d_second;  // out: the density, or the gradient in the sample
    int each, law, is_log;
    int kinds[3];  // of sample, first and second
};

__device__ __forceinline__ Law law_at(const Density &s, int64 at, int64 row) {
    double b = s.second ? number(s.second, s.kinds[2], row) : 0;
    return law_of(s.law, number(s.sample, s.kinds[0], at), number(s.first, s.kinds[1], row), b);
}

extern "C" __global__ void __launch_bounds__(256) density(int64 n, Density s) {
    MX_EACH(at, n) {
        Law law = law_at(s, at, at / s.each);
        double p = s.is_log ? 1.0 : exp(law.value);
        if (s.d_out) put(s.out, s.kinds[0], at, number(s.d_out, s.kinds[0], at) * p * law.by_sample);
        else put(s.out, s.kinds[0], at, s.is_log ? law.value : p);
    }
}

// Sums over the samples of each parameter, in order.
extern "C" __global__ void __launch_bounds__(256) density_gradient(int64 n, Density s) {
    MX_EACH(row, n) {
        double first = 0, second = 0;
        for (int64 at = row * s.each; at < (row + 1) * s.each; ++at) {
            Law law = law_at(s, at, row);
            double head = number(s.d_out, s.kinds[0], at) * (s.is_log ? 1.0 : exp(law.value));
            first += head * law.by_first;
            second += head * law.by_second;
        }
        if (s.d_first) put(s.d_first, s.kinds[1], row, first);
        if (s.d_second) put(s.d_second, s.kinds[2], row, second);
    }
}
