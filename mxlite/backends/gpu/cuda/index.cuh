// Indices of threads and elements.
#pragma once

// Division by a number that is known when the kernel is launched, for dividends below 2^31 (T. Granlund and
// P. Montgomery, 1994, "Division by invariant integers using multiplication"): the host passes the multiplier and
// the shift.
__device__ __forceinline__ uint32 divided(uint32 n, uint32 multiplier, uint32 shift) {
    return (__umulhi(n, multiplier) + n) >> shift;
}

// Each thread's share of n work items (grid-stride loop).
#define MX_EACH(i, n)                                                                            \
    for (int64 i = blockIdx.x * (int64)blockDim.x + threadIdx.x; i < (n); i += (int64)gridDim.x * blockDim.x)

// The same, with the three numbers in one struct.
struct Divisor { uint32 n, multiplier, shift; };

__device__ __forceinline__ uint32 operator/(uint32 n, const Divisor &d) { return divided(n, d.multiplier, d.shift); }
