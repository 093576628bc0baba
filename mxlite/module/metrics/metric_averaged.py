"""Metrics whose value does not add up over batches, averaged over batches or computed over all samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from ...core.errors import RangeError
from .metric_base import EvalMetric

Names = Sequence[str] | None


class Tally(Protocol):
    """Statistics of some samples."""

    def add(self, samples: Any) -> None:
        """Count more of them."""

    @property
    def value(self) -> float:
        """The metric of all that were added."""

    @property
    def weight(self) -> int:
        """Contribution of the samples to `num_inst`."""


class Averaged(EvalMetric):
    """A value per batch or per epoch. A subclass defines `tally` and calls `_see` from `update`.

    `average="macro"`: the mean of each batch's value; `"micro"`: the value of all samples together.
    """

    def __init__(
        self,
        name: str,
        output_names: Names = None,
        label_names: Names = None,
        average: str = "macro",
    ) -> None:
        if average not in ("macro", "micro"):
            raise RangeError(f"average is 'macro' or 'micro', got {average!r}.")
        self.average = average
        super().__init__(name, output_names, label_names, has_global_stats=True)

    def tally(self) -> Tally:
        """A tally of no samples."""
        raise NotImplementedError

    def reset(self) -> None:
        self._of_all = self.tally()
        super().reset()

    def reset_local(self) -> None:
        self._of_some = self.tally()
        super().reset_local()

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "average": self.average}

    def _see(self, samples: Any) -> None:
        if self.average == "macro":
            batch = self.tally()
            batch.add(samples)
            self._add(batch.value, 1)
            return
        some, everything = self._of_some, self._of_all
        some.add(samples)
        everything.add(samples)
        self.num_inst, self.sum_metric = some.weight, some.value * some.weight
        self.global_num_inst, self.global_sum_metric = (
            everything.weight,
            everything.value * everything.weight,
        )
