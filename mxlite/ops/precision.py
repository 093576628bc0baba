"""The treatment of each operator by mixed precision; `graph/mixed_precision.py` has the pass.

    NARROW      reads and writes 16 bits: products of matrices, summed in float32
    WIDE        in float32: operators that square, exponentiate, divide by small numbers or sum many numbers
    RESULT      computed in float32, and the result counts as 16-bit: rows of a table of parameters
    USERS       16-bit if all readers are, float32 if a user of the program or a WIDE operator reads it
    EVERY       as its data, and inputs without a gradient count as data too
    (no list)   as its data; inputs that have no gradient (labels, indices, lengths) stay as they are

Losses and loops are WIDE without being named, and so is a user's own operator, whose code may know one type.
Whatever the list, an operator that refuses 16-bit types (`infer_type`) stays in float32.

The lists follow from two facts about 16-bit floats: bfloat16 has 8 binary digits and float16's largest number
is 65504. (P. Micikevicius et al. 2018, "Mixed precision training", has the idea and the three groups.)
"""

from __future__ import annotations

from typing import Literal

from ..graph.opdef import Op
from .control.custom import Custom

Precision = Literal["narrow", "wide", "result", "users", "every", "data"]

NARROW = frozenset(
    """
    Convolution Deconvolution FullyConnected RNN dot batch_dot einsum khatri_rao
    scaled_dot_product_attention
    _contrib_interleaved_matmul_selfatt_qk _contrib_interleaved_matmul_selfatt_valatt
    _contrib_interleaved_matmul_encdec_qk _contrib_interleaved_matmul_encdec_valatt
    """.split()
)

WIDE = frozenset(
    """
    SoftmaxOutput LinearRegressionOutput LogisticRegressionOutput MAERegressionOutput SVMOutput MakeLoss
    make_loss softmax_cross_entropy cross_entropy nll_loss CTCLoss WarpCTC smooth_l1 IdentityAttachKLSparseReg

    log_softmax logsumexp sum mean prod nansum nanprod cumsum cumprod norm moments
    _spread_like _sum_like L2Normalization LRN Correlation

    exp expm1 log log1p log2 log10 sqrt rsqrt cbrt rcbrt square reciprocal
    broadcast_power _power_scalar _rpower_scalar _rdiv_scalar broadcast_hypot _hypot_scalar
    broadcast_mod fmod _mod_scalar _rmod_scalar
    sin cos tan arcsin arccos arctan arctan2 sinh cosh arcsinh arccosh arctanh erfinv
    gamma gammaln digamma polygamma

    _linalg_potrf _linalg_potri _linalg_trmm _linalg_trsm _linalg_sumlogdiag _linalg_det _linalg_slogdet
    _linalg_inverse _linalg_gelqf _linalg_syevd _linalg_syrk _linalg_gemm _linalg_gemm2

    _random_pdf_uniform _random_pdf_normal _random_pdf_gamma _random_pdf_exponential _random_pdf_poisson
    _random_pdf_negative_binomial _random_pdf_generalized_negative_binomial

    GridGenerator _grid_d_data BilinearSampler SpatialTransformer
    """.split()
)

RESULT = frozenset(["Embedding", "_contrib_SparseEmbedding"])

USERS = frozenset(["softmax", "softmin", "SoftmaxActivation"])

EVERY = frozenset(["BlockGrad", "zeros_like", "ones_like"])

WIDE_INPUTS = {
    "BatchNorm": ("gamma", "beta"),
    "BatchNorm_v1": ("gamma", "beta"),
    "_contrib_SyncBatchNorm": ("gamma", "beta"),
    "LayerNorm": ("gamma", "beta"),
    "RMSNorm": ("gamma",),
    "GroupNorm": ("gamma", "beta"),
    "InstanceNorm": ("gamma", "beta"),
}
"""Inputs that an operator reads in float32 beside 16-bit data."""


def precision_of(op: type[Op]) -> Precision:
    """The class of `op` in mixed precision."""
    name = op.op_name
    if name in WIDE or op.is_loss or op.subgraphs or issubclass(op, Custom):
        return "wide"
    kinds: dict[Precision, frozenset[str]] = {
        "narrow": NARROW, "result": RESULT, "users": USERS, "every": EVERY
    }  # fmt: skip
    return next((kind for kind, names in kinds.items() if name in names), "data")


def wide_inputs(op: type[Op]) -> tuple[str, ...]:
    """Names of the inputs that `op` reads in float32 beside 16-bit data."""
    return WIDE_INPUTS.get(op.op_name, ())
