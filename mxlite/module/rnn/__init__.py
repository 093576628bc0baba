"""`mx.rnn`: cells that build the graph of a recurrent network step by step, their files, and sentences."""

from ...io import sentences as _sentences
from ...io.sentences import BucketSentenceIter as BucketSentenceIter, encode_sentences as encode_sentences
from .base_cell import BaseRNNCell as BaseRNNCell
from .bidirectional_cell import BidirectionalCell as BidirectionalCell
from .checkpoint import (
    do_rnn_checkpoint as do_rnn_checkpoint,
    load_rnn_checkpoint as load_rnn_checkpoint,
    save_rnn_checkpoint as save_rnn_checkpoint,
)
from .convolutional_cell import (
    BaseConvRNNCell as BaseConvRNNCell,
    ConvGRUCell as ConvGRUCell,
    ConvLSTMCell as ConvLSTMCell,
    ConvRNNCell as ConvRNNCell,
)
from .dropout_cell import DropoutCell as DropoutCell
from .fused_cell import FusedRNNCell as FusedRNNCell
from .modifier_cell import (
    ModifierCell as ModifierCell,
    ResidualCell as ResidualCell,
    ZoneoutCell as ZoneoutCell,
)
from .params import RNNParams as RNNParams
from .sequential_cell import SequentialRNNCell as SequentialRNNCell
from .step_cell import GRUCell as GRUCell, LSTMCell as LSTMCell, RNNCell as RNNCell

io = _sentences  # where MXNet keeps them
