"""The autograd part of NDArray: attach_grad, grad and backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...core import DTypeError, nearest, OpAttributeError
from ...core.supplied import Supplied
from ..memory.lazy import lazy_zeros
from ..memory.storage import form_of, Storage
from .differentiate import run_backward
from .tape import Leaf

if TYPE_CHECKING:
    from ..ndarray import NDArray

REQS = ("write", "add", "null")

zeros: Supplied[Callable[..., NDArray]] = Supplied()
"""`mx.nd.zeros`."""
dense: Supplied[type[NDArray]] = Supplied()
"""NDArray."""


class Attachment(Storage):
    """Mixin of NDArray."""

    __slots__ = ()

    def attach_grad(self, grad_req: str = "write", stype: str | None = None) -> None:
        """Ask for this array's gradient: `.grad`, now zeros, which backward writes, or adds to if 'add'. A
        dense one takes no memory before something reads or writes it.

        On a recorded array the history before it is forgotten: gradients end here. `stype` is the gradient's
        storage type, None for the array's. A row_sparse one stores the rows that Embedding with
        `sparse_grad`, or `dot` of a csr array, have read; of other operators' gradients it stores the rows
        that are not 0.
        """
        check_req(self, grad_req)
        (shape, dtype), kind = form_of(self), self.stype if stype is None else stype
        if kind == "default":
            grad = lazy_zeros(dense.call, shape, dtype, self.context)
        else:
            grad = zeros.call(shape, self.context, dtype, kind)
        self.origin = (Leaf(grad, grad_req), 0)

    @property
    def grad(self) -> NDArray | None:
        """The gradient, None for an array that did not ask for one."""
        source = None if self.origin is None else self.origin[0]
        return source.grad if isinstance(source, Leaf) else None

    @property
    def _fresh_grad(self) -> bool:
        """True if a backward pass has written `.grad` since this was set to False, as MXNet's trainers do."""
        source = None if self.origin is None else self.origin[0]
        return isinstance(source, Leaf) and source.fresh

    @_fresh_grad.setter
    def _fresh_grad(self, fresh: bool) -> None:
        source = None if self.origin is None else self.origin[0]
        if isinstance(source, Leaf):
            source.fresh = bool(fresh)

    def backward(
        self, out_grad: NDArray | None = None, retain_graph: bool = False, train_mode: bool = True
    ) -> None:
        """`mx.autograd.backward` from this array; `out_grad` None counts as ones."""
        run_backward([self], [out_grad], None, retain=retain_graph)


def check_req(array: Storage, req: str) -> None:
    if req not in REQS:
        raise OpAttributeError(f"grad_req must be one of {REQS}, got {req!r}.{nearest(str(req), REQS)}")
    if array.storage.dtype == bool:
        raise DTypeError("an array of truth values has no gradient; astype('float32') makes numbers of them.")
