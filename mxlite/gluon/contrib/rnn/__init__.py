"""mx.gluon.contrib.rnn: cells with convolutions, with a projection, or with one dropout mask."""

from .conv_rnn_cell import (
    Conv1DGRUCell as Conv1DGRUCell,
    Conv1DLSTMCell as Conv1DLSTMCell,
    Conv1DRNNCell as Conv1DRNNCell,
    Conv2DGRUCell as Conv2DGRUCell,
    Conv2DLSTMCell as Conv2DLSTMCell,
    Conv2DRNNCell as Conv2DRNNCell,
    Conv3DGRUCell as Conv3DGRUCell,
    Conv3DLSTMCell as Conv3DLSTMCell,
    Conv3DRNNCell as Conv3DRNNCell,
)
from .rnn_cell import (
    LSTMPCell as LSTMPCell,
    VariationalDropoutCell as VariationalDropoutCell,
)
