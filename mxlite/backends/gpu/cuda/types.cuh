// Types of array elements, and their conversion to numbers to compute with.
//
// Needs no header of the toolkit, so that NVRTC compiles it anywhere. The same text compiles for the CPU
// after cuda_on_cpu.h, where half precision is converted bit by bit.
#pragma once

typedef unsigned char uint8;
typedef unsigned int uint32;
typedef unsigned long long uint64;
typedef long long int64;

struct float16 { unsigned short bits; };
struct bfloat16 { unsigned short bits; };

#ifndef CUDA_ON_CPU
__device__ __forceinline__ float bits_to_float(uint32 x) { return __uint_as_float(x); }
__device__ __forceinline__ uint32 float_to_bits(float x) { return __float_as_uint(x); }

__device__ __forceinline__ float widen(float16 x) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
}

__device__ __forceinline__ float16 narrow16(float x) {
    float16 y;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    return y;
}

// A double is rounded once, not first to float.
__device__ __forceinline__ float16 narrow16(double x) {
    float16 y;
    asm("cvt.rn.f16.f64 %0, %1;" : "=h"(y.bits) : "d"(x));
    return y;
}
#else
__device__ __forceinline__ float bits_to_float(uint32 x) { float y; memcpy(&y, &x, 4); return y; }
__device__ __forceinline__ uint32 float_to_bits(float x) { uint32 y; memcpy(&y, &x, 4); return y; }

__device__ __forceinline__ float widen(float16 x) {
    uint32 sign = (uint32)(x.bits & 0x8000) << 16, rest = x.bits & 0x7fff;
    if (rest >= 0x7c00) return bits_to_float(sign | 0x7f800000 | (rest & 0x3ff) << 13);
    float magnitude = rest < 0x400 ? rest * 5.9604644775390625e-8f : bits_to_float((rest << 13) + (112u << 23));
    return bits_to_float(sign | float_to_bits(magnitude));
}

__device__ __forceinline__ float16 narrow16(double x) {
    float16 y;
    double size = fabs(x);
    unsigned short sign = signbit(x) ? 0x8000 : 0;
    if (x != x) y.bits = sign | 0x7e00;
    else if (size >= 65520.0) y.bits = sign | 0x7c00;
    else if (size < 6.103515625e-5) y.bits = sign | (unsigned short)nearbyint(size * 16777216.0);
    else {
        int exponent;
        double part = frexp(size, &exponent);  // [0.5, 1)
        uint32 digits = (uint32)nearbyint(part * 2048.0);  // [1024, 2048]: a carry moves into the exponent
        y.bits = sign | (unsigned short)(((exponent + 14) << 10) + (digits - 1024));
    }
    return y;
}

__device__ __forceinline__ float16 narrow16(float x) { return narrow16((double)x); }
#endif

__device__ __forceinline__ float widen(bfloat16 x) { return bits_to_float((uint32)x.bits << 16); }

__device__ __forceinline__ bfloat16 narrow_b16(float x) {
    uint32 bits = float_to_bits(x);
    bfloat16 y;
    if ((bits & 0x7fffffff) > 0x7f800000) y.bits = (unsigned short)(bits >> 16 | 0x40);  // a nan stays one
    else y.bits = (unsigned short)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    return y;
}

// to<C>(x): an element as a number of type C, which is float or double.
template <typename C, typename T> __device__ __forceinline__ C to(T x) { return (C)x; }
template <> __device__ __forceinline__ float to<float>(float16 x) { return widen(x); }
template <> __device__ __forceinline__ float to<float>(bfloat16 x) { return widen(x); }
template <> __device__ __forceinline__ double to<double>(float16 x) { return widen(x); }
template <> __device__ __forceinline__ double to<double>(bfloat16 x) { return widen(x); }

// from<T>(x): a number as an element, rounded to nearest even.
template <typename T, typename C> __device__ __forceinline__ T from(C x) { return (T)x; }
template <> __device__ __forceinline__ float16 from<float16>(float x) { return narrow16(x); }
template <> __device__ __forceinline__ float16 from<float16>(double x) { return narrow16(x); }
template <> __device__ __forceinline__ bfloat16 from<bfloat16>(float x) { return narrow_b16(x); }

// As in the reference: a double is converted to float first.
template <> __device__ __forceinline__ bfloat16 from<bfloat16>(double x) { return narrow_b16((float)x); }

// N elements that are read and written by one instruction.
template <typename T, int N> struct alignas(sizeof(T) * N) Pack { T at[N]; };
