// Gather and scatter of rows: indices are converted to row numbers, then rows are read there, or written.
//
// If an index is out of range, its row number is -1 - r, r being the nearest row: reads give nan, and writes store
// nan in r, since a kernel cannot raise errors. If several updates go to one row the last one wins: it is found by an
// integer maximum, which does not depend on the order.
#pragma once

enum { MOST_AXES = 8, NOBODY = 0x7fffffff };

struct Axes {
    int64 length[MOST_AXES], stride[MOST_AXES];
};

__device__ __forceinline__ int64 counted_from_ends(int64 index, int64 length, int negative, bool *outside) {
    if (negative && index < 0) index += length;
    if (index >= 0 && index < length) return index;
    *outside = true;
    return index < 0 ? 0 : length - 1;
}

// Row numbers of indices (depth, n) along `depth` axes. negative: whether those below 0 count from the end.
extern "C" __global__ void __launch_bounds__(256) places_of_rows(
    int64 n, int64 *places, const void *indices, int kind, int depth, int negative, const __grid_constant__ Axes axes) {
    MX_EACH(at, n) {
        int64 place = 0;
        bool outside = false;
        for (int axis = 0; axis < depth; ++axis) {
            int64 index = whole(indices, kind, axis * n + at);
            place = place * axes.length[axis] + counted_from_ends(index, axes.length[axis], negative, &outside);
        }
        places[at] = outside ? -1 - place : place;
    }
}

// Indices of `rank` axes whose lengths are `axes.length`; those along `axis` are replaced by the index.
extern "C" __global__ void __launch_bounds__(256) places_along(
    int64 n, int64 *places, const void *indices, int kind, int rank, int axis, int along,
    const __grid_constant__ Axes axes) {
    MX_EACH(at, n) {
        bool outside = false;
        int64 rest = at, place = counted_from_ends(whole(indices, kind, at), along, 1, &outside) * axes.stride[axis];
        for (int i = rank - 1; i >= 0; --i) {
            int64 x = rest % axes.length[i];
            rest /= axes.length[i];
            if (i != axis) place += x * axes.stride[i];
        }
        places[at] = outside ? -1 - place : place;
    }
}

// The last update of each row, -1 if there is none, NOBODY if one was out of range.
extern "C" __global__ void __launch_bounds__(256) winners(int64 n, const int64 *places, int *winner) {
    MX_EACH(at, n) {
        int64 place = places[at];
        atomicMax(&winner[place < 0 ? -1 - place : place], place < 0 ? (int)NOBODY : (int)at);
    }
}

// out[i] = data[row number i], rows of `inner` elements.
template <typename U>
__device__ __forceinline__ void rows_at(
    int64 n, const U *data, const int64 *places, U *out, uint32 inner, uint64 nan) {
    MX_EACH(at, n) {
        uint32 i = (uint32)at / inner, column = (uint32)at - i * inner;
        int64 place = places[i];
        out[at] = place < 0 ? (U)nan : data[place * inner + column];
    }
}

// out = the row's last update if it has one, else `data`; 0 where these are missing.
template <typename U>
__device__ __forceinline__ void rows_won(
    int64 n, const U *data, const U *updates, const int *winner, U *out, uint32 inner, uint64 nan) {
    MX_EACH(at, n) {
        uint32 row = (uint32)at / inner, column = (uint32)at - row * inner;
        int won = winner[row];
        U x = U(0);
        if (won == NOBODY) x = (U)nan;
        else if (won < 0) x = data ? data[at] : U(0);
        else if (updates) x = updates[(int64)won * inner + column];
        out[at] = x;
    }
}

// Stores nan in all rows that are nearest to an index out of range.
template <typename U>
__device__ __forceinline__ void rows_spoilt(int64 n, const int64 *places, U *out, uint32 inner, uint64 nan) {
    MX_EACH(at, n) {
        int64 place = places[(uint32)at / inner];
        if (place < 0) out[(-1 - place) * inner + (uint32)at % inner] = (U)nan;
    }
}

// -- flattened indices and back; `axes` has the lengths, of which the first does not matter

extern "C" __global__ void __launch_bounds__(256) ravelled(
    int64 n, const void *data, void *out, int kind, int rank, const __grid_constant__ Axes axes) {
    MX_EACH(at, n) {
        int64 total = whole(data, kind, at);
        for (int axis = 1; axis < rank; ++axis) total = total * axes.length[axis] + whole(data, kind, axis * n + at);
        put(out, kind, at, total);
    }
}

extern "C" __global__ void __launch_bounds__(256) unravelled(
    int64 n, const void *data, void *out, int kind, int rank, const __grid_constant__ Axes axes) {
    MX_EACH(at, n) {
        int64 rest = whole(data, kind, at);
        for (int axis = rank - 1; axis > 0; --axis) {
            int64 length = axes.length[axis], x = rest % length;
            if (x < 0) x += length;
            put(out, kind, axis * n + at, x);
            rest = (rest - x) / length;
        }
        put(out, kind, at, rest);
    }
}
