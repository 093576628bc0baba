"""mx.gluon.rnn: recurrent layers, which run a whole sequence, and cells, which run one place of it."""

import sys as _sys

from .bidirectional import BidirectionalCell as BidirectionalCell
from .cell import HybridRecurrentCell as HybridRecurrentCell, RecurrentCell as RecurrentCell
from .gated_cells import GRUCell as GRUCell, LSTMCell as LSTMCell, RNNCell as RNNCell
from .layers import GRU as GRU, LSTM as LSTM, RNN as RNN
from .modifiers import (
    DropoutCell as DropoutCell,
    ModifierCell as ModifierCell,
    ResidualCell as ResidualCell,
    ZoneoutCell as ZoneoutCell,
)
from .stacked import (
    HybridSequentialRNNCell as HybridSequentialRNNCell,
    SequentialRNNCell as SequentialRNNCell,
)

rnn_cell = rnn_layer = _sys.modules[__name__]  # where MXNet has them
