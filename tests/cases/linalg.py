"""Rows of `conformance.py` for linear algebra. See `cases.py`."""

from __future__ import annotations

import numpy as np

from mxlite import ops
from tests.conformance.case import Case

MANY = 6000  # matrices, for the allocation check


def definite(rng, shape):
    """Symmetric positive definite matrices, far from singular."""
    x = rng.standard_normal(shape)
    return x @ x.swapaxes(-1, -2) + shape[-1] * np.eye(shape[-1])


def regular(rng, shape):
    """Matrices with a large diagonal: regular, as are their triangles."""
    return 0.5 * rng.standard_normal(shape) + 2 * np.eye(*shape[-2:])


def distinct(rng, shape):
    """Symmetric matrices with eigenvalues near 1, 2, 3, ..."""
    x = 0.1 * rng.standard_normal(shape)
    return x + x.swapaxes(-1, -2) + np.diag(np.arange(1.0, shape[-1] + 1))


def _square(op, make, torch=None, **more):
    fill = {"A": make}
    name = op.op_name
    return {
        f"{name}": Case(op, {}, [(3, 3)], make=fill, torch=torch, empty=False, large=[(MANY, 6, 6)], **more),
        f"{name}-batch": Case(op, {}, [(2, 4, 4)], make=fill, torch=torch, large=[(MANY, 6, 6)], **more),
        f"{name}-batches": Case(
            op, {}, [(2, 1, 2, 2)], make=fill, torch=torch, large=[(MANY, 3, 4, 4)], **more
        ),
    }


def _shape(x):
    return x if x.ndim else x.reshape(1)


def _potrf(a, x):
    import torch

    return torch.linalg.cholesky((x + x.mT) / 2, upper=not a.lower)


def _potri(a, x):
    import torch

    low = x.tril() if a.lower else x.triu().mT
    return torch.linalg.inv(low @ low.mT)


def _trsm(a, x, y):
    import torch

    side = x.tril() if a.lower else x.triu()
    side = side.mT if a.transpose else side
    lower = a.lower != a.transpose
    return torch.linalg.solve_triangular(side, a.alpha * y, upper=not lower, left=not a.rightside)


def _trmm(a, x, y):
    side = x.tril() if a.lower else x.triu()
    side = side.mT if a.transpose else side
    return a.alpha * (y @ side if a.rightside else side @ y)


def _gemm(a, x, y, *rest):
    x, y, *rest = (t.swapaxes(a.axis, -2) for t in (x, y, *rest))
    out = a.alpha * (x.mT if a.transpose_a else x) @ (y.mT if a.transpose_b else y)
    if rest:
        out = out + a.beta * rest[0]
    return out.swapaxes(a.axis, -2)


def _slogdet(a, x):
    sign, size = x.slogdet()
    return _shape(sign), _shape(size)


def _gelqf(a, x):
    import torch

    basis, upper = torch.linalg.qr(x.mT)
    return basis.mT, upper.mT


def _einsum(subscripts, *shapes, large=None, empty=True, torch=True, **more):
    def call(a, *tensors):
        import torch

        out = torch.einsum(a.subscripts, *tensors)
        return out if out.ndim else out.reshape(1)

    attrs = {"num_args": len(shapes), "subscripts": subscripts}
    return {
        f"einsum-{subscripts}": Case(
            ops.einsum, attrs, shapes, torch=call if torch else None, large=large, empty=empty, **more
        )
    }


def _pair(ta, tb, lead=()):
    return [(*lead, 4, 3) if ta else (*lead, 3, 4), (*lead, 5, 4) if tb else (*lead, 4, 5)]


ROWS: dict[str, Case] = {
    **{
        f"_linalg_gemm2{'-ta' * ta}{'-tb' * tb}": Case(
            ops.LinalgGemm2,
            {"transpose_a": ta, "transpose_b": tb, "alpha": 1.5},
            _pair(ta, tb, (2,)),
            torch=_gemm,
            large=_pair(ta, tb, (MANY * 3,)),
        )
        for ta in (False, True)
        for tb in (False, True)
    },
    "_linalg_gemm2-matrix": Case(
        ops.LinalgGemm2, {}, [(3, 4), (4, 5)], torch=_gemm, empty=False, large=[(900, 400), (400, 5)]
    ),
    "_linalg_gemm2-axis": Case(
        ops.LinalgGemm2,
        {"axis": 0},
        [(3, 2, 4), (4, 2, 5)],
        torch=_gemm,
        empty=False,
        large=[(900, 2, 400), (400, 2, 5)],
    ),
    **{
        f"_linalg_gemm{'-ta' * ta}{'-tb' * tb}": Case(
            ops.LinalgGemm,
            {"transpose_a": ta, "transpose_b": tb, "alpha": -0.5, "beta": 2.0},
            [*_pair(ta, tb, (2,)), (2, 3, 5)],
            torch=_gemm,
            large=[*_pair(ta, tb, (MANY * 3,)), (MANY * 3, 3, 5)],
        )
        for ta in (False, True)
        for tb in (False, True)
    },
    "_linalg_gemm-axis": Case(
        ops.LinalgGemm,
        {"axis": 1, "beta": 0.0},
        [(2, 3, 2, 4), (2, 4, 2, 5), (2, 3, 2, 5)],
        torch=_gemm,
        large=[(2, 300, 2, 400), (2, 400, 2, 50), (2, 300, 2, 50)],
    ),
    "_linalg_syrk": Case(ops._linalg_syrk, {"alpha": 2.0}, [(2, 3, 4)], torch=lambda a, x: 2 * x @ x.mT),
    "_linalg_syrk-transpose": Case(
        ops._linalg_syrk, {"transpose": True}, [(3, 4)], torch=lambda a, x: x.mT @ x, large=[(3000, 80)]
    ),
    **_square(ops._linalg_potrf, definite, _potrf),
    **_square(ops._linalg_potri, regular, _potri),
    "_linalg_potrf-upper": Case(
        ops._linalg_potrf,
        {"lower": False},
        [(2, 3, 3)],
        make={"A": definite},
        torch=_potrf,
        large=[(MANY, 3, 3)],
    ),
    "_linalg_potri-upper": Case(
        ops._linalg_potri,
        {"lower": False},
        [(2, 3, 3)],
        make={"A": regular},
        torch=_potri,
        large=[(MANY, 3, 3)],
    ),
    **_square(ops._linalg_inverse, regular, lambda a, x: x.inverse()),
    **_square(ops._linalg_det, regular, lambda a, x: _shape(x.det())),
    **_square(ops._linalg_slogdet, regular, _slogdet),
    **_square(ops._linalg_sumlogdiag, definite, lambda a, x: _shape(x.diagonal(0, -2, -1).log().sum(-1))),
    **_square(ops._linalg_syevd, distinct),
    **{
        f"{op.op_name}{'-transpose' * t}{'-rightside' * r}{'-upper' * (not low)}": Case(
            op,
            {"transpose": t, "rightside": r, "lower": low, "alpha": 0.5},
            [(2, 3, 3), (2, 4, 3) if r else (2, 3, 4)],
            make={"A": regular},
            torch=call,
            large=[(MANY, 3, 3), (MANY, 14, 3) if r else (MANY, 3, 14)],
        )
        for op, call in ((ops._linalg_trmm, _trmm), (ops._linalg_trsm, _trsm))
        for t in (False, True)
        for r in (False, True)
        for low in (False, True)
    },
    "_linalg_trsm-matrix": Case(
        ops._linalg_trsm,
        {},
        [(5, 5), (5, 1)],
        make={"A": regular},
        torch=_trsm,
        empty=False,
        large=[(MANY, 3, 3), (MANY, 3, 14)],
    ),
    "_linalg_gelqf": Case(ops._linalg_gelqf, {}, [(3, 5)], torch=_gelqf, empty=False, large=[(MANY, 3, 14)]),
    "_linalg_gelqf-square": Case(
        ops._linalg_gelqf, {}, [(2, 3, 3)], make={"A": regular}, torch=_gelqf, large=[(MANY, 6, 6)]
    ),
    **{
        f"_linalg_extractdiag{offset:+}": Case(
            ops._linalg_extractdiag,
            {"offset": offset},
            [(2, 4, 4)],
            torch=lambda a, x: x.diagonal(a.offset, -2, -1),
            large=[(MANY * 3, 4, 4)],
        )
        for offset in (0, 1, -2)
    },
    "_linalg_extractdiag-matrix": Case(
        ops._linalg_extractdiag, {}, [(3, 3)], empty=False, large=[(600, 600)]
    ),
    **{
        f"_linalg_makediag{offset:+}": Case(
            ops._linalg_makediag,
            {"offset": offset},
            [(2, 3)],
            torch=lambda a, x: x.diag_embed(a.offset),
            large=[(MANY * 3, 4)],
        )
        for offset in (0, 1, -2)
    },
    "_linalg_makediag-vector": Case(ops._linalg_makediag, {}, [(3,)], large=[(600,)]),
    **{
        f"_linalg_{name}trian{offset:+}{'-upper' * (not low)}": Case(
            op, {"offset": offset, "lower": low}, [shape], large=[large]
        )
        for name, op, shape, large in (
            ("extract", ops._linalg_extracttrian, (2, 4, 4), (MANY * 3, 4, 4)),
            ("make", ops._linalg_maketrian, (2, 6), (MANY * 3, 6)),
        )
        for offset, low in ((0, True), (0, False), (1, True), (-1, True), (2, False))
    },
    "_linalg_extracttrian-matrix": Case(
        ops._linalg_extracttrian, {}, [(3, 3)], empty=False, large=[(600, 600)]
    ),
    "_linalg_maketrian-vector": Case(ops._linalg_maketrian, {}, [(6,)], empty=False, large=[(180300,)]),
    # -- sums over named axes
    **_einsum("ij,jk->ik", (3, 4), (4, 5), large=[(900, 400), (400, 50)]),
    **_einsum("ij,jk", (3, 4), (4, 5), large=[(900, 400), (400, 50)]),
    **_einsum("ij,kj->ki", (3, 4), (5, 4), large=[(900, 400), (50, 400)]),
    **_einsum("bik,bkj->bij", (2, 3, 4), (2, 4, 5)),
    **_einsum("bhqd,bhkd->bhqk", (2, 3, 4, 5), (2, 3, 2, 5)),
    **_einsum("bqhd,bkhd->bhqk", (2, 4, 3, 5), (2, 2, 3, 5)),
    **_einsum("abcd,dbe->eac", (2, 3, 4, 5), (5, 3, 2), empty=False, large=[(2, 30, 40, 500), (500, 30, 2)]),
    **_einsum("qbd,kbd->bqk", (4, 2, 3), (5, 2, 3), large=[(3000, 20, 3), (5, 20, 3)]),
    **_einsum("dbq,dbk->bqk", (4, 2, 3), (4, 2, 5)),
    **_einsum("i,i->", (6,), (6,)),
    **_einsum("i,j->ij", (3,), (4,), large=[(3000,), (400,)]),
    **_einsum("ij->ji", (3, 4)),
    **_einsum("ij->j", (3, 4)),
    **_einsum("ij->", (3, 4)),
    **_einsum("ii->i", (4, 4), empty=False, large=[(600, 600)]),
    **_einsum("ii->", (4, 4), empty=False, large=[(600, 600)]),
    **_einsum("ii,ij->j", (4, 4), (4, 3), empty=False, large=[(600, 600), (600, 3)]),
    **_einsum("i->ii", (4,), torch=False, empty=False, large=[(600,)]),
    **_einsum("ij,j,jk->ik", (3, 4), (4,), (4, 2), large=[(900, 400), (400,), (400, 2)]),
    **_einsum("ijk,k->i", (3, 4, 5), (5,)),
    **_einsum("i,j->j", (3,), (4,), large=[(300_000,), (4,)]),
    **_einsum("ij,ij->ij", (3, 4), (3, 4)),
    "einsum-int": Case(
        ops.einsum, {"num_args": 2, "subscripts": "ij,jk->ik"}, [(3, 4), (4, 5)], dtype="int32"
    ),
    "khatri_rao": Case(ops.khatri_rao, {"num_args": 2}, [(3, 4), (2, 4)]),
    "khatri_rao-3": Case(ops.khatri_rao, {"num_args": 3}, [(2, 3), (4, 3), (3, 3)], tolerance=1e-5),
    "khatri_rao-1": Case(ops.khatri_rao, {"num_args": 1}, [(3, 4)]),
}
