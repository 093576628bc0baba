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
from mxlite.backends.rewrite import observed, Rewrite
from mxlite.executor.plan.lower import rewrites

_LIMITS: dict[str, dict[str, Any]] = {
    "passes.tiling.sample_tiles": dict(LEAST_BYTES=512),
    "passes.tiling.inline_weight_casts": dict(LEAST_BYTES=64),
    "passes.tiling.inline_batch_casts": dict(LEAST_BYTES=64, LEAST_SAMPLES=4),
    "passes.fusion.pooled_convolutions": dict(LEAST_BYTES=400),
    "passes.remat.split_norm_statistics": dict(LEAST_COUNT=8),
    "passes.remat.cheap_remat": dict(LEAST_BYTES=256, LEAST_FLOPS=2),
    "passes.remat.remat_at_peak": dict(LEAST_BYTES=256, SHARE=4),
    "gpu.passes": dict(SHARE=20.0),
    "gpu.handwritten.channels": dict(AT_ONCE_ROUNDS=0),
    "passes.fusion.chains": dict(LEAST=16),
    "passes.remat.sink_results": dict(LEAST_SHARE=0.02),
    "passes.tiling.dense_updates": dict(LEAST_BYTES=0, DEEP_LEAST_BYTES=0),
    "passes.tiling.cross_entropy_updates": dict(LEAST_BYTES=0),
    "passes.tiling.convolution_updates": dict(LEAST_BYTES=0),
    "passes.tiling.recurrent_updates": dict(LEAST_BYTES=0),
    "fused.tile_sizes": dict(
        WEIGHT_CAST_BYTES=256,
        FEWEST_WEIGHT_CASTS=2,
        BATCH_CAST_BYTES=16,
        LEAST_BATCH_TILE=4,
        UPDATE_BYTES=512,
        DEEP_UPDATE_BYTES=512,
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
    "cpu.kernels.generated.elementwise": dict(LEAST=16),
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


class Hits:
    """How often each rewrite of a pipeline had something to do, and which operators it put in."""

    def __init__(self) -> None:
        self.changed: Counter[tuple[str, str]] = Counter()
        self.made: Counter[tuple[str, str, str]] = Counter()

    @contextmanager
    def of(self, pipeline: str) -> Iterator[None]:
        """Rewrites inside count for `pipeline`."""

        def see(rewrite: Rewrite) -> None:
            if rewrite.changed:
                self.changed[pipeline, rewrite.name] += 1
                old = {n.op for n in rewrite.before.graph.nodes}
                for op in {n.op for n in rewrite.after.graph.nodes} - old:
                    if op is not None:
                        self.made[pipeline, rewrite.name, op.op_name] += 1

        with observed(see):
            yield

    def missing(self, pipeline: str, backend: Backend) -> list[str]:
        """The rewrites of a backend that have not been hit."""
        return [name for name in rewrites(backend) if not self.changed[pipeline, name]]
