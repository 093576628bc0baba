"""Arrays of recurrent layers in groups, for kernels of many parameters (see `graph/grouped.py`)."""

from __future__ import annotations

from typing import Any, NamedTuple


class RnnInputs(NamedTuple):
    """Inputs of the layers."""

    data: Any
    parameters: Any
    state: Any
    state_cell: Any = None
    sequence_length: Any = None


class RnnResults(NamedTuple):
    """Outputs of forward."""

    out: Any
    state_output: Any
    statecell_output: Any
    layers: Any
    cells: Any


class RnnKept(NamedTuple):
    """The outputs that backward reads."""

    out: Any
    layers: Any
    cells: Any


class RnnHeads(NamedTuple):
    """Gradients that arrive at the visible outputs."""

    d_out: Any
    d_state_output: Any
    d_statecell_output: Any


class RnnGradients(NamedTuple):
    """Outputs of backward."""

    d_data: Any
    d_parameters: Any
    d_state: Any
    d_state_cell: Any
