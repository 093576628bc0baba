// Dropout: an element is kept, and scaled, if its number of the stream is at least p. Types: T of data, A to
// compute in; V elements of a thread, a multiple of 4; ALIGNED, whether packs are aligned to their own size.
#pragma once


// Element i uses random number i.
extern "C" __global__ void __launch_bounds__(256) dropout(
    const T *x, T *out, int64 size, const uint64 *state, uint32 stream, float p, float scale) {
    MX_EACH(at, (size + V - 1) / V) {
        Pack<T, V> v;
        int64 first = at * V;
#if ALIGNED
        if (first + V <= size) v = *(const Pack<T, V> *)(x + first);
        else
#endif
            for (int e = 0; e < V; ++e)
                if (first + e < size) v.at[e] = x[first + e];
        for (int q = 0; q < V / 4; ++q) {
            Four bits = drawn(state, stream, first / 4 + q);
            for (int e = 0; e < 4; ++e) {
                float keep = uniform24(bits.at[e]) >= p ? scale : 0.0f;
                v.at[4 * q + e] = from<T>(to<A>(v.at[4 * q + e]) * (A)keep);
            }
        }
#if ALIGNED
        if (first + V <= size) *(Pack<T, V> *)(out + first) = v;
        else
#endif
            for (int e = 0; e < V; ++e)
                if (first + e < size) out[first + e] = v.at[e];
    }
}

// One random number for several elements: that of the element with index 0 along the shared axes. Lengths n and
// strides s of the random numbers, outermost first.
extern "C" __global__ void __launch_bounds__(256) dropout_shared(
    const T *x, T *out, int64 size, const uint64 *state, uint32 stream, float p, float scale, int64 n0, int64 n1, int64 n2,
    int64 n3, int64 n4, int64 n5, int64 s0, int64 s1, int64 s2, int64 s3, int64 s4, int64 s5) {
    int64 n[6] = {n0, n1, n2, n3, n4, n5}, s[6] = {s0, s1, s2, s3, s4, s5};
    MX_EACH(at, size) {
        int64 rest = at, number = 0;
        _Pragma("unroll") for (int axis = 5; axis >= 0; --axis) {
            int64 left = rest / n[axis];
            number += (rest - left * n[axis]) * s[axis];
            rest = left;
        }
        Four bits = drawn(state, stream, number / 4);
        int e = (int)(number % 4);
        uint32 mine = e == 0 ? bits.at[0] : e == 1 ? bits.at[1] : e == 2 ? bits.at[2] : bits.at[3];
        out[at] = from<T>(to<A>(x[at]) * (A)(uniform24(mine) >= p ? scale : 0.0f));
    }
}

// Arrays (n, s, c) with the random numbers of (n, c, s): element (n, s, c) uses (n * channels + c) * positions + s.
// A thread has RUN positions of a channel, neighbouring threads neighbouring channels.
#define RUN 8
extern "C" __global__ void __launch_bounds__(256) dropout_channels_last(
    const T *x, T *out, int64 size, const uint64 *state, uint32 stream, float p, float scale, int64 positions,
    int64 channels) {
    int64 runs = (positions + RUN - 1) / RUN, samples = size / (positions * channels);
    MX_EACH(at, samples * runs * channels) {
        int64 c = at % channels, rest = at / channels, n = rest / runs, s = rest % runs * RUN;
        int64 number = (n * channels + c) * positions + s, from_ = (n * positions + s) * channels + c;
        int count = positions - s < RUN ? (int)(positions - s) : RUN;
        Four bits = {};
        for (int k = 0; k < count; ++k, ++number, from_ += channels) {
            int e = (int)(number % 4);
            if (e == 0 || k == 0) bits = drawn(state, stream, number / 4);
            uint32 mine = e == 0 ? bits.at[0] : e == 1 ? bits.at[1] : e == 2 ? bits.at[2] : bits.at[3];
            out[from_] = from<T>(to<A>(x[from_]) * (A)(uniform24(mine) >= p ? scale : 0.0f));
        }
    }
}
