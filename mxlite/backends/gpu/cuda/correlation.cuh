// Similarity of patches of two maps, for each displacement of the second; see mxlite/ops/nn/correlation.py.
#pragma once

struct Patches {
    int channels, h, w, out_h, out_w, reach, kernel, stride1, stride2, pad, border, multiply;
};

__device__ __forceinline__ bool outside(const Patches &m, int y, int x) { return y < 0 || x < 0 || y >= m.h || x >= m.w; }

extern "C" __global__ void __launch_bounds__(256) correlate(int64 n, const T *first, const T *second, T *out, Patches m) {
    MX_EACH(at, n) {
        uint32 rest = (uint32)at;
        int j = rest % m.out_w, i = rest / m.out_w % m.out_h, side = 2 * m.reach + 1;
        int d = rest / m.out_w / m.out_h % (side * side), sample = rest / m.out_w / m.out_h / (side * side);
        int down = (d / side - m.reach) * m.stride2, right = (d % side - m.reach) * m.stride2;
        A total = 0;
        for (int p = 0; p < m.kernel * m.kernel; ++p) {
            int y = i * m.stride1 + m.border + p / m.kernel - m.pad, x = j * m.stride1 + m.border + p % m.kernel - m.pad;
            bool none = outside(m, y, x), other_none = outside(m, y + down, x + right);
            for (int c = 0; c < m.channels; ++c) {
                int64 plane = ((int64)sample * m.channels + c) * m.h;
                A a = none ? (A)0 : to<A>(first[(plane + y) * m.w + x]);
                A b = other_none ? (A)0 : to<A>(second[(plane + y + down) * m.w + x + right]);
                total += m.multiply ? a * b : mx_abs(a - b);
            }
        }
        out[at] = from<T>(total / (A)(m.kernel * m.kernel * m.channels));
    }
}

// The gradient in one map, `turned`: in the second. A pixel gathers from all displacements and kernel positions.
extern "C" __global__ void __launch_bounds__(256) correlate_gradient(
    int64 n, const T *d_out, const T *own, const T *other, T *d_own, Patches m, int turned) {
    MX_EACH(at, n) {
        uint32 rest = (uint32)at;
        int x = rest % m.w, y = rest / m.w % m.h, map = rest / m.w / m.h, sample = map / m.channels;
        int side = 2 * m.reach + 1;
        A mine = to<A>(own[at]), total = 0;
        for (int d = 0; d < side * side; ++d) {
            int down = (d / side - m.reach) * m.stride2, right = (d % side - m.reach) * m.stride2;
            // Position of the pixel in the first map's patch, and of its counterpart in the other map.
            int y1 = turned ? y - down : y, x1 = turned ? x - right : x;
            int y2 = turned ? y1 : y + down, x2 = turned ? x1 : x + right;
            A theirs = outside(m, y2, x2) ? (A)0 : to<A>(other[((int64)map * m.h + y2) * m.w + x2]), sum = 0;
            for (int p = 0; p < m.kernel * m.kernel; ++p) {
                int i = y1 + m.pad - m.border - p / m.kernel, j = x1 + m.pad - m.border - p % m.kernel;
                if (i < 0 || j < 0 || i % m.stride1 || j % m.stride1) continue;
                i /= m.stride1;
                j /= m.stride1;
                if (i >= m.out_h || j >= m.out_w) continue;
                sum += to<A>(d_out[(((int64)sample * side * side + d) * m.out_h + i) * m.out_w + j]);
            }
            bool above = turned ? mine > theirs : mine >= theirs;
            total += sum * (m.multiply ? theirs : above ? (A)1 : (A)-1);
        }
        d_own[at] = from<T>(total / (A)(m.kernel * m.kernel * m.channels));
    }
}
