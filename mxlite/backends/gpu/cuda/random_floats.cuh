// Floating random numbers; see random.cuh. A is the type to compute uniform numbers in.
#pragma once

// u * span + low, rounded after each step as in the reference; identity steps are omitted.
// `span` and `low` are numbers of the type that the reference computes in.
extern "C" __global__ void __launch_bounds__(256) uniform(
    T *out, int64 size, const uint64 *state, uint32 stream, double span, double low) {
    EACH_NUMBER(at, e, bits) {
        A u = (A)(int)(bits.at[e] >> (32 - BITS)) * (A)(1.0 / (1 << BITS));
        if (span != 1.0) u = to<A>(from<T>(u * (A)span));
        if (low != 0.0) u = u + (A)low;
        out[at * 4 + e] = from<T>(u);
    }
}

// Element i uses the uniform numbers 2 * i and 2 * i + 1, in double.
extern "C" __global__ void __launch_bounds__(256) normal(
    T *out, int64 size, const uint64 *state, uint32 stream, double scale, double mean) {
    double factor = -2.0 * scale * scale;
    MX_EACH(at, (size + 1) / 2) {
        Four bits = drawn(state, stream, at);
        _Pragma("unroll") for (int e = 0; e < 2; ++e) {
            if (at * 2 + e >= size) continue;
            double radius = sqrt(log(1.0 - wide_uniform24(bits.at[2 * e])) * factor);
            out[at * 2 + e] = from<T>(radius * cos(wide_uniform24(bits.at[2 * e + 1]) * 6.283185307179586) + mean);
        }
    }
}

// -log(u) / rate, with the first number of a separate block for each element; `tag` selects the block.
extern "C" __global__ void __launch_bounds__(256) exponential(
    T *out, int64 size, const uint64 *state, uint32 stream, double rate, uint64 tag) {
    MX_EACH(at, size) {
        Four bits = philox((uint32)at, stream, state[1] ^ tag << 48, state[0]);
        out[at] = from<T>(-log(((double)bits.at[0] + 0.5) * 2.3283064365386962890625e-10) / rate);
    }
}
