"""mx.gluon.nn: layers."""

import sys as _sys

from ..blocks.block import Block as Block
from ..blocks.hybrid_block import HybridBlock as HybridBlock
from ..blocks.symbol_block import SymbolBlock as SymbolBlock
from .activation import (
    Activation as Activation,
    ELU as ELU,
    GELU as GELU,
    LeakyReLU as LeakyReLU,
    PReLU as PReLU,
    SELU as SELU,
    SiLU as SiLU,
    Swish as Swish,
)
from .containers import HybridSequential as HybridSequential, Sequential as Sequential
from .convolution import (
    Conv1D as Conv1D,
    Conv1DTranspose as Conv1DTranspose,
    Conv2D as Conv2D,
    Conv2DTranspose as Conv2DTranspose,
    Conv3D as Conv3D,
    Conv3DTranspose as Conv3DTranspose,
)
from .dense import Dense as Dense, Dropout as Dropout, Embedding as Embedding, Flatten as Flatten
from .function import HybridLambda as HybridLambda, Lambda as Lambda
from .norm import (
    BatchNorm as BatchNorm,
    BatchNormReLU as BatchNormReLU,
    GroupNorm as GroupNorm,
    InstanceNorm as InstanceNorm,
    LayerNorm as LayerNorm,
    SyncBatchNorm as SyncBatchNorm,
)
from .pooling import (
    AvgPool1D as AvgPool1D,
    AvgPool2D as AvgPool2D,
    AvgPool3D as AvgPool3D,
    GlobalAvgPool1D as GlobalAvgPool1D,
    GlobalAvgPool2D as GlobalAvgPool2D,
    GlobalAvgPool3D as GlobalAvgPool3D,
    GlobalMaxPool1D as GlobalMaxPool1D,
    GlobalMaxPool2D as GlobalMaxPool2D,
    GlobalMaxPool3D as GlobalMaxPool3D,
    MaxPool1D as MaxPool1D,
    MaxPool2D as MaxPool2D,
    MaxPool3D as MaxPool3D,
    ReflectionPad2D as ReflectionPad2D,
)

activations = basic_layers = conv_layers = _sys.modules[__name__]  # where MXNet has them
