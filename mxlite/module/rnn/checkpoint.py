"""Checkpoints whose weights are gate by gate, so that fused and unfused cells read each other's files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...ndarray import NDArray
from ..saved.checkpoint import load_checkpoint, save_checkpoint
from .base_cell import BaseRNNCell

Cells = BaseRNNCell | Sequence[BaseRNNCell]


def save_rnn_checkpoint(
    cells: Cells,
    prefix: str,
    epoch: int,
    symbol: Any,
    arg_params: Mapping[str, NDArray],
    aux_params: Mapping[str, NDArray],
) -> None:
    """`mx.model.save_checkpoint`, with the weights of `cells` unpacked."""
    for cell in _listed(cells):
        arg_params = cell.unpack_weights(arg_params)
    save_checkpoint(prefix, epoch, symbol, arg_params, aux_params)


def load_rnn_checkpoint(
    cells: Cells, prefix: str, epoch: int
) -> tuple[Any, dict[str, NDArray], dict[str, NDArray]]:
    """`mx.model.load_checkpoint`, with the weights of `cells` packed."""
    symbol, arg_params, aux_params = load_checkpoint(prefix, epoch)
    for cell in _listed(cells):
        arg_params = cell.pack_weights(arg_params)
    return symbol, arg_params, aux_params


def do_rnn_checkpoint(cells: Cells, prefix: str, period: int = 1) -> Callable[..., None]:
    """Epoch-end callback: `save_rnn_checkpoint` every `period` epochs."""
    period = int(max(1, period))

    def save(epoch: int, symbol: Any = None, arg: Any = None, aux: Any = None) -> None:
        if (epoch + 1) % period == 0:
            save_rnn_checkpoint(cells, prefix, epoch + 1, symbol, arg, aux)

    return save


def _listed(cells: Cells) -> Sequence[BaseRNNCell]:
    return [cells] if isinstance(cells, BaseRNNCell) else cells
