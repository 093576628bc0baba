// Gather of rows of a table by index, and scatter. A unit of 1, 2, 4, 8 or 16 bytes is copied at once.
#pragma once

struct Lookup {
    const void *table, *indices;
    void *out;
    int64 units;           // of the result
    Divisor inner, count;  // units of a row, indices
    int64 length, outer;   // rows of the table for each index of the outer axes
    int kind, wrap;
};

// out[o, i, :] = table[o, index[i], :]
template <typename U> __device__ __forceinline__ void look_up(const Lookup &s) {
    const U *table = (const U *)s.table;
    U *out = (U *)s.out;
    MX_EACH(at, s.units) {
        uint32 row = (uint32)at / s.inner, column = (uint32)at - row * s.inner.n;
        uint32 o = row / s.count, i = row - o * s.count.n;
        int64 from = bounded(whole(s.indices, s.kind, i), s.length, s.wrap);
        out[at] = table[(o * s.length + from) * s.inner.n + column];
    }
}
