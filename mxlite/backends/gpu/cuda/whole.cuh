// Elements of arrays whose type is known only at launch: indices, labels, and results of reductions. The kinds are
// numbered as in backends/gpu/compiler/kinds.py.
#pragma once

enum { FLOAT32, FLOAT64, FLOAT16, BFLOAT16, INT8, UINT8, INT32, INT64, BOOL };

// A number truncated towards 0; the least integer if it is nan or too large, as on x86.
__device__ __forceinline__ int64 cut(double x) {
    return x > -9223372036854775808.0 && x < 9223372036854775808.0 ? (int64)x : (int64)(1ull << 63);
}

__device__ __forceinline__ double number(const void *from, int kind, int64 at) {
    switch (kind) {
        case FLOAT32: return ((const float *)from)[at];
        case FLOAT64: return ((const double *)from)[at];
        case FLOAT16: return widen(((const float16 *)from)[at]);
        case BFLOAT16: return widen(((const bfloat16 *)from)[at]);
        case INT8: return ((const signed char *)from)[at];
        case INT32: return ((const int *)from)[at];
        case INT64: return (double)((const int64 *)from)[at];
        default: return ((const uint8 *)from)[at];
    }
}

__device__ __forceinline__ int64 whole(const void *from, int kind, int64 at) {
    switch (kind) {
        case INT8: return ((const signed char *)from)[at];
        case INT32: return ((const int *)from)[at];
        case INT64: return ((const int64 *)from)[at];
        case UINT8: case BOOL: return ((const uint8 *)from)[at];
        default: return cut(number(from, kind, at));
    }
}

template <typename C> __device__ __forceinline__ void put(void *into, int kind, int64 at, C x) {
    switch (kind) {
        case FLOAT32: ((float *)into)[at] = (float)x; break;
        case FLOAT64: ((double *)into)[at] = (double)x; break;
        case FLOAT16: ((float16 *)into)[at] = narrow16((double)x); break;
        case BFLOAT16: ((bfloat16 *)into)[at] = narrow_b16((float)x); break;
        case INT8: ((signed char *)into)[at] = (signed char)x; break;
        case INT32: ((int *)into)[at] = (int)x; break;
        case INT64: ((int64 *)into)[at] = (int64)x; break;
        case BOOL: ((bool *)into)[at] = x != C(0); break;
        default: ((uint8 *)into)[at] = (uint8)x;
    }
}

// An index in [0, length) from any index: clamped, or wrapped around.
__device__ __forceinline__ int64 bounded(int64 index, int64 length, int wrap) {
    if (wrap) {
        int64 rest = index % length;
        return rest < 0 ? rest + length : rest;
    }
    return index < 0 ? 0 : index < length ? index : length - 1;
}

// Number of valid elements of a line, if an array gives it: those at positions below `limit`.
__device__ __forceinline__ uint32 counted(const void *limit, int kind, int64 line, uint32 length) {
    if (!limit) return length;
    double most = number(limit, kind, line);
    return most >= length || most != most ? length : most > 0 ? (uint32)ceil(most) : 0;
}
