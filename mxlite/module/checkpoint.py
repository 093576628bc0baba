"""A model in two files: `PREFIX-symbol.json` and `PREFIX-0001.params`, as MXNet names and writes them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from ..ndarray import NDArray, save


def save_checkpoint(
    prefix: str,
    epoch: int,
    symbol: Any,
    arg_params: Mapping[str, NDArray],
    aux_params: Mapping[str, NDArray],
) -> None:
    """Write the network (unless `symbol` is None) and its parameters after `epoch` epochs."""
    if symbol is not None:
        symbol.save(f"{prefix}-symbol.json")
    path = f"{prefix}-{epoch:04d}.params"
    named = {f"arg:{k}": v for k, v in arg_params.items()} | {f"aux:{k}": v for k, v in aux_params.items()}
    save(path, named)
    logging.info('Saved checkpoint to "%s"', path)
