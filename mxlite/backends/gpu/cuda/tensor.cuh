// Warp-level operations with tensor cores: products of 16 x 8 results, loads of matrices from shared memory into the
// registers' layout, and asynchronous copies into shared memory.
//
// Source: NVIDIA, "Parallel Thread Execution ISA", 8.x, sections on mma, ldmatrix and cp.async. Lane l holds of a
// product (rows l / 4 and l / 4 + 8) x (columns l % 4 * 2 and the next). A register of an operand has 4 bytes: two
// neighbours along k, or one float. The same text runs on the CPU, lane by lane, with copies executed as late as
// their wait allows.
#pragma once

#ifndef CUDA_ON_CPU
__device__ __forceinline__ uint32 shared_address(const void *at) {
    uint64 address;
    asm("cvta.to.shared.u64 %0, %1;" : "=l"(address) : "l"(at));
    return (uint32)address;
}

// Copies 16 bytes, aligned on both sides; zeros if not `there`.
__device__ __forceinline__ void copy_async(void *to, const void *from, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(there ? 16 : 0)
                 : "memory");
}

__device__ __forceinline__ void wait_for_copies() {
    asm volatile("cp.async.wait_all;" ::: "memory");
}

// Loads four matrices of 8 rows of 16 bytes: lane l gives the address of row l % 8 of matrix l / 8. It gets 4 bytes of
// row l / 4 of each; TURNED, for numbers of two bytes, those of column l / 4 in rows l % 4 * 2 and the next.
template <bool TURNED> __device__ __forceinline__ void load_matrices(uint32 (&to)[4], const void *row) {
    if (TURNED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                     : "r"(shared_address(row)));
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                     : "r"(shared_address(row)));
}

// A float's bits in TF32: 10 bits of fraction, rounded to nearest.
__device__ __forceinline__ uint32 to_tf32(uint32 bits) {
    uint32 made;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(made) : "f"(__uint_as_float(bits)));
    return made;
}

#define MX_MMA(NAME)                                                                                       \
    asm volatile(NAME " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                   \
                 : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3)                                                  \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))

// c += a @ b over 32 bytes of k: a (16, k) as matrices (rows 0, k 0), (8, 0), (0, half), (8, half), b likewise.
template <typename T>
__device__ __forceinline__ void tensor_product(
    float &c0, float &c1, float &c2, float &c3, const uint32 (&a)[4], uint32 b0, uint32 b1);
template <>
__device__ __forceinline__ void tensor_product<bfloat16>(
    float &c0, float &c1, float &c2, float &c3, const uint32 (&a)[4], uint32 b0, uint32 b1) {
    MX_MMA("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32");
}
template <>
__device__ __forceinline__ void tensor_product<float16>(
    float &c0, float &c1, float &c2, float &c3, const uint32 (&a)[4], uint32 b0, uint32 b1) {
    MX_MMA("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32");
}
template <>
__device__ __forceinline__ void tensor_product<float>(
    float &c0, float &c1, float &c2, float &c3, const uint32 (&a)[4], uint32 b0, uint32 b1) {
    MX_MMA("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32");
}
#else
// Number k of row `row` of a, or of column `column` of b, held by the lanes of a warp.
template <typename T> UNWATCHED float of_a(int first, int row, int k) {
    const int each = 4 / sizeof(T), half = 4 * each;
    uint32 bits = emulated::lanes[first + row % 8 * 4 + k % half / each].a[k / half * 2 + row / 8];
    T number;
    memcpy(&number, (unsigned char *)&bits + k % each * sizeof(T), sizeof(T));
    return to<float>(number);
}
template <typename T> UNWATCHED float of_b(int first, int column, int k) {
    const int each = 4 / sizeof(T), half = 4 * each;
    uint32 bits = emulated::lanes[first + column * 4 + k % half / each].b[k / half];
    T number;
    memcpy(&number, (unsigned char *)&bits + k % each * sizeof(T), sizeof(T));
    return to<float>(number);
}

inline void copy_async(void *to, const void *from, bool there) {
    emulated::aligned(to), emulated::aligned(from);
    emulated::Copies &mine = emulated::copies[threadIdx.x];
    mine.all[mine.count++] = {to, from, there};
}

inline void wait_for_copies() {
    emulated::Copies &mine = emulated::copies[threadIdx.x];
    for (int i = 0; i < mine.count; ++i)
        if (mine.all[i].there) memcpy(mine.all[i].to, mine.all[i].from, 16);
        else memset(mine.all[i].to, 0, 16);
    mine.count = 0;
}

template <bool TURNED> UNWATCHED void load_matrices(uint32 (&to)[4], const void *row) {
    int lane = threadIdx.x % 32, first = (int)threadIdx.x - lane;
    emulated::aligned(row);
    emulated::look((uintptr_t)row, 16, "reads");
    emulated::lanes[threadIdx.x].row = (const unsigned char *)row;
    __syncwarp();
    for (int m = 0; m < 4; ++m) {
        const emulated::Lane *rows = emulated::lanes + first + m * 8;
        unsigned short halves[2];
        for (int h = 0; h < 2; ++h)
            memcpy(halves + h, TURNED ? rows[lane % 4 * 2 + h].row + lane / 4 * 2 : rows[lane / 4].row + (lane % 4 * 2 + h) * 2, 2);
        to[m] = (uint32)halves[1] << 16 | halves[0];
    }
    __syncwarp();
}

inline uint32 to_tf32(uint32 bits) { return (bits & 0x7f800000) == 0x7f800000 ? bits : (bits + 0x1000) & ~0x1fffu; }

template <typename T>
UNWATCHED void tensor_product(float &c0, float &c1, float &c2, float &c3, const uint32 (&a)[4], uint32 b0, uint32 b1) {
    int lane = threadIdx.x % 32, first = (int)threadIdx.x - lane;
    emulated::Lane &mine = emulated::lanes[threadIdx.x];
    memcpy(mine.a, a, sizeof(a));
    mine.b[0] = b0, mine.b[1] = b1;
    __syncwarp();
    float *sums[4] = {&c0, &c1, &c2, &c3};
    for (int i = 0; i < 4; ++i)
        for (int k = 0; k < 32 / (int)sizeof(T); ++k)
            *sums[i] += of_a<T>(first, lane / 4 + i / 2 * 8, k) * of_b<T>(first, lane % 4 * 2 + i % 2, k);
    __syncwarp();
}
#endif
