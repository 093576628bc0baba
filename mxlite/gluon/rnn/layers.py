"""RNN, LSTM and GRU as layers: a whole sequence in one operator, `mx.sym.RNN`.

inputs: (T, N, C) in layout 'TNC' -> outputs: (T, N, directions * hidden_size), and the states after the last
place if states were given. One state is (layers * directions, N, hidden_size).
"""

from __future__ import annotations

import re
from typing import Any

from ... import ndarray as nd, symbol as sym
from ...core.errors import OpAttributeError, ShapeError
from ...ndarray import NDArray
from ..blocks.hybrid_block import HybridBlock
from ..parameters.parameter import Parameter
from .states import zeros_for

_GATES = {"rnn_relu": 1, "rnn_tanh": 1, "lstm": 4, "gru": 3}


class _RecurrentLayer(HybridBlock):
    """What all have in common."""

    def _make(self, mode: str, settings: dict[str, Any]) -> None:
        """Make the parameters."""
        layout = settings["layout"]
        if layout not in ("TNC", "NTC"):
            raise OpAttributeError(f"{type(self).__name__}: layout must be 'TNC' or 'NTC', got {layout!r}.")
        self._mode, self._layout = mode, layout
        self._hidden_size: int = settings["hidden_size"]
        self._num_layers: int = settings["num_layers"]
        self._dropout = settings["dropout"]
        self._input_size: int = settings["input_size"]
        self._dtype = settings["dtype"]
        self._sides = ("l", "r") if settings["bidirectional"] else ("l",)
        rows = _GATES[mode] * self._hidden_size
        size = self._input_size
        for i in range(self._num_layers):
            for side in self._sides:
                for name, shape in (
                    ("i2h_weight", (rows, size)),
                    ("h2h_weight", (rows, self._hidden_size)),
                    ("i2h_bias", (rows,)),
                    ("h2h_bias", (rows,)),
                ):
                    init = settings[f"{name}_initializer"]
                    made = self.params.get(
                        f"{side}{i}_{name}",
                        shape=shape,
                        init=init,
                        allow_deferred_init=True,
                        dtype=self._dtype,
                    )
                    setattr(self, f"{side}{i}_{name}", made)
            size = self._hidden_size * len(self._sides)

    def _names_in_files(self) -> dict[str, Parameter]:
        """As MXNet's files have them: as if the layer were a stack of cells."""
        found = {}
        for name, parameter in self._reg_params.items():
            match = re.fullmatch(r"([lr])(\d+)_(.*)", name)
            assert match is not None
            cell = f"{match[1]}_cell." if len(self._sides) == 2 else ""
            found[f"_unfused.{match[2]}.{cell}{match[3]}"] = parameter
        return found

    def state_info(self, batch_size: int = 0) -> list[dict[str, Any]]:
        """Shape and layout of each state."""
        shape = (self._num_layers * len(self._sides), batch_size, self._hidden_size)
        return [{"shape": shape, "__layout__": "LNC"} for _ in range(2 if self._mode == "lstm" else 1)]

    def begin_state(self, batch_size: int = 0, func: Any = nd.zeros, **kwargs: Any) -> list[Any]:
        """States to begin with, zeros unless `func` makes others."""
        made = []
        for i, info in enumerate(self.state_info(batch_size)):
            given = {"name": f"{self.prefix}h0_{i}"} if func is sym.zeros else {}
            made.append(func(shape=info["shape"], **given, **kwargs))
        return made

    def infer_shape(self, *args: Any) -> None:
        """The length of an input's last axis tells the first layer's shapes."""
        if len(args[0].shape) != 3:
            raise ShapeError(
                f"{type(self).__name__} {self.name!r} wants 3 axes, {self._layout}, but the input is "
                f"{args[0].shape}."
            )
        size = args[0].shape[2]
        rows = _GATES[self._mode] * self._hidden_size
        for side in self._sides:
            getattr(self, f"{side}0_i2h_weight").shape = (rows, size)

    def __call__(self, inputs: Any, states: Any = None) -> Any:
        """The outputs, and the last states if `states` were given."""
        given = states is not None
        if not given:
            shapes = [info["shape"] for info in self.state_info()]
            states = zeros_for(
                shapes, inputs, nd if isinstance(inputs, NDArray) else sym, self._layout.index("N")
            )
        elif not isinstance(states, (list, tuple)):
            states = [states]
        outputs, last = super().__call__(inputs, list(states))
        return (outputs, last) if given else outputs

    def hybrid_forward(self, F: Any, inputs: Any, states: Any, **params: Any) -> Any:
        """The outputs and the last states."""
        if self._layout == "NTC":
            inputs = F.swapaxes(inputs, dim1=0, dim2=1)
        parts = [
            F.reshape(params[f"{side}{i}_{g}_{kind}"], shape=(-1,))
            for kind in ("weight", "bias")
            for i in range(self._num_layers)
            for side in self._sides
            for g in ("i2h", "h2h")
        ]
        out, *last = F.RNN(
            inputs,
            F.concat(*parts, dim=0),
            *states,
            state_size=self._hidden_size,
            num_layers=self._num_layers,
            bidirectional=len(self._sides) == 2,
            p=self._dropout,
            state_outputs=True,
            mode=self._mode,
        )
        if self._layout == "NTC":
            out = F.swapaxes(out, dim1=0, dim2=1)
        return out, last

    def __repr__(self) -> str:
        told = f"{self._input_size or None} -> {self._hidden_size}, {self._layout}"
        told += f", num_layers={self._num_layers}" if self._num_layers != 1 else ""
        told += f", dropout={self._dropout}" if self._dropout else ""
        told += ", bidirectional" if len(self._sides) == 2 else ""
        return f"{type(self).__name__}({told})"


class RNN(_RecurrentLayer):
    """h' = activation(W x + b + V h + c), `activation` 'relu' or 'tanh'. Elman 1990."""

    def __init__(
        self,
        hidden_size: int,
        num_layers: int = 1,
        activation: str = "relu",
        layout: str = "TNC",
        dropout: float = 0,
        bidirectional: bool = False,
        i2h_weight_initializer: Any = None,
        h2h_weight_initializer: Any = None,
        i2h_bias_initializer: Any = "zeros",
        h2h_bias_initializer: Any = "zeros",
        input_size: int = 0,
        dtype: Any = "float32",
        **kwargs: Any,
    ) -> None:
        settings = {k: v for k, v in locals().items() if k not in ("self", "kwargs", "__class__")}
        super().__init__(**kwargs)
        if activation not in ("relu", "tanh"):
            raise OpAttributeError(f"RNN: activation must be 'relu' or 'tanh', got {activation!r}.")
        self._make(f"rnn_{activation}", settings)


class LSTM(_RecurrentLayer):
    """Long short-term memory; its states are the output and the cell. Hochreiter and Schmidhuber 1997."""

    def __init__(
        self,
        hidden_size: int,
        num_layers: int = 1,
        layout: str = "TNC",
        dropout: float = 0,
        bidirectional: bool = False,
        input_size: int = 0,
        i2h_weight_initializer: Any = None,
        h2h_weight_initializer: Any = None,
        i2h_bias_initializer: Any = "zeros",
        h2h_bias_initializer: Any = "zeros",
        projection_size: int | None = None,
        h2r_weight_initializer: Any = None,
        state_clip_min: float | None = None,
        state_clip_max: float | None = None,
        state_clip_nan: bool = False,
        dtype: Any = "float32",
        **kwargs: Any,
    ) -> None:
        settings = {k: v for k, v in locals().items() if k not in ("self", "kwargs", "__class__")}
        super().__init__(**kwargs)
        if projection_size is not None or (state_clip_min, state_clip_max, state_clip_nan) != (
            None,
            None,
            False,
        ):
            raise OpAttributeError("LSTM: there is no projection of the output, and no clipping of states.")
        self._make("lstm", settings)


class GRU(_RecurrentLayer):
    """Gated recurrent unit, in cuDNN's form. Cho et al. 2014."""

    def __init__(
        self,
        hidden_size: int,
        num_layers: int = 1,
        layout: str = "TNC",
        dropout: float = 0,
        bidirectional: bool = False,
        input_size: int = 0,
        i2h_weight_initializer: Any = None,
        h2h_weight_initializer: Any = None,
        i2h_bias_initializer: Any = "zeros",
        h2h_bias_initializer: Any = "zeros",
        dtype: Any = "float32",
        **kwargs: Any,
    ) -> None:
        settings = {k: v for k, v in locals().items() if k not in ("self", "kwargs", "__class__")}
        super().__init__(**kwargs)
        self._make("gru", settings)
