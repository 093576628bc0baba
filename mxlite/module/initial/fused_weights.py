"""The vector of weights of the operator RNN, in pieces with names: `rnn_layout.py` with gates apart."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...core import ShapeError
from ...ndarray import NDArray

GATES: dict[str, tuple[str, ...]] = {
    "rnn_relu": ("",),
    "rnn_tanh": ("",),
    "lstm": ("_i", "_f", "_c", "_o"),
    "gru": ("_r", "_z", "_o"),
}


@dataclass(frozen=True)
class FusedWeights:
    """`layers` layers of `hidden` units, H; two directions, l and r, if `bidirectional`.

    Layer by layer and direction by direction, first all weights, then all biases; of each first those of the
    inputs, i2h (H, C), then those of the state, h2h (H, H), gate by gate.
    """

    hidden: int
    layers: int
    mode: str
    bidirectional: bool
    prefix: str = ""

    @property
    def first(self) -> str:
        """The name of the piece at the start."""
        return f"{self.prefix}l0_i2h{GATES[self.mode][0]}_weight"

    def size(self, inputs: int) -> int:
        """Elements of the vector if the sequence has so many channels."""
        gates, ways, h = len(GATES[self.mode]), self._ways, self.hidden
        return ways * gates * h * ((inputs + h + 2) + (self.layers - 1) * (ways * h + h + 2))

    def pieces(self, vector: NDArray) -> dict[str, NDArray]:
        """Views of all pieces by name. Raises ShapeError if no number of channels gives this length."""
        gates, ways, h = len(GATES[self.mode]), self._ways, self.hidden
        inputs = vector.size // (ways * gates * h) - (self.layers - 1) * (ways * h + h + 2) - h - 2
        if inputs < 1 or self.size(inputs) != vector.size:
            raise ShapeError(
                f"{self.layers} layers of {h} units ({self.mode}, {ways} directions) have "
                f"{self.size(1)} weights with 1 input channel, {self.size(2)} with 2, and so on; "
                f"the vector has {vector.size}."
            )
        result: dict[str, NDArray] = {}
        at = 0
        for name, shape in self._shapes(inputs):
            count = shape[0] * shape[1] if len(shape) == 2 else shape[0]
            result[name] = vector[at : at + count].reshape(shape)
            at += count
        return result

    @property
    def _ways(self) -> int:
        return 2 if self.bidirectional else 1

    def _shapes(self, inputs: int) -> Iterator[tuple[str, tuple[int, ...]]]:
        h = self.hidden
        passes = [(layer, way) for layer in range(self.layers) for way in "lr"[: self._ways]]
        for kind in ("weight", "bias"):
            for layer, way in passes:
                for group in ("i2h", "h2h"):
                    width = h if group == "h2h" else inputs if layer == 0 else self._ways * h
                    for gate in GATES[self.mode]:
                        name = f"{self.prefix}{way}{layer}_{group}{gate}_{kind}"
                        yield name, (h, width) if kind == "weight" else (h,)
