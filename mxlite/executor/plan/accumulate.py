"""Gradient accumulation in place: partial sums lie in the gradient's own array.

A weight that many nodes use (a step of a recurrent net each, or both ends of a tied pair) has a gradient of
many terms, added up as they come. Each sum may overwrite the previous one, and the last one is the user's
array. So all of them are that array:

    d_w = t9 + t8        arena            d_w array  =  t9
    d_w = d_w + t7       arena            d_w array +=  t8
    ...                                   ...
    d_w = d_w + t0       d_w array        d_w array +=  t0

Nothing else uses the array meanwhile: a partial result has one reader, the task that overwrites it.
"""

from __future__ import annotations

from dataclasses import replace

from ...backends.lower import LoweredGraph


def accumulated(found: LoweredGraph, num_forward: int) -> LoweredGraph:
    """`found` with all in-place predecessors of a stored gradient stored in its array too. O(inputs).

    If there are several such inputs, the one written first is taken, which would be live longest. The first
    `num_forward` tasks are the forward pass: they may be recomputed, so their results stay in the arena.
    """
    producer, readers = [-1] * len(found.values), [0] * len(found.values)
    for t, task in enumerate(found.tasks):
        for v in task.outputs:
            if v >= 0:
                producer[v] = t
        for v in task.inputs:
            readers[v] += 1
    values, keys = list(found.values), list(found.key)

    def may_lie_at(v: int, at: int) -> bool:
        return (
            keys[v] is None
            and not values[v].fixed
            and readers[v] == 1
            and producer[v] >= num_forward
            and found.shape[v] == found.shape[at]
            and found.dtype[v] == found.dtype[at]
        )

    for gradient, key in enumerate(found.key):
        if key is None or key[0] != "grad":
            continue
        at = gradient
        while producer[at] >= num_forward:
            task = found.tasks[producer[at]]
            donors = [v for out, v in task.in_place if out == at and may_lie_at(v, at)]
            if not donors:
                break
            at = min(donors, key=lambda v: (producer[v], v))
            values[at], keys[at] = replace(values[at], fixed=True), key
    return replace(found, values=tuple(values), key=tuple(keys))
