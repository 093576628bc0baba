"""The layout of a recurrent network: its sizes, its weights in one vector, its time in blocks of steps.

Layers are numbered from the bottom. A *pass* is one layer in one direction: number `layer * D + direction`.
The vector `parameters` holds, pass by pass, all weights, then, pass by pass, all biases:

    weights of a pass   x (G*H, I)   h (G*H, P)   r (P, H), only with a projection
    biases of a pass    x (G*H,)     h (G*H,)

Time is cut into blocks of K steps ("stretches"). Work that covers many steps at once (the product of inputs
and weights, the gradient of the weights) is done for a block with one matrix product, so that scratch holds K
steps, not T.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isqrt, prod
from typing import Any, NamedTuple

from ...core.record import record
from ...graph.ir import Shape

GATES = {"rnn_relu": 1, "rnn_tanh": 1, "lstm": 4, "gru": 3}

_ROWS = 256  # samples times steps from which on a matrix product runs at full speed


class Weights(NamedTuple):
    """Views of one pass's part of `parameters`, or of its gradient; or their positions."""

    x: Any
    h: Any
    r: Any  # None without a projection
    bx: Any
    bh: Any


@record
class Sizes:
    """T steps, B samples, I inputs; L layers of D directions; H hidden units, of which P go out; G gates."""

    T: int
    B: int
    I: int  # noqa: E741
    L: int
    D: int
    H: int
    P: int
    G: int
    projected: bool

    @classmethod
    def of(cls, a: Any, data: Shape) -> Sizes:
        """Sizes from an operator's attributes and the shape of its data."""
        directions = 1 + a.bidirectional
        out = a.projection_size or a.state_size
        steps, samples, inputs = data
        projected = a.projection_size is not None
        return cls(
            steps, samples, inputs, a.num_layers, directions, a.state_size, out, GATES[a.mode], projected
        )

    @property
    def K(self) -> int:
        """Steps of a block: about sqrt(T), more if that makes matrix products too small."""
        wanted = max(isqrt(max(self.T - 1, 0)) + 1, -(-_ROWS // max(self.B, 1)))
        return max(1, min(self.T, wanted))

    @property
    def stretches(self) -> int:
        return -(-self.T // self.K)

    @property
    def passes(self) -> int:
        return self.L * self.D

    def width(self, layer: int) -> int:
        """Number of inputs of a layer."""
        return self.D * self.P if layer else self.I

    @property
    def widest(self) -> int:
        return max(self.width(layer) for layer in range(self.L))

    @property
    def parameters(self) -> int:
        """Length of the vector of all weights and biases."""
        gates = self.G * self.H
        each = [gates * (self.width(layer) + self.P + 2) for layer in range(self.L)]
        return self.D * (sum(each) + self.L * self.projected * self.P * self.H)

    def span(self, direction: int, stretch: int) -> tuple[int, int]:
        """Steps [begin, end) of a block; block 0 is the one that is computed first."""
        begin, end = stretch * self.K, min((stretch + 1) * self.K, self.T)
        return (begin, end) if direction == 0 else (self.T - end, self.T - begin)

    def order(self) -> Iterator[tuple[int, int, int]]:
        """(layer, direction, block) in the order of computation.

        With one direction, all layers take a block before any takes the next: there is never more than a
        block between two layers. With two, a layer needs the layer below from its first to its last step.
        """
        if self.D == 1:
            return ((layer, 0, n) for n in range(self.stretches) for layer in range(self.L))
        return (
            (layer, d, n) for layer in range(self.L) for d in range(self.D) for n in range(self.stretches)
        )


class ParameterPlace(NamedTuple):
    """The position of a weight or bias in the vector."""

    begin: int
    shape: Shape

    @property
    def end(self) -> int:
        return self.begin + prod(self.shape)


def places(s: Sizes) -> list[Weights]:
    """The positions of the weights of each pass."""
    gates = s.G * s.H
    at = 0

    def take(*shape: int) -> ParameterPlace:
        nonlocal at
        place = ParameterPlace(at, shape)
        at = place.end
        return place

    weights = []
    for layer in range(s.L):
        for _ in range(s.D):
            x, h = take(gates, s.width(layer)), take(gates, s.P)
            weights.append((x, h, take(s.P, s.H) if s.projected else None))
    biases = [(take(gates), take(gates)) for _ in weights]
    return [Weights(*w, *b) for w, b in zip(weights, biases)]


def split(flat: Any, s: Sizes) -> list[Weights]:
    """The weights of each pass, as views of the vector."""
    return [
        Weights(*(None if p is None else flat[p.begin : p.end].reshape(p.shape) for p in weights))
        for weights in places(s)
    ]
