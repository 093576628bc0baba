// Looks at every access to memory of the kernels in cuda_on_cpu.h: is it inside what they were given?
//
// g++ -fsanitize=kernel-address calls `__asan_load4_noabort` and its kin before each access, and leaves it to us what
// they do; -fsanitize=alignment calls `__ubsan_handle_type_mismatch_v1` where an address is not a multiple of what
// its type wants, which a GPU refuses too. Allowed are: the arrays that a launch was given (`emulated_bounds`), the
// static variables, which are shared memory, each within its own size, and the stacks. A thread that would do more is
// ended before it does, and the launch returns what it was about to do.
//
// Sources: GCC, "Program Instrumentation Options"; the interface of libsanitizer (asan_interface_internal.h,
// ubsan_handlers.h), whose structures are repeated here.
#pragma once

#define UNWATCHED __attribute__((no_sanitize("kernel-address", "alignment")))

extern "C" __attribute__((visibility("hidden"))) char __ehdr_start, __bss_start, _end;  // of this library, by the linker

namespace emulated {

struct Range {
    uintptr_t begin, end;
    UNWATCHED bool has(uintptr_t from, uintptr_t to) const { return from >= begin && to <= end; }
};

struct Variable {  // a static one, as the compiler describes it
    uintptr_t begin, size, padded;
    const char *name, *file;
    uintptr_t initialized;
    const struct { const char *file; int line, column; } *place;
    uintptr_t indicator;

    // In a kernel, not in this header; what is constant or has a value from the start is no shared memory.
    UNWATCHED bool is_shared() const {
        return begin >= (uintptr_t)&__bss_start && place && !strcmp(place->file + strlen(place->file) - 4, ".cpp");
    }
};

static const char *failure;
static const Range *given;      // arrays of the launch
static int given_count = -1;    // -1: nobody knows, so that all of memory is allowed
static const Variable *variables;
static size_t variable_count;
static Range found, shared, stack;  // the array, the variable that were looked up last; locals
static void (*leave)();             // ends the thread

UNWATCHED static void refuse(uintptr_t at, const char *does);

// Within a variable, or among constants that the compiler made up and does not describe.
UNWATCHED static bool is_variable(uintptr_t from, uintptr_t to) {
    if (from < (uintptr_t)&__ehdr_start || to > (uintptr_t)&_end) return false;
    for (size_t i = 0; i < variable_count; ++i) {
        const Variable &v = variables[i];
        if (to <= v.begin || from >= v.begin + v.padded) continue;
        shared = {v.begin, v.begin + v.size};
        return shared.has(from, to);
    }
    return to <= (uintptr_t)&__bss_start;
}

UNWATCHED static void look(uintptr_t at, size_t size, const char *does) {
    uintptr_t to = at + size;
    if (found.has(at, to) || shared.has(at, to) || stack.has(at, to)) return;
    for (int i = 0; i < given_count; ++i)
        if (given[i].has(at, to)) {
            found = given[i];
            return;
        }
    if (is_variable(at, to)) return;
    bool in_library = to > (uintptr_t)&__ehdr_start && at < (uintptr_t)&_end;
    if (given_count < 0 && !in_library) return;
    static char text[40];
    snprintf(text, sizeof text, "%s %zu bytes", does, size);
    refuse(at, text);
}

// "thread ... reads 4 bytes, 0 behind the end of an array of 40 bytes": of the array that is nearest.
UNWATCHED static void refuse(uintptr_t at, const char *does) {
    static char text[400], where[200];
    size_t arrays = given_count > 0 ? given_count : 0;
    uintptr_t least = ~(uintptr_t)0;
    snprintf(where, sizeof where, ", near nothing that it was given");
    for (size_t i = 0; i < arrays + variable_count; ++i) {
        const Variable *v = i < arrays ? nullptr : variables + (i - arrays);
        Range r = v ? Range{v->begin, v->begin + v->size} : given[i];
        bool is_behind = at >= r.end, is_inside = at >= r.begin && !is_behind;
        uintptr_t away = is_behind ? at - r.end : is_inside ? 0 : r.begin - at;
        if (away >= least) continue;
        least = away;
        snprintf(where, sizeof where, ", %zu %s the %s of %s of %zu bytes", (size_t)(is_inside ? at - r.begin : away),
                 at >= r.begin ? "behind" : "before", is_behind ? "end" : "start", v ? v->name : "an array",
                 (size_t)(r.end - r.begin));
    }
    snprintf(text, sizeof text, "thread (%u, %u, %u) of block (%u, %u, %u) %s%s", threadIdx.x, threadIdx.y, threadIdx.z,
             blockIdx.x, blockIdx.y, blockIdx.z, does, where);
    failure = text;
    leave();
}

}  // namespace emulated

extern "C" {
#define HIDDEN __attribute__((visibility("hidden"))) UNWATCHED
#define MX_ACCESS(SIZE)                                                                                             \
    HIDDEN void __asan_load##SIZE##_noabort(uintptr_t at) { emulated::look(at, SIZE, "reads"); }                    \
    HIDDEN void __asan_store##SIZE##_noabort(uintptr_t at) { emulated::look(at, SIZE, "writes"); }
MX_ACCESS(1)
MX_ACCESS(2)
MX_ACCESS(4)
MX_ACCESS(8)
MX_ACCESS(16)
HIDDEN void __asan_loadN_noabort(uintptr_t at, size_t size) { emulated::look(at, size, "reads"); }
HIDDEN void __asan_storeN_noabort(uintptr_t at, size_t size) { emulated::look(at, size, "writes"); }
HIDDEN void __asan_handle_no_return() {}
HIDDEN void __asan_before_dynamic_init(const char *) {}
HIDDEN void __asan_after_dynamic_init() {}
HIDDEN void __asan_register_globals(void *all, size_t count) {
    emulated::variables = (const emulated::Variable *)all;
    emulated::variable_count = count;
}
HIDDEN void __asan_unregister_globals(void *, size_t) { emulated::variable_count = 0; }

struct Mismatch {  // libsanitizer's TypeMismatchData
    struct { const char *file; uint32_t line, column; } place;
    const void *type;
    unsigned char log_alignment, kind;
};
HIDDEN void __ubsan_handle_type_mismatch_v1(const Mismatch *what, uintptr_t at) {
    static char text[80];
    snprintf(text, sizeof text, "wants a multiple of %d bytes (line %u)", 1 << what->log_alignment, what->place.line);
    emulated::refuse(at, text);
}

// What the next launches may touch, besides shared memory: `count` ranges of addresses; -1: anything.
UNWATCHED void emulated_bounds(const emulated::Range *ranges, int count) {
    emulated::given = ranges;
    emulated::given_count = count;
}
}
