"""What a backend may make of a graph, as far as that depends on no device.

Each pass is told by an argument which operators of another form the backend has kernels for.
"""

from .added_gradients import added_gradients as added_gradients
from .banded import banded as banded
from .channels_last import channels_last as channels_last
from .convolution_updates import convolution_updates as convolution_updates
from .dense_epilogue import dense_epilogue as dense_epilogue
from .divided import divided as divided
from .fold import fold as fold
from .image_gradients import image_gradients as image_gradients
from .lightened import lightened as lightened, Prices as Prices
from .loaded_dense import loaded_dense as loaded_dense
from .loaded_updates import loaded_updates as loaded_updates
from .loss_bands import loss_bands as loss_bands
from .loss_updates import loss_updates as loss_updates, updated_losses as updated_losses
from .narrow_data import narrow_data as narrow_data
from .narrow_gradients import narrow_gradients as narrow_gradients
from .narrowed_dense import narrowed_dense as narrowed_dense
from .norm_act import norm_act as norm_act
from .norm_sums import norm_sums as norm_sums
from .normed_loads import normed_loads as normed_loads
from .pool_first import pool_first as pool_first
from .pooled_convolutions import pooled_convolutions as pooled_convolutions
from .product_updates import product_updates as product_updates
from .remade import remade as remade
from .split_gradients import split_gradients as split_gradients
from .wide_convolutions import wide_convolutions as wide_convolutions
from .wide_dense import wide_dense as wide_dense
from .wide_parameters import wide_parameters as wide_parameters
