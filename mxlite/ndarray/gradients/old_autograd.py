"""mx.contrib.autograd, the interface of autograd before `mx.autograd`; programs of that time still use it.

Code inside `train_section()` is recorded and runs as for training; here the two always go together.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from ...core.wanted import wanted
from ..ndarray import NDArray
from . import autograd
from .autograd import backward as backward, mark_variables as mark_variables


def set_is_training(is_train: bool) -> bool:
    """Turn recording and training mode on or off together; returns the previous setting."""
    autograd.set_recording(is_train)
    return autograd.set_training(is_train)


def train_section() -> AbstractContextManager[None]:
    """`with train_section():` calls are recorded, and run as for training."""
    return autograd.record()


def test_section() -> AbstractContextManager[None]:
    """`with test_section():` inside `train_section()`: calls are not recorded, and run as for inference."""
    return autograd.pause()


def compute_gradient(outputs: Sequence[NDArray]) -> None:
    """Call `backward(outputs)`."""
    backward(outputs)


def grad_and_loss(func: Callable[..., Any], argnum: int | Sequence[int] | None = None) -> Callable[..., Any]:
    """A function that returns (gradients of `func` for its arguments, the result of `func`).

    argnum: the number of the argument, or their numbers, if only these have gradients.
    """

    @functools.wraps(func)
    def wrapped(*args: Any) -> tuple[list[NDArray], Any]:
        numbers = range(len(args)) if argnum is None else [argnum] if isinstance(argnum, int) else argnum
        variables = [wanted(f"Argument {i}", args[i], "an NDArray", NDArray) for i in numbers]
        for x in variables:
            x.attach_grad()
        with train_section():
            outputs = func(*args)
        backward(outputs)
        return [x.grad for x in variables], outputs

    return wrapped


def grad(func: Callable[..., Any], argnum: int | Sequence[int] | None = None) -> Callable[..., Any]:
    """A function that returns the gradients of `func` for its arguments; see `grad_and_loss`."""
    both = grad_and_loss(func, argnum)

    @functools.wraps(both)
    def wrapped(*args: Any) -> list[NDArray]:
        gradients: list[NDArray] = both(*args)[0]
        return gradients

    return wrapped
