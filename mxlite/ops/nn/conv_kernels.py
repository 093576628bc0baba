"""Reference kernels of Convolution: three reductions to matrix products.

All work in float32 for two-byte floats, take groups as a batch of products, and touch only a slice of
the batch at a time, so that scratch stays near `SCRATCH` bytes however large the batch is.

**pointwise**  kernel 1, stride 1, no padding: `weight @ data[n]`, nothing is copied.

**grid**  stride 1. Samples form one long row per channel, with padding shared between neighbours: the
zeros left of a row also end the row before it, the zeros above a sample also end the sample before it.

    0 0 0 0                          element (i, j) of the kernel reads the same long row, shifted by
    0 a b c    -> 0 0 0 0 0 a b c 0 d e f 0 0 0 0 0 g h i ...       i * dilate * row length + j * dilate
    0 d e f

So each row of the column matrix is one contiguous copy, and a run of columns of any length can be computed
independently. The price is columns at the padding's positions, whose results are dropped. Backward lays out
d_out in the same way; its columns give both the data's and the weight's gradient.

**columns**  everything else: the usual column matrix (im2col; K. Chellapilla, S. Puri, P. Simard, 2006, "High
performance convolutional neural networks for document processing"), filled by one strided copy per kernel
element.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

from ...core.cached import cached_property
from ...core.record import record
from ...graph.ir import Shape
from ...graph.opdef import DType
from ..scratch import accumulator, carve, Piece
from .windows import window_slices

SCRATCH = 1 << 19  # bytes of a block of samples, and again of its columns


class LinearGradients(NamedTuple):
    """Gradients of a layer that is linear in data and weight; None for those that are not requested."""

    d_data: Any
    d_weight: Any
    d_bias: Any


@record
class Geometry:
    """One convolution with all defaults filled in. C and F are over all groups."""

    n: int
    c: int
    size: Shape
    f: int
    out: Shape
    kernel: Shape
    stride: Shape
    dilate: Shape
    pad: Shape
    groups: int
    dtype: DType

    @cached_property
    def way(self) -> str:
        """The name of the reduction that this convolution uses."""
        if any(s != 1 for s in self.stride):
            return "columns"
        if accumulator(self.dtype) == self.dtype and set(self.kernel) == {1} and not any(self.pad):
            return "pointwise"
        # With more padding, windows of nothing but padding would not find enough zeros.
        shared = all(p <= d * (k - 1) for p, d, k in zip(self.pad, self.dilate, self.kernel))
        return "grid" if shared else "columns"

    @property
    def taps(self) -> int:
        """Kernel elements of one channel."""
        return prod(self.kernel)

    @cached_property
    def weight_split(self) -> Shape:
        return self.groups, self.f // self.groups, self.c // self.groups, self.taps

    @cached_property
    def acc(self) -> DType:
        return accumulator(self.dtype)

    @cached_property
    def forward_pieces(self) -> list[Piece]:
        """Scratch of the forward kernel."""
        return _PIECES[self.way](self, False)

    @cached_property
    def backward_pieces(self) -> list[Piece]:
        """Scratch of the backward kernel."""
        return _PIECES[self.way](self, True)

    @cached_property
    def forward_grid(self) -> Grid:
        return Grid.of(self, self.c)

    @cached_property
    def backward_grid(self) -> Grid:
        return Grid.of(self, self.f)


def samples_at_a_time(g: Geometry, per_sample: int) -> int:
    """Number of samples of `per_sample` elements that fit SCRATCH; at least one."""
    return max(1, min(g.n, SCRATCH // max(1, per_sample * g.acc.itemsize)))


# -- pointwise -----------------------------------------------------------------------------------


def pointwise_forward(xp: Any, g: Geometry, data: Any, weight: Any, out: Any, work: Any) -> None:
    """out[n] = weight @ data[n] in each group."""
    x = data.reshape(g.n, g.groups, g.c // g.groups, -1)
    w = weight.reshape(g.weight_split[:3])
    xp.matmul(w, x, out=out.reshape(g.n, g.groups, g.f // g.groups, -1))


def _pointwise_sums(g: Geometry) -> bool:
    """True if a product per sample, then summed, beats one product over samples laid side by side."""
    _, fg, cg, _ = g.weight_split
    return g.groups > 1 or 4 * fg * cg <= (fg + cg) * prod(g.size)


def _pointwise_pieces(g: Geometry, backward: bool) -> list[Piece]:
    """Scratch of the pointwise kernels: only the weight's gradient needs some."""
    if not backward:
        return []
    if _pointwise_sums(g):
        each = g.groups * g.weight_split[1] * g.weight_split[2]
        step = samples_at_a_time(g, each)
        return [((step, *g.weight_split[:3]), g.acc), (g.weight_split[:3], g.acc)]
    p = prod(g.size)
    step = samples_at_a_time(g, (g.c + g.f) * p)
    return [((g.c, step * p), g.acc), ((g.f, step * p), g.acc), ((g.f, g.c), g.acc)]


def pointwise_backward(
    xp: Any, g: Geometry, d_out: Any, data: Any, weight: Any, d_data: Any, d_weight: Any, work: Any
) -> None:
    """d_data[n] = weight.T @ d_out[n]; d_weight = sum of d_out[n] @ data[n].T."""
    groups, fg, cg, _ = g.weight_split
    d = d_out.reshape(g.n, groups, fg, -1)
    if d_data is not None:
        w = weight.reshape(groups, fg, cg)
        xp.matmul(w.swapaxes(1, 2), d, out=d_data.reshape(g.n, groups, cg, -1))
    if d_weight is None:
        return
    x = data.reshape(g.n, groups, cg, -1)
    pieces = carve(work, g.backward_pieces)
    if _pointwise_sums(g):
        total = d_weight.reshape(groups, fg, cg)
        products, part = pieces
        step = len(products)
        for i in range(0, g.n, step):
            some = products[: min(step, g.n - i)]
            xp.matmul(d[i : i + step], x[i : i + step].swapaxes(2, 3), out=some)
            xp.add.reduce(some, axis=0, out=part if i else total)
            if i:
                xp.add(total, part, out=total)
        return
    p = prod(g.size)
    x_row, d_row, part = pieces
    step = x_row.shape[1] // p
    total = d_weight.reshape(g.f, g.c)
    for i in range(0, g.n, step):
        m = min(step, g.n - i)
        xs, ds = x_row.reshape(-1)[: g.c * m * p], d_row.reshape(-1)[: g.f * m * p]
        xp.copyto(xs.reshape(g.c, m, p), x[i : i + m, 0].swapaxes(0, 1))
        xp.copyto(ds.reshape(g.f, m, p), d[i : i + m, 0].swapaxes(0, 1))
        xp.matmul(ds.reshape(g.f, -1), xs.reshape(g.c, -1).T, out=part if i else total)
        if i:
            xp.add(total, part, out=total)


# -- grid ----------------------------------------------------------------------------------------


@record
class Grid:
    """The geometry of the long rows: `shape` is one sample with its share of padding."""

    shape: Shape
    steps: Shape  # elements of a long row from one kernel element to the next, along each axis
    reach: int  # from the kernel's first element to its last
    samples: int  # at a time
    columns: int  # at a time
    inside: tuple[slice, ...]  # the position of the data in a sample's share
    outputs: tuple[slice, ...]  # the position of its outputs

    @classmethod
    def of(cls, g: Geometry, gathered: int) -> Grid:
        """The grid for columns gathered from `gathered` channels."""
        shape = tuple(n + p for n, p in zip(g.size, g.pad))
        steps = tuple(d * prod(shape[i + 1 :]) for i, d in enumerate(g.dilate))
        samples = samples_at_a_time(g, (g.c + g.f) * prod(shape))
        length = samples * prod(shape)
        # Runs of equal length, none so short that a product is all overhead.
        runs = -(-length // max(64, SCRATCH // max(1, gathered * g.taps * g.acc.itemsize)))
        return cls(
            shape,
            steps,
            sum((k - 1) * s for k, s in zip(g.kernel, steps)),
            samples,
            -(-length // runs),
            tuple(slice(p, p + n) for n, p in zip(g.size, g.pad)),
            tuple(slice(0, n) for n in g.out),
        )


def _grid_pieces(g: Geometry, backward: bool) -> list[Piece]:
    """Padded input, columns, result; backward: padded d_out, columns, data, weight twice."""
    grid = g.backward_grid if backward else g.forward_grid
    length = grid.samples * prod(grid.shape)
    groups, fg, cg, taps = g.weight_split
    low = g.acc != g.dtype
    if not backward:
        forward: list[Piece] = [
            ((g.c, length + grid.reach), g.acc),
            ((g.c * taps * grid.columns,), g.acc),
            ((g.f, length), g.acc),
        ]
        return forward + [((groups, fg, cg * taps), g.acc)] * low
    return [
        ((g.f, grid.reach + length), g.acc),
        ((g.f * taps * grid.columns,), g.acc),
        ((g.c, length), g.acc),
        *[((groups, cg, fg * taps), g.acc)] * (3 if low else 2),
    ]


def _gather(xp: Any, row: Any, start: int, count: int, steps: Shape, g: Geometry, columns: Any) -> Any:
    """`count` columns from `start` on: kernel element k is the long row shifted by k * steps."""
    channels, item = row.shape[0], row.itemsize
    shape = (channels, *g.kernel, count)
    strides = (row.strides[0], *(s * item for s in steps), item)
    gathered = columns[: channels * g.taps * count]
    xp.copyto(gathered.reshape(shape), xp.lib.stride_tricks.as_strided(row[:, start:], shape, strides))
    return gathered.reshape(g.groups, channels // g.groups * g.taps, count)


def _box(row: Any, samples: int, shape: Shape, where: tuple[slice, ...]) -> Any:
    """The part `where` of each sample's share of the long rows, as (samples, channels, ...): a view."""
    return row.reshape(len(row), samples, *shape)[:, :, *where].swapaxes(0, 1)


def grid_forward(xp: Any, g: Geometry, data: Any, weight: Any, out: Any, work: Any) -> None:
    """Convolution of stride 1."""
    grid = g.forward_grid
    padded, columns, result, *cast = carve(work, g.forward_pieces)
    groups, fg, cg, taps = g.weight_split
    w = _in_type_of(xp, cast, weight.reshape(groups, fg, cg * taps))
    padded.fill(0)
    for i in range(0, g.n, grid.samples):
        m = min(grid.samples, g.n - i)
        length = m * prod(grid.shape)
        if length < result.shape[1]:
            padded[:, length:].fill(0)  # the last part is shorter: overwrite the rest of the previous one
        xp.copyto(_box(padded[:, :length], m, grid.shape, grid.inside), data[i : i + m], casting="unsafe")
        product = result.reshape(groups, fg, -1)
        for start in range(0, length, grid.columns):
            stop = min(start + grid.columns, length)
            gathered = _gather(xp, padded, start, stop - start, grid.steps, g, columns)
            xp.matmul(w, gathered, out=product[:, :, start:stop])
        xp.copyto(out[i : i + m], _box(result[:, :length], m, grid.shape, grid.outputs), casting="unsafe")


def grid_backward(
    xp: Any, g: Geometry, d_out: Any, data: Any, weight: Any, d_data: Any, d_weight: Any, work: Any
) -> None:
    """Both gradients of a convolution of stride 1 from the columns of d_out, shifted the other way.

    d_data[c, m] = sum over f, k of weight[f, c, k] * d_out[f, m - k * step], and
    d_weight[f, c, k] = sum over m of data[c, m] * d_out[f, m - k * step].
    """
    grid = g.backward_grid
    padded, columns, x, turned, part, *total = carve(work, g.backward_pieces)
    groups, fg, cg, taps = g.weight_split
    if d_data is not None:
        w = weight.reshape(groups, fg, cg, taps).swapaxes(1, 2)
        xp.copyto(turned.reshape(groups, cg, fg, taps), w, casting="unsafe")
    if d_weight is not None:
        d_turned = d_weight.reshape(groups, fg, cg, taps).swapaxes(1, 2)
        added = part.reshape(d_turned.shape)
        sums = total[0].reshape(d_turned.shape) if total else d_turned
    steps = tuple(-s for s in grid.steps)
    padded.fill(0)
    for i in range(0, g.n, grid.samples):
        m = min(grid.samples, g.n - i)
        length = m * prod(grid.shape)
        laid = padded[:, grid.reach : grid.reach + length]
        xp.copyto(_box(laid, m, grid.shape, grid.outputs), d_out[i : i + m], casting="unsafe")
        inside = _box(x[:, :length], m, grid.shape, grid.inside)
        if d_weight is not None:
            x.fill(0)
            xp.copyto(inside, data[i : i + m], casting="unsafe")
        by_group = x.reshape(groups, cg, -1)
        for start in range(0, length, grid.columns):
            stop = min(start + grid.columns, length)
            gathered = _gather(xp, padded, grid.reach + start, stop - start, steps, g, columns)
            here = by_group[:, :, start:stop]
            if d_weight is not None:
                xp.matmul(here, gathered.swapaxes(1, 2), out=part)
                _add(xp, sums, added, first=i == start == 0)
            if d_data is not None:
                xp.matmul(turned, gathered, out=here)  # over the data, which is not read any more
        if d_data is not None:
            xp.copyto(d_data[i : i + m], inside, casting="unsafe")
    if d_weight is not None and total:
        xp.copyto(d_turned, sums, casting="unsafe")


# -- columns -------------------------------------------------------------------------------------


def _column_samples(g: Geometry) -> int:
    # Columns, result and data's gradient together: half of that fits SCRATCH, so all fits twice.
    return samples_at_a_time(g, ((g.c * g.taps + g.f) * prod(g.out) + g.c * prod(g.size) + 1) // 2)


def _columns_pieces(g: Geometry, backward: bool) -> list[Piece]:
    """Columns, result; then forward: the weight when cast; backward: data's gradient, weight's twice."""
    m, q = _column_samples(g), prod(g.out)
    groups, fg, cg, taps = g.weight_split
    pieces: list[Piece] = [((g.c * taps * m * q,), g.acc), ((g.f * m * q,), g.acc)]
    w: Piece = ((groups, fg, cg * taps), g.acc)
    low = g.acc != g.dtype
    if not backward:
        return pieces + [w] * low
    return [*pieces, ((g.c * m * prod(g.size),), g.acc), *[w] * (3 if low else 1)]


def _fill_columns(xp: Any, g: Geometry, data: Any, columns: Any) -> Any:
    """Columns of all samples given, (G, C/G * taps, samples * positions)."""
    m = len(data)
    filled = columns[: g.c * g.taps * m * prod(g.out)]
    if any(g.pad):
        filled.fill(0)
    by_tap = filled.reshape(g.c, g.taps, m, *g.out)
    for k, inside, outputs in window_slices(g.size, g.kernel, g.stride, g.dilate, g.pad, g.out):
        xp.copyto(by_tap[:, k, :, *outputs], data[:, :, *inside].swapaxes(0, 1), casting="unsafe")
    return filled.reshape(g.groups, g.c // g.groups * g.taps, -1)


def columns_forward(xp: Any, g: Geometry, data: Any, weight: Any, out: Any, work: Any) -> None:
    """Convolution of any stride and padding."""
    columns, result, *cast = carve(work, g.forward_pieces)
    groups, fg, cg, taps = g.weight_split
    w = _in_type_of(xp, cast, weight.reshape(groups, fg, cg * taps))
    step = _column_samples(g)
    for i in range(0, g.n, step):
        m = min(step, g.n - i)
        product = result[: g.f * m * prod(g.out)]
        filled = _fill_columns(xp, g, data[i : i + m], columns)
        xp.matmul(w, filled, out=product.reshape(groups, fg, -1))
        xp.copyto(out[i : i + m], product.reshape(g.f, m, *g.out).swapaxes(0, 1), casting="unsafe")


def columns_backward(
    xp: Any, g: Geometry, d_out: Any, data: Any, weight: Any, d_data: Any, d_weight: Any, work: Any
) -> None:
    """d_weight = d_out @ columns.T; the columns' gradient weight.T @ d_out is added back to its
    sources."""
    columns, rows, d_x, part, *cast = carve(work, g.backward_pieces)
    groups, fg, cg, taps = g.weight_split
    if d_data is not None:
        w = _in_type_of(xp, cast[:1], weight.reshape(groups, fg, cg * taps)).swapaxes(1, 2)
    if d_weight is not None:
        sums = cast[1] if cast else d_weight.reshape(part.shape)
    step = _column_samples(g)
    for i in range(0, g.n, step):
        m = min(step, g.n - i)
        d = rows[: g.f * m * prod(g.out)]
        xp.copyto(d.reshape(g.f, m, *g.out), d_out[i : i + m].swapaxes(0, 1), casting="unsafe")
        d = d.reshape(groups, fg, -1)
        if d_weight is not None:
            filled = _fill_columns(xp, g, data[i : i + m], columns)
            xp.matmul(d, filled.swapaxes(1, 2), out=part)
            _add(xp, sums, part, first=i == 0)
        if d_data is not None:
            flat = columns[: g.c * taps * m * prod(g.out)]
            xp.matmul(w, d, out=flat.reshape(groups, cg * taps, -1))
            by_tap = flat.reshape(g.c, taps, m, *g.out)
            grads = d_x[: g.c * m * prod(g.size)].reshape(g.c, m, *g.size)
            grads.fill(0)
            for k, inside, outputs in window_slices(g.size, g.kernel, g.stride, g.dilate, g.pad, g.out):
                place = grads[:, :, *inside]
                xp.add(place, by_tap[:, k, :, *outputs], out=place)
            xp.copyto(d_data[i : i + m], grads.swapaxes(0, 1), casting="unsafe")
    if d_weight is not None and cast:
        xp.copyto(d_weight.reshape(part.shape), sums, casting="unsafe")


def _in_type_of(xp: Any, scratch: list[Any], x: Any) -> Any:
    """x itself, or its copy in the scratch array that a two-byte type needs."""
    if not scratch:
        return x
    xp.copyto(scratch[0], x, casting="unsafe")
    return scratch[0]


def _add(xp: Any, total: Any, part: Any, first: bool) -> None:
    if first:
        xp.copyto(total, part)
    else:
        xp.add(total, part, out=total)


_PIECES: dict[str, Callable[[Geometry, bool], list[Piece]]] = {
    "pointwise": _pointwise_pieces,
    "grid": _grid_pieces,
    "columns": _columns_pieces,
}
FORWARD: dict[str, Callable[..., None]] = {
    "pointwise": pointwise_forward,
    "grid": grid_forward,
    "columns": columns_forward,
}
BACKWARD: dict[str, Callable[..., None]] = {
    "pointwise": pointwise_backward,
    "grid": grid_backward,
    "columns": columns_backward,
}
