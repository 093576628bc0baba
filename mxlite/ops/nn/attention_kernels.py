"""Blockwise attention and its gradient: the kernels of `attention.py`.

A block is `rows` queries against `columns` keys, for a few heads at a time. Forward goes along the keys and
carries, for each query, the largest score `most`, the sum `total` of exp(score - most), and the weighted sum
of values; each is rescaled when a larger score turns up:

    most' = max(most, scores);   total' = total * exp(most - most') + sum(exp(scores - most'))

Backward knows log_sum = most + log(total), so each weight is exp(score - log_sum) at once, and with
delta = sum(d_out * out) the gradient of a score is weight * (d_out @ value.T - delta).

    keys ->      0 . . . 4 . . .        a causal block is skipped if its first key comes after its last
    queries 0    x o o o . . . .        query; only blocks on the diagonal compare positions
            1    x x o o . . . .
            2    x x x o . . . .
            3    x x x x . . . .        x takes part, o is masked, . is a block that is skipped

Query heads that share a key head are processed one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import sqrt
from typing import Any, NamedTuple

from ...core.dtype import as_dtype
from ...core.record import record
from ...graph.ir import Shape
from ...graph.opdef import DType
from ..random.philox import RandomStream
from ..scratch import accumulator, carve, Piece, scratch_bytes

_ROWS, _COLUMNS = 128, 512
_BLOCK = _ROWS * _COLUMNS  # scores at a time, over all heads of a block
_DRAW = 4096  # random numbers at a time
_BOOL, _BYTE, _INT = (as_dtype(n) for n in ("bool", "uint8", "int32"))


@record
class AttentionPlan:
    """Sizes of the call and of its blocks."""

    batch: int
    groups: int  # key heads
    shared: int  # query heads of each
    queries: int
    keys: int
    width: int
    values: int  # width of a value
    scale: float
    causal: bool
    masked: bool
    drops: bool
    heads: int  # key heads in a block
    rows: int
    columns: int

    @classmethod
    def of(cls, a: Any, shapes: Any) -> AttentionPlan:
        (b, h, n, e), (_, g, s, _), (*_, v) = shapes[:3]
        rows, columns = max(1, min(n, _ROWS)), max(1, min(s, _COLUMNS))
        return cls(
            batch=b,
            groups=g,
            shared=h // g if g else 0,
            queries=n,
            keys=s,
            width=e,
            values=v,
            scale=(1 / sqrt(e) if e else 1.0) if a.scale is None else a.scale,
            causal=a.causal,
            masked=a.use_mask,
            drops=a.p > 0,
            heads=max(1, min(g, _BLOCK // (rows * columns))),
            rows=rows,
            columns=columns,
        )

    def pieces(self, dtype: DType, backward: bool) -> dict[str, Piece]:
        """Scratch by name. `wide_*` are float32 copies of blocks of two-byte arrays."""
        acc = accumulator(dtype)
        narrow = int(acc != dtype)
        h, r, c, e, v = self.heads, self.rows, self.columns, self.width, self.values
        by_name: dict[str, Piece] = {
            "scores": ((h * r * c,), acc),
            "query": ((h * r * e,), acc),
            "wide_key": ((h * c * e * narrow,), acc),
            "wide_value": ((h * c * v * narrow,), acc),
            "each": ((4, h * r), acc),
            "hidden": ((h * r * c,), _BOOL),
            "iota": ((max(r, c),), _INT),
            "drop": ((h * r * c * self.drops,), acc),
            "draw": ((RandomStream.work_bytes(_DRAW) * self.drops,), _BYTE),
        }
        if not backward:
            return by_name | {"sum": ((h * r * v,), acc), "term": ((h * r * v,), acc)}
        return by_name | {
            "d_scores": ((h * r * c,), acc),
            "wide_d_out": ((h * r * v * narrow,), acc),
            "wide_out": ((h * r * v,), acc),
            "delta": ((self.shared * h * self.queries,), acc),
            "d_query": ((self.shared * h * self.queries * e * narrow,), acc),
            "d_query_term": ((h * r * e,), acc),
            "d_key": ((2, h * c * e), acc),
            "d_value": ((2, h * c * v), acc),
            "d_mask": ((h * r * c * self.masked,), acc),
        }

    def nbytes(self, dtype: DType, backward: bool) -> int:
        return scratch_bytes(self.pieces(dtype, backward).values())

    def carve(self, work: Any, dtype: DType, backward: bool) -> dict[str, Any]:
        pieces = self.pieces(dtype, backward)
        return dict(zip(pieces, carve(work, pieces.values())))

    def head_blocks(self) -> Iterator[tuple[int, slice]]:
        for b in range(self.batch):
            for i in range(0, self.groups, self.heads):
                yield b, slice(i, min(self.groups, i + self.heads))

    def row_blocks(self) -> list[slice]:
        return [slice(i, min(self.queries, i + self.rows)) for i in range(0, self.queries, self.rows)]

    def column_blocks(self, end: int) -> list[slice]:
        return [slice(i, min(end, i + self.columns)) for i in range(0, end, self.columns)]


class _Scores:
    """The scores of a block: product, masks, and the numbers that drop weights."""

    def __init__(
        self, xp: Any, plan: AttentionPlan, scratch: dict[str, Any], mask: Any, rng: Any, p: float
    ) -> None:
        self.xp, self.plan, self.scratch, self.rng, self.p = xp, plan, scratch, rng, p
        self.mask = None
        if mask is not None:
            self.mask = mask.reshape((1,) * (4 - mask.ndim) + mask.shape)
        iota = scratch["iota"]
        for i in range(0, iota.size, 2048):
            iota[i : i + 2048] = xp.arange(i, min(iota.size, i + 2048))

    def mask_at(self, mask: Any, b: int, heads: slice, j: int, rows: slice, columns: slice) -> Any:
        """The part of (a view like) the mask that goes with a block, axes of one element kept."""
        r = self.plan.shared
        per_head = slice(heads.start * r + j, (heads.stop - 1) * r + j + 1, r)
        wanted = (b if mask.shape[0] > 1 else 0, per_head, rows, columns)
        return mask[
            tuple(slice(None) if n == 1 and i else w for i, (n, w) in enumerate(zip(mask.shape, wanted)))
        ]

    def make(self, q: Any, k: Any, b: int, heads: slice, j: int, rows: slice, columns: slice) -> Any:
        """q: (heads, rows, E), scaled;  k: (heads, columns, E)  ->  (heads, rows, columns), masked -inf."""
        xp = self.xp
        shape = (q.shape[0], q.shape[1], k.shape[1])
        scores = _first(self.scratch["scores"], shape)
        xp.matmul(q, k.swapaxes(1, 2), out=scores)
        if self.mask is not None:
            mask = self.mask_at(self.mask, b, heads, j, rows, columns)
            if mask.dtype.kind == "b":
                hidden = _first(self.scratch["hidden"], mask.shape)
                xp.logical_not(mask, out=hidden)
                xp.copyto(scores, -xp.inf, where=hidden)
            else:
                xp.add(scores, mask, out=scores)
        if self.plan.causal and columns.stop - 1 > rows.start:
            iota, hidden = self.scratch["iota"], _first(self.scratch["hidden"], shape[1:])
            # key columns.start + c comes after query rows.start + r
            behind = iota[: shape[1], None]
            xp.greater(iota[: shape[2]], xp.add(behind, rows.start - columns.start), out=hidden)
            xp.copyto(scores, -xp.inf, where=hidden)
        return scores

    def visible(self, rows: slice, columns: slice) -> bool:
        """True if some key of the block takes part, as far as positions tell."""
        return not self.plan.causal or columns.start < rows.stop

    def kept(self, shape: Shape, b: int, heads: slice, j: int, rows: slice, columns: slice) -> Any:
        """The block's factors 0 or 1 / (1 - p). Each block has its own numbers, the same in every run."""
        plan, xp = self.plan, self.xp
        drop = _first(self.scratch["drop"], shape)
        flat = drop.reshape(-1)
        blocks_down = -(-plan.queries // plan.rows)
        blocks_along = -(-plan.keys // plan.columns)
        number = (b * plan.groups + heads.start) * plan.shared + j * (heads.stop - heads.start)
        number = number * blocks_down + rows.start // plan.rows * (heads.stop - heads.start)
        number = number * blocks_along + columns.start // plan.columns * (heads.stop - heads.start)
        start = number * plan.rows * plan.columns
        for i in range(0, flat.size, _DRAW):
            self.rng.fill_uniform(xp, flat[i : i + _DRAW], self.scratch["draw"], start + i)
        xp.greater_equal(drop, self.p, out=drop)
        xp.multiply(drop, 1 / (1 - self.p), out=drop)
        return drop


class AttentionArrays(NamedTuple):
    """Inputs of attention."""

    query: Any
    key: Any
    value: Any
    mask: Any = None
    length: Any = None


class AttentionGradients(NamedTuple):
    """Outputs of its gradient."""

    d_query: Any
    d_key: Any
    d_value: Any
    d_mask: Any


def attend(
    xp: Any,
    plan: AttentionPlan,
    x: AttentionArrays,
    out: Any,
    log_sum: Any,
    work: Any,
    rng: Any,
    p: float,
) -> None:
    """out and log_sum; either may be None. p: the share of weights to drop, 0 for none."""
    query, key, value, mask, length = x
    scratch = plan.carve(work, query.dtype, backward=False)
    scores = _Scores(xp, plan, scratch, mask, rng, p)
    grouped = (plan.batch, plan.groups, plan.shared)
    queries = query.reshape(*grouped, plan.queries, plan.width)
    outs = None if out is None else out.reshape(*grouped, plan.queries, plan.values)
    sums = None if log_sum is None else log_sum.reshape(*grouped, plan.queries)
    for b, heads in plan.head_blocks():
        end = _end(plan, length, b)
        count = heads.stop - heads.start
        for j in range(plan.shared):
            for rows in plan.row_blocks():
                height = rows.stop - rows.start
                q = _first(scratch["query"], (count, height, plan.width))
                xp.multiply(queries[b, heads, j, rows], plan.scale, out=q, dtype=q.dtype)
                most, total, new, factor = (_first(x, (count, height, 1)) for x in scratch["each"])
                weighted = _first(scratch["sum"], (count, height, plan.values))
                most.fill(-xp.inf)
                total.fill(0)
                weighted.fill(0)
                for columns in plan.column_blocks(end):
                    if not scores.visible(rows, columns):
                        break
                    k = _wide(xp, key[b, heads, columns], scratch["wide_key"])
                    s = scores.make(q, k, b, heads, j, rows, columns)
                    xp.maximum.reduce(s, axis=2, keepdims=True, out=new)
                    xp.maximum(new, most, out=new)
                    xp.copyto(factor, new)
                    xp.copyto(
                        factor, 0, where=xp.isneginf(new)
                    )  # all masked so far: -inf - 0, not -inf - -inf
                    xp.subtract(s, factor, out=s)
                    xp.exp(s, out=s)
                    xp.subtract(most, factor, out=factor)
                    xp.exp(factor, out=factor)
                    xp.copyto(most, new)
                    xp.multiply(total, factor, out=total)
                    xp.add.reduce(s, axis=2, keepdims=True, out=new)
                    xp.add(total, new, out=total)
                    if outs is None:
                        continue
                    if p:
                        xp.multiply(s, scores.kept(s.shape, b, heads, j, rows, columns), out=s)
                    term = _first(scratch["term"], weighted.shape)
                    xp.matmul(s, _wide(xp, value[b, heads, columns], scratch["wide_value"]), out=term)
                    xp.multiply(weighted, factor, out=weighted)
                    xp.add(weighted, term, out=weighted)
                none = xp.equal(total, 0)
                xp.copyto(total, 1, where=none)
                if outs is not None:
                    xp.divide(weighted, total, out=weighted)
                    xp.copyto(outs[b, heads, j, rows], weighted, casting="unsafe")
                if sums is not None:
                    xp.log(total, out=total)
                    xp.add(total, most, out=total)
                    xp.copyto(total, xp.inf, where=none)  # so that backward's weights are 0
                    xp.copyto(sums[b, heads, j, rows], total[..., 0])


def attend_gradient(
    xp: Any,
    plan: AttentionPlan,
    d_out: Any,
    x: AttentionArrays,
    out: Any,
    log_sum: Any,
    grads: AttentionGradients,
    work: Any,
    rng: Any,
    p: float,
) -> None:
    """Gradients of query, key, value, mask; those that are None are skipped."""
    query, key, value, mask, length = x
    scratch = plan.carve(work, query.dtype, backward=True)
    scores = _Scores(xp, plan, scratch, mask, rng, p)
    grouped = (plan.batch, plan.groups, plan.shared)
    queries, outs, heads_out = (x.reshape(*grouped, plan.queries, x.shape[-1]) for x in (query, out, d_out))
    sums = log_sum.reshape(*grouped, plan.queries)
    d_query, d_key, d_value, d_mask = grads
    for grad in grads:  # blocks accumulate into these, and skipped blocks add nothing
        if grad is not None:
            grad.fill(0)
    if d_mask is not None:
        d_mask = None if d_mask.dtype.kind == "b" else d_mask.reshape((1,) * (4 - mask.ndim) + mask.shape)
    if d_query is not None:
        d_query = d_query.reshape(queries.shape)
    for b, heads in plan.head_blocks():
        end = _end(plan, length, b)
        count = heads.stop - heads.start
        delta = _first(scratch["delta"], (plan.shared, count, plan.queries))
        for j in range(plan.shared):
            for rows in plan.row_blocks():
                product = _first(scratch["wide_out"], (count, rows.stop - rows.start, plan.values))
                xp.multiply(
                    heads_out[b, heads, j, rows], outs[b, heads, j, rows], out=product, dtype=product.dtype
                )
                xp.add.reduce(product, axis=2, out=delta[j, :, rows])
        into = None
        if d_query is not None:
            into = d_query[b, heads].swapaxes(0, 1)
            if scratch["d_query"].size:  # float32 until it is complete
                into = _first(scratch["d_query"], into.shape)
                into.fill(0)
        for columns in plan.column_blocks(end):
            k = _wide(xp, key[b, heads, columns], scratch["wide_key"])
            v = _wide(xp, value[b, heads, columns], scratch["wide_value"])
            d_k, more_k = (_first(x, k.shape) for x in scratch["d_key"])
            d_v, more_v = (_first(x, v.shape) for x in scratch["d_value"])
            d_k.fill(0)
            d_v.fill(0)
            for j in range(plan.shared):
                for rows in plan.row_blocks():
                    if not scores.visible(rows, columns):
                        continue
                    height = rows.stop - rows.start
                    q = _first(scratch["query"], (count, height, plan.width))
                    xp.multiply(queries[b, heads, j, rows], plan.scale, out=q, dtype=q.dtype)
                    d = _wide(xp, heads_out[b, heads, j, rows], scratch["wide_d_out"])
                    s = scores.make(q, k, b, heads, j, rows, columns)
                    xp.subtract(s, sums[b, heads, j, rows][..., None], out=s)
                    xp.exp(s, out=s)
                    d_s = _first(scratch["d_scores"], s.shape)
                    keep = scores.kept(s.shape, b, heads, j, rows, columns) if p else None
                    if d_value is not None:
                        weights = s if keep is None else xp.multiply(s, keep, out=d_s)
                        xp.matmul(weights.swapaxes(1, 2), d, out=more_v)
                        xp.add(d_v, more_v, out=d_v)
                    if d_query is None and d_key is None and d_mask is None:
                        continue
                    xp.matmul(d, v.swapaxes(1, 2), out=d_s)
                    if keep is not None:
                        xp.multiply(d_s, keep, out=d_s)
                    xp.subtract(d_s, delta[j, :, rows][..., None], out=d_s)
                    xp.multiply(d_s, s, out=d_s)
                    if d_mask is not None:
                        target = scores.mask_at(d_mask, b, heads, j, rows, columns)
                        _add_folded(xp, d_s, target, scratch["d_mask"])
                    if d_key is not None:
                        xp.matmul(d_s.swapaxes(1, 2), q, out=more_k)
                        xp.add(d_k, more_k, out=d_k)
                    if into is not None:
                        term = _first(scratch["d_query_term"], q.shape)
                        xp.matmul(d_s, k, out=term)
                        xp.multiply(term, plan.scale, out=term)
                        xp.add(into[j, :, rows], term, out=into[j, :, rows])
            if d_key is not None:
                xp.copyto(d_key[b, heads, columns], d_k, casting="unsafe")
            if d_value is not None:
                xp.copyto(d_value[b, heads, columns], d_v, casting="unsafe")
        if d_query is not None and scratch["d_query"].size:
            xp.copyto(d_query[b, heads].swapaxes(0, 1), into, casting="unsafe")


def _end(plan: AttentionPlan, length: Any, b: int) -> int:
    """Number of keys of a sample that take part."""
    return plan.keys if length is None else max(0, min(plan.keys, int(length[b])))


def _first(flat: Any, shape: Shape) -> Any:
    """The first part of flat scratch, in that shape."""
    size = 1
    for n in shape:
        size *= n
    return flat[:size].reshape(shape)


def _wide(xp: Any, x: Any, box: Any) -> Any:
    """x, or a float32 copy of it in the box if x is of two bytes."""
    if x.dtype.itemsize > 2:
        return x
    wide = _first(box, x.shape)
    xp.copyto(wide, x)
    return wide


def _add_folded(xp: Any, x: Any, target: Any, box: Any) -> None:
    """target += x, summed over the axes along which target is one long; rounded to its type each time."""
    axes = tuple(i for i in range(3) if target.shape[i] != x.shape[i])
    if axes:
        x = xp.add.reduce(x, axis=axes, keepdims=True, out=_first(box, target.shape))
    xp.add(target, x, out=target, casting="unsafe")
