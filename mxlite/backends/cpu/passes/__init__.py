"""What the CPU backend makes of a graph before it chooses kernels.

`SIMPLIFY` are passes over a forward graph, `COMBINE` passes over a whole step; see `Backend`. They run in
this order.
"""

from __future__ import annotations

from ...passes import banded, loss_updates, narrow_data, pool_first, product_updates, remade, wide_parameters
from ...rewrite import ForwardPass, StepPass
from .added_gradients import added_gradients
from .chains import chains
from .channels_last import channels_last
from .convolution_updates import convolution_updates
from .fold import fold
from .image_gradients import image_gradients
from .keep_gates import forget_gates as forget_gates, keep_gates
from .lightened import lightened as lightened
from .loaded_dense import loaded_dense, loaded_updates
from .loss_bands import loss_bands
from .narrow_gradients import narrow_gradients
from .narrowed_dense import narrowed_dense
from .norm_act import norm_act
from .normed_loads import normed_loads
from .pack import pack as pack
from .pooled_convolutions import pooled_convolutions
from .rnn_updates import rnn_updates
from .split_gradients import split_gradients
from .wide_convolutions import wide_convolutions
from .wide_dense import wide_dense

SIMPLIFY: tuple[ForwardPass, ...] = (
    channels_last,
    fold,
    norm_act,
    pool_first,
    pooled_convolutions,
    narrow_data,
    keep_gates,
    wide_parameters,
)
COMBINE: tuple[StepPass, ...] = (
    loss_bands,
    loss_updates,
    split_gradients,
    image_gradients,
    normed_loads,
    wide_dense,
    wide_convolutions,
    narrow_gradients,
    loaded_dense,
    loaded_updates,
    narrowed_dense,
    product_updates,
    convolution_updates,
    rnn_updates,
    banded,
    added_gradients,
    chains,
    remade,
)
