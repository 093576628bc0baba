"""SymbolBlock: a symbol as a block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ... import ndarray as nd, symbol as sym
from ...core.compat.npshape import from_user
from ...core.errors import ArgumentError
from ...graph.attrs import parse_tuple
from ...graph.infer import dtype_from_text
from ...ndarray import NDArray
from ...symbol import Group, Symbol
from ..parameters.parameter_dict import ParameterDict
from .hybrid_block import HybridBlock
from .nested import flat, Form
from .trace import Trace


class SymbolBlock(HybridBlock):
    """A symbol as a block: `outputs` for given `inputs`, all other variables are its parameters.

        features = gluon.SymbolBlock(net.get_internals()["flatten_output"], mx.sym.Variable("data"))

    params: values to share, as `collect_params()` of another block.
    """

    def __init__(self, outputs: Any, inputs: Any, params: ParameterDict | None = None) -> None:
        super().__init__(prefix="", params=None)
        self._params = ParameterDict("", params)
        symbols = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
        self._inputs = tuple(_input_name(s) for s in flat(inputs)[0])
        self._symbol = Group(symbols) if len(symbols) > 1 else symbols[0]
        self._several = len(self._symbol) > 1
        states = set(self._symbol.list_auxiliary_states())
        about = self._symbol.attr_dict()
        for name in (*self._symbol.list_arguments(), *states):
            if name in self._inputs:
                continue
            if params is not None and name in params:
                self._params.get(name)
                continue
            own = {"grad_req": "null", "differentiable": False} if name in states else {}
            self._params.get(name, allow_deferred_init=True, **own, **_settings(about.get(name, {})))
        shared = len(_common_prefix(list(self._params)))
        self._reg_params = {n[shared:]: p for n, p in self._params.items()}

    @staticmethod
    def imports(
        symbol_file: str,
        input_names: str | Sequence[str],
        param_file: str | None = None,
        ctx: Any = None,
        allow_missing: bool = False,
        ignore_extra: bool = False,
    ) -> SymbolBlock:
        """A block from the files of `export`, or of a Module's checkpoint."""
        names = [input_names] if isinstance(input_names, str) else list(input_names)
        block = SymbolBlock(sym.load(symbol_file), [sym.Variable(n) for n in names])
        if param_file is not None:
            arrays = nd.load(param_file)
            if not isinstance(arrays, dict):
                raise ArgumentError(f"{param_file} holds arrays without names, so no parameters.")
            block.collect_params().load_dict(
                arrays,
                ctx,
                allow_missing,
                ignore_extra,
                filename=param_file,
                cast_dtype=True,
                dtype_source="saved",
            )
        return block

    def _trace(self, form: Form, count: int) -> Trace:
        """The symbol itself."""
        if count != len(self._inputs):
            raise ArgumentError(
                f"SymbolBlock takes {len(self._inputs)} inputs, {', '.join(self._inputs)}, but got {count}."
            )
        outputs: Form = (True, (0,) * len(self._symbol)) if self._several else 0
        return Trace(self._symbol, self._inputs, outputs)

    def forward(self, *args: Any) -> Any:
        """The outputs. It runs as a bound program always: there are no calls one by one in a symbol."""
        inputs, _ = flat(args)
        if isinstance(inputs[0], NDArray):
            if not self._active:
                self._active = True
            return super().forward(*args)
        return self.composed(*args)

    def composed(self, *args: Any) -> Any:
        """The outputs for symbols."""
        found = self._symbol(**dict(zip(self._inputs, flat(args)[0])))
        return list(found) if self._several else found

    def hybridize(self, active: bool = True, *args: Any, **kwargs: Any) -> None:
        """Set the options of the program; `active` makes no difference."""
        super().hybridize(True, *args, **kwargs)


def _input_name(symbol: Any) -> str:
    if not isinstance(symbol, Symbol) or len(symbol.list_inputs()) != 1 or symbol.get_children() is not None:
        raise ArgumentError(f"SymbolBlock: inputs are variables, mx.sym.Variable('data'), got {symbol!r}.")
    return str(symbol.name)


def _settings(about: Mapping[str, str]) -> dict[str, Any]:
    """What a variable's attributes say about its parameter."""
    found: dict[str, Any] = {}
    if "__shape__" in about:
        found["shape"] = from_user(parse_tuple(about["__shape__"], int))
    if "__dtype__" in about:
        found["dtype"] = dtype_from_text(about["__dtype__"])
    for key in ("lr_mult", "wd_mult"):
        if f"__{key}__" in about:
            found[key] = float(about[f"__{key}__"])
    # A variable has what `Initializer.dumps` wrote. An initializer among the attributes of an operator's
    # call, which GluonCV gives, is not for its bias; MXNet leaves it out, too.
    if about.get("__init__", "").startswith("["):
        found["init"] = about["__init__"]
    return found


def _common_prefix(names: list[str]) -> str:
    """What all names begin with, up to an underscore that ends the name of a block."""
    if not names:
        return ""
    first, last = min(names), max(names)
    length = next((i for i, (a, b) in enumerate(zip(first, last)) if a != b), min(len(first), len(last)))
    return first[: first[:length].rfind("_") + 1]
