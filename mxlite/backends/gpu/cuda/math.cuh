// Steps of elementwise expressions (see te/steps.py), in float and double.
#pragma once

// nan wins from either side; of 0.0 and -0.0 the second is taken, as in numpy's vector code. Functions, since an
// argument may be a shuffle, which all lanes of a warp must execute exactly once.
template <typename C> __device__ __forceinline__ C mx_max(C a, C b) { return b != b ? b : a != a ? a : a > b ? a : b; }
template <typename C> __device__ __forceinline__ C mx_min(C a, C b) { return b != b ? b : a != a ? a : a < b ? a : b; }

#define MX_FUNCTION(name, narrow, wide)                                            \
    __device__ __forceinline__ float mx_##name(float x) { return narrow(x); }      \
    __device__ __forceinline__ double mx_##name(double x) { return wide(x); }
MX_FUNCTION(exp, expf, exp)
MX_FUNCTION(expm1, expm1f, expm1)
MX_FUNCTION(log, logf, log)
MX_FUNCTION(log1p, log1pf, log1p)
MX_FUNCTION(log2, log2f, log2)
MX_FUNCTION(log10, log10f, log10)
MX_FUNCTION(tanh, tanhf, tanh)
MX_FUNCTION(erf, erff, erf)
MX_FUNCTION(sqrt, sqrtf, sqrt)
MX_FUNCTION(cbrt, cbrtf, cbrt)
MX_FUNCTION(abs, fabsf, fabs)
MX_FUNCTION(floor, floorf, floor)
MX_FUNCTION(ceil, ceilf, ceil)
MX_FUNCTION(trunc, truncf, trunc)
MX_FUNCTION(rint, rintf, rint)
MX_FUNCTION(sin, sinf, sin)
MX_FUNCTION(cos, cosf, cos)
MX_FUNCTION(tan, tanf, tan)
MX_FUNCTION(asin, asinf, asin)
MX_FUNCTION(acos, acosf, acos)
MX_FUNCTION(atan, atanf, atan)
MX_FUNCTION(sinh, sinhf, sinh)
MX_FUNCTION(cosh, coshf, cosh)
MX_FUNCTION(asinh, asinhf, asinh)
MX_FUNCTION(acosh, acoshf, acosh)
MX_FUNCTION(atanh, atanhf, atanh)
#define MX_FUNCTION_OF_TWO(name, narrow, wide)                                                 \
    __device__ __forceinline__ float mx_##name(float x, float y) { return narrow(x, y); }      \
    __device__ __forceinline__ double mx_##name(double x, double y) { return wide(x, y); }
MX_FUNCTION_OF_TWO(pow, powf, pow)
MX_FUNCTION_OF_TWO(hypot, hypotf, hypot)
MX_FUNCTION_OF_TWO(atan2, atan2f, atan2)
MX_FUNCTION_OF_TWO(fmod, fmodf, fmod)
MX_FUNCTION_OF_TWO(copysign, copysignf, copysign)
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
