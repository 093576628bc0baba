"""Sums over ranks against numpy's in the order of the ranks, in all types and odd sizes.

    sums.py RANKS [cpu | gpu | emulated]
"""

from __future__ import annotations

import sys

import numpy as np

import mxlite as mx
from mxlite import comm, dist
from mxlite.comm import buckets, ordered_sum
from mxlite.core import bfloat16
from tests.dist.programs.devices import device_of_this_rank

SIZES = (1, 2, 5, 64, 1001, 70_001)


def array_of(rank, size, dtype, seed=0):
    rng = np.random.default_rng([seed, rank, size])
    if dtype == np.uint8:
        return rng.integers(0, 256, size).astype(dtype)
    return (rng.standard_normal(size) * 10.0 ** rng.integers(-3, 3, size)).astype(dtype)


def expected(size, dtype, seed=0):
    """The sum in the order of the ranks; of 16 bits in float32, rounded once."""
    rows = [array_of(r, size, dtype, seed) for r in range(dist.size())]
    total = rows[0].astype(np.float32) if np.dtype(dtype).itemsize == 2 else rows[0].copy()
    for row in rows[1:]:
        total = total | row if dtype == np.uint8 else total + row.astype(total.dtype)
    return total.astype(dtype)


def same(got, want, what):
    assert got.dtype == want.dtype and got.tobytes() == want.tobytes(), f"{what}, rank {dist.rank()}"


dist.init()
me, world = dist.rank(), comm.current()
assert world.size == int(sys.argv[1])

inside = device_of_this_rank((*sys.argv[2:3], "cpu")[0])
CONTEXT = inside.__enter__()

for dtype in (np.float16, bfloat16, np.float32, np.float64, np.uint8):
    for size in SIZES:
        wanted = expected(size, dtype)
        for piece in (64, 4096, 1 << 18):
            ordered_sum.PIECE = piece
            if size * np.dtype(dtype).itemsize // piece > 600:
                continue
            x = array_of(me, size, dtype)
            work = np.full(comm.sum_workspace(size, x.itemsize, world.size), 255, np.uint8)
            comm.sum_over_ranks(world, x, work)
            same(x, wanted, f"{np.dtype(dtype)} of {size} in pieces of {piece}")
ordered_sum.PIECE = 1 << 18

# Arrays that share messages, whichever share one.
shapes = [(3,), (1001,), (), (7, 5), (2, 0), (70_001,), (1,)]
kinds = [np.float32, np.float64, np.float32, bfloat16, np.float32, np.float32, bfloat16]
for most in (64, 4096, 1 << 18):
    buckets.BUCKET, buckets.SMALL = most, most // 8
    arrays = [
        mx.nd.array(array_of(me, int(np.prod(s)), d, seed=i).reshape(s), ctx=CONTEXT, dtype=d)
        for i, (s, d) in enumerate(zip(shapes, kinds))
        if s
    ]
    sums = dist.Sums(arrays)
    sums.push()
    for i, a in zip([i for i, s in enumerate(shapes) if s], arrays):
        want = expected(int(np.prod(shapes[i])), kinds[i], seed=i).reshape(shapes[i])
        same(a.asnumpy(), want, f"array {i} in buckets of {most}")

# mx.dist
x = mx.nd.array(array_of(me, 33, np.float32), ctx=CONTEXT)
total = mx.dist.allreduce(x, average=False)
same(total.asnumpy(), expected(33, np.float32), "allreduce")
same(mx.dist.allreduce(x).asnumpy(), (total / dist.size()).asnumpy(), "mean")
same(x.asnumpy(), array_of(me, 33, np.float32), "what allreduce was given")
last = dist.size() - 1
same(mx.dist.broadcast(x, root_rank=last).asnumpy(), array_of(last, 33, np.float32), "broadcast")
params = {"b": mx.nd.array([me], ctx=CONTEXT), "a": mx.nd.array([[me, 5.0]], ctx=CONTEXT)}
mx.dist.broadcast_parameters(params)
assert params["b"].asnumpy()[0] == 0 and params["a"].asnumpy().tolist() == [[0, 5]]
for wrong in (-1, dist.size()):
    try:
        mx.dist.broadcast(x, root_rank=wrong)
    except mx.RangeError as error:
        assert str(wrong) in str(error)
    else:
        raise AssertionError(wrong)

# What differs is told on every rank alike.
mx.dist.agree("A text", "the same")
try:
    mx.dist.agree("The text", "another" if me == last else "the same")
except mx.BindError as error:
    wrong = f"rank {last}" if dist.size() > 2 else "rank 1"
    assert str(error).startswith(f"The text of {wrong} differs from that of the other ranks."), error
else:
    raise AssertionError("nothing was raised")
inside.__exit__(None, None, None)
mx.dist.barrier()
if me == 0:
    print("sums agree")
