"""A model in two files: `PREFIX-symbol.json` and `PREFIX-0001.params`, as MXNet names and writes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core.log import Log
from ...core.wanted import wanted
from ...formats import load_params as load_file
from ...ndarray import NDArray, save
from ...symbol import load as load_symbol

_log = Log(__name__)


def save_checkpoint(
    prefix: str,
    epoch: int,
    symbol: Any,
    arg_params: Mapping[str, NDArray],
    aux_params: Mapping[str, NDArray],
    remove_amp_cast: bool = True,
) -> None:
    """Write the network (unless `symbol` is None) and its parameters after `epoch` epochs."""
    if symbol is not None:
        wanted("save_checkpoint: symbol", symbol, "a Symbol", has=("save",))
        symbol.save(f"{prefix}-symbol.json")
    path = f"{prefix}-{epoch:04d}.params"
    for what, given in (("arg_params", arg_params), ("aux_params", aux_params)):
        wanted(f"save_checkpoint: {what}", given, "a dict of names and NDArrays", Mapping)
    named = {f"arg:{k}": v for k, v in arg_params.items()} | {f"aux:{k}": v for k, v in aux_params.items()}
    save(path, named)
    _log.info('Saved checkpoint to "%s"', path)


def load_checkpoint(prefix: str, epoch: int) -> tuple[Any, dict[str, NDArray], dict[str, NDArray]]:
    """(symbol, arg_params, aux_params) of `PREFIX-symbol.json` and `PREFIX-%04d.params`."""
    return (load_symbol(f"{prefix}-symbol.json"), *load_params(prefix, epoch))


def load_params(prefix: str, epoch: int) -> tuple[dict[str, NDArray], dict[str, NDArray]]:
    """(arg_params, aux_params) of `PREFIX-%04d.params`."""
    return load_file(f"{prefix}-{epoch:04d}.params")
