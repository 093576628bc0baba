// Random classes by rows of probabilities, and shuffles of rows; see mxlite/ops/random/multinomial.py.
#pragma once

// Cumulative probabilities of each row, divided by the last: a block for each row. One thread adds, in the order of the
// reference, so that bits are the same; all threads load and store for it.
extern "C" __global__ void __launch_bounds__(128) cumulate(
    const void *data, double *sums, int kind, int classes) {
    const int STRETCH = 1024;  // a multiple of 128: the thread that divides a sum has written it
    __shared__ double stretch[STRETCH], whole_row;
    int64 row = (int64)blockIdx.x * classes;
    double total = 0;
    for (int first = 0; first < classes; first += STRETCH) {
        int count = classes - first < STRETCH ? classes - first : STRETCH;
        for (int c = threadIdx.x; c < count; c += 128) stretch[c] = number(data, kind, row + first + c);
        __syncthreads();
        if (threadIdx.x == 0)
            for (int c = 0; c < count; ++c) stretch[c] = total += stretch[c];
        __syncthreads();
        for (int c = threadIdx.x; c < count; c += 128) sums[row + first + c] = stretch[c];
        __syncthreads();
    }
    if (threadIdx.x == 0) whole_row = total;
    __syncthreads();
    for (int c = threadIdx.x; c < classes; c += 128) sums[row + c] /= whole_row;
}

// The first class with a sum above a uniform number; `local` is the row's index within a search.
extern "C" __global__ void __launch_bounds__(256) choose_classes(
    int64 n, const double *sums, const void *data, void *out, void *prob, const uint64 *state, uint32 stream,
    int classes, int each, int rows, int kind, int out_kind) {
    MX_EACH(at, n) {
        int64 row = at / each;
        double local = (double)(row % rows);
        Four bits = drawn(state, stream, at >> 2);
        int e = (int)(at & 3);
        uint32 word = e == 0 ? bits.at[0] : e == 1 ? bits.at[1] : e == 2 ? bits.at[2] : bits.at[3];
        double u = ((double)word + 0.5) * 2.3283064365386962890625e-10 + local;
        const double *line = sums + row * classes;
        int low = 0, high = classes;
        while (low < high) {
            int half = (low + high) / 2;
            if (line[half] + local > u) high = half;
            else low = half + 1;
        }
        if (low == classes) low = classes - 1;
        if (out) put(out, out_kind, at, (int64)low);
        if (prob) put(prob, kind, at, log(number(data, kind, row * classes + low)));
    }
}

// d_data[row, class] = the sum of d_prob / data over the samples of the row that have this class.
extern "C" __global__ void __launch_bounds__(256) chosen_gradient(
    int64 n, const void *d_prob, const void *data, const void *out, void *d_data, int classes, int each, int kind,
    int out_kind) {
    MX_EACH(at, n) {
        int64 row = at / classes, c = at % classes;
        double total = 0, share = 1 / number(data, kind, at);
        for (int k = 0; k < each; ++k)
            if (whole(out, out_kind, row * each + k) == c) total += number(d_prob, kind, row * each + k) * share;
        put(d_data, kind, at, total);
    }
}

// Keys of 64 random bits whose lower bits are the row index.
extern "C" __global__ void __launch_bounds__(256) shuffle_keys(
    int64 n, int64 *keys, const uint64 *state, uint32 stream, uint64 mask) {
    MX_EACH(at, n) {
        Four bits = drawn(state, stream, at >> 1);
        uint64 low = at & 1 ? bits.at[2] : bits.at[0], high = at & 1 ? bits.at[3] : bits.at[1];
        // As signed integers, in the order of the unsigned ones.
        keys[at] = (int64)((((high << 32 | low) & ~mask) | (uint64)at) ^ 1ull << 63);
    }
}
