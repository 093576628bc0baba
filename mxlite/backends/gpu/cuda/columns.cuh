// Windows of channels-last arrays as rows of a matrix (im2col), and back. Needs convolution.cuh; x is the side that
// windows lie in, y the other. Column (c, tap) of row p is element tap of window p in channel c.
#pragma once

// columns[p, c, tap], for rows from `first`.
template <typename T>
__device__ __forceinline__ void columns_of(const Convolution &g, const T *x, T *columns, int64 first, int64 rows) {
    int taps = g.kernel[0] * g.kernel[1] * g.kernel[2];
    int64 width = (int64)g.summed * taps;
    MX_EACH(i, rows * width) {
        int64 row = i / width;
        int k = (int)(i - row * width), c = k / taps, tap = k - c * taps, at[3];
        uint32 n = placed(g, (uint32)(first + row), at);
        int z = met(g, 0, at[0], tap / g.kernel[2] / g.kernel[1]), y = met(g, 1, at[1], tap / g.kernel[2] % g.kernel[1]);
        int v = met(g, 2, at[2], tap % g.kernel[2]);
        bool inside = (unsigned)z < (unsigned)g.from[0] && (unsigned)y < (unsigned)g.from[1] && (unsigned)v < (unsigned)g.from[2];
        T zero = {};
        columns[i] = inside ? x[n * g.x_sample + z * g.x_axis[0] + y * g.x_axis[1] + v * g.x_axis[2] + c] : zero;
    }
}

// y[p, c] = the sum of all elements of columns that belong to p, plus addend if given; here y is data and x the output,
// transposed, and the columns are those of `samples` samples.
template <typename T, typename C>
__device__ __forceinline__ void images_of(const Convolution &g, const T *columns, const T *addend, T *y, int64 samples) {
    int taps = g.kernel[0] * g.kernel[1] * g.kernel[2];
    int64 plane = (int64)g.to[0] * g.to[1] * g.to[2];
    MX_EACH(i, samples * plane * g.made) {
        int64 p = i / g.made;
        int c = (int)(i - p * g.made), at[3], tap = 0;
        uint32 n = placed(g, (uint32)p, at);
        C sum = C(0);
        for (int tz = 0; tz < g.kernel[0]; ++tz) {
            int z = met(g, 0, at[0], tz);
            for (int ty = 0; ty < g.kernel[1]; ++ty) {
                int v = met(g, 1, at[1], ty);
                bool inside = (unsigned)z < (unsigned)g.from[0] && (unsigned)v < (unsigned)g.from[1];
                for (int tx = 0; tx < g.kernel[2]; ++tx, ++tap) {
                    int u = met(g, 2, at[2], tx);
                    if (!inside || (unsigned)u >= (unsigned)g.from[2]) continue;
                    int64 row = (((int64)n * g.from[0] + z) * g.from[1] + v) * g.from[2] + u;
                    sum += to<C>(columns[(row * g.made + c) * taps + tap]);
                }
            }
        }
        y[i] = from<T>(addend ? sum + to<C>(addend[i]) : sum);
    }
}
