"""CTCLoss: labels of a sequence without their places in it."""

from __future__ import annotations

from typing import Any

from ...core.errors import OpAttributeError
from .base import Loss


class CTCLoss(Loss):
    """The negative logarithm of the probability of a label sequence, summed over all alignments.

    layout: of `pred`, 'NTC' or 'TNC'; its last class is the blank.  label_layout: 'NT' or 'TN'; -1 after the
    end of a label.  Graves et al. 2006.
    """

    def __init__(
        self, layout: str = "NTC", label_layout: str = "NT", weight: float | None = None, **kwargs: Any
    ) -> None:
        for name, value, known in (
            ("layout", layout, ("NTC", "TNC")),
            ("label_layout", label_layout, ("NT", "TN")),
        ):
            if value not in known:
                raise OpAttributeError(f"CTCLoss: {name} must be one of {known}, got {value!r}.")
        super().__init__(weight, label_layout.index("N"), **kwargs)
        self._layout = layout

    def hybrid_forward(
        self,
        F: Any,
        pred: Any,
        label: Any,
        pred_lengths: Any = None,
        label_lengths: Any = None,
        sample_weight: Any = None,
    ) -> Any:
        """The loss of each sequence."""
        if self._layout == "NTC":
            pred = F.swapaxes(pred, dim1=0, dim2=1)
        if self._batch_axis == 1:
            label = F.swapaxes(label, dim1=0, dim2=1)
        lengths = {"data_lengths": pred_lengths, "label_lengths": label_lengths}
        given = {k: v for k, v in lengths.items() if v is not None}
        loss = F.CTCLoss(pred, label, **given, **{f"use_{k}": True for k in given}, blank_label="last")
        return self.weighted(F, loss, sample_weight)
