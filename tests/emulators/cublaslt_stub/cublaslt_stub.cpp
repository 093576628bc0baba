// A cuBLASLt that computes on the CPU and is strict: what the real one would not accept, or would misread, it refuses.
//
// Matrices are stored by columns, as cublasLt.h says. Every object has a tag that is checked when it is used and
// cleared when it is destroyed. `stub_log` tells what was called, `stub_live` how many objects there are,
// `stub_without` which epilogues no algorithm has.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

enum { SUCCESS = 0, NOT_INITIALIZED = 1, INVALID = 7, NOT_SUPPORTED = 15 };
enum { R_32F = 0, R_64F = 1, R_16F = 2, R_16BF = 14 };
enum { COMPUTE_32F = 68, COMPUTE_64F = 70, COMPUTE_TF32 = 77 };

struct Handle { uint64_t tag; };
struct Desc {
    uint64_t tag;
    int compute, scale, turn_a, turn_b, bias_type;
    uint32_t epilogue;
    const void *bias, *aux;
    int64_t aux_pitch, aux_stride;
};
struct Layout {
    uint64_t tag;
    int type, count;
    uint64_t rows, columns;
    int64_t pitch, stride;
};
struct Preference {
    uint64_t tag, workspace;
    uint32_t reduction, align[4];
};
struct Algo {
    uint64_t tag, workspace, number, align[4], compute;
};
struct Result {
    Algo algo;
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
};
static_assert(sizeof(Algo) == 64 && sizeof(Result) == 96, "as the header's");

static const uint64_t HANDLE = 0x11a5d1e, DESC = 0xde5c, LAYOUT = 0x1a40, PREFERENCE = 0x9fef, ALGO = 0xa190;
static std::string text;
static int live;
static uint32_t without;

static void say(const std::string &line) { text += line + "\n"; }
static int no(const char *why) {
    say(std::string("refused: ") + why);
    return INVALID;
}

static size_t size(int type) { return type == R_64F ? 8 : type == R_32F ? 4 : 2; }

static double half(uint16_t x) {
    int exponent = x >> 10 & 31, rest = x & 1023;
    double value = exponent == 31 ? (rest ? NAN : INFINITY)
                   : exponent     ? std::ldexp(1024 + rest, exponent - 25)
                                  : std::ldexp(rest, -24);
    return x >> 15 ? -value : value;
}

static uint16_t to_half(double x) {  // to nearest even; finite numbers of the tests' size only
    uint16_t best = 0, sign = std::signbit(x) ? 0x8000 : 0;
    x = std::fabs(x);
    int low = 0, high = 0x7bff;
    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (half(middle) <= x) low = middle;
        else high = middle - 1;
    }
    best = low;
    if (low < 0x7bff) {
        double under = x - half(low), over = half(low + 1) - x;
        if (over < under || (over == under && (low & 1))) best = low + 1;
    }
    return best | sign;
}

static double load(const void *base, int type, int64_t at) {
    if (type == R_64F) return ((const double *)base)[at];
    if (type == R_32F) return ((const float *)base)[at];
    uint16_t bits = ((const uint16_t *)base)[at];
    if (type == R_16F) return half(bits);
    uint32_t wide = (uint32_t)bits << 16;
    float y;
    memcpy(&y, &wide, 4);
    return y;
}

static void store(void *base, int type, int64_t at, double x) {
    if (type == R_64F) ((double *)base)[at] = x;
    else if (type == R_32F) ((float *)base)[at] = (float)x;
    else if (type == R_16F) ((uint16_t *)base)[at] = to_half(x);
    else {
        float y = (float)x;
        uint32_t bits;
        memcpy(&bits, &y, 4);
        ((uint16_t *)base)[at] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
}

template <typename T> static T *checked(void *object, uint64_t tag) {
    T *made = (T *)object;
    return made && made->tag == tag ? made : nullptr;
}

template <typename T> static int set(T &field, const void *value, size_t bytes) {
    if (!value || bytes != sizeof(T)) return no("size of an attribute");
    memcpy(&field, value, sizeof(T));
    return SUCCESS;
}

template <typename T> static int destroy(void *object, uint64_t tag) {
    T *made = checked<T>(object, tag);
    if (!made) return no("destroyed twice");
    made->tag = 0;
    delete made;
    --live;
    return SUCCESS;
}

extern "C" {
const char *stub_log() { return text.c_str(); }
void stub_clear() { text.clear(); }
int stub_live() { return live; }
void stub_without(uint32_t bits) { without = bits; }

size_t cublasLtGetVersion() { return 130002; }
const char *cublasLtGetStatusString(int status) { return status == INVALID ? "an invalid value" : "another error"; }

int cublasLtCreate(void **handle) {
    *handle = new Handle{HANDLE};
    say("create");
    return SUCCESS;
}

int cublasLtMatmulDescCreate(void **made, int compute, int scale) {
    *made = new Desc{DESC, compute, scale, 0, 0, -1, 1, nullptr, nullptr, 0, 0};
    ++live;
    return SUCCESS;
}
int cublasLtMatmulDescDestroy(void *d) { return destroy<Desc>(d, DESC); }
int cublasLtMatmulDescSetAttribute(void *object, int attribute, const void *value, size_t bytes) {
    Desc *d = checked<Desc>(object, DESC);
    if (!d) return no("no descriptor");
    switch (attribute) {
        case 3: return set(d->turn_a, value, bytes);
        case 4: return set(d->turn_b, value, bytes);
        case 7: return set(d->epilogue, value, bytes);
        case 8: return set(d->bias, value, bytes);
        case 11: return set(d->aux, value, bytes);
        case 12: return set(d->aux_pitch, value, bytes);
        case 13: return set(d->aux_stride, value, bytes);
        case 26: return set(d->bias_type, value, bytes);
    }
    return no("attribute of a descriptor");
}

int cublasLtMatrixLayoutCreate(void **made, int type, uint64_t rows, uint64_t columns, int64_t pitch) {
    if (pitch < (int64_t)rows) return no("leading dimension below rows");
    *made = new Layout{LAYOUT, type, 1, rows, columns, pitch, 0};
    ++live;
    return SUCCESS;
}
int cublasLtMatrixLayoutDestroy(void *l) { return destroy<Layout>(l, LAYOUT); }
int cublasLtMatrixLayoutSetAttribute(void *object, int attribute, const void *value, size_t bytes) {
    Layout *l = checked<Layout>(object, LAYOUT);
    if (!l) return no("no layout");
    if (attribute == 5) return set(l->count, value, bytes);
    if (attribute == 6) return set(l->stride, value, bytes);
    return no("attribute of a layout");
}

int cublasLtMatmulPreferenceCreate(void **made) {
    *made = new Preference{PREFERENCE, 0, 7, {256, 256, 256, 256}};
    ++live;
    return SUCCESS;
}
int cublasLtMatmulPreferenceDestroy(void *p) { return destroy<Preference>(p, PREFERENCE); }
int cublasLtMatmulPreferenceSetAttribute(void *object, int attribute, const void *value, size_t bytes) {
    Preference *p = checked<Preference>(object, PREFERENCE);
    if (!p) return no("no preference");
    if (attribute == 1) return set(p->workspace, value, bytes);
    if (attribute == 3) return set(p->reduction, value, bytes);
    if (attribute >= 5 && attribute <= 8) return set(p->align[attribute - 5], value, bytes);
    return no("attribute of a preference");
}

// What both the heuristic and the product check.
static int problem(Desc *d, Layout *a, Layout *b, Layout *c, Layout *out) {
    if (!d || !a || !b || !c || !out) return no("a descriptor that is not there");
    uint64_t m = d->turn_a ? a->columns : a->rows, k = d->turn_a ? a->rows : a->columns;
    uint64_t k2 = d->turn_b ? b->columns : b->rows, n = d->turn_b ? b->rows : b->columns;
    if (k != k2 || out->rows != m || out->columns != n || c->rows != m || c->columns != n) return no("sizes");
    if (a->count != out->count || b->count != out->count || c->count != out->count) return no("batch counts");
    if (a->type != b->type || c->type != out->type) return no("types");
    bool wide = a->type == R_64F;
    if (d->compute != (wide ? COMPUTE_64F : COMPUTE_32F) && (wide || d->compute != COMPUTE_TF32)) return no("compute type");
    if (d->compute == COMPUTE_TF32 && a->type != R_32F) return no("TF32 of another type");
    if (d->scale != (wide ? R_64F : R_32F)) return no("scale type");
    if (wide && (out->type != R_64F)) return no("result of doubles");
    if (!wide && out->type != a->type && out->type != R_32F) return no("result type");
    bool slope = d->epilogue == 192, sums = d->epilogue == 512;
    if (!slope && !sums && d->epilogue & ~(1u | 2u | 4u | 32u)) return no("epilogue");
    if (slope && (!d->aux || d->aux_pitch < (int64_t)m || d->aux_pitch % 8)) return no("what a slope is read off");
    if (slope && (uintptr_t)d->aux % 16) return NOT_SUPPORTED;
    if (slope && out->count > 1 && d->aux_stride < d->aux_pitch * (int64_t)n) return no("stride of what is known");
    if (sums && out->count > 1) return NOT_SUPPORTED;
    if (((d->epilogue & 4) || sums) && (d->bias_type != out->type || !d->bias)) return no("bias");
    if (wide && d->epilogue != 1) return NOT_SUPPORTED;
    if (d->epilogue & without) return NOT_SUPPORTED;
    return SUCCESS;
}

int cublasLtMatmulAlgoGetHeuristic(
    void *h, void *desc, void *la, void *lb, void *lc, void *ld, void *pref, int asked, Result *results, int *returned) {
    Preference *p = checked<Preference>(pref, PREFERENCE);
    if (!checked<Handle>(h, HANDLE)) return NOT_INITIALIZED;
    Desc *d = checked<Desc>(desc, DESC);
    Layout *a = checked<Layout>(la, LAYOUT), *b = checked<Layout>(lb, LAYOUT), *c = checked<Layout>(lc, LAYOUT);
    Layout *out = checked<Layout>(ld, LAYOUT);
    if (!p || asked < 1) return no("preference");
    if (p->reduction & ~2u) return no("a sum that is not added up in the compute type");
    if (int status = problem(d, a, b, c, out)) return status;
    *returned = 0;
    // The first wants scratch by the size of the result, the second none, the third cannot be run.
    uint64_t wants[3] = {out->rows * out->columns * 4 + 13, 0, 0};
    for (int i = 0; i < 3 && *returned < asked; ++i) {
        if (wants[i] > p->workspace) continue;
        Result &r = results[(*returned)++];
        memset(&r, 0, sizeof(r));
        r.algo = {ALGO, wants[i], (uint64_t)i, {p->align[0], p->align[1], p->align[2], p->align[3]}, (uint64_t)d->compute};
        r.workspace = wants[i];
        r.state = i == 2 ? NOT_SUPPORTED : SUCCESS;
    }
    say("heuristic");
    return SUCCESS;
}

int cublasLtMatmul(
    void *h, void *desc, const void *alpha, const void *A, void *la, const void *B, void *lb, const void *beta,
    const void *C, void *lc, void *D, void *ld, const Algo *algo, void *work, size_t room, void *stream) {
    if (!checked<Handle>(h, HANDLE)) return NOT_INITIALIZED;
    Desc *d = checked<Desc>(desc, DESC);
    Layout *a = checked<Layout>(la, LAYOUT), *b = checked<Layout>(lb, LAYOUT), *c = checked<Layout>(lc, LAYOUT);
    Layout *out = checked<Layout>(ld, LAYOUT);
    if (int status = problem(d, a, b, c, out)) return status;
    if (!algo || algo->tag != ALGO || algo->compute != (uint64_t)d->compute) return no("algorithm");
    if (algo->number == 2) return no("an algorithm whose state was not success");
    if (room < algo->workspace || (algo->workspace && (!work || (uintptr_t)work % 256))) return no("workspace");
    const void *pointers[4] = {A, B, C, D};
    for (int i = 0; i < 4; ++i)
        if ((uintptr_t)pointers[i] % algo->align[i]) return no("alignment");
    if (algo->workspace) memset(work, 0xff, algo->workspace);
    bool wide = d->scale == R_64F;
    double x = wide ? *(const double *)alpha : *(const float *)alpha;
    double y = wide ? *(const double *)beta : *(const float *)beta;
    int64_t k = d->turn_a ? a->rows : a->columns;
    if (d->epilogue == 512)
        for (int64_t j = 0; j < (int64_t)out->columns; ++j) {
            double sum = 0;
            for (int64_t e = 0; e < k; ++e) sum += load(B, b->type, d->turn_b ? e * b->pitch + j : j * b->pitch + e);
            store((void *)d->bias, d->bias_type, j, sum);
        }
    for (int s = 0; s < out->count; ++s)
        for (int64_t j = 0; j < (int64_t)out->columns; ++j)
            for (int64_t i = 0; i < (int64_t)out->rows; ++i) {
                double sum = 0;
                for (int64_t e = 0; e < k; ++e)
                    sum += load(A, a->type, s * a->stride + (d->turn_a ? i * a->pitch + e : e * a->pitch + i)) *
                           load(B, b->type, s * b->stride + (d->turn_b ? e * b->pitch + j : j * b->pitch + e));
                sum *= x;
                if (y != 0) sum += y * load(C, c->type, s * c->stride + j * c->pitch + i);
                if (d->epilogue & 4) sum += load(d->bias, d->bias_type, i);
                if (d->epilogue & 2) sum = sum > 0 ? sum : 0;
                if (d->epilogue & 32)
                    sum = 0.5 * sum * (1 + std::tanh(0.79788456080286535588 * (sum + 0.044715 * sum * sum * sum)));
                if (d->epilogue == 192) {
                    double z = load(d->aux, out->type, s * d->aux_stride + j * d->aux_pitch + i);
                    double t = std::tanh(0.79788456080286535588 * (z + 0.044715 * z * z * z));
                    sum *= 0.5 * (1 + t) + 0.5 * z * (1 - t * t) * 0.79788456080286535588 * (1 + 0.134145 * z * z);
                }
                store(D, out->type, s * out->stride + j * out->pitch + i, sum);
            }
    char line[96];
    snprintf(line, sizeof(line), "matmul compute %d epilogue %u algorithm %d stream %zu", d->compute, d->epilogue,
             (int)algo->number, (size_t)stream);
    say(line);
    return SUCCESS;
}
}
