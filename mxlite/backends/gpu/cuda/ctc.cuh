// Connectionist temporal classification, defined in mxlite/ops/loss/ctc.py. A block has a sample, its threads share
// the states, and the classes when gradients are written; time is a loop. Logarithms are doubles, whose range suffices
// for any sequence, so that no rescaling is needed.
#pragma once

enum { NO_STATE = -1 };

struct Paths {
    const void *data, *label, *data_lengths, *label_lengths, *d_out;
    void *out;            // the loss, or d_data
    double *stats;        // per step and sample: the maximum, the logarithm of the sum of exponentials
    double *alpha;        // (steps, samples, states); forward there are two steps
    double *log_p, *beta; // (samples, states), (2, samples, states)
    int *at, *next;       // each state's class, and the next state of that class
    int steps, samples, classes, labels, states, blank, padding;
    int kind, label_kind, data_lengths_kind, label_lengths_kind, keeps_alpha;
};

__device__ __forceinline__ double log_sum(double a, double b) {
    double low = a < b ? a : b, high = a < b ? b : a;
    return low == -1.0 / 0.0 ? high : high + log1p(exp(low - high));
}

extern "C" __global__ void __launch_bounds__(128, 8) ctc_stats(Paths p) {
    __shared__ double shared_numbers[128];
    int64 row = (int64)blockIdx.x * p.classes;
    double most = -1.0 / 0.0, sum = 0;
    for (int c = threadIdx.x; c < p.classes; c += 128) {
        double x = number(p.data, p.kind, row + c);
        if (x > most) most = x;
    }
    shared_numbers[threadIdx.x] = most;
    for (int half = 64; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half && shared_numbers[threadIdx.x + half] > shared_numbers[threadIdx.x])
            shared_numbers[threadIdx.x] = shared_numbers[threadIdx.x + half];
    }
    __syncthreads();
    most = shared_numbers[0];
    __syncthreads();
    for (int c = threadIdx.x; c < p.classes; c += 128) sum += exp(number(p.data, p.kind, row + c) - most);
    shared_numbers[threadIdx.x] = sum;
    for (int half = 64; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) shared_numbers[threadIdx.x] += shared_numbers[threadIdx.x + half];
    }
    if (threadIdx.x == 0) {
        p.stats[2 * (int64)blockIdx.x] = most;
        p.stats[2 * (int64)blockIdx.x + 1] = log(shared_numbers[0]);
    }
}

struct Sample {
    int64 end;
    int size, states;
};

__device__ __forceinline__ double log_softmax(const Paths &p, int t, int b, int c) {
    int64 row = (int64)t * p.samples + b;
    return number(p.data, p.kind, row * p.classes + c) - p.stats[2 * row] - p.stats[2 * row + 1];
}

__device__ __forceinline__ bool skips(const int *at, int s) { return s == 1 || (s > 1 && s % 2 && at[s] != at[s - 2]); }

// States and classes of the block's sample.
__device__ __forceinline__ Sample begun(const Paths &p, int b) {
    Sample sample;
    sample.end = p.data_lengths ? whole(p.data_lengths, p.data_lengths_kind, b) : p.steps;
    if (sample.end > p.steps) sample.end = p.steps;
    int64 size = 0;
    if (p.label_lengths) size = whole(p.label_lengths, p.label_lengths_kind, b);
    else
        while (size < p.labels && number(p.label, p.label_kind, (int64)b * p.labels + size) != p.padding) ++size;
    sample.size = size < 0 ? 0 : size > p.labels ? p.labels : (int)size;
    sample.states = 2 * sample.size + 1;
    int *at = p.at + (int64)b * p.states;
    for (int s = threadIdx.x; s < p.states; s += blockDim.x) {
        int64 c = s % 2 ? whole(p.label, p.label_kind, (int64)b * p.labels + s / 2) : p.blank;
        at[s] = c < 0 ? 0 : c < p.classes ? (int)c : p.classes - 1;
    }
    __syncthreads();
    return sample;
}

// alpha of all steps, and the logarithm of the probability of all paths.
__device__ __forceinline__ double walked(const Paths &p, int b, const Sample &sample) {
    const int *at = p.at + (int64)b * p.states;
    const double none = -1.0 / 0.0;
    for (int t = 0; t < sample.end; ++t) {
        double *alpha = p.alpha + ((int64)(p.keeps_alpha ? t : t % 2) * p.samples + b) * p.states;
        const double *old = p.alpha + ((int64)(p.keeps_alpha ? t - 1 : (t + 1) % 2) * p.samples + b) * p.states;
        for (int s = threadIdx.x; s < sample.states; s += blockDim.x) {
            double x = none;
            if (t == 0) {
                if (s < 2) x = 0;
            } else {
                x = old[s];
                if (s > 0) x = log_sum(x, old[s - 1]);
                if (s > 1 && skips(at, s)) x = log_sum(x, old[s - 2]);
            }
            alpha[s] = x + log_softmax(p, t, b, at[s]);
        }
        __syncthreads();
    }
    if (sample.end < 1) return none;
    int64 last = p.keeps_alpha ? sample.end - 1 : (sample.end - 1) % 2;
    const double *alpha = p.alpha + (last * p.samples + b) * p.states + sample.states;
    return sample.states > 1 ? log_sum(alpha[-1], alpha[-2]) : alpha[-1];
}

extern "C" __global__ void __launch_bounds__(256) ctc_loss(Paths p) {
    int b = blockIdx.x;
    Sample sample = begun(p, b);
    double total = walked(p, b, sample);
    if (threadIdx.x == 0) put(p.out, p.kind, b, total == -1.0 / 0.0 ? 0.0 : -total);
}

extern "C" __global__ void __launch_bounds__(256) ctc_gradient(Paths p) {
    int b = blockIdx.x;
    Sample sample = begun(p, b);
    double total = walked(p, b, sample), head = p.d_out ? number(p.d_out, p.kind, b) : 1.0;
    int64 own = (int64)b * p.states;
    const int *at = p.at + own;
    double *log_p = p.log_p + own, *beta = p.beta + own, *later = p.beta + (int64)p.samples * p.states + own;
    bool impossible = total == -1.0 / 0.0;
    for (int s = threadIdx.x; s < sample.states; s += blockDim.x) {
        beta[s] = s >= sample.states - 2 ? 0.0 : -1.0 / 0.0;
        int next = s + 1;
        while (next < sample.states && at[next] != at[s]) ++next;
        p.next[own + s] = next < sample.states ? next : NO_STATE;
    }
    __syncthreads();
    for (int t = p.steps - 1; t >= 0; --t) {
        int64 row = ((int64)t * p.samples + b) * p.classes;
        bool off = t >= sample.end || impossible || head == 0;
        if (t < sample.end)
            for (int s = threadIdx.x; s < sample.states; s += blockDim.x) log_p[s] = log_softmax(p, t, b, at[s]);
        __syncthreads();
        // The gradient may overwrite the data of this step, which have been read.
        for (int c = threadIdx.x; c < p.classes; c += blockDim.x)
            put(p.out, p.kind, row + c, off ? 0.0 : head * exp(log_softmax(p, t, b, c)));
        __syncthreads();
        if (t >= sample.end) continue;
        const double *alpha = p.alpha + ((int64)t * p.samples + b) * p.states;
        for (int s = threadIdx.x; s < sample.states && !off; s += blockDim.x) {
            bool first = s < 2 || at[s] != p.blank;
            for (int before = 0; before < s && first; ++before) first = at[before] != at[s];
            if (!first) continue;
            double posterior = 0;
            for (int of = s; of != NO_STATE; of = p.next[own + of]) posterior += exp(alpha[of] + beta[of] - total);
            put(p.out, p.kind, row + at[s], head * (exp(log_p[s]) - posterior));
        }
        for (int s = threadIdx.x; s < sample.states; s += blockDim.x) {
            double x = beta[s] + log_p[s];
            if (s + 1 < sample.states) x = log_sum(x, beta[s + 1] + log_p[s + 1]);
            if (s + 2 < sample.states && skips(at, s + 2)) x = log_sum(x, beta[s + 2] + log_p[s + 2]);
            later[s] = x;
        }
        __syncthreads();
        double *swapped = beta;
        beta = later;
        later = swapped;
    }
}
