"""Facts of a loop nest for a cost model: its context relation, after Chen et al., "Learning to Optimize
Tensor Programs" (NeurIPS 2018).

Each level of the nest, the innermost first, says how long it is, how many bytes its body touches, and how
often it touches each. All are log scaled, so that a model of one shape serves others.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log2, prod

from ...core.dtype import as_dtype
from .facts import EXPENSIVE, facts_of
from .nest import PlacedNest

LEVELS = 3  # from the innermost one


def nest_features(placed: PlacedNest, knobs: Sequence[int], width: int) -> list[float]:
    """17 numbers: three of each level, the points outside of them, the work of a point, the knobs, the part
    of the last axis that fills no vectors."""
    nest, lengths, facts = placed.nest, placed.lengths, facts_of(placed.nest)
    order = [*facts.kept, *facts.reduced]  # from the outermost loop
    arrays = [*nest.loads, *(x for _, x in nest.stores)]
    found: list[float] = []
    for level in range(1, LEVELS + 1):
        inner = order[-level:]
        visits = prod(lengths[k] for k in inner)
        each = [prod(lengths[k] for k in inner if x.mask[k]) for x in arrays]
        nbytes = sum(n * as_dtype(x.dtype).itemsize for n, x in zip(each, arrays))
        reuse = visits * len(arrays) / max(1, sum(each))
        length = lengths[order[-level]] if level <= len(order) else 1
        found += [log2(1 + length), log2(1 + nbytes), log2(1 + reuse)]
    found.append(log2(1 + prod(lengths[k] for k in order[:-LEVELS])))
    slow = sum(name in EXPENSIVE for name in facts.names)
    found += [log2(1 + len(nest.steps)), log2(1 + slow), log2(1 + len(arrays))]
    found += [log2(1 + x) for x in knobs]
    whole = max(1, knobs[1]) * width
    found.append(lengths[-1] % whole / whole)
    return found
