"""Convolution algorithms for arrays with channels last: oneDNN's direct kernels, Winograd, im2col.

Each algorithm is an object per direction with `nbytes` of scratch, a `name`, and a method that connects it to
arrays:

    Forward   connect(data, weight, bias, addend, out, work, factor)
    ByData    connect(d_out, weight, d_data, work)
    ByWeight  connect(d_out, data, d_weight, d_bias, work)

Those with a norm as prologue take one more argument, `line`: a factor and a shift for each channel; for
the weight gradient `PrologueArrays`, which may have an addend, see `ops/norm/norm_act.py`.
"""

from .choice import (
    bits_of as bits_of,
    by_data as by_data,
    by_weight as by_weight,
    DataWays as DataWays,
    forward as forward,
    ForwardWays as ForwardWays,
    normed_by_weight as normed_by_weight,
    normed_forward as normed_forward,
    WeightWays as WeightWays,
)
from .part import ConvolutionPart as ConvolutionPart
