"""The normalization shared by LayerNorm, GroupNorm, InstanceNorm, RMSNorm and L2Normalization.

    scaled = (x - mean) / spread,   out = scaled * gamma + beta

`mean` is 0 if a rule does not centre; `spread` is the root of the mean, or of the sum, of squares, plus
eps. Statistics take two passes, the second over centred data: E[x^2] - E[x]^2 loses all digits if the mean
is large. Backward recomputes them from the data, so nothing but the inputs is kept.

    d_data = (g - sum(g) / K - scaled * sum(g * scaled) / K) / spread,   g = d_out * gamma

with K numbers folded; without centring the first sum is 0, without averaging K is 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .views import FOLDED, View


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
