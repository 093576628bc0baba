// Gradients of gamma and beta from those of parts, arrays (parts, columns): 8 shares of the parts in turn.
#pragma once

extern "C" __global__ void __launch_bounds__(256) affine_total(
    const A *to_gamma, const A *to_beta, int64 columns, int64 parts, G *d_gamma, G *d_beta) {
    __shared__ A S[2][8][32];
    int64 c = blockIdx.x * (int64)32 + threadIdx.x;
    A scaled = A(0), head = A(0);
    if (c < columns)
        for (int64 part = threadIdx.y; part < parts; part += 8) {
            scaled += to_gamma[part * columns + c];
            head += to_beta[part * columns + c];
        }
    S[0][threadIdx.y][threadIdx.x] = scaled;
    S[1][threadIdx.y][threadIdx.x] = head;
    __syncthreads();
    if (threadIdx.y < 2 && c < columns) {
        A sum = A(0);
        for (int y = 0; y < 8; ++y) sum += S[threadIdx.y][y][threadIdx.x];
        G *out = threadIdx.y ? d_beta : d_gamma;
        if (out) out[c] = from<G>(sum);
    }
}
