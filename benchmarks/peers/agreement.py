"""Differences between what two frameworks compute: the loss, outputs, gradients and running means.

A difference is that of two arrays relative to the second one, by their Euclidean norms. Many gradients are
zero but for rounding, as those of a bias in front of a batch normalization; so a gradient that is shorter
than a thousandth of all gradients together is taken relative to that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from pathlib import Path

import numpy as np

GRADIENT = "gradient of "
LEAST = 1e-3
OUTPUTS = 1e-4  # bound for outputs, losses and means


def differences(ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Relative differences by name; infinite for an array that is missing, of another
    shape, or not finite."""
    lengths = {n: length(a) for n, a in theirs.items()}
    all_gradients = sqrt(sum(x * x for n, x in lengths.items() if n.startswith(GRADIENT)))
    found = {}
    for name in {**theirs, **ours}:
        if name not in ours or name not in theirs or ours[name].shape != theirs[name].shape:
            found[name] = float("inf")
            continue
        least = LEAST * all_gradients if name.startswith(GRADIENT) else 0.0
        difference = length(ours[name].astype(np.float64) - theirs[name])
        relative = difference / max(lengths[name], least, 1e-30)
        found[name] = relative if relative == relative else float("inf")
    return found


def length(array: np.ndarray) -> float:
    return float(np.linalg.norm(array.astype(np.float64).reshape(-1)))


def projections(output: np.ndarray) -> list[float]:
    """Three numbers that stand for an output: the root mean squares of every third element, from the first,
    second and third one on, counted round where there are fewer."""
    flat = output.astype(np.float64).reshape(-1)
    return [sqrt(float(np.mean(np.square(flat[i % flat.size :: 3])))) for i in range(3)]


@dataclass(frozen=True)
class Agreement:
    """The largest difference of outputs, losses and means, and of gradients: which one, and of how many."""

    outputs: float
    gradients: float
    worst: str
    count: int

    @classmethod
    def of(cls, answers: Path, exact: Path) -> Agreement:
        """The agreement of two files."""
        with np.load(answers) as ours, np.load(exact) as theirs:
            found = differences(dict(ours), dict(theirs))
        gradients = {n.removeprefix(GRADIENT): d for n, d in found.items() if n.startswith(GRADIENT)}
        worst = max(gradients, key=lambda n: gradients[n], default="")
        outputs = max(d for n, d in found.items() if not n.startswith(GRADIENT))
        return cls(outputs, gradients.get(worst, 0.0), worst, len(gradients))

    def wrong(self, bound: float) -> str:
        """What is wrong, if gradients may differ by `bound`; empty if nothing is."""
        if not self.outputs <= OUTPUTS:
            return f"wrong: outputs differ by {self.outputs:.1e}, more than {OUTPUTS:g}"
        if not self.gradients <= bound:
            return f"wrong: the gradient of {self.worst} differs by {self.gradients:.1e}, more than {bound:g}"
        return ""
