"""Rows of the operators that move, cut, look up, sort and pad."""

from __future__ import annotations

from case import Case, integers

from mxlite import ops

try:
    import torch
    import torch.nn.functional as F
except ImportError:  # the rows do without
    torch = F = None

ROWS: dict[str, Case] = {
    "_contrib_SparseEmbedding": Case(
        ops._contrib_SparseEmbedding,
        {"input_dim": 5, "output_dim": 3, "deterministic": True},
        [(2, 4), (5, 3)],
        make={"data": integers(0, 5)},
        torch=lambda a, data, weight: F.embedding(data.long(), weight),
    ),
}
