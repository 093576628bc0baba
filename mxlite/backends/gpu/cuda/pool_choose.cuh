// Gradient of the gradient of max pooling; parameters: pool.cuh.
#pragma once

// out: for each window the element with number `index`; 0 if that is not inside the data.
extern "C" __global__ void __launch_bounds__(256) choose(
    const T *in, const I *index, T *out, int64 total, int packs, AXIS(d), AXIS(h), AXIS(w), int padded, int p) {
    AXIS_OF(d);
    AXIS_OF(h);
    AXIS_OF(w);
    int64 channels = (int64)packs * V;
    MX_EACH(at, total) {
        Place o(at, packs, w.out, h.out, d.out);
        Pack<I, V> which = load(index, at * V);
        Pack<T, V> y;
        for (int e = 0; e < V; ++e) {
            int k = (int)which.at[e], line = k / w.kernel, plane = line / h.kernel;
            int x = o.x * w.stride - w.pad + k - line * w.kernel;
            int y_ = o.y * h.stride - h.pad + line - plane * h.kernel;
            int z = o.z * d.stride - d.pad + plane;
            bool inside = k >= 0 && plane < d.kernel && z >= 0 && z < d.size && y_ >= 0 && y_ < h.size && x >= 0 && x < w.size;
            y.at[e] = from<T>(A(0));
            if (inside)
                y.at[e] = in[(((o.row * d.size + z) * h.size + y_) * w.size + x) * channels + o.pack * V + e];
        }
        store(out, at * V, y);
    }
}
