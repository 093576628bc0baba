// Update of a metric by a batch; see mxlite/ops/reduce/metric_sums.py. Types: T of predictions, A to compute in. The
// split of rows depends only on their number, and threads are summed in a fixed order. Several blocks use `add_up`.
#pragma once

struct Metric {
    const void *label, *pred;
    double *sums;          // of the batches before, and of the last one
    const float *taken;    // whether the last one counts
    double *parts;         // two numbers per block, if there are several
    int64 rows, classes, inner;  // element k of row r: pred[(r / inner * classes + k) * inner + r % inner]
    double floor, eps, ignore, divisor;
    int kind, ignores, clips, top, of, blocks;
};

enum { ABSOLUTE, SQUARE, ROOT };

// Total over the threads of a block, for thread 0.
__device__ __forceinline__ void over_block(double &sum, double &count) {
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
    if (threadIdx.x == 0)
        for (int w = 1; w < 8; ++w) {
            sum += room[0][w];
            count += room[1][w];
        }
}

__device__ __forceinline__ void add_batch(double sum, double count, const Metric &s) {
    if (*s.taken != 0) {
        s.sums[0] += s.sums[2];
        s.sums[1] += s.sums[3];
    }
    sum /= s.divisor;
    s.sums[2] = s.of == ROOT ? sqrt(sum) : sum;
    s.sums[3] = count;
}

// Adds the sums of a thread's rows, and the number of rows.
__device__ __forceinline__ void leave(double sum, double count, const Metric &s) {
    over_block(sum, count);
    if (threadIdx.x) return;
    if (gridDim.x == 1) {
        add_batch(sum, count, s);
    } else {
        s.parts[2 * blockIdx.x] = sum;
        s.parts[2 * blockIdx.x + 1] = count;
    }
}

// The same if the batch has weight `count`, whatever its rows are.
__device__ __forceinline__ void leave_batch(double sum, double count, const Metric &s) {
    leave(sum, blockIdx.x == 0 && threadIdx.x == 0 ? count : 0, s);
}

// One block: the sums of the others. For `differences` a batch has weight 1, whatever its number of pairs.
extern "C" __global__ void __launch_bounds__(256, 4) add_up(Metric s) {
    double sum = 0, count = 0;
    for (int b = threadIdx.x; b < s.blocks; b += 256) {
        sum += s.parts[2 * b];
        count += s.parts[2 * b + 1];
    }
    over_block(sum, count);
    if (threadIdx.x == 0) add_batch(sum, count, s);
}

#define MX_ROWS(row, each)                                                                    \
    for (int64 row = (blockIdx.x * (int64)256 + threadIdx.x) / (each); row < s.rows;          \
         row += (int64)gridDim.x * (256 / (each)))

__device__ __forceinline__ const T *row_of(const Metric &s, int64 row) {
    return (const T *)s.pred + row / s.inner * s.classes * s.inner + row % s.inner;
}

// True if score x at k is better than the best so far: larger, nan above all, ties to the first.
__device__ __forceinline__ bool wins(A x, int64 k, A best, int64 at, int64 classes) {
    return k < classes && (at == classes || x > best || (x != x && best == best)
                           || ((x == best || (x != x && best != best)) && k < at));
}

__device__ __forceinline__ bool is_hit(const Metric &s, int64 row, int64 at) {
    return (int)whole(s.label, s.kind, row) == (int)at;
}

// Number of rows whose argmax is the label: a warp for each row, or a thread if there are few classes.
extern "C" __global__ void __launch_bounds__(256, 4) hits(Metric s) {
    int lane = threadIdx.x % 32;
    double sum = 0;
    MX_ROWS(row, 32) {
        const T *mine = row_of(s, row);
        A best = 0;
        int64 at = s.classes;
        for (int64 k = lane; k < s.classes; k += 32) {
            A x = to<A>(mine[k * s.inner]);
            if (wins(x, k, best, at, s.classes)) { best = x; at = k; }
        }
        for (int by = 16; by; by /= 2) {
            A x = __shfl_xor_sync(0xffffffffu, best, by);
            int64 k = __shfl_xor_sync(0xffffffffu, at, by);
            if (wins(x, k, best, at, s.classes)) { best = x; at = k; }
        }
        if (lane == 0) sum += is_hit(s, row, at);
    }
    leave_batch(sum, (double)s.rows, s);
}

extern "C" __global__ void __launch_bounds__(256, 4) few_hits(Metric s) {
    double sum = 0;
    MX_ROWS(row, 1) {
        const T *mine = row_of(s, row);
        A best = 0;
        int64 at = s.classes;
        for (int64 k = 0; k < s.classes; ++k) {
            A x = to<A>(mine[k * s.inner]);
            if (wins(x, k, best, at, s.classes)) { best = x; at = k; }
        }
        sum += is_hit(s, row, at);
    }
    leave_batch(sum, (double)s.rows, s);
}

// True if a score ranks before the label's.
__device__ __forceinline__ bool is_before(A x, int64 k, A own, int64 label) {
    bool larger = x != x ? own == own : x > own, alike = x == own || (x != x && own != own);
    return larger || (alike && k < label);
}

// Number of rows with fewer than `top` scores ranked before the label's; like `hits`.
extern "C" __global__ void __launch_bounds__(256, 4) ranks(Metric s) {
    int lane = threadIdx.x % 32;
    double sum = 0;
    MX_ROWS(row, 32) {
        const T *mine = row_of(s, row);
        int64 label = (int)whole(s.label, s.kind, row);
        bool known = label >= 0 && label < s.classes;
        A own = known ? to<A>(mine[label * s.inner]) : (A)0;
        int before = 0;
        for (int64 k = lane; known && k < s.classes; k += 32) before += is_before(to<A>(mine[k * s.inner]), k, own, label);
        for (int by = 16; by; by /= 2) before += __shfl_xor_sync(0xffffffffu, before, by);
        if (lane == 0) sum += known && before < s.top;
    }
    leave_batch(sum, (double)s.rows, s);
}

extern "C" __global__ void __launch_bounds__(256, 4) few_ranks(Metric s) {
    double sum = 0;
    MX_ROWS(row, 1) {
        const T *mine = row_of(s, row);
        int64 label = (int)whole(s.label, s.kind, row);
        bool known = label >= 0 && label < s.classes;
        A own = known ? to<A>(mine[label * s.inner]) : (A)0;
        int before = 0;
        for (int64 k = 0; known && k < s.classes; ++k) before += is_before(to<A>(mine[k * s.inner]), k, own, label);
        sum += known && before < s.top;
    }
    leave_batch(sum, (double)s.rows, s);
}

// Rows that are one class each.
extern "C" __global__ void __launch_bounds__(256, 4) alike(Metric s) {
    double sum = 0;
    MX_ROWS(row, 1) sum += (int)whole(s.label, s.kind, row) == (int)cut(to<double>(((const T *)s.pred)[row]));
    leave_batch(sum, (double)s.rows, s);
}

// One prediction of each row.
extern "C" __global__ void __launch_bounds__(256, 4) chosen(Metric s) {
    double sum = 0, count = 0;
    MX_ROWS(row, 1) {
        if (s.ignores && number(s.label, s.kind, row) == s.ignore) continue;
        int64 k = whole(s.label, s.kind, row);
        if (s.clips) k = k < 0 ? 0 : k < s.classes ? k : s.classes - 1;
        A x = k >= 0 && k < s.classes ? to<A>(row_of(s, row)[k * s.inner]) : (A)bits_to_float(0x7fc00000u);
        if (x < (A)s.floor) x = (A)s.floor;
        sum -= log((double)(x + (A)s.eps));
        count += 1;
    }
    leave(sum, count, s);
}

// All elements.
extern "C" __global__ void __launch_bounds__(256, 4) total(Metric s) {
    double sum = 0;
    MX_ROWS(row, 1) sum += to<double>(((const T *)s.pred)[row]);
    leave_batch(sum, (double)s.rows, s);
}

// All pairs.
extern "C" __global__ void __launch_bounds__(256, 4) differences(Metric s) {
    double sum = 0;
    MX_ROWS(row, 1) {
        double d = (double)((A)number(s.label, s.kind, row) - to<A>(((const T *)s.pred)[row]));
        sum += s.of == ABSOLUTE ? (d < 0 ? -d : d) : d * d;
    }
    leave_batch(sum, 1, s);
}
