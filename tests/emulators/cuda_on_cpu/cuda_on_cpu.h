// Runs CUDA kernels on the CPU, a thread after the other, so that their numbers can be tested where no GPU is.
//
// Every thread of a block has a stack of its own, and the switch from one to the next is a few instructions on x86-64
// (elsewhere ucontext, whose switch is two calls of the system). A thread runs until it ends or waits at a barrier, of
// the block or of its warp; when all that are left wait, they go on. A barrier that not all of them reach is
// reported as an error: on a GPU it would hang or be undefined. From barrier to barrier the first thread begins and the
// last one by turns, so that what one has written is surely seen only behind a barrier. Threads that meet must have
// come by the same call: on a GPU a shuffle in one branch does not meet one in the other. Shared memory is a static
// variable: one block runs at a time. Between blocks it is filled with garbage, as nobody may rely on it. Where the
// kernels may reach is watched, see bounds.h.
#pragma once
#define CUDA_ON_CPU 1

#include <cmath>
#include <csetjmp>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#ifndef __x86_64__
#include <ucontext.h>
#endif
#include <utility>

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

#include "bounds.h"

namespace emulated {

#ifdef __x86_64__
typedef void *Context;  // the stack of a thread that waits; the registers that a call keeps lie on it

__attribute__((naked, noinline)) static void switch_to(Context *, Context) {
    asm("pushq %rbp\n\tpushq %rbx\n\tpushq %r12\n\tpushq %r13\n\tpushq %r14\n\tpushq %r15\n\t"
        "movq %rsp, (%rdi)\n\tmovq %rsi, %rsp\n\t"
        "popq %r15\n\tpopq %r14\n\tpopq %r13\n\tpopq %r12\n\tpopq %rbx\n\tpopq %rbp\n\tret");
}

UNWATCHED static void change(Context &from, Context &to) { switch_to(&from, to); }

UNWATCHED static void begin(Context &context, unsigned char *stack, size_t size, void (*enter)()) {
    uint64_t *top = (uint64_t *)((uintptr_t)(stack + size) & ~(uintptr_t)15);
    *--top = 0;  // where `enter` would return to, which it never does
    *--top = (uint64_t)enter;
    for (int i = 0; i < 6; ++i) *--top = 0;
    context = top;
}
#else
typedef ucontext_t Context;

UNWATCHED static void change(Context &from, Context &to) { swapcontext(&from, &to); }

UNWATCHED static void begin(Context &context, unsigned char *stack, size_t size, void (*enter)()) {
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
    void (*place)();  // the call in which it waits
    unsigned char slot[16];  // what it hands to the others of its warp
};

static Thread threads[1024];  // of which there are `thread_count` in a block
static int thread_count;
static unsigned char *stacks;
static size_t stacks_size;
static Context scheduler;
static int current;
static void (*body)(void *);
static void *body_arguments;
static const size_t STACK = 256 * 1024;

struct Copy { void *to; const void *from; bool there; };
struct Copies { Copy all[64]; int count; };
static Copies copies[1024];  // that each thread has asked for, see tensor.cuh
struct Lane { const unsigned char *row; uint32_t a[4], b[2]; };
static Lane lanes[1024];  // what each hands to its warp there

UNWATCHED static void aligned(const void *at) {
    if ((uintptr_t)at % 16) refuse((uintptr_t)at, "wants a multiple of 16 bytes");
}
static jmp_buf launched;  // where a thread without a stack of its own began

UNWATCHED static void enter() {
    body(body_arguments);
    threads[current].state = ENDED;
    change(threads[current].context, scheduler);
}

UNWATCHED static void leave_block() {
    threads[current].state = ENDED;
    change(threads[current].context, scheduler);
}

UNWATCHED static void leave_launch() { longjmp(launched, 1); }

UNWATCHED static void wait(State state, void (*place)()) {
    threads[current].state = state;
    threads[current].place = place;
    change(threads[current].context, scheduler);
}

// One for each call in the text, which has a lambda of its own: also where a macro has put it there several times.
template <typename Call> UNWATCHED void place_of() {}

// Let the threads [first, end) go on that wait so, if they wait in the same call.
UNWATCHED static bool let_go(int first, int end, State state) {
    void (*place)() = nullptr;
    bool moved = false;
    for (int t = first; t < end; ++t) {
        if (threads[t].state != state) continue;
        if (place && place != threads[t].place) {
            failure = state == WAITS_FOR_WARP ? "threads of one warp meet in different calls"
                                              : "threads of one block wait at different barriers";
            return false;
        }
        place = threads[t].place;
        threads[t].state = RUNS;
        moved = true;
    }
    return moved;
}

UNWATCHED static void run_block(int count) {
    for (int t = 0; t < count; ++t) {
        Thread &thread = threads[t];
        begin(thread.context, &stacks[t * STACK], STACK, enter);
        thread.state = RUNS;
        thread.index = {t % blockDim.x, t / blockDim.x % blockDim.y, t / blockDim.x / blockDim.y};
    }
    for (unsigned phase = blockIdx.x + blockIdx.y + blockIdx.z;; ++phase) {
        for (int i = 0; i < count; ++i) {
            int t = phase % 2 ? count - 1 - i : i;
            if (threads[t].state == RUNS) {
                current = t;
                threadIdx = threads[t].index;
                change(scheduler, threads[t].context);
                if (failure) return;
            }
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
            if (any && whole) moved = let_go(w, count < w + warpSize ? count : w + warpSize, WAITS_FOR_WARP) || moved;
            if (failure) return;
        }
        if (!left) return;
        if (all) moved = let_go(0, count, WAITS_FOR_BLOCK);
        if (!moved && !failure) failure = "threads of one block wait at different barriers";
        if (failure) return;
    }
}

// What a lane that is not there, or has ended, would hand over is undefined: nan, or -1.
template <typename T> UNWATCHED T exchanged(T value, int partner, void (*place)()) {
    int first = current / warpSize * warpSize;
    memcpy(threads[current].slot, &value, sizeof(T));
    wait(WAITS_FOR_WARP, place);
    T result = value;
    int from = first + partner;
    if (partner >= 0 && partner < warpSize) {
        if (from < thread_count && threads[from].state != ENDED) memcpy(&result, threads[from].slot, sizeof(T));
        else memset((void *)&result, 0xFF, sizeof(T));
    }
    wait(WAITS_FOR_WARP, place);
    return result;
}

template <typename T> UNWATCHED unsigned alike(T value, void (*place)()) {
    int first = current / warpSize * warpSize;
    memcpy(threads[current].slot, &value, sizeof(T));
    wait(WAITS_FOR_WARP, place);
    unsigned same = 0;
    for (int t = first; t < thread_count && t < first + warpSize; ++t)
        if (threads[t].state != ENDED && !memcmp(threads[t].slot, &value, sizeof(T))) same |= 1u << (t - first);
    wait(WAITS_FOR_WARP, place);
    return same;
}

template <typename Call> UNWATCHED void meet(State state, Call) { wait(state, place_of<Call>); }
template <typename Call, typename T> UNWATCHED T shuffled_xor(Call, unsigned, T value, int mask) {
    return exchanged(value, current % warpSize ^ mask, place_of<Call>);
}
template <typename Call, typename T> UNWATCHED T shuffled_down(Call, unsigned, T value, unsigned by) {
    return exchanged(value, current % warpSize + (int)by, place_of<Call>);
}
template <typename Call, typename T> UNWATCHED T shuffled(Call, unsigned, T value, int lane) {
    return exchanged(value, lane % warpSize, place_of<Call>);
}
template <typename Call, typename T> UNWATCHED unsigned matched(Call, unsigned, T value) { return alike(value, place_of<Call>); }

// Nobody may rely on what a block before has left there: nan, or -1.
UNWATCHED static void spoil_shared() {
    for (size_t i = 0; i < variable_count; ++i)
        if (variables[i].is_shared()) memset((void *)variables[i].begin, 0xFF, variables[i].size);
}

template <typename... A, size_t... I>
UNWATCHED void call(void (*kernel)(A...), void **parameters, std::index_sequence<I...>) {
    kernel(*(A *)parameters[I]...);
}

template <typename... A> struct Launch {
    void (*kernel)(A...);
    void **parameters;
    UNWATCHED static void run(void *self) {
        auto *launch = (Launch *)self;
        call(launch->kernel, launch->parameters, std::index_sequence_for<A...>());
    }
};

// The parameters are those of cuLaunchKernel: an address for each argument. `barriers` says whether threads wait.
template <typename... A>
UNWATCHED const char *launch(void (*kernel)(A...), const unsigned *grid, const unsigned *block, bool barriers, void **parameters) {
    Launch<A...> made{kernel, parameters};
    gridDim = {grid[0], grid[1], grid[2]};
    blockDim = {block[0], block[1], block[2]};
    int count = block[0] * block[1] * block[2];
    failure = nullptr;
    thread_count = count;
    if (count > 1024) return "more than 1024 threads in a block";
    found = shared = {0, 0};
    if (barriers) {
        if (stacks_size < count * STACK) {
            stacks_size = count * STACK;
            free(stacks);
            stacks = (unsigned char *)malloc(stacks_size);
        }
        body = Launch<A...>::run;
        body_arguments = &made;
        stack = {(uintptr_t)stacks, (uintptr_t)stacks + stacks_size};
        leave = leave_block;
    } else {
        uintptr_t here = (uintptr_t)__builtin_frame_address(0);
        stack = {here - STACK, here + 1024};
        leave = leave_launch;
        if (setjmp(launched)) return failure;
    }
    for (unsigned z = 0; z < grid[2]; ++z)
        for (unsigned y = 0; y < grid[1]; ++y)
            for (unsigned x = 0; x < grid[0] && !failure; ++x) {
                blockIdx = {x, y, z};
                spoil_shared();
                if (barriers) run_block(count);
                else
                    for (int t = 0; t < count; ++t) {
                        threadIdx = {t % blockDim.x, t / blockDim.x % blockDim.y, t / blockDim.x / blockDim.y};
                        Launch<A...>::run(&made);
                    }
            }
    if (failure)
        for (Copies &c : copies) c.count = 0;
    return failure;
}

}  // namespace emulated

#define __syncthreads() emulated::meet(emulated::WAITS_FOR_BLOCK, [] {})
#define __syncwarp(...) emulated::meet(emulated::WAITS_FOR_WARP, [] {})
#define __shfl_xor_sync(...) emulated::shuffled_xor([] {}, __VA_ARGS__)
#define __shfl_down_sync(...) emulated::shuffled_down([] {}, __VA_ARGS__)
#define __shfl_sync(...) emulated::shuffled([] {}, __VA_ARGS__)
#define __match_any_sync(...) emulated::matched([] {}, __VA_ARGS__)
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
template <typename T> T atomicMin(T *address, T value) { T old = *address; *address = value < old ? value : old; return old; }
template <typename T> T atomicAdd(T *address, T value) { T old = *address; *address = old + value; return old; }
template <typename T> T atomicMax(T *address, T value) { T old = *address; if (value > old) *address = value; return old; }
static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
static inline float rsqrtf(float x) { return 1 / sqrtf(x); }
static inline double rsqrt(double x) { return 1 / sqrt(x); }
static inline void __threadfence() {}
