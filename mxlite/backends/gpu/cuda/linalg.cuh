// Batches of small matrices: triangular products and systems, factorizations, inverses; see
// mxlite/ops/linalg/factorizations.py. A is float or double, matrices are (batch, rows, columns). Undefined results,
// such as the root of a matrix that is not positive definite, become nan or inf: a kernel cannot raise errors.
#pragma once

enum { WHOLE_MATRIX, LOWER, UPPER, MIRRORED };

__device__ __forceinline__ bool kept(int part, int i, int j) {
    return part == LOWER ? j <= i : part == UPPER ? j >= i : true;
}

struct Matrices {
    const A *x, *y;
    A *out;
    double alpha;
    int rows, columns, inner;       // of op(x) @ op(y)
    int turn_x, turn_y, part_x, part_y, part_out, add;  // stored triangles of x and y
};

__device__ __forceinline__ A entry(const A *m, int i, int j, int rows, int columns, int turn, int part) {
    int a = turn ? j : i, b = turn ? i : j;
    return kept(part, a, b) ? m[(int64)a * (turn ? rows : columns) + b] : (A)0;
}

// out (+)= alpha * op(x) @ op(y); elements outside of `part_out` are 0, or MIRRORED from below the diagonal.
extern "C" __global__ void __launch_bounds__(256) multiply(int64 n, Matrices s) {
    MX_EACH(at, n) {
        uint32 place = (uint32)at, plane = s.rows * s.columns, rest = place % plane;
        int64 matrix = place / plane;
        int i = rest / s.columns, j = rest % s.columns, row = i, column = j;
        if (s.part_out == MIRRORED && i < j) {
            row = j;
            column = i;
        }
        const A *x = s.x + matrix * s.rows * s.inner, *y = s.y + matrix * s.inner * s.columns;
        A total = 0;
        if (kept(s.part_out, i, j))
            for (int k = 0; k < s.inner; ++k)
                total += entry(x, row, k, s.rows, s.inner, s.turn_x, s.part_x) *
                         entry(y, k, column, s.inner, s.columns, s.turn_y, s.part_y);
        total *= (A)s.alpha;
        s.out[at] = s.add ? s.out[at] + total : total;
    }
}

// op(triangle) @ out = alpha * b, or out @ op(triangle) = alpha * b: a thread for each column, or row, of out. Without
// b it is the identity.
extern "C" __global__ void __launch_bounds__(256) solve(
    int64 n, const A *triangle, const A *b, A *out, int size, int others, int lower, int turn, int right, double alpha) {
    MX_EACH(at, n) {
        int64 matrix = (uint32)at / others, other = at - matrix * others;
        const A *t = triangle + matrix * size * size;
        int64 base = matrix * size * others + (right ? other * size : other), step = right ? 1 : others;
        // From the right it is the system of the transposed matrix.
        int turned = turn != right;
        bool upward = (lower != 0) == (turned == 0);
        for (int count = 0; count < size; ++count) {
            int i = upward ? count : size - 1 - count;
            A x = b ? b[base + i * step] * (A)alpha : (A)(i == other ? 1 : 0);
            for (int done = 0; done < count; ++done) {
                int k = upward ? done : size - 1 - done;
                x -= t[turned ? (int64)k * size + i : (int64)i * size + k] * out[base + k * step];
            }
            out[base + i * step] = x / t[(int64)i * size + i];
        }
    }
}

// Lower factors of the symmetric triangles: a block for each matrix, column after column.
extern "C" __global__ void __launch_bounds__(256) factor(const A *x, A *out, int size) {
    x += (int64)blockIdx.x * size * size;
    out += (int64)blockIdx.x * size * size;
    for (int64 at = threadIdx.x; at < (int64)size * size; at += blockDim.x) {
        int i = (int)(at / size), j = (int)(at % size);
        out[at] = j <= i ? (x[at] + x[(int64)j * size + i]) * (A)0.5 : (A)0;
    }
    for (int k = 0; k < size; ++k) {
        __syncthreads();
        A root = mx_sqrt(out[(int64)k * size + k]);
        __syncthreads();
        for (int i = k + threadIdx.x; i < size; i += blockDim.x)
            out[(int64)i * size + k] = i == k ? root : out[(int64)i * size + k] / root;
        __syncthreads();
        int left = size - k - 1;
        for (int64 at = threadIdx.x; at < (int64)left * left; at += blockDim.x) {
            int i = k + 1 + (int)(at / left), j = k + 1 + (int)(at % left);
            if (j <= i) out[(int64)i * size + j] -= out[(int64)i * size + k] * out[(int64)j * size + k];
        }
    }
}

// Inverses and determinants by elimination with column pivoting: a block for each matrix. `work` has
// a copy of it. Writes sign and logarithm of the absolute determinant if requested.
extern "C" __global__ void __launch_bounds__(256) eliminate(
    const A *x, A *work, A *inverse, A *determinant, A *sign, A *logarithm, int size) {
    __shared__ int pivot;
    int64 area = (int64)size * size;
    x += blockIdx.x * area;
    work += blockIdx.x * area;
    if (inverse) inverse += blockIdx.x * area;
    for (int64 at = threadIdx.x; at < area; at += blockDim.x) {
        work[at] = x[at];
        if (inverse) inverse[at] = (A)(at / size == at % size ? 1 : 0);
    }
    A product = 1, sum = 0, direction = 1;
    for (int k = 0; k < size; ++k) {
        __syncthreads();
        if (threadIdx.x == 0) {
            pivot = k;
            for (int i = k + 1; i < size; ++i)
                if (mx_abs(work[(int64)i * size + k]) > mx_abs(work[(int64)pivot * size + k])) pivot = i;
        }
        __syncthreads();
        int p = pivot;
        if (p != k) {
            direction = -direction;
            for (int j = threadIdx.x; j < size; j += blockDim.x) {
                A y = work[(int64)k * size + j];
                work[(int64)k * size + j] = work[(int64)p * size + j];
                work[(int64)p * size + j] = y;
                if (!inverse) continue;
                y = inverse[(int64)k * size + j];
                inverse[(int64)k * size + j] = inverse[(int64)p * size + j];
                inverse[(int64)p * size + j] = y;
            }
        }
        __syncthreads();
        A head = work[(int64)k * size + k];
        product *= head;
        sum += mx_log(mx_abs(head));
        direction = head < (A)0 ? -direction : head == (A)0 ? (A)0 : direction;
        __syncthreads();
        // Column k holds the factors, so it is not changed.
        for (int64 at = threadIdx.x; at < area; at += blockDim.x) {
            int i = (int)(at / size), j = (int)(at % size);
            if (i == k || (!inverse && i < k)) continue;
            A factor = work[(int64)i * size + k] / head;
            if (head == (A)0) continue;
            if (j > k) work[at] -= factor * work[(int64)k * size + j];
            if (inverse) inverse[at] -= factor * inverse[(int64)k * size + j];
        }
        __syncthreads();
        for (int j = threadIdx.x; inverse && j < size; j += blockDim.x) {
            if (j > k) work[(int64)k * size + j] /= head;
            inverse[(int64)k * size + j] /= head;
        }
    }
    if (threadIdx.x == 0) {
        if (determinant) determinant[blockIdx.x] = direction * mx_abs(product);
        if (sign) sign[blockIdx.x] = direction;
        if (logarithm) logarithm[blockIdx.x] = direction == (A)0 ? (A)(-1.0 / 0.0) : sum;
    }
}

// out = transposed inverse * factor of each matrix; 0 if the determinant is 0.
extern "C" __global__ void __launch_bounds__(256) scale_turned(
    int64 n, const A *inverse, const A *head, const A *determinant, A *out, int size, int logarithm) {
    MX_EACH(at, n) {
        int64 area = (int64)size * size, matrix = at / area, rest = at - matrix * area;
        A y = determinant[matrix];
        bool none = logarithm ? y == (A)(-1.0 / 0.0) : y == (A)0;
        A factor = logarithm ? head[matrix] : head[matrix] * y;
        out[at] = none ? (A)0 : inverse[matrix * area + rest % size * size + rest / size] * factor;
    }
}

extern "C" __global__ void __launch_bounds__(256) sum_log_diagonal(int64 n, const A *x, A *out, int size) {
    MX_EACH(at, n) {
        A total = 0;
        for (int i = 0; i < size; ++i) total += mx_log(x[(at * size + i) * size + i]);
        out[at] = total;
    }
}

extern "C" __global__ void __launch_bounds__(256) over_diagonal(int64 n, const A *head, const A *x, A *out, int size) {
    MX_EACH(at, n) {
        int64 row = at / size;
        out[at] = row % size == at % size ? head[row / size] / x[at] : (A)0;
    }
}

// out = scale * the lower triangle of x, 0 if there is no x.
extern "C" __global__ void __launch_bounds__(256) keep_triangle(int64 n, const A *x, A *out, int size, double scale) {
    MX_EACH(at, n) out[at] = x && at % size <= at / size % size ? x[at] * (A)scale : (A)0;
}

// Copies between matrices and packed triangles: a lower one row by row, an upper one column by column.
extern "C" __global__ void __launch_bounds__(256) triangle_vector(
    int64 n, const A *in, A *out, int size, int offset, int upper, int length, int extract) {
    MX_EACH(at, n) {
        int64 area = (int64)size * size, matrix = at / area, rest = at - matrix * area;
        int i = (int)(rest / size), j = (int)(rest % size);
        int64 row = upper ? j : i, column = upper ? i : j, k = row + offset;
        bool inside = k >= 0 && column <= k;
        int64 place = matrix * length + k * (k + 1) / 2 + column;
        if (extract && inside) out[place] = in[at];
        if (!extract) out[at] = inside ? in[place] : (A)0;
    }
}
