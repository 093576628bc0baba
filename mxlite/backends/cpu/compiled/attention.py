"""Attention as generated code, for the operator of `ops/nn/attention.py`, a block of scores at a time.

A thread takes a block of R queries of one head and goes along the keys, C at a time. Scores are computed
transposed, S^T = K Q^T: a row belongs to a key and the lanes of its vectors to queries, so

    the largest score, the sum, the factors of each query     are vectors: nothing goes across lanes
    K and V                                                    are read one number at a time, in place
    O^T += V^T P^T                                             is a product of the same kind

Only Q is transposed before, and O^T after. Backward recomputes the same blocks; for each block of queries it
walks along the keys with

    P^T = exp(S^T - log_sum)     dV += P^T dO     dP^T = V dO^T     dS^T = P^T (dP^T - delta)
    dK += dS^T Q                 dQ^T += K^T dS^T

one thread at a head, because all its blocks add to the same dK and dV. These are accumulated in scratch, and
so is a block's dQ: gradients may overwrite their variables, rows of dQ when their block is done, dK and dV
when their head is. Arrays of 16-bit numbers are cast to float32 block by block.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from ....core.machine_code import native
from .attention_block import (
    Attention,
    AttentionForm,
    BATCH,
    D_OUT,
    D_VALUE,
    KEYS,
    pack_mask,
    weight,
)
from .calls.team import load
from .codegen import tile
from .codegen.functions import log
from .codegen.ir import FLOAT, number, Value
from .codegen.routine import Int


@functools.lru_cache(maxsize=256)
def code(form: AttentionForm, backward: bool) -> native.Code:
    """The code with one function, `attention`."""
    return load((_AttentionBackward if backward else _AttentionForward)(form).p)


class _AttentionForward(Attention):
    """out and log_sum."""

    def _routines(self) -> None:
        super()._routines()
        d, r = 4 * self.form.values, self.line
        self.product("weighted", tile.TileForm(4, d, r, r, self.r, adds=True))
        if self.form.mask and not self.form.mask_repeats:
            pack_mask(self)

    def run(self) -> None:
        f = self.f
        first, last = f.share(f.times(f.times(f.integer(BATCH), self.heads), self.blocks))
        with f.loop(first, last) as loop:
            self._block(f.over(loop.index, self.blocks), f.rest(loop.index, self.blocks))

    def _block(self, bh: Int, block: Int) -> None:
        f, form, own = self.f, self.form, self.own
        start, count = self.place(block)
        b, h = f.over(bh, self.heads), f.rest(bh, self.heads)
        kv = f.times(f.plus(f.times(b, self.groups), f.over(h, self.shared)), self.keys)
        row = f.plus(f.times(bh, self.queries), start)
        query = f.at(self.query, f.times(row, form.width * form.nbytes))
        key = f.at(self.key, f.times(kv, form.width * form.nbytes))
        value = f.at(self.value, f.times(kv, form.values * form.nbytes))
        f.run("pack_query", query, own["q"], own["q_t"], count, self.scale)
        end = self.end_of(b)
        if form.causal:
            end = f.least(end, f.plus(start, count))
        zero, low = f.const(0.0), f.const(float("-inf"))
        self._rescale([zero] * self.v, clear=True)
        with f.loop(0, end, KEYS, [low] * self.v + [zero] * self.v) as loop:
            most, total = list(loop.values[: self.v]), list(loop.values[self.v :])
            n = f.least(f.minus(end, loop.index), KEYS)
            self.multiply(
                "scores", self.factor("key", key, loop.index, form.width, n), own["q_t"], own["s_t"], n,
                form.width,
            )  # fmt: skip

            def largest(r: Int, scores: list[Value], changed: bool, *sofar: Value) -> Sequence[Value]:
                if changed:
                    for s, at in zip(scores, self.score(r)):
                        f.write(s, at)
                return [f.above(s, m) for s, m in zip(scores, sofar)]

            new = self.masked(b, h, start, count, loop.index, n, largest, most)
            # All masked so far: -inf - 0, not -inf - -inf.
            base = [f.select(f.compare("oeq", m, low), zero, m) for m in new]
            factors = [weight(f, f.sub(m, x)) for m, x in zip(most, base)]

            def weights(r: Int, *sums: Value) -> Sequence[Value]:
                made = []
                for at, x, t in zip(self.score(r), base, sums):
                    share = weight(f, f.sub(f.read(at), x))
                    f.write(share, at)
                    made.append(f.add(t, share))
                return made

            total = list(self.lines(0, n, weights, [f.mul(t, x) for t, x in zip(total, factors)]))
            with f.when(f.is_("sgt", loop.index, 0)):
                self._rescale(factors)
            self.multiply(
                "weighted", self.factor("value", value, loop.index, form.values, n), own["s_t"],
                own["out_t"], form.values, n,
            )  # fmt: skip
            loop.again(*new, *total)
        most, total = list(loop.results[: self.v]), list(loop.results[self.v :])
        none = [f.compare("oeq", t, zero) for t in total]
        with f.when(self.there(self.log_sum)):
            at = f.at(self.log_sum, f.times(row, 4))
            for j, (m, t, z) in enumerate(zip(most, total, none)):
                value_of = f.select(z, f.const(float("inf")), f.add(log(f, t), m))
                i = j * self.lanes
                f.store(value_of, at, i, mask=f.tail(i, count))
        with f.when(self.there(self.out)):
            for j, (t, z) in enumerate(zip(total, none)):
                f.store(f.select(z, zero, f.div(f.const(1.0), t)), own["s_t"], j * self.lanes)
            self.turn(
                f, own["out_t"], self.line, own["q"], 4 * self.d, self.d, self.r,
                lambda column: f.load(own["s_t"], column),
            )  # fmt: skip
            into = f.at(self.out, f.times(row, form.values * form.nbytes))
            self.write_rows(own["q"], self.d, into, form.values, count)

    def _rescale(self, factors: list[Value], clear: bool = False) -> None:
        f = self.f
        with f.loop(0, self.d) as loop:
            at = f.at(self.own["out_t"], f.times(loop.index, self.line))
            for j, x in enumerate(factors):
                place = f.at(at, 4 * self.lanes * j)
                f.write(f.const(0.0) if clear else f.mul(f.read(place), x), place)


class _AttentionBackward(Attention):
    """Gradients of query, key and value; those whose address is 0 are skipped."""

    backward = True

    def _routines(self) -> None:
        super()._routines()
        form, e, d, r = self.form, 4 * self.form.width, 4 * self.form.values, self.line
        self.product("d_weights", tile.TileForm(d, 4, r, r, self.r))
        self.product("d_queries", tile.TileForm(4, e, r, r, self.r, adds=True))
        self.product("d_values", tile.TileForm(r, 4, 4 * self.d, d, form.values, adds=True))
        self.product("d_keys", tile.TileForm(r, 4, 4 * self.e, e, form.width, adds=True))
        self.pack("head", form.values, self.d, form.dtype)
        if form.mask and not form.mask_repeats:
            pack_mask(self)

    def run(self) -> None:
        f, form = self.f, self.form
        self.d_out, self.d_query, self.d_key, self.d_value = (f.pointer(s) for s in range(D_OUT, D_VALUE + 1))
        first, last = f.share(f.times(f.integer(BATCH), self.groups))
        with f.loop(first, last) as loop:
            b = f.over(loop.index, self.groups)
            sums = [self.own[name] for name, _, _ in self._of_keys()]
            for name, array, numbers in self._of_keys():
                with f.when(self.there(array)):
                    count = f.times(self.keys, numbers)
                    f.sweep(0, count, lambda i, m, to=self.own[name]: f.store(f.const(0.0), to, i, mask=m))
            each = f.times(self.shared, self.blocks)
            with f.loop(0, each) as inner:
                h = f.plus(
                    f.times(f.rest(loop.index, self.groups), self.shared), f.over(inner.index, self.blocks)
                )
                self._block(b, h, loop.index, f.rest(inner.index, self.blocks), *sums)
            for name, array, numbers in self._of_keys():
                with f.when(self.there(array)):
                    own = f.at(array, f.times(f.times(loop.index, self.keys), numbers * form.nbytes))
                    source = self.own[name]
                    f.sweep(
                        0, f.times(self.keys, numbers),
                        lambda i, m, s=source, o=own: f.store(f.load(s, i, mask=m), o, i, form.dtype, m),
                    )  # fmt: skip

    def _of_keys(self) -> tuple[tuple[str, Value, int], ...]:
        """The gradients that are sums over queries: name, address, and numbers of a key."""
        return (
            ("d_key", self.d_key, self.form.width),
            ("d_value", self.d_value, self.form.values),
        )

    def _block(self, b: Int, h: Int, kv: Int, block: Int, d_key: Value, d_value: Value) -> None:
        f, form, own = self.f, self.form, self.own
        start, count = self.place(block)
        row = f.plus(f.times(f.plus(f.times(b, self.heads), h), self.queries), start)
        query = f.at(self.query, f.times(row, form.width * form.nbytes))
        head = f.at(self.d_out, f.times(row, form.values * form.nbytes))
        out = f.at(self.out, f.times(row, form.values * form.nbytes))
        key = f.at(self.key, f.times(f.times(kv, self.keys), form.width * form.nbytes))
        value = f.at(self.value, f.times(f.times(kv, self.keys), form.values * form.nbytes))
        f.run("pack_query", query, own["q"], own["q_t"], count, self.scale)
        f.run("pack_head", head, own["d"], own["d_t"], count, number(FLOAT, 1.0))
        self._deltas(out, count)
        f.sweep(0, self.r * self.e, lambda i, m: f.store(f.const(0.0), own["out_t"], i, mask=m))
        end = self.end_of(b)
        if form.causal:
            end = f.least(end, f.plus(start, count))
        at = f.at(self.log_sum, f.times(row, 4))
        sums = [f.load(at, j * self.lanes, mask=f.tail(j * self.lanes, count)) for j in range(self.v)]
        deltas = [f.load(own["delta"], j * self.lanes) for j in range(self.v)]
        wants_query, wants_key, wants_value = (
            self.there(x) for x in (self.d_query, self.d_key, self.d_value)
        )
        wants_scores = f.binary("or", wants_query, wants_key)
        with f.loop(0, end, KEYS) as loop:
            n = f.least(f.minus(end, loop.index), KEYS)
            some_keys = self.factor("key", key, loop.index, form.width, n)
            self.multiply("scores", some_keys, own["q_t"], own["s_t"], n, form.width)

            def weights(r: Int, scores: list[Value], changed: bool) -> Sequence[Value]:
                for s, x, place in zip(scores, sums, self.score(r)):
                    f.write(weight(f, f.sub(s, x)), place)
                return ()

            self.masked(b, h, start, count, loop.index, n, weights)
            with f.when(wants_value):
                into = f.at(d_value, f.times(loop.index, 4 * form.values))
                self.multiply("d_values", own["s_t"], own["d"], into, n, count)
            with f.when(wants_scores):
                some_values = self.factor("value", value, loop.index, form.values, n)
                self.multiply("d_weights", some_values, own["d_t"], own["dp_t"], n, form.values)
                with f.loop(0, n) as line:
                    shift = f.times(line.index, self.line)
                    p, dp = f.at(own["s_t"], shift), f.at(own["dp_t"], shift)
                    for j, delta in enumerate(deltas):
                        place = f.at(dp, 4 * self.lanes * j)
                        d = f.mul(f.sub(f.read(place), delta), f.read(f.at(p, 4 * self.lanes * j)))
                        f.write(d, place)
                with f.when(wants_key):
                    into = f.at(d_key, f.times(loop.index, 4 * form.width))
                    self.multiply("d_keys", own["dp_t"], own["q"], into, n, count)
                with f.when(wants_query):
                    self.multiply("d_queries", some_keys, own["dp_t"], own["out_t"], form.width, n)
        with f.when(wants_query):
            scale = f.every(self.scale)
            self.turn(f, own["out_t"], self.line, own["q"], 4 * self.e, self.e, self.r, lambda column: scale)
            into = f.at(self.d_query, f.times(row, form.width * form.nbytes))
            self.write_rows(own["q"], self.e, into, form.width, count)

    def _deltas(self, out: Value, count: Int) -> None:
        """delta = the sum over values of d_out * out, of each query."""
        f, form = self.f, self.form
        with f.loop(0, self.r) as loop:
            f.store_one(f.const(0.0), self.own["delta"], loop.index)
        with f.loop(0, count) as loop:
            row = f.at(out, f.times(loop.index, form.values * form.nbytes))
            head = f.at(self.own["d"], f.times(loop.index, 4 * self.d))
            (total,) = f.sweep(
                0, form.values,
                lambda i, m, t: f.fma(f.load(row, i, form.dtype, m), f.load(head, i, mask=m), t),
                [f.const(0.0)],
            )  # fmt: skip
            f.store_one(f.total(total), self.own["delta"], loop.index)
