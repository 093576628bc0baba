// Gradients of gamma and beta, where one gamma is used by several neighbours; work split among threads: channels.cuh.
// The statistics of element (i, c, p) have index (i * groups + c / channels) * inner + p % inner.
#pragma once

extern "C" __global__ void __launch_bounds__(256) part_sums(
    const T *d, const T *x, const A *means, const A *inverses, int64 groups, int64 channels, int64 inner, SIZE, A *to_gamma,
    A *to_beta) {
    __shared__ Sums S[256 * W];
    SIZE_OF(n);
    Sums s[W];
    for (int w = 0; w < W; ++w) s[w].d = s[w].xd = A(0);
    int64 c0 = first_channel();
    for (Walk walk(n, Part(n, blockIdx.x), c0); walk.inside();) {
        int64 at = walk.at, row = walk.i * groups + c0 / channels, p = walk.j;
        walk.step();
        Elements x_ = load(x, at), d_ = load(d, at);
        for (int e = 0; e < V; ++e) {
            int64 of = LAST ? walk.c == channels ? row : row + (c0 + e) / channels - c0 / channels
                            : inner == 1 ? row : row * inner + (p + e) % inner;
            A head = to<A>(d_.at[e]);
            s[OF(e)].d += head;
            s[OF(e)].xd = mx_fma(head, (to<A>(x_.at[e]) - means[of]) * inverses[of], s[OF(e)].xd);
        }
    }
    reduce(s, S);
    int thread = threadIdx.y * blockDim.x + threadIdx.x;
    if (thread < (LAST ? blockDim.x : 1) && c0 < n.c)
        for (int w = 0; w < W; ++w) {
            to_gamma[blockIdx.x * n.c + c0 + w] = s[w].xd;
            to_beta[blockIdx.x * n.c + c0 + w] = s[w].d;
        }
}
