"""`mx.executor_manager`: split of a batch over several devices, which iterators of MXNet's programs use."""

from .batch_parts import split_input_slice as _split_input_slice

__all__ = ["_split_input_slice"]  # private in MXNet, too, and used all the same
