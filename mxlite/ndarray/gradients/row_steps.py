"""Steps of the tape that give a weight a row_sparse gradient: lookups of rows, products with csr matrices.

The gradient stores the rows that the step read, and no array of the weight's size is made. Any other step
gives a dense gradient, of which a leaf that wants row_sparse stores the rows that are not 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..calls.invoke import invoke
from ..calls.plan import Call, call_of
from ..ndarray import NDArray
from ..operators.creation import zeros
from ..sparse_arrays.sparse_array import sparse_array
from ..sparse_arrays.sparse_form import CSRForm, index_type, RowSparseForm
from .host import note_python
from .tape import flows, Leaf, MODE, Origin, origin_of


def is_lookup(origins: Sequence[Origin | None]) -> bool:
    """True if an Embedding looks up rows of a leaf with a row_sparse gradient, and nothing else is taped."""
    data, weight = origins
    leaf = None if weight is None else weight[0]
    return not flows(data) and isinstance(leaf, Leaf) and leaf.grad.stype == "row_sparse"


def is_product(call: Call, inputs: Sequence[NDArray]) -> bool:
    """True if `call` is ``dot(csr, weight)`` and only the weight is on the tape."""
    return (
        call.op.op_name == "dot"
        and origin_of(inputs[0]) is None
        and isinstance(inputs[0].storage, CSRForm)
        and not isinstance(inputs[1].storage, CSRForm)
        and inputs[1].storage.ndim == 2
    )


def recorded(call: Call, inputs: Sequence[NDArray], step: type[_RowStep]) -> Any:
    """The result of the call, which is recorded as `step` instead of as itself."""
    before = MODE.switch(recording=False)
    try:
        result = invoke(call, inputs)
    finally:
        MODE.switch(*before)
    note_python(call.op.op_name, step(call, inputs), [origin_of(a) for a in inputs], inputs, (result,))
    return result


class _RowStep:
    """A call with an input that selects rows and a weight, and the weight's gradient."""

    def __init__(self, call: Call, inputs: Sequence[NDArray]) -> None:
        self.attrs, self.selects, self.shape = call.attrs, inputs[0].copy(), inputs[1].shape

    def differentiate(self, heads: Sequence[Any], wanted: Sequence[bool], places: Sequence[Any]) -> list[Any]:
        """None for the selecting input, and the weight's gradient; dense if it is to be differentiated."""
        gradient = self.gradient(heads[0].plain())
        return [None, gradient.plain() if MODE.recording else gradient]

    def gradient(self, head: NDArray) -> NDArray:
        raise NotImplementedError


class Lookup(_RowStep):
    """`Embedding`: the gradient has the selected rows, each with the sum of its gradients."""

    def gradient(self, head: NDArray) -> NDArray:
        if MODE.recording:
            nothing = zeros(self.shape, head.context, head.dtype)
            call = call_of("index_add", {"axis": 0, "mode": "clip"})
            result: NDArray = invoke(call, (nothing, self.selects, head))
            return result
        named = np.clip(self.selects.look().ravel(), 0, self.shape[0] - 1).astype(index_type)
        order = named.argsort(kind="stable")
        rows, begins = np.unique(named[order], return_index=True)
        terms = head.look().reshape(len(named), -1)
        sums = np.add.reduceat(terms[order], begins, axis=0) if len(rows) else terms
        return sparse_array(RowSparseForm(self.shape, sums, rows), head.context)


class Product(_RowStep):
    """`dot` of a csr matrix: the gradient has the rows for which the matrix has columns."""

    def gradient(self, head: NDArray) -> NDArray:
        back = call_of("dot", {"transpose_a": not self.attrs.transpose_a})
        result: NDArray = invoke(back, (self.selects, head))
        return result.plain().transpose() if self.attrs.transpose_b else result
