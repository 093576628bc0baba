// Convolutions as matrix products with an implicit operand: its elements are read from the array (implicit GEMM).
//
// A block computes BM x BN results. Its rows are windows: row m begins somewhere in `x` (a Place), step k of the sum
// adds an offset (a Step), and elements outside the array count as 0. The columns are plain: element (k, n) is
// w[step.other + n * stride]. Places and steps are computed by a few threads into shared memory, so that the threads
// that read elements only add two offsets and compare three coordinates. While one slice of the sum is multiplied
// from shared memory, the next is being loaded from device memory.
#pragma once

struct Place { int64 offset, out; int z, y, x; };    // out < 0: no row
struct Step { int64 offset, other; int z, y, x; };  // other < 0: after the last step

#define MX_FAR (-(1 << 30))  // a coordinate that every step leaves outside

// T: elements, C: what is computed with; each thread has TM x TN results. Windows are read in packs of P elements,
// along the steps (ALONG_K) or along the rows, columns in packs of Q.
template <typename T, typename C, int BM_, int BN_, int BK_, int TM_, int TN_, bool ALONG_K, int P, int Q> struct Windowed {
    static const int BM = BM_, BN = BN_, BK = BK_, TM = TM_, TN = TN_;
    static const int THREADS = BM / TM * (BN / TN);
    static const int VM = TM < 4 ? TM : 4, VN = TN < 4 ? TN : 4;
    static const int OF_A = BM * BK / P, OF_B = BN * BK / Q;
    static const int RA = (OF_A + THREADS - 1) / THREADS, RB = (OF_B + THREADS - 1) / THREADS;

    struct Stage {
        alignas(32) C a[2][BK][BM + 4];
        alignas(32) C b[2][BK][BN + 4];
        Place places[BM];
        Step steps[2][BK];
    };

    Stage &s;
    const T *x, *w;
    int depth, height, width;  // of x
    int columns;
    int64 stride;
    bool by_k;
    C sum[TM][TN];
    Pack<T, P> a[RA];
    Pack<T, Q> b[RB];

    __device__ __forceinline__ Windowed(Stage &stage) : s(stage) {}

    __device__ __forceinline__ static int row(int i) { return i / VM * (BM / TM * VM) + (int)threadIdx.x / (BN / TN) * VM + i % VM; }
    __device__ __forceinline__ static int column(int j) { return j / VN * (BN / TN * VN) + (int)threadIdx.x % (BN / TN) * VN + j % VN; }

    __device__ __forceinline__ void read(int at) {
        #pragma unroll
        for (int r = 0; r < RA; ++r) {
            int e = threadIdx.x + r * THREADS;
            if (OF_A % THREADS && e >= OF_A) break;
            const Step &step = s.steps[at][ALONG_K ? e % (BK / P) * P : e / (BM / P)];
            const Place &place = s.places[ALONG_K ? e / (BK / P) : e % (BM / P) * P];
            bool inside = (unsigned)(place.z + step.z) < (unsigned)depth && (unsigned)(place.y + step.y) < (unsigned)height &&
                          (unsigned)(place.x + step.x) < (unsigned)width;
            Pack<T, P> none = {};
            a[r] = inside ? *(const Pack<T, P> *)(x + (place.offset + step.offset)) : none;
        }
        #pragma unroll
        for (int r = 0; r < RB; ++r) {
            int e = threadIdx.x + r * THREADS;
            if (OF_B % THREADS && e >= OF_B) break;
            int k = Q == 1 && by_k ? e % BK : e / (BN / Q), n = Q == 1 && by_k ? e / BK : e % (BN / Q) * Q;
            int64 other = s.steps[at][k].other;
            Pack<T, Q> none = {};
            b[r] = other >= 0 && n < columns ? *(const Pack<T, Q> *)(w + (other + n * stride)) : none;
        }
    }

    __device__ __forceinline__ void store(int at) {
        #pragma unroll
        for (int r = 0; r < RA; ++r) {
            int e = threadIdx.x + r * THREADS;
            if (OF_A % THREADS && e >= OF_A) break;
            #pragma unroll
            for (int i = 0; i < P; ++i) {
                int k = ALONG_K ? e % (BK / P) * P + i : e / (BM / P), m = ALONG_K ? e / (BK / P) : e % (BM / P) * P + i;
                s.a[at][k][m] = to<C>(a[r].at[i]);
            }
        }
        #pragma unroll
        for (int r = 0; r < RB; ++r) {
            int e = threadIdx.x + r * THREADS;
            if (OF_B % THREADS && e >= OF_B) break;
            int k = Q == 1 && by_k ? e % BK : e / (BN / Q), n = Q == 1 && by_k ? e / BK : e % (BN / Q) * Q;
            #pragma unroll
            for (int i = 0; i < Q; ++i) s.b[at][k][n + i] = to<C>(b[r].at[i]);
        }
    }

    __device__ __forceinline__ void multiply(int at) {
        #pragma unroll
        for (int k = 0; k < BK; ++k) {
            C left[TM], right[TN];
            #pragma unroll
            for (int i = 0; i < TM; i += VM) {
                Pack<C, VM> p = *(const Pack<C, VM> *)&s.a[at][k][row(i)];
                #pragma unroll
                for (int v = 0; v < VM; ++v) left[i + v] = p.at[v];
            }
            #pragma unroll
            for (int j = 0; j < TN; j += VN) {
                Pack<C, VN> p = *(const Pack<C, VN> *)&s.b[at][k][column(j)];
                #pragma unroll
                for (int v = 0; v < VN; ++v) right[j + v] = p.at[v];
            }
            #pragma unroll
            for (int i = 0; i < TM; ++i)
                #pragma unroll
                for (int j = 0; j < TN; ++j) sum[i][j] += left[i] * right[j];
        }
    }

    // `steps` gives thread k < BK its step of every slice, in order. Places are stored before.
    template <typename Steps> __device__ __forceinline__ void run(int slices, Steps &steps) {
        #pragma unroll
        for (int i = 0; i < TM; ++i)
            #pragma unroll
            for (int j = 0; j < TN; ++j) sum[i][j] = C(0);
        if (threadIdx.x < BK) {
            steps.next(s.steps[0][threadIdx.x]);
            steps.next(s.steps[1][threadIdx.x]);
        }
        __syncthreads();
        if (slices == 0) return;
        read(0);
        store(0);
        __syncthreads();
        for (int slice = 0; slice < slices; ++slice) {
            int at = slice & 1;
            if (slice + 1 < slices) read(at ^ 1);
            if (threadIdx.x < BK) steps.next(s.steps[at][threadIdx.x]);  // for the slice after the next
            multiply(at);
            if (slice + 1 < slices) store(at ^ 1);
            __syncthreads();
        }
    }
};

// Parameters of `gather` and `correlate`. Strides are in elements; axes are depth, height, width. "Read" is the array
// that windows lie in: data for the output and for the weight gradient, the output gradient for the data gradient.
// "Made" are the channels of a group that are computed, "summed" the contracted ones.
struct Convolution {
    int64 x_sample, x_channel, x_axis[3];
    int64 y_sample, y_channel, y_axis[3];
    int64 w_made, w_summed, w_tap, w_group;
    int64 row_tiles;
    int from[3], to[3];  // lengths of the axes: of x and of y
    int kernel[3], stride[3], dilate[3], pad[3];
    int samples, groups, made, summed;
    int column_tiles, phases, transposed, relu, wide, by_k;
    int positions, slice;
    uint32 divisor[3][2];  // for the axes of y
};

// One axis as seen by one block: window j begins at first + j * step of x, tap u of it lies u * tap further and is
// number first_tap + u * tap_step of the kernel; its result goes to out + j * out_step, j < count.
struct Axis {
    int first, step, tap, taps, first_tap, tap_step, out, out_step, count;

    __device__ __forceinline__ void set(const Convolution &g, int axis, int phase) {
        int stride = g.stride[axis], dilate = g.dilate[axis], pad = g.pad[axis], kernel = g.kernel[axis];
        if (!g.transposed) {
            first = -pad, step = stride, tap = dilate, taps = kernel, first_tap = 0, tap_step = 1, out = 0, out_step = 1;
            count = g.to[axis];
            return;
        }
        // Results at phase + j * stride: only every tap_step-th element of the kernel meets an element of x there.
        int from = phase + pad, second = kernel;
        first_tap = kernel;
        for (int t = kernel - 1; t >= 0; --t)
            if ((from - t * dilate) % stride == 0) second = first_tap, first_tap = t;
        tap_step = second < kernel ? second - first_tap : kernel;
        taps = first_tap < kernel ? (kernel - first_tap + tap_step - 1) / tap_step : 0;
        first = (from - first_tap * dilate) / stride, step = 1, tap = -(tap_step * dilate / stride);
        out = phase, out_step = stride, count = (g.to[axis] - phase + stride - 1) / stride;
        if (count < 0) count = 0;
    }
};

// Steps through the taps of a kernel and the channels: blocks of channels, taps in a block, channels of the block.
struct Taps {
    const Convolution &g;
    const Axis *axes;  // in shared memory: only a few threads need them
    int by, block, channel, start, z, y, x;

    __device__ __forceinline__ Taps(const Convolution &g, const Axis *axes, int by)
        : g(g), axes(axes), by(by), block(g.summed < by ? g.summed : by), channel(threadIdx.x), start(0), z(0), y(0), x(0) {
        if (count() > 0) carry();
    }

    __device__ __forceinline__ int count() const { return axes[0].taps * axes[1].taps * axes[2].taps * block; }

    __device__ __forceinline__ int slices() const {
        return count() == 0 ? 0 : (int)(((int64)((g.summed + block - 1) / block) * count() + by - 1) / by);
    }

    __device__ __forceinline__ void carry() {
        while (channel >= block) {
            channel -= block;
            if (++x < axes[2].taps) continue;
            x = 0;
            if (++y < axes[1].taps) continue;
            y = 0;
            if (++z < axes[0].taps) continue;
            z = 0, start += block;
        }
    }

    __device__ __forceinline__ void next(Step &step) {
        if (count() == 0) return;
        const Axis &az = axes[0], &ay = axes[1], &ax = axes[2];
        int c = start + channel;
        bool there = c < g.summed;
        step.z = there ? z * az.tap : MX_FAR, step.y = y * ay.tap, step.x = x * ax.tap;
        step.offset = c * g.x_channel + z * az.tap * g.x_axis[0] + y * ay.tap * g.x_axis[1] + x * ax.tap * g.x_axis[2];
        int number = ((az.first_tap + z * az.tap_step) * g.kernel[1] + ay.first_tap + y * ay.tap_step) * g.kernel[2] +
                     ax.first_tap + x * ax.tap_step;
        step.other = there ? c * g.w_summed + number * g.w_tap : -1;
        channel += by;
        carry();
    }
};

// y = x convolved with w, or transposed; plus bias, plus addend, rectified, if given. W: a Windowed.
template <typename T, typename C, typename W>
__device__ __forceinline__ void gathered(const Convolution &g, const T *x, const T *w, const T *bias, const T *addend, T *y) {
    __shared__ typename W::Stage stage;
    __shared__ Axis axes[3];
    constexpr int BM = W::BM, BN = W::BN, BK = W::BK, TM = W::TM, TN = W::TN;
    int64 rest = blockIdx.x;
    int first_column = (int)(rest % g.column_tiles) * BN;
    rest /= g.column_tiles;
    int64 first_row = rest % g.row_tiles * BM;
    rest /= g.row_tiles;
    int phase = (int)(rest % g.phases), group = (int)(rest / g.phases);
    if (threadIdx.x < 3) {
        int behind = threadIdx.x == 2 ? 1 : threadIdx.x == 1 ? g.stride[2] : g.stride[2] * g.stride[1];
        axes[threadIdx.x].set(g, threadIdx.x, phase / behind % g.stride[threadIdx.x]);
    }
    __syncthreads();
    const Axis &az = axes[0], &ay = axes[1], &ax = axes[2];
    int64 rows = (int64)g.samples * az.count * ay.count * ax.count;
    if (first_row >= rows) return;
    for (int i = threadIdx.x; i < BM; i += W::THREADS) {
        Place place = {0, -1, MX_FAR, 0, 0};
        int64 m = first_row + i;
        if (m < rows) {
            int jx = (int)(m % ax.count);
            m /= ax.count;
            int jy = (int)(m % ay.count);
            m /= ay.count;
            int jz = (int)(m % az.count);
            m /= az.count;
            place.z = az.first + jz * az.step, place.y = ay.first + jy * ay.step, place.x = ax.first + jx * ax.step;
            place.offset = m * g.x_sample + place.z * g.x_axis[0] + place.y * g.x_axis[1] + place.x * g.x_axis[2];
            place.out = m * g.y_sample + (az.out + jz * az.out_step) * g.y_axis[0] +
                        (ay.out + jy * ay.out_step) * g.y_axis[1] + (ax.out + jx * ax.out_step) * g.y_axis[2];
        }
        stage.places[i] = place;
    }
    W product(stage);
    product.x = x + (int64)group * g.summed * g.x_channel;
    product.w = w + (group * g.w_group + first_column * g.w_made);
    product.depth = g.from[0], product.height = g.from[1], product.width = g.from[2];
    product.columns = g.made - first_column, product.stride = g.w_made, product.by_k = g.by_k;
    Taps taps(g, axes, BK);
    product.run(taps.slices(), taps);
    int64 channel = (int64)group * g.made + first_column, shift = channel * g.y_channel;
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        int64 out = stage.places[W::row(i)].out;
        if (out < 0) continue;
        #pragma unroll
        for (int j = 0; j < TN; j += W::VN) {
            int n = W::column(j);
            if (n >= product.columns) continue;
            int64 at = out + shift + n * g.y_channel;
            Pack<T, W::VN> made, added;
            if (addend && g.wide) added = *(const Pack<T, W::VN> *)(addend + at);
            #pragma unroll
            for (int v = 0; v < W::VN; ++v) {
                if (n + v >= product.columns) break;
                C value = product.sum[i][j + v];
                if (bias) value += to<C>(bias[channel + n + v]);
                if (addend) value += to<C>(g.wide ? added.at[v] : addend[at + v * g.y_channel]);
                if (g.relu) value = value < C(0) ? C(0) : value;
                if (g.wide) made.at[v] = from<T>(value);
                else y[at + v * g.y_channel] = from<T>(value);
            }
            if (g.wide) *(Pack<T, W::VN> *)(y + at) = made;
        }
    }
}

// Steps through the positions of one slice of y.
struct Positions {
    const Convolution &g;
    int at, stop, by;

    __device__ __forceinline__ Positions(const Convolution &g, int first, int stop, int by)
        : g(g), at(first + (int)threadIdx.x), stop(stop), by(by) {}

    __device__ __forceinline__ void next(Step &step) {
        step.z = MX_FAR, step.y = step.x = 0, step.offset = 0, step.other = -1;
        if (at >= stop) return;
        uint32 rest = (uint32)at, left = divided(rest, g.divisor[2][0], g.divisor[2][1]);
        int x = (int)(rest - left * g.to[2]);
        rest = left, left = divided(rest, g.divisor[1][0], g.divisor[1][1]);
        int y = (int)(rest - left * g.to[1]);
        rest = left, left = divided(rest, g.divisor[0][0], g.divisor[0][1]);
        int z = (int)(rest - left * g.to[0]);
        step.other = left * g.y_sample + z * g.y_axis[0] + y * g.y_axis[1] + x * g.y_axis[2];
        step.z = z * g.stride[0] - g.pad[0], step.y = y * g.stride[1] - g.pad[1], step.x = x * g.stride[2] - g.pad[2];
        step.offset = left * g.x_sample + step.z * g.x_axis[0] + step.y * g.x_axis[1] + step.x * g.x_axis[2];
        at = at < stop - by ? at + by : stop;
    }
};

// sums[slice, f, c, tap] = the partial weight gradient of a slice of positions; `summed` are the channels of x in a
// group, `made` those of y.
template <typename T, typename C, typename W>
__device__ __forceinline__ void correlated(const Convolution &g, const T *x, const T *y, C *sums) {
    __shared__ typename W::Stage stage;
    constexpr int BM = W::BM, BN = W::BN, BK = W::BK, TM = W::TM, TN = W::TN;
    int64 rest = blockIdx.x;
    int first_column = (int)(rest % g.column_tiles) * BN;
    rest /= g.column_tiles;
    int64 first_row = rest % g.row_tiles * BM;
    rest /= g.row_tiles;
    int group = (int)(rest % g.groups), slice = (int)(rest / g.groups);
    int taps = g.kernel[0] * g.kernel[1] * g.kernel[2];
    int64 of_filter = (int64)g.summed * taps;
    for (int i = threadIdx.x; i < BM; i += W::THREADS) {
        Place place = {0, -1, MX_FAR, 0, 0};
        int64 m = first_row + i;
        if (m < of_filter) {
            int c = (int)(m % g.summed), tap = (int)(m / g.summed);
            place.z = tap / g.kernel[2] / g.kernel[1] * g.dilate[0];
            place.y = tap / g.kernel[2] % g.kernel[1] * g.dilate[1];
            place.x = tap % g.kernel[2] * g.dilate[2];
            place.offset = c * g.x_channel + place.z * g.x_axis[0] + place.y * g.x_axis[1] + place.x * g.x_axis[2];
            place.out = (int64)c * taps + tap;
        }
        stage.places[i] = place;
    }
    W product(stage);
    product.x = x + (int64)group * g.summed * g.x_channel;
    product.w = y + ((int64)group * g.made + first_column) * g.y_channel;
    product.depth = g.from[0], product.height = g.from[1], product.width = g.from[2];
    product.columns = g.made - first_column, product.stride = g.y_channel, product.by_k = g.by_k;
    int64 begin = (int64)slice * g.slice, end = begin + g.slice;
    if (end > g.positions) end = g.positions;
    Positions positions(g, (int)begin, (int)end, BK);
    product.run((int)((end - begin + BK - 1) / BK), positions);
    C *target = sums + (((int64)slice * g.groups + group) * g.made + first_column) * of_filter;
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        int64 out = stage.places[W::row(i)].out;
        if (out < 0) continue;
        #pragma unroll
        for (int j = 0; j < TN; ++j)
            if (W::column(j) < product.columns) target[W::column(j) * of_filter + out] = product.sum[i][j];
    }
}

// out[i] = sum of parts[slice, i], in order of slices.
template <typename T, typename C> __device__ __forceinline__ void added_up(const C *parts, T *out, int64 size, int slices) {
    MX_EACH(i, size) {
        C total = C(0);
        for (int slice = 0; slice < slices; ++slice) total += parts[slice * size + i];
        out[i] = from<T>(total);
    }
}

// parts[slice, channel] = sum of y over a slice of its positions: `lanes` neighbouring threads take channels, the
// others positions.
template <typename T, typename C>
__device__ __forceinline__ void channel_sums(
    const T *y, C *parts, int64 sample, int64 channel, int64 position, int channels, int64 positions, int64 slice, int lanes,
    uint32 plane, uint32 plane_m, uint32 plane_s) {
    __shared__ C sums[256];
    int c = (int)blockIdx.x * lanes + (int)threadIdx.x % lanes, threads = blockDim.x / lanes;
    int64 begin = (int64)blockIdx.y * slice, end = begin + slice < positions ? begin + slice : positions;
    C total = C(0);
    if (c < channels)
        for (int64 p = begin + threadIdx.x / lanes; p < end; p += threads) {
            uint32 n = divided((uint32)p, plane_m, plane_s);
            total += to<C>(y[n * sample + (p - (int64)n * plane) * position + c * channel]);
        }
    sums[threadIdx.x] = total;
    for (int half = threads / 2; half > 0; half /= 2) {
        __syncthreads();
        if ((int)threadIdx.x < half * lanes) sums[threadIdx.x] += sums[threadIdx.x + half * lanes];
    }
    if (threadIdx.x < lanes && c < channels) parts[(int64)blockIdx.y * channels + c] = sums[threadIdx.x];
}
