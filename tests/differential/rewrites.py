"""Which rewrites had something to do; and small arrays taken for large ones, so that they have.

Rewrites that save bytes or time leave small arrays alone, by constants of their modules. Networks that are
drawn are small: `small()` sets these constants so low that such arrays count, in several bands.
"""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mxlite.backends import Backend
from mxlite.backends.fused.tiled import Tiled
from mxlite.backends.rewrite import observed, Rewrite, Step
from mxlite.executor.plan.lower import rewrites

_LIMITS: dict[str, dict[str, Any]] = {
    "passes.tiling.sample_tiles": dict(LEAST_BYTES=512),
    "passes.tiling.inline_dense_casts": dict(LEAST_BYTES={"data": 64, "weight": 64}, LEAST_SAMPLES=4),
    "passes.fusion.pooled_convolutions": dict(LEAST_BYTES=400),
    "passes.remat.split_norm_statistics": dict(LEAST_COUNT=8),
    "passes.remat.cheap_remat": dict(LEAST_BYTES=256, LEAST_FLOPS=2),
    "passes.remat.inline_remat": dict(LEAST_BYTES=64),
    "passes.remat.remat_candidates": dict(SMALL=2),
    "passes.remat.remat_at_peak": dict(LEAST_BYTES=256, SHARE=4),
    "gpu.passes": dict(SHARE=20.0),
    "gpu.handwritten.channels": dict(AT_ONCE_ROUNDS=0),
    "passes.fusion.members": dict(LEAST=16),
    "passes.remat.sink_results": dict(LEAST_SHARE=0.02),
    "fused.tile_sizes": dict(
        WEIGHT_CAST_BYTES=256,
        FEWEST_WEIGHT_CASTS=2,
        BATCH_CAST_BYTES=16,
        LEAST_BATCH_TILE=4,
        UPDATE_BYTES=512,
        DEEP_UPDATE_BYTES=512,
        LEAST_UPDATE=0,
        LEAST_DEEP_UPDATE=0,
        FEWEST_UPDATES=1,
        FILTER_BYTES=64,
        SAMPLES_BYTES=256,
        SCORE_BYTES=1,
        LEAST_SCORE_ROWS=4,
        PRODUCT_ROWS=2,
        FILTER_BYTES_OF_THREAD=64,
        FILTERS=4,
    ),
    "passes.tiling.activation_prologue": dict(LEAST_BYTES=256, LEAST_COLUMNS=4),
    "cpu.kernels.generated.computed": dict(LEAST=16),
    "cpu.convolution.direct": dict(LEAST_NARROWED=1024, NARROWED=512),
    "cpu.products": dict(SMALL=64),
    "cpu.compiled.calls.team": dict(LEAST_NBYTES=256),
}


@contextmanager
def small() -> Iterator[None]:
    """Inside, rewrites take arrays of some hundred bytes for large."""
    before: list[tuple[Any, str, Any]] = []

    def put(where: Any, name: str, value: Any) -> None:
        before.append((where, name, getattr(where, name)))
        setattr(where, name, value)

    for name, limits in _LIMITS.items():
        for limit, value in limits.items():
            put(importlib.import_module(f"mxlite.backends.{name}"), limit, value)
    try:
        yield
    finally:
        for where, name, value in reversed(before):
            setattr(where, name, value)


def _operators(step: Step) -> Counter[str]:
    """How often each operator is in a step, those inside of tiles and the addends of norms included."""
    found = Counter(n.op.op_name for n in step.operators)
    sums = (n for n in step.operators if hasattr(n.attrs, "plus"))
    found += Counter(f"{n.op.op_name} plus {n.attrs.plus}" for n in sums)
    tiled = (n for n in step.operators if issubclass(n.op, Tiled))
    return found + Counter(f"{n.op.op_name} of {op.op_name}" for n in tiled for op in set(n.attrs.operators))


class Hits:
    """How often each rewrite of a pipeline had something to do, and as "name with _operator" how often it put
    in that operator, or tiles of it.
    """

    def __init__(self) -> None:
        self.changed: Counter[tuple[str, str]] = Counter()

    @contextmanager
    def of(self, pipeline: str) -> Iterator[None]:
        """Rewrites inside count for `pipeline`."""

        def see(rewrite: Rewrite) -> None:
            if rewrite.changed:
                self.changed[pipeline, rewrite.name] += 1
                for op in _operators(rewrite.after) - _operators(rewrite.before):
                    self.changed[pipeline, f"{rewrite.name} with {op}"] += 1

        with observed(see):
            yield

    def missing(self, pipeline: str, backend: Backend) -> list[str]:
        """The rewrites of a backend that have not been hit."""
        return [name for name in rewrites(backend) if not self.changed[pipeline, name]]
