"""`mx.model`: checkpoints by prefix and epoch, and FeedForward."""

from .feedforward import FeedForward as FeedForward
from .saved.checkpoint import (
    load_checkpoint as load_checkpoint,
    load_params as load_params,
    save_checkpoint as save_checkpoint,
)
from .watch.callback import BatchEndParam as BatchEndParam
