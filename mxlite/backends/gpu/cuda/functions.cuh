// Steps of expressions that math.cuh does not have: of whole numbers, and functions in float and double.
#pragma once

MX_FUNCTION(gamma, tgammaf, tgamma)
MX_FUNCTION(gammaln, lgammaf, lgamma)

// -- whole numbers of 64 bits; floats are cut to them

template <> __device__ __forceinline__ int64 to<int64>(float x) { return cut(x); }
template <> __device__ __forceinline__ int64 to<int64>(double x) { return cut(x); }
template <> __device__ __forceinline__ int64 to<int64>(float16 x) { return cut(widen(x)); }
template <> __device__ __forceinline__ int64 to<int64>(bfloat16 x) { return cut(widen(x)); }

__device__ __forceinline__ int64 mx_abs(int64 x) { return x < 0 ? -x : x; }
__device__ __forceinline__ int64 mx_floor(int64 x) { return x; }
__device__ __forceinline__ int64 mx_ceil(int64 x) { return x; }
__device__ __forceinline__ int64 mx_trunc(int64 x) { return x; }
__device__ __forceinline__ int64 mx_rint(int64 x) { return x; }

// Remainder with the sign of x; 0 where y is 0.
__device__ __forceinline__ int64 mx_fmod(int64 x, int64 y) { return y == 0 || y == -1 ? 0 : x % y; }

__device__ __forceinline__ int64 shifted_left(int64 x, int64 y) {
    return y < 0 || y > 63 ? 0 : (int64)((uint64)x << y);
}

__device__ __forceinline__ int64 shifted_right(int64 x, int64 y) { return x >> (y < 0 || y > 63 ? 63 : y); }

// -- derivatives of log gamma, in double, as in mxlite/ops, where the sources are named

__device__ __constant__ const double BERNOULLI[9] = {
    1.0 / 6, -1.0 / 30, 1.0 / 42, -1.0 / 30, 5.0 / 66, -691.0 / 2730, 7.0 / 6, -3617.0 / 510, 43867.0 / 798};

__device__ __forceinline__ double series(double x, const double *c, int n) {
    double total = c[n - 1];
    for (int i = n - 2; i >= 0; --i) total = total * x + c[i];
    return total;
}

// The n-th derivative of digamma, n from 0 to 21.
// Not inlined: in the kernel of all formulas its registers would spill.
static __device__ __attribute__((noinline)) double mx_polygamma(int n, double x) {
    const double pi = 3.14159265358979323846;
    bool mirrored = x < 0;
    double z = mirrored ? 1 - x : n ? fabs(x) : x, total = 0, terms[9], factorial = 1, part = x - rint(x);
    for (int k = 2; k <= n; ++k) factorial *= k;
    if (n == 0) {
        for (int i = 0; i < 12 && z < 12; ++i, z += 1) total -= 1 / z;
        for (int k = 0; k < 9; ++k) terms[k] = BERNOULLI[k] / (2 * (k + 1));
        double square = 1 / (z * z);
        total += log(z) - 0.5 / z - square * series(square, terms, 9);
        if (!mirrored) return total;
        return part == 0 ? 0.0 / 0.0 : total - pi / tan(pi * part);
    }
    if (mirrored && part == 0) return 0.0 / 0.0;
    for (int i = 0; i < 12 + n && z < 12 + n; ++i, z += 1) total += pow(z, -(n + 1.0));
    total *= factorial;
    double rising = factorial / n;  // (2k + n - 1)! / (2k)!
    for (int k = 1; k <= 9; ++k) {
        rising *= (double)(2 * k + n - 1) * (2 * k + n - 2) / (2.0 * k * (2 * k - 1));
        terms[k - 1] = BERNOULLI[k - 1] * rising;
    }
    double square = 1 / (z * z);
    total += (factorial / n + factorial / (2 * z) + square * series(square, terms, 9)) * pow(z, -(double)n);
    if (n % 2 == 0) total = -total;
    if (!mirrored) return total;
    double row[25], slope[25], power = pi;
    for (int k = 0; k < 25; ++k) row[k] = k == 1;
    for (int i = 0; i < n; ++i) {  // differentiate a polynomial in the cotangent
        for (int k = 0; k < 24; ++k) slope[k] = (k + 1) * row[k + 1];
        for (int k = 0; k < 25; ++k) row[k] = (k < 24 ? -slope[k] : 0) - (k >= 2 ? slope[k - 2] : 0);
        power *= pi;
    }
    double mirror = power * series(1 / tan(pi * part), row, n + 2);
    return (n % 2 ? -total : total) - mirror;
}

// The inverse of erf, in double.
__device__ inline double mx_erfinv(double y) {
    double size = fabs(y), rest = 1 - size, below = y * y;
    if (below > 1 - 1.1102230246251565e-16) below = 1 - 1.1102230246251565e-16;
    double logarithm = log1p(-below), half = 4.3307467508 + 0.5 * logarithm;
    double x = sqrt(sqrt(half * half - logarithm / 0.147) - half);
    for (int i = 0; i < 3; ++i) {
        double error = x < 0.5 ? erf(x) - size : rest - erfc(x);
        double step = error * 0.88622692545275801 * exp(x * x);
        x -= step / (1 + x * step);
    }
    if (rest == 0) x = 1.0 / 0.0;
    if (!(rest >= 0)) x = 0.0 / 0.0;
    return copysign(x, y);
}
