"""How a network is run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

PIPELINES = ("cpu", "cpu passes", "gpu passes")
"""Fast kernels behind the CPU's passes; reference kernels behind the CPU's, or behind the GPU's."""


@dataclass(frozen=True)
class Setting:
    """Everything but the network that a case has.

    how: one pass of inference; forward and backward; a step with the update in it, by `Executor.step` or by
    Module. `requests` are gradient requests other than "write". `budget`: none, the least feasible, or one
    halfway between. `rounds`: training passes, on other batches. `small`: whether rewrites take small arrays.
    `values`: which numbers variables have; `shake`: those an ulp beside them, other ones for each but 0.
    """

    pipeline: str = "cpu"
    how: Literal["infer", "train", "step", "module"] = "train"
    dtype: str = "float32"
    amp: str | None = None
    loss_scale: float | None = None
    budget: Literal["none", "midway", "least"] = "none"
    engine: Literal["naive", "threaded"] = "naive"
    threads: int = 1
    requests: Mapping[str, str] = field(default_factory=dict)
    optimizer: str = "sgd"
    rounds: int = 2
    values: int = 0
    shake: int = 0
    small: bool = True
