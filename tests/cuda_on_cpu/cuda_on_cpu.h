// Runs CUDA kernels on the CPU, a thread after the other, so that their numbers can be tested where no GPU is.
//
// Every thread of a block has a stack of its own, and the switch from one to the next is a few instructions on x86-64
// (elsewhere ucontext, whose switch is two calls of the system). A thread runs until it ends or waits at a barrier, of
// the block or of its warp; when all that are left wait, they go on. A barrier that not all of them reach is
// reported as an error: on a GPU it would hang or be undefined. Shared memory is a static variable: one block runs
// at a time. Between blocks it is filled with garbage, as nobody may rely on it.
#pragma once
#define CUDA_ON_CPU 1

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#ifndef __x86_64__
#include <ucontext.h>
#endif
#include <utility>
#include <vector>

using std::signbit;

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __restrict__ __restrict
#define __shared__ static
#define __constant__ static
#define __grid_constant__
#define __launch_bounds__(...)

struct dim3 { unsigned x = 1, y = 1, z = 1; };
struct uint3 { unsigned x, y, z; };

static dim3 gridDim, blockDim;
static uint3 blockIdx, threadIdx;
static const int warpSize = 32;

namespace emulated {

#ifdef __x86_64__
typedef void *Context;  // the stack of a thread that waits; the registers that a call keeps lie on it

__attribute__((naked, noinline)) static void switch_to(Context *, Context) {
    asm("pushq %rbp\n\tpushq %rbx\n\tpushq %r12\n\tpushq %r13\n\tpushq %r14\n\tpushq %r15\n\t"
        "movq %rsp, (%rdi)\n\tmovq %rsi, %rsp\n\t"
        "popq %r15\n\tpopq %r14\n\tpopq %r13\n\tpopq %r12\n\tpopq %rbx\n\tpopq %rbp\n\tret");
}

static void change(Context &from, Context &to) { switch_to(&from, to); }

static void begin(Context &context, unsigned char *stack, size_t size, void (*enter)()) {
    uint64_t *top = (uint64_t *)((uintptr_t)(stack + size) & ~(uintptr_t)15);
    *--top = 0;  // where `enter` would return to, which it never does
    *--top = (uint64_t)enter;
    for (int i = 0; i < 6; ++i) *--top = 0;
    context = top;
}
#else
typedef ucontext_t Context;

static void change(Context &from, Context &to) { swapcontext(&from, &to); }

static void begin(Context &context, unsigned char *stack, size_t size, void (*enter)()) {
    getcontext(&context);
    context.uc_stack.ss_sp = stack;
    context.uc_stack.ss_size = size;
    context.uc_link = nullptr;
    makecontext(&context, enter, 0);
}
#endif

enum State { RUNS, WAITS_FOR_WARP, WAITS_FOR_BLOCK, ENDED };

struct Thread {
    Context context;
    State state;
    uint3 index;
    unsigned char slot[16];  // what it hands to the others of its warp
};

static std::vector<Thread> threads;
static std::vector<unsigned char> stacks;
static Context scheduler;
static int current;
static const char *failure;
static void (*body)(void *);
static void *body_arguments;
static const size_t STACK = 64 * 1024;

static void enter() {
    body(body_arguments);
    threads[current].state = ENDED;
    change(threads[current].context, scheduler);
}

static void wait(State state) {
    threads[current].state = state;
    change(threads[current].context, scheduler);
}

static void run_block(int count) {
    for (int t = 0; t < count; ++t) {
        Thread &thread = threads[t];
        begin(thread.context, &stacks[t * STACK], STACK, enter);
        thread.state = RUNS;
        thread.index = {t % blockDim.x, t / blockDim.x % blockDim.y, t / blockDim.x / blockDim.y};
    }
    for (;;) {
        for (int t = 0; t < count; ++t)
            if (threads[t].state == RUNS) {
                current = t;
                threadIdx = threads[t].index;
                change(scheduler, threads[t].context);
            }
        bool moved = false, left = false, all = true;
        for (int w = 0; w < count; w += warpSize) {
            bool whole = true, any = false;
            for (int t = w; t < count && t < w + warpSize; ++t) {
                if (threads[t].state == ENDED) continue;
                any = left = true;
                whole = whole && threads[t].state == WAITS_FOR_WARP;
                all = all && threads[t].state == WAITS_FOR_BLOCK;
            }
            if (any && whole)
                for (int t = w; t < count && t < w + warpSize; ++t)
                    if (threads[t].state == WAITS_FOR_WARP) { threads[t].state = RUNS; moved = true; }
        }
        if (!left) return;
        if (all) {
            for (int t = 0; t < count; ++t)
                if (threads[t].state == WAITS_FOR_BLOCK) threads[t].state = RUNS;
        } else if (!moved) {
            failure = "threads of one block wait at different barriers";
            return;
        }
    }
}

template <typename T> T exchanged(T value, int partner) {
    int first = current / warpSize * warpSize, count = (int)threads.size();
    memcpy(threads[current].slot, &value, sizeof(T));
    wait(WAITS_FOR_WARP);
    T result = value;
    int from = first + partner;
    if (partner >= 0 && partner < warpSize && from < count) memcpy(&result, threads[from].slot, sizeof(T));
    wait(WAITS_FOR_WARP);
    return result;
}

template <typename... A, size_t... I>
void call(void (*kernel)(A...), void **parameters, std::index_sequence<I...>) {
    kernel(*(A *)parameters[I]...);
}

template <typename... A> struct Launch {
    void (*kernel)(A...);
    void **parameters;
    static void run(void *self) {
        auto *launch = (Launch *)self;
        call(launch->kernel, launch->parameters, std::index_sequence_for<A...>());
    }
};

// The parameters are those of cuLaunchKernel: an address for each argument. `barriers` says whether threads wait.
template <typename... A>
const char *launch(void (*kernel)(A...), const unsigned *grid, const unsigned *block, bool barriers, void **parameters) {
    Launch<A...> made{kernel, parameters};
    gridDim = {grid[0], grid[1], grid[2]};
    blockDim = {block[0], block[1], block[2]};
    int count = block[0] * block[1] * block[2];
    failure = nullptr;
    if (count > 1024) return "more than 1024 threads in a block";
    if (barriers) {
        threads.assign(count, Thread());
        stacks.resize(count * STACK);
        body = Launch<A...>::run;
        body_arguments = &made;
    }
    for (unsigned z = 0; z < grid[2]; ++z)
        for (unsigned y = 0; y < grid[1]; ++y)
            for (unsigned x = 0; x < grid[0] && !failure; ++x) {
                blockIdx = {x, y, z};
                if (barriers) run_block(count);
                else
                    for (int t = 0; t < count; ++t) {
                        threadIdx = {t % blockDim.x, t / blockDim.x % blockDim.y, t / blockDim.x / blockDim.y};
                        Launch<A...>::run(&made);
                    }
            }
    return failure;
}

}  // namespace emulated

static inline void __syncthreads() { emulated::wait(emulated::WAITS_FOR_BLOCK); }
static inline void __syncwarp(unsigned = 0xffffffffu) { emulated::wait(emulated::WAITS_FOR_WARP); }
template <typename T> T __shfl_xor_sync(unsigned, T value, int mask, int = 32) {
    return emulated::exchanged(value, emulated::current % warpSize ^ mask);
}
template <typename T> T __shfl_down_sync(unsigned, T value, unsigned by, int = 32) {
    return emulated::exchanged(value, emulated::current % warpSize + (int)by);
}
template <typename T> T __shfl_sync(unsigned, T value, int lane, int = 32) {
    return emulated::exchanged(value, lane % warpSize);
}
template <typename T> unsigned __match_any_sync(unsigned, T value) {
    int first = emulated::current / warpSize * warpSize, count = (int)emulated::threads.size();
    memcpy(emulated::threads[emulated::current].slot, &value, sizeof(T));
    emulated::wait(emulated::WAITS_FOR_WARP);
    unsigned same = 0;
    for (int t = first; t < count && t < first + warpSize; ++t)
        if (!memcmp(emulated::threads[t].slot, &value, sizeof(T))) same |= 1u << (t - first);
    emulated::wait(emulated::WAITS_FOR_WARP);
    return same;
}
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
template <typename T> T atomicMin(T *address, T value) { T old = *address; *address = value < old ? value : old; return old; }
template <typename T> T atomicAdd(T *address, T value) { T old = *address; *address = old + value; return old; }
template <typename T> T atomicMax(T *address, T value) { T old = *address; if (value > old) *address = value; return old; }
static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
static inline float rsqrtf(float x) { return 1 / sqrtf(x); }
static inline double rsqrt(double x) { return 1 / sqrt(x); }
static inline void __threadfence() {}
