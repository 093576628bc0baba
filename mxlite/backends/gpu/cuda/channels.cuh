// Sums over samples and positions of arrays read as (I, C, P): samples, channels, positions.
//
// Defined before: T, the type of data; A, that of sums (float or double); LAST, whether P is 1 and packs lie along
// the channels, else along the positions; V, elements of a pack; ALIGNED, whether packs are aligned to their own size
// (if not, the same threads read the same elements one by one, with the same bits). A block of (TX, TY) threads has
// some channels and a part of the samples and positions:
//
//     LAST    TX packs of channels side by side, TY samples at a time       W = V channels of a thread
//     else    one channel, TX packs of positions, TY samples at a time      W = 1
//
// The parts depend only on the shape, and so do the bits.
#pragma once

#define W (LAST ? V : 1)
#define OF(e) (LAST ? (e) : 0)

// Shape, and extent of one part: `step_i` samples and `step_j` positions, `parts_j` parts along the positions.
struct Size {
    int64 i, c, p, step_i, step_j, parts_j;
};
#define SIZE int64 n_i, int64 n_c, int64 n_p, int64 step_i, int64 step_j, int64 parts_j
#define SIZE_OF(n) Size n = {n_i, n_c, n_p, step_i, step_j, parts_j}

struct Part {
    int64 i0, i1, j0, j1;
    __device__ Part(const Size &n, int64 part) {
        i0 = part / n.parts_j * n.step_i;
        j0 = part % n.parts_j * n.step_j;
        i1 = i0 + n.step_i < n.i ? i0 + n.step_i : n.i;
        j1 = j0 + n.step_j < n.p ? j0 + n.step_j : n.p;
    }
    __device__ A count() const { return (A)((i1 - i0) * (j1 - j0)); }
};

__device__ __forceinline__ int64 first_channel() {
    return LAST ? ((int64)blockIdx.y * blockDim.x + threadIdx.x) * V : (int64)blockIdx.y;
}

// Iterator over the offsets `at` of this thread's packs.
struct Walk {
    int64 i, j, i1, j1, at, c0, first, c, p;
    __device__ Walk(const Size &n, const Part &part, int64 c0) : c0(c0), c(n.c), p(n.p) {
        i = part.i0 + threadIdx.y;
        i1 = c0 < n.c ? part.i1 : i;  // a thread without a channel has no packs
        first = j = LAST ? 0 : part.j0 + (int64)threadIdx.x * V;
        j1 = part.j1;
        if (!LAST && j >= j1) i1 = i;
        place();
    }
    __device__ void place() { at = LAST ? i * c + c0 : (i * c + c0) * p + j; }
    __device__ bool inside() const { return i < i1; }
    __device__ void step() {
        if (LAST) {
            i += blockDim.y;
            at += blockDim.y * c;
        } else {
            j += (int64)blockDim.x * V;
            at += (int64)blockDim.x * V;
            if (j >= j1) {
                i += blockDim.y;
                j = first;
                place();
            }
        }
    }
};

// The next packs of a walk, at most N, loaded together to hide memory latency.
template <int N> struct Batch {
    int64 at[N];
    int count;
    __device__ Batch(Walk &walk) : count(0) {
        _Pragma("unroll") for (int b = 0; b < N; ++b)
            if (walk.inside()) {
                at[b] = walk.at;
                count = b + 1;
                walk.step();
            }
    }
};

// Two sums of a channel: of d, and of d times something.
struct Sums {
    A d, xd;
};

__device__ __forceinline__ Sums merged(const Sums &a, const Sums &b) {
    Sums s = {a.d + b.d, a.xd + b.xd};
    return s;
}

// Total over all threads of a channel, returned to all of them. `S` is shared memory for 256 * W.
template <typename M> __device__ __forceinline__ void reduce(M *mine, M *S) {
    int thread = threadIdx.y * blockDim.x + threadIdx.x, group = LAST ? blockDim.x : 1;
    for (int w = 0; w < W; ++w) S[thread * W + w] = mine[w];
    for (int half = blockDim.x * blockDim.y / group / 2; half; half /= 2) {
        __syncthreads();
        if (thread < half * group)
            for (int w = 0; w < W; ++w) S[thread * W + w] = merged(S[thread * W + w], S[(thread + half * group) * W + w]);
    }
    __syncthreads();
    for (int w = 0; w < W; ++w) mine[w] = S[(LAST ? threadIdx.x : 0) * W + w];
}

// Total over the rows of a block of (32, ROWS) threads, in row 0. A row is a share of the parts. There are few such
// blocks, so each has as many threads as possible, to shorten the sequential sums over the parts of a channel.
#define ROWS 32
template <typename M> __device__ __forceinline__ M over_rows(M mine, M *S) {
    int thread = threadIdx.y * 32 + threadIdx.x;
    S[thread] = mine;
    for (int half = ROWS / 2; half; half /= 2) {
        __syncthreads();
        if (threadIdx.y < half) S[thread] = merged(S[thread], S[thread + half * 32]);
    }
    return S[threadIdx.x];
}

