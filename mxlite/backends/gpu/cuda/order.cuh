// Sorting along an axis: arrays (outer, length, inner) are sorted along `length`. K is the type of keys, unsigned
// integers in the order of the elements; see mxlite/ops/index/order.py. Pairs of key and index are distinct, so that
// every sorting algorithm is stable on them.
//
// Tiles of up to 1024 pairs are sorted in shared memory (K. Batcher, 1968, "Sorting networks and their
// applications"), then runs are merged pairwise: a pair's rank in the merged run is its rank in its own plus the
// number of pairs of the other run that precede it, found by bisection. Only the `first` pairs of a line are written.
#pragma once

enum { SLOTS = 1024 };

struct Order {
    const void *data;
    K *keys, *merged_keys;
    uint32 *places, *merged_places;
    int64 lines;
    uint32 length, inner, first, tile, tiles;  // `tiles` of a line, of `tile` pairs each
    int kind, ascending;
};

__device__ __forceinline__ int64 element(const Order &s, int64 line, uint32 k) {
    return (line / s.inner * s.length + k) * s.inner + line % s.inner;
}

__device__ __forceinline__ K key_at(const Order &s, int64 at) {
    K top = (K)1 << (sizeof(K) * 8 - 1), key;
    if (s.kind == FLOAT64) {
        double x = number(s.data, s.kind, at);
        uint64 bits = 0;
        if (x != x) bits = 0x7ff8ull << 48;
        else if (x != 0) memcpy(&bits, &x, 8);
        key = (K)(bits >> 63 ? ~bits : bits ^ (uint64)top);
    } else if (s.kind <= BFLOAT16) {
        float x = (float)number(s.data, s.kind, at);
        uint32 bits = x != x ? 0x7fc00000u : x == 0 ? 0u : float_to_bits(x);
        key = (K)(bits >> 31 ? ~bits : bits ^ (uint32)top);
    } else {
        key = (K)whole(s.data, s.kind, at) ^ top;
    }
    return s.ascending ? key : (K)~key;
}

__device__ __forceinline__ bool before(K a, uint32 i, K b, uint32 j) { return a < b || (a == b && i < j); }

extern "C" __global__ void __launch_bounds__(512) sort_tiles(Order s) {
    __shared__ K keys[SLOTS];
    __shared__ uint32 places[SLOTS];
    for (uint32 t = threadIdx.x; t < SLOTS; t += blockDim.x) {
        int64 tile = ((int64)blockIdx.x * SLOTS + t) / s.tile, line = tile / s.tiles;
        uint32 k = (uint32)(tile % s.tiles) * s.tile + t % s.tile;
        bool there = line < s.lines && k < s.length;
        keys[t] = there ? key_at(s, element(s, line, k)) : (K)~(K)0;
        places[t] = there ? k : 0xffffffffu;
    }
    for (uint32 size = 2; size <= s.tile; size *= 2)
        for (uint32 step = size / 2; step; step /= 2) {
            __syncthreads();
            for (uint32 pair = threadIdx.x; pair < SLOTS / 2; pair += blockDim.x) {
                uint32 i = pair / step * 2 * step + pair % step, j = i + step;
                bool up = size == s.tile || !(i & size);
                if (before(keys[j], places[j], keys[i], places[i]) == up) {
                    K key = keys[i];
                    keys[i] = keys[j];
                    keys[j] = key;
                    uint32 place = places[i];
                    places[i] = places[j];
                    places[j] = place;
                }
            }
        }
    __syncthreads();
    for (uint32 t = threadIdx.x; t < SLOTS; t += blockDim.x) {
        int64 tile = ((int64)blockIdx.x * SLOTS + t) / s.tile, line = tile / s.tiles;
        uint32 k = (uint32)(tile % s.tiles) * s.tile + t % s.tile;
        if (line >= s.lines || k >= s.length || t % s.tile >= s.first) continue;
        s.keys[line * s.length + k] = keys[t];
        s.places[line * s.length + k] = places[t];
    }
}

// Merges runs of `run` pairs to runs of twice the length.
extern "C" __global__ void __launch_bounds__(256) merge_runs(int64 n, Order s, uint32 run) {
    MX_EACH(at, n) {
        int64 line = at / s.length;
        uint32 k = (uint32)(at - line * s.length), begin = k / (2 * run) * (2 * run), middle = begin + run;
        bool left = k < middle;
        uint32 own = k - (left ? begin : middle);
        if (own >= s.first) continue;
        const K *keys = s.keys + line * s.length;
        const uint32 *places = s.places + line * s.length;
        K key = keys[k];
        uint32 place = places[k], low = left ? middle : begin, from = low, high = low + run;
        if (high > s.length) high = s.length;
        if (high > low + s.first) high = low + s.first;
        while (low < high) {
            uint32 half = low + (high - low) / 2;
            if (before(keys[half], places[half], key, place)) low = half + 1;
            else high = half;
        }
        uint32 rank = own + (low > from ? low - from : 0);
        if (rank >= s.first) continue;
        s.merged_keys[line * s.length + begin + rank] = key;
        s.merged_places[line * s.length + begin + rank] = place;
    }
}

__device__ __forceinline__ void move_element(void *out, int64 to, const void *in, int64 from, int item) {
    if (item == 8) ((uint64 *)out)[to] = ((const uint64 *)in)[from];
    else if (item == 4) ((uint32 *)out)[to] = ((const uint32 *)in)[from];
    else if (item == 2) ((unsigned short *)out)[to] = ((const unsigned short *)in)[from];
    else ((uint8 *)out)[to] = ((const uint8 *)in)[from];
}

// Outputs for the first pairs of every line: elements, positions of type `kind`, indices, and a mask of ones.
extern "C" __global__ void __launch_bounds__(256) write_order(
    int64 n, Order s, void *values, void *positions, int *places, void *mask, int kind, int item) {
    MX_EACH(at, n) {
        int64 rest = at / s.inner, line = rest / s.first * s.inner + at % s.inner;
        uint32 place = s.places[line * s.length + rest % s.first];
        int64 from = element(s, line, place);
        if (values) move_element(values, at, s.data, from, item);
        if (positions) put(positions, kind, at, (int64)place);
        if (places) places[at] = (int)place;
        if (mask) put(mask, s.kind, from, (int64)1);
    }
}

// d_data[place] = d_out; s.data is d_out.
extern "C" __global__ void __launch_bounds__(256) put_back(int64 n, Order s, void *d_data, const int *places, int item) {
    MX_EACH(at, n) {
        int64 rest = at / s.inner, line = rest / s.first * s.inner + at % s.inner;
        move_element(d_data, element(s, line, places[at]), s.data, at, item);
    }
}
