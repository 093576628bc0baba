// Sum of the partial gradients of gamma and beta, arrays (parts, columns). A block of (x, y) threads has x columns,
// each thread a y-th of their parts.
#pragma once

extern "C" __global__ void __launch_bounds__(256) affine_total(
    const A *to_gamma, const A *to_beta, int64 columns, int64 parts, G *d_gamma, G *d_beta) {
    __shared__ A S[2][256];
    int64 c = blockIdx.x * (int64)blockDim.x + threadIdx.x;
    A scaled = A(0), head = A(0);
    if (c < columns)
        for (int64 part = threadIdx.y; part < parts; part += blockDim.y) {
            scaled += to_gamma[part * columns + c];
            head += to_beta[part * columns + c];
        }
    if (blockDim.y > 1) {
        S[0][threadIdx.y * blockDim.x + threadIdx.x] = scaled;
        S[1][threadIdx.y * blockDim.x + threadIdx.x] = head;
        __syncthreads();
        for (int y = 1; y < blockDim.y && threadIdx.y == 0; ++y) {
            scaled += S[0][y * blockDim.x + threadIdx.x];
            head += S[1][y * blockDim.x + threadIdx.x];
        }
    }
    if (threadIdx.y == 0 && c < columns) {
        if (d_gamma) d_gamma[c] = from<G>(scaled);
        if (d_beta) d_beta[c] = from<G>(head);
    }
}
