// Steps of elementwise expressions (see te/steps.py), in float and double.
#pragma once

// nan wins from either side; of 0.0 and -0.0 the second is taken, as in numpy's vector code. Functions, since an
// argument may be a shuffle, which all lanes of a warp must execute exactly once.
template <typename C> __device__ __forceinline__ C mx_max(C a, C b) { return b != b ? b : a != a ? a : a > b ? a : b; }
template <typename C> __device__ __forceinline__ C mx_min(C a, C b) { return b != b ? b : a != a ? a : a < b ? a : b; }

__device__ __forceinline__ float mx_exp(float x) { return expf(x); }
__device__ __forceinline__ double mx_exp(double x) { return exp(x); }
__device__ __forceinline__ float mx_expm1(float x) { return expm1f(x); }
__device__ __forceinline__ double mx_expm1(double x) { return expm1(x); }
__device__ __forceinline__ float mx_log(float x) { return logf(x); }
__device__ __forceinline__ double mx_log(double x) { return log(x); }
__device__ __forceinline__ float mx_log1p(float x) { return log1pf(x); }
__device__ __forceinline__ double mx_log1p(double x) { return log1p(x); }
__device__ __forceinline__ float mx_tanh(float x) { return tanhf(x); }
__device__ __forceinline__ double mx_tanh(double x) { return tanh(x); }
__device__ __forceinline__ float mx_erf(float x) { return erff(x); }
__device__ __forceinline__ double mx_erf(double x) { return erf(x); }
__device__ __forceinline__ float mx_sqrt(float x) { return sqrtf(x); }
__device__ __forceinline__ double mx_sqrt(double x) { return sqrt(x); }
__device__ __forceinline__ float mx_abs(float x) { return fabsf(x); }
__device__ __forceinline__ double mx_abs(double x) { return fabs(x); }
__device__ __forceinline__ float mx_floor(float x) { return floorf(x); }
__device__ __forceinline__ double mx_floor(double x) { return floor(x); }
__device__ __forceinline__ float mx_ceil(float x) { return ceilf(x); }
__device__ __forceinline__ double mx_ceil(double x) { return ceil(x); }
__device__ __forceinline__ float mx_trunc(float x) { return truncf(x); }
__device__ __forceinline__ double mx_trunc(double x) { return trunc(x); }
__device__ __forceinline__ float mx_cbrt(float x) { return cbrtf(x); }
__device__ __forceinline__ double mx_cbrt(double x) { return cbrt(x); }
__device__ __forceinline__ float mx_fma(float a, float b, float c) { return fmaf(a, b, c); }
__device__ __forceinline__ double mx_fma(double a, double b, double c) { return fma(a, b, c); }
// Cumulative normal distribution at x; erfc keeps the precision of the lower tail.
__device__ __forceinline__ float mx_normal(float x) { return 0.5f * erfcf(x * -0.70710678118654752f); }
__device__ __forceinline__ double mx_normal(double x) { return 0.5 * erfc(x * -0.70710678118654752); }

template <typename C> __device__ __forceinline__ C mx_sigmoid(C x) {
    C small = mx_exp(-mx_abs(x));
    return (x < C(0) ? small : C(1)) / (C(1) + small);
}

template <typename C> __device__ __forceinline__ C mx_softplus(C x) {
    return mx_max(x, C(0)) + mx_log1p(mx_exp(-mx_abs(x)));
}

template <typename C> __device__ __forceinline__ C mx_bell(C x) { return mx_exp(x * x * C(-0.5)); }
template <typename C> __device__ __forceinline__ C mx_sign(C x) { return x > C(0) ? C(1) : x < C(0) ? C(-1) : x + C(0); }
template <typename C> __device__ __forceinline__ C mx_through_float16(C x) { return to<C>(from<float16>(x)); }
template <typename C> __device__ __forceinline__ C mx_through_bfloat16(C x) { return to<C>(from<bfloat16>(x)); }
