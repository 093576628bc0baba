// Transposed copy: exchanges which axis is contiguous.
//
// `rows` is the source's contiguous axis, `columns` the target's; four more axes are outside. A
// block of (32, 8) threads copies a tile of 32 x 32 units through shared memory. T is the type of a unit.
#pragma once

extern "C" __global__ void __launch_bounds__(256) tiles(
    T *out, const T *in, int64 rows, int64 out_rows, int64 in_rows, int64 columns, int64 out_columns, int64 in_columns,
    int64 row_tiles, int64 column_tiles, int64 n0, int64 out_0, int64 in_0, int64 n1, int64 out_1, int64 in_1, int64 n2,
    int64 out_2, int64 in_2, int64 n3, int64 out_3, int64 in_3, int64 count) {
    __shared__ T tile[32][33];
    for (int64 at = blockIdx.x; at < count; at += gridDim.x) {
        int64 rest = at / column_tiles;
        int64 column = (at - rest * column_tiles) * 32, next = rest / row_tiles;
        int64 row = (rest - next * row_tiles) * 32;
        rest = next;
        next = rest / n3;
        int64 x3 = rest - next * n3;
        rest = next;
        next = rest / n2;
        int64 x2 = rest - next * n2;
        rest = next;
        next = rest / n1;
        int64 x1 = rest - next * n1;
        const T *from = in + next * in_0 + x1 * in_1 + x2 * in_2 + x3 * in_3;
        T *to_ = out + next * out_0 + x1 * out_1 + x2 * out_2 + x3 * out_3;
        for (int k = threadIdx.y; k < 32; k += 8) {
            int64 r = row + threadIdx.x, c = column + k;
            if (r < rows && c < columns) tile[k][threadIdx.x] = from[r * in_rows + c * in_columns];
        }
        __syncthreads();
        for (int k = threadIdx.y; k < 32; k += 8) {
            int64 r = row + k, c = column + threadIdx.x;
            if (r < rows && c < columns) to_[r * out_rows + c * out_columns] = tile[threadIdx.x][k];
        }
        __syncthreads();
    }
}
