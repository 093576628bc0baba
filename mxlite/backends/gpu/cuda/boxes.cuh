// Boxes x1, y1, x2, y2: overlaps, suppression of near duplicates, prior boxes and their targets; see
// mxlite/ops/vision/boxes.py and multibox.py. A is the type to compute in. Where boxes are processed sequentially, a
// block has a sample, and its threads share the inner loop.
#pragma once

enum { BLOCK_THREADS = 256 };

struct Box {
    A x1, y1, x2, y2;
};

__device__ __forceinline__ A read_number(const void *x, int kind, int64 at) { return (A)number(x, kind, at); }

__device__ __forceinline__ Box box_at(const void *x, int kind, int64 at, int center) {
    Box b = {read_number(x, kind, at), read_number(x, kind, at + 1), read_number(x, kind, at + 2),
             read_number(x, kind, at + 3)};
    if (center) {
        A w = b.x2, h = b.y2;
        b.x1 -= w * (A)0.5;
        b.y1 -= h * (A)0.5;
        b.x2 = w + b.x1;
        b.y2 = h + b.y1;
    }
    return b;
}

__device__ __forceinline__ A side(A a1, A a2, A b1, A b2) {
    A length = (b2 < a2 ? b2 : a2) - (b1 > a1 ? b1 : a1);
    return length > (A)0 ? length : (A)0;
}

__device__ __forceinline__ A overlap(const Box &a, const Box &b) {
    A common = side(a.y1, a.y2, b.y1, b.y2) * side(a.x1, a.x2, b.x1, b.x2);
    A all = (b.x2 - b.x1) * (b.y2 - b.y1) + (a.x2 - a.x1) * (a.y2 - a.y1) - common;
    return all <= (A)0 ? (A)0 : common / all;
}

struct Kinds {
    double across[32], down[32];  // half of each kind's sides
    double step_y, step_x, offset_y, offset_x;
    int count, w, clip;
};

extern "C" __global__ void __launch_bounds__(256) prior_boxes(int64 n, void *out, int kind, Kinds s) {
    MX_EACH(at, n) {
        uint32 rest = (uint32)at / 4, side = (uint32)at % 4, k = rest % s.count, place = rest / s.count;
        double centre = side % 2 ? (place / s.w + s.offset_y) * s.step_y : (place % s.w + s.offset_x) * s.step_x;
        double half = side % 2 ? s.down[k] : s.across[k], edge = side < 2 ? centre - half : centre + half;
        if (s.clip) edge = edge < 0 ? 0 : edge > 1 ? 1 : edge;
        put(out, kind, at, edge);
    }
}

// -- what stays of boxes in order

// Numbers of the block's flags that are set before this thread's, and in total; `room` has a number per thread.
__device__ __forceinline__ int block_rank(bool flag, int *room, int *all) {
    __syncthreads();
    room[threadIdx.x] = flag;
    for (int step = 1; step < BLOCK_THREADS; step *= 2) {
        __syncthreads();
        int before = threadIdx.x >= step ? room[threadIdx.x - step] : 0;
        __syncthreads();
        room[threadIdx.x] += before;
    }
    __syncthreads();
    *all = room[BLOCK_THREADS - 1];
    return room[threadIdx.x] - flag;
}

__device__ __forceinline__ void suppress(
    const Box *boxes, const A *kinds, uint8 *alive, int n, A threshold, bool including) {
    __syncthreads();
    for (int i = 0; i < n; ++i) {
        if (alive[i]) {
            for (int k = i + 1 + threadIdx.x; k < n; k += BLOCK_THREADS) {
                if (!alive[k] || (kinds && kinds[k] != kinds[i])) continue;
                A over = overlap(boxes[i], boxes[k]);
                if (including ? over >= threshold : over > threshold) alive[k] = 0;
            }
        }
        __syncthreads();
    }
}

struct Boxes {
    const void *data;      // rows of `width` numbers; for a detection the class probabilities
    const void *moved, *anchor;
    void *out;
    int *index;
    A *scores;             // (samples, n), -inf for ignored boxes
    const int *order;      // (samples, n): by decreasing score
    Box *boxes;            // (samples, n), in that order
    A *kinds;
    uint8 *alive;
    double threshold, valid, variances[4];
    int n, width, kind, topk, coordinates, score, id, background, by_class, center, out_center, classes, clip;
};

extern "C" __global__ void __launch_bounds__(256) nms_scores(int64 n, Boxes s) {
    MX_EACH(at, n) {
        A score = read_number(s.data, s.kind, at * s.width + s.score);
        bool counts = score > (A)s.valid;
        if (s.id >= 0) counts = counts && read_number(s.data, s.kind, at * s.width + s.id) != (A)s.background;
        s.scores[at] = counts ? score : (A)(-1.0 / 0.0);
    }
}

// Number of valid entries of this sample.
__device__ __forceinline__ int counted_boxes(const A *scores, int n, int *room) {
    int total = 0, all;
    for (int begin = 0; begin < n; begin += BLOCK_THREADS) {
        int k = begin + threadIdx.x;
        block_rank(k < n && scores[k] > (A)(-1.0 / 0.0), room, &all);
        total += all;
    }
    return total;
}

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS) nms(Boxes s) {
    __shared__ int room[BLOCK_THREADS];
    int64 first = (int64)blockIdx.x * s.n;
    const int *order = s.order + first;
    Box *boxes = s.boxes + first;
    A *kinds = s.kinds + first;
    uint8 *alive = s.alive + first;
    int m = counted_boxes(s.scores + first, s.n, room);
    if (s.topk > 0 && m > s.topk) m = s.topk;
    for (int k = threadIdx.x; k < m; k += BLOCK_THREADS) {
        int64 row = (first + order[k]) * s.width;
        boxes[k] = box_at(s.data, s.kind, row + s.coordinates, s.center);
        kinds[k] = s.id >= 0 ? read_number(s.data, s.kind, row + s.id) : (A)0;
        alive[k] = 1;
    }
    suppress(boxes, s.by_class ? kinds : nullptr, alive, m, (A)s.threshold, false);
    int done = 0, all;
    for (int begin = 0; begin < m; begin += BLOCK_THREADS) {
        int k = begin + threadIdx.x, to = done + block_rank(k < m && alive[k], room, &all);
        if (k < m && alive[k]) {
            if (s.index) s.index[first + to] = order[k];
            int64 from = (first + order[k]) * s.width, into = (first + to) * s.width;
            for (int j = 0; s.out && j < s.width; ++j) put(s.out, s.kind, into + j, number(s.data, s.kind, from + j));
            if (s.out && s.center != s.out_center) {
                Box b = box_at(s.data, s.kind, from + s.coordinates, s.center);
                if (s.out_center) {
                    b.x2 -= b.x1;
                    b.y2 -= b.y1;
                    b.x1 += b.x2 / (A)2;
                    b.y1 += b.y2 / (A)2;
                }
                put(s.out, s.kind, into + s.coordinates, b.x1);
                put(s.out, s.kind, into + s.coordinates + 1, b.y1);
                put(s.out, s.kind, into + s.coordinates + 2, b.x2);
                put(s.out, s.kind, into + s.coordinates + 3, b.y2);
            }
        }
        done += all;
    }
}

// Scatters to d_data, which is zero before, at the rows' origins.
extern "C" __global__ void __launch_bounds__(256) nms_gradient(
    int64 n, const void *d_out, const int *index, void *d_data, int kind, int rows, int width) {
    MX_EACH(at, n) {
        int64 row = at / width, from = index[row];
        if (from >= 0) put(d_data, kind, (row / rows * rows + from) * width + at % width, number(d_out, kind, at));
    }
}

// -- detections

// The most probable class of each prior box except the background: 0 is the first after it.
__device__ __forceinline__ int class_of(const Boxes &s, int64 sample, int a, A *score) {
    int found = 0;
    *score = read_number(s.data, s.kind, (sample * s.classes + 1) * s.n + a);
    for (int c = 2; c < s.classes; ++c) {
        A x = read_number(s.data, s.kind, (sample * s.classes + c) * s.n + a);
        if (x > *score) {
            *score = x;
            found = c - 1;
        }
    }
    return found;
}

__device__ __forceinline__ void moved_side(const Boxes &s, int64 loc, int a, int low, A *begin, A *end) {
    A first = read_number(s.anchor, s.kind, (int64)a * 4 + low);
    A last = read_number(s.anchor, s.kind, (int64)a * 4 + low + 2);
    A half = last - first, centre = (first + last) * (A)0.5;
    centre = centre + read_number(s.moved, s.kind, loc + low) * (A)s.variances[low] * half;
    half = half * mx_exp(read_number(s.moved, s.kind, loc + low + 2) * (A)s.variances[low + 2]) * (A)0.5;
    *begin = centre - half;
    *end = centre + half;
    if (s.clip) {
        *begin = *begin < (A)0 ? (A)0 : *begin > (A)1 ? (A)1 : *begin;
        *end = *end < (A)0 ? (A)0 : *end > (A)1 ? (A)1 : *end;
    }
}

extern "C" __global__ void __launch_bounds__(256) detect_scores(int64 n, Boxes s) {
    MX_EACH(at, n) {
        A score;
        class_of(s, at / s.n, (int)(at % s.n), &score);
        s.scores[at] = score >= (A)s.valid ? score : (A)(-1.0 / 0.0);
    }
}

__device__ __forceinline__ void put_row(const Boxes &s, int64 row, A kind, A score, const Box &b) {
    put(s.out, s.kind, row, kind);
    put(s.out, s.kind, row + 1, score);
    put(s.out, s.kind, row + 2, b.x1);
    put(s.out, s.kind, row + 3, b.y1);
    put(s.out, s.kind, row + 4, b.x2);
    put(s.out, s.kind, row + 5, b.y2);
}

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS) detect(Boxes s) {
    __shared__ int room[BLOCK_THREADS];
    int64 first = (int64)blockIdx.x * s.n;
    const int *order = s.order + first;
    const A *scores = s.scores + first;
    Box *boxes = s.boxes + first;
    A *kinds = s.kinds + first;
    uint8 *alive = s.alive + first;
    int valid = counted_boxes(scores, s.n, room), done = 0, all;
    int m = s.threshold > 0 && s.threshold <= 1 ? s.topk > 0 && valid > s.topk ? s.topk : valid : 0;
    for (int begin = 0; begin < s.n; begin += BLOCK_THREADS) {  // in the order of the prior boxes
        int a = begin + threadIdx.x;
        bool counts = a < s.n && scores[a] > (A)(-1.0 / 0.0);
        int to = done + block_rank(counts, room, &all);
        if (counts) {
            A score;
            int kind = class_of(s, blockIdx.x, a, &score);
            Box b;
            moved_side(s, (first + a) * 4, a, 0, &b.x1, &b.x2);
            moved_side(s, (first + a) * 4, a, 1, &b.y1, &b.y2);
            put_row(s, (first + to) * 6, m && to >= m ? (A)-1 : (A)kind, score, b);
        }
        done += all;
    }
    for (int k = threadIdx.x; k < m; k += BLOCK_THREADS) {
        A score;
        kinds[k] = (A)class_of(s, blockIdx.x, order[k], &score);
        moved_side(s, (first + order[k]) * 4, order[k], 0, &boxes[k].x1, &boxes[k].x2);
        moved_side(s, (first + order[k]) * 4, order[k], 1, &boxes[k].y1, &boxes[k].y2);
        alive[k] = 1;
    }
    suppress(boxes, s.by_class ? kinds : nullptr, alive, m, (A)s.threshold, true);
    for (int k = threadIdx.x; k < m; k += BLOCK_THREADS)
        put_row(s, (first + k) * 6, alive[k] ? kinds[k] : (A)-1, scores[order[k]], boxes[k]);
}

// -- targets

struct Targets {
    const void *anchor, *label, *cls_pred;
    void *loc_target, *loc_mask, *cls_target;
    A *iou;            // (samples, labels, n)
    A *background;     // (samples, n): how unlike background a prior box is, -1 for ignored ones
    const int *order;  // by decreasing `background`
    int *which, *counts;  // (samples, n): the label, -1 none, -2 background; (samples, 2): matches, candidates
    double overlap, ignore, ratio, mining, variances[4];
    int n, labels, width, classes, minimum, kind;
};

__device__ __forceinline__ int labels_of(const Targets &s, int64 sample) {
    for (int k = 0; k < s.labels; ++k)
        if (number(s.label, s.kind, (sample * s.labels + k) * s.width) == -1) return k;
    return s.labels;
}

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS) match_boxes(Targets s) {
    __shared__ A tops[BLOCK_THREADS];
    __shared__ int columns[BLOCK_THREADS], of[BLOCK_THREADS];
    int64 sample = blockIdx.x;
    int labels = labels_of(s, sample), all = 0;
    A *iou = s.iou + sample * s.labels * s.n;
    int *which = s.which + sample * s.n;
    for (int a = threadIdx.x; a < s.n; a += BLOCK_THREADS) which[a] = -1;
    for (int64 at = threadIdx.x; at < (int64)labels * s.n; at += BLOCK_THREADS) {
        Box a = box_at(s.label, s.kind, (sample * s.labels + at / s.n) * s.width + 1, 0);
        iou[at] = overlap(a, box_at(s.anchor, s.kind, at % s.n * 4, 0));
    }
    for (int round = 0; round < labels; ++round) {  // the largest overlap of unassigned labels; ties: first box, label
        A top = -1;
        int column = s.n, label = labels;
        __syncthreads();
        for (int64 at = threadIdx.x; at < (int64)labels * s.n; at += BLOCK_THREADS) {
            int k = (int)(at / s.n), a = (int)(at % s.n);
            A x = iou[at];
            if (x > top || (x == top && (a < column || (a == column && k < label)))) {
                top = x;
                column = a;
                label = k;
            }
        }
        tops[threadIdx.x] = top;
        columns[threadIdx.x] = column;
        of[threadIdx.x] = label;
        for (int half = BLOCK_THREADS / 2; half; half /= 2) {
            __syncthreads();
            int o = threadIdx.x + half;
            if (threadIdx.x >= half) continue;
            bool ties = tops[o] == tops[threadIdx.x];
            bool earlier = columns[o] < columns[threadIdx.x] ||
                           (columns[o] == columns[threadIdx.x] && of[o] < of[threadIdx.x]);
            if (tops[o] > tops[threadIdx.x] || (ties && earlier)) {
                tops[threadIdx.x] = tops[o];
                columns[threadIdx.x] = columns[o];
                of[threadIdx.x] = of[o];
            }
        }
        __syncthreads();
        top = tops[0];
        column = columns[0];
        label = of[0];
        if (!(top > (A)1e-6)) break;
        __syncthreads();
        if (threadIdx.x == 0) which[column] = label;
        for (int k = threadIdx.x; k < labels; k += BLOCK_THREADS)
            if (iou[(int64)k * s.n + column] > (A)-3) iou[(int64)k * s.n + column] = -1;
        // An assigned label is ignored here, but not for the other boxes: kept below -2.
        for (int a = threadIdx.x; a < s.n; a += BLOCK_THREADS)
            if (iou[(int64)label * s.n + a] >= (A)0) iou[(int64)label * s.n + a] -= (A)4;
    }
    __syncthreads();
    int matches = 0, candidates = 0;
    for (int begin = 0; begin < s.n; begin += BLOCK_THREADS) {
        int a = begin + threadIdx.x;
        bool matched = false, fits = false;
        if (a < s.n && labels) {
            A best = 0;
            int label = 0;
            Box box = box_at(s.anchor, s.kind, (int64)a * 4, 0);
            for (int k = 0; k < labels; ++k) {
                A x = overlap(box_at(s.label, s.kind, (sample * s.labels + k) * s.width + 1, 0), box);
                if (k == 0 || x > best) {
                    best = x;
                    label = k;
                }
            }
            if (which[a] < 0 && s.overlap > 0 && best > (A)s.overlap) which[a] = label;
            matched = which[a] >= 0;
            fits = !matched && best < (A)s.mining;
            A total = 0, base = s.ratio > 0 ? read_number(s.cls_pred, s.kind, sample * s.classes * s.n + a) : (A)0;
            for (int c = 0; c < s.classes && s.ratio > 0; ++c) {
                A x = read_number(s.cls_pred, s.kind, (sample * s.classes + c) * s.n + a) - base;
                total += mx_exp(x < (A)80 ? x : (A)80);
            }
            s.background[sample * s.n + a] = fits ? total : (A)-1;
        } else if (a < s.n) {
            s.background[sample * s.n + a] = -1;
        }
        block_rank(matched, columns, &all);
        matches += all;
        block_rank(fits, columns, &all);
        candidates += all;
    }
    if (threadIdx.x == 0) {
        s.counts[2 * sample] = labels ? matches : -1;
        s.counts[2 * sample + 1] = candidates;
    }
}

// Selects the background: all of the rest, or that many of those that look least like it.
extern "C" __global__ void __launch_bounds__(256) mine_background(int64 n, Targets s) {
    MX_EACH(at, n) {
        int64 sample = at / s.n;
        int matches = s.counts[2 * sample], candidates = s.counts[2 * sample + 1];
        if (matches < 0) continue;
        if (s.ratio <= 0) {
            if (s.which[at] == -1) s.which[at] = -2;
            continue;
        }
        int64 wanted = (int64)(matches * s.ratio);
        if (wanted < s.minimum) wanted = s.minimum;
        if (wanted > s.n - matches) wanted = s.n - matches;
        if (wanted > candidates) wanted = candidates;
        if (at % s.n < wanted) s.which[sample * s.n + s.order[at]] = -2;
    }
}

extern "C" __global__ void __launch_bounds__(256) write_targets(int64 n, Targets s) {
    MX_EACH(at, n) {
        int64 sample = at / s.n, a = at % s.n;
        int which = s.which[at];
        int64 row = (sample * s.labels + (which < 0 ? 0 : which)) * s.width;
        if (s.cls_target) {
            double kind = which == -1 ? s.ignore : which == -2 ? 0.0 : (double)(read_number(s.label, s.kind, row) + 1);
            put(s.cls_target, s.kind, at, kind);
        }
        for (int i = 0; i < 4; ++i) {
            if (s.loc_mask) put(s.loc_mask, s.kind, at * 4 + i, which >= 0 ? 1.0 : 0.0);
            if (!s.loc_target) continue;
            A value = 0;
            if (which >= 0) {
                A low = read_number(s.anchor, s.kind, a * 4 + i % 2), high = read_number(s.anchor, s.kind, a * 4 + i % 2 + 2);
                A first = read_number(s.label, s.kind, row + 1 + i % 2), last = read_number(s.label, s.kind, row + 3 + i % 2);
                if (i < 2) value = ((first + last) / (A)2 - (low + high) / (A)2) / (high - low);
                else value = mx_log((last - first) / (high - low));
                value = value / (A)s.variances[i];
            }
            put(s.loc_target, s.kind, at * 4 + i, value);
        }
    }
}
