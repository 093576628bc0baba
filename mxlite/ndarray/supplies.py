"""Functions that arrays and their calls need of files above them, supplied in this one place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import ndarray
from .calls import invoke
from .calls.plan import Call
from .files import persistence
from .gradients import attachment
from .gradients.tape import Origin
from .memory.storage import RawArray
from .ndarray import NDArray
from .operators import creation, methods
from .sparse_arrays import sparse_array, sparse_creation


def supply_all() -> None:
    """Supply each of them."""
    attachment.zeros.supply(creation.zeros)
    attachment.dense.supply(NDArray)
    creation.sparse_array.supply(sparse_creation.array)
    creation.sparse_zeros.supply(sparse_array.zeros_of)
    invoke.lookup_by_rows.supply(_lookup_by_rows)
    methods.sparse_copy.supply(_sparse_copy)
    ndarray.load_raw.supply(persistence.load_raw)
    sparse_array.run_operator.supply(_run_operator)


def _sparse_copy(stype: str, values: RawArray) -> NDArray:
    return sparse_array.sparse_array(sparse_array.form_of_dense(stype, values))


def _lookup_by_rows(call: Call, inputs: Sequence[NDArray], origins: Sequence[Origin | None]) -> Any:
    from .gradients.row_steps import is_lookup, Lookup, recorded  # few programs need it

    return recorded(call, inputs, Lookup) if is_lookup(origins) else None


def _run_operator(call: Call, inputs: Sequence[NDArray], out: Any) -> Any:
    from .sparse_arrays.sparse_operators import run  # few programs have sparse arrays

    return run(call, inputs, out)
