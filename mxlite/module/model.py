"""Checkpoints by prefix and epoch, under the names MXNet gives them: `mx.model`."""

from __future__ import annotations

from typing import Any

from ..formats import load_params as _load_params
from ..ndarray import NDArray
from ..symbol import load as _load_symbol
from .callback import BatchEndParam as BatchEndParam
from .checkpoint import save_checkpoint as save_checkpoint


def load_checkpoint(prefix: str, epoch: int) -> tuple[Any, dict[str, NDArray], dict[str, NDArray]]:
    """(symbol, arg_params, aux_params) of `PREFIX-symbol.json` and `PREFIX-%04d.params`."""
    return (_load_symbol(f"{prefix}-symbol.json"), *_load_params(f"{prefix}-{epoch:04d}.params"))


def load_params(prefix: str, epoch: int) -> tuple[dict[str, NDArray], dict[str, NDArray]]:
    """(arg_params, aux_params) of `PREFIX-%04d.params`."""
    return _load_params(f"{prefix}-{epoch:04d}.params")
