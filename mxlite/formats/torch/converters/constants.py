"""Arrays that are known while importing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...building import GraphValue
from ..node import TorchNode


def arange(n: TorchNode) -> GraphValue:
    n.ignore("end")
    start, step = n.plain("start", 0), n.plain("step", 1)
    return n.builder.constant(np.arange(n.shape[0]) * step + start, n.dtype)


def linspace(n: TorchNode) -> GraphValue:
    return n.builder.constant(np.linspace(n.plain("start"), n.plain("end"), n.plain("steps")), n.dtype)


def _filled(number: float) -> Callable[[TorchNode], GraphValue]:
    def convert(n: TorchNode) -> GraphValue:
        n.ignore("self")
        return n.builder.full(n.shape, number, n.dtype)

    return convert


def full(n: TorchNode) -> GraphValue:
    """full, full_like, new_full, scalar_tensor; fill with a tensor expands it."""
    b = n.builder
    n.ignore("self")
    number = n.plain("fill_value", n.plain("value", n.plain("s")))
    if isinstance(number, (bool, int, float)):
        return b.full(n.shape, number, n.dtype)
    value = b.cast(n["value" if n.plain("value") is not None else "fill_value"], n.dtype)
    return b.expand(value, n.shape)


def copied(n: TorchNode) -> GraphValue:
    """copy: `src` in the type and shape of `self`."""
    n.ignore("self")
    return n.builder.expand(n.builder.cast(n["src"], n.dtype), n.shape)


def eye(n: TorchNode) -> GraphValue:
    n.ignore("n", "m")
    return n.builder.constant(np.eye(n.shape[0], n.shape[1]), n.dtype)


def tril_places(n: TorchNode) -> GraphValue:
    find = np.triu_indices if "triu" in n.target else np.tril_indices
    places = find(n.plain("row"), n.plain("offset", 0), n.plain("col"))
    return n.builder.constant(np.array(places), n.dtype)


def asserted(n: TorchNode) -> None:
    """An assertion that the exporter has checked; it has no result."""
    n.ignore(*n.unread())


CONVERTERS: dict[str, Callable[[TorchNode], Any]] = {
    **dict.fromkeys("zeros zeros_like new_zeros empty empty_like new_empty zero".split(), _filled(0)),
    **dict.fromkeys("ones ones_like new_ones".split(), _filled(1)),
    **dict.fromkeys("full full_like new_full scalar_tensor fill".split(), full),
    "_assert_async": asserted,
    "_assert_scalar": asserted,
    "_assert_tensor_metadata": asserted,
    "arange": arange,
    "copy": copied,
    "eye": eye,
    "linspace": linspace,
    "tril_indices": tril_places,
    "triu_indices": tril_places,
}
