"""A module as the operators that its forward calls: torch.export, without decomposition.

Operators such as layer_norm, scaled_dot_product_attention and lstm stay whole. A program that writes in
place is made functional, so that each value is written once.
"""

from __future__ import annotations

import os
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ...core import MXLiteError
from ...core.process import forks
from ..building import NotSupportedError
from .package import torch_package

_EXPORTING = forks.rlock()
"""One export at a time: the exporter, and what is done around it, change PyTorch and the module meanwhile."""


def exported(module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """The ExportedProgram of `module` in training.

    A module in evaluation mode is exported as if it trained and stays as it is; of one that trains, parts in
    evaluation mode (frozen normalizations) stay frozen. Raises NotSupportedError, naming the module's path
    and the line, for what cannot be traced.
    """
    torch = torch_package()
    if not isinstance(module, torch.nn.Module):
        raise MXLiteError(f"from_torch takes a torch.nn.Module, got {type(module).__name__}.")
    _require_host(module)
    with _EXPORTING, warnings.catch_warnings(), _training(module), _no_custom_gradients(torch):
        warnings.simplefilter("ignore")  # the exporter's, of PyTorch's own code
        try:
            program = torch.export.export(module, tuple(args), dict(kwargs), strict=False)
            return decomposed(program, {}) if _writes_in_place(program) else program
        except MXLiteError:
            raise
        except Exception as error:  # of many kinds, by torch's version
            raise _untraceable(module, error) from error


def decomposed(program: Any, table: Mapping[Any, Any]) -> Any:
    """The program without writes in place, and with the operators of `table` taken apart."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return program.run_decompositions(dict(table))


def _require_host(module: Any) -> None:
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if tensor.device.type != "cpu":
            raise NotSupportedError(
                f"{name!r} lies on {tensor.device}; mxlite reads arrays of the host: give module.cpu()"
            )


@contextmanager
def _training(module: Any) -> Iterator[None]:
    modes = [(part, part.training) for part in module.modules()]
    if not module.training:
        module.train()
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode


@contextmanager
def _no_custom_gradients(torch: Any) -> Iterator[None]:
    """The tracer steps through an autograd.Function and forgets its backward, and so it does with the hook of
    a tensor: the gradient would be wrong.

    Those of `torch.library.register_autograd` are no such: their operator stays in the program as a whole,
    and has a converter or is refused. Refused on this thread alone; others may train meanwhile.
    """
    function, tensor = torch.autograd.Function, torch.Tensor
    apply, hook = function.__dict__["apply"], tensor.__dict__["register_hook"]
    here = threading.get_ident()

    def refuse(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() != here or cls.__module__ == "torch._library.autograd":
            return apply.__get__(None, cls)(*args, **kwargs)
        raise NotSupportedError(
            f"{cls.__module__}.{cls.__qualname__} is an autograd.Function, whose own backward an exported "
            f"program does not have{_where(sys._getframe(1))}"
        )

    def refuse_hook(self: Any, *args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() != here:
            return hook(self, *args, **kwargs)
        raise NotSupportedError(
            f"Tensor.register_hook changes a gradient, which an exported program does not do"
            f"{_where(sys._getframe(1))}"
        )

    function.apply, tensor.register_hook = classmethod(refuse), refuse_hook
    try:
        yield
    finally:
        function.apply, tensor.register_hook = apply, hook


def _where(frame: Any) -> str:
    return f" ({frame.f_code.co_filename}:{frame.f_lineno})" if frame is not None else ""


def _untraceable(module: Any, error: BaseException) -> NotSupportedError:
    paths = {id(part): name for name, part in module.named_modules()}
    path = line = ""
    for frame, number in traceback.walk_tb(error.__traceback__):
        owner = frame.f_locals.get("self")
        if id(owner) in paths:
            path = paths[id(owner)]
        file = frame.f_code.co_filename
        if not is_library(file) and id(owner) in paths:
            line = f", {file}:{number}"
    said = str(error).strip().split("\n\n")[0].strip() or type(error).__name__
    return NotSupportedError(
        f"torch.export cannot trace {type(module).__name__} (in {path or 'the module itself'}{line}): "
        f"{type(error).__name__}: {said}"
    )


def is_library(file: str) -> bool:
    """True for a file of PyTorch itself."""
    return file.startswith((os.path.dirname(torch_package().__file__) + os.sep, "<"))


def _writes_in_place(program: Any) -> bool:
    """True if a node writes in place; batch normalization's counter, which nobody reads, does not count."""
    buffers = program.graph_signature.inputs_to_buffers
    for node in program.graph.nodes:
        schema = getattr(node.target, "_schema", None)
        if node.op != "call_function" or schema is None or not schema.is_mutable:
            continue
        if counts_batches(node, buffers):
            continue
        return True
    return False


def counts_batches(node: Any, buffers: Mapping[str, str]) -> bool:
    """True for the step of a batch normalization's `num_batches_tracked`."""
    if str(node.target) not in ("aten.add_.Tensor", "aten.add.Tensor") or not node.args:
        return False
    return buffers.get(getattr(node.args[0], "name", ""), "").rpartition(".")[2] == "num_batches_tracked"
