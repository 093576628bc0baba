"""The normalization shared by LayerNorm, GroupNorm, InstanceNorm, RMSNorm and L2Normalization.

    scaled = (x - mean) / spread,   out = scaled * gamma + beta

`mean` is 0 if a rule does not centre; `spread` is the root of the mean, or of the sum, of squares, plus
eps. Statistics take two passes, the second over centred data: E[x^2] - E[x]^2 loses all digits if the mean
is large. They are summed in float32 for two-byte data. Backward recomputes them from the data, while
that is in the cache, so nothing but the inputs is kept.

    d_data = (g - sum(g) / K - scaled * sum(g * scaled) / K) / spread,   g = d_out * gamma

with K numbers folded; without centring the first sum is 0, without averaging K is 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from ...graph.opdef import DType
from ..scratch import accumulator, carve, Piece, scratch_bytes
from .views import fold, FOLDED, group_size, groups, like, Part, part_size, parts, View


@dataclass(frozen=True)
class Rule:
    """The axes and formula of a normalization. `channels`: length of gamma along C, 1 for one per group."""

    view: View
    eps: float
    channels: int = 1
    centre: bool = True
    average: bool = True

    @property
    def count(self) -> int:
        """The divisor of sums of squares."""
        return max(1, self.view[2] * self.view[3]) if self.average else 1

    @property
    def affine(self) -> View:
        """Shape of gamma and beta in the view."""
        return 1, self.view[1], self.channels, 1, 1

    def pieces(self, dtype: DType) -> list[Piece]:
        """Two boxes; mean, inverse spread and three sums of a group; three gradients of gamma's size."""
        acc = accumulator(dtype)
        box = part_size(self.view)
        return [((2, box), acc), ((5, group_size(self.view)), acc), ((3, prod(self.affine)), acc)]

    def nbytes(self, dtype: DType) -> int:
        return scratch_bytes(self.pieces(dtype))


class TensorNorm:
    """The normalization as tensors of a computation `t`, see `te/`: out, mean and spread."""

    def __init__(self, t: Any, rule: Rule, data: Any, gamma: Any = None, beta: Any = None) -> None:
        self.t, self.rule = t, rule
        x = t.view(data, rule.view)
        self.mean = t.mean(x, FOLDED) if rule.centre else None
        apart = x if self.mean is None else x - self.mean
        self.spread = t.sqrt(t.sum(apart * apart, FOLDED) / t.constant(rule.count) + t.constant(rule.eps))
        self.inverse = 1 / self.spread
        self.scaled = apart * self.inverse
        self.gamma = None if gamma is None else t.view(gamma, rule.affine)
        self.out = self.scaled if self.gamma is None else self.scaled * self.gamma
        if beta is not None:
            self.out = self.out + t.view(beta, rule.affine)

    def gradients(self, heads: Mapping[str, Any]) -> dict[str, Any]:
        """See above. A third faster than the derived ones: it is known here that `scaled` has the mean 0."""
        t, rule = self.t, self.rule
        count, gamma = t.constant(rule.count), 1.0 if self.gamma is None else self.gamma
        inner, by_scaled, by_one = (t.broadcast(0.0, v) for v in (rule.view, rule.affine, rule.affine))
        if "out" in heads:
            d = t.view(heads["out"], rule.view)
            own = (3,) if rule.channels > 1 else FOLDED  # over which gamma does not vary
            by_scaled, by_one = t.sum(d * self.scaled, own), t.sum(d, own)
            inner = d * gamma - self.scaled * (t.sum(by_scaled * gamma, FOLDED) / count)
            if rule.centre:
                inner = inner - t.sum(by_one * gamma, FOLDED) / count
        stats = (rule.view[0], rule.view[1], 1, 1, rule.view[4])
        if "std" in heads:
            inner = inner + self.scaled * (t.view(heads["std"], stats) * self.spread / count)
        inner = inner * self.inverse
        if "mean" in heads:
            inner = inner + t.view(heads["mean"], stats) / count
        return {
            "d_data": inner,
            "d_gamma": t.reduced_to(by_scaled, by_scaled.shape, rule.affine),
            "d_beta": t.reduced_to(by_one, by_one.shape, rule.affine),
        }


class _Group:
    """A group's statistics, computed from the data. `inverse` holds the spread until `invert`."""

    def __init__(self, xp: Any, rule: Rule, x: Any, where: tuple[slice, slice], pieces: list[Any]) -> None:
        boxes, stats, _ = pieces
        self.xp, self.rule, self.x = xp, rule, x
        self.parts = parts(rule.view, where)
        self.box, self.other = boxes
        n, g = (s.stop - s.start for s in where)
        p = rule.view[4]
        self.mean, self.inverse, self.first, self.second = (
            s[: n * g * p].reshape(n, g, 1, 1, p) for s in stats[:4]
        )
        self.some = stats[4]
        if not self.parts:  # nothing to fold
            stats.fill(0)
        if rule.centre:
            for part in self.parts:
                fold(xp, xp.add, part, self._wide(part), self.mean, self.some)
            xp.divide(self.mean, max(1, rule.view[2] * rule.view[3]), out=self.mean)
        for part in self.parts:
            centred = self._centred(part, self.box)
            square = like(self.other, centred)
            xp.multiply(centred, centred, out=square)
            fold(xp, xp.add, part, square, self.inverse, self.some)
        xp.divide(self.inverse, rule.count, out=self.inverse)
        xp.add(self.inverse, rule.eps, out=self.inverse)
        xp.sqrt(self.inverse, out=self.inverse)

    def invert(self) -> None:
        """Turn `inverse` into 1 / spread."""
        with self.xp.errstate(divide="ignore"):
            self.xp.divide(1, self.inverse, out=self.inverse)

    def scaled(self, part: Part) -> Any:
        """(x - mean) / spread of a part, in the first box."""
        if len(self.parts) > 1:  # a single part is still there from the statistics
            self._centred(part, self.box)
        box = like(self.box, self.x[part])
        self.xp.multiply(box, self.inverse[..., part[4]], out=box)
        return box

    def _wide(self, part: Part) -> Any:
        """A part in the type of sums."""
        here = self.x[part]
        if here.dtype == self.box.dtype:
            return here
        box = like(self.box, here)
        self.xp.copyto(box, here)
        return box

    def _centred(self, part: Part, box: Any) -> Any:
        here = self.x[part]
        box = like(box, here)
        if self.rule.centre:
            self.xp.subtract(here, self.mean[..., part[4]], out=box)
        else:
            self.xp.copyto(box, here)
        return box


def normalize(
    xp: Any, rule: Rule, data: Any, gamma: Any, beta: Any, out: Any, mean: Any, spread: Any, work: Any
) -> None:
    """out, mean and spread of data; gamma, beta and each of the results may be None."""
    pieces = carve(work, rule.pieces(data.dtype))
    n, g, _, _, p = view = rule.view
    x = data.reshape(view)
    gamma, beta = (None if v is None else v.reshape(rule.affine) for v in (gamma, beta))
    mean, spread = (None if v is None else v.reshape(n, g, 1, 1, p) for v in (mean, spread))
    y = None if out is None else out.reshape(view)
    for where in groups(view):
        group = _Group(xp, rule, x, where, pieces)
        if mean is not None:
            xp.copyto(mean[where], group.mean, casting="unsafe")
        if spread is not None:
            xp.copyto(spread[where], group.inverse, casting="unsafe")
        if y is None:
            continue
        group.invert()
        for part in group.parts:
            box = group.scaled(part)
            if gamma is not None:
                xp.multiply(box, gamma[_channels(rule, part)], out=box)
            if beta is not None:
                xp.add(box, beta[_channels(rule, part)], out=box)
            xp.copyto(y[part], box, casting="unsafe")


def normalize_gradient(
    xp: Any,
    rule: Rule,
    d_out: Any,
    data: Any,
    gamma: Any,
    d_data: Any,
    d_gamma: Any,
    d_beta: Any,
    work: Any,
    d_mean: Any = None,
    d_spread: Any = None,
) -> None:
    """Gradients of `normalize`; a head gradient that is None counts as 0, a None result is skipped."""
    pieces = carve(work, rule.pieces(data.dtype))
    n, g, _, _, p = view = rule.view
    x = data.reshape(view)
    gamma = None if gamma is None else gamma.reshape(rule.affine)
    d: Any = None if d_out is None else d_out.reshape(view)
    heads = [None if v is None else v.reshape(n, g, 1, 1, p) for v in (d_mean, d_spread)]
    to_gamma, to_beta, some = (v.reshape(rule.affine) for v in pieces[2])
    to_gamma.fill(0)
    to_beta.fill(0)
    into = None if d_data is None else d_data.reshape(view)
    for where in groups(view):
        group = _Group(xp, rule, x, where, pieces)
        group.invert()
        group.first.fill(0)
        group.second.fill(0)
        for part in group.parts if d is not None else ():
            term = like(group.other, x[part])
            xp.multiply(d[part], group.scaled(part), out=term)
            _add_channels(xp, rule, part, term, to_gamma, some)
            _times(xp, rule, part, gamma, term)
            fold(xp, xp.add, part, term, group.second, group.some)
            xp.copyto(term, d[part])
            _add_channels(xp, rule, part, term, to_beta, some)
            if rule.centre:
                _times(xp, rule, part, gamma, term)
                fold(xp, xp.add, part, term, group.first, group.some)
        if into is None:
            continue
        for total, head in zip((group.first, group.second), heads):
            xp.divide(total, rule.count, out=total)
            xp.multiply(total, group.inverse, out=total)
            if head is not None:  # of the mean: d / K; of the spread: scaled * d / K
                share = group.some[: total.size].reshape(total.shape)
                xp.divide(head[where], rule.count, out=share)
                xp.subtract(total, share, out=total)
        for part in group.parts:
            # of a single part, `scaled` is in the box already, unless there was no d_out to compute it for
            made = d is not None and len(group.parts) == 1
            scaled = like(group.box, x[part]) if made else group.scaled(part)
            xp.multiply(scaled, group.second[..., part[4]], out=scaled)
            if rule.centre:
                xp.add(scaled, group.first[..., part[4]], out=scaled)
            if d is None:
                xp.negative(scaled, out=scaled)
            else:
                term = like(group.other, scaled)
                xp.multiply(d[part], group.inverse[..., part[4]], out=term)
                _times(xp, rule, part, gamma, term)
                xp.subtract(term, scaled, out=scaled)
            xp.copyto(into[part], scaled, casting="unsafe")
    for made, into in ((to_gamma, d_gamma), (to_beta, d_beta)):
        if into is not None:
            xp.copyto(into.reshape(rule.affine), made, casting="unsafe")


def _channels(rule: Rule, part: Part) -> Part:
    """The part of gamma for a part of the data."""
    every = slice(None)
    return every, part[1], part[2] if rule.channels > 1 else every, every, every


def _times(xp: Any, rule: Rule, part: Part, gamma: Any, x: Any) -> None:
    if gamma is not None:
        xp.multiply(x, gamma[_channels(rule, part)], out=x)


def _add_channels(xp: Any, rule: Rule, part: Part, x: Any, total: Any, some: Any) -> None:
    """total += x, summed over all elements that share a number of gamma."""
    here = _channels(rule, part)
    axes = (0, 3, 4) if rule.channels > 1 else (0, *FOLDED, 4)
    xp.add.reduce(x, axis=axes, keepdims=True, out=some[here])
    xp.add(total[here], some[here], out=total[here])
