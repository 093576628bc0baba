// The gradient of `normalize` in rows.cuh:
//
//     d_data = (g - sum(g) / K - scaled * sum(g * scaled) / K) / spread,   g = d_out * gamma
//
// with K = count; the gradients of mean and spread are added if they are given.
#pragma once

// d_data, and the mean and 1 / spread of each row (if not null). With COLUMNS, also sums over the rows of a block
// for each column, of d_out * scaled and of d_out: arrays (blocks, length). Block b has the rows [b * step, ...).
extern "C" __global__ void __launch_bounds__(256) gradient(
    const T *d, const G *d_mean, const G *d_spread, const T *x, const G *gamma, RULE, int64 step, T *d_data, A *means,
    A *inverses, A *to_gamma, A *to_beta) {
    __shared__ A slots[32];
    RULE_OF(n);
#if COLUMNS
    A sum_scaled[HELD * V], sum_d[HELD * V];  // of this thread's columns
    for (int e = 0; e < HELD * V; ++e) sum_scaled[e] = sum_d[e] = A(0);
#endif
    int64 begin = blockIdx.x * step, end = begin + step < n.rows ? begin + step : n.rows;
    for (int64 first = begin; first < end; first += blockDim.y) {
        int64 row = first + threadIdx.y, here = row < end ? row : end - 1;  // all threads reach the barriers
        int64 c = first_gamma(n, here);
        Elements held[SLOTS];
        if (HELD && d) EACH(p, j) held[SLOT(p)] = load(d, here * n.length + j);
        Row r(x + here * n.length, n, slots);
        A inverse = A(1) / r.spread, sum = A(0), dot = A(0);
        if (d && d_data) {
            EACH(p, j) {
                Elements v = r.at(p, j), g = HELD ? held[SLOT(p)] : load(d, here * n.length + j);
                A scale[V];
                if (gamma) numbers_of(gamma, n, c, j, scale);
                for (int e = 0; e < V; ++e) {
                    A scaled = (to<A>(v.at[e]) - r.mean) * inverse, head = to<A>(g.at[e]);
                    if (gamma) head *= scale[e];
                    sum += head;
                    dot = mx_fma(head, scaled, dot);
                }
            }
            if (n.centre) sum = over_row(sum, slots);
            dot = over_row(dot, slots);
        }
        sum = n.centre ? sum / (A)n.count * inverse : A(0);
        dot = dot / (A)n.count * inverse;
        if (d_mean) sum -= to<A>(d_mean[here]) / (A)n.count;
        if (d_spread) dot -= to<A>(d_spread[here]) / (A)n.count;
        if (row >= end) continue;
        if (means && threadIdx.x == 0) {
            means[row] = r.mean;
            inverses[row] = inverse;
        }
        EACH(p, j) {
            Elements v = r.at(p, j), g = v;
            if (d) g = HELD ? held[SLOT(p)] : load(d, row * n.length + j);
            A scale[V];
            if (gamma) numbers_of(gamma, n, c, j, scale);
            for (int e = 0; e < V; ++e) {
                A scaled = (to<A>(v.at[e]) - r.mean) * inverse, head = d ? to<A>(g.at[e]) : A(0);
#if COLUMNS
                sum_scaled[p * V + e] = mx_fma(head, scaled, sum_scaled[p * V + e]);
                sum_d[p * V + e] += head;
#endif
                if (gamma) head *= scale[e];
                v.at[e] = from<T>(head * inverse - (scaled * dot + sum));
            }
            if (d_data) store(d_data, row * n.length + j, v);
        }
    }
#if COLUMNS
    // The rows of a block in turn, through shared memory: (TY, TX) of a pack at a time.
    __shared__ A both[2 * 256];
    _Pragma("unroll") for (int slot = 0; slot < HELD * V; ++slot) {
        int thread = threadIdx.y * blockDim.x + threadIdx.x, threads = blockDim.x * blockDim.y;
        __syncthreads();
        both[thread] = sum_scaled[slot];
        both[threads + thread] = sum_d[slot];
        __syncthreads();
        int64 column = (threadIdx.x + (int64)(slot / V) * blockDim.x) * V + slot % V;
        if (threadIdx.y == 0 && column < n.length) {
            A scaled = both[thread], head = both[threads + thread];
            for (int y = 1; y < blockDim.y; ++y) {
                scaled += both[y * blockDim.x + thread];
                head += both[threads + y * blockDim.x + thread];
            }
            to_gamma[blockIdx.x * n.length + column] = scaled;
            to_beta[blockIdx.x * n.length + column] = head;
        }
    }
#endif
}
