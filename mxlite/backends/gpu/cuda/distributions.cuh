// Samples of many distributions, in double, each element from its own counters: the samplers of
// mxlite/ops/random/distributions.py, where their sources are named. A rejected element redraws with the next tag.
#pragma once

enum { UNIFORM, NORMAL, EXPONENTIAL, BERNOULLI, GAMMA, POISSON, NEGATIVE_BINOMIAL, GENERALIZED_NEGATIVE_BINOMIAL };
enum { ATTEMPTS = 2048, TAG_GAMMA = 1, TAG_BOOST = TAG_GAMMA + ATTEMPTS, TAG_POISSON = TAG_BOOST + ATTEMPTS,
       TAG_OTHER = TAG_POISSON + ATTEMPTS };

#define NO_NUMBER (0.0 / 0.0)

struct Draw {
    const uint64 *state;
    const void *first, *second;  // parameters; a constant if there is no array
    void *out;
    double numbers[2];
    uint32 stream, each;  // each: number of neighbours that share a parameter
    int kinds[2], kind, law;
};

struct Uniforms {
    double at[4];
};

__device__ __forceinline__ Uniforms uniforms(const Draw &s, uint32 element, uint64 tag) {
    Four bits = philox(element, s.stream, s.state[1] ^ tag << 48, s.state[0]);
    Uniforms u;
    for (int i = 0; i < 4; ++i) u.at[i] = ((double)bits.at[i] + 0.5) * 2.3283064365386962890625e-10;
    return u;
}

__device__ __forceinline__ double bell(const Uniforms &u) {
    return sqrt(-2 * log(u.at[0])) * cos(6.283185307179586 * u.at[1]);
}

__device__ inline double gamma_number(const Draw &s, uint32 element, double shape, double scale) {
    if (!(shape >= 0 && scale >= 0)) return NO_NUMBER;
    double raised = shape < 1 ? shape + 1 : shape, value = NO_NUMBER, d = raised - 1.0 / 3;
    for (int tag = TAG_GAMMA; tag < TAG_BOOST && raised - raised == 0; ++tag) {
        Uniforms u = uniforms(s, element, tag);
        double x = bell(u), v = 1 + x / sqrt(9 * d);
        v = v * v * v;
        if (v > 0 && log(u.at[2]) < 0.5 * x * x + d * (1 - v + log(v))) {
            value = d * v;
            break;
        }
    }
    if (shape < 1) value *= exp(log(uniforms(s, element, TAG_BOOST).at[0]) / shape);
    return value * scale;
}

__device__ __forceinline__ double log_factorial(double k) {
    if (k < 16) return lgamma(k + 1);
    double n = k + 1, inverse = 1 / (n * n);
    double series = (1.0 / 12 - inverse * (1.0 / 360 - inverse * (1.0 / 1260 - inverse / 1680))) / n;
    return (n - 0.5) * log(n) - n + 0.91893853320467274 + series;
}

__device__ inline double poisson_number(const Draw &s, uint32 element, double mean) {
    if (!(mean >= 0) || mean - mean != 0) return NO_NUMBER;
    if (mean < 10) {
        Uniforms u = uniforms(s, element, TAG_POISSON);
        double rest = u.at[0] + (u.at[1] - 0.5) * 2.3283064365386962890625e-10, probability = exp(-mean);
        int k = 0;
        while (k < 100 && rest >= probability) {
            rest -= probability;
            ++k;
            probability = probability * mean / k;
        }
        return k;
    }
    double b = 0.931 + 2.53 * sqrt(mean), a = -0.059 + 0.02483 * b;
    for (int tag = TAG_POISSON; tag < TAG_OTHER; ++tag) {
        Uniforms u = uniforms(s, element, tag);
        double horizontal = u.at[0] - 0.5, vertical = u.at[1], edge = 0.5 - fabs(horizontal);
        double k = floor((2 * a / edge + b) * horizontal + mean + 0.43);
        if (edge >= 0.07 && vertical <= 0.9277 - 3.6224 / (b - 2)) return k;
        if (k < 0 || (edge < 0.013 && vertical > edge)) continue;
        double height = log(vertical * (1.1239 + 1.1328 / (b - 3.4)) / (a / (edge * edge) + b));
        if (height <= k * log(mean) - mean - log_factorial(k)) return k;
    }
    return NO_NUMBER;
}

extern "C" __global__ void __launch_bounds__(256) draw(int64 n, Draw s) {
    MX_EACH(at, n) {
        uint32 element = (uint32)at, of = element / s.each;
        double p = s.first ? number(s.first, s.kinds[0], of) : s.numbers[0];
        double q = s.second ? number(s.second, s.kinds[1], of) : s.numbers[1], x = NO_NUMBER;
        if (s.law == UNIFORM) {
            x = p + (q - p) * (uniforms(s, element, TAG_OTHER).at[0] - 1.16415321826934814453125e-10);
        } else if (s.law == NORMAL) {
            if (q >= 0) x = p + q * bell(uniforms(s, element, TAG_OTHER));
        } else if (s.law == EXPONENTIAL) {
            if (p > 0) x = -log(uniforms(s, element, TAG_OTHER).at[0]) / p;
        } else if (s.law == BERNOULLI) {
            if (p >= 0 && p <= 1) x = uniforms(s, element, TAG_OTHER).at[0] < p;
        } else if (s.law == GAMMA) {
            x = gamma_number(s, element, p, q);
        } else {
            double mean = p;
            bool valid = p >= 0;
            if (s.law == NEGATIVE_BINOMIAL) {
                valid = q > 0 && q <= 1 && p >= 0;
                if (valid) mean = gamma_number(s, element, p, (1 - q) / q);
            } else if (s.law == GENERALIZED_NEGATIVE_BINOMIAL) {
                valid = p >= 0 && q >= 0;
                if (q > 0) mean = gamma_number(s, element, 1 / q, p * q);
            }
            if (valid) x = poisson_number(s, element, mean);
        }
        put(s.out, s.kind, at, x);
    }
}
