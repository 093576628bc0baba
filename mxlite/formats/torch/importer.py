"""`from_torch`: a module of PyTorch becomes a symbol and its parameters."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np

from ... import ndarray as nd
from ...core import FormatError
from ...symbol import Group, Symbol
from ..building import NotSupportedError
from .batch import Batch, free_batch, resized, SIZES
from .errors import Place, UnsupportedModuleError
from .package import torch_package
from .program import decomposed, exported
from .reader import ProgramReader
from .stored import StoredTensor

Imported = tuple[Symbol, dict[str, nd.NDArray], dict[str, nd.NDArray]]


def from_torch(
    module: Any,
    args: Any,
    kwargs: Mapping[str, Any] | None = None,
    dynamic_batch: Batch | None = None,
) -> Imported:
    """The symbol, arguments and auxiliary states of a torch.nn.Module.

    args: example inputs as forward takes them, a tensor or a tuple; their shapes are those of the network.
    kwargs: inputs by name.  Needs the package torch.
    dynamic_batch: inputs whose batch is free, so that the symbol can be bound to any: names of forward's
    parameters, a dict of names and axes where it is not axis 0, or True for every tensor with axes.

    Parameters keep their names in `state_dict`, tied ones are one argument under its first name. Moving means
    and variances of batch normalization are auxiliary states; other buffers are arguments whose learning rate
    is multiplied by 0. Inputs are called as the parameters of forward. An output without axes is a loss:
    `backward` needs no gradient for it.

    The network is that of training: dropout and batch normalization ask at run time whether it trains, as
    MXNet's do. What the module itself holds in evaluation mode while it trains stays so.

    Raises UnsupportedModuleError, which lists every node that cannot be run, NotSupportedError for a module
    that torch.export cannot trace; each names the path in the module and the line. With `dynamic_batch` also
    NotSupportedError for a module that fixes the batch, and ShapeError for inputs that do not have one.
    """
    if dynamic_batch:
        symbol, arrays = _with_free_batch(module, args, kwargs, dynamic_batch)
    else:
        symbol, reader = network_of(module, args, kwargs)
        arrays = reader.builder.arrays
    states = set(symbol.list_auxiliary_states())
    named = {n: nd.array(arrays[n], dtype=arrays[n].dtype) for n in symbol.list_inputs() if n in arrays}
    return (
        symbol,
        {n: a for n, a in named.items() if n not in states},
        {n: a for n, a in named.items() if n in states},
    )


def _with_free_batch(
    module: Any, args: Any, kwargs: Mapping[str, Any] | None, batch: Batch
) -> tuple[Symbol, dict[str, np.ndarray]]:
    called = inspect.signature(module.forward).bind(*_inputs(args), **(kwargs or {}))
    imports = []
    for times in SIZES:
        longer = inspect.BoundArguments(called.signature, resized(called.arguments, batch, times))
        try:
            symbol, reader = network_of(module, longer.args, longer.kwargs)
        except UnsupportedModuleError:
            raise
        except NotSupportedError as error:
            raise NotSupportedError(
                f"The batch cannot be free: with one {times} times as long, {error}"
            ) from error
        imports.append((symbol, reader.builder.arrays, reader.inputs))
    return free_batch(*imports)


def _inputs(args: Any) -> tuple[Any, ...]:
    """Example inputs as a tuple."""
    return (args,) if isinstance(args, torch_package().Tensor) else tuple(args)


def network_of(module: Any, args: Any, kwargs: Mapping[str, Any] | None) -> tuple[Symbol, ProgramReader]:
    """The symbol of a module, and the reader, which knows its inputs and arrays."""
    reader, outputs = read(module, exported(module, _inputs(args), kwargs or {}))
    return Group([reader.builder.result(value, name) for name, value in outputs]), reader


def read(module: Any, program: Any) -> tuple[ProgramReader, list[Any]]:
    """The reader of a program, and its outputs. What has no converter is decomposed, where PyTorch can,
    and so is what that gives.
    """
    first = reader = ProgramReader(program, _stored(module, program))
    outputs = reader.run()
    known = torch_package().export.default_decompositions() if reader.missing else {}
    table: dict[Any, Any] = {}
    while found := {t: known[t] for t in reader.missing if t in known and t not in table}:
        table |= found
        try:
            program = decomposed(program, table)
        except Exception:  # of many kinds: what PyTorch cannot take apart stays missing
            break
        reader = ProgramReader(program, _stored(module, program))
        outputs = reader.run()
    if reader.failures:
        raise UnsupportedModuleError(type(module).__name__, _as_written(first, reader))
    if not outputs:
        raise FormatError(f"{type(module).__name__} returns no tensor.")
    return reader, outputs


def _as_written(first: ProgramReader, last: ProgramReader) -> list[tuple[Place, str]]:
    """The nodes that cannot be converted, by the operators that the module calls: those of `first` of which
    something is left in `last` that cannot be, after they are decomposed.
    """
    left = {place.origin for place, _ in last.failures}
    return [f for f in first.failures if f[0].origin in left] or last.failures


def _stored(module: Any, program: Any) -> dict[str, StoredTensor]:
    """Every tensor of the program by each of its names; of tied ones the first name is theirs."""
    parameters = dict(module.named_parameters(remove_duplicate=False))
    tensors = {**program.constants, **dict(module.named_buffers(remove_duplicate=False)), **parameters}
    firsts: dict[int, StoredTensor] = {}
    for name in (*parameters, *(n for n in tensors if n not in parameters)):
        tensor = tensors[name]
        firsts.setdefault(id(tensor), StoredTensor(name, tensor, name in parameters))
    return {name: firsts[id(tensor)] for name, tensor in tensors.items()}
