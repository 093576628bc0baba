"""MXNet's operators on sparse storage. On dense arrays they compute the same."""

from __future__ import annotations

from math import prod

from ...core.dtype import FLAGS
from ...core.errors import OpAttributeError, ShapeError
from ...core.record import record
from ...graph.opdef import Op
from ..index.places import bounded, whole
from ..reduce.reduce import Reduce, reduced_axes, spread

uint8 = FLAGS[3]

STYPES = {"default": "0", "row_sparse": "1", "csr": "2"}
"""Storage types, and their numbers in the attributes of variables."""

ZERO_AT_ZERO = frozenset(
    """
    abs sign sqrt square cbrt sin tan arcsin arctan sinh tanh arcsinh arctanh expm1 log1p relu floor ceil
    round rint fix trunc negative degrees radians _copy BlockGrad make_loss
    """.split()
)
"""Operators on one array that give 0 for 0 and so keep the storage type."""


class cast_storage(Op):
    """A copy of `data` with another storage type, ``out = data``.

    data: (...)  ->  out: (...). `stype`: 'default', 'csr' or 'row_sparse'; in a bound program all arrays are
    dense, and it has no effect there.
    """

    inputs = ("data",)
    in_place = {"out": "data"}
    same_shape = True
    cheap = True
    gradient_is = {"data": "d_out"}

    @record
    class Attrs:
        stype: str

        def __post_init__(self) -> None:
            if self.stype not in STYPES:
                raise OpAttributeError(
                    f"parameter 'stype' is one of {', '.join(STYPES)}, got {self.stype!r}."
                )

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.copyto(out, data)


class _sparse_retain(Op):
    """The selected rows of an array; 0 in all others.

    data: (R, ...);  indices: (K,) whole numbers of [0, R) in any dtype  ->  out: as data. The gradient is 0
    in the other rows; `indices` have none.
    """

    inputs = ("data", "indices")
    same_type = ("data",)

    @staticmethod
    def infer_shape(a, data, indices):
        if not data or len(indices) != 1:
            raise ShapeError(f"data must have rows, and indices one axis; got {data} and {indices}.")
        return (data, indices), (data,)

    @staticmethod
    def workspace(a, inputs, outputs, dtype):
        return 8 * prod(inputs[1]) + inputs[0][0]

    backward_workspace = workspace

    @staticmethod
    def forward(xp, a, data, indices, *, out, work):
        _keep_rows(xp, data, indices, out, work)

    @staticmethod
    def backward(xp, a, d_out, indices, *, d_data, work):
        _keep_rows(xp, d_out, indices, d_data, work)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return {"data": w._sparse_retain(heads["out"], ins["indices"])}


def _keep_rows(xp, data, indices, out, work):
    begin = 8 * indices.size
    kept = work[begin : begin + len(data)]
    kept.fill(0)
    kept[bounded(xp, whole(xp, indices, work), len(data), "raise", "_sparse_retain")] = 1
    out.fill(0)
    xp.copyto(out, data, where=kept.view(bool).reshape(-1, *(1,) * (data.ndim - 1)))


class _square_sum(Reduce):
    """Sum of squares over axes, ``out = sum(data**2)``.

    data: (...)  ->  out: `data`'s shape without the axes `axis`; (1,) if none is left.
    Gradient ``2 * d_out * data``.
    """

    backward_reads = ("d_out", "data")

    @staticmethod
    def compute(t, a, data):
        return {"out": t.sum(data * data, reduced_axes(a, len(data.shape)))}

    @classmethod
    def touched_rows(cls, a, ins, out_rows, csr):
        return {"data": out_rows} if out_rows is not None and a.keepdims and a.axis == (1,) else {}

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return {
            "data": w.elemwise_mul(
                w._mul_scalar(ins["data"], scalar=2.0), spread(w, a, heads["out"], ins["data"])
            )
        }


class _touched_rows(Op):
    """1 for the selected rows of a table, 0 for the others.

    data: (...) whole numbers in any dtype  ->  out: (`size`,) uint8. An index out of range is moved to the
    nearest end.
    """

    inputs = ("data",)

    @record
    class Attrs:
        size: int

    @staticmethod
    def infer_shape(a, data):
        return (data,), ((a.size,),)

    @classmethod
    def infer_type(cls, a, *dtypes):
        return dtypes, (uint8,)

    @staticmethod
    def workspace(a, inputs, outputs, dtype):
        return 8 * prod(inputs[0])

    @staticmethod
    def forward(xp, a, data, *, out, work):
        out.fill(0)
        out[bounded(xp, whole(xp, data, work), a.size, "clip", "_touched_rows")] = 1


class _touched_columns(Op):
    """1 for the columns of a matrix that are not all 0, 0 for the others.

    data: (M, N)  ->  out: (N,) uint8.
    """

    inputs = ("data",)

    @staticmethod
    def infer_shape(a, data):
        if len(data) != 2:
            raise ShapeError(f"data must be a matrix, got {data}.")
        return (data,), ((data[1],),)

    @classmethod
    def infer_type(cls, a, *dtypes):
        return dtypes, (uint8,)

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.any(data, axis=0, out=out.view(bool))
