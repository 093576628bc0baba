"""mx.gluon: networks as Python objects, run call by call or, hybridized, as programs inside a byte budget.

net = gluon.nn.HybridSequential()
net.add(gluon.nn.Dense(64, activation="relu"), gluon.nn.Dense(10))
net.initialize()
net.hybridize(memory_budget="64MiB")
"""

from ..core import DeferredInitializationError as DeferredInitializationError
from . import (
    block_names,
    contrib as contrib,
    data as data,
    loss as loss,
    model_zoo as model_zoo,
    nn as nn,
    rnn as rnn,
    util_names,
)
from .blocks.block import Block as Block
from .blocks.hybrid_block import HybridBlock as HybridBlock
from .blocks.symbol_block import SymbolBlock as SymbolBlock
from .parameters.constant import Constant as Constant
from .parameters.parameter import Parameter as Parameter
from .parameters.parameter_dict import ParameterDict as ParameterDict
from .trainer import Trainer as Trainer

block = parameter = block_names  # where MXNet has them
utils = util_names
