// Windows times columns on tensor cores: the counterpart of Windowed of convolution.cuh for arrays that are read in
// packs of 16 bytes.
//
// A slice of the sum is 64 bytes of k. ALONG_K: windows and columns are stored row by row as they are read, k along
// a row; else k is the row, as in a weight gradient, and matrices are transposed on their way to registers. Rows
// are padded so that 8 of them begin in different banks. While one slice is multiplied the next is being copied.
// Eight warps have WM x WN results each.
#pragma once

template <typename T, int BM_, int BN_, int WM, int WN, bool ALONG_K> struct TensorWindowed {
    static const int BM = BM_, BN = BN_, BK = 64 / sizeof(T), PACK = 16 / sizeof(T), THREADS = 256;
    static const int TM = WM / 8, TN = WN / 4, VN = 2;
    static_assert(BM * 4 % THREADS == 0 && BN * 4 % THREADS == 0, "every thread copies as much");
    static_assert(BM / WM * (BN / WN) * 32 == THREADS && WM % 16 == 0 && WN % 16 == 0, "eight warps, whole matrices");
    static const int GAP = sizeof(T) == 4 ? 32 : 16;  // floats are read one by one if k is the row
    static const int PITCH_A = ALONG_K ? 80 : BM * sizeof(T) + GAP, PITCH_B = ALONG_K ? 80 : BN * sizeof(T) + GAP;

    struct Stage {
        alignas(16) unsigned char a[2][(ALONG_K ? BM : BK) * PITCH_A];
        alignas(16) unsigned char b[2][(ALONG_K ? BN : BK) * PITCH_B];
        Place places[BM];
        Step steps[2][BK];
    };

    Stage &s;
    const T *x, *w;
    int depth, height, width;  // of x
    int columns;
    int64 stride;
    bool by_k;
    float sum[TM][TN];

    __device__ __forceinline__ TensorWindowed(Stage &stage) : s(stage) {}

    __device__ __forceinline__ static int lane() { return threadIdx.x % 32; }
    __device__ __forceinline__ static int first_row() { return (int)threadIdx.x / 32 / (BN / WN) * WM; }
    __device__ __forceinline__ static int first_column() { return (int)threadIdx.x / 32 % (BN / WN) * WN; }
    __device__ __forceinline__ static int row(int i) { return first_row() + i / 2 * 16 + i % 2 * 8 + lane() / 4; }
    __device__ __forceinline__ static int column(int j) { return first_column() + j / 2 * 8 + lane() % 4 * 2 + j % 2; }

    __device__ __forceinline__ void read(int at) {
        // Counted and without branches, so that all loads are issued before the first wait.
        #pragma unroll
        for (int round = 0; round < BM * 4 / THREADS; ++round) {
            int e = threadIdx.x + round * THREADS;
            int line = ALONG_K ? e / 4 : e / (BM / PACK), pack = ALONG_K ? e % 4 : e % (BM / PACK);
            const Step &step = s.steps[at][ALONG_K ? pack * PACK : line];
            const Place &place = s.places[ALONG_K ? line : pack * PACK];
            bool inside = ((unsigned)(place.z + step.z) < (unsigned)depth) & ((unsigned)(place.y + step.y) < (unsigned)height) &
                          ((unsigned)(place.x + step.x) < (unsigned)width);
            copy_async(s.a[at] + line * PITCH_A + pack * 16, inside ? x + (place.offset + step.offset) : x, inside);
        }
        #pragma unroll
        for (int round = 0; round < BN * 4 / THREADS; ++round) {
            int e = threadIdx.x + round * THREADS;
            int line = ALONG_K ? e / 4 : e / (BN / PACK), pack = ALONG_K ? e % 4 : e % (BN / PACK);
            int64 other = s.steps[at][ALONG_K ? pack * PACK : line].other;
            int n = ALONG_K ? line : pack * PACK;
            bool inside = (other >= 0) & (n < columns);
            copy_async(s.b[at] + line * PITCH_B + pack * 16, inside ? w + (other + n * stride) : w, inside);
        }
    }

    // For 16 rows from `line` on, 32 bytes of k from `k` on: of the windows, or of two times 8 columns.
    __device__ __forceinline__ static void matrices(uint32 (&to)[4], const unsigned char *from, int pitch, int line, int k, bool of_b) {
        int l = lane(), low = l % 8, second = l / 8 % 2, third = l / 16;
        int half = of_b ? second : third, other = of_b ? third : second;
        if (ALONG_K) {
            load_matrices<false>(to, from + (line + other * 8 + low) * pitch + k * 32 + half * 16);
        } else if (sizeof(T) == 2) {
            load_matrices<true>(to, from + (k * 16 + half * 8 + low) * pitch + (line + other * 8) * 2);
        } else {
            #pragma unroll
            for (int m = 0; m < 4; ++m) {
                int behind = of_b ? m % 2 : m / 2, side = of_b ? m / 2 : m % 2;
                to[m] = *(const uint32 *)(from + (k * 8 + behind * 4 + l % 4) * pitch + (line + side * 8 + l / 4) * 4);
            }
        }
        if (sizeof(T) == 4) {
            #pragma unroll
            for (int m = 0; m < 4; ++m) to[m] = to_tf32(to[m]);
        }
    }

    __device__ __forceinline__ void multiply(int at) {
        #pragma unroll
        for (int k = 0; k < 2; ++k) {
            uint32 a[WM / 16][4];
            #pragma unroll
            for (int i = 0; i < WM / 16; ++i) matrices(a[i], s.a[at], PITCH_A, first_row() + i * 16, k, false);
            #pragma unroll
            for (int j = 0; j < WN / 16; ++j) {
                uint32 b[4];
                matrices(b, s.b[at], PITCH_B, first_column() + j * 16, k, true);
                #pragma unroll
                for (int half = 0; half < 2; ++half)
                    #pragma unroll
                    for (int i = 0; i < WM / 16; ++i)
                        tensor_product<T>(
                            sum[i * 2][j * 4 + half * 2], sum[i * 2][j * 4 + half * 2 + 1], sum[i * 2 + 1][j * 4 + half * 2],
                            sum[i * 2 + 1][j * 4 + half * 2 + 1], a[i], b[half * 2], b[half * 2 + 1]);
            }
        }
    }

    // As Windowed::run.
    template <typename Steps> __device__ __forceinline__ void run(int slices, Steps &steps) {
        #pragma unroll
        for (int i = 0; i < TM; ++i)
            #pragma unroll
            for (int j = 0; j < TN; ++j) sum[i][j] = 0;
        if (threadIdx.x < BK) {
            steps.next(s.steps[0][threadIdx.x]);
            steps.next(s.steps[1][threadIdx.x]);
        }
        __syncthreads();
        if (slices == 0) return;
        read(0);
        for (int slice = 0; slice < slices; ++slice) {
            int at = slice & 1;
            wait_for_copies();
            __syncthreads();  // this slice has arrived, and all threads are done with the one before
            if (slice + 1 < slices) read(at ^ 1);
            if (threadIdx.x < BK) steps.next(s.steps[at][threadIdx.x]);  // for the slice after the next
            multiply(at);
        }
    }
};

// to[group, made, tap, summed] = the weight, stored as [group, made, summed, tap], or as [group, summed, made, tap] if
// the convolution is transposed: then packs lie along the contracted channels.
template <typename T>
__device__ __forceinline__ void packed(const T *w, T *to, uint32 made, uint32 summed, uint32 taps, int transposed, int64 size) {
    MX_EACH(i, size) {
        int64 rest = i / summed;
        uint32 c = (uint32)(i - rest * summed);
        int64 next = rest / taps;
        uint32 tap = (uint32)(rest - next * taps);
        int64 group = next / made, m = next - group * made;
        to[i] = w[(transposed ? (group * summed + c) * made + m : next * summed + c) * taps + tap];
    }
}
