// Spatial sampling: grids of places, bilinear samples and their gradients. A place is (x, y), in [-1, 1] in a
// grid and in pixels here; see mxlite/ops/vision/grid.py and sampler.py. Grids are (N, 2, count).
#pragma once

__device__ __forceinline__ A line_at(int i, int n) { return (A)i * (A)(2.0 / (n > 1 ? n - 1 : 1)) - (A)1; }

// theta[n, k] . (x, y, 1) for all places of a grid (oh, ow); in pixels of an image (h, w) if there is one.
template <typename Y>
__device__ __forceinline__ void map_places(int64 n, const T *theta, Y *out, int oh, int ow, int h, int w) {
    MX_EACH(at, n) {
        uint32 rest = (uint32)at, j = rest % ow, i = rest / ow % oh, map = rest / ow / oh;
        const T *t = theta + (int64)map * 3;
        A place = to<A>(t[0]) * line_at(j, ow) + (to<A>(t[1]) * line_at(i, oh) + to<A>(t[2]));
        if (h) place = (place + (A)1) * ((A)((map % 2 ? h : w) - 1) / (A)2);
        out[at] = from<Y>(place);
    }
}

extern "C" __global__ void __launch_bounds__(256) map_grid(int64 n, const T *theta, T *grid, int oh, int ow) {
    map_places(n, theta, grid, oh, ow, 0, 0);
}

extern "C" __global__ void __launch_bounds__(256) map_pixels(
    int64 n, const T *theta, A *places, int oh, int ow, int h, int w) {
    map_places(n, theta, places, oh, ow, h, w);
}

extern "C" __global__ void __launch_bounds__(256) grid_pixels(
    int64 n, const T *grid, A *places, int count, int h, int w) {
    MX_EACH(at, n) {
        int size = (uint32)at / count % 2 ? h : w;
        places[at] = (to<A>(grid[at]) + (A)1) * ((A)(size - 1) / (A)2);
    }
}

// Places of a flow in pixels, or the gradient `d` of places as that of the flow.
extern "C" __global__ void __launch_bounds__(256) warp_grid(int64 n, const T *flow, T *out, int h, int w, int is_d) {
    MX_EACH(at, n) {
        uint32 rest = (uint32)at, j = rest % w, i = rest / w % h, k = rest / w / h % 2;
        int size = k ? h : w;
        A scale = (A)(2.0 / (size > 1 ? size - 1 : 1)), x = to<A>(flow[at]);
        out[at] = from<T>(is_d ? x * scale : (x + (A)(k ? i : j)) * scale - (A)1);
    }
}

// d_theta[n, k] = sums over a grid of d * (x, y, 1); a block for each, with a tree reduction over its threads.
template <typename X> __device__ __forceinline__ void map_gradient(const X *d_grid, T *d_theta, int oh, int ow) {
    __shared__ A sums[3][256];
    const X *d = d_grid + (int64)blockIdx.x * oh * ow;
    A total[3] = {0, 0, 0};
    for (int at = threadIdx.x; at < oh * ow; at += 256) {
        A x = to<A>(d[at]);
        total[0] += x * line_at(at % ow, ow);
        total[1] += x * line_at(at / ow, oh);
        total[2] += x;
    }
    for (int k = 0; k < 3; ++k) sums[k][threadIdx.x] = total[k];
    for (int half = 128; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            for (int k = 0; k < 3; ++k) sums[k][threadIdx.x] += sums[k][threadIdx.x + half];
    }
    if (threadIdx.x == 0)
        for (int k = 0; k < 3; ++k) d_theta[(int64)blockIdx.x * 3 + k] = from<T>(sums[k][0]);
}

extern "C" __global__ void __launch_bounds__(256) map_gradient_t(const T *d_grid, T *d_theta, int oh, int ow) {
    map_gradient(d_grid, d_theta, oh, ow);
}

extern "C" __global__ void __launch_bounds__(256) map_gradient_a(const A *d_grid, T *d_theta, int oh, int ow) {
    map_gradient(d_grid, d_theta, oh, ow);
}

// -- samples

struct Image {
    int channels, h, w, count;
};

struct Cell {
    int x, y;  // of its upper left corner, from -2 to the size + 1
    A right, down;
};

__device__ __forceinline__ Cell cell_of(const A *places, int64 sample, int place, const Image &m) {
    A x = places[sample * 2 * m.count + place], y = places[(sample * 2 + 1) * m.count + place];
    A low = (A)-2, right = (A)(m.w + 1), bottom = (A)(m.h + 1);
    A near_x = x > low ? x < right ? x : right : low, near_y = y > low ? y < bottom ? y : bottom : low;
    Cell cell;
    cell.x = (int)mx_floor(near_x);
    cell.y = (int)mx_floor(near_y);
    cell.right = x - (A)cell.x;
    cell.down = y - (A)cell.y;
    return cell;
}

extern "C" __global__ void __launch_bounds__(256) sample(
    int64 n, const T *data, const A *places, T *out, Image m) {
    MX_EACH(at, n) {
        uint32 map = (uint32)at / m.count, place = (uint32)at - map * m.count;
        Cell cell = cell_of(places, map / m.channels, place, m);
        const T *image = data + (int64)map * m.h * m.w;
        A total = 0;
        for (int corner = 0; corner < 4; ++corner) {
            int dx = corner % 2, dy = corner / 2, x = cell.x + dx, y = cell.y + dy;
            if (x < 0 || y < 0 || x >= m.w || y >= m.h) continue;
            A weight = (dx ? cell.right : (A)1 - cell.right) * (dy ? cell.down : (A)1 - cell.down);
            total += to<A>(image[(int64)y * m.w + x]) * weight;
        }
        out[at] = from<T>(total);
    }
}

// The gradient with respect to the places, of a grid in [-1, 1].
template <typename Y>
__device__ __forceinline__ void places_gradient(
    int64 n, const T *d_out, const T *data, const A *places, Y *d_places, const Image &m) {
    MX_EACH(at, n) {
        uint32 sample = (uint32)at / m.count, place = (uint32)at - sample * m.count;
        Cell cell = cell_of(places, sample, place, m);
        A slope_x = 0, slope_y = 0;
        for (int corner = 0; corner < 4; ++corner) {
            int dx = corner % 2, dy = corner / 2, x = cell.x + dx, y = cell.y + dy;
            if (x < 0 || y < 0 || x >= m.w || y >= m.h) continue;
            A value = 0;
            for (int c = 0; c < m.channels; ++c) {
                int64 map = (int64)sample * m.channels + c;
                value += to<A>(data[(map * m.h + y) * m.w + x]) * to<A>(d_out[map * m.count + place]);
            }
            slope_x += value * (dy ? cell.down : (A)1 - cell.down) * (A)(2 * dx - 1);
            slope_y += value * (dx ? cell.right : (A)1 - cell.right) * (A)(2 * dy - 1);
        }
        int64 first = (int64)sample * 2 * m.count + place;
        d_places[first] = from<Y>(slope_x * ((A)(m.w - 1) / (A)2));
        d_places[first + m.count] = from<Y>(slope_y * ((A)(m.h - 1) / (A)2));
    }
}

extern "C" __global__ void __launch_bounds__(256) places_gradient_t(
    int64 n, const T *d_out, const T *data, const A *places, T *d_places, Image m) {
    places_gradient(n, d_out, data, places, d_places, m);
}

extern "C" __global__ void __launch_bounds__(256) places_gradient_a(
    int64 n, const T *d_out, const T *data, const A *places, A *d_places, Image m) {
    places_gradient(n, d_out, data, places, d_places, m);
}

// The cell number of each place, (h + 1) * (w + 1) of them in an image and one for all places outside.
extern "C" __global__ void __launch_bounds__(256) number_cells(
    int64 n, const A *places, int64 *cells, int64 outside, Image m) {
    MX_EACH(at, n) {
        int64 sample = at / m.count;
        Cell cell = cell_of(places, sample, (int)(at - sample * m.count), m);
        bool inside = cell.x >= -1 && cell.x < m.w && cell.y >= -1 && cell.y < m.h;
        cells[at] = inside ? (sample * (m.h + 1) + cell.y + 1) * (m.w + 1) + cell.x + 1 : outside;
    }
}

// First index of each cell's places among the sorted ones, by bisection.
extern "C" __global__ void __launch_bounds__(256) cell_starts(int64 n, const uint32 *keys, uint32 *starts, int count) {
    MX_EACH(at, n) {
        uint32 low = 0, high = count;
        while (low < high) {
            uint32 half = low + (high - low) / 2;
            if (keys[half] < (uint32)at) low = half + 1;
            else high = half;
        }
        starts[at] = low;
    }
}

// The gradient with respect to the data: each pixel gathers from the four cells around it, place after place.
extern "C" __global__ void __launch_bounds__(256) data_gradient(
    int64 n, const T *d_out, const A *places, const uint32 *order, const uint32 *starts, T *d_data, Image m) {
    MX_EACH(at, n) {
        uint32 rest = (uint32)at;
        int x = rest % m.w, y = rest / m.w % m.h;
        int64 map = rest / m.w / m.h, sample = map / m.channels;
        A total = 0;
        for (int corner = 3; corner >= 0; --corner) {
            int dx = corner % 2, dy = corner / 2;
            int64 cell = (sample * (m.h + 1) + y - dy + 1) * (m.w + 1) + x - dx + 1;
            for (uint32 i = starts[cell]; i < starts[cell + 1]; ++i) {
                int place = (int)(order[i] - sample * m.count);
                Cell found = cell_of(places, sample, place, m);
                A weight = (dx ? found.right : (A)1 - found.right) * (dy ? found.down : (A)1 - found.down);
                total += to<A>(d_out[map * m.count + place]) * weight;
            }
        }
        d_data[at] = from<T>(total);
    }
}
