// What a batch adds to a metric; see mxlite/ops/metric_sums.py. Types: T of predictions, A to compute in. What is added up
// is added by one block, thread t taking rows t, t + 256, ..., and then the threads in a fixed order.
#pragma once

struct Metric {
    const void *label, *pred;
    double *sums;          // of the batches before, and of the last one
    const float *taken;    // whether that one counts
    float *found;          // a number for each row
    int64 rows, classes, inner;  // element k of row r: pred[(r / inner * classes + k) * inner + r % inner]
    double floor, eps, ignore;
    int kind, ignores, clips, top, of;
};

enum { ABSOLUTE, SQUARE, ROOT };

__device__ __forceinline__ void add_batch(double sum, double count, const Metric &s, double divisor = 1, bool root = false) {
    __shared__ double room[2][8];
    for (int by = 16; by; by /= 2) {
        sum += __shfl_xor_sync(0xffffffffu, sum, by);
        count += __shfl_xor_sync(0xffffffffu, count, by);
    }
    if (threadIdx.x % 32 == 0) {
        room[0][threadIdx.x / 32] = sum;
        room[1][threadIdx.x / 32] = count;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < 8; ++w) {
            sum += room[0][w];
            count += room[1][w];
        }
        if (*s.taken != 0) {
            s.sums[0] += s.sums[2];
            s.sums[1] += s.sums[3];
        }
        sum /= divisor;
        s.sums[2] = root ? sqrt(sum) : sum;
        s.sums[3] = count;
    }
}

__device__ __forceinline__ const T *row_of(const Metric &s, int64 row) {
    return (const T *)s.pred + row / s.inner * s.classes * s.inner + row % s.inner;
}

// A warp for each row: 1 where the first of the largest is the label.
extern "C" __global__ void __launch_bounds__(256) hits(Metric s) {
    int lane = threadIdx.x % 32;
    for (int64 row = blockIdx.x * (int64)8 + threadIdx.x / 32; row < s.rows; row += (int64)gridDim.x * 8) {
        const T *mine = row_of(s, row);
        A best = 0;
        int64 at = s.classes;
        for (int64 k = lane; k < s.classes; k += 32) {
            A x = to<A>(mine[k * s.inner]);
            if (at == s.classes || x > best || (x != x && best == best)) { best = x; at = k; }
        }
        for (int by = 16; by; by /= 2) {
            A x = __shfl_xor_sync(0xffffffffu, best, by);
            int64 k = __shfl_xor_sync(0xffffffffu, at, by);
            bool wins = k < s.classes && (at == s.classes || x > best || (x != x && best == best)
                                          || ((x == best || (x != x && best != best)) && k < at));
            if (wins) { best = x; at = k; }
        }
        if (lane == 0) s.found[row] = (int)whole(s.label, s.kind, row) == (int)at ? 1.0f : 0.0f;
    }
}

// A warp for each row: 1 where fewer than `top` scores come before the label's.
extern "C" __global__ void __launch_bounds__(256) ranks(Metric s) {
    int lane = threadIdx.x % 32;
    for (int64 row = blockIdx.x * (int64)8 + threadIdx.x / 32; row < s.rows; row += (int64)gridDim.x * 8) {
        const T *mine = row_of(s, row);
        int64 label = (int)whole(s.label, s.kind, row);
        bool known = label >= 0 && label < s.classes;
        A own = known ? to<A>(mine[label * s.inner]) : (A)0;
        int before = 0;
        for (int64 k = lane; known && k < s.classes; k += 32) {
            A x = to<A>(mine[k * s.inner]);
            bool larger = x != x ? own == own : x > own, alike = x == own || (x != x && own != own);
            before += larger || (alike && k < label);
        }
        for (int by = 16; by; by /= 2) before += __shfl_xor_sync(0xffffffffu, before, by);
        if (lane == 0) s.found[row] = known && before < s.top ? 1.0f : 0.0f;
    }
}

// One block, rows of `hits` or `ranks`.
extern "C" __global__ void __launch_bounds__(256) add_up(Metric s) {
    double sum = 0;
    for (int64 row = threadIdx.x; row < s.rows; row += 256) sum += s.found[row];
    add_batch(sum, threadIdx.x == 0 ? (double)s.rows : 0, s);
}

// One block, rows that are one class each.
extern "C" __global__ void __launch_bounds__(256) alike(Metric s) {
    double sum = 0;
    for (int64 row = threadIdx.x; row < s.rows; row += 256)
        sum += (int)whole(s.label, s.kind, row) == (int)cut(to<double>(((const T *)s.pred)[row]));
    add_batch(sum, threadIdx.x == 0 ? (double)s.rows : 0, s);
}

// One block, one prediction of each row.
extern "C" __global__ void __launch_bounds__(256) chosen(Metric s) {
    double sum = 0, count = 0;
    for (int64 row = threadIdx.x; row < s.rows; row += 256) {
        if (s.ignores && number(s.label, s.kind, row) == s.ignore) continue;
        int64 k = whole(s.label, s.kind, row);
        if (s.clips) k = k < 0 ? 0 : k < s.classes ? k : s.classes - 1;
        A x = k >= 0 && k < s.classes ? to<A>(row_of(s, row)[k * s.inner]) : (A)bits_to_float(0x7fc00000u);
        if (x < (A)s.floor) x = (A)s.floor;
        sum -= log((double)(x + (A)s.eps));
        count += 1;
    }
    add_batch(sum, count, s);
}

// One block, all elements.
extern "C" __global__ void __launch_bounds__(256) total(Metric s) {
    double sum = 0;
    for (int64 row = threadIdx.x; row < s.rows; row += 256) sum += to<double>(((const T *)s.pred)[row]);
    add_batch(sum, threadIdx.x == 0 ? (double)s.rows : 0, s);
}

// One block, all pairs.
extern "C" __global__ void __launch_bounds__(256) differences(Metric s) {
    double sum = 0;
    for (int64 row = threadIdx.x; row < s.rows; row += 256) {
        double d = (double)((A)number(s.label, s.kind, row) - to<A>(((const T *)s.pred)[row]));
        sum += s.of == ABSOLUTE ? (d < 0 ? -d : d) : d * d;
    }
    add_batch(sum, threadIdx.x == 0 ? 1 : 0, s, (double)s.rows, s.of == ROOT);
}
